"""The share coordinator (KIP-932): what is written down of what share groups deliver."""

from __future__ import annotations

from odradek.messages.uuids import format_uuid
from odradek.testing.conformance.share_members import (
    ShareMember,
    initialized,
    of_partition,
    read_state,
    share_group,
    share_state,
    write_state,
    written_states,
)
from odradek.testing.conformance.target import UNUSED_ID, Target, Topic, expect, expect_error

_ACCEPT = 1
_AVAILABLE, _ACKNOWLEDGED = 0, 2


def a_state_begins_with_its_initialization(target: Target) -> None:
    """Before that it can be neither read nor written: INVALID_REQUEST; its summary is empty."""
    member = share_group(target)
    group, topic = target.name("share"), member.topic
    expect_error("read", read_state(target, group, topic).error_code, "INVALID_REQUEST")
    expect_error("write", write_state(target, group, topic).error_code, "INVALID_REQUEST")
    expect("summary", _summary(target, group, topic), (0, 0, 0, -1, -1))


def _summary(target: Target, group: str, topic: Topic) -> tuple[int, int, int, int, int]:
    found = share_state(target, "ReadShareGroupStateSummary", group, topic, version=1, leader_epoch=0)
    epochs = found.state_epoch, found.leader_epoch
    return int(found.error_code), *epochs, found.start_offset, found.delivery_complete_count


def written_states_are_merged(target: Target) -> None:
    """Ranges that are written are merged with those before: the greater count and state win, neighbours are joined."""
    member = share_group(target)
    group, topic = member.group, member.topic
    write_state(target, group, topic, [(0, 9, _AVAILABLE, 1)])
    write_state(target, group, topic, [(4, 6, _ACKNOWLEDGED, 1), (7, 7, _ACKNOWLEDGED, 1)])
    wanted = [(0, 3, _AVAILABLE, 1), (4, 7, _ACKNOWLEDGED, 1), (8, 9, _AVAILABLE, 1)]
    expect("merged", written_states(target, group, topic), wanted)
    write_state(target, group, topic, [(8, 9, _AVAILABLE, 2)], start_offset=5, delivery_complete_count=3)
    expect("pruned", written_states(target, group, topic), [(5, 7, _ACKNOWLEDGED, 1), (8, 9, _AVAILABLE, 2)])
    expect("summary", _summary(target, group, topic), (0, 0, 0, 5, 3))


def negative_epochs_are_refused(target: Target) -> None:
    """A state epoch or a leader epoch below 0 is INVALID_REQUEST."""
    target.needs_newest()
    member = share_group(target)
    group, topic = member.group, member.topic
    expect_error("read", read_state(target, group, topic, leader_epoch=-1).error_code, "INVALID_REQUEST")
    expect_error("write", write_state(target, group, topic, leader_epoch=-1).error_code, "INVALID_REQUEST")
    expect_error("state", write_state(target, group, topic, state_epoch=-1).error_code, "INVALID_REQUEST")
    answer = share_state(target, "InitializeShareGroupState", group, topic, state_epoch=-1, start_offset=0)
    expect_error("initialize", answer.error_code, "INVALID_REQUEST")


def old_epochs_are_fenced(target: Target) -> None:
    """A state epoch or a leader epoch that is older than the known one is fenced."""
    member = share_group(target)
    group, topic = member.group, member.topic
    initialized(target, group, topic, start_offset=3, state_epoch=2)
    expect_error("write", write_state(target, group, topic, state_epoch=1).error_code, "FENCED_STATE_EPOCH")
    fields = {"state_epoch": 1, "start_offset": 0}
    answer = share_state(target, "InitializeShareGroupState", group, topic, **fields)
    expect_error("initialize", answer.error_code, "FENCED_STATE_EPOCH")
    expect("read by a new leader", read_state(target, group, topic, leader_epoch=5).start_offset, 3)
    answer = write_state(target, group, topic, state_epoch=2, leader_epoch=4)
    expect_error("old leader writes", answer.error_code, "FENCED_LEADER_EPOCH")
    expect_error("old leader reads", read_state(target, group, topic, leader_epoch=4).error_code, "FENCED_LEADER_EPOCH")
    expect("summary", _summary(target, group, topic), (0, 2, 5, 3, 0))


def a_new_state_replaces_the_old_one(target: Target) -> None:
    """An initialization with a new epoch forgets the states of records, and says where delivery starts."""
    member = share_group(target, [4])
    member.got()
    member.code((0, 1, [_ACCEPT]))
    initialized(target, member.group, member.topic, start_offset=3, state_epoch=1)
    expect("states", written_states(target, member.group, member.topic), [])
    expect_error("old member", member.code((2, 3, [_ACCEPT])), "NOT_LEADER_OR_FOLLOWER")
    expect("acquired", member.got(share_session_epoch=0), [(3, 3, 1)])


def a_deleted_state_is_not_there(target: Target) -> None:
    """A state that was deleted cannot be read; it can be deleted twice."""
    member = share_group(target)
    for _ in range(2):
        answer = share_state(target, "DeleteShareGroupState", member.group, member.topic)
        expect_error("delete", answer.error_code, "NONE")
    expect_error("read", read_state(target, member.group, member.topic).error_code, "INVALID_REQUEST")


def states_need_partitions(target: Target) -> None:
    """An unknown topic or partition is UNKNOWN_TOPIC_OR_PARTITION, a negative number INVALID_REQUEST."""
    member = share_group(target)
    unknown = Topic("none", UNUSED_ID)
    fields = {"state_epoch": 0, "start_offset": 0}
    answer = share_state(target, "InitializeShareGroupState", member.group, unknown, **fields)
    expect_error("unknown id", answer.error_code, "UNKNOWN_TOPIC_OR_PARTITION")
    for number, wanted in ((9, "UNKNOWN_TOPIC_OR_PARTITION"), (-1, "INVALID_REQUEST")):
        answer = share_state(
            target, "InitializeShareGroupState", member.group, member.topic, partition=number, **fields
        )
        expect_error(f"partition {number}", answer.error_code, wanted)
        answer = share_state(target, "ReadShareGroupStateSummary", member.group, member.topic, partition=number)
        expect_error(f"summary of {number}", answer.error_code, wanted)


def requests_without_a_group_or_partitions_are_answered_nothing(target: Target) -> None:
    """Requests to the share coordinator without a group or without partitions have no results."""
    member = share_group(target)
    for api in ("ReadShareGroupState", "WriteShareGroupState", "DeleteShareGroupState", "ReadShareGroupStateSummary"):
        expect(f"{api}: no topics", target.call(api, group_id=member.group, topics=[]).results, ())
        topics = [{"topic_id": member.topic.id, "partitions": []}]
        expect(f"{api}: no partitions", target.call(api, group_id=member.group, topics=topics).results, ())
        full = of_partition(member.topic)
        expect(f"{api}: no group", target.call(api, group_id="", **full).results, ())


def the_coordinator_of_a_partition_is_found(target: Target) -> None:
    """FindCoordinator v6 takes keys `GROUP:TOPIC ID:PARTITION`; others are INVALID_REQUEST."""
    member = share_group(target)
    topic = format_uuid(member.topic.id)
    keys = [f"g:{topic}:0", f"g:h:{topic}:0", "g", f"g:{topic}", f":{topic}:0", f"g:{topic}:x", "g:x:0", ""]
    found = target.call("FindCoordinator", 6, key_type=2, coordinator_keys=keys).coordinators
    codes = {one.key: one.error_code.name.upper() for one in found}
    wanted = dict.fromkeys(keys[:2], "NONE") | dict.fromkeys(keys[2:], "INVALID_REQUEST")
    expect("errors", codes, wanted)


def what_was_delivered_survives_the_last_member(target: Target) -> None:
    """When all have disconnected, accepted records stay so; what was only acquired is delivered as before."""
    member = share_group(target, [2, 2])
    member.got()
    expect_error("accept", member.code((0, 1, [_ACCEPT])), "NONE")
    member.client.close()
    other = ShareMember(target, member.group, member.topic, "other")
    expect("acquired", [one[:2] for one in other.got()], [(2, 3)])
