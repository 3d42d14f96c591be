"""The time that a broker goes by, and what is due at a time. Tests move it.

Every time-out of what the broker keeps is a timer of this clock, so `advance` makes a session time out, a transaction
abort or a segment expire at once. (Those of handshakes, of the monitoring and of the broker's stop are not.)

Source in Kafka: `Time`, `SystemTimer`.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from time import perf_counter

from odradek.broker.turns import TURN_S
from odradek.printable import logger

_logger = logger(__name__)

_LATE_MS = 2.0
"""The loop fires timers within a millisecond or so, unless it was busy or the process was stopped."""

_FEW_TIMERS = 1000


class Timer:
    """An action that runs when its time has come, unless it is cancelled."""

    __slots__ = ("_action", "deadline_ms")

    def __init__(self, deadline_ms: float, action: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self._action: Callable[[], None] | None = action

    def __lt__(self, other: Timer) -> bool:
        return self.deadline_ms < other.deadline_ms

    @property
    def is_pending(self) -> bool:
        """Whether the action is still to run."""
        return self._action is not None

    def cancel(self) -> None:
        """Do nothing when the time comes."""
        self._action = None

    def postpone(self, action: Callable[[], None]) -> None:
        """Let `fire` run this action when it is called the next time, unless the timer is cancelled."""
        self._action = action

    def fire(self) -> None:
        """Run the action now, unless it was cancelled or has run."""
        action, self._action = self._action, None
        if action is not None:
            action()


class Clock:
    """The time of one broker.

    Any thread may ask for the time. Timers belong to the thread of the event loop.
    """

    def __init__(self) -> None:
        self._advanced_ms = 0.0
        self._timers: list[Timer] = []
        self._most_timers = _FEW_TIMERS
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.TimerHandle | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let the timers be fired by an event loop."""
        self._loop = loop

    def now_ms(self) -> int:
        """Return the time of day in ms since 1970, which timestamps are taken from."""
        return time.time_ns() // 1_000_000 + int(self._advanced_ms)

    def elapsed_ms(self) -> float:
        """Return a time in ms that never goes back, from an arbitrary moment on; time-outs are counted in it."""
        return time.monotonic() * 1000 + self._advanced_ms

    def after(self, delay_ms: float, action: Callable[[], None]) -> Timer:
        """Run an action in the event loop's thread after a delay."""
        timer = Timer(self.elapsed_ms() + max(0.0, delay_ms), action)
        heapq.heappush(self._timers, timer)
        if len(self._timers) > self._most_timers:
            self._drop_cancelled()
        if self._timers[0] is timer:
            self._schedule()
        return timer

    def _drop_cancelled(self) -> None:
        """Drop cancelled timers: members that come and go would leave theirs here for minutes."""
        self._timers[:] = [timer for timer in self._timers if timer.is_pending]
        heapq.heapify(self._timers)
        self._most_timers = max(_FEW_TIMERS, 2 * len(self._timers))

    async def sleep(self, delay_ms: float) -> None:
        """Wait some time."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.after(delay_ms, lambda: None if done.done() else done.set_result(None))
        try:
            await done
        finally:
            timer.cancel()

    def _schedule(self) -> None:
        while self._timers and not self._timers[0].is_pending:
            heapq.heappop(self._timers)
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None
        if self._timers and self._loop is not None:
            delay_s = max(0.0, (self._timers[0].deadline_ms - self.elapsed_ms()) / 1000)
            self._wake = self._loop.call_later(delay_s, self._fire)

    def _fire(self) -> None:
        self._wake = None
        loop = self._loop
        if loop is None or not self._timers or self.elapsed_ms() - self._timers[0].deadline_ms < _LATE_MS:
            self._fire_due()
            return
        # Late timers: the process was stopped (SIGSTOP, a frozen container). Heartbeats that came in time wait in the
        # sockets, so let the loop read these first.
        loop.call_soon(lambda: loop.call_soon(self._fire_due))

    def _fire_due(self, until_ms: float | None = None) -> None:
        due_ms = self.elapsed_ms() if until_ms is None else until_ms
        end = perf_counter() + TURN_S
        while self._timers and self._timers[0].deadline_ms <= due_ms:
            if self._loop is not None and perf_counter() > end:
                # Thousands of sessions may end together; others have their turn in between. What falls due meanwhile
                # may do so because the process was stopped: `_fire` sees to that.
                self._loop.call_soon(self._fire_due, due_ms)
                return
            try:
                heapq.heappop(self._timers).fire()
            except Exception:
                # Continue: the other timers are due too.
                _logger.exception("what was due at a time failed")
        self._schedule()

    def close(self) -> None:
        """Fire no more timers."""
        self._timers.clear()
        self._loop = None
        self._schedule()

    def advance(self, seconds: float) -> None:
        """Move the time forward; in the event loop's thread. Timers that fall due run in the order of their times."""
        target = self.elapsed_ms() + seconds * 1000
        while self._timers and self._timers[0].deadline_ms <= target:
            timer = heapq.heappop(self._timers)
            self._advanced_ms += max(0.0, timer.deadline_ms - self.elapsed_ms())
            timer.fire()
        self._advanced_ms += max(0.0, target - self.elapsed_ms())
        self._schedule()
