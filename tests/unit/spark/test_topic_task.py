"""The tasks of a topic sink, whose transactions others take over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import odradek.testing
from odradek.errors import SinkError
from odradek.kafka.client import BrokerClient
from odradek.kafka.producer_identity import take_producer_id
from odradek.kafka.settings import BrokerSettings
from odradek.spark.pipeline.batch import Batch
from odradek.spark.pipeline.job import Job
from odradek.spark.pipeline.sink import check_owner
from odradek.spark.pipeline.sink_specs import TopicSinkSpec
from odradek.spark.pipeline.topic import _ForwardTask
from odradek.spark.ranges import OffsetRange
from odradek.storage.names import TopicPartition

Names = tuple[str, str, str | None, str]


@pytest.fixture
def broker() -> Iterator[odradek.testing.Broker]:
    with odradek.testing.Broker() as broker:
        broker.create_topic("t", 1)
        yield broker


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


def forward(
    broker: odradek.testing.Broker,
    batches: Iterable[pa.RecordBatch],
    start: int,
    end: int,
    names: Names = ("job", "t", None, "s"),
    **options: Any,
) -> list[dict[str, Any]]:
    """Run the task of a sink over some offsets, as Spark does; return what it says of them."""
    name, topic, transactional_id, source = names
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    spec = TopicSinkSpec(topic, servers, transactional_id=transactional_id, **options)
    job = Job({"path": "/data", "subscribe": source}, "file:///offsets.json", (spec,), name=name)
    batch = Batch(job, None, [OffsetRange(TopicPartition(source, 0), start, end)], None)  # type: ignore[arg-type]
    task = _ForwardTask(BrokerSettings.parse(servers), spec, job.owner(spec), batch)
    found = [row for result in task(iter(batches)) for row in result.to_pylist()]
    # The coordinator answers before it has written the markers.
    task.wait_until_visible([TopicPartition(source, 0)])
    return found


def committed(broker: odradek.testing.Broker, topic: str = "t") -> list[bytes | None]:
    return [record.value for record in broker.logs[topic, 0].read(isolation="read_committed")]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["between", "at the end"])
def test_a_task_whose_transaction_was_taken_over_says_so_and_writes_nothing(
    broker: odradek.testing.Broker, when: str
) -> None:
    asked = 0

    def given() -> Iterator[pa.RecordBatch]:
        nonlocal asked
        for asked in range(1, 4):
            yield rows(10 * asked - 10, 10 * asked)
            if asked == (1 if when == "between" else 3):
                client = BrokerClient(BrokerSettings.parse({"bootstrap.servers": broker.bootstrap_servers}))
                take_producer_id(client, "job-t-s-0")
                client.close()

    (row,) = forward(broker, given(), 0, 30)
    assert "job-t-s-0" in row["fenced"] or "t-0" in row["fenced"]
    # A task that leaves rows behind would be an error of Spark's.
    assert asked == 3
    assert committed(broker) == []
    # Nobody else is in the way of the next attempt.
    (row,) = forward(broker, [rows(0, 10), rows(10, 30)], 0, 30)
    assert row["fenced"] is None
    assert committed(broker) == [b"%d" % number for number in range(30)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "second"),
    [
        # Job, topic of the sink, its transactional_id, topic of the source: all are `a-b-t-s-0`.
        (("a-b", "t", None, "s"), ("a", "b-t", None, "s")),
        (("a", "t", "a-b", "t-s"), ("a-b", "t", None, "s")),
        (("a", "t", "a-b", "t-s"), ("b", "t", "a-b-t", "s")),
    ],
)
def test_two_jobs_whose_transactional_ids_are_the_same(
    broker: odradek.testing.Broker, first: Names, second: Names
) -> None:
    broker.create_topic("b-t", 1)
    forward(broker, [rows(0, 10, first[3])], 0, 10, first)
    with pytest.raises(SinkError, match="a-b-t-s-0 belong to"):
        forward(broker, [rows(0, 20, second[3])], 0, 20, second)
    forward(broker, [rows(10, 30, first[3])], 10, 30, first)
    assert committed(broker, first[1]) == [b"%d" % number for number in range(30)]


def test_a_job_that_got_another_name_keeps_its_transactional_ids() -> None:
    own = ("a", "t")
    for held in (None, own, ("a-t",)):
        check_owner("topic t", "a-t-s-0", held, own)
        check_owner("topic t", "a-t-s-0", held, ("a-t",))
    with pytest.raises(SinkError, match="belong to the job a with the topic t"):
        check_owner("topic t", "a-t-s-0", own, ("a", "t-s"))


@pytest.mark.slow
def test_a_task_whose_transactional_id_has_another_producer_id_by_now(broker: odradek.testing.Broker) -> None:
    """As epochs end, whoever takes an id over gets another producer id; coordinators know the former one no more."""
    for api in ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"):
        with broker.fault(api, error="INVALID_PRODUCER_ID_MAPPING", times=1):
            (row,) = forward(broker, [rows(0, 30)], 0, 30)
        assert row["fenced"] is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("on_invalid", "invalid_offset", "refused", "values"), [("error", 1, 0, []), ("skip", None, 1, [b"0", b"2"])]
)
def test_a_row_that_no_record_can_hold_ends_its_transaction_and_is_told(
    broker: odradek.testing.Broker, on_invalid: str, invalid_offset: int | None, refused: int, values: list[bytes]
) -> None:
    times = pa.array([0, -86_400_000_000, 0], pa.timestamp("us", "UTC"))
    (row,) = forward(broker, [rows(0, 3).append_column("timestamp", times)], 0, 3, on_invalid=on_invalid)
    assert (row["invalid_offset"], row["refused"]) == (invalid_offset, refused)
    assert refused or row["reason"].startswith("its timestamp is negative")
    assert committed(broker) == values


@pytest.mark.slow
def test_what_a_target_does_not_take_goes_to_the_dead_letters_of_the_same_transaction(
    broker: odradek.testing.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.spark.pipeline.topic.MISSING_S", 0)
    broker.create_topic("small", 2, {"max.message.bytes": "1000"})
    broker.create_topic("letters", 1)
    broker.create_topic("small-letters", 1, {"max.message.bytes": "1000"})
    columns = {"target": ["small", "small", "none", None, "small"], "to": [1, 0, 0, 0, 7]}
    given = rows(0, 5).set_column(3, "value", pa.array([b"0", bytes(2000), b"2", b"3", b"4"]))
    for name, column in columns.items():
        given = given.append_column(name, pa.array(column))
    names: Any = ("job", None, None, "s")
    routed = {"topic_column": "target", "partition_column": "to", "on_invalid": "dead-letter"}
    (row,) = forward(broker, [given], 0, 5, names, **routed, dead_letter_topic="small-letters", position_topic="t")
    assert row["invalid_offset"] == 1
    assert row["reason"].count("MESSAGE_TOO_LARGE (10)") == 2
    for _ in range(2):
        (row,) = forward(broker, [given], 0, 5, names, **routed, dead_letter_topic="letters", position_topic="t")
        assert row["reason"] is None
    assert [record.value for record in broker.logs["small", 1].read(isolation="read_committed")] == [b"0"]
    found = list(broker.logs["letters", 0].read(isolation="read_committed"))
    assert [record.value for record in found] == [bytes(2000), b"2", b"3", b"4"]
    reasons = [dict(record.headers)["__odradek.errors.message"] or b"" for record in found]
    assert [reason.split(b":")[0] for reason in reasons] == [
        b"MESSAGE_TOO_LARGE (10)",
        b"there is no topic none",
        b"its target is null",
        b"the topic small has no partition 7",
    ]
