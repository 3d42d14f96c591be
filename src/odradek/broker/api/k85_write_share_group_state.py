"""WriteShareGroupState (KIP-932): what has changed in the deliveries of a share group's partition.

Brokers of a cluster send it to the share coordinator; a client may, too. v1 (KIP-1226) adds how many
records are done.

Source in Kafka: `ShareCoordinatorService.writeState`.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from odradek.broker.api import Request, api
from odradek.broker.api.share_state_requests import answered
from odradek.broker.protocol import Message, given
from odradek.broker.turns import each
from odradek.coordination.shares.state_batches import StateBatch
from odradek.coordination.shares.states import NOT_COUNTED, StateWrite


@api(85, "WriteShareGroupState", range(2))
async def write_share_group_state(request: Request) -> Message:
    """Answer for each partition."""

    async def act(group_id: str, topic_id: UUID, one: Any) -> Message:
        write = StateWrite(
            one.state_epoch,
            one.leader_epoch,
            one.start_offset,
            given(one, "delivery_complete_count", NOT_COUNTED),
            await request.broker.turns.finish(each(one.state_batches, _batch)),
        )
        await request.broker.share_state.write(group_id, topic_id, one.partition, write)
        return {}

    return await answered(request, "write", act)


def _batch(one: Any) -> StateBatch:
    return StateBatch(one.first_offset, one.last_offset, one.delivery_count, one.delivery_state)
