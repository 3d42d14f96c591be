"""What Kafka keeps for one partition of a group; without a client, so that it can be read from a folder, too."""

from __future__ import annotations

from typing import NamedTuple


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
