"""AlterShareGroupOffsets (KIP-932): a share group without members restarts at other offsets.

Source in Kafka: `KafkaApis.handleAlterShareGroupOffsetsRequest`, `GroupMetadataManager.alterShareGroupOffsets`.
"""

from __future__ import annotations

from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError, message_of
from odradek.broker.protocol import Message
from odradek.broker.share_protocol import check_share_groups_enabled
from odradek.broker.turns import Work
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.coordination.placement import TopicIdPartition
from odradek.messages.uuids import ZERO_UUID


@api(91, "AlterShareGroupOffsets", range(1), group_ids=lambda request: [request.body.group_id])
def alter_share_group_offsets(request: Request) -> Work[Message]:
    """Let a group restart at other offsets."""
    body, broker = request.body, request.broker
    check_share_groups_enabled(broker)
    request.check(Operation.READ, ResourceType.GROUP, body.group_id)
    if not body.group_id:
        raise ApiError(ErrorCode.invalid_group_id)
    image = broker.logs.metadata_image
    offsets: dict[TopicIdPartition, tuple[str, int]] = {}
    asked: dict[tuple[str, UUID], dict[int, bool]] = {}
    denied: set[str] = set()
    for topic in body.topics:
        known = image.topics.get(topic.topic_name)
        topic_id = ZERO_UUID if known is None else known.topic_id or ZERO_UUID
        may_read = request.may(Operation.READ, ResourceType.TOPIC, topic.topic_name)
        if not may_read:
            denied.add(topic.topic_name)
        numbers = asked.setdefault((topic.topic_name, topic_id), {})
        for one in topic.partitions:
            number = one.partition_index
            numbers[number] = known is not None and number in known.partitions and may_read
            if numbers[number]:
                offsets[topic_id, number] = topic.topic_name, one.start_offset
            yield
        yield
    codes = yield from broker.groups.shard(body.group_id).share_offsets.alter(body.group_id, offsets)
    unknown = int(ErrorCode.unknown_topic_or_partition)
    responses = []
    for (name, topic_id), numbers in asked.items():
        refused = int(ErrorCode.topic_authorization_failed) if name in denied else unknown
        partitions = []
        for number, is_known in numbers.items():
            partitions.append(_answer(number, codes[topic_id, number] if is_known else refused))
            yield
        responses.append({"topic_name": name, "topic_id": topic_id, "partitions": partitions})
        yield
    return {"error_code": NO_ERROR, "responses": responses}


def _answer(number: int, code: int) -> Message:
    text = message_of(ApiError(ErrorCode(code))) if code else None
    return {"partition_index": number, "error_code": code, "error_message": text}
