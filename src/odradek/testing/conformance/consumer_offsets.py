"""Offsets of consumer groups (KIP-848): commits and fetches by member epochs and topic ids, in transactions, too."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from odradek.messages.uuids import ZERO_UUID
from odradek.testing.conformance.administration import delete, delete_group
from odradek.testing.conformance.consumer_members import Members, alone, beat, joined, ready
from odradek.testing.conformance.group_offsets import PendingOffsets, commit_answer, commit_of, fetch_for
from odradek.testing.conformance.target import UNUSED_ID, Target, Topic, expect, expect_error


def _committed(target: Target, group: str, topic: Topic, *of: Any, wanted: str = "NONE", **fields: Any) -> None:
    epoch, member = of or (-1, "")
    expect_error("commit", commit_of(target, group, topic, epoch, member, **{"version": 10, **fields}), wanted)


def _offset(target: Target, group: str, topic: Topic, **fields: Any) -> int:
    found = fetch_for(target, group, topic, **fields)
    expect_error("error of the group", found.error_code, "NONE")
    expect_error("error of the partition", found.topics[0].partitions[0].error_code, "NONE")
    return int(found.topics[0].partitions[0].committed_offset)


def topics_go_by_their_ids(target: Target) -> None:
    """From v10 on commits and fetches name a topic by its id, and so do the answers."""
    group, topic, epoch = alone(target)
    member: dict[str, Any] = {"member_id": "m", "generation_id_or_member_epoch": epoch}
    answer = commit_answer(target, group, topic, version=10, **member)
    expect("id", answer.topic_id, topic.id)
    expect_error("error", answer.partitions[0].error_code, "NONE")
    (found,) = fetch_for(target, group, topic, member_id="m", member_epoch=epoch).topics
    expect("id", found.topic_id, topic.id)
    one = found.partitions[0]
    expect("offset", (one.committed_offset, one.metadata, one.committed_leader_epoch), (5, "m", -1))


def offsets_by_id_and_by_name_are_the_same(target: Target) -> None:
    """What was committed by name is fetched by id, and the other way round."""
    group, topic, epoch = alone(target)
    for offset, (commits, fetches) in enumerate(((9, 10), (10, 9))):
        _committed(target, group, topic, epoch, "m", version=commits, offset=offset)
        found = _offset(target, group, topic, version=fetches)
        expect(f"committed in v{commits}, fetched in v{fetches}", found, offset)


def all_topics_have_their_ids(target: Target) -> None:
    """A fetch of all topics in v10 answers their ids."""
    group, topic, epoch = alone(target)
    _committed(target, group, topic, epoch, "m")
    (found,) = fetch_for(target, group, None, member_id="m", member_epoch=epoch).topics
    expect("topic", (found.topic_id, found.partitions[0].committed_offset), (topic.id, 5))


def all_topics_are_for_members_in_their_epoch(target: Target) -> None:
    """A fetch of all topics checks a member, too: STALE_MEMBER_EPOCH, UNKNOWN_MEMBER_ID."""
    group, _, epoch = alone(target)
    for member, at, wanted in (("m", epoch + 1, "STALE_MEMBER_EPOCH"), ("none", epoch, "UNKNOWN_MEMBER_ID")):
        found = fetch_for(target, group, None, member_id=member, member_epoch=at)
        expect_error(f"{member} in {at}", found.error_code, wanted)


def the_zero_id_is_no_topic(target: Target) -> None:
    """In v10 an id of zeros is UNKNOWN_TOPIC_ID, to commit and to fetch."""
    group, topic, epoch = alone(target)
    none = Topic(topic.name, ZERO_UUID)
    _committed(target, group, none, epoch, "m", wanted="UNKNOWN_TOPIC_ID")
    found = fetch_for(target, group, none).topics[0].partitions[0]
    expect_error("fetch", found.error_code, "UNKNOWN_TOPIC_ID")


def a_topic_that_was_deleted_has_no_id(target: Target) -> None:
    """The id of a deleted topic is UNKNOWN_TOPIC_ID."""
    group, topic, epoch = alone(target)
    delete(target, topic)
    unknown = int(ErrorCode.unknown_topic_id)
    target.until("the id is unknown", lambda: commit_of(target, group, topic, epoch, version=10) == unknown)


def some_topics_may_be_unknown(target: Target) -> None:
    """A commit in v10 refuses only its unknown topics, each by its id."""
    group, topic, epoch = alone(target)
    one = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "", "committed_leader_epoch": -1}
    topics = [{"topic_id": known, "partitions": [one]} for known in (UNUSED_ID, topic.id)]
    asked = {"group_id": group, "member_id": "m", "generation_id_or_member_epoch": epoch, "topics": topics}
    found = {one.topic_id: one.partitions[0].error_code.name for one in target.call("OffsetCommit", 10, **asked).topics}
    expect("errors", found, {UNUSED_ID: "unknown_topic_id", topic.id: "none"})


def an_unknown_partition_has_no_offset(target: Target) -> None:
    """A commit for a partition that a topic does not have is UNKNOWN_TOPIC_OR_PARTITION, also by id."""
    group, topic, epoch = alone(target)
    _committed(target, group, topic, epoch, "m", partition=9, wanted="UNKNOWN_TOPIC_OR_PARTITION")


def a_member_may_commit_what_others_have(target: Target) -> None:
    """In its own epoch a member may commit for any partition, which it need not have."""
    members = Members(target, 2)
    members.join_all("a", "b")
    (number,) = members.numbers("b")
    _committed(target, members.group, members.topic, members.epochs["a"], "a", partition=number)


def an_epoch_since_the_assignment_is_taken(target: Target) -> None:
    """A commit in an older epoch, of a partition that the member has had since then, is taken."""
    members = Members(target, 2)
    members.join_all("a", "b")
    (number,) = members.numbers("a")
    expect("epoch", members.epochs["a"], 3)
    _committed(target, members.group, members.topic, 2, "a", partition=number)
    (other,) = members.numbers("b")
    _committed(target, members.group, members.topic, 2, "a", partition=other, wanted="STALE_MEMBER_EPOCH")


def what_is_given_up_can_still_be_committed(target: Target) -> None:
    """A member commits for what it is to give up, also in an older epoch in which it had that; others may not."""
    members = Members(target, 2)
    members.join("a")
    members.beat("a", subscribed_topic_names=[members.topic.name, f"{members.group}-none"])
    members.join("b")
    members.report("a")
    expect("epoch of a", members.epochs["a"], 3)
    (kept,) = members.numbers("a")
    for epoch in (2, 3):
        _committed(target, members.group, members.topic, epoch, "a", partition=1 - kept)
    _committed(target, members.group, members.topic, 3, "b", partition=1 - kept, wanted="STALE_MEMBER_EPOCH")


def a_member_that_has_left_may_not_commit(target: Target) -> None:
    """A member that has left a group with members is UNKNOWN_MEMBER_ID, to commit and to fetch."""
    members = Members(target)
    members.join("a")
    members.join("b")
    members.leave("a")
    _committed(target, members.group, members.topic, 2, "a", wanted="UNKNOWN_MEMBER_ID")
    found = fetch_for(target, members.group, members.topic, member_id="a", member_epoch=2)
    expect_error("fetch", found.error_code, "UNKNOWN_MEMBER_ID")


def a_group_without_members_takes_commits_of_none(target: Target) -> None:
    """While nobody is in it a consumer group takes a commit without a member, and refuses one of an epoch."""
    members = Members(target)
    members.join("a")
    members.leave("a")
    _committed(target, members.group, members.topic)
    _committed(target, members.group, members.topic, 2, "a", wanted="UNKNOWN_MEMBER_ID")
    expect("offset", _offset(target, members.group, members.topic), 5)
    expect("state", members.described().group_state, "Empty")


def offsets_stay_when_members_go(target: Target) -> None:
    """Offsets are still there when all members have left, and when others come."""
    members = Members(target)
    members.join("a")
    _committed(target, members.group, members.topic, 2, "a")
    members.leave("a")
    expect("without members", _offset(target, members.group, members.topic), 5)
    members.join("b")
    fields = {"member_id": "b", "member_epoch": members.epochs["b"]}
    expect("with another", _offset(target, members.group, members.topic, **fields), 5)


def offsets_go_with_their_group(target: Target) -> None:
    """A group that is deleted leaves no offsets."""
    members = Members(target)
    members.join("a")
    _committed(target, members.group, members.topic, 2, "a")
    members.leave("a")
    delete_group(target, members.group)
    expect("offset", _offset(target, members.group, members.topic), -1)


def a_commit_needs_its_group(target: Target) -> None:
    """A commit of a member of no group is GROUP_ID_NOT_FOUND from v9 on, and ILLEGAL_GENERATION before."""
    group, topic = target.group(), target.topic()
    for version, wanted in ((8, "ILLEGAL_GENERATION"), (9, "GROUP_ID_NOT_FOUND"), (10, "GROUP_ID_NOT_FOUND")):
        _committed(target, group, topic, 1, "m", version=version, wanted=wanted)


def a_commit_of_no_member_makes_a_group(target: Target) -> None:
    """A commit without a member makes a group, which is of the type classic and may be joined by members."""
    group, topic = ready(target)
    _committed(target, group, topic)
    found = {one.group_id: (one.group_type, one.group_state) for one in target.call("ListGroups", 5).groups}
    expect("group", found.get(group), ("classic", "Empty"))
    joined(target, group, topic)
    expect("offset", _offset(target, group, topic, member_id="m", member_epoch=2), 5)


def a_fetch_of_an_unknown_group(target: Target) -> None:
    """A fetch of a group that does not exist has offsets of -1 and no error, for a member as for others."""
    group, topic = target.group(), target.topic()
    for fields in ({}, {"member_id": "m", "member_epoch": 1}):
        expect(f"offset with {fields}", _offset(target, group, topic, **fields), -1)


def one_of_several_groups_may_be_refused(target: Target) -> None:
    """A fetch of several groups refuses only those whose member is stale."""
    members, other = Members(target), target.group()
    members.join("m")
    topics = [{"topic_id": members.topic.id, "partition_indexes": [0]}]
    asked = [
        {"group_id": members.group, "member_id": "m", "member_epoch": 9, "topics": topics},
        {"group_id": other, "member_id": None, "member_epoch": -1, "topics": topics},
    ]
    found = {one.group_id: one.error_code.name for one in target.call("OffsetFetch", 10, groups=asked).groups}
    expect("errors", found, {members.group: "stale_member_epoch", other: "none"})


def an_old_fetch_is_of_no_member(target: Target) -> None:
    """A fetch in v8, which cannot name a member, is answered."""
    group, topic, epoch = alone(target)
    _committed(target, group, topic, epoch, "m")
    found = fetch_for(target, group, topic, version=8)
    expect("offset", found.topics[0].partitions[0].committed_offset, 5)


def a_static_member_that_is_away_is_stale(target: Target) -> None:
    """A static member that has left for a while is STALE_MEMBER_EPOCH in its last epoch, to commit and to fetch."""
    members = Members(target)
    members.join("a", instance_id="i")
    members.leave("a", -2, instance_id="i")
    _committed(target, members.group, members.topic, 2, "a", wanted="STALE_MEMBER_EPOCH")
    found = fetch_for(target, members.group, members.topic, member_id="a", member_epoch=2)
    expect_error("fetch", found.error_code, "STALE_MEMBER_EPOCH")


# -- transactions


def offsets_of_a_transaction_count_when_it_is_committed(target: Target) -> None:
    """The offset of a member's transaction counts when that is committed; before, it is UNSTABLE_OFFSET_COMMIT."""
    group, topic, epoch = alone(target)
    offsets = PendingOffsets(target, group, topic)
    offsets.commit("m", epoch)
    member = {"member_id": "m", "member_epoch": epoch}
    found = fetch_for(target, group, topic, require_stable=True, **member).topics[0].partitions[0]
    expect_error("before", found.error_code, "UNSTABLE_OFFSET_COMMIT")
    expect("for who does not mind", _offset(target, group, topic, **member), -1)
    offsets.transaction.end(committed=True)
    expect("afterwards", _offset(target, group, topic, require_stable=True, **member), 7)


def offsets_of_an_aborted_transaction_are_gone(target: Target) -> None:
    """The offset of a member's transaction is dropped when that is aborted."""
    group, topic, epoch = alone(target)
    _committed(target, group, topic, epoch, "m")
    offsets = PendingOffsets(target, group, topic)
    offsets.commit("m", epoch)
    offsets.transaction.end(committed=False)
    expect("offset", _offset(target, group, topic, require_stable=True), 5)


def a_transaction_of_a_member_that_has_left(target: Target) -> None:
    """A transaction of a member that has left is UNKNOWN_MEMBER_ID."""
    members = Members(target)
    members.join("a")
    members.join("b")
    offsets = PendingOffsets(target, members.group, members.topic)
    members.leave("a")
    offsets.commit("a", 2, "UNKNOWN_MEMBER_ID")
    offsets.transaction.end(committed=False)


def a_transaction_in_an_epoch_since_the_assignment(target: Target) -> None:
    """A transaction, too, may commit in an epoch since the member got the partition."""
    members = Members(target, 1)
    members.join("a")
    members.join_all("b")
    expect("epoch and partitions of a", (members.epochs["a"], members.numbers("a")), (3, [0]))
    offsets = PendingOffsets(target, members.group, members.topic)
    offsets.commit("a", 2)
    offsets.commit("b", 2, "ILLEGAL_GENERATION")
    offsets.transaction.end(committed=False)


def a_group_with_a_transaction_is_deleted(target: Target) -> None:
    """A group without members may be deleted while a transaction is to commit offsets of it."""
    members = Members(target)
    members.join("m")
    offsets = PendingOffsets(target, members.group, members.topic)
    offsets.commit("m", 2)
    beat(target, members.group, "m", -1)
    expect_error("error", delete_group(target, members.group), "NONE")
    offsets.transaction.end(committed=False)
