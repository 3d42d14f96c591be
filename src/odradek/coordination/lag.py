"""How many offsets are left for a reader: one rule for tables, metrics and pages.

A position may be after the end of the log: its topic was deleted and made again, or the log was cut. Then its lag is
negative, as Kafka's own tool shows it.
"""

from __future__ import annotations

from collections.abc import Iterable


def total_lag(lags: Iterable[int]) -> int:
    """Return the lag of several partitions: what is left where something is, or else by how much they are too far."""
    known = list(lags)
    left = sum(lag for lag in known if lag > 0)
    return left or sum(known)


def beyond_end(offset: int, end_offset: int) -> str:
    """Say what a position after the end of its log means."""
    return f"offset {offset} is after the end of the log, {end_offset}: the topic was made again, or the log was cut"
