"""The pipeline: topics in, SQL over them, sinks out, and the reading position in an offset store.

`job` describes what to do, `job_file` reads a TOML file of one job or several, `check` checks it without running it,
`driver` runs a job batch by batch, `job_runs` several of them, and each sink has a module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from odradek.errors import JobError
from odradek.spark.pipeline.job import Job

if TYPE_CHECKING:
    from odradek.spark.pipeline.batch_report import BatchReport
    from odradek.spark.pipeline.driver import Pipeline

__all__ = ["BatchReport", "Job", "JobError", "Pipeline"]


def __getattr__(name: str) -> Any:
    # Reading and checking a job needs no Spark, whose import takes seconds.
    if name in __all__:
        from odradek.spark.pipeline import driver

        return getattr(driver, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
