"""The columns that Spark sees: those of Spark's own Kafka source, by name, type and order.

    key binary | value binary | topic string | partition int | offset bigint | timestamp timestamp |
    timestampType int | headers array<struct<key: string, value: binary>>  (with includeHeaders)

`timestampType` is Kafka's number: 0 CreateTime, 1 LogAppendTime, -1 none; a record without a timestamp has the
timestamp -1 ms, and one without headers has null, as in that source. With `farTimestamps` null, a timestamp outside of
the years 1 to 9999 is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS_TYPE,
}
_NEVER_NULL = frozenset(_TYPES) - {"key", "value", "timestamp", "headers"}


def source_schema(*, include_headers: bool) -> StructType:
    """Return the schema that is used unless the user gives one."""
    return StructType(
        [StructField(name, kind) for name, kind in _TYPES.items() if include_headers or name != "headers"]
    )


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects for these columns.

    Raises:
        OptionError: The source does not have a column, or has it with another type.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    for field in schema.fields:
        kind = _TYPES.get(field.name)
        if kind is None:
            raise OptionError(f"schema: no column {field.name!r}; there are {', '.join(_TYPES)}")
        found, expected = field.dataType.simpleString(), kind.simpleString()
        if found != expected:
            raise OptionError(f"schema: the type of column {field.name!r} must be {expected}, not {found}")
        if field.dataType != kind or not (field.nullable or field.name in _NEVER_NULL):
            raise OptionError(f"schema: the column {field.name!r} may be null, or a part of it: leave out NOT NULL")
    # Spark compares it with the batches, down to whether a column may be null.
    arrow: pa.Schema = to_arrow_schema(schema, timezone="UTC")
    return arrow


def nulls_for_no_headers(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Set `headers` to null for records without headers."""
    column = schema.get_field_index("headers")
    if column < 0:
        yield from batches
        return
    kind = schema.field(column).type
    for batch in batches:
        headers = batch.column(column)
        present = pa.compute.list_value_length(headers).cast(pa.bool_())
        if headers.offset:
            headers = pa.concat_arrays([headers])
            # A copy of a slice starts at zero, which `from_arrays` needs to take a mask.
        masked = pa.ListArray.from_arrays(headers.offsets, headers.values, type=kind, mask=pa.compute.invert(present))
        yield batch.set_column(column, schema.field(column), masked)
