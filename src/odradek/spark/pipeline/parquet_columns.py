"""The columns that a Parquet sink can write: names that differ, and types that Parquet has."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    DateType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from odradek.errors import SinkError
from odradek.spark.pipeline.job import PARTITION_COLUMNS, ParquetSinkSpec

_TIMES = (TimestampType, TimestampNTZType, DateType)


def check_columns(schema: StructType, spec: ParquetSinkSpec, description: str) -> None:
    """Check the columns of what a sink is given.

    Args:
        schema: The columns.
        spec: The sink.
        description: What the sink is, for errors.

    Raises:
        SinkError: One that the folders are named after is missing, or no time; two have one name; Parquet does not have
            the type of one.
    """
    for needed in spec.partition_by:
        name = PARTITION_COLUMNS[needed]
        if name not in schema.names:
            raise SinkError(f"partition_by {needed}: the view has no column {name}")
        if needed == "date" and not isinstance(kind := schema[name].dataType, _TIMES):
            raise SinkError(f"partition_by date: the column {name} of the view is {kind.simpleString()}, and no time")
    names: set[str] = set()
    for field in schema.fields:
        if field.name.lower() in names:
            raise SinkError(
                f"{description}: the view {spec.view} has two columns {field.name}, as SQL sees names: rename one"
            )
        names.add(field.name.lower())
        if not _is_of_parquet(field.dataType):
            raise SinkError(
                f"{description}: the column {field.name} of the view {spec.view} is {field.dataType.simpleString()}, "
                "which Parquet does not have: cast it"
            )


def _is_of_parquet(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _is_of_parquet(kind.elementType)
    if isinstance(kind, MapType):
        return _is_of_parquet(kind.keyType) and _is_of_parquet(kind.valueType)
    if isinstance(kind, StructType):
        return bool(kind.fields) and all(_is_of_parquet(field.dataType) for field in kind.fields)
    return not isinstance(kind, YearMonthIntervalType | CalendarIntervalType)
