"""What signals do to `odradek pipeline run`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.cli.app import main
from odradek.spark.pipeline import Pipeline

JOB = """
[source]
path = "source"
subscribe = "orders"
[offsets]
store = "file:offsets.json"
[[sink]]
type = "parquet"
path = "out"
"""
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def handlers() -> Iterator[None]:
    before = [(number, signal.getsignal(number)) for number in STOPS]
    yield
    for number, handler in before:
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", STOPS)
def test_a_second_signal_of_any_kind_ends_the_job_at_once(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[bool] = []

    def run(self: Pipeline, *_: Any, **__: Any) -> None:
        os.kill(os.getpid(), number)
        # A handler runs between two steps of Python code, of the main thread.
        while not stopped:
            pass

    monkeypatch.setattr(Pipeline, "run", run)
    monkeypatch.setattr(Pipeline, "stop", lambda self: stopped.append(True))
    (tmp_path / "job.toml").write_text(JOB, encoding="utf-8")
    for each in STOPS:
        signal.signal(each, signal.default_int_handler)
    ended = CliRunner().invoke(main, ["pipeline", "run", str(tmp_path / "job.toml")])
    assert stopped, ended.output
    assert [signal.getsignal(each) for each in STOPS] == [signal.SIG_DFL] * len(STOPS)
