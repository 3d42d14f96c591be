"""What a pipeline tells while it runs and after it failed."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

import odradek
from odradek.cli.app import main
from odradek.spark.pipeline import BatchReport, Job, Pipeline
from peers.process import free_port

JOB = """
name = "orders"
[source]
path = "data"
subscribe = "orders"
[offsets]
store = "file:offsets.json"
[trigger]
max_offsets_per_batch = 2
[[transform]]
view = "numbers"
sql = '''
SELECT topic, partition, offset,
       CAST(CAST(value AS STRING) AS INT) AS number
FROM records
'''
[[sink]]
type = "parquet"
view = "numbers"
path = "out"
"""


pytestmark = pytest.mark.usefixtures("signals_as_before")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("orders")
        logs["orders", 0].append([odradek.Record(value=value) for value in (b"1", b"2", b"three", b"4")])
    (tmp_path / "job.toml").write_text(JOB, encoding="utf-8")
    return tmp_path / "job.toml"


def odradek_pipeline(*words: str | Path) -> Result:
    return CliRunner().invoke(main, ["pipeline", *map(str, words)])


def test_an_error_is_told_with_its_sink_and_kept_for_status(spark: SparkSession, file: Path) -> None:
    failed = odradek_pipeline("run", file)
    assert failed.exit_code == 3
    told = f"{file}: line 17: sink[0]: [CAST_INVALID_INPUT] The value 'three' of the type \"STRING\""
    assert failed.stderr.splitlines()[-1].startswith(f"odradek: {told}")
    assert "org.apache.spark" not in failed.output
    # Of a session of its own, the command sets this itself.
    spark.conf.set("spark.sql.pyspark.jvmStacktrace.enabled", "true")
    try:
        assert "\tat org.apache.spark" in odradek_pipeline("run", file, "--debug").stderr
    finally:
        spark.conf.unset("spark.sql.pyspark.jvmStacktrace.enabled")
    status = odradek_pipeline("status", file)
    assert status.exit_code == 1
    lines = status.output.splitlines()
    assert lines[0].startswith("orders: 2 left, position in file:///")
    assert ", 2 offsets in " in lines[1]
    assert ": sink[0]: [CAST_INVALID_INPUT] The value 'three'" in lines[2]
    assert lines[-1].split() == ["orders", "0", "2", "4", "2"]
    # All is well again after the next batch.
    file.write_text(JOB.replace("AS INT", "AS STRING"), encoding="utf-8")
    done = odradek_pipeline("run", file, "--format", "jsonl")
    batches = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(batch["batch"], batch["lags"]) for batch in batches] == [(1, {"orders-0": 0})]
    assert [sink["sink"] for sink in batches[0]["sinks"]] == [f"parquet {file.parent / 'out'}"]
    assert odradek_pipeline("status", file).exit_code == 0


def test_wrong_sql_is_told_with_its_line(spark: SparkSession, file: Path) -> None:
    file.write_text(JOB.replace("CAST(value", "CAST(nothing"), encoding="utf-8")
    failed = odradek_pipeline("run", file)
    told = f"odradek: {file}: line 14: transform[0].sql: [UNRESOLVED_COLUMN.WITH_SUGGESTION] "
    assert failed.stderr.splitlines()[-1].startswith(told)


def test_metrics_are_served_while_it_runs(spark: SparkSession, file: Path) -> None:
    port = free_port()
    changed = JOB.replace("AS INT", "AS STRING") + f'[metrics]\nlisten = "127.0.0.1:{port}"\n'
    file.write_text(changed, encoding="utf-8")
    pages: list[str] = []

    def fetch(_: BatchReport) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            pages.append(answer.read().decode())

    assert Pipeline(Job.read(file), spark).run(fetch) == 2
    lags = [line for page in pages for line in page.splitlines() if line.startswith("odradek_pipeline_lag{")]
    assert [float(line.split()[1]) for line in lags] == [2, 0]
