"""Tests as users of the pytest plugin write them, with real clients: `interop/test_broker_plugin.py` runs them."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from kafka import KafkaConsumer, KafkaProducer

from odradek.testing import Broker

PATIENCE_S = 300.0
VALUES = [b"a", b"b", b"c"]


@pytest.fixture(scope="session")
def producer(kafka: Broker) -> Producer:
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0})


@pytest.fixture
def consumer_of(kafka: Broker) -> Iterator[Callable[..., Consumer]]:
    consumers: list[Consumer] = []

    def make(topic: str, group: str, **config: Any) -> Consumer:
        settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "reconnect.backoff.ms": 10}
        common = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group}
        consumers.append(Consumer({**common, **settings, **config}))
        consumers[-1].subscribe([topic])
        return consumers[-1]

    yield make
    for consumer in consumers:
        consumer.close()


def produce(producer: Producer, topic: str) -> None:
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_S) == 0


def consume(consumer: Consumer, count: int = len(VALUES)) -> list[bytes]:
    messages: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(messages) < count:
        assert time.monotonic() < deadline
        messages += consumer.consume(count - len(messages), 1)
    assert all(message.error() is None for message in messages)
    return [message.value() for message in messages]


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline


@pytest.mark.parametrize("number", range(8))
def test_round_trip(
    kafka: Broker, kafka_topic: str, producer: Producer, consumer_of: Callable[..., Consumer], number: int
) -> None:
    produce(producer, kafka_topic)
    consumer = consumer_of(kafka_topic, kafka_topic)
    assert consume(consumer) == VALUES
    consumer.commit(asynchronous=False)
    assert consumer.committed([TopicPartition(kafka_topic, 0)])[0].offset == len(VALUES)
    assert [record.value for record in kafka.logs[kafka_topic, 0].read()] == VALUES


@pytest.mark.parametrize("number", range(6))
@pytest.mark.kafka_topic(partitions=2)
def test_group(
    kafka_topic: str, kafka_group: str, producer: Producer, consumer_of: Callable[..., Consumer], number: int
) -> None:
    produce(producer, kafka_topic)
    consumer = consumer_of(kafka_topic, kafka_group, **{"auto.offset.reset": "latest"})
    assert sorted(consume(consumer)) == VALUES
    consumer.commit(asynchronous=False)
    partitions = [TopicPartition(kafka_topic, partition) for partition in range(2)]
    assert sum(one.offset for one in consumer.committed(partitions)) == len(VALUES)


@pytest.mark.parametrize("number", range(6))
def test_aiokafka(kafka: Broker, kafka_topic: str, number: int) -> None:
    async def run() -> None:
        servers = kafka.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            for value in VALUES:
                await producer.send_and_wait(kafka_topic, value)
        consumer = AIOKafkaConsumer(
            kafka_topic,
            bootstrap_servers=servers,
            group_id=kafka_topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        async with consumer:
            assert [(await consumer.getone()).value for _ in VALUES] == VALUES
            await consumer.commit()

    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


@pytest.mark.parametrize("number", range(6))
def test_kafka_python(kafka: Broker, kafka_topic: str, number: int) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    for value in VALUES:
        producer.send(kafka_topic, value)
    producer.flush(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, group_id=kafka_topic, auto_offset_reset="earliest"
    )
    # Else it may join before it knows the topic, and get no partitions; see docs/broker.md.
    assert consumer.partitions_for_topic(kafka_topic) == {0}
    consumer.subscribe([kafka_topic])
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < len(VALUES):
        assert time.monotonic() < deadline
        found += [record.value for records in consumer.poll(1000).values() for record in records]
    assert found == VALUES
    consumer.close()
    # It leaves sockets to the garbage collector.
    gc.collect()


@pytest.mark.parametrize("number", range(4))
@pytest.mark.kafka_topic(partitions=2)
def test_rebalance(
    kafka: Broker, kafka_topic: str, producer: Producer, consumer_of: Callable[..., Consumer], number: int
) -> None:
    one, other = (
        consumer_of(kafka_topic, kafka_topic, **{"heartbeat.interval.ms": 100, "client.id": name}) for name in "ab"
    )

    def have_one_each() -> bool:
        one.poll(0.05)
        other.poll(0.05)
        return len(one.assignment()) == len(other.assignment()) == 1

    wait_until(have_one_each)
    one.close()
    wait_until(lambda: other.poll(0.05) or len(other.assignment()) == 2)


@pytest.mark.parametrize("is_committed", [False, True] * 2)
def test_transaction(
    kafka: Broker, kafka_topic: str, producer: Producer, consumer_of: Callable[..., Consumer], is_committed: bool
) -> None:
    mover = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": kafka_topic})
    mover.init_transactions(PATIENCE_S)
    mover.begin_transaction()
    mover.produce(kafka_topic, b"in it")
    if is_committed:
        mover.commit_transaction(PATIENCE_S)
    else:
        mover.abort_transaction(PATIENCE_S)
    produce(producer, kafka_topic)
    expected = [b"in it", *VALUES] if is_committed else VALUES
    consumer = consumer_of(kafka_topic, kafka_topic, **{"isolation.level": "read_committed"})
    assert consume(consumer, len(expected)) == expected


@pytest.mark.parametrize("wrong", [{"error": "NOT_LEADER_OR_FOLLOWER"}, {"disconnect": True}, {"disconnect": "answer"}])
def test_faults(kafka: Broker, kafka_topic: str, wrong: dict[str, Any]) -> None:
    config = {"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, "retry.backoff.ms": 10}
    producer = Producer({**config, "reconnect.backoff.ms": 10})
    with kafka.fault("Produce", times=1, **wrong) as fault:
        produce(producer, kafka_topic)
        fault.wait(timeout_s=PATIENCE_S)
    assert [record.value for record in kafka.logs[kafka_topic, 0].read()] == VALUES


@pytest.mark.parametrize("number", range(3))
def test_no_fault_is_left(kafka: Broker, kafka_topic: str, producer: Producer, number: int) -> None:
    kafka.fault("Fetch", error="UNKNOWN_SERVER_ERROR")
    kafka.fault("Produce", error="UNKNOWN_SERVER_ERROR", when=lambda request: request.client_id == "nobody")
    produce(producer, kafka_topic)


@pytest.mark.parametrize("number", range(3))
def test_session_times_out(kafka: Broker, kafka_topic: str, consumer_of: Callable[..., Consumer], number: int) -> None:
    first = consumer_of(kafka_topic, kafka_topic, **{"heartbeat.interval.ms": 30_000})
    wait_until(lambda: first.poll(0.05) or first.assignment())
    kafka.clock.advance(60)
    second = consumer_of(kafka_topic, kafka_topic)
    wait_until(lambda: second.poll(0.05) or second.assignment())


@pytest.mark.parametrize("number", range(3))
@pytest.mark.kafka_topic(config={"retention.ms": 60_000, "segment.ms": 60_000})
def test_retention(kafka: Broker, kafka_topic: str, number: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(kafka_topic, b"old", timestamp=kafka.clock.now_ms())
    assert producer.flush(PATIENCE_S) == 0
    kafka.clock.advance(600)
    assert kafka.logs[kafka_topic, 0].log_start_offset == 1


@pytest.mark.parametrize("number", range(3))
def test_admin(kafka: Broker, kafka_topic: str, number: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(kafka_topic, 3)])[kafka_topic].result(PATIENCE_S)
    wait_until(lambda: len(admin.list_topics(kafka_topic, PATIENCE_S).topics[kafka_topic].partitions) == 3)
    admin.delete_topics([kafka_topic])[kafka_topic].result(PATIENCE_S)
    assert kafka_topic not in kafka.logs.metadata_image.topics
