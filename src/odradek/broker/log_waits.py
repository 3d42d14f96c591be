"""The requests that wait for a log to grow, by how far it has to grow for them.

    orders-0    position in the log    4,096     5,000     9,000
                waits for it           a, b      c         d          the log grows to 5,100: a, b and c are woken

So an append costs the same, however many requests wait that it does not wake. Each isolation level has its own order:
by the log's end, and by the last stable offset.

Source in Kafka: `DelayedOperationPurgatory`, `DelayedFetch`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

Wake: TypeAlias = Callable[[], None]

_FEW = 16


class LogPlace(NamedTuple):
    """A place in a log; places are compared.

    Attributes:
        base_offset: The base offset of the segment.
        position: The position in the segment's file.
    """

    base_offset: int
    position: int


class LogWaits:
    """The requests that wait for one log. Each is woken once."""

    def __init__(self) -> None:
        self._number = 0
        self._waiting: dict[object, tuple[int, Wake]] = {}
        # Heaps by isolation level. An entry counts if its number is that of its waiter.
        self._heaps: tuple[list[tuple[LogPlace, int, object]], ...] = ([], [])

    def __len__(self) -> int:
        return len(self._waiting)

    def are_for(self, *, is_committed: bool) -> bool:
        """Whether requests of an isolation level may wait."""
        return bool(self._heaps[is_committed])

    def add(self, waiter: object, place: LogPlace, wake: Wake, *, is_committed: bool) -> None:
        """Let a request wait until the log has grown to a place; this replaces what it waited for before."""
        self._number += 1
        self._waiting[waiter] = self._number, wake
        heap = self._heaps[is_committed]
        heapq.heappush(heap, (place, self._number, waiter))
        if len(heap) > 2 * len(self._waiting) + _FEW:
            heap[:] = [entry for entry in heap if self._counts(entry)]
            heapq.heapify(heap)

    def _counts(self, entry: tuple[LogPlace, int, object]) -> bool:
        found = self._waiting.get(entry[2])
        return found is not None and found[0] == entry[1]

    def remove(self, waiter: object) -> None:
        """Remove a request."""
        self._waiting.pop(waiter, None)

    def take(self, end: LogPlace | None, most: int, *, is_committed: bool) -> list[Wake]:
        """Remove the requests that a log's end wakes, and return the functions that wake them.

        Args:
            end: The end; None if the log has none any more, which wakes all.
            most: How many to return at most.
            is_committed: Whether those that wait for the last stable offset.
        """
        heap, found = self._heaps[is_committed], list[Wake]()
        while heap and len(found) < most and (end is None or heap[0][0] <= end):
            entry = heapq.heappop(heap)
            if self._counts(entry):
                found.append(self._waiting.pop(entry[2])[1])
        return found
