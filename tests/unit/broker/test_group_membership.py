"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup over the wire; Apache Kafka answers so too, see the interop tests."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.running import BrokerThread
from odradek.coordination.groups.classic import ClassicGroup
from odradek.testing.wire import WireClient
from peers.broker_thread import advance, connect, eventually, start, unsent_bytes
from peers.group_requests import (
    DESCRIBE,
    FIND,
    HEARTBEAT,
    JOIN,
    LEAVE,
    LIST,
    SUBSCRIPTION,
    SYNC,
    find_coordinator,
    heartbeat,
    join_message,
    leave,
    new_member,
    stable_member,
    state,
    sync_message,
)

INCONSISTENT_PROTOCOL, UNKNOWN_MEMBER, ILLEGAL_GENERATION, REBALANCE, FENCED = 23, 25, 22, 27, 82


@pytest.fixture(autouse=True)
def _topic(client: WireClient) -> None:
    find_coordinator(client)


@pytest.fixture
def other(running: BrokerThread) -> Iterator[WireClient]:
    with connect(running, client_id="other") as client:
        yield client


def member_count(running: BrokerThread, group_id: str) -> int:
    group = running.call(lambda: running.broker.groups.shard(group_id).groups[group_id])
    assert isinstance(group, ClassicGroup)
    return len(group.members)


@pytest.mark.sampled(4)
# v0 knows groups only.
@pytest.mark.parametrize(
    ("key_type", "version"), [(kind, version) for kind in (0, 1) for version in range(7) if version or not kind]
)
def test_this_broker_is_the_coordinator(running: BrokerThread, client: WireClient, version: int, key_type: int) -> None:
    answer = client.call(FIND, version, {"key_type": key_type, "key": "g", "coordinator_keys": ["g", "h"]})
    found = answer.coordinators if version >= 4 else [answer]
    assert len(found) == (2 if version >= 4 else 1)
    assert {(int(one.error_code), one.node_id, one.port) for one in found} == {(0, 1, running.endpoint().port)}


@pytest.mark.parametrize("version", [4, 6])
def test_share_groups_are_refused(client: WireClient, version: int) -> None:
    answer = client.call(FIND, version, {"key_type": 2, "coordinator_keys": ["g:topic:0"]})
    assert [int(one.error_code) for one in answer.coordinators] == [42]


@pytest.mark.sampled
@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_and_leaves(client: WireClient, version: int) -> None:
    joined = client.call(JOIN, version, join_message("g"))
    if version >= 4:
        assert (int(joined.error_code), joined.generation_id, joined.leader) == (79, -1, "")
        joined = client.call(JOIN, version, join_message("g", joined.member_id))
    assert (int(joined.error_code), joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.member_id.startswith("odradek-wire-")
    assert joined.leader == joined.member_id
    assert [(one.member_id, bytes(one.metadata)) for one in joined.members] == [(joined.member_id, SUBSCRIPTION)]
    if version >= 7:
        assert joined.protocol_type == "consumer"
    assert state(client, "g") == "CompletingRebalance"
    synced = client.call(
        SYNC, min(version, 5), sync_message("g", joined.member_id, joined.generation_id, {joined.member_id: b"all"})
    )
    assert (int(synced.error_code), bytes(synced.assignment)) == (0, b"all")
    assert state(client, "g") == "Stable"
    message = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id, "group_instance_id": None}
    assert int(client.call(HEARTBEAT, min(version, 4), message).error_code) == 0
    members = [{"member_id": joined.member_id, "group_instance_id": None, "reason": "done"}]
    left = client.call(LEAVE, min(version, 5), {"group_id": "g", "member_id": joined.member_id, "members": members})
    assert int(left.error_code) == 0
    assert state(client, "g") == "Empty"
    assert heartbeat(client, "g", joined.member_id, 1) == UNKNOWN_MEMBER


def test_a_member_has_a_hundred_protocols_at_most(client: WireClient) -> None:
    for count, expected in ((101, INCONSISTENT_PROTOCOL), (100, 0)):
        protocols = {f"assignor-{number}": b"" for number in range(count)}
        assert int(client.call(JOIN, 3, join_message("g", protocols=protocols)).error_code) == expected


def test_a_second_member_makes_the_first_one_join_again(client: WireClient, other: WireClient) -> None:
    first = stable_member(client, "g")
    second_id = other.call(JOIN, 9, join_message("g")).member_id
    waiting = other.send(JOIN, 9, join_message("g", second_id))
    assert heartbeat_until(client, first.member_id) == REBALANCE
    assert state(client, "g") == "PreparingRebalance"
    assert int(client.call(SYNC, 5, sync_message("g", first.member_id, 1)).error_code) == REBALANCE
    leader = client.call(JOIN, 9, join_message("g", first.member_id))
    follower = other.receive(JOIN, 9, waiting)
    assert (leader.generation_id, follower.generation_id) == (2, 2)
    assert leader.leader == follower.leader == first.member_id
    assert {one.member_id for one in leader.members} == {first.member_id, second_id}
    assert follower.members == ()
    waiting = other.send(SYNC, 5, sync_message("g", second_id, 2))
    synced = client.call(SYNC, 5, sync_message("g", first.member_id, 2, {first.member_id: b"a", second_id: b"b"}))
    assert bytes(synced.assignment) == b"a"
    assert bytes(other.receive(SYNC, 5, waiting).assignment) == b"b"
    described = client.call(DESCRIBE, 6, {"groups": ["g"], "include_authorized_operations": True}).groups[0]
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert {(one.client_id, one.client_host, bytes(one.member_assignment)) for one in described.members} == {
        ("odradek-wire", "/127.0.0.1", b"a"),
        ("other", "/127.0.0.1", b"b"),
    }
    assert described.authorized_operations == 3400


def test_requests_of_another_generation_or_member_are_refused(client: WireClient) -> None:
    member = stable_member(client, "g")
    assert heartbeat(client, "g", member.member_id, 2) == ILLEGAL_GENERATION
    assert heartbeat(client, "g", "nobody", 1) == UNKNOWN_MEMBER
    assert heartbeat(client, "none", "nobody", 1) == UNKNOWN_MEMBER
    assert heartbeat(client, "g", member.member_id, 1, "static") == UNKNOWN_MEMBER
    assert heartbeat(client, "", member.member_id, 1) == 24
    for message, code in [
        (sync_message("g", member.member_id, 2), ILLEGAL_GENERATION),
        (sync_message("g", "nobody", 1), UNKNOWN_MEMBER),
        (sync_message("none", "nobody", 1), UNKNOWN_MEMBER),
        (sync_message("g", member.member_id, 1, protocol="sticky"), 23),
        ({**sync_message("g", member.member_id, 1), "protocol_name": None}, 23),
        (sync_message("", member.member_id, 1), 24),
    ]:
        assert int(client.call(SYNC, 5, message).error_code) == code, message
    left = leave(client, "g", ("nobody", None))
    assert (int(left.error_code), [int(one.error_code) for one in left.members]) == (0, [UNKNOWN_MEMBER])
    left = leave(client, "none", ("nobody", None))
    assert (int(left.error_code), [int(one.error_code) for one in left.members]) == (0, [UNKNOWN_MEMBER])


def test_joins_that_cannot_be(client: WireClient) -> None:
    stable_member(client, "g")
    for message, code in [
        (join_message(""), 24),
        (join_message("g", session_ms=5_999), 26),
        (join_message("g", session_ms=1_800_001), 26),
        (join_message("g", "nobody"), UNKNOWN_MEMBER),
        (join_message("none", "nobody"), UNKNOWN_MEMBER),
        (join_message("g", protocols={"sticky": b""}), 23),
        (join_message("g", protocol_type="connect"), 23),
        (join_message("new", protocols={}), 23),
    ]:
        assert int(client.call(JOIN, 9, message).error_code) == code, message


@pytest.mark.slow
def test_heartbeats_that_wait_in_the_socket_come_before_a_session_is_over(
    running: BrokerThread, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = stable_member(client, "g", session_ms=10_000)
    clock = running.broker.clock
    message = {"group_id": "g", "generation_id": 1, "member_id": member.member_id, "group_instance_id": None}

    def be_stopped() -> int:
        sent = client.send(HEARTBEAT, 4, message)
        while unsent_bytes(client.socket):
            time.sleep(0.001)
        monkeypatch.setattr(clock, "_advanced_ms", 20_000)
        # Linux tells a process that goes on of the time first: epoll_wait was interrupted.
        clock._fire()
        return sent

    sent = running.call(be_stopped)
    assert int(client.receive(HEARTBEAT, 4, sent).error_code) == 0
    assert state(client, "g") == "Stable"
    advance(running, 20)
    assert state(client, "g") == "Empty"


def test_among_protocols_with_as_many_votes_the_one_is_taken_that_apache_kafka_takes(
    client: WireClient, other: WireClient
) -> None:
    liked = {"range": SUBSCRIPTION, "rr": SUBSCRIPTION}
    first = stable_member(client, "g", protocols=liked)
    assert first.protocol_name == "range"
    second = other.call(JOIN, 9, join_message("g", protocols=dict(reversed(liked.items())))).member_id
    waiting = other.send(JOIN, 9, join_message("g", second, protocols=dict(reversed(liked.items()))))
    assert heartbeat_until(client, first.member_id) == REBALANCE
    assert client.call(JOIN, 9, join_message("g", first.member_id, protocols=liked)).protocol_name == "rr"
    assert other.receive(JOIN, 9, waiting).protocol_name == "rr"


def test_a_rebalance_goes_on_without_members_that_do_not_join_again(
    running: BrokerThread, client: WireClient, other: WireClient
) -> None:
    first = stable_member(client, "g", session_ms=600_000, rebalance_ms=20_000)
    second = other.call(JOIN, 9, join_message("g")).member_id
    waiting = other.send(JOIN, 9, join_message("g", second))
    assert heartbeat_until(client, first.member_id) == REBALANCE
    advance(running, 31)
    joined = other.receive(JOIN, 9, waiting)
    assert (joined.generation_id, joined.leader) == (2, second)
    assert heartbeat(client, "g", first.member_id, 1) == UNKNOWN_MEMBER


def test_a_silent_member_is_removed(running: BrokerThread, client: WireClient) -> None:
    member = stable_member(client, "g", session_ms=10_000)
    advance(running, 9)
    assert heartbeat(client, "g", member.member_id, 1) == 0
    advance(running, 9)
    assert state(client, "g") == "Stable"
    advance(running, 1.1)
    assert state(client, "g") == "Empty"
    assert int(client.call(SYNC, 5, sync_message("g", member.member_id, 1)).error_code) == UNKNOWN_MEMBER
    listed = client.call(LIST, 5, {"states_filter": ["empty"], "types_filter": ["Classic"]}).groups
    assert [(one.group_id, one.protocol_type, one.group_state, one.group_type) for one in listed] == [
        ("g", "consumer", "Empty", "classic")
    ]
    assert client.call(LIST, 4, {"states_filter": ["Stable"]}).groups == ()


def test_requests_of_clients_that_have_gone_are_not_kept(
    running: BrokerThread, client: WireClient, other: WireClient
) -> None:
    first = stable_member(client, "g", session_ms=60_000)
    second = client.call(JOIN, 9, join_message("g", session_ms=60_000)).member_id
    connections = running.server.connections
    for _ in range(3):
        # The rebalance waits for the first member.
        with connect(running, client_id="gone") as gone:
            gone.send(JOIN, 9, join_message("g", second))
            eventually(lambda: running.call(lambda: any(one.is_busy for one in connections)))
        eventually(lambda: running.call(lambda: not any(one.is_busy for one in connections)))
    assert running.call(lambda: not running.server._tasks)
    # It still counts as one that has joined, as in Apache Kafka.
    joined = client.call(JOIN, 9, join_message("g", first.member_id))
    assert {one.member_id for one in joined.members} == {first.member_id, second}


def test_members_that_do_not_ask_for_their_assignment_are_removed(running: BrokerThread, client: WireClient) -> None:
    member = new_member(client, "g", session_ms=60_000, rebalance_ms=20_000)
    advance(running, 21)
    assert state(client, "g") == "Empty"
    assert heartbeat(client, "g", member.member_id, 1) == UNKNOWN_MEMBER


def test_an_id_that_is_not_used_is_forgotten(running: BrokerThread, client: WireClient, other: WireClient) -> None:
    first = stable_member(client, "g", session_ms=60_000)
    pending = other.call(JOIN, 9, join_message("g", session_ms=10_000)).member_id
    again = client.send(JOIN, 9, join_message("g", first.member_id))
    while state(other, "g") != "PreparingRebalance":
        pass
    # The rebalance waits for the member that was given an id.
    advance(running, 11)
    assert client.receive(JOIN, 9, again).generation_id == 2
    assert int(other.call(JOIN, 9, join_message("g", pending)).error_code) == UNKNOWN_MEMBER


@pytest.mark.slow
def test_the_first_rebalance_waits_for_others(tmp_path: Path) -> None:
    with start(tmp_path / "logs") as running, connect(running) as client, connect(running) as other:
        find_coordinator(client)
        member_id = client.call(JOIN, 9, join_message("g")).member_id
        waiting = client.send(JOIN, 9, join_message("g", member_id))
        while state(other, "g") != "PreparingRebalance":
            pass
        advance(running, 2)
        second = other.send(JOIN, 3, join_message("g"))
        while member_count(running, "g") < 2:
            pass
        advance(running, 2)
        # The second member gives the others more time.
        client.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.receive_frame()
        client.socket.settimeout(10)
        advance(running, 3)
        assert len(client.receive(JOIN, 9, waiting).members) == 2
        assert other.receive(JOIN, 3, second).generation_id == 1


def test_a_group_takes_as_many_members_as_it_may(tmp_path: Path) -> None:
    config = {"group.max.size": 1, "group.initial.rebalance.delay.ms": 0}
    with start(tmp_path / "logs", **config) as running, connect(running) as client:
        find_coordinator(client)
        stable_member(client, "g")
        assert int(client.call(JOIN, 9, join_message("g")).error_code) == 81


def test_a_static_member_comes_back_without_a_rebalance(client: WireClient, other: WireClient) -> None:
    joined = client.call(JOIN, 9, join_message("g", instance="one"))
    assert (int(joined.error_code), joined.generation_id) == (0, 1)
    assert joined.member_id.startswith("one-")
    sync = sync_message("g", joined.member_id, 1, {joined.member_id: b"all"}, "one")
    assert int(client.call(SYNC, 5, sync).error_code) == 0
    back = other.call(JOIN, 9, join_message("g", instance="one", session_ms=20_000))
    assert (back.generation_id, back.leader, back.skip_assignment) == (1, back.member_id, True)
    assert [one.group_instance_id for one in back.members] == ["one"]
    assert bytes(other.call(SYNC, 5, sync_message("g", back.member_id, 1, instance="one")).assignment) == b"all"
    assert heartbeat(client, "g", joined.member_id, 1, "one") == FENCED
    assert heartbeat(client, "g", back.member_id, 1, "one") == 0
    # Before v9 the leader's old id keeps the client from assigning.
    old = client.call(JOIN, 8, join_message("g", instance="one"))
    assert (old.generation_id, old.leader, old.members) == (1, back.member_id, ())


def test_a_static_member_with_another_protocol_makes_a_rebalance(client: WireClient) -> None:
    joined = client.call(JOIN, 9, join_message("g", instance="one", protocols={"a": b"", "b": b""}))
    sync = sync_message("g", joined.member_id, 1, {joined.member_id: b"all"}, "one", "a")
    assert int(client.call(SYNC, 5, sync).error_code) == 0
    back = client.call(JOIN, 9, join_message("g", instance="one", protocols={"b": SUBSCRIPTION, "a": b""}))
    assert (back.generation_id, back.protocol_name, bytes(back.members[0].metadata)) == (2, "b", SUBSCRIPTION)


def test_who_waits_under_a_replaced_id_is_told(client: WireClient, other: WireClient) -> None:
    static = client.call(JOIN, 9, join_message("g", instance="one"))
    follower = other.send(JOIN, 9, join_message("g", instance="two"))
    assert heartbeat_until(client, static.member_id, "one") == REBALANCE
    waiting = client.send(JOIN, 9, join_message("g", static.member_id, "one"))
    second = other.receive(JOIN, 9, follower)
    first = client.receive(JOIN, 9, waiting)
    assert first.generation_id == second.generation_id == 2
    # The follower waits for its assignment when another process takes its place.
    waiting = other.send(SYNC, 5, sync_message("g", second.member_id, 2, instance="two"))
    back = client.send(JOIN, 9, join_message("g", instance="two"))
    assert int(other.receive(SYNC, 5, waiting).error_code) == FENCED
    assert int(other.call(JOIN, 9, join_message("g", first.member_id, "one")).error_code) == 0
    assert client.receive(JOIN, 9, back).generation_id == 3


def heartbeat_until(client: WireClient, member_id: str, instance: str | None = None) -> int:
    """Send heartbeats until one is answered by an error."""
    while (code := heartbeat(client, "g", member_id, 1, instance)) == 0:
        pass
    return code


def test_static_members_are_removed_by_their_instance(client: WireClient) -> None:
    joined = client.call(JOIN, 9, join_message("g", instance="one"))
    answer = leave(client, "g", ("", "two"), (joined.member_id, "two"), ("nobody", "one"), ("", "one"))
    assert [int(one.error_code) for one in answer.members] == [UNKNOWN_MEMBER, UNKNOWN_MEMBER, FENCED, 0]
    assert state(client, "g") == "Empty"


def test_a_follower_that_asks_again_gets_the_same_generation(client: WireClient, other: WireClient) -> None:
    first = stable_member(client, "g")
    waiting = other.send(JOIN, 3, join_message("g"))
    assert heartbeat_until(client, first.member_id) == REBALANCE
    client.call(JOIN, 9, join_message("g", first.member_id))
    follower = other.receive(JOIN, 3, waiting)
    again = other.call(JOIN, 9, join_message("g", follower.member_id))
    assert (again.generation_id, again.members) == (2, ())
    changed = join_message("g", follower.member_id, protocols={"range": b"\0\0\0\0\0\0\xff\xff\xff\xff"})
    waiting = other.send(JOIN, 9, changed)
    while state(client, "g") != "PreparingRebalance":
        pass
    assert int(client.call(SYNC, 5, sync_message("g", first.member_id, 2)).error_code) == REBALANCE
    assert client.call(JOIN, 9, join_message("g", first.member_id)).generation_id == 3
    assert other.receive(JOIN, 9, waiting).generation_id == 3
