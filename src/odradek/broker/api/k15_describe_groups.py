"""DescribeGroups: the state of groups, their members, and what those are assigned.

A group that there is not is `Dead`; from v6 (KIP-1043) on that is the error GROUP_ID_NOT_FOUND. v3 (KIP-430) adds the
operations that are allowed, v4 (KIP-345) static members.

Source in Kafka: `KafkaApis.handleDescribeGroupsRequest`, `GroupMetadataManager.describeGroups`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, code_of
from odradek.broker.groups.group import Group, State
from odradek.broker.groups.modern_group import ModernGroup
from odradek.broker.operations import GROUP_OPERATIONS, NOT_ASKED
from odradek.broker.protocol import Message, given
from odradek.errors import BrokerError

_FIRST_WITH_GROUP_ID_NOT_FOUND = 6


def _absent(group_id: str, state: str, code: int = NO_ERROR, text: str | None = None) -> Message:
    return {
        "error_code": code,
        "error_message": text,
        "group_id": group_id,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
        "authorized_operations": NOT_ASKED,
    }


@api(15, "DescribeGroups", range(7))
def describe_groups(request: Request) -> Message:
    """Describe groups."""
    return {"groups": [_described(request, group_id) for group_id in request.body.groups]}


def _described(request: Request, group_id: str) -> Message:
    try:
        group = request.broker.groups.shard(group_id).groups.get(group_id)
    except BrokerError as error:
        return _absent(group_id, "", code_of(error))
    asks = given(request.body, "include_authorized_operations", False)
    operations = GROUP_OPERATIONS if asks else NOT_ASKED
    if isinstance(group, Group):
        return {**group.described(), "authorized_operations": operations}
    if request.version < _FIRST_WITH_GROUP_ID_NOT_FOUND:
        return {**_absent(group_id, State.DEAD.value), "authorized_operations": operations}
    is_modern = isinstance(group, ModernGroup)
    text = f"Group {group_id} is not a classic group." if is_modern else f"Group {group_id} not found."
    return _absent(group_id, State.DEAD.value, int(ErrorCode.group_id_not_found), text)
