"""What is told of an error in Spark."""

from __future__ import annotations

import socket
import threading
from unittest.mock import MagicMock

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from odradek.errors import JobError
from odradek.spark.pipeline import values
from odradek.spark.pipeline.restarts import WorkerLostError
from odradek.spark.pipeline.session import explain
from odradek.spark.pipeline.value_format import ValueFormat

WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/jobs/words.py", line 7, in split
    raise ValueError(f"no such\\nword: {word}")
ValueError: no such
word: 1"""
CHAINED = """[PYTHON_EXCEPTION] ...
Traceback (most recent call last):
  File "/spark/worker.py", line 2000, in main
    process()
    ^^^^^^^^^
  File "/jobs/words.py", line 3, in split
    int(word)
ValueError: invalid literal

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/jobs/words.py", line 5, in split
    return counts[word]
           ~~~~~~^^^^^^
KeyError: 'zz'

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""
OURS = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/odradek/spark/pipeline/topic.py", line 7, in send
    raise SinkError("no room")
odradek.errors.SinkError: topic words: no room
"""
RECURSION = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/jobs/words.py", line 3, in split
    return split(word)
           ^^^^^^^^^^^
  File "/jobs/words.py", line 3, in split
    return split(word)
           ^^^^^^^^^^^
  [Previous line repeated 974 more times]
RecursionError: maximum recursion depth exceeded
"""
ENDED = """An error occurred while calling o90.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times
Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse(PythonRunner.scala:624)
Caused by: java.io.EOFException
"""
NO_METHOD = """An error occurred while calling o264.count. Trace:
py4j.Py4JException: Method count([]) does not exist
\tat py4j.reflection.ReflectionEngine.getMethod(ReflectionEngine.java:321)
"""
SOURCES = (
    "[PYTHON_DATA_SOURCE_ERROR] Failed to generate Python data source read partitions: "
    "odradek.errors.OptionError: subscribe: topic nope does not exist\n SQLSTATE: 38000"
)
READING = (
    "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: odradek.errors.TimestampOutOfRangeError: t-0, "
    "offset 1: too late\n SQLSTATE: 38000"
)
OF_A_RECORD = (
    "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: ValueError: x: odradek.errors.XError: t-0\n"
)
SPARKS = """[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012
== SQL (line 1, position 8) ==
SELECT 1/0
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (WORKER, "ValueError: no such (/jobs/words.py, line 7, in split)"),
        (CHAINED, "KeyError: 'zz' (/jobs/words.py, line 5, in split)"),
        (OURS, "topic words: no room"),
        (SPARKS, "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"),
        (RECURSION, "RecursionError: maximum recursion depth exceeded (/jobs/words.py, line 3, in split)"),
        (NO_METHOD, "Method count([]) does not exist"),
        (SOURCES, "subscribe: topic nope does not exist"),
        (READING, "t-0, offset 1: too late"),
        (OF_A_RECORD, OF_A_RECORD.strip()),
        ("\n", "RuntimeError"),
    ],
    ids=[
        "a function",
        "the last of several",
        "ours",
        "Spark's",
        "without an end",
        "Py4J's",
        "a source's",
        "reading",
        "a record's",
        "nothing",
    ],
)
def test_an_error_is_told_in_one_line(text: str, told: str) -> None:
    assert str(explain(RuntimeError(text))) == told


def test_a_worker_that_ended_is_told_by_what_may_have_ended_it() -> None:
    assert str(explain(RuntimeError(ENDED), "sink[0]")).startswith("sink[0]: a Python worker of Spark ended")


def test_a_worker_that_does_not_start_in_time_is_a_lost_one() -> None:
    told = explain(RuntimeError("[STREAM_FAILED] ... Python worker failed to connect back. SQLSTATE: XXKST"))
    assert isinstance(told, WorkerLostError)
    assert str(told).startswith("a Python worker of Spark did not start within the ten seconds")


def test_spark_that_ends_during_a_call_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def end_each() -> None:
            # py4j asks a second time.
            for _ in range(2):
                connection, _ = server.accept()
                with connection:
                    connection.recv(1000)

        ending = threading.Thread(target=end_each, daemon=True)
        ending.start()
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=server.getsockname()[1]))
        with pytest.raises(Py4JError) as broken:
            gateway.entry_point.add()
        gateway.close()
        ending.join()
    told = explain(broken.value, "sink[2]")
    assert str(told).startswith("Spark has ended while it was at work (")
    assert told.key is None
    # Not that the schema cannot be used.
    monkeypatch.setattr(values, "sql", MagicMock(from_json=MagicMock(side_effect=broken.value)))
    with pytest.raises(JobError, match=r"^Spark has ended while it was at work"):
        values.with_values(MagicMock(), ValueFormat("json", b"id INT"))
