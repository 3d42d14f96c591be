"""DeleteGroups: groups without members are removed, with their offsets.

Source in Kafka: `KafkaApis.handleDeleteGroupsRequest`, `GroupCoordinatorShard.deleteGroups`.
"""

from __future__ import annotations

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, code_of
from odradek.broker.protocol import Message
from odradek.errors import BrokerError


@api(42, "DeleteGroups", range(3))
def delete_groups(request: Request) -> Message:
    """Remove groups."""
    names = dict.fromkeys(request.body.groups_names)
    return {"results": [{"group_id": name, "error_code": _delete(request, name)} for name in names]}


def _delete(request: Request, group_id: str) -> int:
    try:
        request.broker.groups.shard(group_id).delete_group(group_id)
    except BrokerError as error:
        return code_of(error)
    return NO_ERROR
