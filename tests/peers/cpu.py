"""CPU time of a thread, as a multiple of what a standard piece of work takes in the same process at the same time.

So a slow machine, or one that is busy, is no verdict: both take longer there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


def _standard_work() -> None:
    found = {f"name-{number}": (number, [number]) for number in range(20_000)}
    assert sum(number for number, _ in sorted(found.values())) == 199_990_000


def standard_s() -> float:
    """Return the CPU time of the standard work, the least of five: about 10 ms on a machine of 2024."""
    times = []
    for _ in range(5):
        begun = time.thread_time()
        _standard_work()
        times.append(time.thread_time() - begun)
    return min(times)


def in_standards(action: Callable[[], object], clock: Callable[[], float] = time.thread_time) -> float:
    """Return the CPU time of an action in this thread, as a multiple of the standard work's.

    Args:
        action: What is measured.
        clock: `time.process_time` where it works in other threads.
    """
    begun = clock()
    action()
    taken = clock() - begun
    return taken / standard_s()


class LongestCallback:
    """The longest callback of event loops, in CPU time of its thread; to be called in place of a handle's `_run`."""

    def __init__(self) -> None:
        self._longest_s = 0.0
        self._begun = time.thread_time()

    def clear(self) -> None:
        """Forget what was before, the part of the present callback included."""
        self._begun = time.thread_time()
        self._longest_s = 0.0

    def run(self, handle: asyncio.Handle, run: Callable[[asyncio.Handle], None]) -> None:
        """Run a callback."""
        self._begun = time.thread_time()
        run(handle)
        self._longest_s = max(self._longest_s, time.thread_time() - self._begun)

    @property
    def standards(self) -> float:
        """The longest one, as a multiple of the standard work's time."""
        return self._longest_s / standard_s()
