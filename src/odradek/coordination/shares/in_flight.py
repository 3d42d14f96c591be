"""The records of a partition that a share group is delivering: ranges of offsets and their states.

    start_offset                                             end_offset
    |                                                                 |
    | batch 10..19  acquired by a | batch 20..39                      |
    |                             | 20..24 acked | 25..39 available   |    runs of a batch that is split

A batch is what one member acquired at once. It is split into runs when its records go different ways. Kafka then has a
state for each record; a run stands for neighbours in the same state, so a batch of a million records costs no more than
what was said about it.

While a change is being written down, the runs have their new state and remember the old one (`before`); nobody else may
change them meanwhile.

Source in Kafka: `SharePartition`, `InFlightBatch`, `InFlightState`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from odradek.coordination.shares.record_states import FOLLOWING, RecordState

NOBODY = ""
"""The member of records that nobody has."""
_FEW_LOCKS = 1000
MOST_RUNS = 3000
"""How many runs are looked at in a turn of the loop."""


class Before(NamedTuple):
    """What a run was before a change that is being written.

    Attributes:
        state: Its state.
        member_id: Who had it.
        change: The change.
    """

    state: RecordState
    member_id: str
    change: object


@dataclass(slots=True)
class Run:
    """Records that follow each other and are in the same state.

    Attributes:
        first_offset: The first record.
        last_offset: The last one.
        state: Their state.
        delivery_count: How often they were delivered.
        member_id: Who has them; nobody if they are not acquired.
        locked_until_ms: Until when the member has them.
        before: What they were before a change that is being written.
        is_final: Whether they stay archived, even if the change is not written.
        sessions_ended: How many sessions had ended when they were acquired: it tells sessions of a member apart.
    """

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int
    member_id: str
    locked_until_ms: float | None = None
    before: Before | None = None
    is_final: bool = False
    sessions_ended: int = 0

    @property
    def is_available(self) -> bool:
        """Whether a member may acquire them."""
        return self.state is RecordState.AVAILABLE and self.before is None

    @property
    def is_done(self) -> bool:
        """Whether nothing more happens to them."""
        return self.before is None and self.state.is_terminal

    def enter(self, state: RecordState, member_id: str) -> None:
        """Bring them into another state."""
        assert state in FOLLOWING[self.state]
        self.state, self.member_id = state, member_id

    def archive(self) -> None:
        """Archive them for good."""
        self.state, self.member_id, self.locked_until_ms, self.is_final = RecordState.ARCHIVED, NOBODY, None, True

    def is_like(self, other: Run) -> bool:
        """Return whether another run is in the same state in all respects."""
        return (
            self.state is other.state
            and self.delivery_count == other.delivery_count
            and self.member_id == other.member_id
            and self.locked_until_ms == other.locked_until_ms
            and self.before == other.before
            and self.is_final == other.is_final
            and (self.sessions_ended == other.sessions_ended or not self._has_member)
        )

    @property
    def _has_member(self) -> bool:
        """Whether a member has them, or gets them back if the change is not written."""
        return self.member_id != NOBODY or self.before is not None


class InFlightBatch:
    """Records that were acquired at once.

    Attributes:
        first_offset: The first one.
        last_offset: The last one.
        runs: The records by their states.
        is_split: Whether its records may go different ways.
    """

    __slots__ = ("first_offset", "is_split", "last_offset", "runs")

    def __init__(self, run: Run) -> None:
        self.first_offset = run.first_offset
        self.last_offset = run.last_offset
        self.runs = [run]
        self.is_split = False

    @property
    def count(self) -> int:
        """How many offsets it has."""
        return self.last_offset - self.first_offset + 1

    @property
    def whole(self) -> Run:
        """All of its records, if it is not split."""
        assert not self.is_split
        return self.runs[0]

    def at(self, offset: int) -> Run:
        """Return the run with an offset, or the last one."""
        return self.runs[max(0, bisect_right(self.runs, offset, key=lambda run: run.first_offset) - 1)]

    def within(self, first_offset: int, last_offset: int) -> Iterator[Run]:
        """Yield the runs that have offsets of a range; the one that was yielded may be cut and changed meanwhile."""
        offset, end = max(first_offset, self.first_offset), min(last_offset, self.last_offset)
        while offset <= end:
            run = self.at(offset)
            yield run
            offset = run.last_offset + 1

    def cut(self, run: Run, first_offset: int, last_offset: int) -> Run:
        """Return the part of a run that is within a range, after separating it from the rest."""
        if first_offset <= run.first_offset and run.last_offset <= last_offset:
            return run
        number = bisect_left(self.runs, run.first_offset, key=lambda one: one.first_offset)
        if run.first_offset < first_offset:
            head = replace(run, last_offset=first_offset - 1)
            run.first_offset = first_offset
            self.runs.insert(number, head)
            number += 1
        if run.last_offset > last_offset:
            tail = replace(run, first_offset=last_offset + 1)
            run.last_offset = last_offset
            self.runs.insert(number + 1, tail)
        return run

    def join(self, first_offset: int, last_offset: int) -> None:
        """Join the runs of a range, and its neighbours, where they are in the same state."""
        start = max(0, bisect_right(self.runs, first_offset, key=lambda run: run.first_offset) - 2)
        end = bisect_right(self.runs, last_offset, key=lambda run: run.first_offset) + 1
        joined = self.runs[start : start + 1]
        for run in self.runs[start + 1 : end]:
            if joined[-1].is_like(run):
                joined[-1].last_offset = run.last_offset
            else:
                joined.append(run)
        self.runs[start:end] = joined


class _Lock(NamedTuple):
    until_ms: float
    first_offset: int
    last_offset: int


class InFlight:
    """The records that are being delivered, in the order of their offsets.

    Attributes:
        start_offset: The first record whose delivery is not complete.
        end_offset: The last record that was acquired, or the next one to acquire if there are none.
        complete_count: How many records from the start offset on are acknowledged or archived.
        gaps: From where and up to where loaded states may have gaps, whose records were never fetched.
        may_have_available: Whether an available record may be among them; `freed` says where.
    """

    def __init__(self) -> None:
        self.start_offset = 0
        self.end_offset = 0
        self.complete_count = 0
        self.gaps: tuple[int, int] | None = None
        self.may_have_available = False
        self._firsts: list[int] = []
        self._batches: list[InFlightBatch] = []
        self._locks: list[_Lock] = []
        self._most_locks = _FEW_LOCKS
        # Where available runs may begin: each of them has such an offset.
        self._free: list[int] = []

    # -- batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return iter(self._batches)

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not self._batches

    @property
    def first(self) -> InFlightBatch:
        """The first batch."""
        return self._batches[0]

    @property
    def last(self) -> InFlightBatch:
        """The last batch."""
        return self._batches[-1]

    @property
    def count(self) -> int:
        """How many offsets are in flight."""
        return self.end_offset - self.start_offset + 1 if self._batches else 0

    def floor(self, offset: int) -> InFlightBatch | None:
        """Return the last batch that begins at or before an offset."""
        number = bisect_right(self._firsts, offset) - 1
        return self._batches[number] if number >= 0 else None

    def beginning_within(self, first_offset: int, last_offset: int) -> list[InFlightBatch]:
        """Return the batches that begin within a range."""
        return self._batches[bisect_left(self._firsts, first_offset) : bisect_right(self._firsts, last_offset)]

    def add(self, run: Run) -> InFlightBatch:
        """Add a batch; one that begins at the same offset is replaced."""
        batch = InFlightBatch(run)
        number = bisect_left(self._firsts, run.first_offset)
        if number < len(self._firsts) and self._firsts[number] == run.first_offset:
            self._batches[number] = batch
        else:
            self._firsts.insert(number, run.first_offset)
            self._batches.insert(number, batch)
        return batch

    def _clear(self) -> None:
        self._firsts.clear()
        self._batches.clear()
        self._locks.clear()
        self._free.clear()

    def split(self, batch: InFlightBatch) -> None:
        """Let the records of a batch go different ways."""
        batch.is_split = True

    # -- locks

    def lock(self, run: Run, until_ms: float) -> None:
        """Give the records to their member until some time."""
        run.locked_until_ms = until_ms
        heapq.heappush(self._locks, _Lock(until_ms, run.first_offset, run.last_offset))
        if len(self._locks) > self._most_locks:
            self._rebuild_locks()

    def _rebuild_locks(self) -> None:
        """Drop the locks that were released or renewed: a client may renew its own again and again."""
        self._locks = [
            _Lock(run.locked_until_ms, run.first_offset, run.last_offset)
            for batch in self._batches
            for run in batch.runs
            if run.locked_until_ms is not None
        ]
        heapq.heapify(self._locks)
        self._most_locks = max(_FEW_LOCKS, 2 * len(self._locks))

    @property
    def next_due_ms(self) -> float:
        """When the next lock ends; infinity if there is none."""
        return self._locks[0].until_ms if self._locks else inf

    def take_due(self, now_ms: float) -> Iterator[tuple[InFlightBatch, Run]]:
        """Yield the acquired records whose locks have ended, and forget these locks; not too many at once."""
        looked = 0
        while self._locks and self._locks[0].until_ms <= now_ms:
            lock = heapq.heappop(self._locks)
            floor = self.floor(lock.first_offset)
            if floor is None:
                continue
            for batch in self.beginning_within(floor.first_offset, lock.last_offset):
                for run in batch.within(lock.first_offset, lock.last_offset):
                    looked += 1
                    if looked > MOST_RUNS:
                        heapq.heappush(self._locks, lock._replace(first_offset=run.first_offset))
                        return
                    is_over = run.locked_until_ms is not None and run.locked_until_ms <= now_ms
                    if is_over and run.state is RecordState.ACQUIRED:
                        yield batch, run

    # -- gaps of loaded states

    @property
    def gap_start(self) -> int | None:
        """From where on gaps are to be fetched; None if all that are left have no records."""
        return self.gaps[0] if self.gaps is not None and self.gaps[1] == self.end_offset else None

    def gaps_fetched_to(self, offset: int) -> None:
        """Note that the gaps before an offset were fetched.

        Kafka waits for the gaps up to the end even if none is left, and may so wait for ever if no record more may be
        in flight.
        """
        if self.gaps is None:
            return
        start, end = self.gaps
        start = max(start, offset)
        while (floor := self.floor(start)) is not None and floor.last_offset >= start:
            start = floor.last_offset + 1
        self.gaps = (start, end) if end == self.end_offset and start <= end else None

    # -- what comes next

    @property
    def _is_past_all(self) -> bool:
        return not self._batches or self.start_offset > self.last.last_offset

    def freed(self, offset: int) -> None:
        """Note that the records at an offset are available."""
        self.may_have_available = True
        heapq.heappush(self._free, offset)
        if len(self._free) > max(_FEW_LOCKS, 2 * self.count):
            # Drop those that were acquired since: a client may release its own again and again.
            self._free = sorted({found for one in self._free if (found := self._available(one)) is not None})

    def _first_available(self) -> int | None:
        while self._free:
            found = self._available(self._free[0])
            if found is not None:
                return found
            heapq.heappop(self._free)
        return None

    def _available(self, offset: int) -> int | None:
        """Return where the available run begins that has an offset; None if it is not available."""
        floor = self.floor(offset)
        run = None if floor is None or floor.last_offset < offset else floor.at(offset)
        return run.first_offset if run is not None and run.is_available else None

    def next_fetch_offset(self) -> int:
        """Return the offset from which to fetch next."""
        if self._is_past_all:
            self.may_have_available = False
            return self.end_offset
        if not self.may_have_available:
            return self.end_offset + 1
        available, gap_start = self._first_available(), self.gap_start
        for batch in self._batches if gap_start is not None else ():
            assert gap_start is not None
            if batch.first_offset > gap_start:
                return gap_start if available is None else min(gap_start, available)
            gap_start = max(batch.last_offset + 1, gap_start)
        if available is not None:
            return available
        self.may_have_available = False
        return self.end_offset + 1

    # -- what is archived, and where delivery starts

    def in_flight_part(self, first_offset: int, last_offset: int) -> int:
        """Return how many offsets of a range are not before the start offset."""
        return max(0, last_offset - max(self.start_offset, first_offset) + 1)

    def archive(
        self, first_offset: int, end_offset: int, batches: Iterable[InFlightBatch], state: RecordState, *, counts: bool
    ) -> bool:
        """Archive the records of a range that are in some state; return whether there were any.

        If the range has very many pieces, only the first ones are looked at.

        Args:
            first_offset: The first offset of the range.
            end_offset: Its end.
            batches: The batches to look at.
            state: The state.
            counts: Whether they count as complete.
        """
        found, looked = False, 0
        for batch in batches:
            if batch.first_offset >= end_offset:
                break
            is_whole = batch.first_offset >= first_offset and batch.last_offset < end_offset
            if not is_whole and not batch.is_split:
                if batch.whole.state is not state:
                    continue
                self.split(batch)
            for run in batch.within(first_offset, end_offset - 1):
                looked += 1
                if looked > MOST_RUNS:
                    return found
                if run.state is state:
                    if run.is_available and run.last_offset >= end_offset:
                        self.freed(end_offset)
                    part = batch.cut(run, first_offset, end_offset - 1)
                    part.archive()
                    found = True
                    if counts:
                        self.complete_count += self.in_flight_part(part.first_offset, part.last_offset)
        return found

    def log_start_moved(self, log_start_offset: int) -> bool:
        """Note that the records before an offset were deleted from the log; return whether there may be more to do.

        It moves past a few pieces, as if the log began there, and past the next ones when it is called again.
        """
        if log_start_offset <= self.start_offset:
            return False
        if not self._batches:
            self.start_offset = self.end_offset = log_start_offset
            self.complete_count = 0
            return False
        end_offset, removed = self._done_before(log_start_offset)
        floor = self.floor(self.start_offset) or self.first
        passed = self.beginning_within(floor.first_offset, end_offset - 1)
        if self.archive(self.start_offset, end_offset, passed, RecordState.AVAILABLE, counts=False):
            self.may_have_available = True
        self.start_offset = end_offset
        self.complete_count -= removed
        self.end_offset = max(self.end_offset, self.start_offset)
        # Kafka would go on asking for gaps that the log does not have any more.
        self.gaps_fetched_to(self.start_offset)
        return end_offset < log_start_offset

    def _done_before(self, end_offset: int) -> tuple[int, int]:
        """Return how far a few pieces from the start offset on reach, and how many of their records are done."""
        looked = done = 0
        for number in range(max(0, bisect_right(self._firsts, self.start_offset) - 1), len(self._batches)):
            batch = self._batches[number]
            begin = bisect_right(batch.runs, self.start_offset - 1, key=lambda run: run.last_offset)
            for run in batch.runs[begin : begin + MOST_RUNS - looked + 1]:
                if run.first_offset >= end_offset:
                    return end_offset, done
                if looked == MOST_RUNS:
                    return run.first_offset, done
                looked += 1
                if run.state.is_terminal:
                    done += self.in_flight_part(run.first_offset, min(run.last_offset, end_offset - 1))
        return end_offset, done

    def move_start(self) -> bool:
        """Move the start offset past the records that are done, and forget the batches of these; return if it did.

        It may move on at once, after others had their turn.
        """
        floor = self.floor(self.start_offset)
        if floor is None or not floor.at(self.start_offset).is_done:
            # Without a batch at the start offset there is a gap that has to be fetched first.
            return False
        last_done, count = self._last_done()
        if last_done is None:
            return False
        if last_done == self.last.last_offset:
            self.start_offset = self.end_offset = max(self.start_offset, last_done + 1)
            self._clear()
            self.complete_count = 0
            return True
        number = bisect_right(self._firsts, last_done) - 1
        if last_done == self._batches[number].last_offset:
            number += 1
            self.start_offset = max(self.start_offset, self._firsts[number])
            if self.gap_start is not None:
                self.start_offset = min(self.gap_start, self.start_offset)
        else:
            self.start_offset = max(self.start_offset, last_done + 1)
        self.complete_count -= count
        del self._firsts[:number]
        del self._batches[:number]
        return True

    def _last_done(self) -> tuple[int | None, int]:
        """Return the last of the first records that are all done, and how many are not before the start offset."""
        last, count = None, 0
        for batch in self._batches:
            if self.gap_start is not None and batch.last_offset >= self.gap_start:
                break
            # What is before the start offset is not looked at again and again.
            begin = bisect_right(batch.runs, self.start_offset - 1, key=lambda run: run.last_offset)
            runs = batch.runs[begin : begin + MOST_RUNS]
            for run in runs:
                if not run.is_done:
                    return last, count
                last = run.last_offset
                count += self.in_flight_part(run.first_offset, run.last_offset)
            if len(runs) == MOST_RUNS:
                return last, count
        return last, count
