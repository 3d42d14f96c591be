"""ReadShareGroupStateSummary (KIP-932): where a share group is in a partition, without the states of single records.

Brokers of a cluster send it to the share coordinator; a client may, too. v1
(KIP-1226) adds how many records are done.

Source in Kafka: `ShareCoordinatorService.readStateSummary`.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from odradek.broker.api import Request, api
from odradek.broker.api.share_state_requests import answered
from odradek.broker.protocol import Message


@api(87, "ReadShareGroupStateSummary", range(2))
async def read_share_group_state_summary(request: Request) -> Message:
    """Answer for each partition."""

    async def act(group_id: str, topic_id: UUID, one: Any) -> Message:
        found = await request.broker.share_state.summary(group_id, topic_id, one.partition)
        return found._asdict()

    return await answered(request, "read", act)
