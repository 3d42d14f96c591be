"""A ShareFetch that is being answered: it waits until there are records that its member may acquire.

    partitions that may have some -> read -> enough bytes, an error, or no time left? -> acquired and answered
                                              otherwise -> waits: for appends, releases, time-outs, loading

Records go out as parts of log files: from the batch with the first record that was acquired to that with the last one.

Source in Kafka: `DelayedShareFetch`, `ShareFetchUtils.processFetchResponse`.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.errors import NO_ERROR, code_of
from odradek.broker.partitions import Partition
from odradek.broker.protocol import Message
from odradek.broker.shares.deliveries import ShareDeliveries
from odradek.broker.shares.live import LivePartition
from odradek.broker.turns import Work
from odradek.coordination.shares.acquisition import Acquired, LogBatch, Wish
from odradek.coordination.shares.partition import SharePartition
from odradek.coordination.shares.sessions import TopicIdPartition
from odradek.errors import FormatError, OdradekError
from odradek.messages.coordinators.share_records import ShareKey
from odradek.records.header import BatchHeader
from odradek.storage.segment.file_records import FileRecords

_QUICKLY_READ_BYTES = 1 << 20
"""Up to this many bytes are scanned for transactions while other requests wait; more in another thread."""

NO_LEADER: Message = {"leader_id": 0, "leader_epoch": 0}


def partition_answer(number: int, code: int = NO_ERROR, **fields: Any) -> dict[str, Any]:
    """Return the answer for a partition."""
    return {
        "partition_index": number,
        "error_code": code,
        "acknowledge_error_code": NO_ERROR,
        "current_leader": NO_LEADER,
        "records": b"",
        "acquired_records": [],
        **fields,
    }


class FetchLimits(NamedTuple):
    """What a request asks for.

    Attributes:
        max_bytes: How many bytes at most.
        min_bytes: How many bytes are worth an answer before the time is over.
        max_records: How many records.
        batch_size: How many records in one range of the answer.
        is_record_limit: Whether there may be no more than `max_records`.
    """

    max_bytes: int
    min_bytes: int
    max_records: int
    batch_size: int
    is_record_limit: bool


class _Readable(NamedTuple):
    key: TopicIdPartition
    live: LivePartition
    share: SharePartition


class ShareFetch:
    """A request that is being answered.

    Args:
        shares: What share groups are delivering.
        group_id: The group.
        member_id: The member.
        wanted: The partitions, in the order of their turns.
        limits: What it asks for.
        may_read: Whether the client may read a topic, by its id; None if it may read all.

    Attributes:
        answers: The answers for partitions.
    """

    def __init__(
        self,
        shares: ShareDeliveries,
        group_id: str,
        member_id: str,
        wanted: Sequence[TopicIdPartition],
        limits: FetchLimits,
        may_read: Callable[[UUID], bool] | None = None,
    ) -> None:
        self._shares = shares
        self._member_id = member_id
        self._limits = limits
        self._may_read = may_read
        self._group_id = group_id
        # Now: when there are records at last, the session may have ended.
        self._sessions_ended = shares.sessions.ended
        self._wanted = wanted
        self._live: dict[TopicIdPartition, LivePartition] = {}
        self._is_committed = shares.settings.text(group_id, "share.isolation.level") == "read_committed"
        self._read_before: set[TopicIdPartition] = set()
        self._watched: dict[Partition, None] = {}
        self._woken: asyncio.Future[None] | None = None
        self._is_woken = False
        self.answers: dict[TopicIdPartition, dict[str, Any]] = {}

    # -- waiting

    async def answer(self, max_wait_ms: int) -> Mapping[TopicIdPartition, dict[str, Any]]:
        """Return the answers for partitions, as soon as there are records, and at the latest after some time."""
        if not self._wanted or self._limits.max_records == 0 or self._limits.max_bytes == 0:
            return {}
        turns, clock = self._shares.turns, self._shares.clock
        is_over = False

        def end() -> None:
            nonlocal is_over
            is_over = True
            self._wake()

        timer = clock.after(max_wait_ms, end)
        try:
            await turns.finish(self._find())
            while not await turns.finish(self._attempt(is_last=is_over or max_wait_ms <= 0)):
                while not self._is_woken:
                    self._woken = asyncio.get_running_loop().create_future()
                    await self._woken
                self._is_woken = False
        finally:
            timer.cancel()
            for live in self._live.values():
                live.waiters.pop(self, None)
            for partition in self._watched:
                partition.forget(self)
        return self.answers

    def _wake(self) -> None:
        self._is_woken = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _find(self) -> Work[None]:
        for topic_id, number in self._wanted:
            live = self._shares.get(ShareKey(self._group_id, topic_id, number))
            live.waiters[self] = self._wake
            self._live[topic_id, number] = live
            yield

    # -- reading

    def _attempt(self, *, is_last: bool) -> Work[bool]:
        """Work: answer if there is enough, or no time left; return whether it is answered."""
        readable = list[_Readable]()
        for key, live in self._live.items():
            yield
            if live.error is not None:
                self.answers[key] = partition_answer(key[1], live.error.error_code)
            elif self._may_read is not None and not self._may_read(key[0]):
                # No more: it could when the request began to wait.
                self.answers[key] = partition_answer(key[1], int(ErrorCode.topic_authorization_failed))
            elif live.share is not None and not live.is_fenced and live.share.can_acquire(live.limits):
                readable.append(_Readable(key, live, live.share))
        if len(self.answers) == len(self._live):
            return True
        if not is_last and (not readable or not (yield from self._is_enough(readable))):
            return False
        most = max(1, self._limits.max_bytes // max(1, len(readable)))
        acquired, has_some = 0, False
        for one in readable:
            yield
            if self._is_committed:
                yield from self._read_transactions(one)
            yield from self._pass_deleted(one)
            answer, count = self._acquire(one, most, self._limits.max_records - acquired, at_least_one=not has_some)
            self.answers[one.key] = answer
            acquired += count
            has_some = has_some or count > 0
        return True

    def _is_enough(self, readable: Sequence[_Readable]) -> Work[bool]:
        """Work: return whether the partitions have enough bytes, or an error; otherwise await their growth."""
        most = max(1, self._limits.max_bytes // len(readable))
        size, ends = 0, []
        for one in readable:
            yield
            try:
                partition = self._partition(one.key)
                # Before the records: what is appended meanwhile may wake this request too often, but is not missed.
                place = partition.end(is_committed=self._is_committed)
                ends.append((partition, place))
                self._watch(partition, place, 1)
                offset = one.share.next_fetch_offset()
                if not partition.log.log_start_offset <= offset <= self._end(partition, is_last=False):
                    return True
                records = partition.fetch(offset, self._end(partition), most, at_least_one=not size)
                size += 0 if records is None else records.size_bytes
            except (OdradekError, OSError):
                # The answer says why.
                return True
            if size >= self._limits.min_bytes:
                return True
        missing = max(1, (self._limits.min_bytes - size) // len(readable))
        for partition, place in ends:
            if missing > 1:
                self._watch(partition, place, missing)
        return False

    def _partition(self, key: TopicIdPartition) -> Partition:
        return self._shares.partitions.named(None, *key)

    def _watch(self, partition: Partition, place: Any, size_bytes: int) -> None:
        self._watched[partition] = None
        partition.wait(self, place, size_bytes, self._wake, is_committed=self._is_committed)

    def _end(self, partition: Partition, *, is_last: bool = True) -> int:
        """Return where the records that the group may see end; or where all end."""
        ends = partition.commits.ends
        return ends.last_stable_offset if self._is_committed and is_last else ends.high_watermark

    # -- acquiring

    def _read_transactions(self, one: _Readable) -> Work[None]:
        """Work: read the transactions of what is about to be acquired in another thread, if that takes long."""
        # An error is raised again when they are read for the answer.
        with suppress(OdradekError, OSError):
            partition = self._partition(one.key)
            offset = one.share.next_fetch_offset()
            end = partition.segment_end_offset(offset, self._end(partition))
            if partition.log.unread_transactions_bytes(offset, end) > _QUICKLY_READ_BYTES:
                read = partial(partition.log.aborted_transactions, offset, end)
                yield partial(_suppressing, self._shares.run, read)

    def _pass_deleted(self, one: _Readable) -> Work[None]:
        """Work: continue after the records that were deleted from the log."""
        # An error is raised again when the partition is read.
        with suppress(OdradekError, OSError):
            start = self._partition(one.key).log.log_start_offset
            if not one.live.is_fenced and one.share.next_fetch_offset() < start:
                yield from one.share.log_start_moved(start)

    def _acquire(
        self, one: _Readable, max_bytes: int, max_records: int, *, at_least_one: bool
    ) -> tuple[dict[str, Any], int]:
        """Return the answer for a partition, and how many records its member acquired."""
        _, number = one.key
        if one.live.is_fenced:
            return partition_answer(number), 0
        try:
            partition = self._partition(one.key)
            offset, start = one.share.next_fetch_offset(), partition.log.log_start_offset
            if not start <= offset <= self._end(partition, is_last=False):
                return partition_answer(number), 0
            records = partition.fetch(offset, self._end(partition), max_bytes, at_least_one=at_least_one)
            if records is None or not records.size_bytes or max_records <= 0:
                return partition_answer(number), 0
            limits = one.live.limits
            batches = list(records.batches(one.share.last_acquirable(offset, max_records, limits)))
            wish = Wish(
                self._member_id,
                max_records,
                self._limits.batch_size,
                self._limits.is_record_limit,
                self._sessions_ended,
            )
            now_ms = self._shares.clock.elapsed_ms()
            acquired = one.share.acquire(wish, offset, _log_batches(batches, offset), limits, now_ms)
            if self._is_committed and acquired:
                acquired = one.share.leave_out(acquired, self._aborted(partition, batches))
            one.live.arm()
            if not acquired:
                return partition_answer(number), 0
            ranges = [
                {"first_offset": a.first_offset, "last_offset": a.last_offset, "delivery_count": a.delivery_count}
                for a in acquired
            ]
            sent = _part(records, batches, acquired)
            return partition_answer(number, records=sent, acquired_records=ranges), sum(a.size for a in acquired)
        except (OdradekError, OSError) as error:
            if isinstance(error, FormatError):
                self._shares.found_damage(error)
            elif isinstance(error, OSError):
                self._shares.disk_failed(str(error))
            return partition_answer(number, code_of(error)), 0

    def _aborted(self, partition: Partition, batches: Sequence[BatchHeader]) -> list[LogBatch]:
        """Return the batches of aborted transactions."""
        first, end = batches[0].base_offset, batches[-1].next_offset
        aborted: dict[int, list[tuple[int, int]]] = {}
        for one in partition.log.aborted_transactions(first, end):
            aborted.setdefault(one.producer_id, []).append((one.first_offset, one.last_offset))
        for spans in aborted.values():
            spans.sort()
        return [
            LogBatch(batch.base_offset, batch.last_offset)
            for batch in batches
            if batch.is_transactional
            and not batch.is_control
            and _is_within(batch.base_offset, aborted.get(batch.producer_id, []))
        ]


def _is_within(offset: int, spans: Sequence[tuple[int, int]]) -> bool:
    """Return whether an offset is in one of some spans, which are in order."""
    number = bisect_right(spans, offset, key=lambda span: span[0]) - 1
    return number >= 0 and offset <= spans[number][1]


async def _suppressing(run: Callable[[Callable[[], object]], Awaitable[object]], action: Callable[[], object]) -> None:
    with suppress(OdradekError, OSError):
        await run(action)


def _log_batches(batches: Sequence[BatchHeader], fetch_offset: int) -> list[LogBatch]:
    """Return the offsets of batches; a compressed message of an old format does not tell its first one."""
    found = list[LogBatch]()
    for batch in batches:
        base = batch.base_offset
        if batch.is_wrapper:
            base = found[-1].last_offset + 1 if found else min(fetch_offset, batch.last_offset)
        found.append(LogBatch(base, batch.last_offset))
    return found


def _part(records: FileRecords, batches: Sequence[BatchHeader], acquired: Sequence[Acquired]) -> FileRecords:
    """Return the records from the batch with the first one that was acquired to that with the last one."""
    sent = [
        batch
        for batch in batches
        if batch.last_offset >= acquired[0].first_offset and batch.base_offset <= acquired[-1].last_offset
    ]
    start = sent[0].position - records.position
    return records.part(start, sent[-1].end_position - records.position - start)
