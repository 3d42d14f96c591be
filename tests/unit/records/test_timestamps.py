"""Points in time, as milliseconds."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

import odradek
from odradek.errors import OptionError
from odradek.records.timestamps import Time, bound_ms, floor_ms, time_range_ms, timestamp_ms

MOMENT = datetime(2026, 11, 1, 12, 0, 0, 1500, UTC)
WITHIN_MS = 1_793_534_400_001


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (7, 7),
        ("2026-11-01", 1_793_491_200_000),
        (date(2026, 11, 1), 1_793_491_200_000),
        ("2026-11-01T12:00:00Z", 1_793_534_400_000),
        ("2026-11-01T12:00:00+02:00", 1_793_527_200_000),
        (datetime(2026, 11, 1, 12, tzinfo=UTC), 1_793_534_400_000),
        (datetime(2026, 11, 1, 12, tzinfo=timezone(timedelta(hours=2))), 1_793_527_200_000),
        (datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC), -1),
    ],
)
def test_all_forms_of_a_time(time: Time, expected: int) -> None:
    assert timestamp_ms(time) == bound_ms(time) == expected


def test_from_a_time_on_and_within_a_millisecond() -> None:
    assert bound_ms(MOMENT) == bound_ms(MOMENT.isoformat()) == WITHIN_MS + 1
    assert timestamp_ms(MOMENT) == timestamp_ms(MOMENT.isoformat()) == floor_ms(MOMENT) == WITHIN_MS
    assert bound_ms(MOMENT.replace(microsecond=1000)) == floor_ms(MOMENT.replace(microsecond=1000)) == WITHIN_MS
    assert floor_ms(datetime(1969, 12, 31, 23, 59, 59, 999_500, UTC)) == -1


def test_a_record_keeps_the_millisecond_of_its_datetime() -> None:
    assert odradek.Record(timestamp=MOMENT).timestamp == WITHIN_MS
    last = datetime.max.replace(tzinfo=UTC)
    assert odradek.Record(timestamp=last).timestamp == 253_402_300_799_999


@pytest.mark.parametrize("number", [1 << 63, 10**30, -(1 << 63) - 1])
def test_a_number_of_more_than_64_bits_is_no_time(number: int) -> None:
    for since, until in ((number, None), (None, number)):
        with pytest.raises(OptionError, match="a time in ms must be between"):
            time_range_ms(since, until)
