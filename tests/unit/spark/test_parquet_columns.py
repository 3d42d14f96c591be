"""What a Parquet sink says of columns that it cannot write."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    CalendarIntervalType,
    DataType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    YearMonthIntervalType,
)

from odradek.errors import SinkError
from odradek.spark.pipeline.parquet_columns import check_columns
from odradek.spark.pipeline.sink_specs import ParquetSinkSpec

BY_DATE = ParquetSinkSpec(Path("out"), "v", partition_by=("date",))


def columns(*fields: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields])


def test_columns_that_are_written() -> None:
    inner = columns(("a", NullType()), ("A", ArrayType(MapType(StringType(), LongType()))))
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
            )
        ),
    ],
)
def test_columns_that_cannot_be_written(wrong: StructType, told: str) -> None:
    with pytest.raises(SinkError, match=told):
        check_columns(wrong, BY_DATE)
