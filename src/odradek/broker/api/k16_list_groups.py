"""ListGroups: the groups of this broker.

v4 (KIP-518) filters by the state of a group, v5 (KIP-848) by its type; both without regard to case.

Source in Kafka: `KafkaApis.handleListGroupsRequest`, `GroupMetadataManager.listGroups`.
"""

from __future__ import annotations

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR
from odradek.broker.protocol import Message, given


def _failed(request: Request, code: int, text: str) -> Message:
    return {"error_code": code, "groups": []}


@api(16, "ListGroups", range(6), failed=_failed)
def list_groups(request: Request) -> Message:
    """List groups."""
    states = {state.lower().strip() for state in given(request.body, "states_filter", ())}
    types = {kind.lower() for kind in given(request.body, "types_filter", ())}
    listed = [group.listed() for shard in request.broker.groups.shards() for group in shard.groups.values()]
    return {
        "error_code": NO_ERROR,
        "groups": [
            group
            for group in listed
            if (not states or group["group_state"].lower() in states)
            and (not types or group["group_type"].lower() in types)
        ],
    }
