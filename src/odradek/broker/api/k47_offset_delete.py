"""OffsetDelete: offsets of a group are removed, of topics that no member reads (KIP-496).

Source in Kafka: `KafkaApis.handleOffsetDeleteRequest`, `OffsetMetadataManager.deleteOffsets`.
"""

from __future__ import annotations

from functools import partial

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.groups.answers import PartitionAnswers
from odradek.broker.protocol import Message
from odradek.broker.turns import Work
from odradek.coordination.authorization.acls import Operation, ResourceType


@api(47, "OffsetDelete", range(1), group_ids=lambda request: [request.body.group_id])
def offset_delete(request: Request) -> Work[Message]:
    """Remove offsets."""
    body, broker = request.body, request.broker
    if not body.group_id:
        raise ApiError(ErrorCode.invalid_group_id)
    answers = PartitionAnswers(broker.logs.metadata_image, partial(request.may, Operation.READ, ResourceType.TOPIC))
    yield from answers.look_up(body.topics)
    shard = broker.groups.shard(body.group_id)
    group = shard.groups.get(body.group_id)
    if group is None:
        raise ApiError(ErrorCode.group_id_not_found)
    group.check_offset_delete()
    removed = []
    for one in answers.found:
        is_read = group.is_subscribed_to(one.topic_partition.topic)
        answers.answer(one, int(ErrorCode.group_subscribed_to_topic if is_read else ErrorCode.none))
        if not is_read and shard.offsets.has(body.group_id, one.topic_partition):
            removed.append((body.group_id, one.topic_partition))
    yield from shard.remove_offsets(removed)
    return {"error_code": NO_ERROR, "topics": answers.topics()}
