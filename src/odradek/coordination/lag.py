"""How many offsets are left for a reader: one rule for tables, metrics and pages.

A position may be after the end of the log: its topic was deleted and made again, or the log was cut. Then its lag is
negative, as Kafka's own tool shows it.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.coordination.shares.state_batches import NO_START_OFFSET
from odradek.coordination.shares.states import NOT_COUNTED


def total_lag(lags: Iterable[int]) -> int:
    """Return the lag of several partitions: what is left where something is, or else by how much they are too far."""
    known = list(lags)
    left = sum(lag for lag in known if lag > 0)
    return left or sum(known)


def has_share_lag(start_offset: int, delivery_complete_count: int) -> bool:
    """Return whether the state of a share group's partition is enough to tell its lag."""
    return start_offset != NO_START_OFFSET and delivery_complete_count != NOT_COUNTED


def share_lag(start_offset: int, delivery_complete_count: int, end_offset: int) -> int:
    """Return how many records of a partition a share group has left; some after its start are done (KIP-1226)."""
    return end_offset - start_offset - delivery_complete_count


def beyond_end(offset: int, end_offset: int) -> str:
    """Say what a position after the end of its log means."""
    return f"offset {offset} is after the end of the log, {end_offset}: the topic was made again, or the log was cut"
