"""A clock for clients of brokers that only their rests between two attempts move.

A call that cannot succeed ends after a few attempts, and one that can has all the time that it needs on any machine.
"""

from __future__ import annotations

import time

REST_S = 10.0


class RestClock:
    """Takes the place of the module `time` in a module that tries again until its time is over."""

    def __init__(self) -> None:
        self._now_s = time.monotonic()

    def monotonic(self) -> float:
        """Return the time, in seconds: it stands still while anything works."""
        return self._now_s

    def sleep(self, seconds: float) -> None:
        """Let much more time pass than is asked for, and take none: others have their turn."""
        self._now_s += REST_S + seconds
        time.sleep(0)
