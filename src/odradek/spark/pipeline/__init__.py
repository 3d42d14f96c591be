"""The pipeline: topics in, SQL over them, sinks out, and the reading position in an offset store.

`job` is what is to be done (a TOML file says it), `check` looks at it without doing it, `driver` does it batch by
batch, and each sink has a module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.errors import JobError
from odradek.spark.pipeline.job import Job

if TYPE_CHECKING:
    from odradek.spark.pipeline.driver import BatchReport, Pipeline

__all__ = ["BatchReport", "Job", "JobError", "Pipeline"]


def __getattr__(name: str) -> Any:
    # A job is read and checked without Spark, whose import takes seconds.
    if name in __all__:
        from odradek.spark.pipeline import driver

        return getattr(driver, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
