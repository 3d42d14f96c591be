"""Share groups (KIP-932): what a group has delivered of each of its partitions.

    fetches      ShareFetch: what it gets, and how it waits
    deliveries   the sessions of members, and the partitions that are being delivered
    live         a partition that is being delivered
    state        the share coordinator: the share state, kept in `__share_group_state`

`ShareState` is the share state as the group coordinator uses it: a partition is initialized before it is assigned.

Source in Kafka: `Persister`, `DefaultStatePersister`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol
from uuid import UUID


class ShareSummary(NamedTuple):
    """How far a group is in a partition.

    Attributes:
        state_epoch: The group epoch in which the state was initialized.
        leader_epoch: The leader epoch of the partition when the state was written last.
        start_offset: The first offset that is not done; -1 if it is not known yet.
        delivery_complete_count: How many records from `start_offset` on are done; -1 if that is not known.
    """

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


class ShareState(Protocol):
    """The share state of groups. It belongs to the event loop's thread; each method raises a `BrokerError`."""

    async def create(self) -> None:
        """Make the topic that the share state is in, if it is missing."""

    async def initialize(
        self, group_id: str, topic_id: UUID, partition: int, state_epoch: int, start_offset: int
    ) -> None:
        """Start or restart the state of a partition; a `start_offset` of -1 is not known yet."""

    async def delete(self, group_id: str, topic_id: UUID, partition: int) -> None:
        """Remove the state of a partition, if there is any."""

    async def summary(self, group_id: str, topic_id: UUID, partition: int) -> ShareSummary:
        """Return how far a group is in a partition."""
