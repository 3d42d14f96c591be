"""The pipeline: topics in, SQL over them, sinks out, and the reading position in an offset store.

`job` is what is to be done (a TOML file says it), `driver` does it batch by batch, and each sink has a module.
"""

from odradek.errors import JobError
from odradek.spark.pipeline.driver import BatchReport, Pipeline
from odradek.spark.pipeline.job import Job

__all__ = ["BatchReport", "Job", "JobError", "Pipeline"]
