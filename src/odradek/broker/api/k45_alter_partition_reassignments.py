"""AlterPartitionReassignments: which brokers hold a partition. This one does, and no other can.

To ask for this broker changes nothing; there is nothing to cancel. v1 (KIP-860) can forbid to change the number of
replicas, which does not happen here.

Source in Kafka: `ReplicationControlManager.alterPartitionReassignments`.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError, code_of, message_of
from odradek.broker.protocol import Message, given
from odradek.errors import OdradekError


@api(45, "AlterPartitionReassignments", range(2))
def alter_partition_reassignments(request: Request) -> Message:
    """Answer that partitions stay where they are."""
    return {
        "allow_replication_factor_change": given(request.body, "allow_replication_factor_change", True),
        "error_code": NO_ERROR,
        "error_message": None,
        "responses": [
            {"name": topic.name, "partitions": [_answer(request, topic.name, one) for one in topic.partitions]}
            for topic in request.body.topics
        ],
    }


def _answer(request: Request, topic: str, one: Any) -> Message:
    code, text = NO_ERROR, None
    try:
        _check(request, topic, one)
    except OdradekError as error:
        code, text = code_of(error), message_of(error)
        if code == ErrorCode.no_reassignment_in_progress:
            text = None
    return {"partition_index": one.partition_index, "error_code": code, "error_message": text}


def _check(request: Request, topic: str, one: Any) -> None:
    found = request.broker.logs.metadata_image.topics.get(topic)
    if found is None:
        raise ApiError(ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {topic}.")
    if one.partition_index not in found.partitions:
        reason = f"Unable to find partition {topic}:{one.partition_index}."
        raise ApiError(ErrorCode.unknown_topic_or_partition, reason)
    if one.replicas is None:
        raise ApiError(ErrorCode.no_reassignment_in_progress)
    request.broker.topics.check_assignment(one.replicas)
