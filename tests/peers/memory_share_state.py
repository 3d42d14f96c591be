"""A share state that is kept in memory only, in place of `__share_group_state`.

    initialize   begins a partition, unless its state is of a later group epoch
    delete       forgets it
    summary      a start offset of -1 for a partition that is not there, as in Kafka

Source in Kafka: `ShareCoordinatorShard`.
"""

from __future__ import annotations

from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError
from odradek.broker.shares import ShareSummary

_NOTHING = ShareSummary(0, 0, -1, -1)


class MemoryShareState:
    """Such a share state. It belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, UUID, int], ShareSummary] = {}

    async def create(self) -> None:
        """There is no topic."""

    async def initialize(
        self, group_id: str, topic_id: UUID, partition: int, state_epoch: int, start_offset: int
    ) -> None:
        """Begin the state of a partition.

        Raises:
            ApiError: It was begun in a later group epoch.
        """
        key = group_id, topic_id, partition
        if state_epoch < self._known.get(key, _NOTHING).state_epoch:
            raise ApiError(ErrorCode.fenced_state_epoch)
        done = -1 if start_offset == -1 else 0
        self._known[key] = ShareSummary(state_epoch, 0, start_offset, done)

    async def delete(self, group_id: str, topic_id: UUID, partition: int) -> None:
        """Remove the state of a partition, if there is any."""
        self._known.pop((group_id, topic_id, partition), None)

    async def summary(self, group_id: str, topic_id: UUID, partition: int) -> ShareSummary:
        """Return how far a group is in a partition."""
        return self._known.get((group_id, topic_id, partition), _NOTHING)
