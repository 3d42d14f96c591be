"""`pipeline status`: position, lag, last batch and last error, from the store and the source alone."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

import odradek
import odradek.testing
from odradek.cli.app import main
from odradek.offsets.store import Position, open_store
from odradek.spark.pipeline import Job
from odradek.spark.pipeline.run_note import LastBatch, LastError, LastLoss, RunNote, newest_note
from odradek.spark.pipeline.status import job_status
from odradek.storage.names import TopicPartition

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
    lost = RunNote(batch, error, LastLoss(batch.time_ms + 2, "orders-0: offsets [4, 6)"))
    commit(file, {ORDERS_0: Position(1, note=lost.text())})
    told = CliRunner().invoke(main, ["pipeline", "status", str(file)]).output
    assert "last loss, of logs that were cut: 2026-09-21T14:13:20.002+00:00: orders-0: offsets [4, 6)\n" in told
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
        "open_transaction": None,
    }


def test_what_the_next_batch_would_fail_on_is_told(file: Path) -> None:
    commit(file, {ORDERS_0: Position(7), ORDERS_1: Position(0, topic_id="AAAAAAAAAAAAAAAAAAAAEQ")})
    found = job_status(Job.read(file))
    told = [part.problem for part in found.partitions]
    assert told[0] is not None
    assert "truncated" in told[0]
    assert told[1] is not None
    assert "created again under the same name" in told[1]
    assert not found.is_well


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_what_an_open_transaction_holds_back_is_told(tmp_path: Path) -> None:
    with odradek.testing.Broker(tmp_path / "data") as broker:
        broker.create_topic("orders", partitions=2)
        broker.logs[ORDERS_0].append([odradek.Record(value=b"before")] * 3)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "payments"})
        producer.init_transactions()
        producer.begin_transaction()
        for _ in range(40):
            producer.produce("orders", b"held", partition=0)
        producer.flush()
        # Of the broker, and of its folder beside it.
        for place in (f'kafka."bootstrap.servers" = "{broker.bootstrap_servers}"', 'path = "data"'):
            file = tmp_path / "job.toml"
            file.write_text(
                JOB.replace('path = "data"', f'{place}\nisolation.level = "read_committed"'), encoding="utf-8"
            )
            commit(file, {ORDERS_0: Position(3)})
            lines = CliRunner().invoke(main, ["pipeline", "status", str(file)]).output.splitlines()
            assert lines[0].startswith("orders: 0 left, 40 held back by open transactions, position in ")
            told = r"orders-0 waits at offset 3: a transaction of payments \(producer \d+\) has been open for \d+ s"
            assert re.fullmatch(told, lines[1])
            assert [line.split() for line in lines[2:]] == [
                ["TOPIC", "PARTITION", "OFFSET", "LOG_END", "LAST_STABLE", "LAG"],
                ["orders", "0", "3", "43", "3", "0"],
                ["orders", "1", "-", "0", "0", "0"],
            ]
            told = json.loads(CliRunner().invoke(main, ["pipeline", "status", str(file), "--format", "jsonl"]).output)
            held = told["partitions"][0]["open_transaction"]
            assert held.pop("producer_id") >= 0
            assert time.time() * 1000 - 600_000 < held.pop("since_ms") <= time.time() * 1000
            assert held == {"transactional_id": "payments", "last_stable_offset": 3, "log_end_offset": 43}
            assert told["held_back"] == 40
        producer.abort_transaction()


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
            Position(1, note='{"batch": {"time_ms": 3, "offsets": 1, "seconds": NaN}}'),
            Position(1, note=f'{{"batch": {{"time_ms": 3, "offsets": 1, "seconds": {10**400}}}}}'),
            Position(1, note='{"error": {"time_ms": 3, "text": 5}}'),
        ]
    )
    assert len(note.text().encode()) < 2048
    assert read.batch == note.batch
    assert read.error is not None
    assert read.error.text == ("ü\n" * 5000)[: len(read.error.text)] != ""
    assert not read.has_failed
