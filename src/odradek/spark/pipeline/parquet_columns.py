"""The columns that a Parquet sink can write: names that differ, and types that Parquet has."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    DateType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from odradek.errors import SinkError
from odradek.spark.pipeline.sink_specs import PARTITION_COLUMNS, ParquetSinkSpec

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_WIDER = {
    **{name: _WHOLE[number + 1 :] for number, name in enumerate(_WHOLE)},
    "float": ("double",),
    "void": (*_WHOLE, "float", "double", "string", "binary", "boolean", "date", "timestamp"),
}
"""The types that hold every value of a type."""
_TIMES = (TimestampType, TimestampNTZType, DateType)


def check_columns(schema: StructType, spec: ParquetSinkSpec) -> None:
    """Check the columns of what a sink is given.

    Args:
        schema: The columns.
        spec: The sink.

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
                f"{spec.description}: the view {spec.view} has two columns {field.name}, as SQL sees names: rename one"
            )
        names.add(field.name.lower())
        if not _is_of_parquet(field.dataType):
            raise SinkError(
                f"{spec.description}: the column {field.name} of the view {spec.view} is "
                f"{field.dataType.simpleString()}, which Parquet does not have: cast it"
            )


def fitted(frame: DataFrame, held: StructType | None, spec: ParquetSinkSpec) -> DataFrame:
    """Return rows with the columns that a folder has, and then their new ones, so that any reader can read all files.

    A narrower type is widened to the folder's, and a column that the view no longer has is null.

    Args:
        frame: The rows.
        held: The columns of the folder's files; None if it has no files.
        spec: The sink.

    Raises:
        SinkError: A column has a type that those files do not have.
    """
    given = {field.name.lower(): field for field in frame.schema.fields}
    columns: list[Column] = []
    for field in held.fields if held is not None else ():
        new = given.pop(field.name.lower(), None)
        if new is None:
            columns.append(functions.lit(None).cast(field.dataType).alias(field.name))
            continue
        wanted, found = field.dataType.simpleString(), new.dataType.simpleString()
        column = _column(new)
        if new.name == field.name and found == wanted:
            columns.append(column)
        elif found == wanted or wanted in _WIDER.get(found, ()):
            columns.append(column.cast(field.dataType).alias(field.name))
        else:
            raise SinkError(
                f"{spec.description}: the column {new.name} of the view {spec.view} is {found}, and the files of the "
                f"folder have it as {wanted}: cast it to that, or give the sink another path"
            )
    return frame.select(*columns, *map(_column, given.values()))


def _column(field: StructField) -> Column:
    return functions.col(f"`{field.name.replace('`', '``')}`")


def file_columns(schema: StructType, spec: ParquetSinkSpec) -> StructType:
    """Return the columns of files: those that name folders are not in them."""
    return StructType([field for field in schema.fields if field.name not in spec.partition_by])


def _is_of_parquet(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _is_of_parquet(kind.elementType)
    if isinstance(kind, MapType):
        return _is_of_parquet(kind.keyType) and _is_of_parquet(kind.valueType)
    if isinstance(kind, StructType):
        return bool(kind.fields) and all(_is_of_parquet(field.dataType) for field in kind.fields)
    return not isinstance(kind, YearMonthIntervalType | CalendarIntervalType)
