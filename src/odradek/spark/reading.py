"""`odradek.spark.read`: a DataFrame of the source, with the columns that a query needs and no others."""

from __future__ import annotations

import os
from collections.abc import Collection

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from odradek.arguments import checked_path, checked_text, given_text
from odradek.errors import OptionError
from odradek.spark.options import SourceOptions, nearest
from odradek.spark.spark_schema import source_schema


def read(
    spark: SparkSession,
    path: str | os.PathLike[str] | None = None,
    *,
    columns: Collection[str] | None = None,
    **options: str | int | bool,
) -> DataFrame:
    """Return the records of a log directory or of a broker.

    Spark does not tell a source in Python which columns a query needs. Those that are named here are decoded and
    handed over, and no others.

        odradek.spark.read(spark, "data", subscribe="events", columns=["offset", "value"])
        odradek.spark.read(spark, subscribe="events", **{"kafka.bootstrap.servers": "localhost:9092"})

    Args:
        spark: The Spark session.
        path: The log directory; None if the options name a broker.
        columns: The columns, in the order in which they are wanted, `headers` among them if wanted; by default all that
            the source has with these options.
        options: The options of the source.

    Raises:
        OptionError: A column does not exist, or is named twice; no column is named; an option is unknown or wrong.
        TypeError: An argument is of no type that is taken.
    """
    # A session of Spark Connect is another class.
    if not hasattr(spark, "read"):
        raise TypeError(f"spark must be a SparkSession, not {given_text(spark)}")
    given = {name: _option(name, value) for name, value in options.items()}
    if path is not None:
        given["path"] = str(checked_path("path", path))
    SourceOptions.parse(given)
    reader = spark.read.format("odradek").options(**given)
    return (reader if columns is None else reader.schema(_narrowed(columns))).load()


def _option(name: str, value: object) -> str:
    if not isinstance(value, str | int):
        raise TypeError(f"the option {name} must be a text, a whole number, True or False, not {given_text(value)}")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _narrowed(columns: object) -> StructType:
    """Return the schema of some columns."""
    if isinstance(columns, str | bytes) or not isinstance(columns, Collection):
        raise TypeError(f"columns must be a list of names, not {given_text(columns)}")
    fields = {field.name: field for field in source_schema(include_headers=True).fields}
    wanted: dict[str, None] = {}
    for name in columns:
        checked_text("a column", name)
        if name not in fields:
            known = ", ".join(fields)
            raise OptionError(f"there is no column {name!r}{nearest(name, fields) or f'; there are {known}'}")
        if name in wanted:
            raise OptionError(f"the column {name!r} is named twice")
        wanted[name] = None
    if not wanted:
        raise OptionError("columns names none: give one at least, and `offset` to count rows")
    return StructType([fields[name] for name in wanted])
