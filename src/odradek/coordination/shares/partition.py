"""A partition as one share group sees it: which records are with members, and which come next.

                 fetched and acquired                  acknowledged, or released, or timed out
    the log  ------------------------->  in flight  ------------------------------------------>  written down

It belongs to one thread.

Source in Kafka: `SharePartition`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from odradek.coordination.errors import RefusedError, ShareErrorCode
from odradek.coordination.shares.acquisition import Acquired, Acquisition, Limits, LogBatch, Wish, without
from odradek.coordination.shares.changes import Acknowledgement, Change, Changes
from odradek.coordination.shares.in_flight import NOBODY, InFlight, Run
from odradek.coordination.shares.record_states import RecordState
from odradek.coordination.shares.state_batches import StateBatch

_STATES = frozenset(RecordState)


class SharePartition:
    """A partition as a share group sees it.

    Args:
        start_offset: From where on records are delivered.
        batches: The states that were written down of records from there on, in order.

    Raises:
        RefusedError: The states contradict the start offset or each other.
    """

    def __init__(self, start_offset: int, batches: Iterable[StateBatch] = ()) -> None:
        self._in_flight = InFlight()
        self._changes = Changes(self._in_flight)
        self._load(start_offset, batches)

    def _load(self, start_offset: int, batches: Iterable[StateBatch]) -> None:
        in_flight = self._in_flight
        in_flight.start_offset = in_flight.end_offset = start_offset
        gap_start, next_offset = None, start_offset
        for one in batches:
            is_in_order = start_offset <= next_offset <= one.first_offset <= one.last_offset
            if not is_in_order or one.delivery_state not in _STATES:
                reason = f"a state of offsets {one.first_offset} to {one.last_offset}, from {start_offset} on"
                raise RefusedError(ShareErrorCode.UNKNOWN_SERVER_ERROR, reason)
            if gap_start is None and one.first_offset > next_offset:
                gap_start = next_offset
            next_offset = one.last_offset + 1
            run = Run(one.first_offset, one.last_offset, RecordState(one.delivery_state), one.delivery_count, NOBODY)
            in_flight.add(run)
            if run.state.is_terminal:
                in_flight.complete_count += one.last_offset - one.first_offset + 1
            elif run.is_available:
                in_flight.freed(run.first_offset)
        if in_flight.is_empty:
            return
        in_flight.may_have_available = True
        in_flight.end_offset = in_flight.last.last_offset
        if gap_start is not None:
            in_flight.gaps = (gap_start, in_flight.end_offset)
        in_flight.move_start()

    # -- what is written down

    @property
    def start_offset(self) -> int:
        """The first record whose delivery is not complete."""
        return self._in_flight.start_offset

    @property
    def end_offset(self) -> int:
        """The last record that was acquired, or the next one to acquire if none is in flight."""
        return self._in_flight.end_offset

    @property
    def complete_count(self) -> int:
        """How many records from the start offset on are acknowledged or archived."""
        return self._in_flight.complete_count

    @property
    def count(self) -> int:
        """How many offsets are in flight."""
        return self._in_flight.count

    def states(self) -> list[StateBatch]:
        """Return the states of all records in flight."""
        return [
            StateBatch(run.first_offset, run.last_offset, run.delivery_count, run.state)
            for batch in self._in_flight
            for run in batch.runs
        ]

    # -- acquiring

    def next_fetch_offset(self) -> int:
        """Return the offset from which to fetch next."""
        return self._in_flight.next_fetch_offset()

    def can_acquire(self, limits: Limits) -> bool:
        """Return whether there may be records to acquire."""
        if self.count >= limits.max_record_locks:
            self.move_start()
        return self.next_fetch_offset() != self.end_offset + 1 or self.count < limits.max_record_locks

    def last_acquirable(self, fetch_offset: int, max_records: int, limits: Limits) -> int:
        """Return an offset after which nothing is acquired, so that no batch after it needs to be read."""
        return max(self.end_offset, fetch_offset) + min(max_records, limits.max_record_locks)

    def acquire(
        self, wish: Wish, fetch_offset: int, batches: Sequence[LogBatch], limits: Limits, now_ms: float
    ) -> list[Acquired]:
        """Let a member acquire records that were read from an offset on.

        Args:
            wish: What it asks for.
            fetch_offset: What `next_fetch_offset` returned.
            batches: The batches of the log that were read.
            limits: The group's settings.
            now_ms: The time.
        """
        acquired = Acquisition(self._in_flight, limits, wish, batches, now_ms).acquire(fetch_offset)
        # Compaction may have removed the first records; nobody acknowledges them.
        self.move_start()
        return acquired

    def leave_out(self, acquired: Sequence[Acquired], aborted: Sequence[LogBatch]) -> list[Acquired]:
        """Archive batches of aborted transactions, and return what was acquired without them."""
        for batch in aborted:
            # A batch may be in very many pieces; what was acquired has a bounded number of them.
            begin = max(batch.base_offset, acquired[0].first_offset)
            last = min(batch.last_offset, acquired[-1].last_offset)
            floor = self._in_flight.floor(begin)
            first = begin if floor is None else floor.first_offset
            known = self._in_flight.beginning_within(first, last)
            self._in_flight.archive(begin, last + 1, known, RecordState.ACQUIRED, counts=True)
        # Nobody acknowledges them: otherwise a long transaction would use up all that may be in flight.
        self.move_start()
        return without(acquired, aborted)

    # -- changing

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], limits: Limits, now_ms: float
    ) -> Generator[None, None, Change]:
        """Change what a member acknowledges: all of it or nothing; see `Changes.acknowledge`."""
        return self._changes.acknowledge(member_id, acknowledgements, limits, now_ms)

    def release(self, member_id: str, limits: Limits, sessions_ended: int) -> Generator[None, None, Change]:
        """Release what a member has of a session that has ended; see `Changes.release`."""
        return self._changes.release(member_id, limits, sessions_ended)

    def complete(
        self, change: Change, limits: Limits, now_ms: float, *, is_written: bool
    ) -> Generator[None, None, bool]:
        """Let a change count that was written, or take it back; see `Changes.complete`."""
        return self._changes.complete(change, limits, now_ms, is_written=is_written)

    @property
    def next_due_ms(self) -> float:
        """When the next member has had its records for too long; infinity if none has any."""
        return self._in_flight.next_due_ms

    def time_out(self, limits: Limits, now_ms: float) -> list[StateBatch]:
        """Make available what members have had for too long; return what is to be written."""
        return self._changes.time_out(limits, now_ms)

    def move_start(self) -> bool:
        """Move the start offset past the records that are done; return whether it moved."""
        return self._in_flight.move_start()

    def log_start_moved(self, log_start_offset: int) -> Generator[None, None, None]:
        """Note that the records before an offset were deleted from the log. A generator, as the others."""
        while self._in_flight.log_start_moved(log_start_offset):
            self.move_start()
            yield
        self.move_start()
