"""The Spark session of a pipeline, and its errors in one line."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import CapturedException, PythonException, convert_exception
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from odradek.errors import JobError
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.restarts import WorkerEndedError, WorkerLostError
from odradek.spark.pipeline.told_function import own_error_of
from odradek.spark.spark_session import session, workers_hint


def open_session(job: Job) -> SparkSession:
    """Start Spark as the job says, or use the running session.

    Raises:
        JobError: Spark does not start.
        SparkStartError: Java is missing, or the workers of the running session do not have Odradek.
    """
    with explained(), _kept_interrupt():
        return session(job.name, master=job.spark_master, conf=job.spark_conf)


@contextmanager
def _kept_interrupt() -> Iterator[None]:
    """Keep a handler of Ctrl-C: PySpark replaces it when it starts, and would cancel a batch that is to finish.

    If the handler is Python's default, PySpark's stays, which cancels the queries that run.
    """
    handler = signal.getsignal(signal.SIGINT)
    yield
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and handler not in (None, signal.default_int_handler):
        signal.signal(signal.SIGINT, handler)


def silence_error_log() -> None:
    """Keep PySpark from logging the errors that it raises, as JSON on stderr with Java's trace."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):\n"
    r"(?: .*\n)*?  File \"(?P<file>[^\"\n]*)\", line (?P<line>\d+), in (?P<function>.*)\n"
    r"(?:   .*\n|  \[Previous line repeated .*\n)*"
    r"(?P<error>\S.*)"
)
"""What a Python worker prints of an error: the innermost call, and the error's first line."""


_NO_ANSWER = re.compile(r"An error occurred while calling \S+")
"""What py4j says if the connection breaks during a call: of an error in Java it gives the trace, too."""


SPARK_FAILURES = (Py4JError, PySparkException, ConnectionError)
"""What a call of Spark raises."""


@contextmanager
def explained(key: str | None = None) -> Iterator[None]:
    """Raise what Spark raises as `explain` tells it.

    Raises:
        JobError: Spark failed.
    """
    try:
        yield
    except SPARK_FAILURES as error:
        raise explain(error, key) from error


_ABORTED = "Job aborted due to stage failure"
_OF_A_SOURCE = "[PYTHON_DATA_SOURCE_ERROR]"
_BEFORE_AN_ERROR = re.compile(r"\A((?:[\w.$]+: )?\[[A-Z_]+\] [^:\n]*): (?=odradek\.)")


def _causes(error: Exception) -> list[tuple[bool, str]]:
    """Return an error in Java and its causes, the innermost last: whether Python in a worker raised it, and its text.

    Records write parts of the texts, which may then look like any error. So each is judged by how it begins.

    Returns:
        The causes; none if there is nothing but a text, or if the innermost could not be brought to the driver.
    """
    try:
        each = convert_exception(error.java_exception) if isinstance(error, Py4JJavaError) else error
    except (Py4JError, ConnectionError):
        # Spark has ended meanwhile.
        return []
    found = []
    while isinstance(each, CapturedException):
        found.append((isinstance(each, PythonException), each._desc or ""))
        each = each._cause  # type: ignore[assignment]
    return [] if found and _begins(found[-1][1], _ABORTED) else found


def _begins(text: str, words: str) -> bool:
    return re.match(rf"(?:[\w.$]+: )?{re.escape(words)}", text) is not None


def own_error(error: Exception) -> str | None:
    """Return what an error of this library says that Spark tells on; None if there is none."""
    return _own_error(_causes(error), str(error))


def _own_error(causes: list[tuple[bool, str]], text: str) -> str | None:
    found: str | None = None
    for of_python, said in causes or [(True, text)]:
        if of_python or _begins(said, _OF_A_SOURCE):
            # In one line Spark says what it did, and why a source failed.
            found = own_error_of(_BEFORE_AN_ERROR.sub(r"\1:\n", said)) or found
    return found


def explain(error: Exception, key: str | None = None) -> JobError:
    """Return in one line why Spark failed: the error of a Python function, or the first line of Spark's own.

    Args:
        error: What Spark raised.
        key: The key of the job's file that it is about.
    """
    text = str(error)
    if isinstance(error, Py4JNetworkError | ConnectionError) or _NO_ANSWER.fullmatch(text):
        return JobError(f"Spark has ended while it was at work ({text})")
    if "DATA_SOURCE_NOT_FOUND" in text and "odradek" in text:
        return JobError(workers_hint("another Python"))
    # Once: to bring them from Java takes a call for each.
    causes = _causes(error)

    def says(words: str) -> bool:
        """Whether an error of Spark itself, among the causes, begins with some words."""
        return any(_begins(said, words) for of_python, said in causes if not of_python) if causes else words in text

    ours = _own_error(causes, text)
    if ours is not None:
        return JobError(ours, key)
    if says("Python worker exited unexpectedly"):
        return WorkerEndedError(
            "a Python worker of Spark ended: a function, or a library that it calls, has ended the process, or the "
            "system has because its memory was full",
            key,
        )
    if says("Python worker failed to connect back"):
        return WorkerLostError(
            "a Python worker of Spark did not start within the ten seconds that Spark waits for it: the machine has "
            "too much to do",
            key,
        )
    # The last one has those before it as its causes.
    failed = next(reversed(list(_TRACEBACK.finditer(text))), None)
    if failed is not None:
        return JobError(f"{failed['error']} ({failed['file']}, line {failed['line']}, in {failed['function']})", key)
    if isinstance(error, Py4JJavaError):
        # Its first line only names the call.
        named = re.findall(r"^(?:Caused by)?: (.+)$", text, re.MULTILINE)
        if named:
            return JobError(named[-1], key)
    # Py4J's own errors name the call first, too.
    text = re.sub(r"\AAn error occurred while calling \S+ Trace:\n(?:py4j\.\w+: )?", "", text)
    lines = [line for line in text.splitlines() if line.strip()]
    return JobError(lines[0] if lines else type(error).__name__, key)
