"""Share groups (KIP-932): joining, epochs, assignments, what is initialized first, offsets, settings, and errors."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from odradek.messages.uuids import ZERO_UUID
from odradek.testing.conformance.administration import GROUP, alter, delete, delete_group, grow, remove_members
from odradek.testing.conformance.group_offsets import commit_of, delete_offsets, fetch_for
from odradek.testing.conformance.groups import join, stable_member
from odradek.testing.conformance.target import Target, Topic, batch, expect, expect_error


def beat(target: Target, group: str, member: str, epoch: int = 0, **fields: Any) -> Any:
    """Send a heartbeat of what is given; nothing else has changed."""
    return target.call("ShareGroupHeartbeat", 1, group_id=group, member_id=member, member_epoch=epoch, **fields)


def assigned(answer: Any) -> dict[UUID, list[int]] | None:
    """Return what an answer assigns, by topic; topics without partitions are left out."""
    if answer.assignment is None:
        return None
    return {one.topic_id: sorted(one.partitions) for one in answer.assignment.topic_partitions if one.partitions}


def described(target: Target, group: str) -> Any:
    """Return what ShareGroupDescribe tells of a group."""
    return target.call("ShareGroupDescribe", 1, group_ids=[group]).groups[0]


def _join(target: Target, group: str, topics: list[Topic], member: str = "m", **fields: Any) -> Any:
    names = [topic.name for topic in topics]
    answer = beat(target, group, member, subscribed_topic_names=names, **fields)
    expect_error("join", answer.error_code, "NONE")
    return answer


def _held(target: Target, group: str, member: str = "m") -> tuple[int, dict[UUID, list[int]]]:
    """Return the epoch of a member, and what it has, after a heartbeat in its epoch."""
    known = next(one for one in described(target, group).members if one.member_id == member)
    answer = beat(target, group, member, int(known.member_epoch))
    expect_error("heartbeat", answer.error_code, "NONE")
    member_now = next(one for one in described(target, group).members if one.member_id == member)
    found = {one.topic_id: sorted(one.partitions) for one in member_now.assignment.topic_partitions if one.partitions}
    return int(answer.member_epoch), found


def _settled(target: Target, group: str, wanted: dict[UUID, list[int]], member: str = "m") -> int:
    """Send heartbeats until a member has partitions; return its epoch."""

    def look() -> int | None:
        epoch, held = _held(target, group, member)
        return epoch if held == wanted else None

    return int(target.until(f"{member} to have {wanted}", look))


def _ready(target: Target, partitions: int = 1) -> tuple[str, Topic]:
    """Return a new group and a new topic, when the group's coordinator has heard of the topic."""
    group, topic = target.group(), target.topic(partitions)

    # Only a topic that is known is written down; to be described, it needs no assignment.
    target.until("the coordinator knows the topic", lambda: _alter(target, group, topic, 0) == 0)
    delete_group(target, group)
    return group, topic


def _alter(target: Target, group: str, topic: Topic, offset: int, partition: int = 0) -> int:
    """Let a group begin at an offset; return the error code, of the group or of the partition."""
    one = {"partition_index": partition, "start_offset": offset}
    topics = [{"topic_name": topic.name, "partitions": [one]}]
    answer = target.call("AlterShareGroupOffsets", 0, group_id=group, topics=topics)
    return int(answer.error_code) or int(answer.responses[0].partitions[0].error_code)


def _offsets(target: Target, group: str, topic: Topic | None, *partitions: int) -> Any:
    """Return the topics that DescribeShareGroupOffsets tells of a group; all of them without a topic."""
    topics = None if topic is None else [{"topic_name": topic.name, "partitions": list(partitions)}]
    asked = [{"group_id": group, "topics": topics}]
    found = target.call("DescribeShareGroupOffsets", 1, groups=asked).groups[0]
    expect_error("describe offsets", found.error_code, "NONE")
    return found.topics


def _delete_offsets(target: Target, group: str, *names: str) -> Any:
    topics = [{"topic_name": name} for name in names]
    return target.call("DeleteShareGroupOffsets", 0, group_id=group, topics=topics)


def _alone(target: Target, partitions: int = 1) -> tuple[str, Topic, int]:
    """Return a group of one member, which has all partitions of a topic, the topic, and the member's epoch."""
    group, topic = _ready(target, partitions)
    _join(target, group, [topic])
    return group, topic, _settled(target, group, {topic.id: [*range(partitions)]})


# -- members


def a_join_is_told_its_epoch_and_no_partitions_yet(target: Target) -> None:
    """The first heartbeat is answered epoch 2 and an empty assignment: the partitions are not initialized yet."""
    group, topic = _ready(target, 2)
    answer = _join(target, group, [topic])
    expect("answer", (answer.member_id, answer.member_epoch, assigned(answer)), ("m", 2, {}))


def partitions_are_assigned_when_they_are_initialized(target: Target) -> None:
    """With one of the next heartbeats the member has all partitions, in epoch 3."""
    group, topic = _ready(target, 3)
    _join(target, group, [topic])
    expect("epoch", _settled(target, group, {topic.id: [0, 1, 2]}), 3)


def a_heartbeat_that_changes_nothing_has_no_assignment(target: Target) -> None:
    """A heartbeat that says nothing new is answered the epoch, and no assignment."""
    group, _, epoch = _alone(target)
    answer = beat(target, group, "m", epoch)
    expect("answer", (int(answer.error_code), answer.member_epoch, assigned(answer)), (0, epoch, None))


def a_heartbeat_that_names_topics_has_the_assignment(target: Target) -> None:
    """A heartbeat that names topics is answered the assignment, also if they are the same."""
    group, topic, epoch = _alone(target, 2)
    answer = beat(target, group, "m", epoch, subscribed_topic_names=[topic.name])
    expect("answer", (answer.member_epoch, assigned(answer)), (epoch, {topic.id: [0, 1]}))


def the_heartbeat_interval_is_told(target: Target) -> None:
    """An answer tells how often to send heartbeats: every five seconds."""
    group, topic = _ready(target)
    answer = _join(target, group, [topic])
    expect("interval", answer.heartbeat_interval.total_seconds(), 5.0)


def members_have_partitions_of_their_own_if_there_are_enough(target: Target) -> None:
    """Two members of a group have two partitions of four each."""
    group, topic, _ = _alone(target, 4)
    _join(target, group, [topic], "b")

    def look() -> bool:
        held = [_held(target, group, one)[1].get(topic.id, []) for one in ("m", "b")]
        return sorted(map(len, held)) == [2, 2] and sorted(held[0] + held[1]) == [0, 1, 2, 3]

    target.until("two partitions each", look)


def members_share_a_partition(target: Target) -> None:
    """Two members of a group have the same partition if there is only one."""
    group, topic, _ = _alone(target)
    _join(target, group, [topic], "b")
    _settled(target, group, {topic.id: [0]}, "b")
    _settled(target, group, {topic.id: [0]})


def members_may_read_different_topics(target: Target) -> None:
    """Each member has partitions of the topics that it names."""
    group, topic, _ = _alone(target, 2)
    _, other = _ready(target, 2)
    _join(target, group, [other], "b")
    _settled(target, group, {other.id: [0, 1]}, "b")
    _settled(target, group, {topic.id: [0, 1]})


def a_member_that_leaves_leaves_an_empty_group(target: Target) -> None:
    """A member that leaves with epoch -1 is removed; the group is Empty, and its epoch has grown."""
    group, _, epoch = _alone(target)
    answer = beat(target, group, "m", -1)
    expect("answer", (int(answer.error_code), answer.member_epoch, answer.member_id), (0, -1, "m"))
    found = described(target, group)
    expect("group", (found.group_state, found.group_epoch, len(found.members)), ("Empty", epoch + 1, 0))
    expect_error("heartbeat", beat(target, group, "m", epoch).error_code, "UNKNOWN_MEMBER_ID")


def the_others_get_the_partitions_of_one_that_leaves(target: Target) -> None:
    """When one of two members leaves, the other has all partitions."""
    group, topic, _ = _alone(target, 2)
    _join(target, group, [topic], "b")
    target.until("a partition", lambda: len(_held(target, group, "b")[1].get(topic.id, [])) == 1)
    beat(target, group, "m", -1)
    _settled(target, group, {topic.id: [0, 1]}, "b")


def other_topics_change_the_assignment_at_once(target: Target) -> None:
    """A member that names another topic loses the partitions of the one before with the same heartbeat."""
    group, _, epoch = _alone(target)
    _, other = _ready(target)
    answer = beat(target, group, "m", epoch, subscribed_topic_names=[other.name])
    expect("assignment", assigned(answer), {})
    expect("epoch of the group", described(target, group).group_epoch, epoch + 1)
    _settled(target, group, {other.id: [0]})


def a_topic_that_does_not_exist_is_taken(target: Target) -> None:
    """A member may name a topic that does not exist; it has nothing."""
    group = target.group()
    answer = beat(target, group, "m", subscribed_topic_names=[f"{group}-none"])
    expect("answer", (int(answer.error_code), answer.member_epoch, assigned(answer)), (0, 2, {}))


def a_topic_that_grows_is_assigned_whole(target: Target) -> None:
    """When a topic gets more partitions, the member gets them, in a later epoch."""
    group, topic, epoch = _alone(target)
    grow(target, topic.name, 3)
    found = _settled(target, group, {topic.id: [0, 1, 2]})
    expect("a later epoch", found > epoch, True)


def a_topic_that_is_deleted_is_taken_away(target: Target) -> None:
    """When a topic is deleted, the member has it no more."""
    group, topic, _ = _alone(target)
    delete(target, topic)
    _settled(target, group, {})


def joining_again_changes_nothing(target: Target) -> None:
    """A member that joins again keeps its epoch and its partitions."""
    group, topic, epoch = _alone(target, 2)
    answer = _join(target, group, [topic])
    expect("answer", (answer.member_epoch, assigned(answer)), (epoch, {topic.id: [0, 1]}))
    expect("epoch of the group", described(target, group).group_epoch, epoch)


# -- errors of heartbeats


def a_greater_epoch_is_fenced(target: Target) -> None:
    """An epoch that the member does not have yet is FENCED_MEMBER_EPOCH."""
    group, _, epoch = _alone(target)
    expect_error("error", beat(target, group, "m", epoch + 1).error_code, "FENCED_MEMBER_EPOCH")


def the_epoch_before_is_taken(target: Target) -> None:
    """The epoch before the member's own is taken, as the answer may have been lost; the answer has its own."""
    group, _, epoch = _alone(target)
    answer = beat(target, group, "m", epoch - 1)
    expect("answer", (int(answer.error_code), answer.member_epoch), (0, epoch))


def an_older_epoch_is_fenced(target: Target) -> None:
    """An epoch before the last two is FENCED_MEMBER_EPOCH."""
    group, topic, epoch = _alone(target, 2)
    grow(target, topic.name, 3)
    expect("a later epoch", _settled(target, group, {topic.id: [0, 1, 2]}) > epoch, True)
    expect_error("error", beat(target, group, "m", 1).error_code, "FENCED_MEMBER_EPOCH")


def an_unknown_member_is_refused(target: Target) -> None:
    """A member that has not joined is UNKNOWN_MEMBER_ID."""
    group, _, _ = _alone(target)
    for epoch in (1, -1):
        expect_error(f"epoch {epoch}", beat(target, group, "none", epoch).error_code, "UNKNOWN_MEMBER_ID")


def an_unknown_group_is_not_found(target: Target) -> None:
    """A heartbeat that does not join needs a group: GROUP_ID_NOT_FOUND."""
    for epoch in (1, -1):
        expect_error(f"epoch {epoch}", beat(target, target.group(), "m", epoch).error_code, "GROUP_ID_NOT_FOUND")


def a_join_must_name_topics(target: Target) -> None:
    """A join without topics is INVALID_REQUEST."""
    group = target.group()
    without: list[list[str] | None] = [None, []]
    for names in without:
        answer = beat(target, group, "m", subscribed_topic_names=names)
        expect_error(f"with {names}", answer.error_code, "INVALID_REQUEST")


def empty_ids_are_invalid(target: Target) -> None:
    """An empty id of a member or of a group, or an empty rack, is INVALID_REQUEST."""
    group = target.group()
    empty = ({"member_id": ""}, {"member_id": " "}, {"group_id": ""}, {"group_id": " "}, {"rack_id": " "})
    for fields in empty:
        asked: dict[str, Any] = {
            "group_id": group,
            "member_id": "m",
            "member_epoch": 0,
            "subscribed_topic_names": ["t"],
            **fields,
        }
        expect_error(f"with {fields}", target.call("ShareGroupHeartbeat", 1, **asked).error_code, "INVALID_REQUEST")


def a_long_member_id_is_invalid(target: Target) -> None:
    """The id of a member has 36 characters at most; a longer one is INVALID_REQUEST."""
    group = target.group()
    answer = beat(target, group, "m" * 37, subscribed_topic_names=[f"{group}-none"])
    expect_error("37 characters", answer.error_code, "INVALID_REQUEST")
    answer = beat(target, group, "m" * 36, subscribed_topic_names=[f"{group}-none"])
    expect_error("36 characters", answer.error_code, "NONE")


def an_epoch_below_minus_1_is_invalid(target: Target) -> None:
    """An epoch below -1 is INVALID_REQUEST: there are no static members."""
    for epoch in (-2, -3):
        expect_error(f"epoch {epoch}", beat(target, target.group(), "m", epoch).error_code, "INVALID_REQUEST")


# -- other kinds of groups


def a_classic_group_is_no_share_group(target: Target) -> None:
    """A member may not join a classic group, not even an empty one: GROUP_ID_NOT_FOUND."""
    group, topic = _ready(target)
    member = stable_member(target, group)
    answer = beat(target, group, "m", subscribed_topic_names=[topic.name])
    expect_error("with members", answer.error_code, "GROUP_ID_NOT_FOUND")
    expect_error("described", described(target, group).error_code, "GROUP_ID_NOT_FOUND")
    remove_members(target, group, (member.member_id, None))
    answer = beat(target, group, "m", subscribed_topic_names=[topic.name])
    expect_error("empty", answer.error_code, "GROUP_ID_NOT_FOUND")


def a_share_group_is_no_other_group(target: Target) -> None:
    """Classic members and members of the consumer protocol may not join, not even an empty group."""
    group, topic, _ = _alone(target)
    fields: dict[str, Any] = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [topic.name],
        "topic_partitions": [],
    }
    for _ in range(2):
        expect_error("classic", join(target, group).error_code, "INCONSISTENT_GROUP_PROTOCOL")
        answer = target.call("ConsumerGroupHeartbeat", 1, group_id=group, member_id="c", member_epoch=0, **fields)
        expect_error("consumer", answer.error_code, "GROUP_ID_NOT_FOUND")
        beat(target, group, "m", -1)


def others_do_not_describe_it(target: Target) -> None:
    """ConsumerGroupDescribe and DescribeGroups v6 do not find a share group."""
    group, _, _ = _alone(target)
    found = target.call("ConsumerGroupDescribe", 1, group_ids=[group]).groups[0]
    expect_error("consumer", found.error_code, "GROUP_ID_NOT_FOUND")
    found = target.call("DescribeGroups", 6, groups=[group]).groups[0]
    expect_error("classic", found.error_code, "GROUP_ID_NOT_FOUND")


def it_has_no_committed_offsets(target: Target) -> None:
    """A commit and a removal of offsets are GROUP_ID_NOT_FOUND; a fetch finds nothing."""
    group, topic, _ = _alone(target)
    for epoch, member in ((-1, ""), (3, "m")):
        code = commit_of(target, group, topic, epoch, member, version=9)
        expect_error(f"commit in epoch {epoch}", code, "GROUP_ID_NOT_FOUND")
    expect_error("removal", delete_offsets(target, group, topic).error_code, "GROUP_ID_NOT_FOUND")
    found = fetch_for(target, group, topic, version=9)
    expect("fetch", (int(found.error_code), found.topics[0].partitions[0].committed_offset), (0, -1))


# -- ShareGroupDescribe, ListGroups


def the_description_has_all(target: Target) -> None:
    """ShareGroupDescribe tells a group's epochs, its assignor, and of each member what it has."""
    group, topic = _ready(target, 2)
    _join(target, group, [topic], rack_id="r")
    epoch = _settled(target, group, {topic.id: [0, 1]})
    found = described(target, group)
    expect_error("error", found.error_code, "NONE")
    expect("epochs", (found.group_state, found.group_epoch, found.assignment_epoch), ("Stable", epoch, epoch))
    expect("assignor", found.assignor_name, "simple")
    member = found.members[0]
    expect("member", (member.member_id, member.rack_id, member.member_epoch), ("m", "r", epoch))
    expect("client", (member.client_id, list(member.subscribed_topic_names)), ("odradek-conformance", [topic.name]))
    partitions = [(one.topic_id, one.topic_name, sorted(one.partitions)) for one in member.assignment.topic_partitions]
    expect("partitions", partitions, [(topic.id, topic.name, [0, 1])])


def what_an_unknown_group_is_described_as(target: Target) -> None:
    """ShareGroupDescribe of an unknown group is GROUP_ID_NOT_FOUND, of an empty id INVALID_GROUP_ID."""
    expect_error("unknown", described(target, target.group()).error_code, "GROUP_ID_NOT_FOUND")
    expect_error("empty", described(target, "").error_code, "INVALID_GROUP_ID")


def operations_are_told_if_asked_for(target: Target) -> None:
    """ShareGroupDescribe tells what the client may do with a group, if it asks."""
    group, _, _ = _alone(target)
    expect("not asked", described(target, group).authorized_operations, -(1 << 31))
    asked: dict[str, Any] = {"group_ids": [group], "include_authorized_operations": True}
    found = target.call("ShareGroupDescribe", 1, **asked).groups[0].authorized_operations
    other = target.call("ConsumerGroupDescribe", 1, group_ids=[target.group()], include_authorized_operations=True)
    expect("asked", found != other.groups[0].authorized_operations, True)


def it_is_listed_by_its_type(target: Target) -> None:
    """ListGroups has it with its type and its protocol, and filters by them."""
    group, _, _ = _alone(target)

    def listed(**filters: Any) -> list[tuple[str, str, str]]:
        found = target.call("ListGroups", 5, **filters).groups
        return [(one.group_type, one.group_state, one.protocol_type) for one in found if one.group_id == group]

    expect("listed", listed(), [("share", "Stable", "share")])
    expect("by its type", listed(types_filter=["Share"], states_filter=["stable"]), listed())
    expect("by another type", listed(types_filter=["consumer"]), [])
    beat(target, group, "m", -1)
    expect("empty", listed(states_filter=["Empty"]), [("share", "Empty", "share")])


# -- DeleteGroups


def a_group_with_members_is_not_deleted(target: Target) -> None:
    """DeleteGroups of a group with members is NON_EMPTY_GROUP; without, it is removed."""
    group, topic, _ = _alone(target)
    expect_error("with members", delete_group(target, group), "NON_EMPTY_GROUP")
    beat(target, group, "m", -1)
    expect_error("empty", delete_group(target, group), "NONE")
    expect_error("described", described(target, group).error_code, "GROUP_ID_NOT_FOUND")
    expect("offsets", list(_offsets(target, group, None)), [])
    answer = _join(target, group, [topic])
    expect("a new group", (answer.member_epoch, assigned(answer)), (2, {}))


# -- offsets


def offsets_of_a_new_group_are_not_known(target: Target) -> None:
    """The start offset of a partition is -1 until a record is fetched; so is the lag."""
    group, topic, _ = _alone(target)
    (found,) = _offsets(target, group, topic, 0)
    one = found.partitions[0]
    expect("topic", (found.topic_name, found.topic_id), (topic.name, topic.id))
    expect("partition", (one.partition_index, one.start_offset, one.lag, int(one.error_code)), (0, -1, -1, 0))


def offsets_of_an_unknown_group_are_not_known(target: Target) -> None:
    """A group that does not exist has the start offset -1 everywhere, and no partitions of its own."""
    _, topic = _ready(target)
    one = _offsets(target, target.group(), topic, 0)[0].partitions[0]
    expect("partition", (one.start_offset, one.leader_epoch, int(one.error_code)), (-1, 0, 0))
    expect("all", list(_offsets(target, target.group(), None)), [])


def offsets_of_an_unknown_topic_are_not_known(target: Target) -> None:
    """A topic that does not exist has the start offset -1, and no id."""
    group, _, _ = _alone(target)
    (found,) = _offsets(target, group, Topic(f"{group}-none", ZERO_UUID), 0, 1)
    one = [(part.partition_index, part.start_offset, int(part.error_code)) for part in found.partitions]
    expect("partitions", one, [(0, -1, 0), (1, -1, 0)])
    expect("no id", found.topic_id in (None, ZERO_UUID), True)


def no_topics_have_no_offsets(target: Target) -> None:
    """An empty list of topics is answered nothing; without a list, all partitions that are initialized."""
    group, topic, _ = _alone(target, 2)
    asked = [{"group_id": group, "topics": []}]
    found = target.call("DescribeShareGroupOffsets", 1, groups=asked).groups[0]
    expect("none", (int(found.error_code), list(found.topics)), (0, []))
    (found,) = _offsets(target, group, None)
    expect("all", (found.topic_name, sorted(one.partition_index for one in found.partitions)), (topic.name, [0, 1]))


def an_altered_offset_is_described_with_its_lag(target: Target) -> None:
    """After AlterShareGroupOffsets the start offset is that, and the lag is what follows it."""
    group, topic = _ready(target)
    target.produced(topic, batch(*(b"%d" % number for number in range(10))))
    expect("altered", _alter(target, group, topic, 4), 0)
    one = _offsets(target, group, topic, 0)[0].partitions[0]
    expect("partition", (one.start_offset, one.lag, int(one.error_code)), (4, 6, 0))


def altering_makes_an_empty_group(target: Target) -> None:
    """AlterShareGroupOffsets of an unknown group makes one that is Empty, of epoch 1."""
    group, topic = _ready(target)
    expect("altered", _alter(target, group, topic, 0), 0)
    found = described(target, group)
    expect("group", (int(found.error_code), found.group_state, found.group_epoch), (0, "Empty", 1))


def the_offsets_of_a_group_with_members_are_not_altered(target: Target) -> None:
    """AlterShareGroupOffsets and DeleteShareGroupOffsets of a group with members are NON_EMPTY_GROUP."""
    group, topic, _ = _alone(target)
    expect_error("alter", _alter(target, group, topic, 0), "NON_EMPTY_GROUP")
    expect_error("delete", _delete_offsets(target, group, topic.name).error_code, "NON_EMPTY_GROUP")


def what_does_not_exist_is_not_altered(target: Target) -> None:
    """A topic or a partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION, the others are altered."""
    group, topic = _ready(target)
    ones = [{"partition_index": number, "start_offset": 0} for number in (0, 1)]
    asked = [{"topic_name": name, "partitions": ones} for name in (topic.name, f"{group}-none")]
    answer = target.call("AlterShareGroupOffsets", 0, group_id=group, topics=asked)
    found = {
        (topic.topic_name, one.partition_index): int(one.error_code)
        for topic in answer.responses
        for one in topic.partitions
    }
    none = f"{group}-none"
    expect("codes", found, {(topic.name, 0): 0, (topic.name, 1): 3, (none, 0): 3, (none, 1): 3})


def other_groups_are_not_altered(target: Target) -> None:
    """AlterShareGroupOffsets of a classic group is GROUP_ID_NOT_FOUND, of an empty id INVALID_GROUP_ID."""
    group, topic = _ready(target)
    stable_member(target, group)
    expect_error("classic", _alter(target, group, topic, 0), "GROUP_ID_NOT_FOUND")
    expect_error("delete", _delete_offsets(target, group, topic.name).error_code, "GROUP_ID_NOT_FOUND")
    topics = [{"topic_name": topic.name, "partitions": []}]
    answer = target.call("AlterShareGroupOffsets", 0, group_id="", topics=topics)
    expect_error("empty", answer.error_code, "INVALID_GROUP_ID")
    expect_error("delete", _delete_offsets(target, "", topic.name).error_code, "INVALID_GROUP_ID")


def deleted_offsets_are_not_known(target: Target) -> None:
    """DeleteShareGroupOffsets of a topic removes what is known; a second time there is nothing to remove."""
    group, topic = _ready(target)
    _alter(target, group, topic, 0)
    target.until("the partition is initialized", lambda: list(_offsets(target, group, None)) or None)
    answer = _delete_offsets(target, group, topic.name)
    found = answer.responses[0]
    expect("answer", (int(answer.error_code), int(found.error_code), found.topic_id), (0, 0, topic.id))
    expect("offset", _offsets(target, group, topic, 0)[0].partitions[0].start_offset, -1)
    expect("all", list(_offsets(target, group, None)), [])
    found = _delete_offsets(target, group, topic.name).responses[0]
    expect_error("again", found.error_code, "UNKNOWN_TOPIC_OR_PARTITION")


def offsets_that_are_not_there_are_not_deleted(target: Target) -> None:
    """DeleteShareGroupOffsets of an unknown topic is UNKNOWN_TOPIC_OR_PARTITION, of an unknown group its error."""
    group, topic = _ready(target)
    _alter(target, group, topic, 0)
    found = _delete_offsets(target, group, f"{group}-none").responses[0]
    expect_error("topic", found.error_code, "UNKNOWN_TOPIC_OR_PARTITION")
    expect_error("group", _delete_offsets(target, target.group(), topic.name).error_code, "GROUP_ID_NOT_FOUND")


# -- settings


def a_group_has_settings_of_its_own(target: Target) -> None:
    """Members get their group's own heartbeat interval."""
    group, topic = _ready(target)
    expect_error("set", alter(target, GROUP, group, {"share.heartbeat.interval.ms": "7000"}), "NONE")
    target.until(
        "the group's own interval", lambda: _join(target, group, [topic]).heartbeat_interval.total_seconds() == 7.0
    )


def settings_have_bounds(target: Target) -> None:
    """A setting of a group outside of the broker's bounds, or of another form, is INVALID_CONFIG."""
    group = target.group()
    wrong = {
        "share.session.timeout.ms": ("1000", "90000", "x"),
        "share.heartbeat.interval.ms": ("1000", "16000"),
        "share.assignment.interval.ms": ("-1", "16000"),
        "share.record.lock.duration.ms": ("14999", "60001"),
        "share.delivery.count.limit": ("1", "11"),
        "share.partition.max.record.locks": ("99", "4001"),
        "share.auto.offset.reset": (
            "none",
            "by_duration",
            "by_duration:1h",
            "by_duration:PT",
            "by_duration:-PT1S",
            "LATEST",
        ),
        "share.isolation.level": ("serializable", "committed", "READ_COMMITTED"),
        "share.renew.acknowledge.enable": ("perhaps",),
        "share.unknown": ("1",),
    }
    for name, values in wrong.items():
        for value in values:
            expect_error(f"{name}={value}", alter(target, GROUP, group, {name: value}), "INVALID_CONFIG")


def settings_that_are_taken(target: Target) -> None:
    """What the settings of a share group may be."""
    group = target.group()
    right = {
        "share.session.timeout.ms": "60000",
        "share.heartbeat.interval.ms": "15000",
        "share.assignment.interval.ms": "0",
        "share.record.lock.duration.ms": "15000",
        "share.delivery.count.limit": "10",
        "share.partition.max.record.locks": "100",
        "share.isolation.level": "read_committed",
        "share.renew.acknowledge.enable": "false",
    }
    for name, value in right.items():
        expect_error(f"{name}={value}", alter(target, GROUP, group, {name: value}), "NONE")
    for value in ("earliest", "latest", "by_duration:PT1H", "by_duration:P1DT2H3M4.5S", "by_duration:pt1s"):
        expect_error(f"reset {value}", alter(target, GROUP, group, {"share.auto.offset.reset": value}), "NONE")
