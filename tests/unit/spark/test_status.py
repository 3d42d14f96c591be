"""`pipeline status`: position, lag, last batch and last error, from the store and the source alone."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import odradek
from odradek.cli.app import main
from odradek.errors import JobError
from odradek.offsets.store import Position, open_store
from odradek.spark.pipeline import Job, Pipeline
from odradek.spark.pipeline.batch_report import BatchReport
from odradek.spark.pipeline.metrics import PipelineMetrics
from odradek.spark.pipeline.run_note import LastBatch, LastError, RunNote, newest_note
from odradek.spark.pipeline.status import job_status
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition
from peers.process import free_port

ORDERS_0 = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)
JOB = """
name = "orders"
[source]
path = "data"
subscribe = "orders"
[offsets]
store = "file:offsets.json"
[[sink]]
type = "console"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("orders", partitions=2)
        logs["orders", 0].append([odradek.Record(value=b"a"), odradek.Record(value=b"b"), odradek.Record(value=b"c")])
    (tmp_path / "job.toml").write_text(JOB, encoding="utf-8")
    return tmp_path / "job.toml"


def commit(file: Path, positions: dict[TopicPartition, Position]) -> None:
    with open_store(Job.read(file).offset_store) as store:
        store.commit(positions, expected=store.load())


def test_a_job_that_never_ran_has_no_lag(file: Path) -> None:
    found = job_status(Job.read(file))
    assert [(part.topic_partition, part.offset, part.end_offset, part.lag) for part in found.partitions] == [
        (ORDERS_0, None, 3, None),
        (ORDERS_1, None, 0, None),
    ]
    assert found.lag is None
    assert found.is_well
    assert found.note == RunNote()


def test_position_lag_last_batch_and_last_error(file: Path) -> None:
    batch = LastBatch(1_790_000_000_000, 2, 0.5, 1)
    commit(file, {ORDERS_0: Position(1, note=RunNote(batch).text())})
    result = CliRunner().invoke(main, ["pipeline", "status", str(file)])
    assert result.output.splitlines() == [
        f"orders: 2 left, position in {(file.parent / 'offsets.json').as_uri()}",
        "last batch: 2026-09-21T14:13:20.000+00:00, 2 offsets in 0.5 s, 1 records refused",
        "TOPIC   PARTITION  OFFSET  LOG_END  LAG",
        "orders          0       1        3    2",
        "orders          1       -        0    0",
    ]
    assert result.exit_code == 0
    error = LastError(batch.time_ms + 1, "sink[0]: ValueError: \x1b")
    commit(file, {ORDERS_1: Position(0, note=RunNote(batch, error).text())})
    result = CliRunner().invoke(main, ["pipeline", "status", str(file)])
    assert "last error: 2026-09-21T14:13:20.001+00:00: sink[0]: ValueError: \\x1b\n" in result.output
    assert result.exit_code == 1
    # A batch after it makes all well again; the error is still told.
    later = LastBatch(batch.time_ms + 2, 2, 0.5)
    commit(file, {ORDERS_0: Position(3, note=RunNote(later, error).text())})
    result = CliRunner().invoke(main, ["pipeline", "status", str(file), "--format", "jsonl"])
    assert result.exit_code == 0
    told = json.loads(result.output)
    assert (told["lag"], told["error"], told["batch"]["time_ms"]) == (0, {**vars(error)}, later.time_ms)
    assert told["partitions"][0] == {
        "topic": "orders",
        "partition": 0,
        "offset": 3,
        "end_offset": 3,
        "lag": 0,
        "problem": None,
    }


def test_what_the_next_batch_would_fail_on_is_told(file: Path) -> None:
    commit(file, {ORDERS_0: Position(7), ORDERS_1: Position(0, topic_id="AAAAAAAAAAAAAAAAAAAAEQ")})
    found = job_status(Job.read(file))
    told = [part.problem for part in found.partitions]
    assert told[0] is not None
    assert "truncated" in told[0]
    assert told[1] is not None
    assert "made again under the same name" in told[1]
    assert not found.is_well


def test_a_source_that_is_away_hides_no_positions(file: Path) -> None:
    commit(file, {ORDERS_0: Position(2)})
    away = Job.read(file)
    (file.parent / "data").rename(file.parent / "elsewhere")
    found = job_status(away)
    assert [(part.offset, part.lag) for part in found.partitions] == [(2, None)]
    assert found.source_error is not None
    assert not found.is_well


def test_a_note_fits_beside_a_position_and_foreign_ones_count_for_nothing() -> None:
    note = RunNote(LastBatch(2, 1, 0.1), LastError(1, "ü\n" * 5000))
    read = newest_note(
        [
            Position(1, note=note.text()),
            Position(1),
            Position(1, note="not JSON"),
            Position(1, note="[]"),
            Position(1, note='{"batch": {"time_ms": "today", "offsets": 1, "seconds": 1}}'),
            Position(1, note='{"batch": {"time_ms": 3, "offsets": 1, "seconds": null}}'),
            Position(1, note='{"error": {"time_ms": 3, "text": 5}}'),
        ]
    )
    assert len(note.text().encode()) < 2048
    assert read.batch == note.batch
    assert read.error is not None
    assert read.error.text == ("ü\n" * 5000)[: len(read.error.text)] != ""
    assert not read.has_failed


@pytest.mark.slow
def test_metrics_are_served(file: Path) -> None:
    metrics = PipelineMetrics("127.0.0.1", 0)
    try:
        with pytest.raises(JobError, match=r"metrics.listen: 127.0.0.1:\d+: Address already in use"):
            PipelineMetrics("127.0.0.1", metrics.port)
        positions = {ORDERS_0: Position(5)}
        report = BatchReport(1, [OffsetRange(ORDERS_0, 3, 5)], {ORDERS_0: 9}, positions, 0.5, 1, [("console", 0.25)])
        metrics.done(report)
        metrics.measured(positions, report.end_offsets)
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
    finally:
        metrics.close()
    assert {
        "odradek_pipeline_offsets_total 2.0",
        "odradek_pipeline_refused_records_total 1.0",
        "odradek_pipeline_batch_seconds_count 1.0",
        'odradek_pipeline_sink_seconds_sum{sink="console"} 0.25',
        'odradek_pipeline_position{partition="0",topic="orders"} 5.0',
        'odradek_pipeline_log_end_offset{partition="0",topic="orders"} 9.0',
        'odradek_pipeline_lag{partition="0",topic="orders"} 4.0',
    } <= set(lines)


@pytest.mark.slow
@pytest.mark.parametrize("state", ["", '[state]\npath = "state"\n'])
def test_metrics_are_those_of_the_source_before_the_first_batch(file: Path, state: str) -> None:
    transform = '[[transform]]\nview = "counts"\nsql = "SELECT count(*) FROM records"\n'
    port = free_port()
    file.write_text(f'{JOB}sql = "SELECT 1"\n{transform}{state}[metrics]\nlisten = "127.0.0.1:{port}"\n')
    lines: list[str] = []

    def session() -> SparkSession:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            lines.extend(answer.read().decode().splitlines())
        raise JobError("this is enough")

    with pytest.raises(JobError, match="this is enough"):
        Pipeline(Job.read(file), session).run()
    assert 'odradek_pipeline_lag{partition="0",topic="orders"} 3.0' in lines
    assert 'odradek_pipeline_lag{partition="1",topic="orders"} 0.0' in lines


@pytest.mark.parametrize("listen", ["9404", "localhost:99999", "a b:1"])
def test_a_wrong_address_of_metrics_is_named_with_its_line(file: Path, listen: str) -> None:
    file.write_text(f'{JOB}[metrics]\nlisten = "{listen}"\n', encoding="utf-8")
    with pytest.raises(JobError, match=r"job\.toml: line 11: metrics\.listen: an address such as 127\.0\.0\.1:9404"):
        Job.read(file)
