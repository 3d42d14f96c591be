"""What waits until a partition can be written, such as the markers of transactions.

    partition    new: D, E            tried at once, 16 at a time; what fails waits with the others
                 failed: A, B, C      after 0.5 s A is tried, fails -> B, C, A, after 1 s more B ... 8 s at most
                                      one succeeds -> 16 at a time follow at once, until one fails

Each partition has a worker of its own: however many wait for a partition, and however many partitions fail or hang,
the others have their turns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from odradek.broker.clock import Clock
from odradek.broker.tasks import Tasks
from odradek.printable import logger
from odradek.storage.names import TopicPartition

_logger = logger(__name__)

_FIRST_MS = 500
_LONGEST_MS = 8_000
_MOST_AT_ONCE = 16

Attempt = Callable[[], Awaitable[bool]]
"""Tries to do what waits; returns whether it waits no more."""


@dataclass
class _Line:
    """What waits for one partition.

    Attributes:
        new: What was not tried yet.
        failed: What was tried.
        rest: What the worker waits for until it tries one of these, where it waits for nothing else.
    """

    new: deque[Attempt] = field(default_factory=deque)
    failed: deque[Attempt] = field(default_factory=deque)
    rest: asyncio.Future[None] | None = None


class HeldUp:
    """Tries again what waits for a partition. It belongs to the event loop's thread.

    Args:
        clock: The time.
        tasks: Where the workers run; who cancels these ends all waiting.
    """

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        self._lines: dict[TopicPartition, _Line] = {}
        self._turn = asyncio.Lock()

    def add(self, partition: TopicPartition, attempt: Attempt, *, is_tried: bool = True) -> None:
        """Let something wait for a partition.

        Args:
            partition: The partition.
            attempt: What waits.
            is_tried: Whether an attempt has just failed. Else one is made as soon as the others that are new have had
                theirs.
        """
        line = self._lines.get(partition)
        if line is None:
            line = self._lines[partition] = _Line()
            self._tasks.start(self._work(partition, line))
        if is_tried:
            line.failed.append(attempt)
            return
        line.new.append(attempt)
        if line.rest is not None:
            _end(line.rest)

    async def _work(self, partition: TopicPartition, line: _Line) -> None:
        delay_ms = _FIRST_MS
        due_ms = self._clock.elapsed_ms() + delay_ms
        while line.new or line.failed:
            if line.new:
                if await self._try(line, line.new):
                    due_ms = self._clock.elapsed_ms()
                continue
            if (left_ms := due_ms - self._clock.elapsed_ms()) > 0:
                await self._rest(line, left_ms)
                continue
            delay_ms = _FIRST_MS if await self._try_failed(line) else min(_LONGEST_MS, 2 * delay_ms)
            due_ms = self._clock.elapsed_ms() + delay_ms
        del self._lines[partition]

    async def _rest(self, line: _Line, delay_ms: float) -> None:
        """Wait some time, or until there is something new."""
        line.rest = asyncio.get_running_loop().create_future()
        timer = self._clock.after(delay_ms, partial(_end, line.rest))
        try:
            await line.rest
        finally:
            timer.cancel()
            line.rest = None

    async def _try_failed(self, line: _Line) -> bool:
        """Try the first of those that have failed, and the others until one fails; return whether one has succeeded."""
        if not await self._try(line, line.failed, 1):
            return False
        while line.failed and await self._try(line, line.failed):
            pass
        return True

    async def _try(self, line: _Line, waiting: deque[Attempt], most: int = _MOST_AT_ONCE) -> bool:
        """Try the first ones at the same time; return whether all have succeeded."""
        # No other partition has this turn of the loop: thousands may begin to wait in one moment.
        async with self._turn:
            await asyncio.sleep(0)
        tried = [waiting.popleft() for _ in range(min(most, len(waiting)))]
        found = await asyncio.gather(*map(_is_done, tried))
        line.failed.extend(attempt for attempt, is_done in zip(tried, found, strict=True) if not is_done)
        return all(found)


def _end(rest: asyncio.Future[None]) -> None:
    if not rest.done():
        rest.set_result(None)


async def _is_done(attempt: Attempt) -> bool:
    try:
        return await attempt()
    except Exception:
        # It is tried again: the others that wait for the partition must not stop with it.
        _logger.exception("an attempt to write what has waited failed")
        return False
