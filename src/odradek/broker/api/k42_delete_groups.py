"""DeleteGroups: groups without members are removed, with their offsets.

What a share group has delivered is removed first. v3 (KIP-1331) has a message for each group, of which Apache Kafka
gives one only for the topology of a streams group.

Source in Kafka: `KafkaApis.handleDeleteGroupsRequest`, `GroupCoordinatorShard.deleteGroups`.
"""

from __future__ import annotations

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, code_of
from odradek.broker.protocol import Message
from odradek.broker.turns import Work
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.coordination.groups.share import ShareGroup
from odradek.errors import BrokerError


@api(42, "DeleteGroups", range(4), group_ids=lambda request: request.body.groups_names)
def delete_groups(request: Request) -> Work[Message]:
    """Remove groups."""
    results = []
    for group_id in dict.fromkeys(request.body.groups_names):
        results.append((yield from _delete(request, group_id)))
        yield
    return {"results": results}


def _delete(request: Request, group_id: str) -> Work[Message]:
    code = NO_ERROR
    try:
        request.check(Operation.DELETE, ResourceType.GROUP, group_id)
        shard = request.broker.groups.shard(group_id)
        group = shard.groups.get(group_id)
        if isinstance(group, ShareGroup):
            code = yield from shard.share_offsets.remove(group)
        if not code:
            yield from shard.delete_group(group_id)
    except BrokerError as error:
        code = code_of(error)
    return {"group_id": group_id, "error_code": code}
