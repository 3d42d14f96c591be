"""Consumer groups (KIP-848) while a heartbeat takes several turns of the loop, or what is due cannot be written."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest

from odradek.broker.groups.membership import JoinRequest
from odradek.broker.running import BrokerThread
from odradek.broker.turns import whole
from odradek.coordination.errors import RefusedError
from odradek.coordination.groups import topics
from odradek.coordination.groups.classic import ClassicGroup
from odradek.coordination.groups.heartbeat import HeartbeatRequest
from odradek.storage.metadata.new_topic import NewTopic
from odradek.testing.wire import WireClient
from peers.broker_thread import advance, eventually
from peers.group_requests import SUBSCRIPTION, commit
from peers.modern_groups import beat
from peers.requests import ask, new_topic

pytestmark = pytest.mark.usefixtures("events")

UNKNOWN_MEMBER = 25

MANY = [f"t{number}" for number in range(500)]
"""More topics than a heartbeat looks at in one turn."""


def request(member: str, epoch: int = 0, names: Iterable[str] = MANY) -> HeartbeatRequest:
    return HeartbeatRequest(member, epoch, None, None, 60_000, frozenset(names), None, None, {}, "client", "/host")


def test_a_classic_member_that_joins_during_a_heartbeat_keeps_its_group(
    running: BrokerThread, client: WireClient
) -> None:
    assert commit(client, "g", {0: 5}) == [0]

    def race() -> None:
        shard = running.broker.groups.shard("g")
        heartbeat = shard.consumers.heartbeat("g", request("m"))
        next(heartbeat)
        protocols = (("range", SUBSCRIPTION),)
        shard.members.join(JoinRequest(9, "g", "", "i", "c", "/h", 10_000, 30_000, "consumer", protocols, ""))
        with pytest.raises(RefusedError, match="no protocol yet"):
            whole(heartbeat)
        group = shard.groups["g"]
        assert isinstance(group, ClassicGroup)
        assert group.static_members.keys() == {"i"}

    running.call(race)


def test_a_member_stays_whose_session_ends_during_its_heartbeat(running: BrokerThread, client: WireClient) -> None:
    assert beat(client, "a").member_epoch == 2

    def session_ends() -> Any:
        heartbeat = running.broker.groups.shard("g").consumers.heartbeat("g", request("a", 2))
        next(heartbeat)
        running.broker.clock.advance(46)
        return heartbeat

    heartbeat = running.call(session_ends)
    # What is due waits for the heartbeat by now.
    running.call(lambda: None)
    running.call(lambda: whole(heartbeat))
    assert int(beat(client, "a", 2).error_code) == 0
    advance(running, 46)
    eventually(lambda: int(beat(client, "a", 2).error_code) == UNKNOWN_MEMBER)


def is_member(client: WireClient, member: str) -> bool:
    group = ask(client, "ConsumerGroupDescribe", 1, group_ids=["g"]).groups[0]
    return member in [one.member_id for one in group.members]


def has_to_give_up(running: BrokerThread, client: WireClient, **fields: Any) -> None:
    """Member `a` has to give up a partition to member `b`."""
    beat(client, "a", **fields)
    advance(running, 2)
    beat(client, "b")
    [topic] = beat(client, "a", 2, **fields).assignment.topic_partitions
    assert topic.partitions == (0,)


def test_a_member_that_is_late_is_removed_although_that_could_not_be_written_at_first(
    running: BrokerThread, client: WireClient
) -> None:
    has_to_give_up(running, client)
    for _ in range(3):
        advance(running, 19)
        assert int(beat(client, "a", 2).error_code) == int(beat(client, "b", 3).error_code) == 0
    running.broker.logs.alter_topic_config("__consumer_offsets", {"max.message.bytes": "10"})
    advance(running, 4)
    assert int(beat(client, "a", 2).error_code) == 0
    running.broker.logs.alter_topic_config("__consumer_offsets", {"max.message.bytes": "1000000"})
    advance(running, 1)
    eventually(lambda: not is_member(client, "a"))
    assert is_member(client, "b")


def test_nothing_is_kept_of_members_that_have_given_up_partitions_and_come_back_with_other_ids(
    running: BrokerThread, client: WireClient
) -> None:
    has_to_give_up(running, client, instance_id="i")
    topic_id = running.broker.logs.metadata_image.topics["events"].topic_id
    kept = [{"topic_id": topic_id, "partitions": [0]}]
    assert beat(client, "a", 2, instance_id="i", topic_partitions=kept).member_epoch == 3
    assert int(beat(client, "a", -2, instance_id="i").error_code) == 0
    assert int(beat(client, "again", instance_id="i").error_code) == 0
    for member, fields in (("again", {"instance_id": "i"}), ("b", {})):
        assert int(beat(client, member, -1, **fields).error_code) == 0
    advance(running, 46)
    assert running.call(lambda: running.broker.groups.shard("g").consumers._revoking) == {}


@pytest.mark.slow
def test_patterns_that_take_long_leave_the_threads_to_others(
    running: BrokerThread, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    is_over = threading.Event()

    class Slow:
        def fullmatch(self, name: str) -> None:
            tried.append(name)
            is_over.wait(0.005)

    monkeypatch.setattr(topics, "compiled_pattern", lambda regex: Slow())
    running.broker.logs.create_topics([NewTopic(name) for name in MANY[:50]])
    for number in range(8):
        beat(client, "m", group_id=f"g{number}", subscribed_topic_names=None, subscribed_topic_regex="slow")
    try:
        assert int(ask(client, "CreateTopics", 7, topics=[new_topic("quick")]).topics[0].error_code) == 0
        assert len(tried) < 4 * 50
    finally:
        is_over.set()
