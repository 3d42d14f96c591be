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
from odradek.broker.operations import NOT_ASKED
from odradek.broker.protocol import Message
from odradek.broker.turns import Work
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.messages.uuids import ZERO_UUID
from odradek.storage.names import invalid_topic_name_reason, is_internal


def _all_failed(request: Request, code: int, text: str) -> Message:
    return {"topics": [_failed(topic.name, code, NOT_ASKED) for topic in request.body.topics]}


def _failed(name: str, code: int, operations: int) -> Message:
    is_own = is_internal(name)
    return {"error_code": code, "name": name, "is_internal": is_own, "topic_authorized_operations": operations}


@api(75, "DescribeTopicPartitions", range(1), failed=_all_failed)
def describe_topic_partitions(request: Request) -> Work[Message]:
    """Answer topics and partitions."""
    body, image = request.body, request.broker.logs.metadata_image
    names = {topic.name for topic in body.topics} or set(image.topics)
    start, first = ("", 0) if body.cursor is None else (body.cursor.topic_name, body.cursor.partition_index)
    if body.cursor is not None and body.topics and start not in names:
        reason = f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {start}"
        raise ApiError(ErrorCode.invalid_request, reason)
    if first < 0:
        raise ApiError(ErrorCode.invalid_request, "DescribeTopicPartitionsRequest cursor partition must be valid")
    most = request.broker.config["max.request.partition.size.limit"]
    left = max(min(most, body.response_partition_limit), 1)
    answers: list[Message] = []
    cursor = None
    asked = (name for name in names if name >= start)
    shown, denied = yield from request.split(Operation.DESCRIBE, ResourceType.TOPIC, asked)
    for name in sorted(shown):
        yield
        if not left:
            cursor = {"topic_name": name, "partition_index": 0}
            break
        topic = image.topics.get(name)
        if topic is None:
            if body.topics:
                is_valid = invalid_topic_name_reason(name) is None
                code = ErrorCode.unknown_topic_or_partition if is_valid else ErrorCode.invalid_topic_exception
                answers.append(_failed(name, int(code), request.operations(ResourceType.TOPIC, name)))
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
                "topic_authorized_operations": request.operations(ResourceType.TOPIC, name),
            }
        )
        if len(numbers) > left:
            cursor = {"topic_name": name, "partition_index": numbers[left]}
            break
        left -= len(numbers)
    if body.topics:
        # Whether there are such topics is not told.
        refused = int(ErrorCode.topic_authorization_failed)
        answers += [{**_failed(name, refused, NOT_ASKED), "is_internal": False} for name in denied]
    return {"topics": answers, "next_cursor": cursor}
