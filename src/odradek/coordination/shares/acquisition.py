"""A member of a share group acquires records that were read from the log.

    read         | batch 0..4 | batch 5..9 | batch 10..14 |
    in flight    | 0..4 acked | 5..9 available |
    acquired                  | 5..9, again    | 10..14, for the first time |

New records are acquired in whole batches of the log, so that no batch is decompressed for two members; that may be more
than was asked for. In the mode `record_limit` it is never more: the rest of the batch is available to others. Records
that were delivered often are given in ever smaller portions, the last time one by one: so a record that no member
survives does not take its neighbours with it.

Source in Kafka: `SharePartition.acquire`, `SharePartition.acquireSubsetBatchRecords`, `ShareFetchUtils`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from odradek.coordination.shares.in_flight import MOST_RUNS, NOBODY, InFlight, InFlightBatch, Run
from odradek.coordination.shares.record_states import RecordState

_FEWEST_DELIVERIES = 2


class Limits(NamedTuple):
    """The settings of a share group that delivery goes by.

    Attributes:
        lock_duration_ms: `share.record.lock.duration.ms`.
        delivery_count_limit: `share.delivery.count.limit`.
        max_record_locks: `share.partition.max.record.locks`.
        renews: `share.renew.acknowledge.enable`.
    """

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    renews: bool = True

    @property
    def throttled_from(self) -> int:
        """From how many deliveries on records are given in smaller portions."""
        return max(_FEWEST_DELIVERIES, (self.delivery_count_limit + 1) // 2)


class LogBatch(NamedTuple):
    """A batch that was read from the log."""

    base_offset: int
    last_offset: int


class Wish(NamedTuple):
    """What a member asks for.

    Attributes:
        member_id: The member.
        max_records: How many records.
        batch_size: How many records in one range of the answer.
        is_record_limit: Whether there may be no more than `max_records`: `share.acquire.mode=record_limit`.
        sessions_ended: How many sessions of members had ended before the one that asks began, or later.
    """

    member_id: str
    max_records: int
    batch_size: int
    is_record_limit: bool = False
    sessions_ended: int = 0


class Acquired(NamedTuple):
    """Records that a member got."""

    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def size(self) -> int:
        """How many."""
        return self.last_offset - self.first_offset + 1


class Acquisition:
    """One acquisition.

    Args:
        in_flight: The records that are being delivered.
        limits: The group's settings.
        wish: What the member asks for.
        batches: What was read from the log.
        now_ms: The time.
    """

    def __init__(
        self, in_flight: InFlight, limits: Limits, wish: Wish, batches: Sequence[LogBatch], now_ms: float
    ) -> None:
        self._in_flight = in_flight
        self._limits = limits
        self._wish = wish
        self._batches = batches
        self._until_ms = now_ms + limits.lock_duration_ms
        self._found: list[Acquired] = []
        self._count = 0
        self._most = 0
        self._looked = 0

    def acquire(self, fetch_offset: int) -> list[Acquired]:
        """Acquire records, which were read from an offset on."""
        in_flight, batches = self._in_flight, self._batches
        if self._wish.max_records <= 0 or not batches or batches[-1].last_offset < in_flight.start_offset:
            return []
        last = self._limit(fetch_offset, batches[-1].last_offset)
        if self._most <= 0:
            return []
        read_from = base = batches[0].base_offset
        self._archive_stale(fetch_offset, base)
        floor = in_flight.floor(base)
        if floor is not None and floor.last_offset >= base:
            base = floor.first_offset
        known = in_flight.beginning_within(min(read_from, base), last)
        if not known:
            self._acquire_new(base, last)
            return self._found
        # Nothing is available before the fetch offset.
        self._acquire_known(known, read_from, max(read_from, fetch_offset), base, last)
        if self._count < self._most and known[-1].last_offset < last:
            self._acquire_new(known[-1].last_offset + 1, last)
        if self._found:
            in_flight.gaps_fetched_to(self._found[-1].last_offset + 1)
        return self._found

    def _limit(self, fetch_offset: int, last_offset: int) -> int:
        """Note how many records may be acquired, and return the last offset that may."""
        in_flight, wanted = self._in_flight, self._wish.max_records
        self._most = min(wanted, self._limits.max_record_locks - in_flight.count)
        if self._most <= 0 and fetch_offset <= in_flight.end_offset:
            # There is no room for more, but some of those that are in flight came back.
            self._most = min(wanted, in_flight.end_offset - fetch_offset + 1)
            return min(last_offset, in_flight.end_offset)
        return last_offset

    def _archive_stale(self, fetch_offset: int, base_offset: int) -> None:
        """Archive what the log no longer has: compaction removed the records from the fetch offset up to the first."""
        in_flight = self._in_flight
        if in_flight.is_empty or fetch_offset >= base_offset:
            return
        floor = in_flight.floor(fetch_offset)
        first = floor.first_offset if floor is not None and floor.last_offset >= fetch_offset else fetch_offset
        stale = in_flight.beginning_within(first, base_offset - 1)
        if in_flight.archive(fetch_offset, base_offset, stale, RecordState.AVAILABLE, counts=True):
            in_flight.may_have_available = True

    def _give(self, run: Run) -> None:
        run.enter(RecordState.ACQUIRED, self._wish.member_id)
        run.delivery_count += 1
        run.sessions_ended = self._wish.sessions_ended
        self._in_flight.lock(run, self._until_ms)

    # -- records that are in flight

    def _acquire_known(self, known: Iterable[InFlightBatch], read_from: int, first: int, base: int, last: int) -> None:
        gap_from = base
        for batch in known:
            if self._count >= self._most:
                return
            if self._in_flight.gap_start is not None:
                if gap_from < batch.first_offset:
                    self._acquire_new(gap_from, batch.first_offset - 1)
                gap_from = batch.last_offset + 1
                if self._count >= self._most:
                    return
            is_throttled = self._is_throttled(batch, first, last)
            if is_throttled and self._count:
                self._most = 0
                return
            is_whole = batch.first_offset >= read_from and batch.last_offset <= last
            is_too_large = self._wish.is_record_limit and batch.count > self._most - self._count
            if is_whole and not batch.is_split and not is_too_large and not is_throttled:
                if batch.whole.is_available:
                    self._give(batch.whole)
                    self._add(batch.whole)
                continue
            if not batch.is_split:
                if not batch.whole.is_available:
                    continue
                self._in_flight.split(batch)
            if self._acquire_parts(batch, first, last) and is_throttled:
                self._most = 0
            if self._looked > MOST_RUNS:
                # The others are given with the next fetch.
                self._most = 0
            if not self._most:
                return

    def _is_throttled(self, batch: InFlightBatch, first: int, last: int) -> bool:
        if not batch.is_split:
            return batch.whole.is_available and batch.whole.delivery_count >= self._limits.throttled_from
        return any(
            run.is_available and run.delivery_count >= self._limits.throttled_from
            for run in islice(batch.within(first, last), max(0, MOST_RUNS - self._looked))
        )

    def _acquire_parts(self, batch: InFlightBatch, first: int, last: int) -> bool:
        """Acquire records of a batch that is split; return whether there were any."""
        limit, most = self._limits.delivery_count_limit, self._most - self._count
        is_isolated = limit > _FEWEST_DELIVERIES
        portion: int | None = None
        taken = list[Acquired]()
        count = 0
        for run in batch.within(first, last):
            self._looked += 1
            if self._looked > MOST_RUNS:
                break
            if not run.is_available:
                continue
            is_last_time = is_isolated and run.delivery_count == limit - 1
            if is_last_time and count:
                break
            if portion is None and run.delivery_count >= self._limits.throttled_from:
                portion = max(1, batch.count >> (run.delivery_count - self._limits.throttled_from + 1))
            begin, end = max(first, run.first_offset), min(last, run.last_offset)
            if is_last_time:
                end = begin
            if self._wish.is_record_limit:
                end = min(end, begin + most - count - 1)
            if portion is not None and count < portion:
                end = min(end, begin + portion - count - 1)
            if run.last_offset > end:
                self._in_flight.freed(end + 1)
            part = batch.cut(run, begin, end)
            self._give(part)
            _accumulate(taken, part)
            count += end - begin + 1
            if is_last_time or count == portion or (self._wish.is_record_limit and count == most):
                break
        self._found += taken
        self._count += count
        return count > 0

    def _add(self, run: Run) -> None:
        one = Acquired(run.first_offset, run.last_offset, run.delivery_count)
        self._found.append(one)
        self._count += one.size

    # -- new records

    def _acquire_new(self, first: int, last: int) -> None:
        in_flight, most = self._in_flight, self._most - self._count
        # A batch of the log may begin before what is left of it.
        first = max(first, in_flight.end_offset if in_flight.is_empty else in_flight.start_offset)
        if most < last - first + 1:
            whole = self._end_of_batch(first + most - 1)
            last = last if in_flight.gap_start is not None and whole > last else whole
        if first > last:
            return
        if self._wish.is_record_limit:
            self._add_limited(first, last, most)
        else:
            for begin, end in self._portions(first, last):
                self._add(self._add_new(begin, end))
        if in_flight.first.first_offset == first:
            in_flight.start_offset = first
        in_flight.end_offset = max(in_flight.end_offset, last)
        in_flight.gaps_fetched_to(self._found[-1].last_offset + 1)

    def _end_of_batch(self, offset: int) -> int:
        """Return the last offset of the batch of the log that has an offset, or the offset itself."""
        number = bisect_right(self._batches, offset, key=lambda one: one.base_offset) - 1
        last = self._batches[number].last_offset if number >= 0 else offset
        return max(offset, last)

    def _portions(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        """Yield the ranges in which new records are given: whole batches of the log, about as many as are wanted."""
        size = max(1, self._wish.batch_size)
        if last - first + 1 > size:
            for batch in self._batches:
                if batch.base_offset > last:
                    break
                if batch.base_offset - first >= size:
                    yield first, batch.base_offset - 1
                    first = batch.base_offset
        yield first, last

    def _add_new(self, first: int, last: int) -> Run:
        run = Run(first, last, RecordState.AVAILABLE, 0, NOBODY)
        self._in_flight.add(run)
        self._give(run)
        return run

    def _add_limited(self, first: int, last: int, most: int) -> None:
        """Add a batch of which no more is given than was asked for."""
        if last - first + 1 <= most:
            self._add(self._add_new(first, last))
            return
        batch = self._in_flight.add(Run(first, last, RecordState.AVAILABLE, 0, NOBODY))
        self._in_flight.split(batch)
        part = batch.cut(batch.at(first), first, first + most - 1)
        self._give(part)
        self._add(part)
        self._in_flight.freed(first + most)


def _accumulate(found: list[Acquired], run: Run) -> None:
    if found and found[-1].last_offset + 1 == run.first_offset and found[-1].delivery_count == run.delivery_count:
        found[-1] = found[-1]._replace(last_offset=run.last_offset)
    else:
        found.append(Acquired(run.first_offset, run.last_offset, run.delivery_count))


def without(acquired: Sequence[Acquired], left_out: Iterable[LogBatch]) -> list[Acquired]:
    """Return what was acquired without some batches of the log; both are in order."""
    found, holes = list[Acquired](), iter(left_out)
    hole = next(holes, None)
    for one in acquired:
        rest: Acquired | None = one
        while rest is not None:
            while hole is not None and hole.last_offset < rest.first_offset:
                hole = next(holes, None)
            if hole is None or hole.base_offset > rest.last_offset:
                found.append(rest)
                break
            if rest.first_offset < hole.base_offset:
                found.append(rest._replace(last_offset=hole.base_offset - 1))
            is_past = rest.last_offset > hole.last_offset
            rest = rest._replace(first_offset=hole.last_offset + 1) if is_past else None
    return found
