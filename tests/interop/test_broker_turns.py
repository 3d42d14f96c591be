"""One folder, served in turn by Apache Kafka and by our broker, stopped or killed: what clients began goes on.

Each round a producer writes, a group consumes half of what there is and commits it, a transaction moves positions of
another group, and one transaction is left open; the next broker knows all of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.testing.wire import WireClient
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.librdkafka import read_to_end
from peers.odradek_broker import OdradekBroker
from peers.process import PATIENCE

ROUNDS = 5
PARTITIONS = 3
RECORDS = 120
TOPIC = "events"
QUIET = {"log_level": 0}
TIMEOUT_S = 60 * PATIENCE
ONGOING = "Ongoing"
LIST_TRANSACTIONS = 66

Broker = KafkaBroker | OdradekBroker


class Clients:
    """The clients, and what they know: the values that were acknowledged, and the positions that were committed."""

    def __init__(self) -> None:
        self.committed: list[str] = []
        self.aborted: list[str] = []
        self.left_open: list[str] = []
        self.positions: dict[str, dict[int, int]] = {}
        self.consumed: list[str] = []

    def produce(self, broker: Broker, number: int) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, **QUIET})
        self.committed += send(producer, f"plain-{number}", RECORDS)

    def consume_half(self, broker: Broker) -> None:
        """Let a group go on where it was, and commit half of what is left."""
        group = "readers"
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **QUIET,
            }
        )
        consumer.subscribe([TOPIC])
        try:
            for _ in range(RECORDS // 2):
                message = consumer.poll(TIMEOUT_S)
                assert message is not None
                assert message.error() is None, message.error()
                self.consumed.append((message.value() or b"").decode())
                if len(self.consumed) % 20 == 0:
                    consumer.commit(message=message, asynchronous=False)
            consumer.commit(offsets=consumer.position(consumer.assignment()), asynchronous=False)
            assignment = consumer.assignment()
            self.positions[group] = {
                one.partition: one.offset for one in consumer.position(assignment) if one.offset >= 0
            }
        finally:
            consumer.close()

    def transact(self, broker: Broker, number: int) -> None:
        """Commit a transaction that moves positions too, abort another, and leave one open."""
        settings = {"bootstrap.servers": broker.bootstrap_servers, **QUIET}
        producer = Producer({**settings, "transactional.id": "mover"})
        producer.init_transactions(TIMEOUT_S)
        consumer = Consumer({**settings, "group.id": "movers"})
        try:
            producer.begin_transaction()
            self.committed += send(producer, f"moved-{number}", 10)
            place = TopicPartition(TOPIC, 0, number + 1)
            producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), TIMEOUT_S)
            producer.commit_transaction(TIMEOUT_S)
            self.positions["movers"] = {0: number + 1}
            producer.begin_transaction()
            self.aborted += send(producer, f"aborted-{number}", 10)
            place = TopicPartition(TOPIC, 0, 999)
            producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
        finally:
            consumer.close()
        waiting = Producer({**settings, "transactional.id": "waiting", "transaction.timeout.ms": 900_000})
        waiting.init_transactions(TIMEOUT_S)
        waiting.begin_transaction()
        self.left_open += send(waiting, f"open-{number}", 5)
        # The producer is dropped as it is: its process was killed, say.
        keep.append(waiting)


keep: list[Any] = []


def send(producer: Producer, prefix: str, count: int) -> list[str]:
    failed: list[Any] = []
    values = [f"{prefix}-{number}" for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(
            TOPIC,
            value=value.encode(),
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed, failed
    return values


def read_all(broker: Broker, isolation: str) -> list[str]:
    partitions = [(TOPIC, number) for number in range(PARTITIONS)]
    found = read_to_end(broker.bootstrap_servers, partitions, isolation)
    return [(message.value() or b"").decode() for message in found]


def open_transactions(broker: Broker) -> list[str]:
    with WireClient("127.0.0.1", broker.port) as client:
        answer = client.call(LIST_TRANSACTIONS, 0, {"state_filters": [ONGOING], "producer_id_filters": []})
        return [one.transactional_id for one in answer.transaction_states]


def check(broker: Broker, clients: Clients) -> None:
    """Ask the broker for what was acknowledged."""
    everything = clients.committed + clients.aborted + clients.left_open
    assert sorted(read_all(broker, "read_uncommitted")) == sorted(everything)
    assert open_transactions(broker) == (["waiting"] if clients.left_open else [])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    for group, positions in clients.positions.items():
        answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(TIMEOUT_S)
        found = {one.partition: one.offset for one in answer.topic_partitions or [] if one.offset >= 0}
        assert found == {**found, **positions}, group


@pytest.mark.laboratory
@pytest.mark.parametrize("first", ["kafka", "odradek"])
def test_what_clients_began_goes_on_at_the_next_broker(kafka_tools: KafkaTools, tmp_path: Path, first: str) -> None:
    folder, clients, seed = tmp_path / "log-dir", Clients(), random.Random(first)
    frequent = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
    makers: dict[str, Callable[[], Broker]] = {
        "kafka": lambda: KafkaBroker(kafka_tools, folder, frequent),
        "odradek": lambda: OdradekBroker(folder, frequent),
    }
    turns = ["kafka", "odradek"] if first == "kafka" else ["odradek", "kafka"]
    for number in range(ROUNDS):
        broker = makers[turns[number % 2]]()
        broker.start()
        try:
            if number == 0:
                admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
                admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(TIMEOUT_S)
            else:
                check(broker, clients)
            clients.produce(broker, number)
            # The transaction that was left open ends as its producer comes again.
            clients.aborted, clients.left_open = clients.aborted + clients.left_open, []
            clients.transact(broker, number)
            clients.consume_half(broker)
            check(broker, clients)
        finally:
            broker.kill() if seed.random() < 0.5 else broker.stop()
    assert len(set(clients.consumed)) == len(clients.consumed)
    assert set(clients.consumed) <= set(clients.committed)
