"""Skips what needs Spark's own parser where only Spark's Python code is installed, as after `make install`."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pyspark
import pytest

from jobs.bad_jobs import place_files
from odradek.spark.pipeline.spark_grammar import SparkGrammar

IS_MISSING = not (Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars").is_dir()
REASON = "Spark's parser is not installed: make spark"


@pytest.fixture(autouse=True)
def _parser(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: SparkGrammar) -> None:
        # The check starts it in a thread first, to have it when it is needed.
        if threading.current_thread() is threading.main_thread():
            pytest.skip(REASON)

    if IS_MISSING:
        monkeypatch.setattr(SparkGrammar, "start", start)


@pytest.fixture
def spark_parser() -> None:
    """For a test that has the parser started by another process."""
    if IS_MISSING:
        pytest.skip(REASON)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Where a job's file is to be, beside what those of `bad_jobs` name."""
    place_files(tmp_path)
    return tmp_path / "job.toml"
