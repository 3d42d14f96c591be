"""OffsetFetch: the offsets that groups have committed. A partition without one has the offset -1, and no error.

v2 returns all partitions of a group (topics null), and has an error for the whole answer; v5 (KIP-320) adds the leader
epoch; v7 (KIP-447) can ask only for offsets that no open transaction may change; v8 (KIP-709) takes several groups; v9
(KIP-848) names the member, which consumer groups check; v10 (KIP-848) names topics by their ids, of which unknown ones
are an error.

Source in Kafka: `KafkaApis.handleOffsetFetchRequest`, `OffsetMetadataManager.fetchOffsets`, `OffsetFetchResponse`.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, code_of
from odradek.broker.protocol import Message, given
from odradek.broker.turns import Work, each, each_partition, whole
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.coordination.groups.consumer import ConsumerGroup
from odradek.coordination.groups.offsets import OffsetRecord, Offsets
from odradek.errors import BrokerError
from odradek.messages.uuids import ZERO_UUID
from odradek.storage.names import TopicPartition

_FIRST_WITH_ERROR = 2
_FIRST_WITH_SEVERAL = 8
_FIRST_WITH_IDS = 10
_AT_ONCE = 50
_NO_EPOCH = -1


def _failed(request: Request, code: int, text: str) -> Message:
    body = request.body
    if request.version >= _FIRST_WITH_SEVERAL:
        return {"groups": [whole(_group_error(request, group.group_id, group.topics, code)) for group in body.groups]}
    return whole(_group_error(request, body.group_id, body.topics, code))


def _group_error(request: Request, group_id: str, topics: Sequence[Any] | None, code: int) -> Work[Message]:
    if request.version >= _FIRST_WITH_ERROR:
        return {"group_id": group_id, "error_code": code, "topics": []}
    found = yield from each_partition(
        topics or (), "partition_indexes", lambda _, number: _partition(number, code=code)
    )
    return {"topics": [{"name": topic.name, "partitions": partitions} for topic, partitions in found]}


def _group_ids(request: Request) -> list[str]:
    body = request.body
    return [group.group_id for group in body.groups] if request.version >= _FIRST_WITH_SEVERAL else [body.group_id]


@api(9, "OffsetFetch", range(1, 11), failed=_failed, group_ids=_group_ids)
def offset_fetch(request: Request) -> Work[Message]:
    """Answer the offsets."""
    body = request.body
    if request.version < _FIRST_WITH_SEVERAL:
        return (yield from _group(request, body.group_id, body.topics))
    asked: dict[str, list[Any]] = {}
    members: dict[str, tuple[str | None, int]] = {}
    for group in body.groups:
        asked.setdefault(group.group_id, []).append(group.topics)
        members.setdefault(group.group_id, (given(group, "member_id"), given(group, "member_epoch", _NO_EPOCH)))
        yield
    groups = []
    for group_id, lists in asked.items():
        topics = None if None in lists else [topic for one in lists for topic in one]
        groups.append((yield from _group(request, group_id, topics, *members[group_id])))
        yield
    return {"groups": groups}


def _group(
    request: Request,
    group_id: str,
    topics: Sequence[Any] | None,
    member_id: str | None = None,
    member_epoch: int = _NO_EPOCH,
) -> Work[Message]:
    try:
        request.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        shard = request.broker.groups.shard(group_id)
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.check_offset_fetch(member_id, member_epoch)
    except BrokerError as error:
        return (yield from _group_error(request, group_id, topics, code_of(error)))
    offsets = shard.offsets
    committed = offsets.of(group_id)
    if topics is None or sum(len(topic.partition_indexes) for topic in topics) > _AT_ONCE:
        # They are answered as they are now, though others may commit between two turns.
        committed = dict(committed)
    if topics is None:
        names = set((yield from each(committed, lambda partition: partition.topic)))
        shown, _ = yield from request.split(Operation.DESCRIBE, ResourceType.TOPIC, names)
        found = yield from _all(request, offsets, group_id, committed, shown)
    else:
        found = yield from _wanted(request, offsets, group_id, committed, topics)
    return {"group_id": group_id, "error_code": NO_ERROR, "topics": found}


def _all(
    request: Request,
    offsets: Offsets,
    group_id: str,
    committed: dict[TopicPartition, OffsetRecord],
    shown: Container[str],
) -> Work[list[Message]]:
    topics: dict[str, list[Message]] = {}
    for partition, offset in committed.items():
        yield
        if partition.topic not in shown:
            continue
        answered = _offset(request, offsets, group_id, partition, offset)
        topics.setdefault(partition.topic, []).append(answered)
    found: list[Message] = []
    image = request.broker.logs.metadata_image
    for name, partitions in topics.items():
        yield
        known = image.topics.get(name)
        topic_id = None if known is None else known.topic_id
        # A topic that was deleted has no id to name it by.
        if topic_id is not None or request.version < _FIRST_WITH_IDS:
            found.append({"name": name, "topic_id": topic_id, "partitions": partitions})
    return found


def _wanted(
    request: Request,
    offsets: Offsets,
    group_id: str,
    committed: dict[TopicPartition, OffsetRecord],
    topics: Sequence[Any],
) -> Work[list[Message]]:
    found: list[Message] = []
    unknown: list[Message] = []
    image = request.broker.logs.metadata_image
    asked: dict[tuple[UUID | None, str], dict[int, None]] = {}
    for topic in topics:
        key = given(topic, "topic_id"), given(topic, "name", "")
        asked.setdefault(key, {}).update(dict.fromkeys(topic.partition_indexes))
        yield
    for (topic_id, name), numbers in asked.items():
        yield
        if request.version >= _FIRST_WITH_IDS:
            known = None if topic_id is None else image.topic_by_id(topic_id)
            if known is None:
                code = int(ErrorCode.unknown_topic_id)
                partitions = [_partition(number, code=code) for number in numbers]
                unknown.append({"topic_id": topic_id, "partitions": partitions})
                continue
            name = known.name
        if not request.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            code = int(ErrorCode.topic_authorization_failed)
            partitions = [_partition(number, code=code) for number in numbers]
            unknown.append({"name": name, "topic_id": topic_id, "partitions": partitions})
            continue
        answered = []
        for number in numbers:
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
            yield
        found.append({"name": name, "topic_id": topic_id, "partitions": answered})
    return found + unknown


def _offset(
    request: Request, offsets: Offsets, group_id: str, partition: TopicPartition, offset: OffsetRecord | None
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
