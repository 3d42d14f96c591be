"""DeleteRecords: the records before an offset of a partition; -1: all of them.

The log start offset moves up; the segments below it follow with the next retention. Kafka's own topics, and topics that
are compacted only, keep their records.

Source in Kafka: `ReplicaManager.deleteRecords`, `Partition.deleteRecordsOnLeader`.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError, code_of
from odradek.broker.partitions import Partition
from odradek.broker.protocol import Message
from odradek.broker.turns import rest
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.errors import OdradekError
from odradek.storage.names import is_internal

_HIGH_WATERMARK = -1


def _answer(number: int, code: int = NO_ERROR, low_watermark: int = -1) -> Message:
    return {"partition_index": number, "low_watermark": low_watermark, "error_code": code}


@api(21, "DeleteRecords", range(3))
async def delete_records(request: Request) -> Message:
    """Delete records."""
    topics, count = [], itertools.count()
    for topic in request.body.topics:
        partitions = []
        for one in topic.partitions:
            partitions.append(await _delete(request, topic.name, one))
            await rest(next(count))
        topics.append({"name": topic.name, "partitions": partitions})
        await rest(next(count))
    return {"topics": topics}


async def _delete(request: Request, topic: str, one: Any) -> Message:
    try:
        request.check(Operation.DELETE, ResourceType.TOPIC, topic)
        partition = await request.broker.partitions.opened(topic, one.partition_index)
        if is_internal(topic):
            raise ApiError(ErrorCode.invalid_topic_exception, f"Cannot delete records of internal topic {topic}")
        if partition.log.config.keeps_records:
            raise ApiError(ErrorCode.policy_violation)
        start = await partition.in_order(partial(_move_start, partition, _readable(partition, one.offset)))
        return _answer(one.partition_index, low_watermark=start)
    except OdradekError as error:
        return _answer(one.partition_index, code_of(error))


def _readable(partition: Partition, offset: int) -> int:
    """Return the offset to delete up to, which is at most where the log ends for readers."""
    if partition.commits.holds:
        end = partition.commits.ends.high_watermark
        if offset > end:
            raise ApiError(ErrorCode.offset_out_of_range)
        return end if offset == _HIGH_WATERMARK else offset
    return offset


def _move_start(partition: Partition, offset: int) -> int:
    return partition.log.delete_records(None if offset == _HIGH_WATERMARK else offset)
