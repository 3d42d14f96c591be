"""What is told of SQL without Spark, held against Spark."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from jobs.queries import ACCEPTED, RECORDS_SCHEMA, REFUSED, VIEWS, WORDS_SCHEMA
from odradek.spark.pipeline.sql_check import Query


@pytest.fixture(autouse=True)
def views(spark: SparkSession) -> None:
    spark.createDataFrame([], RECORDS_SCHEMA).createOrReplaceTempView("records")
    spark.createDataFrame([], WORDS_SCHEMA).createOrReplaceTempView("words")


@pytest.mark.parametrize("sql", ACCEPTED)
def test_spark_takes_it_and_has_the_columns_that_are_told(sql: str, spark: SparkSession) -> None:
    columns = [name.lower() for name in spark.sql(sql).columns]
    told = Query(sql, VIEWS).columns
    assert told is None or [name.lower() for name in told] == columns


@pytest.mark.parametrize("sql", REFUSED)
def test_spark_does_not_take_it(sql: str, spark: SparkSession) -> None:
    with pytest.raises(AnalysisException):
        spark.sql(sql)
