"""The workers' Python, where the first `python3` on the `PATH` is another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from peers.kafka_fixture import KafkaFixture
from peers.process import PATIENCE

READ = 'print(spark.read.format("odradek").option("subscribe", "v2-none").load({path!r}).count())'
PLAIN = "pyspark.sql.SparkSession.builder.master('local[1]').config('spark.ui.enabled', 'false').getOrCreate()"
OURS = "odradek.spark.session(master='local[1]')"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment whose first `python3` has neither Spark nor Arrow, and which names no other."""
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.symlink_to(Path(sys.base_prefix, "bin", "python3"))
    if subprocess.run([other, "-c", "import pyarrow"], capture_output=True, check=False).returncode == 0:
        pytest.skip("Python has pyarrow without any virtual environment")
    kept = {"SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"}
    named = {name for name in os.environ if name.startswith(("PYSPARK_", "SPARK_"))} - kept
    inherited = {name: value for name, value in os.environ.items() if name not in named}
    return inherited | {"PATH": f"{other.parent}:{os.environ['PATH']}"}


def run(environment: dict[str, str], *lines: str) -> subprocess.CompletedProcess[str]:
    program = "\n".join(["import pyspark.sql, odradek.spark", *lines])
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400 * PATIENCE, check=False)


@pytest.mark.laboratory  # a Spark of its own; all others show the same
def test_the_workers_run_the_python_that_starts_spark(environment: dict[str, str], fixture_4_3_1: KafkaFixture) -> None:
    ours = run(environment, f"spark = {OURS}", READ.format(path=str(fixture_4_3_1.log_dir)))
    assert ours.stdout.strip() == str(len(fixture_4_3_1.records("v2-none-0")))


@pytest.mark.laboratory  # a Spark of its own
def test_a_session_that_runs_with_other_workers_is_refused(
    environment: dict[str, str], fixture_4_3_1: KafkaFixture
) -> None:
    read = READ.format(path=str(fixture_4_3_1.log_dir))
    plain = run(environment, f"spark = {PLAIN}", "try:", f"    {read}", "except Exception as why: print(why)", OURS)
    assert "Failed to find the data source: odradek" in plain.stdout
    said = plain.stderr.strip().splitlines()[-1]
    assert said.startswith(
        "odradek.spark.spark_session.SparkStartError: Spark's workers run python3, which lacks odradek"
    )
    assert f"PYSPARK_PYTHON={sys.executable}" in said
