"""A partition that a share group reads from, in memory: it is loaded, written down, and timed.

    loading  ->  active  ->  fenced      its state was replaced, its topic was deleted, or nobody fetches any more
        |
        +----->  failed

What changes is written down by the share coordinator before it counts. Members that wait for records are woken by
whatever may give them some.

Source in Kafka: `SharePartition`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.clock import Clock, Timer
from odradek.broker.configs.group_settings import GroupSettings
from odradek.broker.errors import ApiError, code_of, message_of
from odradek.broker.log_waits import Wake
from odradek.broker.partitions import Partition
from odradek.broker.shares.state import ShareStates
from odradek.broker.tasks import Tasks
from odradek.broker.turns import Turns
from odradek.coordination.shares.acquisition import Limits
from odradek.coordination.shares.changes import Acknowledgement, Change
from odradek.coordination.shares.offset_reset import EARLIEST, LATEST, parse_offset_reset
from odradek.coordination.shares.partition import SharePartition
from odradek.coordination.shares.state_batches import NO_START_OFFSET, StateBatch
from odradek.coordination.shares.states import StateWrite
from odradek.errors import OdradekError
from odradek.messages.coordinators.share_records import ShareKey, ShareSnapshot
from odradek.printable import logger

_logger = logger(__name__)

_AS_TOLD = {
    ErrorCode.not_coordinator: ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress: ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_not_available: ErrorCode.coordinator_not_available,
    ErrorCode.group_id_not_found: ErrorCode.group_id_not_found,
    ErrorCode.unknown_topic_or_partition: ErrorCode.unknown_topic_or_partition,
    ErrorCode.fenced_leader_epoch: ErrorCode.not_leader_or_follower,
    ErrorCode.fenced_state_epoch: ErrorCode.not_leader_or_follower,
}
"""Maps an error of the share coordinator to the one that members get; any other is UNKNOWN_SERVER_ERROR."""

_FENCING = frozenset(
    map(
        int,
        (
            ErrorCode.not_leader_or_follower,
            ErrorCode.fenced_state_epoch,
            ErrorCode.group_id_not_found,
            ErrorCode.unknown_topic_or_partition,
        ),
    )
)


class LivePartition:
    """A partition that a share group reads from.

    Args:
        key: The group and the partition.
        states: The share coordinator.
        settings: The settings of groups.
        clock: The time.
        turns: Lets other work have its turns.
        run: Runs an action in another thread.
        fenced: Called when it cannot be used any more.
        timed_out: Counts the records that members had for too long.

    Attributes:
        key: The group and the partition.
        share: What is being delivered; None while it is loaded.
        error: Why it could not be loaded.
        is_fenced: Whether it must not be used any more.
        waiters: What to call, by who waits, when records may have become available.
    """

    def __init__(
        self,
        key: ShareKey,
        states: ShareStates,
        settings: GroupSettings,
        clock: Clock,
        turns: Turns,
        run: Callable[[Callable[[], Any]], Awaitable[Any]],
        fenced: Callable[[LivePartition], None],
        timed_out: Callable[[int], None],
    ) -> None:
        self.key = key
        self.share: SharePartition | None = None
        self.error: ApiError | None = None
        self.is_fenced = False
        self.waiters: dict[object, Wake] = {}
        self._states = states
        self._settings = settings
        self._clock = clock
        self._turns = turns
        self._run = run
        self._fenced = fenced
        self._count_timed_out = timed_out
        self._state_epoch = 0
        self._leader_epoch = 0
        self._is_replaced = False
        self._timer: Timer | None = None
        self._due_ms = inf
        # What fails is told by those that wait for it, if anybody does.
        self._tasks = Tasks(lambda error: None)

    @property
    def limits(self) -> Limits:
        """The settings of the group."""
        number = partial(self._settings.number, self.key.group_id)
        return Limits(
            number("share.record.lock.duration.ms"),
            number("share.delivery.count.limit"),
            number("share.partition.max.record.locks"),
            self._settings.text(self.key.group_id, "share.renew.acknowledge.enable") == "true",
        )

    def wake(self) -> None:
        """Let those that wait look again."""
        for wake in list(self.waiters.values()):
            wake()

    def fence(self) -> None:
        """Do not use it any more."""
        self.is_fenced = True
        if self._timer is not None:
            self._timer.cancel()
        self.wake()

    def replaced(self, state_epoch: int) -> bool:
        """Note that the state was restarted in an epoch or removed; return whether it must not be used any more."""
        if self.share is None:
            # It is loaded again.
            self._is_replaced = True
            return False
        # A newer epoch fences it when it is written next, and members are told so, as by Kafka.
        self._is_replaced = self._is_replaced or self._state_epoch >= state_epoch
        return self._is_replaced

    # -- loading

    async def load(self, opened: Awaitable[Partition], before: LivePartition | None) -> None:
        """Load what was written down of it; those that wait are woken then.

        Args:
            opened: The partition.
            before: The same before it was fenced, if something of it is still being written.
        """
        try:
            if before is not None:
                await before.settled()
            partition = await opened
            self._leader_epoch = partition.leader_epoch
            await self._states.create()
            found, start = await self._read(partition)
            while self._is_replaced:
                found, start = await self._read(partition)
            batches = [
                StateBatch(one.first_offset, one.last_offset, one.delivery_count, one.delivery_state)
                for one in found.state_batches
            ]
            self._state_epoch = found.state_epoch
            self.share = SharePartition(start, batches)
        except (OdradekError, OSError, ValueError) as error:
            self.error = _as_told(error)
            self._fenced(self)
        self.wake()

    async def _read(self, partition: Partition) -> tuple[ShareSnapshot, int]:
        """Return the state, and where it starts."""
        self._is_replaced = False
        found = await self._states.read(*self.key, self._leader_epoch)
        start = found.start_offset
        return found, await self._first_offset(partition) if start == NO_START_OFFSET else start

    async def _first_offset(self, partition: Partition) -> int:
        reset = parse_offset_reset(self._settings.text(self.key.group_id, "share.auto.offset.reset"))
        end = partition.commits.ends.high_watermark
        if reset.kind == LATEST:
            return end
        if reset.kind == EARLIEST:
            return partition.log.log_start_offset
        since_ms = self._clock.now_ms() - reset.duration_ms
        found = await self._run(partial(partition.log.find_timestamp, max(0, since_ms), end))
        if found is None or found.offset >= end:
            name = f"{partition.topic_partition}"
            reason = f"Offset for timestamp {since_ms} not found for topic partition: {name}"
            raise ApiError(ErrorCode.offset_not_available, reason)
        return int(found.offset)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is being written."""
        return not self._tasks

    async def settled(self) -> None:
        """Wait until nothing is being written."""
        await self._tasks.ended()

    # -- changing

    async def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Take over what a member says about records, and return when that is written down.

        Raises:
            ApiError: It cannot be written.
            RefusedError: A record is not the member's.
        """
        share = self._active()
        work = share.acknowledge(member_id, acknowledgements, self.limits, self._clock.elapsed_ms())
        await self._write(await self._turns.finish(work))

    async def release(self, member_id: str, sessions_ended: int) -> None:
        """Release what a member has of a session that has ended, and return when that is written down.

        Args:
            member_id: The member.
            sessions_ended: How many sessions had ended with this one.

        Raises:
            ApiError: It cannot be written.
        """
        if self.share is not None and not self.is_fenced:
            await self._write(await self._turns.finish(self.share.release(member_id, self.limits, sessions_ended)))

    def _active(self) -> SharePartition:
        if self.share is None or self.is_fenced:
            raise ApiError(ErrorCode.unknown_topic_or_partition)
        return self.share

    async def _write(self, change: Change) -> None:
        """Write a change and complete it, even if the client has disconnected meanwhile."""
        if self.is_fenced:
            # Others may have loaded what is written by now, and would not see this.
            raise ApiError(ErrorCode.unknown_topic_or_partition)
        self.arm()
        if change.batches:
            await asyncio.shield(self._tasks.start(self._written(change)))
        self.wake()

    async def _written(self, change: Change) -> None:
        share, is_written = self.share, False
        assert share is not None
        try:
            await self._append(change.batches)
            is_written = True
        finally:
            work = share.complete(change, self.limits, self._clock.elapsed_ms(), is_written=is_written)
            await self._turns.finish(work)
            self.arm()
            self.wake()

    async def _append(self, batches: Sequence[StateBatch]) -> None:
        share = self.share
        assert share is not None
        write = StateWrite(self._state_epoch, self._leader_epoch, share.start_offset, share.complete_count, batches)
        try:
            await self._states.write(*self.key, write, lambda: not self._is_replaced)
        except (OdradekError, OSError) as error:
            told = _as_told(error)
            if told.error_code in _FENCING:
                self._fenced(self)
            raise told from error

    # -- time

    def arm(self) -> None:
        """Let the timer ring when the next member has had its records for too long."""
        due_ms = inf if self.share is None or self.is_fenced else self.share.next_due_ms
        if due_ms >= self._due_ms and self._timer is not None and self._timer.is_pending:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due_ms = due_ms
        self._timer = None
        if due_ms < inf:
            self._timer = self._clock.after(due_ms - self._clock.elapsed_ms(), self._time_out)

    def _time_out(self) -> None:
        share = self.share
        if share is None or self.is_fenced:
            return
        self._due_ms = inf
        batches = share.time_out(self.limits, self._clock.elapsed_ms())
        if batches:
            self._count_timed_out(sum(one.last_offset - one.first_offset + 1 for one in batches))
            self._tasks.start(self._timed_out(batches))
            self.wake()
        self.arm()

    async def _timed_out(self, batches: Sequence[StateBatch]) -> None:
        try:
            await self._append(batches)
        except OdradekError as error:
            # The records are available all the same; what is written next has their states.
            _logger.debug("%s: %s", self.key, error)
        finally:
            if self.share is not None and self.share.move_start():
                self.wake()


def _as_told(error: Exception) -> ApiError:
    """Return an error of the share coordinator, or of a log, as members get it."""
    code = ErrorCode(code_of(error))
    if code is ErrorCode.offset_not_available:
        return ApiError(code, message_of(error))
    return ApiError(_AS_TOLD.get(code, ErrorCode.unknown_server_error), message_of(error))
