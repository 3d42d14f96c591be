"""Backups beside brokers at work, opened by Apache Kafka and by ours: transactions, positions and settings fit."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from odradek.inspection import backup, restore, verify
from peers.fixtures import broker_of
from peers.kafka_tools import KafkaTools

PATIENCE_S = 120
MOVERS = 2
PADDING = b"." * 2000
ABORTED_EACH = 4
TIMED_OUT_EACH_MS = {"kafka": "15000", "odradek": "100"}
"""How often transactions that are open for too long are aborted. Apache Kafka must have started by then: what it aborts
before it leads the partitions again gets no markers ("partitions are likely deleted already")."""
TOPICS = {
    "left": {"segment.bytes": "1048576"},
    "right": {"segment.bytes": "1048576", "retention.bytes": "8388608", "file.delete.delay.ms": "0"},
    "states": {
        "cleanup.policy": "compact",
        "segment.bytes": "1048576",
        "min.cleanable.dirty.ratio": "0.01",
        "file.delete.delay.ms": "0",
    },
    "source": {},
}
DELETED_AFTER_MS = {"kafka": "5000", "odradek": "0"}
"""Apache Kafka flushes a segment after it has rolled the next one, and ends if compaction has deleted it by then."""
KEYS = 50
SKIPPED = "likely deleted already and hence can be skipped"
"""What Apache Kafka says as it skips the markers of a decided transaction, and appends that it is complete.

It has not yet registered then: no partition has a leader in its metadata. The transaction never ends; the same copy,
opened again, is settled."""
MOST_RESTORES = 3


class EndlessTransactionError(AssertionError):
    """A transaction is open for good."""


def topics_of(kind: str) -> dict[str, dict[str, str]]:
    """Returns the topics with their settings, as a kind of broker can have them."""
    delay = "file.delete.delay.ms"
    return {
        topic: {**config, delay: DELETED_AFTER_MS[kind]} if delay in config else config
        for topic, config in TOPICS.items()
    }


class Load:
    """Writes until it is told to stop; an error of a thread is raised at the end."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self._is_over = threading.Event()
        self._errors: list[BaseException] = []
        self.done = 0
        actions: list[Callable[[], None]] = [lambda number=number: self._move(number) for number in range(MOVERS)]  # type: ignore[misc]
        self._threads = [threading.Thread(target=self._guarded, args=(action,)) for action in [*actions, self._states]]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        for error in self._errors:
            raise error

    def wait_for(self, more: int) -> None:
        wanted, deadline = self.done + more, time.monotonic() + PATIENCE_S
        while self.done < wanted:
            assert time.monotonic() < deadline
            assert not self._errors
            time.sleep(0.01)

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except BaseException as error:
            self._errors.append(error)

    def _move(self, number: int) -> None:
        """Each transaction writes its number into two topics, and commits it as a group's position."""
        consumer = Consumer({**self._servers, "group.id": f"movers-{number}"})
        producer = Producer(
            {**self._servers, "transactional.id": f"mover-{number}", "transaction.timeout.ms": 5000, "linger.ms": 0}
        )
        group = consumer.consumer_group_metadata()
        producer.init_transactions(PATIENCE_S)
        for count in itertools.count(1):
            if self._is_over.is_set():
                break
            producer.begin_transaction()
            for topic in ("left", "right"):
                producer.produce(topic, f"{number}-{count}-".encode() + PADDING, partition=0)
            producer.send_offsets_to_transaction([TopicPartition("source", number, count)], group, PATIENCE_S)
            if count % ABORTED_EACH:
                producer.commit_transaction(PATIENCE_S)
            else:
                producer.abort_transaction(PATIENCE_S)
            self.done += 1
        consumer.close()

    def _states(self) -> None:
        """Writes some keys in turn, and commits as a position how far it has come."""
        producer = Producer({**self._servers, "linger.ms": 1})
        consumer = Consumer({**self._servers, "group.id": "watchers"})
        for count in itertools.count():
            if self._is_over.is_set():
                break
            producer.produce("states", b"%d-" % count + PADDING, key=b"%d" % (count % KEYS), partition=0)
            if count % KEYS == KEYS - 1:
                assert producer.flush(PATIENCE_S) == 0
                consumer.commit(offsets=[TopicPartition("states", 0, count + 1)], asynchronous=False)
        consumer.close()


def _read(servers: dict[str, str], topic: str, isolation: str) -> tuple[dict[int, Any], int]:
    """Returns the records by offset, and where the reader came to the end."""
    consumer = Consumer(
        {
            **servers,
            "group.id": "nobody",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: dict[int, Any] = {}
    deadline = time.monotonic() + PATIENCE_S
    try:
        while True:
            assert time.monotonic() < deadline
            for message in consumer.consume(1000, 0.1):
                offset = message.offset()
                assert offset is not None
                if message.error() is not None:
                    return found, offset
                found[offset] = message
    finally:
        consumer.close()


def _positions(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    """Returns a group's positions, once no open transaction holds one: its markers come to each partition by itself."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)], require_stable=True)
        found = asked[group].result(PATIENCE_S).topic_partitions
        if not any(place.error for place in found):
            return {(place.topic, place.partition): place.offset for place in found}
        if time.monotonic() >= deadline:
            raise EndlessTransactionError(f"{group} has a transaction that never ends: {found}")
        time.sleep(0.2)


def _settled(servers: dict[str, str], topic: str) -> tuple[set[tuple[int, int]], int]:
    """Returns the committed transactions in a topic, once none is open any more, and where the topic begins."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found, end_offset = _read(servers, topic, "read_committed")
        everything, log_end_offset = _read(servers, topic, "read_uncommitted")
        if end_offset == log_end_offset:
            numbers = [message.value().split(b"-")[:2] for message in found.values()]
            assert len(numbers) == len({tuple(number) for number in numbers})
            return {(int(number), int(count)) for number, count in numbers}, min(everything, default=0)
        if time.monotonic() >= deadline:
            raise EndlessTransactionError(f"{topic} has a transaction that never ends")
        time.sleep(0.2)


def check_restored(bootstrap_servers: str, topics: dict[str, dict[str, str]]) -> None:
    servers = {"bootstrap.servers": bootstrap_servers}
    admin = AdminClient({**servers})
    left, _ = _settled(servers, "left")
    right, _ = _settled(servers, "right")
    assert right
    for number in range(MOVERS):
        position = _positions(admin, f"movers-{number}").get(("source", number), 0)
        expected = {count for count in range(1, position + 1) if count % ABORTED_EACH}
        assert {count for mover, count in left if mover == number} == expected
        # Retention deleted the head of this one.
        counts = {count for mover, count in right if mover == number}
        assert counts == {count for count in expected if count >= min(counts, default=0)}
    states, end_offset = _read(servers, "states", "read_uncommitted")
    assert _positions(admin, "watchers")["states", 0] <= end_offset
    latest = {message.key(): int(message.value().split(b"-")[0]) for message in states.values()}
    last = max(latest.values())
    assert sorted(latest.values()) == list(range(last - KEYS + 1, last + 1))
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
    for resource, described in admin.describe_configs(resources).items():
        config = described.result(PATIENCE_S)
        assert {name: config[name].value for name in topics[resource.name]} == topics[resource.name]


def check_copy(copy: Path, kind: str, tools: KafkaTools, topics: dict[str, dict[str, str]]) -> None:
    """Restore a copy and open it with a broker; once more, if that was Apache Kafka and skipped markers."""
    config = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": TIMED_OUT_EACH_MS[kind]}
    for number in range(1, MOST_RESTORES + 1):
        folder = copy.with_name(f"restored-{copy.name}-{kind}-{number}")
        restore(copy, folder)
        assert list(verify(folder)) == []
        broker = broker_of(kind, tools, folder, config)
        try:
            with broker:
                check_restored(broker.bootstrap_servers, topics)
            break
        except EndlessTransactionError:
            has_skipped = kind == "kafka" and SKIPPED in broker.output.read_text(encoding="utf-8", errors="replace")
            if number == MOST_RESTORES or not has_skipped:
                raise


@pytest.mark.laboratory
@pytest.mark.parametrize("backups", [2, 12])
def test_a_backup_beside_a_broker_opens_in_brokers(
    any_broker: Any, kafka_tools: KafkaTools, tmp_path: Path, backups: int
) -> None:
    source = tmp_path / "source"
    broker = any_broker(source, {"log.retention.check.interval.ms": "500", "log.cleaner.backoff.ms": "500"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topics = topics_of(broker.name)
    new = [NewTopic(topic, MOVERS if topic == "source" else 1, config=config) for topic, config in topics.items()]
    for made in admin.create_topics(new).values():
        made.result(PATIENCE_S)
    with Load(broker.bootstrap_servers) as load:
        for number in range(backups):
            load.wait_for(more=300)
            if number % 2:
                # An earlier backup becomes a later one.
                backup(source, tmp_path / "copy-0")
            backup(source, tmp_path / f"copy-{number}", links=number % 3 != 2)
    broker.stop()
    for number in range(backups):
        copy = tmp_path / f"copy-{number}"
        for kind in ("kafka", "odradek") if number + 1 == backups else ("kafka",):
            check_copy(copy, kind, kafka_tools, topics)
