"""InitializeShareGroupState (KIP-932): restarts the state of a share group's partition: where delivery starts.

Brokers of a cluster send it to the share coordinator; a client may, too.

Source in Kafka: `ShareCoordinatorService.initializeState`.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from odradek.broker.api import Request, api
from odradek.broker.api.share_state_requests import answered
from odradek.broker.protocol import Message


@api(83, "InitializeShareGroupState", range(1))
async def initialize_share_group_state(request: Request) -> Message:
    """Answer for each partition."""

    async def act(group_id: str, topic_id: UUID, one: Any) -> Message:
        states = request.broker.share_state
        await states.initialize(group_id, topic_id, one.partition, one.state_epoch, one.start_offset)
        return {}

    return await answered(request, "initialize", act, needs_partitions=False)
