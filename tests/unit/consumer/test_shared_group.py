"""Consumers that share a group (KIP-848) of a broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import odradek
from odradek.errors import BrokerUnavailableError, CommitConflictError, LogError, OptionError
from odradek.kafka import consumer_member
from odradek.offsets.store import open_store
from odradek.storage.names import TopicPartition
from odradek.testing import Broker

QUICK = {"group.consumer.min.heartbeat.interval.ms": 20, "group.consumer.heartbeat.interval.ms": 20}
PARTITIONS = 4


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config={**QUICK, "group.consumer.assignment.interval.ms": 0}) as broker:
        broker.create_topic("t", partitions=PARTITIONS)
        yield broker


def append(broker: Broker, count: int) -> None:
    for partition in range(PARTITIONS):
        for number in range(count):
            broker.logs["t", partition].append(value=str(number).encode())


def consume(broker: Broker, topics: Any = "t", **options: Any) -> odradek.Consumer:
    options = {"group": "g", "protocol": "consumer", "auto_offset_reset": "earliest", **options}
    return odradek.consume(f"kafka://{broker.bootstrap_servers}", topics, **options)


class Reading:
    """Members that are polled in turn, and what they have read."""

    def __init__(self, *members: odradek.Consumer) -> None:
        self.members = list(members)
        self.read: list[tuple[int, int]] = []

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, what
            for member in self.members:
                self.read += [(one.partition, one.offset or 0) for one in member.poll(10)]

    def shares(self) -> list[int]:
        return sorted(len(member.assignment) for member in self.members)


def committed(broker: Broker) -> dict[int, int]:
    with open_store(f"kafka://{broker.bootstrap_servers}/g") as store:
        return {name.partition: position.offset for name, position in store.load().items()}


@pytest.mark.slow
def test_two_members_share_the_partitions(broker: Broker) -> None:
    append(broker, 50)
    with consume(broker) as first:
        reading = Reading(first)
        assert len(first.assignment) == PARTITIONS
        reading.until(lambda: len(reading.read) == 50 * PARTITIONS, "all records")
        with consume(broker) as second:
            reading.members.append(second)
            reading.until(lambda: reading.shares() == [2, 2], "a share for each")
            assert not set(first.assignment) & set(second.assignment)
            append(broker, 50)
            reading.until(lambda: len(reading.read) == 100 * PARTITIONS, "more records")
            # What the first had read was committed before the second one got it: nothing came twice.
            assert len(set(reading.read)) == 100 * PARTITIONS
            reading.members.remove(second)
        # The second one has left.
        reading.until(lambda: reading.shares() == [PARTITIONS], "all partitions")
    assert committed(broker) == dict.fromkeys(range(PARTITIONS), 100)


@pytest.mark.slow
def test_iteration_follows_the_group(broker: Broker) -> None:
    append(broker, 3)
    with consume(broker, follow=False) as consumer:
        assert len(list(consumer)) == 3 * PARTITIONS
    with consume(broker, follow=False) as consumer:
        assert list(consumer) == []


@pytest.mark.slow
def test_a_member_that_the_coordinator_took_for_gone_joins_again(broker: Broker) -> None:
    append(broker, 5)
    with consume(broker, auto_commit=False) as consumer:
        reading = Reading(consumer)
        reading.until(lambda: len(reading.read) == 5 * PARTITIONS, "all records")
        with broker.fault("ConsumerGroupHeartbeat", error="UNKNOWN_MEMBER_ID", times=1) as fault:
            fault.wait()
            reading.until(lambda: len(reading.read) == 10 * PARTITIONS, "the records again: none was committed")
        consumer.commit()
    assert committed(broker) == dict.fromkeys(range(PARTITIONS), 5)


@pytest.mark.slow
def test_a_member_that_is_gone_commits_nothing(broker: Broker) -> None:
    append(broker, 5)
    with consume(broker, auto_commit=False) as consumer:
        reading = Reading(consumer)
        reading.until(lambda: len(reading.read) == 5 * PARTITIONS, "all records")
        with broker.fault("ConsumerGroupHeartbeat", drop=True):
            broker.clock.advance(46)
            with pytest.raises(CommitConflictError):
                consumer.commit()
    assert committed(broker) == {}


@pytest.mark.slow
def test_what_was_read_in_an_earlier_life_is_not_committed(broker: Broker) -> None:
    append(broker, 5)
    with consume(broker, auto_commit=False) as consumer:
        reading = Reading(consumer)
        reading.until(lambda: len(reading.read) == 5 * PARTITIONS, "all records")
        with broker.fault("ConsumerGroupHeartbeat", error="FENCED_MEMBER_EPOCH", times=1) as fault:
            fault.wait()
        seen = len(broker.requests("ConsumerGroupHeartbeat"))
        # It has joined again, in a new epoch, which the reader has not noticed yet.
        reading.members.clear()
        reading.until(lambda: len(broker.requests("ConsumerGroupHeartbeat")) > seen + 1, "heartbeats")
        with pytest.raises(CommitConflictError):
            consumer.commit()


@pytest.mark.slow
def test_a_commit_in_an_old_epoch_is_tried_again(broker: Broker) -> None:
    append(broker, 5)
    with consume(broker, auto_commit=False) as consumer:
        reading = Reading(consumer)
        reading.until(lambda: len(reading.read) == 5 * PARTITIONS, "all records")
        with broker.fault("OffsetCommit", error="STALE_MEMBER_EPOCH", times=2) as fault:
            consumer.commit()
        assert fault.fired == 2
    assert committed(broker) == dict.fromkeys(range(PARTITIONS), 5)


@pytest.mark.slow
def test_topics_that_come_and_grow(broker: Broker) -> None:
    with consume(broker, "t*", metadata_max_age_ms=0) as consumer:
        reading = Reading(consumer)
        broker.create_topic("t2")
        reading.until(lambda: TopicPartition("t2", 0) in consumer.assignment, "the new topic")
        broker.logs["t2", 0].append(value=b"a")
        reading.until(lambda: (0, 0) in reading.read, "its record")


@pytest.mark.slow
def test_the_broker_looks_for_the_topics_of_a_pattern(broker: Broker) -> None:
    broker.create_topic("events-2")
    with consume(broker, odradek.SubscriptionPattern("events-[0-9]+")) as consumer:
        reading = Reading(consumer)
        reading.until(lambda: consumer.assignment == [TopicPartition("events-2", 0)], "its topic")
        # Not by the consumer, whose own listing is due in five seconds.
        broker.create_topic("events-31")
        broker.create_topic("events-x")
        reading.until(lambda: [name.topic for name in consumer.assignment] == ["events-2", "events-31"], "the new one")
        broker.logs["events-31", 0].append(value=b"a")
        reading.until(lambda: (0, 0) in reading.read, "its record")


def test_a_pattern_that_the_broker_does_not_take(broker: Broker) -> None:
    with pytest.raises(BrokerUnavailableError, match="INVALID_REGULAR_EXPRESSION"):
        consume(broker, odradek.SubscriptionPattern("events-("))


@pytest.mark.slow
def test_a_static_member_comes_back_to_its_partitions(broker: Broker) -> None:
    append(broker, 5)
    with consume(broker, group_instance_id="one") as first, consume(broker, group_instance_id="two") as second:
        reading = Reading(first, second)
        reading.until(lambda: reading.shares() == [2, 2], "a share for each")
        reading.until(lambda: len(set(reading.read)) == 5 * PARTITIONS, "all records")
        had = first.assignment
        first.close()
        seen = len(broker.requests("ConsumerGroupHeartbeat"))
        reading.members = [second]
        reading.until(lambda: len(broker.requests("ConsumerGroupHeartbeat")) > seen + 3, "heartbeats of the other")
        assert len(second.assignment) == 2
        with consume(broker, group_instance_id="one") as again:
            assert again.assignment == had
            assert again.poll(50) == []
            append(broker, 1)
            reading.members, reading.read = [again, second], []
            reading.until(lambda: len(reading.read) == PARTITIONS, "the new records")
            again.commit()
        # Its place is free after its session.
        broker.clock.advance(46)
        reading.members = [second]
        reading.until(lambda: len(second.assignment) == PARTITIONS, "all partitions")


@pytest.mark.slow
def test_two_static_members_of_one_name(broker: Broker) -> None:
    with consume(broker, group_instance_id="one") as first:
        with pytest.raises(BrokerUnavailableError, match="UNRELEASED_INSTANCE_ID"):
            consume(broker, group_instance_id="one")
        assert len(first.assignment) == PARTITIONS


def test_what_only_members_may_say(broker: Broker) -> None:
    pattern = odradek.SubscriptionPattern("t")
    for topics, options in ((pattern, {}), ("t", {"group_instance_id": "one"})):
        with pytest.raises(OptionError, match="is for protocol='consumer'"):
            consume(broker, topics, protocol=None, **options)
    with pytest.raises(OptionError, match="group_instance_id ''"):
        consume(broker, group_instance_id="")
    with pytest.raises(OptionError, match="empty"):
        consume(broker, odradek.SubscriptionPattern(""))
    with pytest.raises(OptionError, match="half a surrogate pair"):
        consume(broker, odradek.SubscriptionPattern("t\ud800"))
    with pytest.raises(TypeError, match="group_instance_id"):
        consume(broker, group_instance_id=1)


def test_what_cannot_be_shared(broker: Broker, tmp_path: Any) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t")
    for path, options in (
        (tmp_path / "data", {"group": "g"}),
        (f"kafka://{broker.bootstrap_servers}", {"group": f"kafka://{broker.bootstrap_servers}/g"}),
        (f"kafka://{broker.bootstrap_servers}", {"group": None, "auto_offset_reset": "earliest"}),
    ):
        with pytest.raises(OptionError, match="protocol='consumer' is for a broker"):
            odradek.consume(path, "t", protocol="consumer", **options)
    with pytest.raises(OptionError, match="protocol must be 'consumer'"):
        consume(broker, protocol="share")
    with pytest.raises(OptionError, match="group is empty"):
        consume(broker, group="")
    with broker.fault("ConsumerGroupHeartbeat", error="GROUP_MAX_SIZE_REACHED"), pytest.raises(BrokerUnavailableError):
        consume(broker)


@pytest.mark.slow
def test_close_ends_an_iteration_that_waits(broker: Broker) -> None:
    consumer, ends = consume(broker), []

    def iterate() -> None:
        with pytest.raises(LogError, match="closed"):
            next(consumer)
        ends.append(True)

    thread = threading.Thread(target=iterate, daemon=True)
    thread.start()
    consumer.close()
    thread.join(20)
    assert ends


@pytest.mark.slow
def test_a_member_does_not_wait_long_to_leave(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_member, "LEAVE_S", 0.1)
    consumer = consume(broker)
    with broker.fault("ConsumerGroupHeartbeat", drop=True):
        # Otherwise this would not end.
        consumer.close()


class _Interrupted(dict[Any, Any]):
    """Readers; an exception comes just after each change."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        raise KeyboardInterrupt

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        raise KeyboardInterrupt


@pytest.mark.slow
def test_an_interrupt_while_partitions_are_taken_on_or_given_up(broker: Broker) -> None:
    append(broker, 5)
    with consume(broker) as consumer:
        reading = Reading(consumer)
        reading.until(lambda: len(reading.read) == 5 * PARTITIONS, "all records")
        interrupts = 0
        consumer._readers = _Interrupted(consumer._readers)
        with broker.fault("ConsumerGroupHeartbeat", error="UNKNOWN_MEMBER_ID", times=1) as fault:
            fault.wait()
            deadline = time.monotonic() + 20
            while interrupts < 2 * PARTITIONS:
                assert time.monotonic() < deadline
                try:
                    consumer.poll()
                except KeyboardInterrupt:
                    interrupts += 1
                    # What is done can be committed, as `close` does it.
                    with suppress(CommitConflictError):
                        consumer.commit()
