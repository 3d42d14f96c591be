"""DeleteShareGroupState (KIP-932): removes the state of a share group's partition.

Brokers of a cluster send it to the share coordinator; a client may, too.

Source in Kafka: `ShareCoordinatorService.deleteState`.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from odradek.broker.api import Request, api
from odradek.broker.api.share_state_requests import answered
from odradek.broker.protocol import Message


@api(86, "DeleteShareGroupState", range(1))
async def delete_share_group_state(request: Request) -> Message:
    """Answer for each partition."""

    async def act(group_id: str, topic_id: UUID, one: Any) -> Message:
        await request.broker.share_state.delete(group_id, topic_id, one.partition)
        return {}

    return await answered(request, "delete", act)
