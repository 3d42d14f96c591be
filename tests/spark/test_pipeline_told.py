"""What a pipeline tells while it runs and after it failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pyspark.sql import SparkSession

import odradek
from odradek.cli.app import main
from odradek.errors import JobError
from odradek.spark.pipeline import Job, Pipeline
from odradek.spark.pipeline.history import read_history
from peers.http import metrics
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
    record = "the record at offset 2 of orders-0 cannot be processed: "
    told = f"{file}: line 17: sink[0]: {record}[CAST_INVALID_INPUT] The value 'three' of the type \"STRING\""
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
    assert f": sink[0]: {record}[CAST_INVALID_INPUT] The value 'three'" in lines[2]
    assert lines[-1].split() == ["orders", "0", "2", "4", "2"]
    # All is well again after the next batch.
    file.write_text(JOB.replace("CAST(CAST", "try_cast(CAST"), encoding="utf-8")
    done = odradek_pipeline("run", file, "--format", "jsonl")
    *batches, ended = [json.loads(line) for line in done.stdout.splitlines()]
    assert (ended["event"], ended["batches"]) == ("ended", 1)
    assert [(batch["batch"], batch["lags"]) for batch in batches] == [(1, {"orders-0": 0})]
    assert [sink["sink"] for sink in batches[0]["sinks"]] == [f"parquet {file.parent / 'out'}"]
    assert odradek_pipeline("status", file).exit_code == 0


def test_wrong_sql_is_told_with_its_line(spark: SparkSession, file: Path) -> None:
    file.write_text(JOB.replace("CAST(value", "CAST(nothing"), encoding="utf-8")
    failed = odradek_pipeline("run", file)
    told = f"odradek: {file}: line 14: transform[0].sql: [UNRESOLVED_COLUMN.WITH_SUGGESTION] "
    assert failed.stderr.splitlines()[-1].startswith(told)


def test_batches_are_seen_from_outside(spark: SparkSession, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By metrics, traces and lineage together."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    port = free_port()
    events = file.parent / "events"
    outside = f"""
    [metrics]
    listen = "127.0.0.1:{port}"
    [opentelemetry]
    [openlineage]
    transport = {{ type = "file", log_file_path = "{events}", append = true }}
    """
    file.write_text(JOB + outside, encoding="utf-8")
    pages: list[dict[str, float]] = []
    with pytest.raises(JobError, match="three"):
        Pipeline(Job.read(file), spark).run(lambda _: pages.append(metrics(f"http://127.0.0.1:{port}")))
    file.write_text(JOB.replace("CAST(CAST", "try_cast(CAST") + outside, encoding="utf-8")
    Pipeline(Job.read(file), spark).run(lambda _: pages.append(metrics(f"http://127.0.0.1:{port}")))
    labels = '{job="orders",partition="0",topic="orders"}'
    assert [page[f"odradek_pipeline_lag{labels}"] for page in pages] == [2, 0]
    assert [page[f"odradek_pipeline_lag_bytes{labels}"] > 0 for page in pages] == [True, False]
    assert [page[f"odradek_pipeline_lag_seconds{labels}"] > 0 for page in pages] == [True, False]
    told = [json.loads(line) for line in events.read_text().splitlines()]
    assert [event["eventType"] for event in told] == ["START", "FAIL", "START", "COMPLETE"]
    assert "CAST_INVALID_INPUT" in told[1]["run"]["facets"]["errorMessage"]["message"]
    spans = exporter.get_finished_spans()
    batches = [span for span in spans if span.name == "batch"]
    assert [span.status.is_ok for span in batches] == [True, False, True]
    children = [
        [span.name for span in spans if span.parent and batch.context and span.parent.span_id == batch.context.span_id]
        for batch in batches
    ]
    sink = f"sink parquet {file.parent / 'out'}"
    assert children[0] == children[2] == ["read", "transform", sink, "commit"]
    assert sink in children[1]
    assert "commit" not in children[1]
    assert dict(batches[0].attributes or {}) == {
        "odradek.job": "orders",
        "messaging.system": "kafka",
        "messaging.destination.name": "orders",
        "odradek.partitions": 1,
        "odradek.offsets": 2,
    }
    assert max(minute.level for minute in read_history(file.parent / "offsets.json.history")) == 4
    assert sum(minute.amount for minute in read_history(file.parent / "offsets.json.history")) == 4
