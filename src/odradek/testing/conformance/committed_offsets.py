"""OffsetCommit, OffsetFetch, OffsetDelete: where a group keeps its place."""

from __future__ import annotations

from typing import Any

from odradek.testing.conformance.administration import delete
from odradek.testing.conformance.group_offsets import commit, delete_offsets, fetched
from odradek.testing.conformance.groups import stable_member
from odradek.testing.conformance.target import UNUSED_ID, Target, Topic, expect, expect_error


def metadata_and_leader_epoch_come_back(target: Target) -> None:
    """What was committed comes back: offset, metadata and leader epoch."""
    group, topic = target.group(), target.topic()
    expect_error("error", commit(target, group, topic, 7, metadata="text", leader_epoch=3), "NONE")
    (found,) = fetched(target, group, topic)
    expect("offset", (found.committed_offset, found.metadata, found.committed_leader_epoch), (7, "text", 3))


def the_last_commit_counts(target: Target) -> None:
    """A later commit replaces an earlier one, also by a smaller offset."""
    group, topic = target.group(), target.topic()
    for offset in (7, 3):
        commit(target, group, topic, offset)
    expect("offset", fetched(target, group, topic)[0].committed_offset, 3)


def any_retention_time_is_taken(target: Target) -> None:
    """From v2 to v4 an offset may be kept for as long as an int64 can say."""
    group, topic = target.group(), target.topic()
    for retention_ms in ((1 << 63) - 1, -(1 << 63), 0):
        for version in (2, 4):
            code = commit(target, group, topic, 7, version=version, retention_time_ms=retention_ms)
            expect_error(f"error for {retention_ms} ms", code, "NONE")


def what_is_not_known_is_minus_1(target: Target) -> None:
    """A partition without a committed offset is -1, with empty metadata and no error."""
    (found,) = fetched(target, target.group(), target.topic())
    expect_error("error", found.error_code, "NONE")
    expect("offset", (found.committed_offset, found.metadata, found.committed_leader_epoch), (-1, "", -1))


def one_of_two_commits_of_a_partition_may_be_too_large(target: Target) -> None:
    """If a partition is committed twice, only the commit that is too large is refused, and the other one counts."""
    group, topic = target.group(), target.topic()
    rows = [
        {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "x" * size,
        }
        for offset, size in ((7, 4096), (8, 4097))
    ]
    (answer,) = target.call("OffsetCommit", 8, group_id=group, topics=[{"name": topic.name, "partitions": rows}]).topics
    expect("errors", [int(one.error_code) for one in answer.partitions], [0, 12])
    expect("offset", fetched(target, group, topic)[0].committed_offset, 7)


def an_unknown_topic_without_partitions_is_answered(target: Target) -> None:
    """An OffsetCommit of a topic that does not exist is answered with its name, even if it names no partitions."""
    name = target.name()
    answer = target.call("OffsetCommit", 8, group_id=target.group(), topics=[{"name": name, "partitions": []}])
    expect("topics", [(topic.name, topic.partitions) for topic in answer.topics], [(name, ())])


def a_topic_that_does_not_exist_is_minus_1(target: Target) -> None:
    """An OffsetFetch of a topic that does not exist is -1 and no error."""
    (found,) = fetched(target, target.group(), Topic(target.name(), UNUSED_ID))
    expect_error("error", found.error_code, "NONE")
    expect("offset", found.committed_offset, -1)


def partitions_come_in_the_order_asked(target: Target) -> None:
    """All partitions that are asked for are answered, in their order."""
    group, topic = target.group(), target.topic(3)
    commit(target, group, topic, 5, partition=1)
    found = fetched(target, group, topic, 2, 0, 1)
    expect("offsets", [(one.partition_index, one.committed_offset) for one in found], [(2, -1), (0, -1), (1, 5)])


def null_is_all_topics(target: Target) -> None:
    """Null asks for all offsets of the group, from v2 on."""
    group, topics = target.group(), [target.topic() for _ in range(2)]
    for topic in topics:
        commit(target, group, topic, 5)
    answer = target.call("OffsetFetch", 7, group_id=group, topics=None)
    expect("topics", {one.name for one in answer.topics}, {topic.name for topic in topics})


def several_groups_at_once(target: Target) -> None:
    """From v8 on several groups are asked for at once."""
    groups, topic = [target.group() for _ in range(2)], target.topic()
    for number, group in enumerate(groups):
        commit(target, group, topic, number)
    asked = [{"group_id": group, "topics": [{"name": topic.name, "partition_indexes": [0]}]} for group in groups]
    answer = target.call("OffsetFetch", 8, groups=asked)
    found = {one.group_id: one.topics[0].partitions[0].committed_offset for one in answer.groups}
    expect("offsets", found, {group: number for number, group in enumerate(groups)})


def an_unknown_topic_id_in_a_fetch(target: Target) -> None:
    """From v10 on an id that no topic has is UNKNOWN_TOPIC_ID."""
    group = target.group()
    topics = [{"topic_id": UNUSED_ID, "partition_indexes": [0]}]
    answer = target.call("OffsetFetch", 10, groups=[{"group_id": group, "topics": topics}])
    expect_error("error", answer.groups[0].topics[0].partitions[0].error_code, "UNKNOWN_TOPIC_ID")


def an_unknown_topic_id_in_a_commit(target: Target) -> None:
    """From v10 on an id that no topic has is UNKNOWN_TOPIC_ID."""
    code = commit(target, target.group(), Topic("", UNUSED_ID), 5, version=10)
    expect_error("error", code, "UNKNOWN_TOPIC_ID")


def an_unknown_topic_in_a_commit(target: Target) -> None:
    """A commit for a topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION."""
    code = commit(target, target.group(), Topic(target.name(), UNUSED_ID), 5)
    expect_error("error", code, "UNKNOWN_TOPIC_OR_PARTITION")


def an_unknown_partition_in_a_commit(target: Target) -> None:
    """A commit for a partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION."""
    code = commit(target, target.group(), target.topic(), 5, partition=9)
    expect_error("error", code, "UNKNOWN_TOPIC_OR_PARTITION")


def metadata_that_is_too_large(target: Target) -> None:
    """Metadata above `offset.metadata.max.bytes` is OFFSET_METADATA_TOO_LARGE."""
    code = commit(target, target.group(), target.topic(), 5, metadata="m" * 5000)
    expect_error("error", code, "OFFSET_METADATA_TOO_LARGE")


def a_member_of_an_unknown_group(target: Target) -> None:
    """A commit of a generation of a group that does not exist is ILLEGAL_GENERATION."""
    code = commit(target, target.group(), target.topic(), 5, generation_id_or_member_epoch=3, member_id="nobody")
    expect_error("error", code, "ILLEGAL_GENERATION")


def a_member_of_an_old_generation(target: Target) -> None:
    """A commit of a generation that is over is ILLEGAL_GENERATION, and one of a stranger UNKNOWN_MEMBER_ID."""
    group, topic = target.group(), target.topic()
    old = stable_member(target, group, session_timeout_ms=30_000)
    # The leader joins again, and so begins the next generation.
    new = stable_member(target, group, member_id=old.member_id)
    expect("the generation", new.generation_id, old.generation_id + 1)
    for generation, member, wanted in (
        (old.generation_id, old.member_id, "ILLEGAL_GENERATION"),
        (new.generation_id + 1, old.member_id, "ILLEGAL_GENERATION"),
        (new.generation_id, "nobody", "UNKNOWN_MEMBER_ID"),
        (-1, "", "UNKNOWN_MEMBER_ID"),
        (new.generation_id, new.member_id, "NONE"),
    ):
        member_of: dict[str, Any] = {"generation_id_or_member_epoch": generation, "member_id": member}
        code = commit(target, group, topic, generation + 10, **member_of)
        expect_error(f"generation {generation} of {member!r}", code, wanted)
    expect("offset", fetched(target, group, topic)[0].committed_offset, new.generation_id + 10)


def an_offset_is_deleted(target: Target) -> None:
    """OffsetDelete forgets the offset of a group without members."""
    group, topic = target.group(), target.topic()
    commit(target, group, topic, 5)
    answer = delete_offsets(target, group, topic)
    expect_error("error", answer.topics[0].partitions[0].error_code, "NONE")
    expect("offset", fetched(target, group, topic)[0].committed_offset, -1)


def offsets_of_a_group_that_does_not_exist_are_not_deleted(target: Target) -> None:
    """OffsetDelete of a group that does not exist is GROUP_ID_NOT_FOUND."""
    answer = delete_offsets(target, target.group(), target.topic())
    expect_error("error", answer.error_code, "GROUP_ID_NOT_FOUND")


def a_deleted_topic_takes_its_offsets_along(target: Target) -> None:
    """When a topic is deleted, groups forget their offsets of it."""
    group, topic = target.group(), target.topic()
    commit(target, group, topic, 5)
    delete(target, topic)
    target.until("it is forgotten", lambda: fetched(target, group, topic)[0].committed_offset == -1)
