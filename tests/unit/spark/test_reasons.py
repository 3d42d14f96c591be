from __future__ import annotations

import io
import os
from collections.abc import Iterator

import pytest
from pyspark.util import handle_worker_exception

from odradek.errors import OptionError
from odradek.spark.reasons import reasons_first


@reasons_first
class Reader:
    def partitions(self, error: Exception) -> None:
        raise error

    def read(self, error: Exception) -> Iterator[int]:
        yield 1
        raise error


def shown(method: str, error: Exception) -> str:
    """Return what a worker of Spark sends of an error."""
    sent = io.BytesIO()
    try:
        list(getattr(Reader(), method)(error))
    except Exception as raised:
        handle_worker_exception(raised, sent)
    return sent.getvalue()[8:].decode()


@pytest.mark.parametrize("method", ["partitions", "read"])
def test_a_worker_shows_the_reason_and_with_a_setting_the_traceback(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", "1")
    assert shown(method, ValueError("theirs")).startswith("Traceback")
    assert shown(method, OptionError("ours")) == "odradek.errors.OptionError: ours\n"
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK")
    monkeypatch.delenv("SPARK_SIMPLIFIED_TRACEBACK")
    assert shown(method, OptionError("ours")).startswith("Traceback")
    assert "SPARK_HIDE_TRACEBACK" not in os.environ
