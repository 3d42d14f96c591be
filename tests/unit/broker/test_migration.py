"""Groups that move between the protocols: what happens meanwhile, what cannot be written, and what time does.

What clients are answered in general is in `odradek.testing.conformance.migration`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.api.k13_leave_group import leave_group
from odradek.broker.groups.membership import JoinRequest, LeavingMember
from odradek.broker.running import BrokerThread
from odradek.broker.turns import whole
from odradek.coordination.groups.classic import ClassicGroup
from odradek.coordination.groups.consumer import ConsumerGroup
from odradek.coordination.groups.heartbeat import HeartbeatRequest
from odradek.testing.wire import WireClient
from peers import modern_groups
from peers.broker_thread import advance, connect, eventually, start
from peers.group_requests import JOIN, commit, fetched, find_coordinator
from peers.mixed_groups import ClassicMember, assignment, subscription
from peers.requests import ask

pytestmark = pytest.mark.usefixtures("events")

REBALANCE, UNKNOWN_MEMBER = 27, 25
CLASSIC_DELAY = {"group.initial.rebalance.delay.ms": 0}


def beat(client: WireClient, member: str = "x", epoch: int = 0, **fields: Any) -> Any:
    return modern_groups.beat(client, member, epoch, **fields)


def members(client: WireClient) -> set[str]:
    return {one.member_id for one in ask(client, "ConsumerGroupDescribe", 1, group_ids=["g"]).groups[0].members}


def classic_state(client: WireClient) -> str:
    return str(ask(client, "DescribeGroups", 5, groups=["g"]).groups[0].group_state)


def classic_group(running: BrokerThread, client: WireClient, **fields: int) -> ClassicMember:
    """Let a member have both partitions, alone in a classic group."""
    one = ClassicMember(client, "g", instance="i")
    running.call(lambda: running.broker.config._values.__setitem__("group.initial.rebalance.delay.ms", 0))
    one.join(**fields)
    one.sync(assignment("events", 0, 1))
    assert (one.generation, one.has) == (1, [0, 1])
    return one


def join_request(member_id: str, metadata: bytes | None = None, instance: str | None = None) -> JoinRequest:
    protocols = (("range", subscription(["events"]) if metadata is None else metadata),)
    return JoinRequest(9, "g", member_id, instance, "c", "/h", 10_000, 30_000, "consumer", protocols, "")


def heartbeat(member: str, epoch: int = 0, topics: tuple[str, ...] = ("events",)) -> HeartbeatRequest:
    return HeartbeatRequest(member, epoch, None, None, 60_000, frozenset(topics), None, None, {}, "c", "/h")


def test_a_classic_request_during_an_upgrade_is_seen_by_it(running: BrokerThread, client: WireClient) -> None:
    one = classic_group(running, client)

    def race() -> None:
        shard = running.broker.groups.shard("g")
        upgrading = shard.consumers.heartbeat("g", heartbeat("x"))
        next(upgrading)
        # It has read the member that leaves now.
        whole(shard.members.leave("g", [LeavingMember(one.member_id, "i", "")]))
        member = whole(upgrading).member
        assert member is not None
        assert sum(map(len, member.assigned.values())) == 2
        group = shard.groups["g"]
        assert isinstance(group, ConsumerGroup)
        assert group.members.keys() == {"x"}

    running.call(race)


def test_a_classic_member_that_leaves_before_an_upgrade_reads_it_is_not_missed(
    running: BrokerThread, client: WireClient
) -> None:
    one = classic_group(running, client)

    def race() -> None:
        shard = running.broker.groups.shard("g")
        group = shard.groups["g"]
        assert isinstance(group, ClassicGroup)
        for number in range(20):
            group.add(replace(group.members[one.member_id], member_id=f"m{number}", instance_id=None, assignment=b""))
        upgrading = shard.consumers.heartbeat("g", heartbeat("x"))
        next(upgrading)
        whole(shard.members.leave("g", [LeavingMember(name, None, "") for name in list(group.members)[1:]]))
        assert whole(upgrading).member is not None
        made = shard.groups["g"]
        assert isinstance(made, ConsumerGroup)
        assert made.members.keys() == {"x", one.member_id}

    running.call(race)


def test_a_member_that_leaves_during_an_upgrade_is_gone_if_the_answer_says_so(
    running: BrokerThread, client: WireClient
) -> None:
    one = classic_group(running, client)

    def race() -> Any:
        named = [SimpleNamespace(member_id=name, group_instance_id=None) for name in ("unknown", one.member_id)]
        body = SimpleNamespace(group_id="g", members=named)
        leaving: Any = leave_group(SimpleNamespace(body=body, version=5, broker=running.broker))  # type: ignore[arg-type]
        # The first one was looked at.
        next(leaving)
        shard = running.broker.groups.shard("g")
        whole(shard.consumers.heartbeat("g", heartbeat("x")))
        answers = whole(leaving)["members"]
        group = shard.groups["g"]
        assert isinstance(group, ConsumerGroup)
        assert group.members.keys() == {"x"}
        return [int(answer["error_code"]) for answer in answers]

    assert running.call(race) == [UNKNOWN_MEMBER, 0]


def test_a_member_that_leaves_during_a_downgrade_leaves_the_classic_group(
    running: BrokerThread, client: WireClient
) -> None:
    beat(client)
    assert int(ClassicMember(client, "g", "m").join().error_code) == 0

    def race() -> Any:
        shard = running.broker.groups.shard("g")
        removing = shard.consumers.remove_members("g", [LeavingMember("m", None, "")])
        departing = shard.consumers.leave("g", heartbeat("x", -1))
        next(departing)
        while next(removing) is None:
            # It gets to where it waits for its turn.
            pass
        whole(departing)
        assert isinstance(shard.groups["g"], ClassicGroup)
        return whole(removing)

    assert running.call(race) == []


def test_a_join_that_waits_for_a_downgrade_joins_the_classic_group(running: BrokerThread, client: WireClient) -> None:
    beat(client)
    assert int(ClassicMember(client, "g", "m").join().error_code) == 0

    def race() -> Any:
        shard = running.broker.groups.shard("g")
        leaving = shard.consumers.leave("g", heartbeat("x", -1))
        next(leaving)
        joining = shard.classic_consumers.join(join_request("new"))
        while next(joining) is None:
            # It gets to where it waits for its turn.
            pass
        whole(leaving)
        assert isinstance(shard.groups["g"], ClassicGroup)
        return whole(joining)

    assert running.call(race) is None


def test_a_join_whose_client_goes_while_it_waits_does_not_keep_others_from_the_group(
    running: BrokerThread, client: WireClient
) -> None:
    for name in "xy":
        beat(client, name)
    shard = running.call(lambda: running.broker.groups.shard("g"))
    leaving = shard.consumers.leave("g", heartbeat("x", -1))
    running.call(lambda: next(leaving))
    other = connect(running)
    other.send(JOIN, 9, ClassicMember(other, "g", "m").join_message())
    waiting = shard.consumers._changes._turnstiles._waiting
    eventually(lambda: running.call(lambda: len(waiting["g"])) == 1)

    def end() -> None:
        whole(leaving)
        # Its turn has come, and it has not taken it yet.
        list(running.server.connections)[-1].close()

    running.call(end)
    assert int(beat(client, "y", 2).error_code) == 0
    eventually(lambda: members(client) == {"y", "m"})
    other.close()


def test_an_upgrade_that_cannot_be_written_changes_nothing(running: BrokerThread, client: WireClient) -> None:
    one = classic_group(running, client)
    running.broker.logs.alter_topic_config("__consumer_offsets", {"max.message.bytes": "10"})
    assert int(beat(client).error_code) != 0
    assert (classic_state(client), one.beat()) == ("Stable", 0)
    running.broker.logs.alter_topic_config("__consumer_offsets", {"max.message.bytes": "1000000"})
    assert beat(client).member_epoch == 2
    assert one.beat() == REBALANCE


def test_a_downgrade_that_cannot_be_written_changes_nothing(running: BrokerThread, client: WireClient) -> None:
    classic_group(running, client)
    beat(client)
    before = members(client)
    running.broker.logs.alter_topic_config("__consumer_offsets", {"max.message.bytes": "10"})
    assert int(beat(client, "x", -1).error_code) != 0
    assert members(client) == before
    running.broker.logs.alter_topic_config("__consumer_offsets", {"max.message.bytes": "1000000"})
    assert int(beat(client, "x", -1).error_code) == 0
    assert classic_state(client) == "PreparingRebalance"


def test_a_session_that_ends_downgrades(running: BrokerThread, client: WireClient) -> None:
    one = classic_group(running, client)
    assert commit(client, "g", {0: 5}, one.member_id, 1, group_instance_id="i") == [0]
    beat(client)
    for _ in range(9):
        # The classic member has a session of its own, which is shorter.
        one.join()
        one.sync()
        advance(running, 5)
    eventually(lambda: classic_state(client) == "PreparingRebalance")
    assert fetched(client, "g", [0]) == [(5, 0)]
    assert one.beat() == REBALANCE


def test_a_downgraded_members_session_counts(running: BrokerThread, client: WireClient) -> None:
    classic_group(running, client, session_ms=10_000)
    beat(client)
    beat(client, "x", -1)
    advance(running, 11)
    eventually(lambda: classic_state(client) in ("Empty", "Dead"))


@pytest.mark.parametrize("is_told", ["heartbeat", "sync"])
def test_a_classic_member_has_a_time_to_join_again_from_the_first_time_on(
    running: BrokerThread, client: WireClient, is_told: str
) -> None:
    one = classic_group(running, client)
    beat(client)
    for seconds in (9, 9, 9):
        assert (one.beat() if is_told == "heartbeat" else int(one.sync().error_code)) == REBALANCE
        beat(client, "x", 2)
        advance(running, seconds)
        one.beat()
    assert one.member_id in members(client)
    advance(running, 4)
    eventually(lambda: members(client) == {"x"})


def test_a_classic_member_that_joins_in_time_stays(running: BrokerThread, client: WireClient) -> None:
    one = classic_group(running, client)
    beat(client)
    assert one.beat() == REBALANCE
    one.join()
    one.sync()
    for _ in range(5):
        advance(running, 9)
        assert one.beat() == 0
        beat(client, "x", 2)
    assert members(client) == {"x", one.member_id}


def test_a_classic_member_has_a_time_to_sync(running: BrokerThread, client: WireClient) -> None:
    one = classic_group(running, client)
    beat(client)
    one.join()
    for _ in range(3):
        advance(running, 9)
        assert one.beat() == 0
        beat(client, "x", 2)
    advance(running, 4)
    eventually(lambda: members(client) == {"x"})


@pytest.mark.slow
def test_a_mixed_group_is_loaded_and_goes_on(tmp_path: Path) -> None:
    with start(tmp_path / "logs", **CLASSIC_DELAY) as running, connect(running) as client:
        find_coordinator(client)
        running.broker.logs.create_topic("events", 2)
        beat(client)
        one = ClassicMember(client, "g", "m")
        advance(running, 2)
        assert int(one.join(session_ms=10_000).error_code) == 0
        one.sync()
        before = (one.generation, one.has)
    with start(tmp_path / "logs", **CLASSIC_DELAY) as running, connect(running) as client:
        eventually(lambda: members(client) == {"x", "m"})
        one.client = client
        # After a start all have a consumer's session; then the classic member has its own again.
        advance(running, 44)
        assert beat(client, "x", 2).member_epoch == 2
        assert (one.beat(), one.generation, one.has) == (0, *before)
        advance(running, 11)
        eventually(lambda: members(client) == {"x"})


@pytest.mark.slow
def test_a_subscription_of_many_topics_joins_in_turns(running: BrokerThread, client: WireClient) -> None:
    beat(client)
    metadata = subscription([f"t{number}" for number in range(20_000)])
    turns = running.call(
        lambda: sum(1 for _ in running.broker.groups.shard("g").classic_consumers.join(join_request("m", metadata)))
    )
    assert turns > 400
    assert members(client) == {"x", "m"}


def test_texts_that_records_do_not_hold_are_refused(running: BrokerThread, client: WireClient) -> None:
    beat(client)
    answer = client.call(JOIN, 9, ClassicMember(client, "g", "m" * 40_000).join_message())
    assert int(answer.error_code) != 0
    assert members(client) == {"x"}
