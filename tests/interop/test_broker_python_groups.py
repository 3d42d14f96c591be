"""Python's clients in groups of our broker: two members, static members, and offsets over a restart."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer
from kafka import KafkaConsumer
from kafka.errors import RebalanceInProgressError

from odradek.broker.running import BrokerThread
from odradek.coordination.groups.classic import ClassicGroup
from odradek.testing.wire import WireClient
from peers.group_requests import DESCRIBE, fetched, state
from peers.process import free_port, wait_for

TOPIC, PARTITIONS, COUNT = "events", 4, 20
TIMEOUT_S = 30
CONFIG: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "heartbeat_interval_ms": 100,
    "retry_backoff_ms": 20,
}
"""Of kafka-python's and aiokafka's consumers."""

# kafka-python leaves the sockets of a broker that has gone to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
    pytest.mark.usefixtures("collected"),
]


class Member(Protocol):
    """A consumer in a group."""

    def poll(self) -> list[bytes]:
        """Return values of records."""

    def assigned(self) -> set[int]:
        """Return the partitions that it has."""

    def commit(self) -> None:
        """Commit what it has read."""

    def close(self) -> None:
        """Leave the group, if it is not a static member."""


class Confluent:
    """A consumer of confluent-kafka; it assigns cooperatively."""

    def __init__(self, servers: str, instance: str | None) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": "cooperative-sticky",
            "heartbeat.interval.ms": 100,
        }
        if instance is not None:
            config["group.instance.id"] = instance
        self.consumer = confluent_kafka.Consumer(config)
        self.consumer.subscribe([TOPIC])

    def poll(self) -> list[bytes]:
        return [message.value() or b"" for message in self.consumer.consume(100, 0.1) if message.error() is None]

    def assigned(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


class KafkaPython:
    """A consumer of kafka-python."""

    def __init__(self, servers: str, instance: str | None) -> None:
        self.consumer = KafkaConsumer(
            bootstrap_servers=servers,
            group_instance_id=instance,
            **CONFIG,
        )
        # It assigns nothing for good if the group is there before it knows the topic's partitions (3.0.12).
        assert self.consumer.partitions_for_topic(TOPIC)
        self.consumer.subscribe([TOPIC])

    def poll(self) -> list[bytes]:
        return [record.value for records in self.consumer.poll(100).values() for record in records]

    def assigned(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def commit(self) -> None:
        try:
            self.consumer.commit()
        except RebalanceInProgressError:
            pytest.skip(
                "kafka-python 3.0.12 takes a rebalance for unfinished for good: most times beside Apache Kafka too"
            )

    def close(self) -> None:
        self.consumer.close()


class Aiokafka:
    """A consumer of aiokafka, on a loop of its own, which runs while it is asked for something."""

    def __init__(self, servers: str, instance: str | None) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._start(servers, instance))

    async def _start(self, servers: str, instance: str | None) -> None:
        self.consumer = AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=servers,
            group_instance_id=instance,
            **CONFIG,
        )
        # It waits for its assignment, which another member may have to give up first.
        self.starting = asyncio.ensure_future(self.consumer.start())
        await asyncio.wait([self.starting], timeout=0.5)

    async def _poll(self) -> list[bytes]:
        if not self.starting.done():
            await asyncio.wait([self.starting], timeout=0.1)
            return []
        found = await self.consumer.getmany(timeout_ms=100)
        return [record.value for records in found.values() for record in records]

    def poll(self) -> list[bytes]:
        return self.loop.run_until_complete(self._poll())

    def assigned(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def commit(self) -> None:
        self.loop.run_until_complete(self.consumer.commit())

    def close(self) -> None:
        if not self.loop.is_closed():
            self.loop.run_until_complete(self.consumer.stop())
            self.loop.close()


NewMember: TypeAlias = Callable[..., Member]


@pytest.fixture(params=[Confluent, KafkaPython, Aiokafka])
def new_member(request: pytest.FixtureRequest) -> Iterator[NewMember]:
    """Make members of a client: `new_member(servers, instance=None)`; what is still open is closed with the test."""
    members: list[Member] = []

    def make(servers: str, instance: str | None = None) -> Member:
        member: Member = request.param(servers, instance)
        members.append(member)
        return member

    yield make
    for member in members:
        member.close()
    members.clear()
    gc.collect()


@contextmanager
def broker(path: Path, port: int) -> Iterator[BrokerThread]:
    config: dict[str, str | int | float | bool] = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 2,
    }
    with BrokerThread(path, config, sync="off") as running:
        if TOPIC not in running.broker.logs.metadata_image.topics:
            running.call(lambda: running.broker.logs.create_topic(TOPIC, PARTITIONS))
        yield running


def produce(servers: str, name: str) -> set[bytes]:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    values = [f"{name}-{number}".encode() for number in range(COUNT)]
    for number, value in enumerate(values):
        producer.produce(TOPIC, value, partition=number % PARTITIONS)
    assert producer.flush(10) == 0
    return set(values)


def read(members: list[Member], expected: set[bytes]) -> None:
    """Read until all records have come, each of them once."""
    found: list[bytes] = []

    def has_all() -> bool:
        for member in members:
            found.extend(member.poll())
        return set(found) >= expected

    wait_for(has_all, TIMEOUT_S, "all records")
    assert sorted(found) == sorted(expected)


def settle(*members: Member) -> None:
    """Poll until the partitions are shared out evenly."""

    def is_even() -> bool:
        for member in members:
            assert member.poll() == []
        shares = [member.assigned() for member in members]
        return {len(share) for share in shares} == {PARTITIONS // len(members)} and len(
            set().union(*shares)
        ) == PARTITIONS

    wait_for(is_even, TIMEOUT_S, "an even assignment")


def start_group(new_member: NewMember, servers: str, instance: str | None = None) -> Member:
    """Return a member that is alone in its group, and has read and committed records of all partitions.

    Only then may others join. If an answer where a partition begins reaches librdkafka 2.16 during a rebalance, it asks
    again half a second later, whatever it has read by then, and goes back to the beginning: beside Apache Kafka too
    (`outdated offset response: (re)starting offset query timer` in its debug log).
    """
    member = new_member(servers, instance)
    read([member], produce(servers, "first"))
    member.commit()
    return member


def generation(running: BrokerThread) -> int:
    group = running.call(lambda: running.broker.groups.shard("g").groups["g"])
    assert isinstance(group, ClassicGroup)
    return group.generation_id


def test_a_group_of_two(new_member: NewMember, tmp_path: Path) -> None:
    port = free_port()
    servers = f"127.0.0.1:{port}"
    with broker(tmp_path / "logs", port), WireClient("127.0.0.1", port) as client:
        first = start_group(new_member, servers)
        second = new_member(servers)
        settle(first, second)
        read([first, second], produce(servers, "a"))
        first.commit()
        second.commit()
        second.close()
        settle(first)
        read([first], produce(servers, "b"))
        first.commit()
        assert fetched(client, "g", range(PARTITIONS), topic=TOPIC) == [(3 * COUNT // PARTITIONS, 0)] * PARTITIONS
        first.close()
        assert state(client, "g") == "Empty"


def test_static_members_come_back_without_a_rebalance(new_member: NewMember, tmp_path: Path) -> None:
    port = free_port()
    servers = f"127.0.0.1:{port}"
    with broker(tmp_path / "logs", port) as running, WireClient("127.0.0.1", port) as client:
        first, second = start_group(new_member, servers, "one"), new_member(servers, "two")
        settle(first, second)
        had, before = second.assigned(), generation(running)
        read([first, second], produce(servers, "a"))
        second.commit()
        second.close()
        assert state(client, "g") == "Stable"
        second = new_member(servers, "two")
        settle(first, second)
        assert second.assigned() == had
        read([first, second], produce(servers, "b"))
        assert generation(running) == before
        first.close()
        second.close()
        members = client.call(DESCRIBE, 5, {"groups": ["g"], "include_authorized_operations": False}).groups[0].members
        assert {one.group_instance_id for one in members} == {"one", "two"}


def test_members_go_on_after_a_restart_of_the_broker(new_member: NewMember, tmp_path: Path) -> None:
    port = free_port()
    servers = f"127.0.0.1:{port}"
    with broker(tmp_path / "logs", port):
        first, second = start_group(new_member, servers), new_member(servers)
        settle(first, second)
        read([first, second], produce(servers, "a"))
        first.commit()
        second.commit()
    with broker(tmp_path / "logs", port), WireClient("127.0.0.1", port) as client:
        read([first, second], produce(servers, "b"))
        first.commit()
        second.commit()
        assert fetched(client, "g", range(PARTITIONS), topic=TOPIC) == [(3 * COUNT // PARTITIONS, 0)] * PARTITIONS
        first.close()
        second.close()
    with broker(tmp_path / "logs", port):
        last = new_member(servers)
        settle(last)
        read([last], produce(servers, "c"))
        last.close()
