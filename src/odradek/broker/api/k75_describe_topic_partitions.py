"""DescribeTopicPartitions: topics with their partitions, in portions (KIP-966).

    all partitions:  a-0 a-1 b-0 | b-1 b-2 c-0      the answer's cursor, here b-1, is sent with the next request

Topics are answered by name. There is one replica of each partition, so none is eligible besides.

Source in Kafka: `DescribeTopicPartitionsRequestHandler`, `KRaftMetadataCache.describeTopicResponse`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.api.k03_metadata import partition_answer
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.operations import NOT_ASKED, TOPIC_OPERATIONS
from odradek.broker.protocol import Message
from odradek.messages.uuids import ZERO_UUID
from odradek.storage.names import invalid_topic_name_reason, is_internal

_MOST = 2000
"""The default of `max.request.partition.size.limit`."""


def _all_failed(request: Request, code: int, text: str) -> Message:
    topics = [_failed(topic.name, code, NOT_ASKED) for topic in request.body.topics]
    return {"topics": topics, "next_cursor": None}


def _failed(name: str, code: int, operations: int = TOPIC_OPERATIONS) -> Message:
    return {
        "error_code": code,
        "name": name,
        "topic_id": ZERO_UUID,
        "is_internal": is_internal(name),
        "partitions": [],
        "topic_authorized_operations": operations,
    }


@api(75, "DescribeTopicPartitions", range(1), failed=_all_failed)
def describe_topic_partitions(request: Request) -> Message:
    """Answer topics and partitions."""
    body, image = request.body, request.broker.logs.metadata_image
    names = {topic.name for topic in body.topics} or set(image.topics)
    start, first = ("", 0) if body.cursor is None else (body.cursor.topic_name, body.cursor.partition_index)
    if body.cursor is not None and body.topics and start not in names:
        reason = f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {start}"
        raise ApiError(ErrorCode.invalid_request, reason)
    if first < 0:
        raise ApiError(ErrorCode.invalid_request, "DescribeTopicPartitionsRequest cursor partition must be valid")
    left = max(min(_MOST, body.response_partition_limit), 1)
    answers: list[Message] = []
    cursor = None
    for name in sorted(name for name in names if name >= start):
        if not left:
            cursor = {"topic_name": name, "partition_index": 0}
            break
        topic = image.topics.get(name)
        if topic is None:
            if body.topics:
                is_valid = invalid_topic_name_reason(name) is None
                code = ErrorCode.unknown_topic_or_partition if is_valid else ErrorCode.invalid_topic_exception
                answers.append(_failed(name, int(code)))
            continue
        numbers = [number for number in sorted(topic.partitions) if name != start or number >= first]
        answers.append(
            {
                "error_code": NO_ERROR,
                "name": name,
                "topic_id": topic.topic_id or ZERO_UUID,
                "is_internal": is_internal(name),
                "partitions": [
                    partition_answer(request, number, topic.partitions[number])
                    | {"eligible_leader_replicas": [], "last_known_elr": []}
                    for number in numbers[:left]
                ],
                "topic_authorized_operations": TOPIC_OPERATIONS,
            }
        )
        if len(numbers) > left:
            cursor = {"topic_name": name, "partition_index": numbers[left]}
            break
        left -= len(numbers)
    return {"topics": answers, "next_cursor": cursor}
