"""Records are acknowledged or released by their member, or its time with them is over.

    acknowledge, release   the states change at once, and what is to be written is returned: a `Change`
                           written       -> the change counts; the start offset may move
                           not written   -> the states go back; what timed out meanwhile is available
    time out               the states change, whether that is written or not

Source in Kafka: `SharePartition.acknowledge`, `releaseAcquiredRecords`, `rollbackOrProcessStateUpdates`,
`releaseAcquisitionLockOnTimeout`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

from odradek.coordination.errors import RefusedError, ShareErrorCode
from odradek.coordination.shares.acquisition import Limits
from odradek.coordination.shares.in_flight import NOBODY, Before, InFlight, InFlightBatch, Run
from odradek.coordination.shares.record_states import AFTER, AcknowledgeType, RecordState, released
from odradek.coordination.shares.state_batches import StateBatch

_NOT_COMPLETED = "The record state is invalid. The acknowledgement of delivery could not be completed."


class Acknowledgement(NamedTuple):
    """What a member says about records: one type for all of them, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class Change:
    """A change that is to be written down.

    Attributes:
        batches: The new states.
    """

    def __init__(self) -> None:
        self.batches: list[StateBatch] = []


def _batch_of(run: Run) -> StateBatch:
    return StateBatch(run.first_offset, run.last_offset, run.delivery_count, run.state)


def _refused(reason: str) -> RefusedError:
    return RefusedError(ShareErrorCode.INVALID_RECORD_STATE, reason)


class Changes:
    """Makes changes, and completes them.

    Args:
        in_flight: The records that are being delivered.
    """

    def __init__(self, in_flight: InFlight) -> None:
        self._in_flight = in_flight

    def _begin(self, change: Change, run: Run, state: RecordState, limits: Limits) -> None:
        """Change the state of acquired records."""
        run.before = Before(run.state, run.member_id, change)
        if state is RecordState.AVAILABLE:
            state = released(run.delivery_count, limits.delivery_count_limit)
        run.enter(state, NOBODY)
        change.batches.append(_batch_of(run))
        self._count(run)

    def _count(self, run: Run) -> None:
        if run.state.is_terminal:
            self._in_flight.complete_count += self._in_flight.in_flight_part(run.first_offset, run.last_offset)

    # -- acknowledging

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], limits: Limits, now_ms: float
    ) -> Generator[None, None, Change]:
        """Change what a member acknowledges: all of it or nothing. A generator, which yields now and then.

        Raises:
            RefusedError: A record is not the member's.
        """
        change = Change()
        try:
            for one in acknowledgements:
                if one.last_offset < self._in_flight.start_offset:
                    continue
                for batch in self._batches_of(one):
                    # If the start offset has passed them, there is nothing to say about them any more.
                    if batch.last_offset >= self._in_flight.start_offset:
                        yield from self._acknowledge(change, batch, member_id, one, limits, now_ms)
                    yield
        except RefusedError:
            yield from self.complete(change, limits, now_ms, is_written=False)
            raise
        return change

    def _batches_of(self, one: Acknowledgement) -> list[InFlightBatch]:
        in_flight = self._in_flight
        floor = in_flight.floor(one.first_offset)
        if floor is None and one.first_offset < in_flight.start_offset <= one.last_offset:
            floor = in_flight.floor(in_flight.start_offset)
        if floor is None:
            raise _refused("Batch record not found. The request batch offsets are not found in the cache.")
        batches = in_flight.beginning_within(floor.first_offset, one.last_offset)
        for offset, name in ((one.first_offset, "first"), (one.last_offset, "last")):
            if batches[-1].last_offset < offset:
                reason = f"Batch record not found. The {name} offset in request is past acquired records."
                raise RefusedError(ShareErrorCode.INVALID_REQUEST, reason)
        return batches

    def _acknowledge(
        self,
        change: Change,
        batch: InFlightBatch,
        member_id: str,
        one: Acknowledgement,
        limits: Limits,
        now_ms: float,
    ) -> Generator[None, None, None]:
        start = self._in_flight.start_offset
        if not batch.is_split:
            whole = batch.whole
            if whole.member_id != member_id:
                state = "The batch cannot be acknowledged. The batch is not in the acquired state."
                raise _refused(state if whole.member_id == NOBODY else "Member is not the owner of batch record")
            if whole.before is not None:
                raise _refused(_NOT_COMPLETED)
            is_whole = batch.first_offset >= one.first_offset and batch.last_offset <= one.last_offset
            if is_whole and len(one.types) == 1 and not batch.first_offset < start:
                self._apply(change, whole, one.types[0], limits, now_ms)
                return
            self._in_flight.split(batch)
        for run in batch.within(max(one.first_offset, start), one.last_offset):
            if run.state is not RecordState.ACQUIRED:
                raise _refused("The offset cannot be acknowledged. The offset is not acquired.")
            if run.before is not None:
                raise _refused(_NOT_COMPLETED)
            if run.member_id != member_id:
                raise _refused("Member is not the owner of offset")
            begin = max(one.first_offset, start, run.first_offset)
            end = min(one.last_offset, run.last_offset)
            number = 0
            if len(one.types) > 1:
                number = begin - one.first_offset
                end = min(end, one.first_offset + _same_from(one.types, number))
            self._apply(change, batch.cut(run, begin, end), one.types[number], limits, now_ms)
            yield

    def _apply(self, change: Change, run: Run, type_number: int, limits: Limits, now_ms: float) -> None:
        kind = AcknowledgeType(type_number)
        if kind is not AcknowledgeType.RENEW:
            self._begin(change, run, AFTER[kind], limits)
        elif limits.renews:
            self._in_flight.lock(run, now_ms + limits.lock_duration_ms)
        else:
            raise _refused("Renewing acquisition locks is not enabled for the group.")

    # -- releasing

    def release(self, member_id: str, limits: Limits, sessions_ended: int) -> Generator[None, None, Change]:
        """Release what a member has of a session that has ended. A generator, which yields now and then.

        Args:
            member_id: The member.
            limits: The group's settings.
            sessions_ended: How many sessions had ended with this one. What was acquired later is of the next session.
        """
        change = Change()
        for batch in list(self._in_flight):
            for run in batch.within(batch.first_offset, batch.last_offset):
                is_members = run.member_id == member_id and run.sessions_ended < sessions_ended
                if is_members and run.state is RecordState.ACQUIRED:
                    start = self._in_flight.start_offset
                    part = self._before_start(batch, run)
                    state = RecordState.ARCHIVED if part.last_offset < start else RecordState.AVAILABLE
                    self._begin(change, part, state, limits)
                yield
            yield
        return change

    def _before_start(self, batch: InFlightBatch, run: Run) -> Run:
        """Return the part of a run that is before the start offset; all of it if none or all of it is."""
        start = self._in_flight.start_offset
        if run.first_offset < start <= run.last_offset:
            self._in_flight.split(batch)
            return batch.cut(run, run.first_offset, start - 1)
        return run

    def time_out(self, limits: Limits, now_ms: float) -> list[StateBatch]:
        """Make available what members have had for too long; return what is to be written."""
        found, start = list[StateBatch](), self._in_flight.start_offset
        for batch, run in self._in_flight.take_due(now_ms):
            part = self._before_start(batch, run)
            state = RecordState.ARCHIVED
            if part.last_offset >= start:
                state = released(part.delivery_count, limits.delivery_count_limit)
            part.enter(state, NOBODY)
            part.locked_until_ms = None
            if state is RecordState.AVAILABLE:
                self._in_flight.freed(part.first_offset)
            self._count(part)
            found.append(_batch_of(part))
        return found

    # -- completing

    def complete(
        self, change: Change, limits: Limits, now_ms: float, *, is_written: bool
    ) -> Generator[None, None, bool]:
        """Let a change count, or take it back; return whether the start offset moved. A generator, as the others."""
        for one in change.batches:
            batch = self._in_flight.floor(one.first_offset)
            if batch is None:
                continue
            for run in batch.within(one.first_offset, one.last_offset):
                if run.before is not None and run.before.change is change:
                    part = run if is_written else self._before_start(batch, run)
                    self._complete(part, limits, now_ms, is_written=is_written)
            batch.join(one.first_offset, one.last_offset)
            yield
        has_moved = False
        while is_written and change.batches and self._in_flight.move_start():
            has_moved = True
            yield
        return has_moved

    def _complete(self, run: Run, limits: Limits, now_ms: float, *, is_written: bool) -> None:
        before, was_terminal = run.before, run.state.is_terminal
        assert before is not None
        run.before = None
        if is_written or run.is_final:
            run.locked_until_ms = None
        elif run.last_offset < self._in_flight.start_offset:
            # The log does not have them any more: they would be fetched in vain for ever.
            run.archive()
        elif run.locked_until_ms is not None and run.locked_until_ms <= now_ms:
            run.state = released(run.delivery_count, limits.delivery_count_limit)
            run.member_id, run.locked_until_ms = NOBODY, None
        else:
            run.state, run.member_id = before.state, before.member_id
            if run.locked_until_ms is not None:
                # Its time may have been over since this began; then it was skipped, as it was not acquired.
                self._in_flight.lock(run, run.locked_until_ms)
        if run.state is RecordState.AVAILABLE:
            self._in_flight.freed(run.first_offset)
        if was_terminal and not run.state.is_terminal:
            self._in_flight.complete_count -= self._in_flight.in_flight_part(run.first_offset, run.last_offset)


def _same_from(types: Sequence[int], number: int) -> int:
    """Return up to which place the types are the same as at one."""
    end = number + 1
    while end < len(types) and types[end] == types[number]:
        end += 1
    return end - 1
