"""DescribeGroups: the state of groups, their members, and what those are assigned.

A group that there is not is `Dead`; from v6 (KIP-1043) on that is the error GROUP_ID_NOT_FOUND. v3 (KIP-430) adds the
operations that are allowed, v4 (KIP-345) static members.

Source in Kafka: `KafkaApis.handleDescribeGroupsRequest`, `GroupMetadataManager.describeGroups`.
"""

from __future__ import annotations

from functools import partial

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, code_of
from odradek.broker.operations import NOT_ASKED
from odradek.broker.protocol import Message, given
from odradek.broker.turns import Work, each
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.coordination.groups.classic import ClassicGroup, State
from odradek.errors import BrokerError

_FIRST_WITH_GROUP_ID_NOT_FOUND = 6


def _absent(group_id: str, state: str, code: int = NO_ERROR, text: str | None = None) -> Message:
    return {
        "error_code": code,
        "error_message": text,
        "group_id": group_id,
        "group_state": state,
    }


@api(15, "DescribeGroups", range(7), group_ids=lambda request: request.body.groups)
def describe_groups(request: Request) -> Work[Message]:
    """Describe groups."""
    return {"groups": (yield from each(dict.fromkeys(request.body.groups), partial(_described, request)))}


def _described(request: Request, group_id: str) -> Message:
    try:
        request.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        group = request.broker.groups.shard(group_id).groups.get(group_id)
    except BrokerError as error:
        return _absent(group_id, "", code_of(error))
    asks = given(request.body, "include_authorized_operations", False)
    operations = request.operations(ResourceType.GROUP, group_id) if asks else NOT_ASKED
    if isinstance(group, ClassicGroup):
        return {**_classic(group), "authorized_operations": operations}
    if request.version < _FIRST_WITH_GROUP_ID_NOT_FOUND:
        return {**_absent(group_id, State.DEAD.value), "authorized_operations": operations}
    text = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a classic group."
    return _absent(group_id, State.DEAD.value, int(ErrorCode.group_id_not_found), text)


def _classic(group: ClassicGroup) -> Message:
    is_stable = group.state is State.STABLE
    return {
        "error_code": NO_ERROR,
        "group_id": group.group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": (group.protocol or "") if is_stable else "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata(group.protocol or "") if is_stable else b"",
                "member_assignment": member.assignment,
            }
            for member in group.members.values()
        ],
    }
