"""What Kafka keeps for one partition of a group; without a client, so that it can be read from a folder, too."""

from __future__ import annotations

from typing import NamedTuple, Self

from odradek.messages.coordinators.group_records import NO_LEADER_EPOCH, OffsetCommitValue


class CommittedOffset(NamedTuple):
    """A committed offset.

    Attributes:
        offset: The next offset to read.
        leader_epoch: The leader epoch of the record before it; None if it is not known.
        metadata: What the committer noted with it.
    """

    offset: int
    leader_epoch: int | None
    metadata: str

    @classmethod
    def from_value(cls, value: OffsetCommitValue) -> Self:
        """Return the offset that a record tells."""
        return cls(value.offset, None if value.leader_epoch == NO_LEADER_EPOCH else value.leader_epoch, value.metadata)

    def to_value(self, commit_timestamp: int = 0) -> OffsetCommitValue:
        """Return what a record tells of the offset."""
        epoch = NO_LEADER_EPOCH if self.leader_epoch is None else self.leader_epoch
        return OffsetCommitValue(self.offset, self.metadata, commit_timestamp, epoch)
