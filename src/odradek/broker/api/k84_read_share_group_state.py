"""ReadShareGroupState (KIP-932): what a share group has delivered of a partition, for its leader.

Brokers of a cluster send it to the share coordinator; a client may, too.

Source in Kafka: `ShareCoordinatorService.readState`.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from odradek.broker.api import Request, api
from odradek.broker.api.share_state_requests import answered
from odradek.broker.protocol import Message


@api(84, "ReadShareGroupState", range(1))
async def read_share_group_state(request: Request) -> Message:
    """Answer for each partition."""

    async def act(group_id: str, topic_id: UUID, one: Any) -> Message:
        found = await request.broker.share_state.read(group_id, topic_id, one.partition, one.leader_epoch)
        return {
            "state_epoch": found.state_epoch,
            "start_offset": found.start_offset,
            "state_batches": [batch._asdict() for batch in found.state_batches],
        }

    return await answered(request, "read", act)
