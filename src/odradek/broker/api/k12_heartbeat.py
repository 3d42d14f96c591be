"""Heartbeat: a member says that it is there, and learns whether it has to join again.

v3 (KIP-345) adds static members.

Source in Kafka: `KafkaApis.handleHeartbeatRequest`, `GroupCoordinatorService.heartbeat`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message, given


@api(12, "Heartbeat", range(5))
def heartbeat(request: Request) -> Message:
    """Keep a member in its group."""
    body = request.body
    if not body.group_id:
        raise ApiError(ErrorCode.invalid_group_id)
    try:
        members = request.broker.groups.shard(body.group_id).members
    except ApiError as error:
        if error.error_code == ErrorCode.coordinator_load_in_progress:
            # The member may well be in the group.
            return {"error_code": NO_ERROR}
        raise
    members.heartbeat(body.group_id, body.member_id, given(body, "group_instance_id"), body.generation_id)
    return {"error_code": NO_ERROR}
