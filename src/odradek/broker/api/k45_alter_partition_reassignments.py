"""AlterPartitionReassignments: which brokers hold a partition. This one does, and no other can.

To ask for this broker changes nothing; there is nothing to cancel. v1 (KIP-860) can forbid to change the number of
replicas, which does not happen here.

Source in Kafka: `ReplicationControlManager.alterPartitionReassignments`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError, code_of, message_of
from odradek.broker.failures import failure
from odradek.broker.protocol import Message, given
from odradek.broker.topic_names import shown_topic
from odradek.broker.turns import Work, each_partition
from odradek.errors import OdradekError


def _failed(request: Request, code: int, text: str) -> Message:
    of_partitions = failure(request.header, request.body, code, text, at_top=False)
    return {**of_partitions, "error_code": code, "error_message": text}


@api(45, "AlterPartitionReassignments", range(2), failed=_failed)
def alter_partition_reassignments(request: Request) -> Work[Message]:
    """Answer that partitions stay where they are."""
    found = yield from each_partition(request.body.topics, "partitions", partial(_answer, request))
    return {
        "allow_replication_factor_change": given(request.body, "allow_replication_factor_change", True),
        "error_code": NO_ERROR,
        "error_message": None,
        "responses": [{"name": topic.name, "partitions": partitions} for topic, partitions in found],
    }


def _answer(request: Request, topic: Any, one: Any) -> Message:
    code, text = NO_ERROR, None
    try:
        _check(request, topic.name, one)
    except OdradekError as error:
        code, text = code_of(error), message_of(error)
        if code == ErrorCode.no_reassignment_in_progress:
            text = None
    return {"partition_index": one.partition_index, "error_code": code, "error_message": text}


def _check(request: Request, topic: str, one: Any) -> None:
    found = request.broker.logs.metadata_image.topics.get(topic)
    if found is None:
        raise ApiError(ErrorCode.unknown_topic_or_partition, f"Unable to find a topic named {shown_topic(topic)}.")
    if one.partition_index not in found.partitions:
        reason = f"Unable to find partition {topic}:{one.partition_index}."
        raise ApiError(ErrorCode.unknown_topic_or_partition, reason)
    if one.replicas is None:
        raise ApiError(ErrorCode.no_reassignment_in_progress)
    request.broker.topics.check_assignment(one.replicas)
