"""DeleteRecords: the records before an offset of a partition; -1: all of them.

The log start offset moves up; the segments below it follow with the next retention. Kafka's own topics, and topics that
are compacted only, keep their records.

Source in Kafka: `ReplicaManager.deleteRecords`, `Partition.deleteRecordsOnLeader`.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError, code_of
from odradek.broker.partitions import Partition
from odradek.broker.protocol import Message
from odradek.errors import OdradekError
from odradek.storage.names import is_internal

_HIGH_WATERMARK = -1


def _all_failed(request: Request, code: int, text: str) -> Message:
    return {
        "topics": [
            {"name": topic.name, "partitions": [_answer(one.partition_index, code) for one in topic.partitions]}
            for topic in request.body.topics
        ]
    }


def _answer(number: int, code: int = NO_ERROR, low_watermark: int = -1) -> Message:
    return {"partition_index": number, "low_watermark": low_watermark, "error_code": code}


@api(21, "DeleteRecords", range(3), failed=_all_failed)
async def delete_records(request: Request) -> Message:
    """Delete records."""
    return {
        "topics": [
            {"name": topic.name, "partitions": [await _delete(request, topic.name, one) for one in topic.partitions]}
            for topic in request.body.topics
        ]
    }


async def _delete(request: Request, topic: str, one: Any) -> Message:
    try:
        partition = request.broker.partitions.get(topic, one.partition_index)
        if is_internal(topic):
            raise ApiError(ErrorCode.invalid_topic_exception, f"Cannot delete records of internal topic {topic}")
        config = partition.log.config
        if config.is_compacted and not config.is_deleted:
            raise ApiError(ErrorCode.policy_violation)
        start = await partition.in_order(lambda: _move_start(partition, one.offset))
        return _answer(one.partition_index, low_watermark=start)
    except OdradekError as error:
        return _answer(one.partition_index, code_of(error))


def _move_start(partition: Partition, offset: int) -> int:
    return partition.log.delete_records(None if offset == _HIGH_WATERMARK else offset)
