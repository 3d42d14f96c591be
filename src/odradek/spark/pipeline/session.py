"""The Spark session of a pipeline, and its errors in one line."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from odradek.errors import JobError
from odradek.spark.pipeline.job import Job
from odradek.spark.spark_session import session, workers_hint


def open_session(job: Job) -> SparkSession:
    """Start Spark as the job says, or use the running session.

    Raises:
        JobError: Spark does not start.
        SparkStartError: Java is missing, or the workers of the running session do not have Odradek.
    """
    try:
        return session(job.name, master=job.spark_master, conf=job.spark_conf)
    except (Py4JError, PySparkException) as error:
        raise explain(error) from error


def explain(error: Exception) -> JobError:
    """Return in one line why Spark failed: the error of a task of ours, or the first line of Spark's own."""
    if isinstance(error, Py4JNetworkError | ConnectionError):
        return JobError(f"Spark has ended while it was at work ({error})")
    text = str(error)
    if "DATA_SOURCE_NOT_FOUND" in text and "odradek" in text:
        return JobError(workers_hint("another Python"))
    ours = re.findall(r"^(?:\S+: )*odradek\.[\w.]+Error: (.+)$", text, re.MULTILINE)
    lines = [line for line in text.splitlines() if line.strip()]
    return JobError(ours[-1] if ours else lines[0] if lines else type(error).__name__)
