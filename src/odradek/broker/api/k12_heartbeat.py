"""Heartbeat: a member says that it is there, and learns whether it has to join again.

v3 (KIP-345) adds static members.

Source in Kafka: `KafkaApis.handleHeartbeatRequest`, `GroupCoordinatorService.heartbeat`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message, given


@api(12, "Heartbeat", range(5), group_ids=lambda request: [request.body.group_id])
def heartbeat(request: Request) -> Message:
    """Keep a member in its group."""
    body = request.body
    if not body.group_id:
        raise ApiError(ErrorCode.invalid_group_id)
    try:
        shard = request.broker.groups.shard(body.group_id)
    except ApiError as error:
        if error.error_code == ErrorCode.coordinator_load_in_progress:
            # The member may well be in the group.
            return {"error_code": NO_ERROR}
        raise
    is_mixed = shard.classic_consumers.has(body.group_id)
    beat = shard.classic_consumers.heartbeat if is_mixed else shard.members.heartbeat
    beat(body.group_id, body.member_id, given(body, "group_instance_id"), body.generation_id)
    return {"error_code": NO_ERROR}
