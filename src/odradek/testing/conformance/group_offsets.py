"""Offsets of groups, as checks commit, fetch and delete them."""

from __future__ import annotations

from typing import Any

from odradek.testing.conformance.target import Target, Topic, expect_error


def commit_answer(target: Target, group: str, topic: Topic, offset: int = 5, *, version: int = 8, **fields: Any) -> Any:
    """Commit an offset of one partition, the first unless another is given; the answer for its topic."""
    one = {
        "partition_index": fields.pop("partition", 0),
        "committed_offset": offset,
        "committed_metadata": fields.pop("metadata", "m"),
        "committed_leader_epoch": fields.pop("leader_epoch", -1),
    }
    topics = [{"name": topic.name, "topic_id": topic.id, "partitions": [one]}]
    return target.call("OffsetCommit", version, group_id=group, topics=topics, **fields).topics[0]


def commit(target: Target, group: str, topic: Topic, offset: int = 5, **fields: Any) -> int:
    """Commit an offset of one partition, as `commit_answer` does; the error."""
    return int(commit_answer(target, group, topic, offset, **fields).partitions[0].error_code)


def commit_of(target: Target, group: str, topic: Topic, epoch: int, member: str = "m", **fields: Any) -> int:
    """Commit an offset for a member in an epoch or a generation; the error."""
    return commit(target, group, topic, member_id=member, generation_id_or_member_epoch=epoch, **fields)


def fetched(target: Target, group: str, topic: Topic, *partitions: int, **fields: Any) -> list[Any]:
    """Return what OffsetFetch v7 answers about partitions, the first if none is named."""
    topics = [{"name": topic.name, "partition_indexes": list(partitions or (0,))}]
    answer = target.call("OffsetFetch", 7, group_id=group, topics=topics, **fields)
    expect_error("error of the group", answer.error_code, "NONE")
    return list(answer.topics[0].partitions)


def fetch_for(target: Target, group: str, topic: Topic | None, *, version: int = 10, **fields: Any) -> Any:
    """Fetch the offset of a topic's first partition, of all topics if none is given; the answer for the group."""
    require_stable = fields.pop("require_stable", False)
    topics = None
    if topic is not None:
        topics = [{"name": topic.name, "topic_id": topic.id, "partition_indexes": [0]}]
    asked = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics, **fields}
    return target.call("OffsetFetch", version, groups=[asked], require_stable=require_stable).groups[0]


def delete_offsets(target: Target, group: str, *topics: Topic) -> Any:
    """Delete the offsets of topics' first partitions; the answer."""
    asked = [{"name": topic.name, "partitions": [{"partition_index": 0}]} for topic in topics]
    return target.call("OffsetDelete", 0, group_id=group, topics=asked)


class PendingOffsets:
    """A transaction that commits offsets of a group."""

    def __init__(self, target: Target, group: str, topic: Topic) -> None:
        self._target, self._group, self._topic = target, group, topic
        self.transaction = target.transaction()
        answer = target.call("AddOffsetsToTxn", 3, **self.transaction.fields, group_id=group)
        expect_error("AddOffsetsToTxn", answer.error_code, "NONE")

    def commit(self, member: str = "", epoch: int = -1, wanted: str = "NONE", **fields: Any) -> None:
        """Commit offset 7 for a member, and expect an error or none."""
        one = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "", "committed_leader_epoch": -1}
        topics = [{"name": self._topic.name, "partitions": [one]}]
        asked: dict[str, Any] = {"member_id": member, "generation_id": epoch, "group_instance_id": None, **fields}
        fields = {**self.transaction.fields, "group_id": self._group, "topics": topics, **asked}
        found = self._target.call("TxnOffsetCommit", 4, **fields).topics[0].partitions[0]
        expect_error(f"{member} in {epoch}", found.error_code, wanted)
