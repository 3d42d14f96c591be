"""The tasks of a topic sink, whose transactions others take over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import odradek.testing
from odradek.errors import SinkError
from odradek.kafka.client import BrokerClient
from odradek.kafka.producer_identity import take_producer_id
from odradek.kafka.settings import BrokerSettings
from odradek.spark.pipeline.batch import Batch
from odradek.spark.pipeline.job import Job, TopicSinkSpec
from odradek.spark.pipeline.sink import check_owner
from odradek.spark.pipeline.topic import _ForwardTask
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition

NAME = TopicPartition("s", 0)
Names = tuple[str, str, str | None, str]


def rows(start: int, end: int, topic: str = "s") -> pa.RecordBatch:
    count = end - start
    return pa.record_batch(
        {
            "topic": pa.array([topic] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(start, end), pa.int64()),
            "value": pa.array([b"%d" % number for number in range(start, end)]),
        }
    )


@pytest.mark.parametrize("when", ["between", "at the end"])
def test_a_task_whose_transaction_was_taken_over_says_so_and_writes_nothing(tmp_path: Path, when: str) -> None:
    with odradek.testing.Broker() as broker:
        broker.create_topic("t", 1)
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        spec = TopicSinkSpec("t", servers)
        settings = BrokerSettings.parse(servers)
        job = Job({"path": str(tmp_path), "subscribe": "s"}, "file:///offsets.json", (spec,), name="job")
        batch = Batch(job, None, [OffsetRange(NAME, 0, 30)], None)  # type: ignore[arg-type]
        asked = 0

        def given() -> Iterator[pa.RecordBatch]:
            nonlocal asked
            for asked in range(1, 4):
                yield rows(10 * asked - 10, 10 * asked)
                if asked == (1 if when == "between" else 3):
                    client = BrokerClient(settings)
                    take_producer_id(client, "job-t-s-0")
                    client.close()

        task = _ForwardTask(settings, spec, ("job", "t"), batch)
        (result,) = task(given())
        (row,) = result.to_pylist()
        assert "job-t-s-0" in row["fenced"] or "t-0" in row["fenced"]
        # A task that leaves rows behind would be an error of Spark's.
        assert asked == 3
        assert list(broker.logs["t", 0].read(isolation="read_committed")) == []
        # Nobody else is in the way of the next attempt.
        (result,) = task(iter([rows(0, 10), rows(10, 30)]))
        assert [row["fenced"] for row in result.to_pylist()] == [None]
        committed = [record.value for record in broker.logs["t", 0].read(isolation="read_committed")]
        assert committed == [b"%d" % number for number in range(30)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # Job, topic of the sink, its transactional_id, topic of the source: all are `a-b-t-s-0`.
        (("a-b", "t", None, "s"), ("a", "b-t", None, "s")),
        (("a", "t", "a-b", "t-s"), ("a-b", "t", None, "s")),
        (("a", "t", "a-b", "t-s"), ("b", "t", "a-b-t", "s")),
    ],
)
def test_two_jobs_whose_transactional_ids_are_the_same(tmp_path: Path, first: Names, second: Names) -> None:
    with odradek.testing.Broker() as broker:
        broker.create_topic("t", 1)
        broker.create_topic("b-t", 1)
        servers = {"bootstrap.servers": broker.bootstrap_servers}

        def forward(names: Names, start: int, end: int) -> None:
            name, topic, transactional_id, source = names
            spec = TopicSinkSpec(topic, servers, transactional_id=transactional_id)
            job = Job({"path": str(tmp_path), "subscribe": source}, "file:///offsets.json", (spec,), name=name)
            batch = Batch(job, None, [OffsetRange(TopicPartition(source, 0), start, end)], None)  # type: ignore[arg-type]
            task = _ForwardTask(BrokerSettings.parse(servers), spec, job.owner(spec), batch)
            list(task(iter([rows(start, end, source)])))

        forward(first, 0, 10)
        with pytest.raises(SinkError, match="a-b-t-s-0 belong to"):
            forward(second, 0, 20)
        forward(first, 10, 30)
        values = [record.value for record in broker.logs[first[1], 0].read(isolation="read_committed")]
        assert values == [b"%d" % number for number in range(30)]


def test_a_job_that_got_another_name_keeps_its_transactional_ids() -> None:
    own = ("a", "t")
    for held in (None, own, ("a-t",)):
        check_owner("topic t", "a-t-s-0", held, own)
        check_owner("topic t", "a-t-s-0", held, ("a-t",))
    with pytest.raises(SinkError, match="belong to the job a with the topic t"):
        check_owner("topic t", "a-t-s-0", own, ("a", "t-s"))


def test_a_task_whose_transactional_id_has_another_producer_id_by_now(tmp_path: Path) -> None:
    """As epochs end, whoever takes an id over gets another producer id; coordinators know the former one no more."""
    with odradek.testing.Broker() as broker:
        broker.create_topic("t", 1)
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        spec = TopicSinkSpec("t", servers)
        job = Job({"path": str(tmp_path), "subscribe": "s"}, "file:///offsets.json", (spec,), name="job")
        batch = Batch(job, None, [OffsetRange(NAME, 0, 30)], None)  # type: ignore[arg-type]
        task = _ForwardTask(BrokerSettings.parse(servers), spec, job.owner(spec), batch)
        for api in ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"):
            with broker.fault(api, error="INVALID_PRODUCER_ID_MAPPING", times=1):
                (result,) = task(iter([rows(0, 30)]))
            assert [row["fenced"] is not None for row in result.to_pylist()] == [True]


def test_a_row_that_no_record_can_hold_ends_its_transaction_and_is_told(tmp_path: Path) -> None:
    with odradek.testing.Broker() as broker:
        broker.create_topic("t", 1)
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        for on_invalid, expected in (("error", []), ("skip", [b"0", b"2"])):
            spec = TopicSinkSpec("t", servers, transactional_id=on_invalid, on_invalid=on_invalid)
            job = Job({"path": str(tmp_path), "subscribe": "s"}, "file:///offsets.json", (spec,), name="job")
            batch = Batch(job, None, [OffsetRange(NAME, 0, 3)], None)  # type: ignore[arg-type]
            task = _ForwardTask(BrokerSettings.parse(servers), spec, job.owner(spec), batch)
            times = pa.array([0, -86_400_000_000, 0], pa.timestamp("us", "UTC"))
            (result,) = task(iter([rows(0, 3).append_column("timestamp", times)]))
            (row,) = result.to_pylist()
            if on_invalid == "error":
                assert (row["invalid_offset"], row["refused"]) == (1, 0)
                assert row["reason"].startswith("its timestamp is negative")
            else:
                assert (row["invalid_offset"], row["refused"]) == (None, 1)
            assert [record.value for record in broker.logs["t", 0].read(isolation="read_committed")] == expected
