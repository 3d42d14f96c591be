"""Clients in other languages use our broker: every codec, groups, transactions, topics."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.broker.running import BrokerThread
from peers.clients import CODECS, Client, consumed, go_client, kafkajs
from peers.ledger import require_same

COUNT = 100
CONFIG = {"group.initial.rebalance.delay.ms": 0, "num.partitions": 2}
CLIENTS: dict[str, Callable[[], Client]] = {
    "franz-go": lambda: go_client("franz-go"),
    "sarama": lambda: go_client("sarama"),
    "kafka-go": lambda: go_client("kafka-go", has_transactions=False),
    "kafkajs": kafkajs,
}


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    return CLIENTS[request.param]()


def values(running: BrokerThread, topic: str) -> list[bytes | None]:
    return sorted(
        (record.value for log in running.broker.logs if log.topic_partition.topic == topic for record in log.read()),
        key=lambda value: value or b"",
    )


@pytest.mark.parametrize("codec", CODECS)
def test_what_a_client_produces_is_in_the_log(client: Client, running: BrokerThread, servers: str, codec: str) -> None:
    if codec not in client.codecs:
        pytest.skip(f"{client.name} has no {codec}")
    topic = f"{client.name}-{codec}"
    client.run("produce", servers, topic, codec, str(COUNT))
    require_same(values(running, topic), sorted(f"v{number}".encode() for number in range(COUNT)), topic)


def test_a_group_goes_on_where_it_was(client: Client, running: BrokerThread, servers: str) -> None:
    topic, group = f"{client.name}-group", f"{client.name}-readers"
    running.call(lambda: running.broker.logs.create_topic(topic, 2))
    client.run("produce", servers, topic, "none", str(COUNT))
    first = consumed(client.run("consume", servers, topic, group, str(COUNT), "read_uncommitted"))
    assert {row.value for row in first} == {f"v{number}" for number in range(COUNT)}
    client.run("produce", servers, topic, "none", str(COUNT))
    second = consumed(client.run("consume", servers, topic, group, str(COUNT), "read_uncommitted"))
    assert {(row.partition, row.offset) for row in first}.isdisjoint((row.partition, row.offset) for row in second)


def test_an_aborted_transaction_is_not_consumed(client: Client, running: BrokerThread, servers: str) -> None:
    if not client.has_transactions:
        pytest.skip(f"{client.name} has no transactions")
    topic = f"{client.name}-transactions"
    running.call(lambda: running.broker.logs.create_topic(topic, 2))
    client.run("transact", servers, topic, f"{client.name}-id", str(COUNT))
    client.run("produce", servers, topic, "none", "1")
    found = consumed(client.run("consume", servers, topic, f"{client.name}-tx", str(COUNT + 1), "read_committed"))
    require_same(sorted(row.value for row in found), sorted(["v0", *(f"c{number}" for number in range(COUNT))]), topic)
    assert len(values(running, topic)) == 2 * COUNT + 1


def test_a_topic_is_created_described_and_deleted(client: Client, running: BrokerThread, servers: str) -> None:
    topic = f"{client.name}-admin"
    assert client.run("admin", servers, topic).split() == ["3", "60000"]
    assert topic not in running.broker.logs.topics()
