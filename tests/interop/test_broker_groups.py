"""Groups beside Apache Kafka: it answers the same requests the same, and both take over what the other one wrote."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from confluent_kafka import Consumer, TopicPartition

import odradek
from odradek.broker.running import BrokerThread
from odradek.messages.coordinators.group_records import GroupMetadataValue, OffsetCommitValue, decode_group_record
from odradek.messages.uuids import ZERO_UUID
from odradek.testing.wire import WireClient
from peers.fixtures import BrokerFactory
from peers.group_requests import (
    COMMIT,
    DELETE,
    DELETE_OFFSETS,
    DESCRIBE,
    FETCH,
    FIND,
    HEARTBEAT,
    JOIN,
    LEAVE,
    LIST,
    SUBSCRIPTION,
    SYNC,
    UNSTABLE,
    OffsetsTransaction,
    commit,
    commit_message,
    fetched,
    heartbeat,
    join_message,
    leave,
    stable_member,
    state,
    sync_message,
)

METADATA = 3
REBALANCE = 27
MEMBER_ID = re.compile(r"([A-Za-z0-9.]*)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
CONFIG: dict[str, str | int | float | bool] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "num.partitions": 2,
}


def plain(value: Any) -> Any:
    """Return a part of an answer so that it can be compared: without times, and without what is random in ids."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        if "members" in fields:
            # Apache Kafka has them in no order.
            fields["members"] = sorted(fields["members"], key=repr)
        return {name: field for name, field in fields.items() if name not in ("throttle_time", "port", "topic_id")}
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, str):
        return MEMBER_ID.sub(r"\1-*", value)
    return None if isinstance(value, timedelta | UUID) else value


class Talk:
    """Sends requests, and keeps the answers."""

    def __init__(self, client: WireClient) -> None:
        self.client = client
        self.heard: list[tuple[str, Any]] = []

    def __call__(self, api_key: int, version: int, message: dict[str, Any]) -> Any:
        answer = self.client.call(api_key, version, message)
        self.keep(f"{len(self.heard)}: API {api_key} v{version} {MEMBER_ID.sub('*', repr(message))}", answer)
        return answer

    def keep(self, name: str, answer: Any) -> None:
        self.heard.append((re.sub(r"UUID\('.*?'\)|0x[0-9a-f]+", "*", name), plain(answer)))


def create_topic(client: WireClient, name: str) -> UUID:
    """Create a topic by asking for it."""
    while True:
        topic = {"name": name, "topic_id": None}
        asked = {"topics": [topic], "allow_auto_topic_creation": True, "include_topic_authorized_operations": False}
        found = client.call(METADATA, 12, asked).topics[0]
        if int(found.error_code) == 0 and all(int(one.error_code) == 0 for one in found.partitions):
            assert isinstance(found.topic_id, UUID)
            return found.topic_id


def ready(client: WireClient) -> None:
    """Wait until the coordinator is there and has loaded its groups."""
    for key_type in (0, 1):
        while int(client.call(FIND, 4, {"key_type": key_type, "coordinator_keys": ["any"]}).coordinators[0].error_code):
            pass
    while commit(client, "ready", {0: 1}) != [0]:
        pass


def membership(talk: Talk, other: WireClient) -> None:
    """Talk about who is in a group."""
    for version in range(10):
        group = f"join-{version}"
        joined = talk(JOIN, version, join_message(group))
        if version >= 4:
            joined = talk(JOIN, version, join_message(group, joined.member_id))
        talk(DESCRIBE, 6, {"groups": [group], "include_authorized_operations": True})
        member_id = joined.member_id
        sync = sync_message(group, member_id, 1, {member_id: b"all"})
        talk(SYNC, min(version, 5), sync)
        talk(SYNC, 5, sync_message(group, member_id, 2))
        talk(SYNC, 5, sync_message(group, "nobody", 1))
        talk(SYNC, 5, {**sync_message(group, member_id, 1), "protocol_name": None})
        talk(SYNC, 5, sync_message(group, member_id, 1, protocol="other"))
        beat = {"group_id": group, "generation_id": 1, "member_id": member_id, "group_instance_id": None}
        changes: list[dict[str, Any]] = [
            {},
            {"generation_id": 2},
            {"member_id": "x"},
            {"group_id": "x"},
            {"group_id": ""},
        ]
        for change in changes:
            talk(HEARTBEAT, min(version, 4), {**beat, **change})
        talk(DESCRIBE, min(version, 6), {"groups": [group, "none"], "include_authorized_operations": False})
        members = [{"member_id": member_id, "group_instance_id": None, "reason": "done"}]
        message = {"group_id": group, "member_id": member_id, "members": members}
        for change in [{"group_id": "none"}, {"group_id": ""}, {}, {}]:
            talk(LEAVE, min(version, 5), {**message, **change})
        talk(DESCRIBE, min(version, 6), {"groups": [group], "include_authorized_operations": True})
        talk(HEARTBEAT, 4, beat)
        talk(SYNC, 5, sync)
        talk(JOIN, 9, join_message(group, member_id))
        talk(JOIN, version, join_message(group, protocols={}))
    for message in (
        join_message(""),
        join_message("g", session_ms=10),
        join_message("g", session_ms=1 << 30),
        join_message("none", "nobody"),
        join_message("empty", protocols={}),
        join_message("empty", protocol_type=""),
    ):
        for version in (3, 6, 9):
            talk(JOIN, version, message)
    votes(talk, other)
    statics(talk, other)


def votes(talk: Talk, other: WireClient) -> None:
    """Talk about which protocol a group takes when as many members like the one best as the other."""
    names = ["range", "roundrobin", "sticky", "cooperative-sticky", "rr"]
    for number, (one, another) in enumerate(itertools.permutations(names, 2)):
        group = f"votes-{number}"
        liked = {one: SUBSCRIPTION, another: SUBSCRIPTION}
        first = stable_member(talk.client, group, protocols=liked)
        liked_by_other = dict(reversed(liked.items()))
        second = other.call(JOIN, 9, join_message(group, protocols=liked_by_other)).member_id
        waiting = other.send(JOIN, 9, join_message(group, second, protocols=liked_by_other))
        while heartbeat(talk.client, group, first.member_id, 1) != REBALANCE:
            pass
        talk(JOIN, 9, join_message(group, first.member_id, protocols=liked))
        talk.keep(f"votes of {one} and {another}", other.receive(JOIN, 9, waiting))


def statics(talk: Talk, other: WireClient) -> None:
    """Talk about static members, and about a second member."""
    protocols = {"a": SUBSCRIPTION, "b": SUBSCRIPTION}
    joined = talk(JOIN, 9, join_message("s", instance="one", protocols=protocols))
    talk(JOIN, 9, join_message("s", joined.member_id, "two"))
    talk(JOIN, 9, join_message("s", "nobody", "one", protocols=protocols))
    talk(SYNC, 5, sync_message("s", joined.member_id, 1, {joined.member_id: b"all"}, "one", "a"))
    talk(JOIN, 9, join_message("s", protocols={"c": b""}))
    for version in (5, 8, 9):
        back = talk(JOIN, version, join_message("s", instance="one", protocols=protocols))
    talk(SYNC, 5, sync_message("s", joined.member_id, 1, instance="one", protocol="a"))
    talk(SYNC, 5, sync_message("s", back.member_id, 1, instance="one", protocol="a"))
    talk(DESCRIBE, 5, {"groups": ["s"], "include_authorized_operations": False})
    # Another protocol is selected, so there is a rebalance.
    back = talk(JOIN, 9, join_message("s", instance="one", protocols={"b": SUBSCRIPTION, "a": SUBSCRIPTION}))
    waiting = other.send(JOIN, 9, join_message("s", instance="two", protocols=protocols))
    while (code := heartbeat(talk.client, "s", back.member_id, 2, "one")) == 0:
        pass
    talk.keep("the heartbeat in a rebalance", code)
    talk(SYNC, 5, sync_message("s", back.member_id, 2, instance="one", protocol="b"))
    talk(DESCRIBE, 5, {"groups": ["s"], "include_authorized_operations": False})
    leader = talk(JOIN, 9, join_message("s", back.member_id, "one", protocols=protocols))
    second = other.receive(JOIN, 9, waiting)
    talk.keep("the second member", second)
    waiting = other.send(SYNC, 5, sync_message("s", second.member_id, 3, instance="two", protocol="a"))
    synced = {leader.member_id: b"1", second.member_id: b"2"}
    talk(SYNC, 5, sync_message("s", leader.member_id, 3, synced, "one", "a"))
    talk.keep("the second member's assignment", other.receive(SYNC, 5, waiting))
    talk(JOIN, 9, join_message("s", second.member_id, "two", protocols=protocols))
    named = [("", "three"), ("", None), ("x", "one"), ("x", None), ("", "two"), (leader.member_id, "one")]
    rows = [{"member_id": member_id, "group_instance_id": instance, "reason": None} for member_id, instance in named]
    talk(LEAVE, 5, {"group_id": "s", "members": rows})
    talk(DESCRIBE, 5, {"groups": ["s"], "include_authorized_operations": False})
    for states, types in (
        ([], []),
        (["EMPTY"], []),
        (["stable"], []),
        ([], ["classic"]),
        ([], ["consumer"]),
        ([], ["x"]),
    ):
        answer = talk.client.call(LIST, 5, {"states_filter": states, "types_filter": types})
        groups = sorted(plain(answer.groups), key=lambda group: str(group["group_id"]))
        talk.keep(f"groups of {states} {types}", groups)


def offsets(talk: Talk, topic_id: UUID) -> None:
    """Talk about offsets."""
    for version in range(2, 11):
        group = f"commit-{version}"
        talk(COMMIT, version, commit_message(group, {0: 5, 1: 6}, topic_id=topic_id, metadata="m"))
        talk(COMMIT, version, commit_message(group, {0: 5, 9: 6, 1: 6}, topic_id=topic_id, metadata=None))
        talk(COMMIT, version, commit_message(group, {0: 5}, topic="none", topic_id=uuid4()))
        talk(COMMIT, version, commit_message(group, {0: 5}, topic_id=topic_id, metadata="m" * 5000))
        talk(COMMIT, version, commit_message(f"no-{version}", {0: 5}, "nobody", 5, topic_id=topic_id))
        talk(COMMIT, version, commit_message("", {0: 5}, topic_id=topic_id))
        talk(COMMIT, version, commit_message(group, {0: -7}, topic_id=topic_id))
        talk(COMMIT, version, commit_message(group, {0: 8}, "nobody", -1, topic_id=topic_id))
        talk(COMMIT, version, commit_message(group, {0: 8}, "nobody", 0, topic_id=topic_id))
        talk(COMMIT, version, {**commit_message(group, {}, topic_id=topic_id), "topics": []})
    for version in range(1, 11):
        topics = [{"name": "events", "topic_id": topic_id, "partition_indexes": [1, 0, 7]}]
        topics += [{"name": "none", "topic_id": UUID(int=77), "partition_indexes": [0]}]
        for group in ("commit-6", "no", ""):
            message = {"group_id": group, "topics": topics, "require_stable": True}
            # Not the same group twice: that is answered once here, and as often as it is named by Apache Kafka.
            named = [{"group_id": one, "topics": topics} for one in (group, "commit-7")]
            talk(FETCH, version, {**message, "groups": named})
            if version >= 2:
                groups = [{"group_id": group, "topics": None}, {"group_id": "commit-8", "topics": []}]
                talk(FETCH, version, {"group_id": group, "topics": None, "groups": groups})
    joined = stable_member(talk.client, "o")
    member_id = joined.member_id
    for fields in (
        {"generation": 1, "member_id": member_id},
        {"generation": 2, "member_id": member_id},
        {"generation": 1, "member_id": "nobody"},
        {"generation": -1, "member_id": member_id},
        {"generation": -1},
        {"generation": 1, "member_id": member_id, "group_instance_id": "one"},
    ):
        talk(COMMIT, 9, commit_message("o", {0: 5}, **fields))
    rows = [("events", 0), ("events", 5), ("none", 0), ("other", 0), ("other", 3)]
    for group in ("o", "commit-5", "none", ""):
        topics = [{"name": topic, "partitions": [{"partition_index": number}]} for topic, number in rows]
        talk(DELETE_OFFSETS, 0, {"group_id": group, "topics": topics})
        talk(FETCH, 7, {"group_id": group, "topics": None, "require_stable": True})
    for version in range(3):
        for group in ("o", "commit-6", "none", ""):
            talk(DELETE, version, {"groups_names": [group, group]})
    leave(talk.client, "o", (member_id, None))
    talk(DELETE, 2, {"groups_names": ["o"]})
    transactions(talk)


def transactions(talk: Talk) -> None:
    """Talk about offsets in transactions."""
    for version in range(6):
        group = f"txn-{version}"
        transaction = OffsetsTransaction(talk.client, group)
        for name, numbers, fields in (
            ("plain", {0: 5, 1: 6}, {}),
            ("unknown partition", {0: 5, 9: 6}, {}),
            ("unknown topic", {0: 5}, {"topics": commit_message("", {0: 5}, topic="none")["topics"]}),
            ("not in the group", {0: 5}, {"member_id": "nobody", "generation_id": 4}),
            ("a group that is not in the transaction", {0: 5}, {"group_id": ""}),
            ("an old epoch", {0: 5}, {"producer_epoch": -1}),
            ("another producer", {0: 5}, {"producer_id": 999_999}),
            ("large metadata", {0: 5}, {"topics": commit_message("", {0: 5}, metadata="m" * 5000)["topics"]}),
        ):
            codes = transaction.commit_offsets(talk.client, numbers, version, **fields)
            talk.keep(f"TxnOffsetCommit v{version} {name}", codes)
        for stable in (True, False):
            talk.keep(f"{group} before the end", fetched(talk.client, group, stable=stable))
        transaction.end(talk.client, commit=version % 2 == 0)
        talk.keep(f"{group} after the end", fetched(talk.client, group, stable=True))


def heard_from(host: str, port: int) -> list[tuple[str, Any]]:
    with WireClient(host, port) as client, WireClient(host, port, client_id="other") as other:
        topic_id = create_topic(client, "events")
        create_topic(client, "other")
        ready(client)
        talk = Talk(client)
        membership(talk, other)
        offsets(talk, topic_id)
        return talk.heard


@contextmanager
def ours(path: Path, **config: int) -> Iterator[WireClient]:
    with BrokerThread(path, {**CONFIG, **config}, background=False) as running:
        with WireClient("127.0.0.1", running.endpoint().port) as client:
            yield client


def written(log_dir: Path) -> list[tuple[Any, ...]]:
    """Return the records that a coordinator has written, without times, topic ids and what is random in ids."""
    found: list[tuple[Any, ...]] = []
    with odradek.open(log_dir, mode="r") as logs:
        for record in logs["__consumer_offsets", 0].read():
            decoded = decode_group_record(record.key, record.value)
            value = decoded.value
            if isinstance(value, OffsetCommitValue):
                has_id = value.topic_id != ZERO_UUID
                value = value._replace(commit_timestamp=0, topic_id=ZERO_UUID), has_id
            elif isinstance(value, GroupMetadataValue):
                members = tuple(sorted(value.members, key=lambda member: member.group_instance_id or ""))
                value = value._replace(current_state_timestamp=0, members=members)
            if "ready" not in str(decoded.key):
                found.append((str(decoded.key), decoded.version, MEMBER_ID.sub(r"\1-*", str(value))))
    return found


def test_apache_kafka_answers_and_writes_the_same(kafka_broker: BrokerFactory, tmp_path: Path) -> None:
    broker = kafka_broker(config={"auto.create.topics.enable": "true", "num.partitions": "2"})
    expected = heard_from("127.0.0.1", broker.port)
    broker.stop()
    with ours(tmp_path / "ours") as client:
        found = heard_from(*client.socket.getpeername())
    differing = [(name, theirs, own) for (name, theirs), (_, own) in zip(expected, found, strict=True) if theirs != own]
    assert differing == []
    assert written(tmp_path / "ours") == written(broker.log_dir)


def test_both_take_over_what_the_other_one_wrote(kafka_broker: BrokerFactory, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    long_ms = 1_800_000
    config = {"auto.create.topics.enable": "true", "num.partitions": "2"}
    broker = kafka_broker(folder, config)
    with WireClient("127.0.0.1", broker.port) as client:
        create_topic(client, "events")
        ready(client)
        member = stable_member(client, "g", session_ms=long_ms).member_id
        commit(client, "g", {0: 1, 1: 1}, member, 1, metadata="theirs")
        transactions = {group: OffsetsTransaction(client, group) for group in ("commit", "abort")}
        for transaction in transactions.values():
            assert transaction.commit_offsets(client, {0: 10}) == [0]
        use_consumer_protocol(broker.bootstrap_servers)
    broker.stop()

    with ours(folder) as client:
        ready(client)
        assert (state(client, "g"), heartbeat(client, "g", member, 1)) == ("Stable", 0)
        assert fetched(client, "g") == [(1, 0), (1, 0)]
        assert commit(client, "g", {1: 2}, member, 1) == [0]
        for name, transaction in transactions.items():
            assert fetched(client, name, [0], stable=True) == [(-1, UNSTABLE)]
            transaction.end(client, commit=name == "commit")
        assert (fetched(client, "commit", [0]), fetched(client, "abort", [0])) == ([(10, 0)], [(-1, 0)])
        listed = client.call(LIST, 5, {"states_filter": [], "types_filter": ["consumer"]}).groups
        assert {one.group_id for one in listed} == {"modern", "kept"}
        assert [fetched(client, group, [0]) for group in ("modern", "kept")] == [[(0, 0)], [(0, 0)]]
        modern = stable_member(client, "modern", session_ms=long_ms).member_id
        assert commit(client, "modern", {0: 7}, modern, 1) == [0]
        new = {group: OffsetsTransaction(client, group) for group in ("commit", "abort")}
        for transaction in new.values():
            assert transaction.commit_offsets(client, {1: 20}) == [0]

    broker.start()
    with WireClient("127.0.0.1", broker.port) as client:
        ready(client)
        assert (state(client, "g"), heartbeat(client, "g", member, 1)) == ("Stable", 0)
        assert fetched(client, "g") == [(1, 0), (2, 0)]
        assert (state(client, "modern"), heartbeat(client, "modern", modern, 1)) == ("Stable", 0)
        assert fetched(client, "modern", [0]) == [(7, 0)]
        assert fetched(client, "kept", [0]) == [(0, 0)]
        for name, transaction in new.items():
            assert fetched(client, name, [1], stable=True) == [(-1, UNSTABLE)]
            transaction.end(client, commit=name == "commit")
        assert (fetched(client, "commit"), fetched(client, "abort")) == ([(10, 0), (20, 0)], [(-1, 0), (-1, 0)])


def use_consumer_protocol(servers: str) -> None:
    """Leave groups of KIP-848 behind that have committed an offset."""
    for group in ("modern", "kept"):
        consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "group.protocol": "consumer"})
        consumer.subscribe(["events"])
        while len(consumer.assignment()) < 2:
            consumer.poll(0.1)
        consumer.commit(offsets=[TopicPartition("events", 0, 0)], asynchronous=False)
        consumer.close()
