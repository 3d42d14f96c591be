"""SyncGroup: the leader of a group sends the assignment, and each member gets its own.

In a consumer group (KIP-848) the coordinator has assigned.

v3 (KIP-345) adds static members, v5 (KIP-559) the protocol's type and name, which are needed from then on.

Source in Kafka: `KafkaApis.handleSyncGroupRequest`, `GroupCoordinatorService.syncGroup`.
"""

from __future__ import annotations

from collections.abc import Awaitable

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import ApiError
from odradek.broker.protocol import Message, given
from odradek.coordination.authorization.acls import Operation, ResourceType

_FIRST_WITH_PROTOCOL = 5


@api(14, "SyncGroup", range(6), ends_with_client=True, group_ids=lambda request: [request.body.group_id])
def sync_group(request: Request) -> Message | Awaitable[Message]:
    """Return a member's assignment."""
    body = request.body
    protocol_type, protocol = given(body, "protocol_type"), given(body, "protocol_name")
    if request.version >= _FIRST_WITH_PROTOCOL and (protocol_type is None or protocol is None):
        raise ApiError(ErrorCode.inconsistent_group_protocol)
    request.check(Operation.READ, ResourceType.GROUP, body.group_id)
    if not body.group_id:
        raise ApiError(ErrorCode.invalid_group_id)
    shard, instance_id = request.broker.groups.shard(body.group_id), given(body, "group_instance_id")
    if shard.classic_consumers.has(body.group_id):
        return shard.classic_consumers.sync(
            body.group_id, body.member_id, instance_id, body.generation_id, protocol_type, protocol
        )
    return shard.members.sync(
        body.group_id,
        body.member_id,
        instance_id,
        body.generation_id,
        protocol_type,
        protocol,
        ((one.member_id, bytes(one.assignment)) for one in body.assignments),
    )
