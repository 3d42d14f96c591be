"""The column of typed values in the view `records`: JSON by Spark's own function, the others by their libraries."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from odradek.errors import JobError
from odradek.spark.pipeline.session import SPARK_FAILURES, explain
from odradek.spark.pipeline.value_decoders import value_decoder
from odradek.spark.pipeline.value_format import ValueFormat

_KEY = "source.value"


def with_values(records: DataFrame, value: ValueFormat) -> DataFrame:
    """Return records with one more column: their values, typed.

    Raises:
        JobError: The schema cannot be used, or the library that reads the format is not installed.
    """
    content = sql.col("value")
    if value.skip_bytes:
        content = sql.expr(f"substring(value, {value.skip_bytes + 1})")
    try:
        return records.withColumn(value.column, _typed(content, value))
    except SPARK_FAILURES as error:
        raise explain(error, f"{_KEY}.schema") from error
    except (ValueError, TypeError, KeyError) as error:
        raise JobError(f"no schema of {value.format}: {error}", f"{_KEY}.schema") from error


def check_options(spark: SparkSession, value: ValueFormat) -> None:
    """Let Spark use the options of `from_json` once: at a record, one that it refuses would look like a wrong record.

    Raises:
        JobError: Spark refuses an option.
    """
    if value.format == "json" and value.options:
        try:
            spark.range(1).select(_from_json(sql.lit("{}"), value)).collect()
        except SPARK_FAILURES as error:
            raise explain(error, f"{_KEY}.options") from error


def _from_json(content: Column, value: ValueFormat) -> Column:
    text = value.schema.decode().strip()
    schema: Any = StructType.fromJson(json.loads(text)) if text.startswith("{") else text
    return sql.from_json(content, schema, dict(value.options))


def _typed(content: Column, value: ValueFormat) -> Column:
    if value.format == "json":
        return _from_json(content.cast("string"), value)
    try:
        decoder = value_decoder(value)
    except ImportError as error:
        raise JobError(f"needs the extra odradek[{value.format}] ({error})", f"{_KEY}.format") from error

    def decode(content: bytes | None) -> Any:
        return decoder(content)

    # In Arrow batches, between Spark and the worker.
    return sql.udf(decode, decoder.data_type, useArrow=True)(content)
