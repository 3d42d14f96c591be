"""Quotas of clients: the same requests to Apache Kafka and to us, Kafka's own tool, and one folder for both brokers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from odradek.errors import OdradekError
from odradek.testing.conformance.client_quotas import entry
from odradek.testing.conformance.target import Target, batch
from odradek.testing.wire import WireClient
from peers.fixtures import BROKERS, BrokerFactory, broker_of
from peers.kafka_tools import KafkaTools

TOLERANCE_MS = 400
"""Each millisecond that earlier requests have taken is one less to wait."""

SETTLING_S = 0.3
"""Apache Kafka applies a quota some time after it has answered."""


def set_quota(target: Target, entity: Mapping[str, str | None], **ops: float | None) -> None:
    (answer,) = target.call("AlterClientQuotas", entries=[entry(entity, **ops)], validate_only=False).entries
    assert answer.error_message is None
    time.sleep(SETTLING_S)


def described(port: int) -> dict[frozenset[tuple[str, str | None]], dict[str, float]]:
    with Target("127.0.0.1", port) as target:
        answer = target.call("DescribeClientQuotas", components=[], strict=False)
        return {
            frozenset((part.entity_type, part.entity_name) for part in one.entity): {
                value.key: value.value for value in one.values
            }
            for one in answer.entries
        }


def milliseconds(answer: Any) -> int:
    return int(answer.throttle_time.total_seconds() * 1000 + 0.5)


# -- the same throttle times


def produced(target: Target, client: WireClient, topic: str) -> Callable[[], Any]:
    def send() -> Any:
        data = [{"name": topic, "partition_data": [{"index": 0, "records": batch(b"x" * 30_000)}]}]
        return target.call("Produce", 9, client=client, topic_data=data)

    return send


def producing(target: Target) -> list[int]:
    """A producer of 30 KB at a time at 40 KB/s, which may send 400 KB at once, and waits as it is told to."""
    client = target.connect(client_id="producer")
    set_quota(target, {"client-id": "producer"}, producer_byte_rate=40_000)
    send = produced(target, client, target.topic().name)
    return [milliseconds(send()) for _ in range(18)]


def producing_on_many_connections(target: Target) -> list[int]:
    """A producer that opens a new connection for each request: it waits for none, and each adds to the time."""
    name = target.topic().name
    set_quota(target, {"client-id": "new"}, producer_byte_rate=40_000)
    return [milliseconds(produced(target, target.connect(client_id="new"), name)()) for _ in range(18)]


def fetching(target: Target) -> list[int]:
    """A consumer of 30 KB at a time at 40 KB/s: what is throttled is empty, and asked for again after the time."""
    client, topic = target.connect(client_id="consumer"), target.topic()
    target.produced(topic, batch(b"x" * 30_000))
    set_quota(target, {"client-id": "consumer"}, consumer_byte_rate=40_000)
    return [milliseconds(target.call("Fetch", 12, client=client, **target.fetch_fields(topic, 0))) for _ in range(20)]


def creating(target: Target, version: int) -> list[int]:
    """A client that creates four partitions at a time, of one a second: it may create eleven at once."""
    name = f"creator-{version}"
    set_quota(target, {"client-id": name}, controller_mutation_rate=1.0)
    times = []
    for _ in range(6):
        client = target.connect(client_id=name)
        topic = {"name": target.name(), "num_partitions": 4, "replication_factor": 1, "assignments": [], "configs": []}
        answer = target.call("CreateTopics", version, client=client, topics=[topic], validate_only=True)
        times.append(milliseconds(answer) + 100_000 * int(answer.topics[0].error_code))
    return times


def connecting(target: Target) -> list[int]:
    """An address that makes 23 connections, of two a second: it may make twenty at once."""
    set_quota(target, {"ip": "127.0.0.1"}, connection_creation_rate=2)
    done = []
    for _ in range(23):
        begun = time.monotonic()
        with suppress(OdradekError, OSError), WireClient("127.0.0.1", target.port) as client:
            client.call(18, 0, {})
            done.append(0)
            continue
        done.append(10_000 + round((time.monotonic() - begun) * 1000))
    set_quota(target, {"ip": "127.0.0.1"}, connection_creation_rate=None)
    return done


def differ(one: Sequence[int], other: Sequence[int]) -> list[tuple[int, int]]:
    return [pair for pair in zip(one, other, strict=True) if abs(pair[0] - pair[1]) > TOLERANCE_MS]


@pytest.mark.laboratory  # it waits for what quotas hold back
def test_throttle_times_are_those_of_apache_kafka(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    runs: dict[str, list[list[int]]] = {}
    for kind in BROKERS:
        with broker_of(kind, kafka_tools, tmp_path / kind) as broker, Target("127.0.0.1", broker.port) as target:
            runs[kind] = [
                producing(target),
                producing_on_many_connections(target),
                fetching(target),
                creating(target, 7),
                creating(target, 5),
                connecting(target),
            ]
    kafka, ours = runs["kafka"], runs["odradek"]
    for number in range(len(kafka)):
        assert differ(kafka[number], ours[number]) == [], (number, kafka[number], ours[number])
    assert all(max(times) > 100 for times in kafka), "nothing was throttled"


# -- kafka-configs.sh


@pytest.mark.compared
@pytest.mark.parametrize(
    ("flags", "quota"),
    [
        (("--entity-type", "clients", "--entity-name", "app"), "consumer_byte_rate=2048.0"),
        (("--entity-type", "clients", "--entity-default"), "request_percentage=150.0"),
        (("--entity-type", "ips", "--entity-name", "10.1.2.3"), "connection_creation_rate=7.0"),
        (("--entity-type", "ips", "--entity-default"), "connection_creation_rate=2000.0"),
        (("--entity-type", "users", "--entity-name", "alice"), "producer_byte_rate=1024.0"),
        (
            ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients", "--entity-name", "app"),
            "producer_byte_rate=4096.0",
        ),
    ],
)
def test_kafka_configs_sets_shows_and_removes_quotas(
    fixture_broker: Any, kafka_tools: KafkaTools, flags: Sequence[str], quota: str
) -> None:
    servers, key = fixture_broker.bootstrap_servers, quota.partition("=")[0]

    def shown() -> str:
        found = kafka_tools.configs(servers, "--describe", *flags).check().stdout
        return " ".join(re.findall(rf"{key}=\S+", found))

    kafka_tools.configs(servers, "--alter", "--add-config", quota, *flags).check()
    time.sleep(SETTLING_S)
    assert shown() == quota
    kafka_tools.configs(servers, "--alter", "--delete-config", key, *flags).check()
    time.sleep(SETTLING_S)
    assert shown() == ""


# -- one folder for both

QUOTAS: Sequence[tuple[Mapping[str, str | None], Mapping[str, float]]] = (
    ({"user": "alice"}, {"producer_byte_rate": 1e6, "request_percentage": 12.5}),
    ({"user": "alice", "client-id": None}, {"consumer_byte_rate": 2e6}),
    ({"user": None, "client-id": "app"}, {"controller_mutation_rate": 0.25}),
    ({"client-id": "slow"}, {"producer_byte_rate": 2000.0}),
    ({"ip": "10.0.0.1"}, {"connection_creation_rate": 5.0}),
    ({"ip": None}, {"connection_creation_rate": 3000.0}),
    ({"client-id": "gone"}, {"producer_byte_rate": 1.0}),
)


@pytest.mark.parametrize("first", BROKERS)
@pytest.mark.laboratory  # records of the metadata, which metadata_peer takes both ways
def test_quotas_carry_over_on_one_folder_both_ways(kafka_tools: KafkaTools, tmp_path: Path, first: str) -> None:
    order = [first, *(kind for kind in BROKERS if kind != first), first]
    wanted = {frozenset(entity.items()): dict(ops) for entity, ops in QUOTAS if entity != {"client-id": "gone"}}
    with broker_of(order[0], kafka_tools, tmp_path / "data") as broker:
        with Target("127.0.0.1", broker.port) as target:
            for entity, ops in QUOTAS:
                set_quota(target, entity, **ops)
            set_quota(target, {"client-id": "gone"}, producer_byte_rate=None)
        broker.stop()
    with broker_of(order[1], kafka_tools, tmp_path / "data") as broker:
        assert described(broker.port) == wanted
        with Target("127.0.0.1", broker.port) as target:
            throttled = produced(target, target.connect(client_id="slow"), target.topic().name)()
            assert 4000 < milliseconds(throttled) < 6000
            set_quota(target, {"user": "alice"}, producer_byte_rate=None, request_percentage=50.0)
        broker.stop()
    wanted[frozenset({("user", "alice")})] = {"request_percentage": 50.0}
    with broker_of(order[2], kafka_tools, tmp_path / "data") as broker:
        assert described(broker.port) == wanted


def test_quotas_survive_in_a_snapshot_of_apache_kafka(kafka_broker: BrokerFactory, kafka_tools: KafkaTools) -> None:
    config = {"metadata.log.max.record.bytes.between.snapshots": "1", "metadata.log.max.snapshot.interval.ms": "1000"}
    kafka = kafka_broker(config=config)
    with Target("127.0.0.1", kafka.port) as target:
        for entity, ops in QUOTAS:
            set_quota(target, entity, **ops)
    before = described(kafka.port)
    kafka.stop()
    snapshots = list((kafka.log_dir / "__cluster_metadata-0").glob("*.checkpoint"))
    assert any(b"slow" in path.read_bytes() for path in snapshots)
    with broker_of("odradek", kafka_tools, kafka.log_dir) as ours:
        assert described(ours.port) == before
