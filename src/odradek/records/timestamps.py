"""Points in time as people write them, and as Kafka keeps them: milliseconds since the epoch."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from time import time_ns
from typing import Literal, NamedTuple, TypeAlias

from odradek.arguments import checked_int, given_text
from odradek.errors import OptionError, TimestampWarning

Time: TypeAlias = int | str | date | datetime
"""A point in time: milliseconds since the epoch, an aware datetime, ISO 8601 text with a time zone, or a date (also as
text), which stands for its midnight in UTC.

A time of day without a time zone is an error everywhere in the library: on another machine it would be another point
in time. The command line takes it for UTC, as Kafka's tools do."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

FIRST_MS = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
"""The first timestamp that a calendar has: that of the year 1, as in SQL and in Python."""

LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
"""The last timestamp that a calendar has: that of the year 9999."""

OnFarTimestamps: TypeAlias = Literal["error", "null"]
"""What is done about a timestamp outside of the years 1 to 9999, where rows are given as a table."""

# In seconds: the years 2001 to 2099. In milliseconds: days of 1970, long before anything was logged.
_SECONDS = range(10**9, 4_102_444_800)


def timestamp_ms(time: Time) -> int:
    """Return the millisecond that contains a point in time: a record's timestamp, as Java gives it.

    A number that looks like seconds is used as it is, with a `TimestampWarning`: to Kafka it is a valid time, and a log
    that has such records must still be read, copied and searched.

    Raises:
        OptionError: A text is not ISO 8601, a time of day has no time zone, or a number has more than 64 bits.
        TypeError: The value is something else, such as a float.
    """
    return _converted(time, floor_ms)


def bound_ms(time: Time) -> int:
    """Return the first millisecond at or after a point in time, where a range of times begins or ends.

    Raises:
        OptionError: As `timestamp_ms`.
        TypeError: As `timestamp_ms`.
    """
    return _converted(time, _ceil_ms)


def typed_bound_ms(text: str) -> int:
    """Return what `bound_ms` does for a time that a person types: milliseconds, or ISO 8601, UTC without a time zone.

    Raises:
        OptionError: It is neither, or eight digits that may be a date or milliseconds.
    """
    if re.fullmatch("[0-9]{8}", text):
        day = _day(text)
        if day is not None:
            # Python takes it for a date, Kafka's tools take it for milliseconds.
            raise OptionError(f"{text!r} may be {day} or {iso_text(int(text))}: write the one that is meant")
    # `int` alone takes 1_000 and the digits of other scripts, too.
    if re.fullmatch("[+-]?[0-9]+", text):
        return bound_ms(int(text))
    try:
        # As in Kafka's tools, a time without a zone is UTC.
        time = datetime.fromisoformat(text)
        return bound_ms(time if time.tzinfo is not None else time.replace(tzinfo=UTC))
    except ValueError:
        raise OptionError(f"{text!r} is neither milliseconds nor a time such as 2026-11-01T12:00:00") from None


def _day(digits: str) -> date | None:
    try:
        return date.fromisoformat(digits)
    except ValueError:
        return None


def _converted(time: Time, rounded: Callable[[datetime], int]) -> int:
    if isinstance(time, str):
        time = _of_text(time)
    if isinstance(time, datetime):
        _check_zone(time)
        return rounded(time)
    if isinstance(time, date):
        return rounded(datetime(time.year, time.month, time.day, tzinfo=UTC))
    if isinstance(time, bool) or not hasattr(time, "__index__"):
        raise TypeError(
            "a time is an int of milliseconds since the epoch, an aware datetime, a date or ISO 8601 text, "
            f"not {given_text(time)}"
        )
    number = checked_int("a time in ms", time)
    if number in _SECONDS:
        _warn_of_seconds(number)
    return number


class TimeRange(NamedTuple):
    """A range of times in ms: from `since_ms` on, up to `until_ms`, which it leaves out; None is no bound."""

    since_ms: int | None = None
    until_ms: int | None = None


def time_range_ms(since: Time | None, until: Time | None) -> TimeRange:
    """Convert the range of times that a caller gives: once, for each conversion may warn.

    Raises:
        OptionError: As `timestamp_ms`.
        TypeError: It is something else, such as a float.
    """
    return TimeRange(*(None if time is None else bound_ms(time) for time in (since, until)))


def _of_text(text: str) -> date:
    try:
        # Only a date is so short.
        return date.fromisoformat(text) if len(text) in (8, 10) else datetime.fromisoformat(text)
    except ValueError as error:
        raise OptionError(f"{text!r} is no time in ISO 8601, such as 2026-11-01 or 2026-11-01T12:00:00Z") from error


def _check_zone(time: datetime) -> None:
    if time.tzinfo is None or time.utcoffset() is None:
        raise OptionError(
            f"{time.isoformat()} has no time zone, so it is not known which time it is: give it one, such as "
            "tzinfo=datetime.UTC, or a Z at the end of a text"
        )


def _ceil_ms(moment: datetime) -> int:
    return -((_EPOCH - moment) // _MILLISECOND)


def _warn_of_seconds(number: int) -> None:
    as_given, meant = datetime.fromtimestamp(number / 1000, UTC), datetime.fromtimestamp(number, UTC)
    warn_caller(
        f"timestamp {number} is {as_given:%Y-%m-%d} in milliseconds, as Kafka has them; "
        f"if these are seconds ({meant:%Y-%m-%d}), multiply by 1000"
    )


def warn_caller(text: str) -> None:
    """Give a `TimestampWarning` that names the caller's line, however many frames of this package are in between."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "odradek":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, TimestampWarning, stacklevel=level)


def iso_text(timestamp: int, precision: str = "milliseconds") -> str:
    """Return a timestamp as text for people: in ISO 8601, or as a number if it is outside of the calendar.

    Args:
        timestamp: In ms.
        precision: `milliseconds` or `seconds`.
    """
    try:
        return (_EPOCH + timestamp * _MILLISECOND).isoformat(timespec=precision)
    except OverflowError:
        return f"{timestamp} ms"


def floor_ms(moment: datetime) -> int:
    """Return the millisecond that contains a point in time; `moment` has a time zone."""
    return (moment - _EPOCH) // _MILLISECOND


def now_ms() -> int:
    """Return the system's time, in ms since the epoch."""
    return time_ns() // 1_000_000
