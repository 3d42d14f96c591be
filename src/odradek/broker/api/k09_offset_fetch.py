"""OffsetFetch: the offsets that groups have committed. What is not known has the offset -1, and no error.

v2 tells of all partitions of a group (topics null), and has an error for all of it; v5 (KIP-320) adds the leader epoch;
v7 (KIP-447) can ask for offsets only that no open transaction may change; v8 (KIP-709) takes several groups; v9
(KIP-848) tells the member, which only groups that are not advertised check; v10 (KIP-848) names topics by their ids, of
which unknown ones are an error.

Source in Kafka: `KafkaApis.handleOffsetFetchRequest`, `OffsetMetadataManager.fetchOffsets`, `OffsetFetchResponse`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, code_of
from odradek.broker.protocol import Message, given
from odradek.errors import BrokerError
from odradek.inspection.committed_offsets import CommittedOffset, Offsets
from odradek.messages.uuids import ZERO_UUID
from odradek.storage.names import TopicPartition

_FIRST_WITH_ERROR = 2
_FIRST_WITH_SEVERAL = 8
_FIRST_WITH_IDS = 10


def _failed(request: Request, code: int, text: str) -> Message:
    body = request.body
    if request.version >= _FIRST_WITH_SEVERAL:
        return {"groups": [_group_error(request, group.group_id, group.topics, code) for group in body.groups]}
    return _group_error(request, body.group_id, body.topics, code)


def _group_error(request: Request, group_id: str, topics: Sequence[Any] | None, code: int) -> Message:
    if request.version >= _FIRST_WITH_ERROR:
        return {"group_id": group_id, "error_code": code, "topics": []}
    return {
        "topics": [
            {"name": topic.name, "partitions": [_partition(number, code=code) for number in topic.partition_indexes]}
            for topic in topics or ()
        ]
    }


@api(9, "OffsetFetch", range(1, 11), failed=_failed)
def offset_fetch(request: Request) -> Message:
    """Answer the offsets."""
    body = request.body
    if request.version >= _FIRST_WITH_SEVERAL:
        return {"groups": [_group(request, group.group_id, group.topics) for group in body.groups]}
    return _group(request, body.group_id, body.topics)


def _group(request: Request, group_id: str, topics: Sequence[Any] | None) -> Message:
    try:
        shard = request.broker.groups.shard(group_id)
    except BrokerError as error:
        return _group_error(request, group_id, topics, code_of(error))
    offsets = shard.offsets
    committed = offsets.of(group_id)
    if topics is None:
        found = _all(request, offsets, group_id, committed)
    else:
        found = _wanted(request, offsets, group_id, committed, topics)
    return {"group_id": group_id, "error_code": NO_ERROR, "topics": found}


def _all(
    request: Request, offsets: Offsets, group_id: str, committed: dict[TopicPartition, CommittedOffset]
) -> list[Message]:
    topics: dict[str, list[Message]] = {}
    for partition, offset in committed.items():
        answered = _offset(request, offsets, group_id, partition, offset)
        topics.setdefault(partition.topic, []).append(answered)
    found: list[Message] = []
    image = request.broker.logs.metadata_image
    for name, partitions in topics.items():
        known = image.topics.get(name)
        topic_id = None if known is None else known.topic_id
        # A topic that is gone has no id to name it by.
        if topic_id is not None or request.version < _FIRST_WITH_IDS:
            found.append({"name": name, "topic_id": topic_id, "partitions": partitions})
    return found


def _wanted(
    request: Request,
    offsets: Offsets,
    group_id: str,
    committed: dict[TopicPartition, CommittedOffset],
    topics: Sequence[Any],
) -> list[Message]:
    found: list[Message] = []
    unknown: list[Message] = []
    image = request.broker.logs.metadata_image
    for topic in topics:
        topic_id = given(topic, "topic_id")
        if request.version >= _FIRST_WITH_IDS:
            known = None if topic_id is None else image.topic_by_id(topic_id)
            if known is None:
                code = int(ErrorCode.unknown_topic_id)
                partitions = [_partition(number, code=code) for number in topic.partition_indexes]
                unknown.append({"topic_id": topic_id, "partitions": partitions})
                continue
            name = known.name
        else:
            name = topic.name
        answered = []
        for number in topic.partition_indexes:
            partition = TopicPartition(name, number)
            offset = committed.get(partition)
            if (
                offset is not None
                and topic_id not in (None, offset.value.topic_id)
                and offset.value.topic_id != ZERO_UUID
            ):
                # It was committed before the topic was deleted and created again.
                offset = None
            answered.append(_offset(request, offsets, group_id, partition, offset))
        found.append({"name": name, "topic_id": topic_id, "partitions": answered})
    return found + unknown


def _offset(
    request: Request, offsets: Offsets, group_id: str, partition: TopicPartition, offset: CommittedOffset | None
) -> Message:
    if given(request.body, "require_stable", False) and offsets.is_pending(group_id, partition):
        return _partition(partition.partition, code=int(ErrorCode.unstable_offset_commit))
    if offset is None:
        return _partition(partition.partition)
    value = offset.value
    return _partition(partition.partition, value.offset, value.leader_epoch, value.metadata)


def _partition(
    number: int, offset: int = -1, leader_epoch: int = -1, metadata: str = "", code: int = NO_ERROR
) -> Message:
    return {
        "partition_index": number,
        "committed_offset": offset,
        "committed_leader_epoch": leader_epoch,
        "metadata": metadata,
        "error_code": code,
    }
