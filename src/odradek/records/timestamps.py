"""Points in time as people give them, and as Kafka keeps them: milliseconds since the epoch."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from time import time_ns
from typing import TypeAlias

Time: TypeAlias = int | str | date | datetime
"""A point in time: milliseconds since the epoch, ISO 8601 text, a date (its midnight) or a datetime; UTC if it does
not say otherwise."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def timestamp_ms(time: Time) -> int:
    """Return the first millisecond at or after a point in time.

    Raises:
        ValueError: A text that is not ISO 8601.
    """
    if isinstance(time, int):
        return time
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    elif not isinstance(time, datetime):
        time = datetime(time.year, time.month, time.day, tzinfo=UTC)
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return -((_EPOCH - time) // _MILLISECOND)


def floor_ms(moment: datetime) -> int:
    """Return the millisecond that a point in time lies within; it names its zone."""
    return (moment - _EPOCH) // _MILLISECOND


def now_ms() -> int:
    """Return the time of the system's clock."""
    return time_ns() // 1_000_000
