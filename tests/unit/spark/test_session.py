"""What is told of an error in Spark."""

from __future__ import annotations

import pytest

from odradek.spark.pipeline.session import explain

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
        ("\n", "RuntimeError"),
    ],
    ids=["a function", "the last of several", "ours", "Spark's", "nothing"],
)
def test_an_error_is_told_in_one_line(text: str, told: str) -> None:
    assert str(explain(RuntimeError(text))) == told
