"""Consumer groups (KIP-848) over the wire: what is kept in the log, what time does, settings, and what others change.

What clients are answered in general is in `odradek.testing.conformance.consumer_groups`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.broker.config import BrokerConfig
from odradek.broker.running import BrokerThread
from odradek.coordination.groups.consumer import ConsumerGroup
from odradek.errors import InvalidConfigError
from odradek.testing.wire import WireClient
from peers.broker_thread import advance, connect, eventually, start
from peers.group_requests import (
    JOIN,
    commit,
    epochs_of,
    fetched,
    find_coordinator,
    join_message,
    leave,
    partitions,
    stable_member,
)
from peers.modern_groups import beat
from peers.requests import ask

pytestmark = pytest.mark.usefixtures("events")

BEAT, DESCRIBE = "ConsumerGroupHeartbeat", "ConsumerGroupDescribe"
FENCED, UNKNOWN_MEMBER, NOT_FOUND, UNSUPPORTED, INCONSISTENT, FENCED_INSTANCE = 110, 25, 69, 35, 23, 82


def described(client: WireClient, group: str = "g") -> Any:
    return ask(client, DESCRIBE, 1, group_ids=[group]).groups[0]


def epochs(client: WireClient) -> tuple[str, int, int, list[tuple[str, int]]]:
    return epochs_of(described(client))


def share(running: BrokerThread, client: WireClient) -> None:
    """Two members, of which the first has to give up a partition."""
    assert partitions(beat(client, "a")) == [0, 1]
    advance(running, 2)
    beat(client, "b")
    assert partitions(beat(client, "a", 2)) == [0]


@pytest.mark.slow
def test_a_group_is_loaded_with_its_epochs(tmp_path: Path) -> None:
    with start(tmp_path / "logs") as running, connect(running) as client:
        find_coordinator(client)
        running.broker.logs.create_topic("events", 2)
        share(running, client)
        before = epochs(client)
        assert before == ("Reconciling", 3, 3, [("a", 2), ("b", 3)])
        assert commit(client, "g", {0: 5}, "a", 2, version=9) == [0]
    with start(tmp_path / "logs") as running, connect(running) as client:
        eventually(lambda: int(described(client).error_code) == 0)
        assert epochs(client) == before
        topic_id = running.broker.logs.metadata_image.topics["events"].topic_id
        kept = [{"topic_id": topic_id, "partitions": [0]}]
        assert beat(client, "a", 2, topic_partitions=kept).member_epoch == 3
        assert partitions(beat(client, "b", 3)) == [1]
        # Nothing has changed meanwhile, so the epoch has not.
        assert epochs(client) == ("Stable", 3, 3, [("a", 3), ("b", 3)])
        assert fetched(client, "g", [0]) == [(5, 0)]


def test_a_silent_member_is_removed(running: BrokerThread, client: WireClient) -> None:
    beat(client, "a")
    advance(running, 44)
    assert int(beat(client, "a", 2).error_code) == 0
    advance(running, 44)
    assert len(described(client).members) == 1
    advance(running, 2)
    eventually(lambda: epochs(client) == ("Empty", 3, 3, []))
    assert int(beat(client, "a", 2).error_code) == UNKNOWN_MEMBER


def test_a_member_that_does_not_give_up_partitions_is_removed(running: BrokerThread, client: WireClient) -> None:
    share(running, client)
    for _ in range(3):
        advance(running, 19)
        assert int(beat(client, "a", 2).error_code) == int(beat(client, "b", 3).error_code) == 0
    advance(running, 4)
    eventually(lambda: [one.member_id for one in described(client).members] == ["b"])
    assert partitions(beat(client, "b", 3)) == [0, 1]


def test_a_member_that_gives_up_in_time_stays(running: BrokerThread, client: WireClient) -> None:
    share(running, client)
    topic_id = running.broker.logs.metadata_image.topics["events"].topic_id
    assert beat(client, "a", 2, topic_partitions=[{"topic_id": topic_id, "partitions": [0]}]).member_epoch == 3
    for _ in range(4):
        advance(running, 30)
        assert int(beat(client, "a", 3).error_code) == int(beat(client, "b", 3).error_code) == 0


def test_a_static_member_that_leaves_amid_a_rebalance_has_its_session_to_come_back(
    running: BrokerThread, client: WireClient
) -> None:
    beat(client, "a", instance_id="i", rebalance_timeout_ms=10_000)
    advance(running, 2)
    beat(client, "b")
    assert partitions(beat(client, "a", 2, instance_id="i")) == [0]
    beat(client, "a", -2, instance_id="i")
    advance(running, 30)
    assert int(beat(client, "b", 3).error_code) == 0
    assert sorted(one.member_id for one in described(client).members) == ["a", "b"]
    advance(running, 16)
    eventually(lambda: [one.member_id for one in described(client).members] == ["b"])


def test_a_group_has_settings_of_its_own(running: BrokerThread, client: WireClient) -> None:
    def change(name: str, value: str) -> int:
        config = {"name": name, "config_operation": 0, "value": value}
        resource = {"resource_type": 32, "resource_name": "g", "configs": [config]}
        return int(ask(client, "IncrementalAlterConfigs", 1, resources=[resource]).responses[0].error_code)

    assert change("consumer.session.timeout.ms", "50000") == 0
    assert change("consumer.heartbeat.interval.ms", "7000") == 0
    assert change("consumer.session.timeout.ms", "1000") == change("consumer.heartbeat.interval.ms", "90000") == 40
    assert beat(client, "a").heartbeat_interval.total_seconds() == 7
    advance(running, 48)
    assert len(described(client).members) == 1
    advance(running, 3)
    eventually(lambda: described(client).members == ())


def test_settings_of_the_broker(tmp_path: Path) -> None:
    config = {"group.consumer.max.size": 1, "group.consumer.assignors": "range"}
    with start(tmp_path / "logs", **config) as running, connect(running) as client:
        find_coordinator(client)
        running.broker.logs.create_topic("events", 2)
        beat(client, "a")
        assert described(client).assignor_name == "range"
        assert int(beat(client, "b").error_code) == 81
        assert int(beat(client, "a", 0, server_assignor="uniform").error_code) == 112
        update = {"feature": "group.version", "max_version_level": 0, "upgrade_type": 2}
        assert int(ask(client, "UpdateFeatures", 1, feature_updates=[update], validate_only=False).error_code) == 0
        assert int(beat(client, "a").error_code) == int(described(client).error_code) == UNSUPPORTED


@pytest.mark.slow
def test_groups_with_members_do_not_change_their_protocol_if_that_is_disabled(tmp_path: Path) -> None:
    config = {"group.consumer.migration.policy": "Disabled"}
    with start(tmp_path / "logs", **config) as running, connect(running) as client:
        find_coordinator(client)
        running.broker.logs.create_topic("events", 2)
        beat(client, "a")
        assert int(client.call(JOIN, 9, join_message("g")).error_code) == INCONSISTENT
        stable_member(client, "classic")
        assert int(beat(client, "a", group="classic").error_code) == NOT_FOUND
        assert int(beat(client, "a", 1, group="classic").error_code) == NOT_FOUND


def test_an_administrator_removes_members(running: BrokerThread, client: WireClient) -> None:
    for member, fields in (("a", {"instance_id": "i"}), ("b", {}), ("c", {"instance_id": "j"})):
        beat(client, member, 0, **fields)
    epoch = described(client).group_epoch
    answer = leave(client, "g", ("", "i"), ("b", None), ("b", None), ("z", None), ("a", "j"), ("", "k"))
    assert [int(one.error_code) for one in answer.members] == [0, 0, 0, UNKNOWN_MEMBER, FENCED_INSTANCE, UNKNOWN_MEMBER]
    assert [(one.member_id, one.group_instance_id) for one in answer.members[:2]] == [("", "i"), ("b", None)]
    found = described(client)
    assert ([one.member_id for one in found.members], found.group_epoch) == (["c"], epoch + 1)
    assert [int(one.error_code) for one in leave(client, "g", ("a", None)).members] == [UNKNOWN_MEMBER]
    assert described(client).group_epoch == epoch + 1
    advance(running, 46)
    eventually(lambda: described(client).group_state == "Empty")


def test_a_write_that_fails_changes_nothing(running: BrokerThread, client: WireClient) -> None:
    beat(client, "a")
    before = epochs(client)
    running.broker.logs.alter_topic_config("__consumer_offsets", {"max.message.bytes": "10"})
    assert int(beat(client, "b").error_code) == -1
    assert int(beat(client, "a", -1).error_code) == -1
    assert epochs(client) == before
    running.broker.logs.alter_topic_config("__consumer_offsets", {"max.message.bytes": "1000000"})
    assert int(beat(client, "a", -1).error_code) == 0


@pytest.mark.slow
def test_heartbeats_of_a_group_wait_for_each_other(running: BrokerThread, client: WireClient) -> None:
    names = [f"t{number}" for number in range(2_000)]
    sent = []
    for number in range(5):
        full = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": names, "topic_partitions": []}
        asked = {"group_id": "g", "member_id": f"m{number}", "member_epoch": 0, "instance_id": None, "rack_id": None}
        other = connect(running)
        asked |= {"server_assignor": None, "subscribed_topic_regex": None, **full}
        sent.append((other, other.send(68, 1, asked)))
    for other, number in sent:
        assert int(other.receive(68, 1, number).error_code) == 0
        other.close()
    group = running.call(lambda: running.broker.groups.shard("g").groups["g"])
    assert isinstance(group, ConsumerGroup)
    assert (len(group.members), group.epoch) == (5, 6)


def test_a_refusal_has_the_epoch_0(client: WireClient) -> None:
    refused = beat(client, "a", 1)
    assert (refused.error_code, refused.member_id, refused.member_epoch) == (NOT_FOUND, None, 0)
    for group, code in (("none", NOT_FOUND), ("", 24)):
        found = described(client, group)
        assert (found.error_code, found.group_epoch, found.assignment_epoch) == (code, 0, 0)


def test_the_ids_of_old_clients_come_from_the_broker(client: WireClient) -> None:
    fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [], "topic_partitions": []}
    answer = ask(client, BEAT, 0, group_id="g", member_id="", member_epoch=0, **fields)
    assert (int(answer.error_code), len(answer.member_id)) == (0, 22)


@pytest.mark.parametrize(
    ("member_id", "code"), [("\0", 42), ("\x1f \t", 42), ("\x85", 0), ("\u00a0", 0), ("\u2003", 0), ("\x7f", 0)]
)
def test_what_is_empty_is_said_as_java_trims(client: WireClient, member_id: str, code: int) -> None:
    fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    answer = ask(client, BEAT, 1, group_id="g", member_id=member_id, member_epoch=0, **fields)
    assert int(answer.error_code) == code


@pytest.mark.sampled
@pytest.mark.parametrize(
    "pattern", ["(a*)*b", "((a{10}){10}){10}", "(" * 1000 + ")" * 1000, "x" * 32_000, "(?i).*a.*b.*c"]
)
def test_a_pattern_that_takes_other_engines_forever_does_no_harm(
    running: BrokerThread, client: WireClient, pattern: str
) -> None:
    running.broker.logs.create_topic("a" * 200, 1)
    beat(client, "m", subscribed_topic_names=None, subscribed_topic_regex=pattern)
    began = running.broker.clock.elapsed_ms()
    advance(running, 15)
    for member in described(client).members:
        assert int(beat(client, "m", member.member_epoch).error_code) == 0
    assert running.broker.clock.elapsed_ms() - began < 25_000


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "config",
    [
        {"group.consumer.session.timeout.ms": "1000"},
        {"group.consumer.heartbeat.interval.ms": "16000"},
        {"group.consumer.assignment.interval.ms": "16000"},
        {"group.consumer.assignors": "uniform,com.example.Mine"},
        {"group.consumer.migration.policy": "both"},
        {"group.consumer.max.heartbeat.interval.ms": "50000", "group.consumer.heartbeat.interval.ms": "45000"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(config: dict[str, str]) -> None:
    with pytest.raises(InvalidConfigError, match=r"group\.consumer"):
        BrokerConfig(config)
