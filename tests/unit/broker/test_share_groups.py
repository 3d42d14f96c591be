"""Share groups (KIP-932) over the wire: what is kept in the log, what time does, settings, and what others change.

What clients are answered in general is in `odradek.testing.conformance.share_groups`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from odradek.broker.config import BrokerConfig
from odradek.broker.errors import ApiError
from odradek.broker.groups.shard import Commit
from odradek.broker.running import BrokerThread
from odradek.broker.shares import ShareSummary
from odradek.broker.turns import whole
from odradek.coordination.errors import RefusedError
from odradek.coordination.groups.share import ShareGroup
from odradek.coordination.groups.share_heartbeat import ShareHeartbeatRequest
from odradek.coordination.groups.share_topics import ShareTopics
from odradek.errors import InvalidConfigError
from odradek.messages.coordinators.group_records import OffsetCommitValue
from odradek.storage.metadata.metadata_image import GROUP_RESOURCE, ConfigResource
from odradek.storage.names import TopicPartition
from odradek.testing.wire import WireClient
from peers.broker_thread import advance, connect, eventually, start
from peers.group_requests import commit, epochs_of, fetched, find_coordinator, partitions
from peers.http import metrics
from peers.memory_share_state import MemoryShareState
from peers.modern_groups import share_beat as beat
from peers.requests import ask

pytestmark = pytest.mark.usefixtures("events")

UNKNOWN_MEMBER, NOT_FOUND, UNSUPPORTED, NON_EMPTY, FULL, UNKNOWN_TOPIC = 25, 69, 35, 68, 81, 3
WEEKS_S = 30 * 86_400


def described(client: WireClient, group: str = "g") -> Any:
    return ask(client, "ShareGroupDescribe", 1, group_ids=[group]).groups[0]


def epochs(client: WireClient) -> tuple[str, int, int, list[tuple[str, int]]]:
    return epochs_of(described(client))


def settled(running: BrokerThread, client: WireClient, member: str = "a") -> int:
    """Let a member join and get its partitions; return its epoch."""
    beat(client, member)
    advance(running, 2)
    eventually(lambda: not topics_of(running).initializing)
    answer = beat(client, member)
    assert partitions(answer) == [0, 1]
    return int(answer.member_epoch)


def group_of(running: BrokerThread, group: str = "g") -> ShareGroup:
    found = running.call(lambda: running.broker.groups.share_group(group))
    assert found is not None
    return found


def topics_of(running: BrokerThread) -> ShareTopics:
    found = group_of(running).topics
    assert found is not None
    return found


def alter(client: WireClient, offset: int = 5, group: str = "g", partition: int = 0) -> Any:
    topics = [{"topic_name": "events", "partitions": [{"partition_index": partition, "start_offset": offset}]}]
    return ask(client, "AlterShareGroupOffsets", 0, group_id=group, topics=topics)


def offsets(client: WireClient, group: str = "g") -> list[tuple[int, int, int]]:
    """Return partition, start offset and lag of what a group has."""
    asked = [{"group_id": group, "topics": None}]
    (found,) = ask(client, "DescribeShareGroupOffsets", 1, groups=asked).groups
    assert int(found.error_code) == 0
    return sorted(
        (one.partition_index, one.start_offset, one.lag) for topic in found.topics for one in topic.partitions
    )


def delete(client: WireClient, group: str = "g") -> int:
    return int(ask(client, "DeleteGroups", 2, groups_names=[group]).results[0].error_code)


class BrokenShareState(MemoryShareState):
    """A share state that fails as long as that is wanted."""

    is_broken = True
    gate: asyncio.Event | None = None

    async def initialize(self, *arguments: Any) -> None:
        await (self.gate.wait() if self.gate is not None else asyncio.sleep(0))
        if self.is_broken:
            raise ApiError(ErrorCode.coordinator_not_available)
        await super().initialize(*arguments)

    async def delete(self, *arguments: Any) -> None:
        if self.is_broken:
            raise ApiError(ErrorCode.not_coordinator)
        await super().delete(*arguments)

    async def summary(self, *arguments: Any) -> ShareSummary:
        if self.is_broken:
            raise ApiError(ErrorCode.not_coordinator)
        return await super().summary(*arguments)


@pytest.fixture
def share_state(running: BrokerThread) -> BrokenShareState:
    """Replaces the broker's share state, before it is used."""
    state = BrokenShareState()

    def put() -> None:
        running.broker.groups.shard("g").shares.share_state = state

    running.call(put)
    return state


def test_metrics_count_groups_by_type_and_state(running: BrokerThread, client: WireClient, base: str) -> None:
    settled(running, client)
    assert commit(client, "classic", {0: 1}) == [0]
    # On a slow machine the member's session may have ended meanwhile.
    state = described(client).group_state
    found = metrics(base)
    counted = {f'state="{state}",type="share"': 1, 'state="Empty",type="classic"': 1}
    assert {labels: found.get(f"odradek_group_count{{{labels}}}") for labels in counted} == counted


@pytest.mark.slow
def test_a_group_is_loaded_with_its_epochs(tmp_path: Path) -> None:
    with start(tmp_path / "logs") as running, connect(running) as client:
        find_coordinator(client)
        running.broker.logs.create_topic("events", 2)
        epoch = settled(running, client)
        before, topics = epochs(client), topics_of(running).value()
    with start(tmp_path / "logs") as running, connect(running) as client:
        eventually(lambda: int(described(client).error_code) == 0)
        assert epochs(client) == before == ("Stable", 3, 3, [("a", 3)])
        assert topics_of(running).value() == topics
        # Nothing has changed meanwhile, so the epoch has not.
        assert (beat(client, "a", epoch).member_epoch, epochs(client)) == (epoch, before)
        advance(running, 46)
        eventually(lambda: epochs(client) == ("Empty", 4, 4, []))


def test_a_silent_member_is_removed(running: BrokerThread, client: WireClient) -> None:
    epoch = settled(running, client)
    advance(running, 44)
    assert int(beat(client, "a", epoch).error_code) == 0
    advance(running, 44)
    assert len(described(client).members) == 1
    advance(running, 2)
    eventually(lambda: epochs(client) == ("Empty", epoch + 1, epoch + 1, []))
    assert int(beat(client, "a", epoch).error_code) == UNKNOWN_MEMBER


@pytest.mark.slow
def test_an_empty_group_does_not_expire(running: BrokerThread, client: WireClient) -> None:
    settled(running, client)
    beat(client, "a", -1)
    commit(client, "other", {0: 5})
    advance(running, WEEKS_S)
    eventually(lambda: "other" not in {one.group_id for one in ask(client, "ListGroups", 5).groups})
    assert described(client).group_state == "Empty"


def test_partitions_are_initialized_when_the_share_state_works_again(
    running: BrokerThread, client: WireClient, share_state: BrokenShareState
) -> None:
    beat(client, "a")
    eventually(lambda: not topics_of(running).initializing)
    advance(running, 2)
    assert partitions(beat(client, "a")) == []
    share_state.is_broken = False
    settled(running, client)


def test_what_fails_in_the_share_state_is_told(
    running: BrokerThread, client: WireClient, share_state: BrokenShareState
) -> None:
    codes = [int(one.error_code) for topic in alter(client).responses for one in topic.partitions]
    assert codes == [int(ErrorCode.coordinator_not_available)]
    assert offsets(client) == []
    share_state.is_broken = False
    alter(client)
    assert offsets(client) == [(0, 5, -5)]
    share_state.is_broken = True
    assert offsets(client) == [(0, -1, -1)]
    assert delete(client) == int(ErrorCode.not_coordinator)
    topics = [{"topic_name": "events"}]
    answer = ask(client, "DeleteShareGroupOffsets", 0, group_id="g", topics=topics)
    assert [int(one.error_code) for one in answer.responses] == [int(ErrorCode.not_coordinator)]
    # It may be tried again.
    share_state.is_broken = False
    answer = ask(client, "DeleteShareGroupOffsets", 0, group_id="g", topics=topics)
    assert [int(one.error_code) for one in answer.responses] == [0]
    assert not topics_of(running).deleting
    assert delete(client) == 0


def test_a_deleted_group_leaves_no_share_state(running: BrokerThread, client: WireClient) -> None:
    alter(client)
    assert offsets(client) == [(0, 5, -5)]
    assert delete(client) == 0
    assert int(described(client).error_code) == NOT_FOUND
    log = running.broker.logs["__consumer_offsets", running.broker.groups.partition_for("g")]
    removed = [record.key[1] for record in log.read() if record.key and record.value is None]
    assert removed == [12, 15, 11]
    topics = [{"topic_name": "events", "partitions": [0]}]
    (found,) = ask(client, "DescribeShareGroupOffsets", 1, groups=[{"group_id": "g", "topics": topics}]).groups
    assert found.topics[0].partitions[0].start_offset == -1


def test_a_topic_that_is_deleted_is_forgotten(running: BrokerThread, client: WireClient) -> None:
    settled(running, client)
    ask(client, "DeleteTopics", 6, topics=[{"name": "events", "topic_id": None}], timeout_ms=1000)
    eventually(lambda: not topics_of(running).initialized)
    advance(running, 2)
    assert partitions(beat(client, "a")) == []
    running.broker.logs.create_topic("events", 2)
    settled(running, client)


@pytest.mark.slow
def test_settings_of_the_broker(tmp_path: Path) -> None:
    with start(tmp_path / "logs", **{"group.share.max.size": 1}) as running, connect(running) as client:
        find_coordinator(client)
        running.broker.logs.create_topic("events", 2)
        settled(running, client)
        assert int(beat(client, "b").error_code) == FULL
        update = {"feature": "share.version", "max_version_level": 0, "upgrade_type": 2}
        assert int(ask(client, "UpdateFeatures", 1, feature_updates=[update], validate_only=False).error_code) == 0
        assert int(beat(client, "a").error_code) == int(described(client).error_code) == UNSUPPORTED
        assert int(alter(client).error_code) == UNSUPPORTED
        asked = [{"group_id": "g", "topics": None}]
        (found,) = ask(client, "DescribeShareGroupOffsets", 1, groups=asked).groups
        assert int(found.error_code) == UNSUPPORTED
        topics = [{"topic_name": "events"}]
        answer = ask(client, "DeleteShareGroupOffsets", 0, group_id="g", topics=topics)
        assert int(answer.error_code) == UNSUPPORTED


def test_a_group_has_settings_of_its_own(running: BrokerThread, client: WireClient) -> None:
    def change(name: str, value: str) -> int:
        config = {"name": name, "config_operation": 0, "value": value}
        resource = {"resource_type": 32, "resource_name": "g", "configs": [config]}
        return int(ask(client, "IncrementalAlterConfigs", 1, resources=[resource]).responses[0].error_code)

    assert change("share.session.timeout.ms", "50000") == 0
    assert change("share.heartbeat.interval.ms", "7000") == 0
    assert change("share.auto.offset.reset", "earliest") == 0
    assert beat(client, "a").heartbeat_interval.total_seconds() == 7
    advance(running, 48)
    assert len(described(client).members) == 1
    advance(running, 3)
    eventually(lambda: described(client).members == ())
    settings = running.broker.group_settings
    assert settings.number("g", "share.delivery.count.limit") == 5
    assert settings.text("g", "share.auto.offset.reset") == "earliest"
    assert settings.text("other", "share.auto.offset.reset") == "latest"


def test_a_setting_of_a_group_that_is_out_of_bounds_by_now_is_moved(running: BrokerThread) -> None:
    name = "share.session.timeout.ms"
    settings = running.broker.group_settings
    for given, counts in (("1000", 45_000), ("50000", 50_000), ("90000", 60_000)):
        running.broker.logs.metadata.alter_configs({ConfigResource(GROUP_RESOURCE, "g"): {name: given}})
        assert settings.number("g", name) == counts


def test_a_refusal_has_the_epoch_0(client: WireClient) -> None:
    refused = beat(client, "a", 1)
    assert (refused.error_code, refused.member_id, refused.member_epoch) == (69, None, 0)
    for group, code in (("", 24), ("none", 69)):
        found = described(client, group)
        assert (found.error_code, found.group_epoch, found.assignment_epoch) == (code, 0, 0)


def test_a_write_that_fails_changes_nothing(running: BrokerThread, client: WireClient) -> None:
    settled(running, client)
    before = epochs(client)
    running.broker.logs.alter_topic_config("__consumer_offsets", {"max.message.bytes": "10"})
    assert int(beat(client, "b").error_code) == -1
    assert int(beat(client, "a", -1).error_code) == -1
    assert epochs(client) == before
    running.broker.logs.alter_topic_config("__consumer_offsets", {"max.message.bytes": "1000000"})
    assert int(beat(client, "a", -1).error_code) == 0


def test_a_member_whose_removal_cannot_be_written_is_removed_later(running: BrokerThread, client: WireClient) -> None:
    settled(running, client)
    running.broker.logs.alter_topic_config("__consumer_offsets", {"max.message.bytes": "10"})
    advance(running, 46)
    assert len(described(client).members) == 1
    running.broker.logs.alter_topic_config("__consumer_offsets", {"max.message.bytes": "1000000"})
    advance(running, 1)
    eventually(lambda: described(client).members == ())


# -- while a heartbeat takes several turns of the loop, or the share state takes its time


def request(member: str, epoch: int = 0) -> ShareHeartbeatRequest:
    names = frozenset(f"t{number}" for number in range(500)) | {"events"}
    return ShareHeartbeatRequest(member, epoch, None, names, "client", "/host")


@pytest.mark.slow
def test_a_member_stays_whose_session_ends_during_its_heartbeat(running: BrokerThread, client: WireClient) -> None:
    epoch = settled(running, client)

    def session_ends() -> Any:
        heartbeat = running.broker.groups.shard("g").shares.heartbeat("g", request("a", epoch))
        next(heartbeat)
        running.broker.clock.advance(46)
        return heartbeat

    heartbeat = running.call(session_ends)
    # What is due waits for the heartbeat by now.
    running.call(lambda: None)
    member = running.call(lambda: whole(heartbeat)).member
    assert int(beat(client, "a", member.member_epoch).error_code) == 0
    advance(running, 46)
    eventually(lambda: described(client).group_state == "Empty")


def test_a_group_that_is_made_during_a_heartbeat_keeps_its_offsets(running: BrokerThread, client: WireClient) -> None:
    def race() -> None:
        shard = running.broker.groups.shard("g")
        heartbeat = shard.shares.heartbeat("g", request("a"))
        next(heartbeat)
        value = OffsetCommitValue(5, "", 0)
        shard.commit([Commit.of("g", TopicPartition("events", 0), value)])
        with pytest.raises(RefusedError, match="not a share group"):
            whole(heartbeat)

    running.call(race)
    assert fetched(client, "g", [0]) == [(5, 0)]


def test_a_group_that_is_deleted_while_its_partitions_are_initialized_stays_deleted(
    running: BrokerThread, client: WireClient, share_state: BrokenShareState
) -> None:
    share_state.is_broken = False
    gate = running.call(asyncio.Event)
    share_state.gate = gate
    beat(client, "a")
    beat(client, "a", -1)
    assert delete(client) == 0
    running.call(gate.set)
    advance(running, 1)
    assert int(described(client).error_code) == NOT_FOUND
    settled(running, client)


def test_partitions_that_cannot_be_are_not_altered(client: WireClient) -> None:
    for partition in (-1, 2):
        (one,) = alter(client, partition=partition).responses[0].partitions
        assert int(one.error_code) == UNKNOWN_TOPIC
    assert int(described(client).error_code) == NOT_FOUND


@pytest.mark.slow
def test_heartbeats_of_a_group_wait_for_each_other(running: BrokerThread, client: WireClient) -> None:
    names = [f"t{number}" for number in range(2_000)]
    sent = []
    for number in range(5):
        asked = {"group_id": "g", "member_id": f"m{number}", "member_epoch": 0, "rack_id": None}
        other = connect(running)
        sent.append((other, other.send(76, 1, {**asked, "subscribed_topic_names": names})))
    for other, number in sent:
        assert int(other.receive(76, 1, number).error_code) == 0
        other.close()
    group = group_of(running)
    assert (len(group.members), group.epoch) == (5, 6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "config",
    [
        {"group.share.session.timeout.ms": "1000"},
        {"group.share.heartbeat.interval.ms": "16000"},
        {"group.share.assignment.interval.ms": "16000"},
        {"group.share.assignors": "simple,com.example.Mine"},
        {"group.share.assignors": "uniform"},
        {"group.share.record.lock.duration.ms": "10000"},
        {"group.share.min.delivery.count.limit": "5", "group.share.delivery.count.limit": "4"},
        {"group.share.max.heartbeat.interval.ms": "50000", "group.share.heartbeat.interval.ms": "45000"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(config: dict[str, str]) -> None:
    with pytest.raises(InvalidConfigError, match=r"group\.share"):
        BrokerConfig(config)
