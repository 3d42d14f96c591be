"""The states of ranges of records, as they are written down and merged.

    before   | 0..9 available, delivered once             |
    new                | 4..6 acknowledged, delivered once |
    merged   | 0..3    | 4..6              | 7..9         |

Where ranges overlap, the one that was delivered more often counts, then the one with the greater state. Neighbours of
the same state are joined, unless the first one was already passed: the order is Kafka's, so the records are Kafka's.

Source in Kafka: `PersisterStateBatch`, `PersisterStateBatchCombiner`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

NO_START_OFFSET = -1
"""The start offset is not known yet, or does not change."""
_Range = tuple[int, int, int, int]
"""A range in any form: its first and its last offset come first."""
_FIRST, _LAST = itemgetter(0), itemgetter(1)


class StateBatch(NamedTuple):
    """A range of records in the same state; ranges are ordered by these fields."""

    first_offset: int
    last_offset: int
    delivery_count: int
    delivery_state: int

    @property
    def priority(self) -> tuple[int, int]:
        """Which of two ranges that overlap counts: the one with the greater priority."""
        return self.delivery_count, self.delivery_state

    def part(self, first_offset: int, last_offset: int) -> StateBatch:
        """Return a part of it."""
        return self._replace(first_offset=first_offset, last_offset=last_offset)


def combined(before: Iterable[StateBatch], new: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return ranges and new ones, merged and in order, without what is before the start offset."""
    pruned = list(_pruned([*before, *new], start_offset))
    if len(pruned) < 2:
        return tuple(pruned)
    waiting, found = list(set(pruned)), list[StateBatch]()
    heapq.heapify(waiting)
    first = heapq.heappop(waiting)
    while waiting:
        second = waiting[0]
        touches = first.last_offset + 1 == second.first_offset and first.priority == second.priority
        if second == first:
            heapq.heappop(waiting)
            continue
        if second.first_offset <= first.last_offset or touches:
            heapq.heappop(waiting)
            for part in _merged(first, second):
                heapq.heappush(waiting, part)
        else:
            found.append(first)
        first = heapq.heappop(waiting)
    return (*found, first)


def _pruned(batches: Iterable[StateBatch], start_offset: int) -> Iterable[StateBatch]:
    for one in batches:
        if one.last_offset < one.first_offset:
            # Kafka would merge such a range for ever.
            continue
        if start_offset == NO_START_OFFSET or one.first_offset >= start_offset:
            yield one
        elif one.last_offset >= start_offset:
            yield one.part(start_offset, one.last_offset)


def _merged(first: StateBatch, second: StateBatch) -> Iterable[StateBatch]:
    """Yield what two ranges become that overlap, or touch and are in the same state; the first one comes first."""
    if first.priority == second.priority:
        yield first.part(first.first_offset, max(first.last_offset, second.last_offset))
        return
    if second.priority < first.priority:
        yield first
        if second.last_offset > first.last_offset:
            yield second.part(first.last_offset + 1, second.last_offset)
        return
    if second.first_offset > first.first_offset:
        yield first.part(first.first_offset, second.first_offset - 1)
    yield second
    if second.last_offset < first.last_offset:
        yield first.part(second.last_offset + 1, first.last_offset)


def are_in_order(ranges: Sequence[_Range]) -> bool:
    """Return whether each range ends before the next one begins, as in all that `combined` returns."""
    last_offset = -1
    for one in ranges:
        if not last_offset < one[0] <= one[1]:
            return False
        last_offset = one[1]
    return True


class Touched(NamedTuple):
    """Ranges from one number to another, and the new ones that overlap or touch them."""

    first: int
    end: int
    new: list[StateBatch]


def touched(before: Sequence[_Range], new: Iterable[StateBatch]) -> Iterator[Touched]:
    """Yield which ranges new ones overlap or touch, in order: all others stay as they are.

    Args:
        before: Ranges that are in order.
        new: The new ones, in any order.
    """
    found: Touched | None = None
    last_offset = -1
    for one in sorted(new):
        if one.last_offset < one.first_offset:
            continue
        first = bisect_left(before, one.first_offset - 1, key=_LAST)
        end = bisect_right(before, one.last_offset + 1, key=_FIRST)
        if found is not None and (first < found.end or one.first_offset <= last_offset + 1):
            found.new.append(one)
            found = found._replace(end=max(found.end, end))
        else:
            if found is not None:
                yield found
            found = Touched(first, end, [one])
        last_offset = max(last_offset, one.last_offset)
    if found is not None:
        yield found
