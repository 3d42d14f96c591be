"""A Spark session whose workers run this Python.

Spark starts its workers with `PYSPARK_PYTHON`, or, if that is not set, with the first `python3` on the `PATH`. If that
Python does not have Odradek, `format("odradek")` is not found: Spark looks for data sources in the workers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from odradek.arguments import checked_mapping, checked_text
from odradek.errors import PipelineError
from odradek.spark.connect import NOT_BY_CONNECT, connect_key

LEAST_JAVA = 17
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
WORKERS_PYTHON = "spark.pyspark.python"

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}


class SparkStartError(PipelineError):
    """Spark cannot be started here, or the running session cannot read logs."""


def session(
    app_name: str = "odradek", *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark with workers that run this Python, or use the running session; it is then that of this thread.

    Args:
        app_name: The name of the application in Spark.
        master: Spark's master URL; by default `local[*]`, all cores of this machine.
        conf: Spark's settings. The workers' Python is `spark.pyspark.python`, or the environment's `PYSPARK_PYTHON`; by
            default it is this Python. Unless set here, there is no web UI and no progress bar, only errors are logged,
            times are in UTC, and conversion to pandas uses Arrow.

    Raises:
        SparkStartError: Java is missing, the workers of the running session do not have Odradek, or Spark Connect is
            asked for, also by the environment's `SPARK_REMOTE`.
    """
    checked_text("app_name", app_name)
    if master is not None:
        checked_text("master", master)
    given = checked_mapping("conf", conf)
    if connect_key(master, given) is not None or "SPARK_REMOTE" in os.environ:
        raise SparkStartError(NOT_BY_CONNECT)
    if has_ended():
        _forget()
    running = _running()
    if running is not None:
        _check_workers(running)
        return activated(running)
    check_java()
    settings = {**_DEFAULTS, **given}
    master = master or settings.get("spark.master", "local[*]")
    # Spark's planner reads the environment; the setting alone does not reach it.
    os.environ["PYSPARK_PYTHON"] = settings.get(WORKERS_PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # The user's settings come last, and take precedence.
    logging = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    settings["spark.driver.extraJavaOptions"] = f"{logging} {settings.get('spark.driver.extraJavaOptions', '')}".strip()
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return activated(builder.getOrCreate())


def activated(spark: SparkSession) -> SparkSession:
    """Return a session, which is now that of this thread: there `df.write` looks for data sources in Python."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    return spark


def has_ended() -> bool:
    """Whether Java, which PySpark has started, has ended: the system may have killed it for its memory."""
    # pyspark-client, Spark's Python code alone, has none.
    from pyspark import SparkContext

    java = getattr(SparkContext._gateway, "proc", None)
    return java is not None and java.poll() is not None


def _forget() -> None:
    """Let PySpark start Java again; it would ask the one that has ended for ever."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is not None:
        context._jsc = None
        context.stop()
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def _running() -> SparkSession | None:
    """Return the session of this thread, or else that of the thread that started Spark."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def find_java() -> str:
    """Return the path of the program `java`.

    Raises:
        SparkStartError: There is none.
    """
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(str(Path(home, "bin", "java")) if home else "java")
    if java is None:
        raise SparkStartError(f"Spark needs Java {LEAST_JAVA} or later: install it, or set JAVA_HOME")
    return java


def check_java() -> None:
    """Fail in one sentence if Java is missing or too old.

    Raises:
        SparkStartError: Java is missing or too old.
    """
    java = find_java()
    found = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    match = re.search(r'version "(?:1\.)?(\d+)', found)
    if match is None or int(match[1]) < LEAST_JAVA:
        version = match[1] if match else "an unknown version"
        raise SparkStartError(f"Spark needs Java {LEAST_JAVA} or later, {java} is {version}: set JAVA_HOME")


def workers_hint(python: str) -> str:
    """Say what to do about workers that do not find the data source."""
    return (
        f"Spark's workers run {python}, which lacks odradek with Spark and Arrow: stop the session and start it with "
        f"odradek.spark.session(), or set PYSPARK_PYTHON={sys.executable} before Spark starts"
    )


def _check_workers(running: SparkSession) -> None:
    context = running.sparkContext
    # Whether the workers of a cluster have Odradek cannot be seen from here.
    if not (context.master or "").startswith("local"):
        return
    python = context.pythonExec
    if shutil.which(python) != sys.executable:
        command = [python, "-c", "import pyspark_odradek"]
        try:
            found = subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
        except OSError:
            found = False
        if not found:
            raise SparkStartError(workers_hint(python))
