"""Committed offsets over the wire, and how they are kept; Apache Kafka answers the same (see the interop tests)."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from odradek.broker import state_topic
from odradek.broker.monitoring import Monitoring
from odradek.broker.running import BrokerThread
from odradek.broker.turns import whole
from odradek.coordination.groups.consumer import epoch_record, target_epoch_record
from odradek.coordination.groups.share import share_epoch_record
from odradek.coordination.placement import partition_for
from odradek.messages.coordinators.coordinator_records import CoordinatorRecord
from odradek.messages.coordinators.group_records import (
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_record,
)
from odradek.storage.log.log import Log
from odradek.storage.log.replay import replay
from odradek.testing.wire import WireClient
from peers import broker_thread
from peers.broker_thread import advance, connect, eventually
from peers.group_requests import (
    COMMIT,
    DELETE,
    DELETE_OFFSETS,
    FETCH,
    JOIN,
    LIST,
    UNSTABLE,
    OffsetsTransaction,
    commit,
    commit_message,
    fetched,
    find_coordinator,
    heartbeat,
    join_message,
    leave,
    new_member,
    stable_member,
    state,
)
from unit.broker.conftest import LISTENERS

MINUTE = 60
WEEK = 7 * 24 * 60 * MINUTE
LOADING = 14


start = partial(broker_thread.start, **LISTENERS)


@pytest.fixture
def topic_id(running: BrokerThread) -> UUID:
    topic_id = running.broker.logs.create_topic("events", 2).topic_id
    assert topic_id is not None
    return topic_id


@pytest.fixture(autouse=True)
def _topic(client: WireClient, topic_id: UUID) -> None:
    find_coordinator(client)


def stored(running: BrokerThread, group: str) -> Iterator[CoordinatorRecord]:
    """Yield the records that the log has of a group."""
    log = running.broker.logs["__consumer_offsets", partition_for(group, 50)]
    for record in log.read():
        yield decode_group_record(record.key, record.value)


@pytest.mark.sampled
# Between the versions that differ, each with the first and the last of the other API says enough.
@pytest.mark.parametrize(
    ("fetch_version", "version"),
    [
        (fetch_version, version)
        for fetch_version in range(1, 11)
        for version in range(2, 11)
        if version in (2, 9, 10) or fetch_version in (1, 2, 9, 10)
    ],
)
def test_what_is_committed_is_fetched(client: WireClient, topic_id: UUID, version: int, fetch_version: int) -> None:
    answer = client.call(COMMIT, version, commit_message("g", {0: 5}, topic_id=topic_id, metadata="here"))
    assert [int(one.error_code) for one in answer.topics[0].partitions] == [0]
    topics = [{"name": "events", "topic_id": topic_id, "partition_indexes": [0, 1]}]
    message = {"group_id": "g", "topics": topics, "groups": [{"group_id": "g", "topics": topics}]}
    found = client.call(FETCH, fetch_version, message)
    group = found.groups[0] if fetch_version >= 8 else found
    if fetch_version >= 2:
        assert int(group.error_code) == 0
    rows = [
        (one.partition_index, one.committed_offset, one.metadata, int(one.error_code))
        for one in group.topics[0].partitions
    ]
    assert rows == [(0, 5, "here", 0), (1, -1, "", 0)]
    if fetch_version >= 5 and version >= 6:
        assert group.topics[0].partitions[0].committed_leader_epoch == 0


def test_partitions_that_there_are_not(client: WireClient, topic_id: UUID) -> None:
    assert commit(client, "g", {0: 1, 2: 1}) == [3, 0]
    assert commit(client, "g", {0: 1}, topic="other") == [3]
    answer = client.call(COMMIT, 10, commit_message("g", {0: 1}, topic_id=uuid4()))
    assert [int(one.error_code) for one in answer.topics[0].partitions] == [100]
    assert fetched(client, "g", [7]) == [(-1, 0)]
    assert fetched(client, "g", [0], topic="other") == [(-1, 0)]
    topics = [{"topic_id": uuid4(), "partition_indexes": [0]}, {"topic_id": topic_id, "partition_indexes": [0]}]
    found = client.call(FETCH, 10, {"groups": [{"group_id": "g", "topics": topics}]}).groups[0]
    rows = [[(one.committed_offset, int(one.error_code)) for one in topic.partitions] for topic in found.topics]
    assert (int(found.error_code), rows) == (0, [[(1, 0)], [(-1, 100)]])


@pytest.mark.sampled
@pytest.mark.parametrize("version", range(2, 11))
def test_all_offsets_of_a_group(client: WireClient, topic_id: UUID, version: int) -> None:
    commit(client, "g", {0: 1, 1: 2})
    groups = [{"group_id": "g", "topics": None}, {"group_id": "none", "topics": None}]
    found = client.call(FETCH, version, {"group_id": "g", "topics": None, "groups": groups})
    group = found.groups[0] if version >= 8 else found
    assert [one.committed_offset for topic in group.topics for one in topic.partitions] == [1, 2]
    if version >= 8:
        assert (int(found.groups[1].error_code), found.groups[1].topics) == (0, ())


def test_who_may_commit(client: WireClient) -> None:
    assert commit(client, "new", {0: 1}, "nobody", 3) == [69]
    old = client.call(COMMIT, 8, commit_message("new", {0: 1}, "nobody", 3))
    assert int(old.topics[0].partitions[0].error_code) == 22
    member_id = stable_member(client, "g").member_id
    assert commit(client, "g", {0: 1}, member_id, 1) == [0]
    assert commit(client, "g", {0: 1}, "nobody", 1) == [25]
    assert commit(client, "g", {0: 1}, member_id, 3, group_instance_id="static") == [25]
    leave(client, "g", (member_id, None))
    assert commit(client, "g", {0: 2}) == [0]
    assert fetched(client, "g", [0]) == [(2, 0)]


def test_a_commit_is_a_heartbeat(running: BrokerThread, client: WireClient) -> None:
    member_id = stable_member(client, "g", session_ms=10_000).member_id
    for offset in range(3):
        advance(running, 8)
        assert commit(client, "g", {0: offset}, member_id, 1) == [0]
    assert heartbeat(client, "g", member_id, 1) == 0


def test_metadata_has_a_limit(client: WireClient) -> None:
    assert commit(client, "g", {0: 1}, metadata="x" * 4097) == [12]
    assert commit(client, "g", {0: 1}, metadata="\N{GRINNING FACE}" * 2049) == [12]
    assert fetched(client, "g", [0]) == [(-1, 0)]
    assert commit(client, "g", {0: 1}, metadata="x" * 4096) == [0]
    assert commit(client, "g", {1: 1}, metadata=None) == [0]


def test_the_records_are_those_of_apache_kafka(running: BrokerThread, client: WireClient, topic_id: UUID) -> None:
    joined = stable_member(client, "g", session_ms=10_000, rebalance_ms=20_000)
    commit(client, "g", {1: 5}, joined.member_id, 1, metadata="here")
    new, generation, offset = stored(running, "g")
    assert (new.type, new.version, new.value.protocol_type, new.value.members) == (2, 3, "", ())
    value = generation.value
    assert isinstance(value, GroupMetadataValue)
    assert (value.protocol_type, value.generation, value.protocol, value.leader) == (
        "consumer",
        1,
        "range",
        joined.member_id,
    )
    member = value.members[0]
    assert (member.client_host, member.session_timeout, member.rebalance_timeout) == ("/127.0.0.1", 10_000, 20_000)
    assert (member.member_id, member.assignment) == (joined.member_id, b"all")
    assert (offset.type, offset.version, offset.key) == (1, 4, OffsetCommitKey("g", "events", 1))
    assert isinstance(offset.value, OffsetCommitValue)
    assert (offset.value.offset, offset.value.metadata, offset.value.topic_id) == (5, "here", topic_id)


def test_groups_are_deleted(running: BrokerThread, client: WireClient) -> None:
    joined = stable_member(client, "g")
    commit(client, "g", {0: 5}, joined.member_id, 1)
    commit(client, "simple", {0: 5})
    message = {"groups_names": ["g", "simple", "none", "simple"]}
    for version, codes in [(0, [68, 0, 69]), (2, [68, 69, 69])]:
        assert [int(one.error_code) for one in client.call(DELETE, version, message).results] == codes
    leave(client, "g", (joined.member_id, None))
    assert [int(one.error_code) for one in client.call(DELETE, 1, {"groups_names": ["g"]}).results] == [0]
    assert fetched(client, "g", [0]) == [(-1, 0)]
    assert state(client, "g") == "Dead"
    assert [record.type for record in stored(running, "g") if record.value is None] == [1, 2]
    assert client.call(LIST, 5, {"states_filter": [], "types_filter": []}).groups == ()


def test_offsets_are_deleted(client: WireClient, running: BrokerThread) -> None:
    running.broker.logs.create_topic("other")
    joined = stable_member(client, "g")
    commit(client, "g", {0: 5}, joined.member_id, 1)
    commit(client, "g", {0: 6}, joined.member_id, 1, topic="other")

    def delete(group: str, *topics: tuple[str, int]) -> tuple[int, list[int]]:
        rows = [{"name": topic, "partitions": [{"partition_index": number}]} for topic, number in topics]
        answer = client.call(DELETE_OFFSETS, 0, {"group_id": group, "topics": rows})
        return int(answer.error_code), [int(one.error_code) for topic in answer.topics for one in topic.partitions]

    assert delete("g", ("events", 0), ("other", 0), ("other", 1), ("none", 0)) == (0, [3, 0, 3, 86])
    assert fetched(client, "g", [0]) == [(5, 0)]
    assert fetched(client, "g", [0], topic="other") == [(-1, 0)]
    assert delete("none", ("events", 0)) == (69, [])
    assert delete("", ("events", 0)) == (24, [])
    leave(client, "g", (joined.member_id, None))
    assert delete("g", ("events", 0), ("events", 1)) == (0, [0, 0])
    assert fetched(client, "g", [0]) == [(-1, 0)]
    new_member(client, "connect", protocol_type="connect")
    assert delete("connect", ("events", 0)) == (68, [])


@pytest.mark.slow
def test_offsets_of_a_deleted_topic_are_removed(running: BrokerThread, client: WireClient) -> None:
    commit(client, "g", {0: 5, 1: 6})
    transaction = OffsetsTransaction(client, "h")
    assert transaction.commit_offsets(client, {0: 7}) == [0]
    running.call(lambda: whole(running.broker.groups.topics_deleted({"events": None})))
    assert fetched(client, "g") == [(-1, 0), (-1, 0)]
    transaction.end(client, commit=True)
    assert fetched(client, "h") == [(-1, 0), (-1, 0)]


# -- expiry


@pytest.mark.slow
def test_offsets_expire_when_a_group_has_been_empty_for_long(running: BrokerThread, client: WireClient) -> None:
    joined = stable_member(client, "g", session_ms=1_800_000)
    commit(client, "g", {0: 5}, joined.member_id, 1)
    commit(client, "simple", {0: 5})
    advance(running, 1_700)
    leave(client, "g", (joined.member_id, None))
    advance(running, WEEK - 1_000)
    # On a busy machine the look at all groups takes several turns of the loop.
    eventually(lambda: fetched(client, "simple", [0]) == [(-1, 0)])
    assert fetched(client, "g", [0]) == [(5, 0)]
    advance(running, 2_000)
    eventually(lambda: fetched(client, "g", [0]) == [(-1, 0)])
    assert state(client, "g") == state(client, "simple") == "Dead"


@pytest.mark.slow
def test_a_group_keeps_the_offsets_of_the_topics_that_it_reads(running: BrokerThread, client: WireClient) -> None:
    running.broker.logs.create_topic("other")
    joined = stable_member(client, "g", session_ms=1_800_000)
    commit(client, "g", {0: 5}, joined.member_id, 1)
    commit(client, "g", {0: 6}, joined.member_id, 1, topic="other")
    for _ in range(340):
        advance(running, 1_790)
        assert heartbeat(client, "g", joined.member_id, 1) == 0
    assert fetched(client, "g", [0]) == [(5, 0)]
    assert fetched(client, "g", [0], topic="other") == [(-1, 0)]


def test_an_old_client_says_how_long_an_offset_is_kept(running: BrokerThread, client: WireClient) -> None:
    client.call(COMMIT, 4, commit_message("g", {0: 5}, retention_time_ms=3_600_000))
    assert [record.version for record in stored(running, "g")] == [1]
    advance(running, 50 * MINUTE)
    assert fetched(client, "g", [0]) == [(5, 0)]
    advance(running, 20 * MINUTE)
    assert fetched(client, "g", [0]) == [(-1, 0)]


@pytest.mark.parametrize("retention_ms", [(1 << 63) - 1, -(1 << 63), -2])
def test_an_offset_that_is_kept_until_before_now_expires_at_once(
    running: BrokerThread, client: WireClient, retention_ms: int
) -> None:
    client.call(COMMIT, 2, commit_message("g", {0: 5}, retention_time_ms=retention_ms))
    assert fetched(client, "g", [0]) == [(5, 0)]
    advance(running, 11 * MINUTE)
    assert fetched(client, "g", [0]) == [(-1, 0)]


# -- transactions


@pytest.mark.sampled
@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("is_committed", [True, False])
def test_offsets_of_a_transaction_count_when_it_is_committed(
    client: WireClient, version: int, is_committed: bool
) -> None:
    commit(client, "g", {0: 1, 1: 1})
    transaction = OffsetsTransaction(client, "g")
    assert transaction.commit_offsets(client, {0: 5}, version) == [0]
    assert fetched(client, "g") == [(1, 0), (1, 0)]
    assert fetched(client, "g", stable=True) == [(-1, UNSTABLE), (1, 0)]
    transaction.end(client, commit=is_committed)
    assert fetched(client, "g", stable=True) == [(5 if is_committed else 1, 0), (1, 0)]


def test_who_may_commit_in_a_transaction(client: WireClient) -> None:
    joined = stable_member(client, "g")
    transaction = OffsetsTransaction(client, "g")
    assert transaction.commit_offsets(client, {0: 5}, generation_id=1, member_id=joined.member_id) == [0]
    # Producers of old say nothing of the member.
    assert transaction.commit_offsets(client, {0: 5}) == [0]
    assert transaction.commit_offsets(client, {0: 5}, generation_id=2, member_id=joined.member_id) == [22]
    assert transaction.commit_offsets(client, {0: 5}, generation_id=1, member_id="nobody") == [25]
    assert transaction.commit_offsets(client, {0: 5}, group_id="") == [24]
    assert transaction.commit_offsets(client, {0: 5, 7: 1}) == [3, 0]
    none = OffsetsTransaction(client, "none")
    assert none.commit_offsets(client, {0: 5}, generation_id=1, member_id="nobody") == [22]


# -- restarts


@pytest.mark.slow
def test_groups_and_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    with start(tmp_path / "logs") as running, connect(running) as client:
        running.broker.logs.create_topic("events", 2)
        find_coordinator(client)
        joined = stable_member(client, "g", session_ms=10_000)
        commit(client, "g", {0: 5}, joined.member_id, 1, metadata="here")
        transactions = {group: OffsetsTransaction(client, group) for group in ("open", "committed", "aborted")}
        for group, offset in (("open", 6), ("committed", 7), ("aborted", 8)):
            assert transactions[group].commit_offsets(client, {0: offset}) == [0]
        transactions["committed"].end(client, commit=True)
        transactions["aborted"].end(client, commit=False)
    with start(tmp_path / "logs") as running, connect(running) as client:
        find_coordinator(client)
        wait_until_loaded(client)
        assert (state(client, "g"), heartbeat(client, "g", joined.member_id, 1)) == ("Stable", 0)
        assert fetched(client, "g") == [(5, 0), (-1, 0)]
        assert fetched(client, "open", stable=True) == [(-1, UNSTABLE), (-1, 0)]
        assert fetched(client, "committed") == [(7, 0), (-1, 0)]
        assert fetched(client, "aborted") == [(-1, 0), (-1, 0)]
        transactions["open"].end(client, commit=True)
        assert fetched(client, "open") == [(6, 0), (-1, 0)]
        # The session goes on as if the member had just been heard of.
        advance(running, 9)
        assert heartbeat(client, "g", joined.member_id, 1) == 0
        advance(running, 11)
        assert state(client, "g") == "Empty"


def wait_until_loaded(client: WireClient) -> None:
    while int(client.call(LIST, 5, {"states_filter": [], "types_filter": []}).error_code) == 14:
        pass


@pytest.mark.slow
def test_requests_are_told_to_wait_while_groups_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with start(tmp_path / "logs") as running, connect(running) as client:
        running.broker.logs.create_topic("events", 2)
        find_coordinator(client)
        joined = stable_member(client, "g")
        transaction = OffsetsTransaction(client, "g")
        assert transaction.commit_offsets(client, {0: 5}) == [0]
    may_load = threading.Event()

    def replay_later(log: Log, *arguments: Any) -> None:
        if log.topic_partition.topic == "__consumer_offsets":
            may_load.wait()
        replay(log, *arguments)

    monkeypatch.setattr(state_topic, "replay", replay_later)
    with start(tmp_path / "logs") as running, connect(running) as client:
        find_coordinator(client)
        assert commit(client, "g", {0: 6}) == [LOADING]
        answer = client.call(FETCH, 7, {"group_id": "g", "topics": [], "require_stable": True})
        assert int(answer.error_code) == LOADING
        assert int(client.call(JOIN, 9, join_message("g")).error_code) == LOADING
        assert heartbeat(client, "g", joined.member_id, 1) == 0
        for version, code in [(1, 15), (2, LOADING)]:
            assert transaction.commit_offsets(client, {0: 5}, version) == [code]
        # The end of a transaction counts when the offsets are there.
        transaction.decide(client, commit=True)
        may_load.set()
        wait_until_loaded(client)
        assert fetched(client, "g", [0], stable=True) == [(5, 0)]
        assert heartbeat(client, "g", joined.member_id, 1) == 0


@pytest.mark.slow
def test_a_damaged_partition_leaves_its_groups_without_a_coordinator(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with start(tmp_path / "logs") as running, connect(running) as client:
        running.broker.logs.create_topic("events", 2)
        find_coordinator(client)
        commit(client, "g", {0: 5})
        commit(client, "other", {0: 6})
        # A version of the future.
        bad = b"\0\2\0\1g", b"\0\x63"
        shard = running.broker.groups.shard("g")
        running.call(lambda: shard.append([bad]))
        path = shard.partition.log.segments[-1].path
    with start(tmp_path / "logs") as running, connect(running) as client:
        wait_until_loaded(client)
        assert commit(client, "g", {0: 6}) == [16]
        assert commit(client, "other", {0: 7}) == [0]
        # Tools that list groups are told nothing: the log and the metrics are.
        number = running.broker.groups.partition_for("g")
        assert running.broker.groups.not_loaded() == [number]
        (told,) = (one.getMessage() for one in caplog.records if "NOT_COORDINATOR" in one.getMessage())
        assert f"__consumer_offsets-{number} cannot be loaded" in told
        assert str(path) in told
        # The bytes of a version that is not known are sound.
        assert Monitoring(running.server)._problems() == [f"not loaded: __consumer_offsets-{number}"]


@pytest.mark.slow
def test_groups_of_other_protocols_do_not_harm(tmp_path: Path) -> None:
    with start(tmp_path / "logs") as running, connect(running) as client:
        running.broker.logs.create_topic("events", 2)
        find_coordinator(client)
        for group, types in (("tasks", (17, 19)), ("gone", (3, 6))):
            shard = running.call(partial(running.broker.groups.shard, group))
            keys = [
                struct.pack(">hh", number, len(group)) + group.encode() + (b"\0\1m" if number == 19 else b"")
                for number in types
            ]
            running.call(partial(shard.append, [(key, b"\0\0" + bytes(5)) for key in keys]))
            if group == "gone":
                running.call(partial(shard.append, [(key, None) for key in keys]))
            commit(client, group, {0: 5})
        shard = running.call(partial(running.broker.groups.shard, "shared"))
        running.call(partial(shard.append, [share_epoch_record("shared", 7, 0).encoded()]))
        records = [epoch_record("new", 7, 0), target_epoch_record("new", 7, 0)]
        shard = running.call(partial(running.broker.groups.shard, "new"))
        running.call(partial(shard.append, [record.encoded() for record in records]))
        commit(client, "new", {0: 5})
    with start(tmp_path / "logs") as running, connect(running) as client:
        wait_until_loaded(client)
        listed = client.call(LIST, 5, {"states_filter": [], "types_filter": []}).groups
        assert {one.group_id: one.group_type for one in listed} == {
            "new": "consumer",
            "shared": "share",
            "tasks": "streams",
            "gone": "classic",
        }
        assert fetched(client, "new", [0]) == [(5, 0)]
        assert commit(client, "new", {0: 6}) == [0]
        assert commit(client, "new", {0: 6}, "nobody", 1) == [25]
        assert int(client.call(JOIN, 9, join_message("shared")).error_code) == 23
        joined = stable_member(client, "new")
        assert commit(client, "new", {0: 7}, joined.member_id, 1) == [0]
        log = running.broker.logs["__consumer_offsets", running.broker.groups.partition_for("new")]
        removed = [record.key[1] for record in log.read() if record.key and record.value is None]
        assert removed == [6, 4, 3]
    with start(tmp_path / "logs") as running, connect(running) as client:
        wait_until_loaded(client)
        assert state(client, "new") == "Stable"
        assert fetched(client, "new", [0]) == [(7, 0)]


@pytest.mark.slow
def test_an_id_that_cannot_be_stored_does_no_harm(running: BrokerThread, client: WireClient) -> None:
    long = "x" * (1 << 15)
    find_coordinator(client)
    for message in (join_message(long), join_message("g", instance=long), join_message("g", protocols={long: b""})):
        assert int(client.call(JOIN, 9, message).error_code) == -1
    init = {"transactional_id": long, "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}
    assert int(client.call(22, 4, init).error_code) == -1
    commit(client, "other", {0: 5})
    advance(running, WEEK + 20 * MINUTE)
    eventually(lambda: fetched(client, "other", [0]) == [(-1, 0)])


@pytest.mark.slow
def test_a_group_that_cannot_be_expired_does_not_keep_the_others(running: BrokerThread, client: WireClient) -> None:
    find_coordinator(client)
    first, second = [name for name in map(str, range(1000)) if partition_for(name, 50) == 7][:2]
    commit(client, first, {0: 5, 1: 5})
    commit(client, second, {0: 5})
    # What removes one offset fits, what removes two does not.
    running.broker.logs.alter_topic_config("__consumer_offsets", {"max.message.bytes": "100"})
    advance(running, WEEK + 20 * MINUTE)
    eventually(lambda: fetched(client, second, [0]) == [(-1, 0)])
    assert fetched(client, first) == [(5, 0), (5, 0)]


def test_many_offsets_of_a_group_are_removed_in_turns(running: BrokerThread, client: WireClient) -> None:
    running.broker.logs.create_topic("many", 1000)
    find_coordinator(client)
    commit(client, "g", dict.fromkeys(range(1000), 5), topic="many")

    def delete() -> int:
        shard = running.broker.groups.shard("g")
        turns = 0
        for _ in shard.delete_group("g"):
            turns += 1
            assert len(shard.offsets.of("g")) == 1000 - 200 * turns
        assert "g" not in shard.groups
        return turns

    assert running.call(delete) == 5


def test_what_is_committed_while_a_group_is_deleted_stays(running: BrokerThread, client: WireClient) -> None:
    running.broker.logs.create_topic("many", 300)
    find_coordinator(client)
    commit(client, "g", dict.fromkeys(range(300), 5), topic="many")
    shard = running.broker.groups.shard("g")
    deleting = shard.delete_group("g")
    running.call(partial(next, deleting))
    # One offset that was removed already, and one that is still to be.
    commit(client, "g", {0: 6, 299: 7}, topic="many")
    running.call(lambda: whole(deleting))
    assert fetched(client, "g", [0, 1, 299], topic="many") == [(6, 0), (-1, 0), (7, 0)]
    assert "g" in shard.groups
