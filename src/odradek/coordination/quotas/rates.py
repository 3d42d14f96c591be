"""How much a client has used, and how long it must wait until that is within its quota again.

    Rate          | 1 s | 1 s | ... | 1 s | now |     the sum over the windows, by the time that they span
    TokenBucket   quota a second flows in, up to what all windows together may use; a change takes from it

A rate is over ten whole windows at least, even if the client has come later: so a new client may use ten seconds' worth
at once. After as many windows without any use, a rate or a bucket is as a new one, and need not be remembered.

Source in Kafka: `Rate`, `SampledStat`, `TokenBucket`, `QuotaUtils` (KIP-13, KIP-599).
"""

from __future__ import annotations

from math import floor
from typing import NamedTuple, Protocol

MAX_THROTTLE_MS = (1 << 31) - 1
"""A throttle time is an int32."""


class Windows(NamedTuple):
    """How the use is measured: `quota.window.num` and `quota.window.size.seconds`.

    Attributes:
        number: How many windows there are, with the current one.
        size_ms: How long each is.
    """

    number: int = 11
    size_ms: int = 1000

    @property
    def all_ms(self) -> int:
        """How long all of them are."""
        return self.number * self.size_ms


class Usage(Protocol):
    """What a client has used."""

    def record(self, value: float, quota: float, now_ms: int) -> None:
        """Add to it."""

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """Return how long the client has to wait; 0 if it is within the quota."""

    def is_new(self, quota: float, now_ms: int) -> bool:
        """Whether nothing of what was recorded counts any more."""


def _rounded(milliseconds: float) -> int:
    """Round as Java does, to an int32."""
    return floor(min(milliseconds, MAX_THROTTLE_MS) + 0.5)


class Rate:
    """A rate a second.

    Args:
        windows: How it is measured.
    """

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        # When a window began, when something was recorded in it last, and how much.
        # A list: a deque would take 760 bytes for each client, however little it uses.
        self._samples: list[tuple[int, int, float]] = []

    def record(self, value: float, quota: float, now_ms: int) -> None:
        """Add to the current window. A negative value takes back what was added."""
        samples = self._samples
        if samples and now_ms - samples[-1][0] < self._windows.size_ms:
            begun_ms, _, known = samples[-1]
            samples[-1] = begun_ms, now_ms, known + value
        else:
            samples.append((now_ms, now_ms, value))

    def _measure(self, now_ms: int) -> tuple[float, int]:
        """Return what was used, and in how many milliseconds."""
        samples, (count, size_ms) = self._samples, self._windows
        old = 0
        while old < len(samples) and now_ms - samples[old][1] >= count * size_ms:
            old += 1
        del samples[:old]
        elapsed_ms = now_ms - samples[0][0] if samples else 0
        elapsed_ms += max(0, count - 1 - elapsed_ms // size_ms) * size_ms
        return sum(value for _, _, value in samples), max(elapsed_ms, 1)

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """Return after how long the rate will be within the quota, if nothing more is used."""
        used, elapsed_ms = self._measure(now_ms)
        excess = used / (elapsed_ms / 1000) - quota
        return _rounded(excess / quota * elapsed_ms) if excess > 0 else 0

    def is_new(self, quota: float, now_ms: int) -> bool:
        """Whether nothing was used within all windows."""
        return not self._samples or now_ms - self._samples[-1][1] >= self._windows.all_ms


class TokenBucket:
    """A bucket of tokens, of which a change needs some: it may take more than there are, but only if there is any.

    Args:
        windows: How much it holds: what the quota allows in all windows.
    """

    __slots__ = ("_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens: float | None = None
        self._updated_ms = 0

    def _fill(self, quota: float, now_ms: int) -> float:
        """Return how many tokens there are by now; a new bucket is full."""
        most = self._windows.all_ms / 1000 * quota
        if self._tokens is None:
            self._tokens = most
        self._tokens = min(most, self._tokens + quota * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return self._tokens

    def record(self, value: float, quota: float, now_ms: int) -> None:
        """Take tokens."""
        self._tokens = self._fill(quota, now_ms) - value

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """Return after how long no token will be missing."""
        tokens = self._fill(quota, now_ms)
        return _rounded(-tokens / quota * 1000) if tokens < 0 else 0

    def is_new(self, quota: float, now_ms: int) -> bool:
        """Whether the bucket is full."""
        return self._fill(quota, now_ms) >= self._windows.all_ms / 1000 * quota
