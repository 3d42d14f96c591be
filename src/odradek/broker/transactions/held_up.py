"""Those that wait until a partition can be written again.

    partition    waits: A, B, C       every 500 ms the first tries; A fails -> B, C, A
                                      B can write -> C and A follow at once

However many wait for a partition, and however many partitions fail, a try costs little, and each partition has its own.
"""

from __future__ import annotations

import asyncio
from collections import deque

from odradek.broker.clock import Clock, Timer
from odradek.storage.names import TopicPartition

_RETRY_MS = 500
_MOST_PARTITIONS = 1000
"""So many partitions have a try in that time. A disk that failed may hold more of them."""
_LONGEST_MS = 10_000
_FOLLOWERS = 2
"""So many follow at once where one has succeeded; when these have, so many follow each of them."""


class HeldUp:
    """Gives those that wait for a partition their turns. It belongs to the event loop's thread.

    Args:
        clock: The time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[TopicPartition, deque[asyncio.Future[None]]] = {}
        self._timers: dict[TopicPartition, Timer] = {}

    async def turn(self, partition: TopicPartition) -> None:
        """Wait until it is one's turn to try to write a partition."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(partition, deque()).append(turn)
        if partition not in self._timers:
            self._try_later(partition)
        await turn

    def succeeded(self, partition: TopicPartition) -> None:
        """Let others have their turns, as one of them could write the partition."""
        self._give_turns(partition, _FOLLOWERS)

    def _try_later(self, partition: TopicPartition) -> None:
        delay_ms = min(_LONGEST_MS, _RETRY_MS * (1 + len(self._timers) // _MOST_PARTITIONS))
        self._timers[partition] = self._clock.after(delay_ms, lambda: self._try(partition))

    def _try(self, partition: TopicPartition) -> None:
        del self._timers[partition]
        self._give_turns(partition, 1)
        if partition in self._waiting:
            self._try_later(partition)

    def _give_turns(self, partition: TopicPartition, count: int) -> None:
        waiting = self._waiting.get(partition)
        while waiting and count:
            turn = waiting.popleft()
            # One that was cancelled, as the broker stops, is not there any more.
            if not turn.done():
                turn.set_result(None)
                count -= 1
        if waiting is not None and not waiting:
            del self._waiting[partition]
