"""LeaveGroup: members leave a group, or are removed from it.

v3 (KIP-345) takes several members, and static ones by their instance id; v5 (KIP-800) adds the reason. Classic
members leave consumer groups (KIP-848) with it, too, and administrators remove members of both protocols.

Source in Kafka: `KafkaApis.handleLeaveGroupRequest`, `GroupCoordinatorService.leaveGroup`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.groups.membership import LeavingMember
from odradek.broker.protocol import Message, given
from odradek.broker.turns import Work
from odradek.coordination.groups.consumer import ConsumerGroup

_FIRST_WITH_SEVERAL = 3


@api(13, "LeaveGroup", range(6), group_ids=lambda request: [request.body.group_id])
def leave_group(request: Request) -> Work[Message]:
    """Let members leave."""
    body = request.body
    if not body.group_id:
        raise ApiError(ErrorCode.invalid_group_id)
    if request.version < _FIRST_WITH_SEVERAL:
        leaving = [LeavingMember(body.member_id, None, "not provided")]
    else:
        leaving = [
            LeavingMember(one.member_id, one.group_instance_id, given(one, "reason") or "not provided")
            for one in body.members
        ]
    shard = request.broker.groups.shard(body.group_id)
    members = list[Message]()
    while len(members) < len(leaving):
        # The group may move to the other protocol between two turns.
        rest = leaving[len(members) :]
        if isinstance(shard.groups.get(body.group_id), ConsumerGroup):
            members += yield from shard.consumers.remove_members(body.group_id, rest)
        else:
            members += yield from shard.members.leave(body.group_id, rest)
    if request.version < _FIRST_WITH_SEVERAL:
        return {"error_code": members[0]["error_code"]}
    return {"error_code": NO_ERROR, "members": members}
