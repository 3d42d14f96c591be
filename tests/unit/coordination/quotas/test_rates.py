"""Rates and token buckets, and for how long a client that is above its quota has to wait."""

from __future__ import annotations

import math

import pytest

from odradek.coordination.quotas.rates import MAX_THROTTLE_MS, Rate, TokenBucket, Usage, Windows

WINDOWS = Windows()
QUOTA = 1000.0


def throttled(usage: Usage, at_ms: int, value: float, quota: float = QUOTA) -> int:
    usage.record(value, quota, at_ms)
    return usage.throttle_ms(quota, at_ms)


@pytest.mark.parametrize(
    ("used", "wanted"),
    [
        # A new client is measured over ten seconds.
        ([(0, 10_000)], 0),
        ([(0, 10_001)], 1),
        ([(0, 10_500)], 500),
        ([(0, 5000), (500, 6000)], 500),
        # From then on over the time since the oldest window began, ten to eleven seconds.
        ([(0, 5000), (2500, 6000)], 500),
        ([(0, 5000), (9999, 6000)], 1),
        ([(0, 5000), (10_500, 6000)], 500),
        # A window counts until eleven seconds after what was last used in it.
        ([(0, 5000), (900, 5000), (11_899, 6000)], 4101),
        ([(0, 5000), (900, 5000), (11_900, 6000)], 0),
        ([(0, 10**9), (3_600_000, 10_000)], 0),
    ],
)
def test_a_rate_says_when_it_is_within_the_quota_again(used: list[tuple[int, float]], wanted: int) -> None:
    rate = Rate(WINDOWS)
    assert [throttled(rate, *one) for one in used][-1] == wanted


def test_what_is_taken_back_does_not_count() -> None:
    rate = Rate(WINDOWS)
    rate.record(10_000, QUOTA, 0)
    assert throttled(rate, 10, 5000) > 0
    rate.record(-5000, QUOTA, 10)
    assert rate.throttle_ms(QUOTA, 10) == 0


@pytest.mark.parametrize("size", [10_000, 100_000, 400_000])
def test_a_client_that_waits_as_it_is_told_gets_its_quota(size: int) -> None:
    """As in Apache Kafka, ten seconds' worth may come at once: the rate is that of longer times."""
    rate, now, sent = Rate(WINDOWS), 0, 0
    while now < 121_000:
        if now >= 11_000:
            sent += size
        now += max(1, throttled(rate, now, size, 1e6))
    assert sent / 110 == pytest.approx(1e6, rel=0.05)


def test_throttle_times_have_32_bits() -> None:
    assert throttled(Rate(WINDOWS), 0, 1e12, 0.001) == MAX_THROTTLE_MS


def test_the_settings_say_how_long_the_windows_are() -> None:
    rate = Rate(Windows(3, 2000))
    assert throttled(rate, 0, 4000) == 0
    assert throttled(rate, 0, 1000) == 1000
    assert not rate.is_new(QUOTA, 5999)
    assert rate.is_new(QUOTA, 6000)


def test_a_bucket_gives_more_than_it_has_once() -> None:
    bucket = TokenBucket(WINDOWS)
    assert throttled(bucket, 5, 11, 1.0) == 0
    assert throttled(bucket, 5, 3, 1.0) == 3000
    assert bucket.throttle_ms(1.0, 1005) == 2000
    assert not bucket.is_new(1.0, 1005)
    assert bucket.throttle_ms(1.0, 3005) == 0
    assert bucket.is_new(1.0, 3005 + 11_000)


@pytest.mark.parametrize("quota", [1e-300, 1e300])
def test_extreme_quotas_give_times(quota: float) -> None:
    for usage in (Rate(WINDOWS), TokenBucket(WINDOWS)):
        for at_ms in (0, 1, 10**12):
            usage.record(1e6, quota, at_ms)
            assert 0 <= usage.throttle_ms(quota, at_ms) <= MAX_THROTTLE_MS
            assert math.isfinite(usage.throttle_ms(quota, at_ms))


def test_a_client_that_was_away_is_as_a_new_one() -> None:
    """What is forgotten after that time changes no throttle time."""
    known = Rate(WINDOWS)
    for at_ms in range(0, 30_000, 700):
        known.record(900, QUOTA, at_ms)
    away = 29_400 + WINDOWS.all_ms
    assert known.is_new(QUOTA, away)
    fresh = Rate(WINDOWS)
    for at_ms, value in ((away, 9000), (away + 300, 3000), (away + 5000, 500), (away + 11_500, 4000)):
        assert throttled(known, at_ms, value) == throttled(fresh, at_ms, value)
