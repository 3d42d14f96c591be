"""The columns that a Parquet sink can write: names that differ, and types that Parquet has."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    CalendarIntervalType,
    DataType,
    DateType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
    YearMonthIntervalType,
)

from odradek.errors import SinkError
from odradek.spark.pipeline.sink_specs import ParquetSinkSpec

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_WIDER = {
    **{name: _WHOLE[number + 1 :] for number, name in enumerate(_WHOLE)},
    "float": ("double",),
    "void": (*_WHOLE, "float", "double", "string", "binary", "boolean", "date", "timestamp"),
}
"""The types that hold every value of a type."""
_TIMES = (TimestampType, TimestampNTZType, DateType)
_OF_FOLDERS = (StringType, IntegralType, BooleanType, DateType)
_NUMBER = re.compile(r"-?[0-9]{1,19}")
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The name of a folder whose records have null there."""
_DATE = "date"
_FIRST_DAY, _LAST_DAY = ((day - dt.date(1970, 1, 1)).days for day in (dt.date.min, dt.date.max))


def check_columns(schema: StructType, spec: ParquetSinkSpec) -> None:
    """Check the columns of what a sink is given.

    Args:
        schema: The columns.
        spec: The sink.

    Raises:
        SinkError: One that the folders are named after is missing, or of a type that has no short text; two have one
            name; Parquet does not have the type of one; there is no other column.
    """
    written = {name.lower(): name for name in schema.names}
    for name in spec.partition_by:
        if name not in schema.names and name.lower() in written:
            raise SinkError(f"partition_by {name}: the view has it as {written[name.lower()]}: write it like that")
        if name.startswith(("_", ".")):
            raise SinkError(f"partition_by {name}: readers pass over folders whose names begin with _ or .")
        is_derived = name == _DATE and _DATE not in schema.names
        column, kinds = ("timestamp", _TIMES) if is_derived else (name, _OF_FOLDERS)
        if column not in schema.names:
            raise SinkError(f"partition_by {name}: the view has no column {column}")
        if not isinstance(kind := schema[column].dataType, kinds):
            why = "no time" if is_derived else "a folder is named after text, a whole number, a boolean or a date"
            raise SinkError(f"partition_by {name}: the column {column} of the view is {kind.simpleString()}, and {why}")
    if spec.partition_by and not file_columns(schema, spec).fields:
        raise SinkError(f"{spec.description}: no column of the view {spec.view} is left for files")
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
            raise _wrong_type(spec, new.name, found, f"and the files of the folder have it as {wanted}")
    return frame.select(*columns, *map(_column, given.values()))


def _column(field: StructField) -> Column:
    return functions.col(f"`{field.name.replace('`', '``')}`")


def with_dates(frame: DataFrame, spec: ParquetSinkSpec) -> DataFrame:
    """Return rows of a view, with the dates of their timestamps (UTC) if they are folders, and no column of the view.

    A date is null for times that no calendar has, as of microseconds taken for ms.
    """
    if _DATE not in spec.partition_by or _DATE in frame.columns:
        return frame
    kind = frame.schema["timestamp"].dataType if "timestamp" in frame.columns else None
    if not isinstance(kind, TimestampType):
        date = functions.lit(None) if kind is None else functions.col("timestamp")
        return frame.withColumn(_DATE, date.cast(DateType()))
    # A cast would be that of the session's time zone.
    days = "CAST((unix_micros(timestamp) - pmod(unix_micros(timestamp), 86400000000L)) div 86400000000L AS INT)"
    has_date = f"{days} BETWEEN {_FIRST_DAY} AND {_LAST_DAY}"
    return frame.withColumn(_DATE, functions.expr(f"CASE WHEN {has_date} THEN date_from_unix_date({days}) END"))


def folder_types(schema: StructType, held: Mapping[str, str], spec: ParquetSinkSpec) -> dict[str, str]:
    """Return the columns that folders are named after, the outermost first, with types that all their names are of.

    Args:
        schema: The columns of the view, with the dates.
        held: Their types so far, the widest of each; none if there are no files, or it was not noted.
        spec: The sink.

    Raises:
        SinkError: A column has a type that names of folders so far are not of.
    """
    found = {name: schema[name].dataType.simpleString() for name in spec.partition_by}
    for name, wanted in held.items():
        given = found.get(name, wanted)
        if wanted in _WIDER.get(given, ()):
            found[name] = wanted
        elif given != wanted and given not in _WIDER.get(wanted, ()):
            raise _wrong_type(spec, name, given, f"and folders are named after it as {wanted}")
    return found


def check_folder_names(types: Mapping[str, str], files: Iterable[str], spec: ParquetSinkSpec) -> None:
    """Check that the folders that are there have names of a type, before it is noted as that of all of them.

    Args:
        types: The columns that name folders, the outermost first, with their types.
        files: The files, with their folders.
        spec: The sink.

    Raises:
        SinkError: A folder has a name that is not of its column's type.
    """
    for folder in {name.rpartition("/")[0] for name in files}:
        for (column, kind), part in zip(types.items(), folder.split("/"), strict=False):
            value = unquote(part.partition("=")[2])
            if value != NO_VALUE and not _is_of_type(value, kind):
                raise _wrong_type(spec, column, kind, f"and a folder is named {value}")


def _is_of_type(name: str, kind: str) -> bool:
    """Whether Spark reads the name of a folder as a value of a type, and as that which it says."""
    if kind == "boolean":
        return name in ("true", "false")
    if kind == _DATE:
        try:
            return dt.date.fromisoformat(name).isoformat() == name
        except ValueError:
            return False
    if kind in _WHOLE:
        most = 1 << ((8 << _WHOLE.index(kind)) - 1)
        return _NUMBER.fullmatch(name) is not None and -most <= int(name) < most
    return True


def _wrong_type(spec: ParquetSinkSpec, name: str, found: str, why: str) -> SinkError:
    return SinkError(
        f"{spec.description}: the column {name} of the view {spec.view} is {found}, {why}: cast it to that, or give "
        "the sink another path"
    )


def file_columns(schema: StructType, spec: ParquetSinkSpec) -> StructType:
    """Return the columns of files: those that name folders are not in them."""
    return StructType([field for field in schema.fields if field.name not in spec.partition_by])


def _is_of_parquet(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _is_part(kind.elementType, has_null=kind.containsNull)
    if isinstance(kind, MapType):
        return _is_part(kind.keyType, has_null=False) and _is_part(kind.valueType, has_null=kind.valueContainsNull)
    if isinstance(kind, StructType):
        names = {field.name.lower() for field in kind.fields}
        has_names = bool(names) and len(names) == len(kind.fields)
        return has_names and all(_is_of_parquet(field.dataType) for field in kind.fields)
    return not isinstance(kind, YearMonthIntervalType | CalendarIntervalType | TimeType)


def _is_part(kind: DataType, *, has_null: bool) -> bool:
    """Whether arrays and maps of a type can be written; `array()` has elements of a type without any value."""
    return _is_of_parquet(kind) and (has_null or not isinstance(kind, NullType))
