"""The columns of a record in Arrow.

    topic string | partition int32 | offset int64 | timestamp timestamp[ms, UTC] | timestamp_type string |
    key binary | value binary | headers list<struct<key: string, value: binary>>

`timestamp` is null if the record has none; `timestamp_type` is `CreateTime`, `LogAppendTime` or, for the format v0,
null. With views, `key` and `value` are `binary_view`: they point into the mapped segment, or into the buffer that a
batch was decompressed to, instead of copying it.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from odradek.arguments import given_text
from odradek.errors import OptionError

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("timestamp_type", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
    ]
)
"""What `scan` gives when no columns are named."""

COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)


def select(columns: Iterable[str] | None = None, *, views: bool = False) -> pa.Schema:
    """Return the schema of some columns, in the order asked for.

    Args:
        columns: Names from `COLUMNS`; all if None.
        views: Whether `key` and `value` are `binary_view`.

    Raises:
        OptionError: A name is not a column.
    """
    if columns is not None and (isinstance(columns, str) or not isinstance(columns, Iterable)):
        raise TypeError(f"columns must be names, ['offset', 'value'], not {given_text(columns)}")
    names = COLUMNS if columns is None else tuple(columns)
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise OptionError(f"no column {unknown[0]!r}; there are {', '.join(COLUMNS)}")
    fields = [SCHEMA.field(name) for name in names]
    if views:
        fields = [field.with_type(pa.binary_view()) if field.type == pa.binary() else field for field in fields]
    return pa.schema(fields)
