"""Spark: the data source `odradek`, batch and streaming, and pipelines that keep their place in an offset store.

    spark = odradek.spark.session()                          # its workers run this Python and find the data source
    spark.read.format("odradek").option("subscribe", "events").load("data")
    odradek.spark.read(spark, "data", subscribe="events", columns=["offset", "value"])      # decodes these columns only

A session that you start yourself needs `PYSPARK_PYTHON` in its environment: the Python that has Odradek installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from odradek.extras import missing_package

if TYPE_CHECKING:
    from odradek.spark.pipeline import Job, Pipeline
    from odradek.spark.progress import offsets_behind_latest
    from odradek.spark.reading import read
    from odradek.spark.spark_session import session

__all__ = ["Job", "Pipeline", "offsets_behind_latest", "read", "session"]

_MODULES = {
    "Job": "odradek.spark.pipeline",
    "Pipeline": "odradek.spark.pipeline",
    "offsets_behind_latest": "odradek.spark.progress",
    "read": "odradek.spark.reading",
    "session": "odradek.spark.spark_session",
}


def __getattr__(name: str) -> Any:
    # Spark imports this package in every planning process, which has no use for pipelines.
    if name in _MODULES:
        try:
            return getattr(importlib.import_module(_MODULES[name]), name)
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(f"odradek.spark.{name}: {missing_package(error)}", name=error.name) from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
