"""DeleteShareGroupOffsets (KIP-932): a share group without members forgets where it was in topics.

Source in Kafka: `KafkaApis.handleDeleteShareGroupOffsetsRequest`,
`GroupCoordinatorShard.initiateDeleteShareGroupOffsets`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError, message_of
from odradek.broker.groups.share_offsets import TopicResult
from odradek.broker.protocol import Message
from odradek.broker.share_protocol import check_share_groups_enabled
from odradek.broker.turns import Work
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.messages.uuids import ZERO_UUID


@api(92, "DeleteShareGroupOffsets", range(1), group_ids=lambda request: [request.body.group_id])
def delete_share_group_offsets(request: Request) -> Work[Message]:
    """Let a group forget where it was."""
    body, broker = request.body, request.broker
    check_share_groups_enabled(broker)
    request.check(Operation.DELETE, ResourceType.GROUP, body.group_id)
    if not body.group_id:
        raise ApiError(ErrorCode.invalid_group_id)
    asked = (topic.topic_name for topic in body.topics)
    names, refused = yield from request.split(Operation.READ, ResourceType.TOPIC, asked)
    found = yield from broker.groups.shard(body.group_id).share_offsets.delete(body.group_id, names)
    # Kafka answers the topics first that were removed.
    rows = sorted(found.items(), key=lambda item: item[1].error is not None)
    denied = TopicResult(None, ApiError(ErrorCode.topic_authorization_failed))
    rows = [*((name, denied) for name in refused), *rows]
    return {"error_code": NO_ERROR, "responses": [_answer(name, result) for name, result in rows]}


def _answer(name: str, result: TopicResult) -> Message:
    error = result.error
    return {
        "topic_name": name,
        "topic_id": result.topic_id or ZERO_UUID,
        "error_code": NO_ERROR if error is None else error.error_code,
        "error_message": None if error is None else message_of(error),
    }
