"""The consumer of a folder and of a broker: the same, each with its group's place in a store."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.errors import (
    CommitConflictError,
    LogError,
    NoOffsetForPartitionError,
    OptionError,
    UnknownTopicOrPartitionError,
)
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.names import TopicPartition
from odradek.testing import Broker

# kafka-python leaves sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST_TIMESTAMP = 1_700_000_000_000


class Place:
    """A log directory that this program has open, or a broker of its own serves; `t` has two partitions."""

    def __init__(
        self, address: str, group: str, logs: WritableLogDirectory, topics: WritableLogDirectory | Broker
    ) -> None:
        self.topics = topics
        self.address = address
        self.group = group
        self.store = group if "://" in group else f"{address}/{group}"
        self.logs = logs
        logs.create_topic("t", partitions=2)

    def append(self, *values: int, partition: int = 0) -> None:
        records = [Record(b"k", b"%d" % value, timestamp=FIRST_TIMESTAMP + value) for value in values]
        self.logs["t", partition].append(records)

    def consume(self, topics: Any = "t", **options: Any) -> odradek.Consumer:
        options = {"group": self.group, "auto_offset_reset": "earliest", "follow": False, **options}
        return odradek.consume(self.address, topics, **options)

    def positions(self) -> odradek.Positions:
        with odradek.open_store(self.store) as store:
            return store.load()


@pytest.fixture(params=["folder", "broker"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "broker":
        with Broker() as broker:
            yield Place(f"kafka://{broker.bootstrap_servers}", "g", broker.logs, broker)
    else:
        with odradek.open(tmp_path / "data") as logs:
            yield Place(str(tmp_path / "data"), f"file://{tmp_path}/offsets.json", logs, logs)


def values(records: Any) -> list[int]:
    return [int(consumed.record.value) for consumed in records]


@pytest.mark.slow
def test_the_reset_policies(place: Place) -> None:
    for number in range(6):
        place.append(number)

    def position(reset: Any) -> int:
        with place.consume(group=None, auto_offset_reset=reset) as consumer:
            return consumer.position(T0)

    assert (position("earliest"), position("latest")) == (0, 6)
    assert (position(0), position(FIRST_TIMESTAMP + 3), position(10**14)) == (0, 3, 6)
    assert position(datetime.fromtimestamp((FIRST_TIMESTAMP + 3) / 1000, UTC)) == 3
    with pytest.raises(NoOffsetForPartitionError, match="no position is stored"):
        position("none")
    with pytest.raises(OptionError, match="sometimes"):
        position("sometimes")


@pytest.mark.slow
def test_the_group_keeps_its_place(place: Place) -> None:
    place.append(*range(10))
    with place.consume(auto_commit=False) as consumer:
        assert values(consumer.poll(max_records=4)) == [0, 1, 2, 3]
        consumer.commit()
        assert consumer.committed[T0].offset == 4
        assert values(consumer.poll(max_records=4)) == [4, 5, 6, 7]  # neither committed nor done
    stored = place.positions()[T0]
    assert (stored.offset, stored.leader_epoch) == (4, 0)
    with place.consume(auto_offset_reset="none") as consumer:
        assert values(consumer) == [4, 5, 6, 7, 8, 9]
        assert consumer.position(T0) == 10
    place.append(10)
    with suppress(ZeroDivisionError), place.consume() as consumer:
        for _ in consumer:
            raise ZeroDivisionError
    with place.consume(auto_offset_reset="none") as consumer:  # the body had not ended
        assert values(consumer) == [10]
    with place.consume(group=None) as consumer, pytest.raises(LogError, match="no group"):
        consumer.commit()


@pytest.mark.slow
def test_what_comes_while_it_follows(place: Place) -> None:
    place.append(0)
    found = []
    topics = re.compile("t|late")
    with place.consume(topics, follow=True, metadata_max_age_ms=0) as consumer:
        for consumed in consumer:
            found.append((consumed.topic, consumed.partition, int(consumed.record.value or b"")))
            if len(found) == 1:
                threading.Timer(0.05, place.append, (1, 2), {"partition": 1}).start()
            if len(found) == 3:
                place.logs.create_topic("late")
                place.logs.create_topic("other")
                for topic in ("other", "late"):
                    place.logs[topic, 0].append(value=b"3")
            if len(found) == 4:
                break
        started = time.monotonic()
        assert consumer.poll(timeout_ms=50) == []
        assert time.monotonic() - started > 0.04
    assert found == [("t", 0, 0), ("t", 1, 1), ("t", 1, 2), ("late", 0, 3)]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("reset", "first"), [("earliest", [2, 3, 4]), ("latest", []), (FIRST_TIMESTAMP + 3, [3, 4]), ("none", None)]
)
def test_a_place_that_was_deleted(place: Place, reset: Any, first: list[int] | None) -> None:
    place.append(*range(5))
    with odradek.open_store(place.store) as store:
        store.commit({T0: odradek.Position(1), T1: odradek.Position(0)}, expected=store.load())
    place.logs["t", 0].delete_records(2)
    if first is None:
        with pytest.raises(NoOffsetForPartitionError), place.consume(auto_offset_reset=reset) as consumer:
            list(consumer)
        return
    with place.consume(auto_offset_reset=reset) as consumer:
        assert values(consumer) == first
        place.append(5)
        assert values(consumer) == [5]


@pytest.mark.slow
def test_a_topic_that_was_made_again(place: Place, tmp_path: Path) -> None:
    place.append(*range(5))
    # A broker's own group forgets its offsets with the topic.
    group = f"file://{tmp_path}/place.json"
    with place.consume(group=group) as running:
        assert len(running.poll()) == 5
        running.commit()
        place.topics.delete_topic("t")
        place.topics.create_topic("t")
        place.append(*range(10, 20))
        with pytest.raises(UnknownTopicOrPartitionError):
            running.poll()
    with pytest.raises(NoOffsetForPartitionError, match="earlier topic"):
        place.consume(group=group, auto_offset_reset="none")
    with place.consume(group=group) as consumer:
        assert values(consumer) == list(range(10, 20))


@pytest.mark.slow
def test_the_end_of_an_epoch_before_the_place(place: Place) -> None:
    """The log was cut and has grown past the place: its leader epoch tells."""
    place.append(*range(5))
    with odradek.open_store(place.store) as store:
        store.commit({T0: odradek.Position(3, leader_epoch=0)}, expected=store.load())
    batch = build_batch([Record(b"k", b"5", timestamp=1)], base_offset=5, partition_leader_epoch=4)
    place.logs["t", 0].append_batches(batch, origin=odradek.AppendOrigin.REPLICATION)
    with place.consume() as consumer:
        assert values(consumer) == [3, 4, 5]
    with odradek.open_store(place.store) as store:
        known = store.load()
        assert known[T0].leader_epoch == 4
        store.commit({T0: odradek.Position(6, leader_epoch=0)}, expected=known)
    with pytest.raises(NoOffsetForPartitionError, match="truncated"):
        place.consume(auto_offset_reset="none")
    for policy in ("earliest", "latest", 0):
        # As Kafka's consumer: from the first offset that is known to have another record.
        with place.consume(auto_offset_reset=policy, auto_commit=False) as consumer:
            assert values(consumer) == [5]


@pytest.mark.slow
def test_who_starts_last_owns_the_group(place: Place) -> None:
    place.append(*range(5))
    first = place.consume(auto_commit_interval_ms=0)
    assert values(first.poll(max_records=1)) == [0]
    first.commit()
    with place.consume() as second:
        assert values(second.poll(max_records=1)) == [1]
        first.poll(max_records=1)
        with pytest.raises(CommitConflictError):
            first.commit()
        with pytest.raises(CommitConflictError):
            first.close()
    first.close()
    assert place.positions().offset(T0) == 2


@pytest.mark.slow
def test_seek_pause_and_position(place: Place) -> None:
    place.append(*range(5))
    place.append(10, 11, partition=1)
    with place.consume() as consumer:
        assert consumer.assignment == [T0, T1]
        consumer.pause(T1)
        assert values(consumer) == [0, 1, 2, 3, 4]
        assert (consumer.position(T0), consumer.position(T1)) == (5, 0)
        consumer.resume()
        assert values(consumer) == [10, 11]
        place.append(5)
        consumer.seek(T0, 5)  # the end has moved since the last look
        assert values(consumer) == [5]
        place.append(6)
        consumer.seek_to_end(T0)
        assert consumer.position(T0) == 7
        assert values(consumer) == []
        consumer.seek_to_beginning(T1)
        assert values(consumer) == [10, 11]
        consumer.seek(T0, 1)
        next(consumer)
        consumer.seek_to_end()
        assert values(consumer) == []
        consumer.seek(T0, 100)
        assert values(consumer) == [*range(7)], "out of range is for the reset policy"
        with pytest.raises(LogError):
            consumer.seek(T0, -1)
        with pytest.raises(UnknownTopicOrPartitionError):
            consumer.seek(TopicPartition("t", 9), 0)
