"""Random requests about transactions, most of them wrong in some way: Apache Kafka and this broker answer the same.

A script draws requests from a seed and from the answers so far, so that both brokers are asked the same for as long as
they answer the same. Producer ids are named by the order in which they were given out.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.api import ADVERTISED
from odradek.broker.running import BrokerThread
from odradek.errors import OdradekError
from odradek.records.builder import build_batch
from odradek.records.kernels.objects import Record
from odradek.testing.wire import WireClient
from peers.fixtures import BrokerFactory
from peers.process import wait_for

PRODUCE, LIST_OFFSETS, METADATA, FETCH_OFFSETS, FIND, CREATE = 0, 2, 3, 9, 10, 19
INIT, ADD, ADD_OFFSETS, END, COMMIT = 22, 24, 25, 26, 28
PRODUCERS, LIST = 61, 66
NOT_YET = {5, 6, 14, 15, 16, 51}
"""What is answered while a leader or a coordinator is not ready, or the last transaction is not complete."""
SEEDS = range(8)
STEPS = 50
TOPICS = {"one": 2, "other": 1}
UNKNOWN_PRODUCER = (123_456_789, 0)
VARYING = {
    "throttle_time",
    "host",
    "port",
    "topic_id",
    "timestamp",
    "last_timestamp",
    "transaction_start_time",
    "error_message",
}
"""What differs between any two brokers; Kafka explains fewer errors."""


class Script:
    """A conversation with a broker.

    Args:
        client: The connection.
        seed: What is drawn from.
    """

    def __init__(self, client: WireClient, seed: int) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.client = client
        self.random = random.Random(seed)
        self.topics = {name: f"{name}-{seed}" for name in TOPICS}
        self.ids = [f"first-{seed}", f"second-{seed}"]
        self.group = f"group-{seed}"
        self.producers: dict[str | None, tuple[int, int]] = {}
        self.sequences: dict[Any, int] = {}
        self.names: dict[int, str] = {}

    def ask(self, key: int, message: Mapping[str, Any], about: object = "") -> Any:
        """Send a request, again while the broker is not ready, and keep the answer."""
        versions = ADVERTISED[key][1]
        lowest = 3 if key == PRODUCE else versions[0]
        version = self.random.choice([lowest, versions[-1], self.random.choice(range(lowest, versions[-1] + 1))])
        answers: list[Any] = []

        def is_ready() -> bool:
            answers[:] = [self.client.call(key, version, message)]
            return not NOT_YET & codes(answers[0])

        wait_for(is_ready, 30, f"{ADVERTISED[key][0]}")
        (answer,) = answers
        named = self.plain(answer, names=key in (INIT, END))
        self.heard.append((f"{len(self.heard)}: {ADVERTISED[key][0]} v{version} {about}", named))
        return answer

    def plain(self, value: Any, name: str = "", *, names: bool = False) -> Any:
        if dataclasses.is_dataclass(value):
            fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
            return {key: self.plain(one, key, names=names) for key, one in fields.items() if key not in VARYING}
        if isinstance(value, tuple):
            return sorted((self.plain(one, names=names) for one in value), key=repr)
        if name == "producer_id" and value > 0:
            if names:
                self.names.setdefault(value, f"producer {len(self.names)}")
            return self.names.get(value, "unknown")
        if isinstance(value, Enum):
            return value.name
        return None if isinstance(value, UUID) else value

    def begin(self) -> None:
        # Not 0, which also stands for no producer id.
        first = {"transactional_id": None, "transaction_timeout_ms": 1000}
        wait_for(lambda: self.client.call(INIT, 0, first).producer_id > 0, 30, "producer ids")
        settings = {"replication_factor": 1, "assignments": [], "configs": []}
        topics = [{"name": self.topics[name], "num_partitions": count, **settings} for name, count in TOPICS.items()]
        self.client.call(CREATE, 5, {"topics": topics, "timeout_ms": 10_000, "validate_only": False})
        for kind in (0, 1):
            wait_for(partial(self.has_coordinator, kind), 30, "a coordinator")
        rows = [
            {
                "name": self.topics[name],
                "partitions": [{"partition_index": one, "timestamp": -1} for one in range(count)],
            }
            for name, count in TOPICS.items()
        ]
        asked = {"replica_id": -1, "isolation_level": 0, "topics": rows, "timeout_ms": 1000}
        wait_for(lambda: not codes(self.client.call(LIST_OFFSETS, 5, asked)), 30, "leaders")

    def has_coordinator(self, kind: int) -> bool:
        return not codes(self.client.call(FIND, 4, {"key_type": kind, "coordinator_keys": ["any"]}))

    def settle(self) -> None:
        """Wait until no transaction is being completed."""
        asked = {"state_filters": ["PrepareCommit", "PrepareAbort"], "producer_id_filters": []}
        wait_for(lambda: not self.client.call(LIST, 0, asked).transaction_states, 30, "complete transactions")

    def run(self) -> list[tuple[str, Any]]:
        self.begin()
        steps = [self.init] * 3 + [self.add] * 4 + [self.add_offsets, self.commit, self.commit] + [self.produce] * 4
        steps += [self.end] * 3 + [self.look] * 2
        for _ in range(STEPS):
            name = self.random.choice([*self.ids, self.ids[0], self.ids[0], "never", ""])
            known = self.producers.get(name, UNKNOWN_PRODUCER)
            producer = self.random.choice(
                [known] * 8 + [(known[0], known[1] + 1), (known[0], known[1] - 1), (-1, -1), *self.producers.values()]
            )
            self.random.choice(steps)(name, producer)
            self.settle()
        return self.heard

    # -- requests

    def who(self, name: str, producer: tuple[int, int]) -> dict[str, Any]:
        return {"transactional_id": name, "producer_id": producer[0], "producer_epoch": producer[1]}

    def some_partitions(self) -> list[dict[str, Any]]:
        topics = self.random.sample([*self.topics.values(), "missing"], self.random.choice([1, 1, 2]))
        return [{"name": name, "partitions": [self.random.choice([0, 0, 0, 1, -1])]} for name in topics]

    def init(self, name: str, producer: tuple[int, int]) -> None:
        given = self.random.choice([(-1, -1), (-1, -1), producer])
        timeout_ms = self.random.choice([900_000] * 6 + [0, -1, 900_001])
        who = self.random.choice([name, name, name, None])
        message = {"transactional_id": who, "producer_id": given[0], "producer_epoch": given[1]}
        answer = self.ask(INIT, {**message, "transaction_timeout_ms": timeout_ms}, (who, timeout_ms))
        if not codes(answer):
            self.producers[who] = (answer.producer_id, answer.producer_epoch)

    def add(self, name: str, producer: tuple[int, int]) -> None:
        fields = {**self.who(name, producer), "topics": self.some_partitions()}
        old = {f"v3_and_below_{key}": value for key, value in fields.items()}
        self.ask(ADD, {**old, "transactions": [{**fields, "verify_only": self.random.random() < 0.5}]}, name)

    def add_offsets(self, name: str, producer: tuple[int, int]) -> None:
        self.ask(ADD_OFFSETS, {**self.who(name, producer), "group_id": self.random.choice([self.group, ""])}, name)

    def commit(self, name: str, producer: tuple[int, int]) -> None:
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": topic["partitions"][0],
                        "committed_offset": self.random.choice([1, 5, -1]),
                        "committed_leader_epoch": -1,
                        "committed_metadata": self.random.choice([None, "m", "x" * 4097]),
                    }
                ],
            }
            for topic in self.some_partitions()
        ]
        member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
        self.ask(COMMIT, {**self.who(name, producer), **member, "group_id": self.group, "topics": topics}, name)

    def produce(self, name: str, producer: tuple[int, int]) -> None:
        topic, partition = self.random.choice([("one", 0), ("one", 1), ("other", 0), ("other", 7)])
        at = producer, topic, partition
        sequence = self.random.choice([self.sequences.get(at, 0)] * 5 + [0, 7])
        batch = b""
        if producer[0] >= 0 and producer[1] >= 0:
            record = Record(offset=0, timestamp=1000, value=b"v")
            who: dict[str, Any] = {"producer_id": producer[0], "producer_epoch": producer[1], "base_sequence": sequence}
            batch = bytes(build_batch([record], **who, is_transactional=True))
        data = [{"name": self.topics[topic], "topic_id": self.topic_id(topic), "partition_data": []}]
        data[0]["partition_data"] = [{"index": partition, "records": batch}]
        message = {"transactional_id": name, "acks": -1, "timeout_ms": 1000, "topic_data": data}
        answer = self.ask(PRODUCE, message, (name, topic, partition, sequence))
        if not codes(answer):
            self.sequences[at] = sequence + 1

    def topic_id(self, topic: str) -> UUID:
        asked = {"topics": [{"name": self.topics[topic], "topic_id": None}], "allow_auto_topic_creation": False}
        found = (
            self.client.call(METADATA, 12, {**asked, "include_topic_authorized_operations": False}).topics[0].topic_id
        )
        assert isinstance(found, UUID)
        return found

    def end(self, name: str, producer: tuple[int, int]) -> None:
        answer = self.ask(END, {**self.who(name, producer), "committed": self.random.random() < 0.5}, name)
        if not codes(answer) and getattr(answer, "producer_id", -1) >= 0:
            self.producers[name] = (answer.producer_id, answer.producer_epoch)

    def look(self, name: str, producer: tuple[int, int]) -> None:
        match self.random.randrange(3):
            case 0:
                rows = [{"name": self.topics["one"], "partition_indexes": [0, 1, 5]}]
                self.ask(PRODUCERS, {"topics": [*rows, {"name": "missing", "partition_indexes": [0]}]})
            case 1:
                times = [{"partition_index": n, "timestamp": self.random.choice(range(-7, 2))} for n in (0, 1, 9)]
                isolation = self.random.choice([0, 1])
                rows = [{"name": self.topics["one"], "partitions": times}]
                asked = {"replica_id": self.random.choice([-1, -2]), "isolation_level": isolation, "timeout_ms": 1000}
                self.ask(LIST_OFFSETS, {**asked, "topics": rows}, times)
            case _:
                topics = [
                    {"name": name, "topic_id": self.topic_id(topic), "partition_indexes": [0, 1]}
                    for topic, name in self.topics.items()
                ]
                groups = [{"group_id": self.group, "member_id": None, "member_epoch": -1, "topics": topics}]
                wanted: dict[str, Any] = {
                    "group_id": self.group,
                    "topics": topics,
                    "groups": groups,
                    "require_stable": False,
                }
                self.ask(FETCH_OFFSETS, wanted)


def codes(value: Any) -> set[int]:
    """Return the errors in an answer."""
    if isinstance(value, tuple):
        return {code for one in value for code in codes(one)}
    if not dataclasses.is_dataclass(value):
        return set()
    found = set()
    for field in dataclasses.fields(value):
        one = getattr(value, field.name)
        found |= {int(one)} if field.name.endswith("error_code") else codes(one)
    return found - {0}


def heard_from(port: int, seeds: Sequence[int]) -> dict[int, list[tuple[str, Any]]]:
    found = {}
    for seed in seeds:
        with WireClient("127.0.0.1", port) as client:
            script = Script(client, seed)
            try:
                found[seed] = script.run()
            except OdradekError as error:
                found[seed] = [*script.heard, ("the next one", str(error))]
    return found


@pytest.mark.laboratory
def test_apache_kafka_answers_random_requests_the_same(kafka_broker: BrokerFactory, tmp_path: Path) -> None:
    broker = kafka_broker()
    theirs = heard_from(broker.port, SEEDS)
    broker.stop()
    config: dict[str, str | int | float | bool] = {"listeners": "PLAINTEXT://127.0.0.1:0"}
    config |= {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1, "log.retention.ms": -1}
    with BrokerThread(tmp_path / "ours", config, sync="off") as running:
        ours = heard_from(running.endpoint().port, SEEDS)
    for seed in SEEDS:
        for (asked, wanted), (_, found) in zip(theirs[seed], ours[seed], strict=False):
            assert found == wanted, f"seed {seed}, {asked}"
        assert len(ours[seed]) == len(theirs[seed])
    assert sum(map(len, theirs.values())) == STEPS * len(SEEDS)
