from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

import odradek
from odradek.records import Record
from odradek.spark import open_transactions
from odradek.spark.open_transactions import OpenTransaction, TransactionWatch
from odradek.spark.options import SourceOptions
from odradek.spark.pipeline.driver import Pipeline
from odradek.spark.pipeline.functions import Transform
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec
from odradek.spark.pipeline.state_spec import StateSpec
from odradek.spark.source_topics import open_topics
from odradek.spark.spark_schema import arrow_schema, source_schema
from odradek.spark.stream import StreamReader
from odradek.storage.names import TopicPartition
from peers.batches import transactional

NAME, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def held_back(path: Path, open_s: int) -> int:
    """Makes a log with a transaction that was opened so long ago; returns when, in ms."""
    since_ms = int(time.time() - open_s) * 1000
    with odradek.open(path) as logs:
        logs.create_topic("t", partitions=2)
        log = logs[NAME]
        log.append([Record(value=b"before")] * 3)
        held = [Record(value=b"held", timestamp=since_ms)] * 2
        log.append_batches(transactional(held, 7))
        log.append([Record(value=b"after it")])
    return since_ms


def test_a_watch_tells_who_holds_a_reader_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    since_ms = held_back(tmp_path, 12 * 60 + 5)
    topics = open_topics(
        SourceOptions.parse({"path": str(tmp_path), "subscribe": "t", "isolation.level": "read_committed"})
    )
    assert topics.open_transactions([NAME, OTHER]) == [OpenTransaction(NAME, 3, 7, since_ms, 6)]
    TransactionWatch("read_uncommitted").look(topics.open_transactions, [NAME], at_once=True)
    assert caplog.messages == []
    watch = TransactionWatch("read_committed")
    told = ["t-0 waits at offset 3: a transaction of producer 7 has been open for 12 min"]
    watch.look(topics.open_transactions, [NAME, OTHER])
    assert caplog.messages == told
    monkeypatch.setattr(open_transactions, "_LOOK_EVERY_S", 0)
    watch = TransactionWatch("read_committed")
    for _ in range(3):
        watch.look(topics.open_transactions, [NAME, OTHER])
    assert caplog.messages == told * 2
    # One that was opened a moment ago ends by itself, as a rule.
    monkeypatch.setattr(open_transactions, "_LONG_OPEN_S", 3600)
    TransactionWatch("read_committed").look(topics.open_transactions, [NAME])
    assert caplog.messages == told * 2
    topics.close()


def test_where_records_of_the_transaction_were_deleted(tmp_path: Path) -> None:
    since_ms = held_back(tmp_path, 60)
    options = SourceOptions.parse({"path": str(tmp_path), "subscribe": "t", "isolation.level": "read_committed"})
    for start, producer_id, time_ms in ((4, 7, since_ms), (5, -1, -1)):
        with odradek.open(tmp_path) as logs:
            logs[NAME].delete_records(start)
        topics = open_topics(options)
        found = OpenTransaction(NAME, start, producer_id, time_ms, 6)
        assert topics.open_transactions([NAME]) == [found]
        topics.close()
    assert str(found) == "t-0 waits at offset 5: a transaction is open, whose first records were deleted"


@pytest.mark.parametrize(("seconds", "said"), [(0.5, "0 s"), (59, "59 s"), (720, "12 min"), (7300, "2 h 1 min")])
def test_says_how_long(seconds: float, said: str) -> None:
    assert open_transactions._duration(seconds) == said


@pytest.mark.slow
def test_a_stream_says_who_holds_it_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_transactions, "_LOOK_EVERY_S", 0)
    held_back(tmp_path, 3600)
    given = {"path": str(tmp_path), "subscribe": "t", "isolation.level": "read_committed"}
    options = SourceOptions.parse({**given, "startingOffsets": "earliest"}, streaming=True)
    stream = StreamReader(options, arrow_schema(source_schema(include_headers=False)))
    end = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
    assert caplog.messages == []
    assert stream.latestOffset(end, stream.getDefaultReadLimit()) == end
    assert caplog.messages == ["t-0 waits at offset 3: a transaction of producer 7 has been open for 60 min"]
    stream.stop()


@pytest.mark.parametrize("has_state", [False, True])
def test_a_pipeline_that_ends_before_the_end_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, has_state: bool
) -> None:
    held_back(tmp_path / "data", 5)
    store = (tmp_path / "offsets.json").as_uri()
    job = Job(
        {"path": str(tmp_path / "data"), "subscribe": "t", "isolation.level": "read_committed"},
        store,
        (ConsoleSinkSpec("SELECT 1"),),
        reset="latest",
        transforms=(Transform("counts", "SELECT count(*) FROM records"),),
        state=StateSpec(tmp_path / "state") if has_state else None,
    )
    with caplog.at_level(logging.WARNING):
        assert Pipeline(job).run() == 0
    (message,) = caplog.messages
    assert message.startswith("t-0 waits at offset 3: a transaction of producer 7 has been open for ")
