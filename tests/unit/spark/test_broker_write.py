"""Tasks and the driver of a write, without Spark between them, against the broker of tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

import odradek.testing
from odradek.errors import BrokerUnavailableError, OptionError, SinkError
from odradek.kafka import client
from odradek.kafka.settings import BrokerSettings
from odradek.records.compression import Codec
from odradek.spark.broker_split import close_kept_clients
from odradek.spark.writing import epochs
from odradek.spark.writing.broker_write import BrokerWrite, SentRows
from odradek.spark.writing.epochs import Epoch
from odradek.testing.request_tap import ReceivedRequest

QUERY = "5e0f63b3-2c0a-4f0c-8d3f-2f5a3f9f2a11"


@pytest.fixture
def broker() -> Iterator[odradek.testing.Broker]:
    with odradek.testing.Broker() as broker:
        broker.create_topic("t", 2)
        yield broker
        close_kept_clients()


def write_of(broker: odradek.testing.Broker, transactional_id: str | None = "", **settings: str) -> BrokerWrite:
    parsed = BrokerSettings.parse({"bootstrap.servers": broker.bootstrap_servers, **settings})
    return BrokerWrite(parsed, "t", Codec.NONE, transactional_id)


def rows(*values: str) -> list[pa.RecordBatch]:
    return [pa.record_batch({"value": list(values), "partition": pa.array([0] * len(values), pa.int32())})]


def of_task(number: int) -> Callable[[ReceivedRequest], bool]:
    return lambda request: request.fields["transactional_id"] == f"odradek-spark-{QUERY}-{number}"


def committed(broker: odradek.testing.Broker, partition: int = 0) -> list[str]:
    records = broker.logs["t", partition].read(isolation="read_committed")
    return [(record.value or b"").decode() for record in records]


@pytest.mark.slow
def test_all_tasks_of_a_batch_or_none(broker: odradek.testing.Broker) -> None:
    write = write_of(broker, "job")
    first = [write.write(rows("a", "b"), 0), write.write(rows("c"), 1), write.write(rows(), 2)]
    assert committed(broker) == []
    # Of the third task no message came, as it was killed; the driver drops its rows as well.
    write.write(rows("lost"), 2)
    write.abort([*first[:2], None])
    assert broker.logs["t", 0].last_stable_offset == broker.logs["t", 0].log_end_offset
    write.commit([write.write(rows("d"), 0), write.write(rows("e"), 1)])
    assert committed(broker) == ["d", "e"]


@pytest.mark.slow
def test_a_later_attempt_of_a_task_takes_its_rows_back(broker: odradek.testing.Broker) -> None:
    write = write_of(broker, "job")
    zombie = write.write(rows("once"), 0)
    again = write.write(rows("once"), 0)
    with pytest.raises(SinkError, match="nothing is committed"):
        write.commit([zombie])
    write.commit([again])
    assert committed(broker) == ["once"]


@pytest.mark.slow
@pytest.mark.parametrize("epoch", [None, Epoch(QUERY, 0)])
@pytest.mark.parametrize("how", ["timed out", "taken over"])
def test_nothing_is_committed_if_the_rows_of_a_later_task_are_lost(
    broker: odradek.testing.Broker, how: str, epoch: Epoch | None
) -> None:
    write = write_of(broker, "job", **{"transaction.timeout.ms": "60000"})
    commit, abort = (
        (write.commit, write.abort)
        if epoch is None
        else (
            lambda messages: write.commit_epoch(messages),
            lambda messages: write.abort_epoch(messages),
        )
    )
    second = write.write(rows("1"), 1, epoch)
    # The first task took longer, or was tried again: its transaction is younger.
    broker.clock.advance(50)
    first = write.write(rows("0"), 0, epoch)
    if how == "timed out":
        broker.clock.advance(20)
    else:
        # A second attempt of the task began after the first one was done, as with spark.speculation.
        write.write(rows("1"), 1, epoch)
    with pytest.raises(SinkError, match="nothing is committed, for the rows of 1 of 2 tasks are lost"):
        commit([first, second])
    # Spark calls this after a commit that failed.
    abort([first, second])
    assert committed(broker) == []
    commit([write.write(rows(f"{task}"), task, epoch) for task in range(2)])
    assert committed(broker) == ["0", "1"]
    assert broker.logs["t", 0].last_stable_offset == broker.logs["t", 0].log_end_offset


@pytest.mark.slow
@pytest.mark.usefixtures("quick_failures")
def test_a_broker_that_does_not_tell_whose_transactions_are(broker: odradek.testing.Broker) -> None:
    write = write_of(broker, "job")
    with broker.fault("DescribeTransactions", error="COORDINATOR_NOT_AVAILABLE"):
        with pytest.raises(BrokerUnavailableError):
            write.commit([write.write(rows("a"), 0)])
    assert committed(broker) == []
    # Kafka before 3.0 does not know the request.
    told, asked = write.write(rows("b"), 0), len(broker.requests("DescribeTransactions"))
    assert asked
    del write._client()._connected().broker_version_data.api_versions[65]
    write.commit([told])
    assert committed(broker) == ["b"]
    assert len(broker.requests("DescribeTransactions")) == asked


@pytest.mark.slow
def test_a_batch_of_a_stream_that_is_repeated_is_written_once(broker: odradek.testing.Broker) -> None:
    epoch = Epoch(QUERY, 7)
    write = write_of(broker)
    # The first task has no rows, and yet commits the batch.
    write.commit_epoch([write.write(rows(), 0, epoch), write.write(rows("a"), 1, epoch)])
    for tasks in (2, 1, 3):
        told = [write.write(rows("a", f"{tasks}"), task, epoch) for task in range(tasks)]
        assert all(one.is_held for one in told)
        write.commit_epoch(told)
    after = Epoch(QUERY, 8)
    write.commit_epoch([write.write(rows("b"), 0, after)])
    # Another query, though of the same number.
    other = Epoch(QUERY.replace("5", "6"), 8)
    write.commit_epoch([write.write(rows("c"), 0, other)])
    assert committed(broker) == ["a", "b", "c"]
    with pytest.raises(SinkError, match="older copy"):
        write.write(rows("a"), 0, epoch)


@pytest.mark.slow
def test_a_new_query_under_the_transactional_id_of_an_earlier_one(broker: odradek.testing.Broker) -> None:
    settings = BrokerSettings.parse({"bootstrap.servers": broker.bootstrap_servers})
    write = BrokerWrite(settings, None, Codec.NONE, "job")
    broker.create_topic("u", 1)

    def batch(topic: str, value: str, epoch: Epoch) -> None:
        row = pa.record_batch({"topic": [topic], "value": [value], "partition": pa.array([0], pa.int32())})
        write.commit_epoch([write.write([row], 0, epoch)])

    batch("u", "old", Epoch("another", 100))
    for _ in range(2):
        # The number is kept under another topic than the old query's higher one.
        batch("t", "new", Epoch(QUERY, 0))
    assert committed(broker) == ["new"]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_failures")
def test_a_driver_that_died_between_the_commits_of_tasks(broker: odradek.testing.Broker) -> None:
    epoch = Epoch(QUERY, 0)
    write = write_of(broker)
    told = [write.write(rows(f"{task}"), task, epoch) for task in range(3)]
    with broker.fault("EndTxn", error="NOT_COORDINATOR", when=of_task(2)):
        with pytest.raises(SinkError, match="but for the rows of its tasks 2"):
            write.commit_epoch(told)
        # Spark calls this after a commit that failed.
        write.abort_epoch(told)
    assert committed(broker) == ["0", "1"]
    write.commit_epoch([write.write(rows("other", "tasks"), task, epoch) for task in range(2)])
    assert committed(broker) == ["0", "1", "2"]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_failures")
def test_a_driver_that_died_before_it_committed_holds_nobody_up(broker: odradek.testing.Broker) -> None:
    epoch = Epoch(QUERY, 1)
    write = write_of(broker)
    write.commit_epoch([write.write(rows("before"), 0, Epoch(QUERY, 0))])
    told = [write.write(rows(f"{task}"), task, epoch) for task in range(2)]
    # The number of the batch is sent, and the transaction that holds it is open for minutes.
    with broker.fault("EndTxn", error="NOT_COORDINATOR"), pytest.raises(BrokerUnavailableError):
        write.commit_epoch(told)
    write.commit_epoch([write.write(rows(f"again {task}"), task, epoch) for task in range(2)])
    assert committed(broker) == ["before", "again 0", "again 1"]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_failures")
def test_rows_that_are_lost_because_the_driver_was_away_too_long(broker: odradek.testing.Broker) -> None:
    epoch = Epoch(QUERY, 0)
    write = write_of(broker, **{"transaction.timeout.ms": "60000"})
    told = [write.write(rows(f"{task}"), task, epoch) for task in range(2)]
    with broker.fault("EndTxn", error="NOT_COORDINATOR", when=of_task(1)):
        with pytest.raises(SinkError, match="tasks 1"):
            write.commit_epoch(told)
    broker.clock.advance(120)
    with pytest.raises(SinkError, match=r"but for the rows of its tasks 1.*transaction\.timeout\.ms"):
        write.commit_epoch([write.write(rows("x"), 0, epoch)])
    assert committed(broker) == ["0"]


@pytest.mark.slow
def test_a_driver_that_was_paused_commits_nothing_more(broker: odradek.testing.Broker) -> None:
    epoch = Epoch(QUERY, 0)
    write = write_of(broker)
    paused = [write.write(rows(f"{task}"), task, epoch) for task in range(2)]
    new = [write.write(rows("all"), 0, epoch)]
    with pytest.raises(SinkError, match="another driver"):
        write.commit_epoch(paused)
    write.abort_epoch(paused)
    write.commit_epoch(new)
    write.commit_epoch(paused)
    write.abort_epoch(paused)
    assert committed(broker) == ["all"]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_failures")
def test_the_transactions_of_many_tasks_are_found_again(
    broker: odradek.testing.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs, "_TASKS_A_GROUP", 2)
    epoch = Epoch(QUERY, 3)
    write = write_of(broker)
    told = [write.write(rows(f"{task}"), task, epoch) for task in range(6)]
    is_first = of_task(0)
    others = broker.fault("EndTxn", error="INVALID_TXN_STATE", when=lambda request: not is_first(request))
    with others, pytest.raises(SinkError):
        write.commit_epoch(told)
    assert committed(broker) == ["0"]
    write.commit_epoch([write.write(rows(), 0, epoch)])
    assert sorted(map(int, committed(broker))) == list(range(6))


@pytest.mark.slow
@pytest.mark.usefixtures("quick_failures")
def test_a_group_that_has_lost_its_part_of_the_transactions(
    broker: odradek.testing.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs, "_TASKS_A_GROUP", 2)
    write = write_of(broker)

    def interrupted(epoch: Epoch) -> None:
        told = [write.write(rows(f"{epoch.batch_id}{task}"), task, epoch) for task in range(6)]
        is_first = of_task(0)
        others = broker.fault("EndTxn", error="INVALID_TXN_STATE", when=lambda request: not is_first(request))
        with others, pytest.raises(SinkError):
            write.commit_epoch(told)

    epoch = Epoch(QUERY, 3)
    interrupted(epoch)
    broker.delete_group(f"{epoch.group}.1")
    with pytest.raises(SinkError, match=r"\.1 has lost which of its transactions were still to be committed"):
        write.commit_epoch([write.write(rows(), 0, epoch)])
    # It is of no use to later batches.
    later = Epoch(QUERY, 4)
    write.commit_epoch([write.write(rows(f"4{task}"), task, later) for task in range(6)])
    assert sorted(committed(broker)) == ["30", *(f"4{task}" for task in range(6))]


@pytest.mark.slow
def test_errors_name_topic_partition_and_reason(
    broker: odradek.testing.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MISSING_S", 0)
    broker.create_topic("small", 1, {"max.message.bytes": "1000"})
    settings = BrokerSettings.parse({"bootstrap.servers": broker.bootstrap_servers})
    by_column = BrokerWrite(settings, None, Codec.NONE)
    long = pa.record_batch({"topic": ["small"], "value": ["x" * 5000]})
    with pytest.raises(SinkError, match=r"small-0 .*max\.message\.bytes"):
        by_column.write([long], 0)
    with pytest.raises(SinkError, match="null topic present in the data"):
        by_column.write([pa.record_batch({"topic": pa.array([None], pa.string()), "value": ["x"]})], 0)
    with pytest.raises(SinkError, match=r"5 is not in the range \[0...2\) of topic t"):
        by_column.write([pa.record_batch({"topic": ["t"], "value": ["x"], "partition": pa.array([5], pa.int32())})], 0)
    with pytest.raises(SinkError, match="there is no topic nowhere"):
        BrokerWrite(settings, "nowhere", Codec.NONE).check()


def test_a_transaction_that_may_be_open_too_long_is_told_by_its_setting(broker: odradek.testing.Broker) -> None:
    too_long = write_of(broker, **{"transaction.timeout.ms": "900001"})
    with pytest.raises(
        OptionError, match=r"transaction\.timeout\.ms = 900001: .* transaction\.max\.timeout\.ms allows"
    ):
        too_long.write(rows("a"), 0, Epoch(QUERY, 0))


@pytest.mark.slow
def test_a_server_that_is_away() -> None:
    settings = BrokerSettings.parse({"bootstrap.servers": "127.0.0.1:9", "default.api.timeout.ms": "300"})
    for topic in ("t", None):
        with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:9"):
            BrokerWrite(settings, topic, Codec.NONE).check()


@pytest.mark.slow
def test_messages_are_small(broker: odradek.testing.Broker) -> None:
    told = write_of(broker).write(rows("x" * 10_000), 0, Epoch(QUERY, 0))
    assert isinstance(told, SentRows)
    assert len(repr(dataclasses.asdict(told))) < 500
