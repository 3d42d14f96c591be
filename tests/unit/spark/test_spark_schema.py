"""Schemas that users give to the source."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType

from odradek.errors import OptionError
from odradek.spark.spark_schema import arrow_schema


def test_columns_that_are_never_null_may_be_declared_so() -> None:
    schema = StructType([StructField("offset", LongType(), nullable=False), StructField("key", BinaryType())])
    assert [field.nullable for field in arrow_schema(schema)] == [False, True]


HEADER = StructType([StructField("key", StringType(), nullable=False), StructField("value", BinaryType())])


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (StructField("when", LongType()), "schema: no column 'when'; there are key, value, topic"),
        (StructField("offset", IntegerType()), "schema: the type of column 'offset' must be bigint, not int"),
        (StructField("key", BinaryType(), nullable=False), "the column 'key' may be null, .*: leave out NOT NULL"),
        (StructField("headers", ArrayType(HEADER)), "the column 'headers' may be null, or a part of it"),
    ],
)
def test_a_schema_that_the_source_cannot_give(column: StructField, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        arrow_schema(StructType([column]))
