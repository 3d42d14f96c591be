"""Share consumers of others on Apache Kafka and on our broker: Kafka's tools, librdkafka and franz-go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import AcknowledgeType

from odradek.testing.conformance.administration import set_group
from odradek.testing.conformance.target import Target, Topic, batch
from peers.clients import go_client
from peers.fixtures import BrokerFactory
from peers.kafka_tools import KafkaTools

pytestmark = pytest.mark.compared

CONFIG = {"share.coordinator.state.topic.num.partitions": "1", "group.share.assignment.interval.ms": "0"}
PARTITIONS, BATCHES, RECORDS, VALUE = 2, 20, 10, b"0123456789" * 10
COUNT = PARTITIONS * BATCHES * RECORDS
TIMEOUT_S = 60
Delivery = tuple[int, int, int]


@pytest.fixture
def target(any_broker: BrokerFactory) -> Iterator[Target]:
    """A broker: Apache Kafka's, then ours."""
    with Target("127.0.0.1", any_broker(config=CONFIG).port) as target:
        yield target


def _filled(target: Target) -> tuple[Topic, str]:
    """Return a topic with records, and a group that reads it from its beginning."""
    topic, group = target.topic(PARTITIONS), target.name("share")
    for partition in range(PARTITIONS):
        for _ in range(BATCHES):
            target.produced(topic, batch(*[VALUE] * RECORDS), partition=partition)
    set_group(target, group, share_auto_offset_reset="earliest")
    return topic, group


def _is_done(target: Target, group: str) -> bool | None:
    """Tell whether the group has done with all records; where it starts may be written with a later acknowledgement."""
    (found,) = target.call("DescribeShareGroupOffsets", 1, groups=[{"group_id": group, "topics": None}]).groups
    lags = {one.partition_index: one.lag for topic in found.topics for one in topic.partitions}
    return lags == dict.fromkeys(range(PARTITIONS), 0) or None


@pytest.mark.parametrize("threads", [1, 3])
def test_kafkas_performance_tool_consumes_all(target: Target, kafka_tools: KafkaTools, threads: int) -> None:
    topic, group = _filled(target)
    arguments = {
        "--bootstrap-server": f"127.0.0.1:{target.port}",
        "--topic": topic.name,
        "--group": group,
        "--num-records": str(COUNT),
        "--threads": str(threads),
        "--timeout": str(TIMEOUT_S * 1000),
    }
    words = [word for pair in arguments.items() for word in pair]
    done = kafka_tools.run("org.apache.kafka.tools.ShareConsumerPerformance", *words, "--hide-header").check()
    assert "WARNING" not in done.stdout
    megabytes, count = (done.stdout.splitlines()[-1].split(", ")[place] for place in (2, 5))
    assert int(count) == COUNT
    assert float(megabytes) == pytest.approx(COUNT * len(VALUE) / (1 << 20), abs=1e-4)
    target.until("all records are acknowledged", lambda: _is_done(target, group))


def test_kafkas_console_consumer_rejects_some_and_accepts_the_others(target: Target, kafka_tools: KafkaTools) -> None:
    topic, group = _filled(target)

    servers, tool = f"127.0.0.1:{target.port}", "ConsoleShareConsumer"
    found = kafka_tools.consumed_places(servers, topic.name, 10, "--group", group, "--reject", tool=tool)
    found += kafka_tools.consumed_places(servers, topic.name, COUNT - 10, "--group", group, tool=tool)
    assert sorted(found) == [(number, offset) for number in range(PARTITIONS) for offset in range(BATCHES * RECORDS)]
    target.until("all records are acknowledged", lambda: _is_done(target, group))


def _librdkafka(target: Target, topic: Topic, group: str, count: int) -> list[Delivery]:
    """Do with librdkafka what `share` in `peers/go/franz.go` does."""
    settings: dict[str, Any] = {
        "bootstrap.servers": f"127.0.0.1:{target.port}",
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
    }
    found: list[Delivery] = []
    with confluent_kafka.ShareConsumer(settings) as consumer:
        consumer.subscribe([topic.name])

        def poll() -> bool | None:
            for message in consumer.poll(1.0):
                assert message.error() is None, message.error()
                partition, offset, deliveries = message.partition(), message.offset(), message.delivery_count()
                assert partition is not None
                assert offset is not None
                assert deliveries is not None
                found.append((partition, offset, deliveries))
                kind = AcknowledgeType.ACCEPT
                if offset % 5 == 0 and deliveries == 1:
                    kind = AcknowledgeType.RELEASE
                elif offset % 5 == 1:
                    kind = AcknowledgeType.REJECT
                consumer.acknowledge(message, kind)
            refused = [error for error in consumer.commit_sync().values() if error is not None]
            assert refused == []
            return len(found) >= count or None

        target.until("all records are delivered", poll)
    return found


def _franz_go(target: Target, topic: Topic, group: str, count: int) -> list[Delivery]:
    client = go_client("franz-go")
    printed = client.run("share", f"127.0.0.1:{target.port}", topic.name, group, str(count))
    rows = [tuple(map(int, line.split())) for line in printed.splitlines()]
    return [(partition, offset, deliveries) for partition, offset, deliveries in rows]


@pytest.mark.parametrize("consume", [_librdkafka, _franz_go], ids=["librdkafka", "franz-go"])
def test_released_records_come_again_and_no_others(
    target: Target, consume: Callable[[Target, Topic, str, int], list[Delivery]]
) -> None:
    topic, group = _filled(target)
    places = [(partition, offset) for partition in range(PARTITIONS) for offset in range(BATCHES * RECORDS)]
    wanted = [(*place, 1) for place in places] + [(*place, 2) for place in places if place[1] % 5 == 0]
    assert sorted(consume(target, topic, group, len(wanted))) == sorted(wanted)
    target.until("all records are acknowledged", lambda: _is_done(target, group))
