"""What waits until a partition can be written again, such as the markers of transactions.

    partition    waits: A, B, C       after 0.5 s A is tried, fails -> B, C, A, after 1 s more B ... 10 s at most
                                      one succeeds -> 16 at a time follow at once, until one fails

Each partition has a worker of its own: however many wait for a partition, and however many partitions fail or hang,
the others have their turns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

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


class HeldUp:
    """Tries again what waits for a partition. It belongs to the event loop's thread.

    Args:
        clock: The time.
        tasks: Where the workers run; who cancels these ends all waiting.
    """

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        self._waiting: dict[TopicPartition, deque[Attempt]] = {}
        self._turn = asyncio.Lock()

    def add(self, partition: TopicPartition, attempt: Attempt) -> None:
        """Let something wait for a partition, as an attempt has just failed."""
        waiting = self._waiting.get(partition)
        if waiting is None:
            self._waiting[partition] = deque([attempt])
            self._tasks.start(self._work(partition))
        else:
            waiting.append(attempt)

    async def _work(self, partition: TopicPartition) -> None:
        waiting = self._waiting[partition]
        delay_ms = _FIRST_MS
        while waiting:
            await self._clock.sleep(delay_ms)
            # Where a disk fails, thousands begin to wait in one moment; one of them is tried in a turn of the loop.
            async with self._turn:
                await asyncio.sleep(0)
            delay_ms = _FIRST_MS if await self._try(waiting) else min(_LONGEST_MS, 2 * delay_ms)
        del self._waiting[partition]

    async def _try(self, waiting: deque[Attempt]) -> bool:
        """Try the first, and the others until one fails; return whether one has succeeded."""
        count = 1
        while waiting:
            tried = [waiting.popleft() for _ in range(min(count, len(waiting)))]
            found = await asyncio.gather(*map(_is_done, tried))
            waiting.extend(attempt for attempt, is_done in zip(tried, found, strict=True) if not is_done)
            if not all(found):
                return count > 1 or any(found)
            count = _MOST_AT_ONCE
            # Others have their turn: none of them may have waited for anything.
            await asyncio.sleep(0)
        return True


async def _is_done(attempt: Attempt) -> bool:
    try:
        return await attempt()
    except Exception:
        # It is tried again: the others that wait for the partition must not stop with it.
        _logger.exception("an attempt to write what has waited failed")
        return False
