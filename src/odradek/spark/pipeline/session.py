"""The Spark session of a pipeline."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from odradek.errors import JobError
from odradek.spark.pipeline.job import Job

LEAST_JAVA = 17
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}


def check_java() -> None:
    """Fail in one sentence where Java is missing or too old.

    Raises:
        JobError: It is.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    try:
        if java is None:
            raise FileNotFoundError
        found = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except OSError as error:
        raise JobError(f"Spark needs Java {LEAST_JAVA} or later: install it, or set JAVA_HOME") from error
    match = re.search(r'version "(?:1\.)?(\d+)', found)
    if match is None or int(match[1]) < LEAST_JAVA:
        version = match[1] if match else "an unknown version"
        raise JobError(f"Spark needs Java {LEAST_JAVA} or later, {java} is {version}")


def open_session(job: Job) -> SparkSession:
    """Start Spark, or take the session that runs.

    Raises:
        JobError: There is no Java to start it with.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1" if (job.spark_master or "local").startswith("local") else "")
    if not os.environ["SPARK_LOCAL_IP"]:
        del os.environ["SPARK_LOCAL_IP"]
    builder = SparkSession.builder.appName(job.name).master(job.spark_master or "local[*]")
    conf = {**_DEFAULTS, **job.spark_conf}
    # Settings of the user's own come last, and win.
    logging = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    conf["spark.driver.extraJavaOptions"] = f"{logging} {conf.get('spark.driver.extraJavaOptions', '')}".strip()
    for name, value in conf.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except (Py4JError, PySparkException) as error:
        raise explain(error) from error


def explain(error: Exception) -> JobError:
    """Put into one line why Spark could not do something: what a task of ours said, or Spark's own first line."""
    if isinstance(error, Py4JNetworkError | ConnectionError):
        return JobError(f"Spark has ended while it was at work ({error})")
    text = str(error)
    ours = re.findall(r"^(?:\S+: )*odradek\.[\w.]+Error: (.+)$", text, re.MULTILINE)
    lines = [line for line in text.splitlines() if line.strip()]
    return JobError(ours[-1] if ours else lines[0] if lines else type(error).__name__)
