"""ListGroups: the groups of this broker.

v4 (KIP-518) filters by the state of a group, v5 (KIP-848) by its type; both without regard to case.

Source in Kafka: `KafkaApis.handleListGroupsRequest`, `GroupMetadataManager.listGroups`.
"""

from __future__ import annotations

from odradek.broker.api import Request, api
from odradek.broker.api.group_answers import trim
from odradek.broker.errors import NO_ERROR
from odradek.broker.protocol import Message, given
from odradek.broker.turns import Work
from odradek.coordination.authorization.acls import Operation, ResourceType


@api(16, "ListGroups", range(6))
def list_groups(request: Request) -> Work[Message]:
    """List groups."""
    states = {trim(state.lower()) for state in given(request.body, "states_filter", ())}
    types = {kind.lower() for kind in given(request.body, "types_filter", ())}
    sees_all = request.may(Operation.DESCRIBE, ResourceType.CLUSTER, is_told=False)
    found = []
    for shard in list(request.broker.groups.shards()):
        for group in list(shard.groups.values()):
            yield
            # Another request may have removed it since the last turn.
            if shard.groups.get(group.group_id) is not group:
                continue
            if not sees_all and not request.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id, is_told=False):
                continue
            listed = group.listed()
            if (not states or listed["group_state"].lower() in states) and (
                not types or listed["group_type"].lower() in types
            ):
                found.append(listed)
    return {"error_code": NO_ERROR, "groups": found}
