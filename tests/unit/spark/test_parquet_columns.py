"""What a Parquet sink says of columns that it cannot write."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    TimeType,
    YearMonthIntervalType,
)

from odradek.errors import SinkError
from odradek.spark.pipeline.parquet_columns import check_columns, check_folder_names, file_columns, folder_types
from odradek.spark.pipeline.sink_specs import ParquetSinkSpec

BY_DATE = ParquetSinkSpec(Path("out"), "v", partition_by=("date",))


def columns(*fields: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields])


def test_columns_that_are_written() -> None:
    inner = columns(("a", NullType()), ("b", ArrayType(MapType(StringType(), LongType()))))
    check_columns(columns(("a.b", LongType()), ("timestamp", TimestampType()), ("", inner)), BY_DATE)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (columns(("a", LongType())), "partition_by date: the view has no column timestamp"),
        (columns(("timestamp", LongType())), "the column timestamp of the view is bigint, and no time"),
        (columns(("timestamp", TimestampType()), ("Timestamp", LongType())), "the view v has two columns Timestamp"),
        *(
            (
                columns(("timestamp", TimestampType()), ("x", kind)),
                "the column x of the view v is .*, which Parquet does",
            )
            for kind in (
                YearMonthIntervalType(),
                ArrayType(CalendarIntervalType()),
                MapType(LongType(), columns(("y", YearMonthIntervalType()))),
                StructType(),
                columns(("a", LongType()), ("A", LongType())),
                ArrayType(TimeType()),
            )
        ),
    ],
)
def test_columns_that_cannot_be_written(wrong: StructType, told: str) -> None:
    with pytest.raises(SinkError, match=told):
        check_columns(wrong, BY_DATE)


ROWS = columns(("a", StringType()), ("n", LongType()), ("x", DoubleType()), ("date", StringType()), ("D", LongType()))


@pytest.mark.parametrize("by", [("a",), ("n", "date"), ("date",), ("D", "a", "n", "date")])
def test_columns_that_folders_may_be_named_after(by: tuple[str, ...]) -> None:
    spec = ParquetSinkSpec(Path("out"), "v", partition_by=by)
    check_columns(ROWS, spec)
    assert list(folder_types(ROWS, {}, spec)) == list(by)
    assert [field.name for field in file_columns(ROWS, spec)] == [name for name in ROWS.names if name not in by]


@pytest.mark.parametrize(
    ("by", "told"),
    [
        (("b",), "partition_by b: the view has no column b"),
        (("_b",), "partition_by _b: readers pass over folders whose names begin with _"),
        (("d",), "partition_by d: the view has it as D: write it like that"),
        (("x",), "the column x of the view is double, and a folder is named after text, a whole number, a boolean or"),
        (("a", "n", "x", "date", "D"), "double"),
    ],
)
def test_columns_that_folders_cannot_be_named_after(by: tuple[str, ...], told: str) -> None:
    with pytest.raises(SinkError, match=told):
        check_columns(ROWS, ParquetSinkSpec(Path("out"), "v", partition_by=by))


def test_a_file_needs_a_column() -> None:
    with pytest.raises(SinkError, match="no column of the view v is left for files"):
        check_columns(columns(("a", LongType())), ParquetSinkSpec(Path("out"), "v", partition_by=("a",)))


@pytest.mark.parametrize(
    ("held", "given", "found"),
    [
        ("int", LongType(), "bigint"),
        ("bigint", IntegerType(), "bigint"),
        ("string", StringType(), "string"),
        ("string", IntegerType(), None),
        ("int", StringType(), None),
        ("date", IntegerType(), None),
    ],
)
def test_the_types_of_columns_that_folders_are_named_after(held: str, given: DataType, found: str | None) -> None:
    spec = ParquetSinkSpec(Path("out"), "v", partition_by=("day",))
    schema = columns(("day", given), ("n", LongType()))
    if found is not None:
        assert folder_types(schema, {"day": held}, spec) == {"day": found}
        return
    told = f"the column day of the view v is {given.simpleString()}, and folders are named after it as {held}:"
    with pytest.raises(SinkError, match=told):
        folder_types(schema, {"day": held}, spec)


@pytest.mark.parametrize(
    ("kind", "name", "is_of_it"),
    [
        ("int", "12", True),
        ("bigint", "-1", True),
        ("int", "abc", False),
        ("int", "1%2F2", False),
        ("date", "2026-11-30", True),
        ("date", "12", False),
        ("boolean", "true", True),
        ("boolean", "1", False),
        ("string", "abc", True),
        ("int", "__HIVE_DEFAULT_PARTITION__", True),
        ("int", "2147483647", True),
        ("int", "2147483648", False),
        ("tinyint", "-128", True),
        ("tinyint", "5000", False),
        ("bigint", "9" * 23, False),
        ("date", "2024-02-30", False),
        ("date", "0000-01-01", False),
        ("date", "20240101", False),
    ],
)
def test_no_type_is_noted_that_names_of_folders_are_not_of(kind: str, name: str, is_of_it: bool) -> None:
    spec = ParquetSinkSpec(Path("out"), "v", partition_by=("topic", "p"))
    files = ["topic=t/p=__HIVE_DEFAULT_PARTITION__/0.parquet", f"topic=t/p={name}/1.parquet"]
    types = {"topic": "string", "p": kind}
    if is_of_it:
        check_folder_names(types, files, spec)
        return
    with pytest.raises(SinkError, match=f"the column p of the view v is {kind}, and a folder is named "):
        check_folder_names(types, files, spec)
