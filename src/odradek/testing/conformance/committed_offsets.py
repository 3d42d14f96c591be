"""OffsetCommit, OffsetFetch, OffsetDelete: where a group keeps its place."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from odradek.testing.conformance.suite import check
from odradek.testing.conformance.target import Target, Topic, expect, expect_error

_UNUSED_ID = UUID("5a3f9c1e-22d4-4c8b-9f10-6f2d1f3f7a04")


def _commit(target: Target, group: str, topic: Topic, offset: int, *, version: int = 8, **fields: Any) -> int:
    metadata, partition = fields.pop("metadata", "m"), fields.pop("partition", 0)
    one = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
    one["committed_leader_epoch"] = fields.pop("leader_epoch", -1)
    topics = [{"name": topic.name, "topic_id": topic.id, "partitions": [one]}]
    answer = target.call("OffsetCommit", version, group_id=group, topics=topics, **fields)
    return int(answer.topics[0].partitions[0].error_code)


def _fetch(target: Target, group: str, topic: Topic, *partitions: int, **fields: Any) -> list[Any]:
    topics = [{"name": topic.name, "partition_indexes": list(partitions or (0,))}]
    answer = target.call("OffsetFetch", 7, group_id=group, topics=topics, **fields)
    expect_error("error of the group", answer.error_code, "NONE")
    return list(answer.topics[0].partitions)


@check
def metadata_and_leader_epoch_come_back(target: Target) -> None:
    """What was committed comes back: offset, metadata and leader epoch."""
    group, topic = target.group(), target.topic()
    expect_error("error", _commit(target, group, topic, 7, metadata="text", leader_epoch=3), "NONE")
    (found,) = _fetch(target, group, topic)
    expect("offset", (found.committed_offset, found.metadata, found.committed_leader_epoch), (7, "text", 3))


@check
def the_last_commit_counts(target: Target) -> None:
    """A later commit replaces an earlier one, also by a smaller offset."""
    group, topic = target.group(), target.topic()
    for offset in (7, 3):
        _commit(target, group, topic, offset)
    expect("offset", _fetch(target, group, topic)[0].committed_offset, 3)


@check
def any_retention_time_is_taken(target: Target) -> None:
    """From v2 to v4 an offset may be kept for as long as an int64 can say."""
    group, topic = target.group(), target.topic()
    for retention_ms in ((1 << 63) - 1, -(1 << 63), 0):
        for version in (2, 4):
            code = _commit(target, group, topic, 7, version=version, retention_time_ms=retention_ms)
            expect_error(f"error for {retention_ms} ms", code, "NONE")


@check
def what_is_not_known_is_minus_1(target: Target) -> None:
    """A partition without a committed offset is -1, with empty metadata and no error."""
    (found,) = _fetch(target, target.group(), target.topic())
    expect_error("error", found.error_code, "NONE")
    expect("offset", (found.committed_offset, found.metadata, found.committed_leader_epoch), (-1, "", -1))


@check
def one_of_two_commits_of_a_partition_may_be_too_large(target: Target) -> None:
    """Of a partition that is committed twice, only what is too large is refused, and the other offset is kept."""
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
    expect("offset", _fetch(target, group, topic)[0].committed_offset, 7)


@check
def an_unknown_topic_without_partitions_is_answered(target: Target) -> None:
    """An OffsetCommit of a topic that does not exist is answered with its name, even if it names no partitions."""
    name = target.name()
    answer = target.call("OffsetCommit", 8, group_id=target.group(), topics=[{"name": name, "partitions": []}])
    expect("topics", [(topic.name, topic.partitions) for topic in answer.topics], [(name, ())])


@check
def a_topic_that_does_not_exist_is_minus_1(target: Target) -> None:
    """An OffsetFetch of a topic that does not exist is -1 and no error."""
    (found,) = _fetch(target, target.group(), Topic(target.name(), _UNUSED_ID))
    expect_error("error", found.error_code, "NONE")
    expect("offset", found.committed_offset, -1)


@check
def partitions_come_in_the_order_asked(target: Target) -> None:
    """All partitions that are asked for are answered, in their order."""
    group, topic = target.group(), target.topic(3)
    _commit(target, group, topic, 5, partition=1)
    found = _fetch(target, group, topic, 2, 0, 1)
    expect("offsets", [(one.partition_index, one.committed_offset) for one in found], [(2, -1), (0, -1), (1, 5)])


@check
def null_is_all_topics(target: Target) -> None:
    """Null asks for all offsets of the group, from v2 on."""
    group, topics = target.group(), [target.topic() for _ in range(2)]
    for topic in topics:
        _commit(target, group, topic, 5)
    answer = target.call("OffsetFetch", 7, group_id=group, topics=None)
    expect("topics", {one.name for one in answer.topics}, {topic.name for topic in topics})


@check
def several_groups_at_once(target: Target) -> None:
    """From v8 on several groups are asked for at once."""
    groups, topic = [target.group() for _ in range(2)], target.topic()
    for number, group in enumerate(groups):
        _commit(target, group, topic, number)
    asked = [{"group_id": group, "topics": [{"name": topic.name, "partition_indexes": [0]}]} for group in groups]
    answer = target.call("OffsetFetch", 8, groups=asked)
    found = {one.group_id: one.topics[0].partitions[0].committed_offset for one in answer.groups}
    expect("offsets", found, {group: number for number, group in enumerate(groups)})


@check
def an_unknown_topic_id_in_a_fetch(target: Target) -> None:
    """From v10 on an id that no topic has is UNKNOWN_TOPIC_ID."""
    group = target.group()
    topics = [{"topic_id": _UNUSED_ID, "partition_indexes": [0]}]
    answer = target.call("OffsetFetch", 10, groups=[{"group_id": group, "topics": topics}])
    expect_error("error", answer.groups[0].topics[0].partitions[0].error_code, "UNKNOWN_TOPIC_ID")


@check
def an_unknown_topic_id_in_a_commit(target: Target) -> None:
    """From v10 on an id that no topic has is UNKNOWN_TOPIC_ID."""
    code = _commit(target, target.group(), Topic("", _UNUSED_ID), 5, version=10)
    expect_error("error", code, "UNKNOWN_TOPIC_ID")


@check
def an_unknown_topic_in_a_commit(target: Target) -> None:
    """A commit for a topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION."""
    code = _commit(target, target.group(), Topic(target.name(), _UNUSED_ID), 5)
    expect_error("error", code, "UNKNOWN_TOPIC_OR_PARTITION")


@check
def an_unknown_partition_in_a_commit(target: Target) -> None:
    """A commit for a partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION."""
    code = _commit(target, target.group(), target.topic(), 5, partition=9)
    expect_error("error", code, "UNKNOWN_TOPIC_OR_PARTITION")


@check
def metadata_that_is_too_large(target: Target) -> None:
    """Metadata above `offset.metadata.max.bytes` is OFFSET_METADATA_TOO_LARGE."""
    code = _commit(target, target.group(), target.topic(), 5, metadata="m" * 5000)
    expect_error("error", code, "OFFSET_METADATA_TOO_LARGE")


@check
def a_member_of_an_unknown_group(target: Target) -> None:
    """A commit of a generation of a group that does not exist is ILLEGAL_GENERATION."""
    code = _commit(target, target.group(), target.topic(), 5, generation_id_or_member_epoch=3, member_id="nobody")
    expect_error("error", code, "ILLEGAL_GENERATION")


@check
def an_offset_is_deleted(target: Target) -> None:
    """OffsetDelete forgets the offset of a group without members."""
    group, topic = target.group(), target.topic()
    _commit(target, group, topic, 5)
    asked = [{"name": topic.name, "partitions": [{"partition_index": 0}]}]
    answer = target.call("OffsetDelete", 0, group_id=group, topics=asked)
    expect_error("error", answer.topics[0].partitions[0].error_code, "NONE")
    expect("offset", _fetch(target, group, topic)[0].committed_offset, -1)


@check
def offsets_of_a_group_that_does_not_exist_are_not_deleted(target: Target) -> None:
    """OffsetDelete of a group that does not exist is GROUP_ID_NOT_FOUND."""
    asked = [{"name": target.topic().name, "partitions": [{"partition_index": 0}]}]
    answer = target.call("OffsetDelete", 0, group_id=target.group(), topics=asked)
    expect_error("error", answer.error_code, "GROUP_ID_NOT_FOUND")


@check
def a_deleted_topic_takes_its_offsets_along(target: Target) -> None:
    """When a topic is deleted, groups forget their offsets of it."""
    group, topic = target.group(), target.topic()
    _commit(target, group, topic, 5)
    target.call("DeleteTopics", 1, topic_names=[topic.name])
    target.until("it is forgotten", lambda: _fetch(target, group, topic)[0].committed_offset == -1 or None)
