"""What waits until a partition can be written, such as the markers of transactions.

    partition    waits: A, B, C       after 0.5 s A is tried, fails -> B, C, A, after 1 s more B ... 8 s at most
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

    def add(self, partition: TopicPartition, attempt: Attempt, *, is_tried: bool = True) -> None:
        """Let something wait for a partition.

        Args:
            partition: The partition.
            attempt: What waits.
            is_tried: Whether an attempt has just failed. Else it is made at once, unless others wait already.
        """
        waiting = self._waiting.get(partition)
        if waiting is None:
            self._waiting[partition] = deque([attempt])
            self._tasks.start(self._work(partition, _FIRST_MS if is_tried else 0))
        else:
            waiting.append(attempt)

    async def _work(self, partition: TopicPartition, delay_ms: int) -> None:
        waiting = self._waiting[partition]
        while waiting:
            if delay_ms:
                await self._clock.sleep(delay_ms)
            await self._have_turn()
            delay_ms = _FIRST_MS if await self._try(waiting) else min(_LONGEST_MS, max(_FIRST_MS, 2 * delay_ms))
        del self._waiting[partition]

    async def _have_turn(self) -> None:
        """Wait until no other partition has this turn of the loop: thousands may begin to wait in one moment."""
        async with self._turn:
            await asyncio.sleep(0)

    async def _try(self, waiting: deque[Attempt]) -> bool:
        """Try the first, and the others until one fails; return whether one has succeeded."""
        first = waiting.popleft()
        if not await _is_done(first):
            waiting.append(first)
            return False
        while waiting:
            await self._have_turn()
            tried = [waiting.popleft() for _ in range(min(_MOST_AT_ONCE, len(waiting)))]
            found = await asyncio.gather(*map(_is_done, tried))
            waiting.extend(attempt for attempt, is_done in zip(tried, found, strict=True) if not is_done)
            if not all(found):
                break
        return True


async def _is_done(attempt: Attempt) -> bool:
    try:
        return await attempt()
    except Exception:
        # It is tried again: the others that wait for the partition must not stop with it.
        _logger.exception("an attempt to write what has waited failed")
        return False
