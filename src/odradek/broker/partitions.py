"""The partitions as the broker uses them: appended to, fetched from, and waited for.

    append  -> in the loop's thread, if it takes no longer than a request may   -> wakes the fetches that wait
            -> in another thread: compressed, large, or a new segment; in order
            -> acknowledged at once, or when it was synced, if the settings want that: see `GroupCommit`

A partition belongs to the event loop's thread; its log is shared with other threads.

Source in Kafka: `ReplicaManager`, `Partition`, `DelayedOperationPurgatory`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError
from odradek.broker.group_commit import GroupCommit
from odradek.broker.log_waits import LogPlace, LogWaits, Wake
from odradek.coordination.transactions.lowest_sequences import LowestSequences
from odradek.errors import FormatError, LogError, OdradekError, UnknownTopicOrPartitionError
from odradek.printable import logger
from odradek.records.append.batching import AppendResult
from odradek.records.append.validator import AppendOrigin
from odradek.records.header import codec_of
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.log.fetch import fetch_records
from odradek.storage.log.leader_epochs import epoch_for_offset
from odradek.storage.log.segment_search import SegmentSearch
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.names import TopicPartition
from odradek.storage.segment.file_records import FileRecords
from odradek.storage.segment.offset_lookup import locate_batch
from odradek.storage.topic_config import TopicConfig

_T = TypeVar("_T")

_QUICK_BYTES = (1 << 20) + (1 << 16)
"""A batch of the default `max.message.bytes` takes half a millisecond, as long as handing it to another thread."""
_STATE_BYTES = 1 << 20
"""The most that a request of groups writes."""
_WOKEN_AT_ONCE = 50
"""How many requests are woken in one turn of the loop; each answer takes about a tenth of a millisecond."""


class Partition:
    """A partition of the broker.

    Attributes:
        topic_partition: Its name.
        log: Its log.
        commits: The syncs of its appends.
    """

    def __init__(
        self, topic_partition: TopicPartition, log: WritableLog, executor: ThreadPoolExecutor, syncs: ThreadPoolExecutor
    ) -> None:
        self.commits = GroupCommit(log, syncs, self.changed)
        self.topic_partition = topic_partition
        self.log = log
        self.lowest_sequences = LowestSequences()
        self._executor = executor
        self._search = SegmentSearch()
        self._waits = LogWaits()
        self._is_waking = False
        self._stable: tuple[int, LogPlace] | None = None
        self._last: asyncio.Future[Any] | None = None
        # Derived from the settings `_config`, and kept until these change.
        self._config: TopicConfig | None = None
        self._flushes = self._keeps_codecs = False

    # -- appending

    def takes_at_once(self, data: bytearray | memoryview) -> bool:
        """Whether an append of a v2 batch takes no longer than a request may keep the others waiting."""
        return self.is_idle and self._needs_no_thread(data)

    def _needs_no_thread(self, data: bytearray | memoryview) -> bool:
        return len(data) < _QUICK_BYTES and self._keeps_codecs and not codec_of(data)

    @property
    def is_idle(self) -> bool:
        """Whether no other append has to come first."""
        if self.log.config is not self._config:
            self._configure()
        return self._last is None or self._last.done()

    @property
    def flushes(self) -> bool:
        """Whether the settings want appends on the disk, some of them or all."""
        if self.log.config is not self._config:
            self._configure()
        return self._flushes

    def _configure(self) -> None:
        config = self._config = self.log.config
        self._flushes = config.flushes
        self._keeps_codecs = config.compression_type in ("producer", "uncompressed")

    def append_at_once(
        self,
        data: bytearray | memoryview,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
        supports_epoch_bump: bool = False,
    ) -> AppendResult | None:
        """Append a batch, and wake the fetches that wait for it; None if that has to wait for something.

        It may not be acknowledged before `commits.unsynced` is done.

        Raises:
            BrokerError: The batch is refused.
            LogError: The log is offline, or its topic was deleted.
        """
        flushes = self.flushes
        if flushes:
            self.commits.begin_write()
        try:
            result = self.log.nonblocking.append(
                data,
                origin=origin,
                transaction_version=transaction_version,
                supports_epoch_bump=supports_epoch_bump,
            )
        finally:
            if flushes:
                self.commits.end_write()
        self.changed()
        return result

    def append(self, data: bytearray | memoryview, *, origin: AppendOrigin = AppendOrigin.CLIENT) -> AppendResult:
        """Append a batch now, as a coordinator does whose state in memory follows at once; see `append_at_once`.

        While another thread changes the segments it waits for that.

        Raises:
            BrokerError: The batch is refused.
            LogError: The log is offline.
        """
        result = self.append_at_once(data, origin=origin)
        if result is not None:
            return result
        self.commits.begin_write()
        try:
            return self.log.append_batches(data, origin=origin, flushes=False)
        finally:
            self.commits.end_write()
            self.changed()

    @property
    def has_room(self) -> bool:
        """Whether `append` would not wait: for another thread, or for a new segment."""
        log = self.log
        if log.is_closed or log.is_offline:
            # It fails at once.
            return True
        return self.is_idle and log.nonblocking.has_room(self._room_bytes)

    @property
    def _room_bytes(self) -> int:
        return min(_STATE_BYTES, self.log.config.segment_bytes // 16)

    async def make_room(self) -> None:
        """Do in another thread what the next `append` would wait for; what fails then fails again in `append`."""
        with suppress(OdradekError, OSError):
            await self.in_order(partial(self.log.nonblocking.make_room, self._room_bytes))

    async def append_acknowledged(
        self,
        data: bytearray | memoryview,
        *,
        origin: AppendOrigin,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append a batch after those before it, and return when it may be acknowledged.

        Raises:
            BrokerError: The batch is refused.
            LogError: The log is offline, or its topic was deleted.
        """
        options: dict[str, Any] = {"origin": origin, "transaction_version": transaction_version}
        result = self.append_at_once(data, **options) if self.takes_at_once(data) else None
        if result is None:
            return await self.append_in_order(data, **options)
        await self.synced()
        return result

    def append_in_order(self, data: bytearray | memoryview, **options: Any) -> Awaitable[AppendResult]:
        """Append a batch after the calls before this one, as `in_order` does; `options` are those of `append_at_once`.

        If it does not take long, it is appended in this thread when its turn has come: otherwise one append that had to
        wait would send all after it to other threads, for as long as producers keep sending.
        """
        action = partial(self.log.append_batches, data, flushes=False, **options)
        at_once = partial(self.log.nonblocking.append, data, **options) if self._needs_no_thread(data) else None
        return self.in_order(action, at_once)

    async def synced(self) -> None:
        """Return when everything that was appended by now may be acknowledged.

        Raises:
            LogError: The disk failed.
        """
        unsynced = self.commits.unsynced
        if unsynced is not None:
            await asyncio.shield(unsynced)

    def in_order(self, action: Callable[[], _T], at_once: Callable[[], _T | None] | None = None) -> Awaitable[_T]:
        """Run an action in another thread, after those of earlier calls; then wake the fetches that wait.

        It runs even if nobody waits for the result any more. After the wait, what it appended may be acknowledged.

        Args:
            action: The action.
            at_once: The same for this thread, tried first after a wait; returns None if it did nothing.
        """
        flushes = self.flushes
        if flushes:
            self.commits.begin_write()
        done = asyncio.ensure_future(self._after(self._last, action, at_once, flushes=flushes))
        # Take the error: otherwise asyncio logs it if nobody waits for it.
        done.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._last = done
        return self._acknowledged(done)

    async def _after(
        self,
        before: asyncio.Future[Any] | None,
        action: Callable[[], _T],
        at_once: Callable[[], _T | None] | None,
        *,
        flushes: bool,
    ) -> _T:
        try:
            if before is not None and not before.done():
                await asyncio.wait([before])
                if at_once is not None and (result := at_once()) is not None:
                    return result
            return await asyncio.get_running_loop().run_in_executor(self._executor, action)
        finally:
            if flushes:
                self.commits.end_write()
            self.changed()

    async def _acknowledged(self, done: asyncio.Future[_T]) -> _T:
        result = await asyncio.shield(done)
        await self.synced()
        return result

    # -- waiting

    def changed(self) -> None:
        """Wake the requests that waited for what the log has become, in the next turn of the loop."""
        if len(self._waits) and not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        self._is_waking = False
        left = _WOKEN_AT_ONCE
        for is_committed in (False, True):
            if not self._waits.are_for(is_committed=is_committed):
                continue
            end: LogPlace | None = None
            # If the log was closed, those that waited find out themselves.
            with suppress(OdradekError, OSError):
                end = self.end(is_committed=is_committed)
            for wake in self._waits.take(end, left, is_committed=is_committed):
                left -= 1
                wake()
        if not left:
            self.changed()

    def wait(self, waiter: object, place: LogPlace, size_bytes: int, wake: Wake, *, is_committed: bool) -> None:
        """Call `wake` once the log has grown, or is closed, unless the waiter is forgotten before.

        Args:
            waiter: The one that waits; it waits for one thing at a time.
            place: An earlier end of the log.
            size_bytes: How far it has to grow from there.
            wake: What to call.
            is_committed: Whether the end is the last stable offset.
        """
        until = LogPlace(place.base_offset, place.position + size_bytes)
        self._waits.add(waiter, until, wake, is_committed=is_committed)

    def forget(self, waiter: object) -> None:
        """Remove a waiter: it is not woken any more."""
        self._waits.remove(waiter)

    # -- reading

    @property
    def leader_epoch(self) -> int:
        """The leader epoch."""
        return self.log.leader_epoch

    def end(self, *, is_committed: bool) -> LogPlace:
        """Return where the log ends for readers, or where its last stable offset is.

        Raises:
            LogError: The log is closed.
            UnknownTopicOrPartitionError: The topic was deleted.
        """
        segments = self.log.segments
        end = LogPlace(segments[-1].base_offset, segments[-1].size_bytes)
        if not is_committed and not self.commits.holds:
            return end
        ends = self.commits.ends
        stable = ends.last_stable_offset if is_committed else ends.high_watermark
        if stable >= self.log.log_end_offset:
            return end
        if self._stable is None or self._stable[0] != stable:
            segment = segments[self._search.number_of(segments, stable)]
            self._stable = stable, LogPlace(segment.base_offset, locate_batch(segment, stable, verifies=False)[1])
        return self._stable[1]

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch that an offset was written in, or -1."""
        found = epoch_for_offset(self.log.leader_epochs, offset)
        return -1 if found is None else found

    def check_leader_epoch(self, epoch: int) -> None:
        """Compare the leader epoch that a client knows with the partition's; -1 is not compared.

        Raises:
            ApiError: They differ.
        """
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise ApiError(ErrorCode.fenced_leader_epoch)
        raise ApiError(ErrorCode.unknown_leader_epoch)

    def spans_segments(self, offset: int, end_offset: int) -> bool:
        """Whether the records of a range of offsets are in more than one segment."""
        segments, number_of = self.log.segments, self._search.number_of
        return number_of(segments, offset) < number_of(segments, end_offset - 1)

    def segment_end_offset(self, offset: int, end_offset: int) -> int:
        """Return the end of the segment that holds an offset, or `end_offset` if that comes first."""
        segments = self.log.segments
        following = self._search.number_of(segments, offset) + 1
        return min(segments[following].base_offset, end_offset) if following < len(segments) else end_offset

    def fetch(self, offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool) -> FileRecords | None:
        """Return the part of a log file from an offset on; see `fetch_records`."""
        return fetch_records(self.log, self._search, offset, end_offset, max_bytes, at_least_one=at_least_one)


class Partitions:
    """The partitions by name.

    Args:
        logs: The log directory.
        executor: Runs what takes long.
        syncs: Runs the syncs of appends, which wait for the disk.
    """

    def __init__(self, logs: WritableLogDirectory, executor: ThreadPoolExecutor, syncs: ThreadPoolExecutor) -> None:
        self._syncs = syncs
        self._logs = logs
        self._executor = executor
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[UUID, int], Partition] = {}
        self._unreadable: set[tuple[str, int]] = set()
        self._opening = 0
        self._opens = asyncio.Lock()

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def get(self, topic: str, number: int) -> Partition:
        """Return a partition; its log is opened if it is not yet: see `opened`.

        Raises:
            ApiError: The partition does not exist.
        """
        partition = self._partitions.get((topic, number))
        if partition is not None and not partition.log.is_closed:
            return partition
        if partition is not None:
            del self._partitions[topic, number]
            partition.changed()
        if not self._exists(topic, number):
            raise ApiError(ErrorCode.unknown_topic_or_partition)
        try:
            log = self._logs[topic, number]
        except (UnknownTopicOrPartitionError, TypeError, ValueError):
            raise ApiError(ErrorCode.unknown_topic_or_partition) from None
        except LogError as error:
            raise ApiError(ErrorCode.kafka_storage_error, str(error)) from error
        except (FormatError, OSError) as error:
            # Each request asks again; what the folder's owner has to know is said once.
            if (topic, number) not in self._unreadable:
                self._unreadable.add((topic, number))
                logger(__name__).warning("%s-%d cannot be read: %s", topic, number, error)
            raise
        self._unreadable.discard((topic, number))
        partition = self._partitions[topic, number] = Partition(
            TopicPartition(topic, number), log, self._executor, self._syncs
        )
        return partition

    def _exists(self, topic: str, number: int) -> bool:
        found = self._logs.metadata_image.topics.get(topic)
        return found is not None and number in found.partitions

    def in_use(self, topic: str | UUID, number: int) -> Partition | None:
        """Return a partition by its topic's name or id, if it was used before; else `named` finds it."""
        partition = (
            self._partitions.get((topic, number)) if isinstance(topic, str) else self._by_id.get((topic, number))
        )
        return None if partition is None or partition.log.is_closed else partition

    def named(self, topic: str | None, topic_id: UUID | None, number: int) -> Partition:
        """Return a partition as a request names it: by the topic's id, or by its name if there is no id.

        Raises:
            ApiError: The partition does not exist.
        """
        if topic_id is None:
            return self.get(topic or "", number)
        partition = self._by_id.get((topic_id, number))
        if partition is None or partition.log.is_closed:
            partition = self._by_id[topic_id, number] = self.get(self.topic_name(topic_id), number)
        return partition

    def when_open(
        self, keys: Iterable[tuple[str, int]], action: Callable[[], _T | Awaitable[_T]]
    ) -> _T | Awaitable[_T]:
        """Do something with partitions once their logs are open.

        Args:
            keys: The topics and numbers of the partitions.
            action: The action; what it returns is awaited if it is awaitable.

        Returns:
            What `action` returns, or an awaitable of it.
        """
        closed = [key for key in keys if key not in self._partitions and self._exists(*key)]
        return self._open_first(closed, action) if closed else action()

    async def _open_first(self, keys: Iterable[tuple[str, int]], action: Callable[[], _T | Awaitable[_T]]) -> _T:
        await self._open(keys)
        result = action()
        return await result if isinstance(result, Awaitable) else result

    async def opened(self, topic: str, number: int) -> Partition:
        """Return a partition, whose log is opened in another thread if it is not yet: that may wait for the disk.

        Raises:
            ApiError: The partition does not exist.
        """
        found = self.when_open([(topic, number)], lambda: self.get(topic, number))
        return found if isinstance(found, Partition) else await found

    async def _open(self, keys: Iterable[tuple[str, int]]) -> None:
        self._opening += 1
        try:
            for key in keys:
                # A fair lock: requests that wait open their logs in turns.
                async with self._opens:
                    if key in self._partitions:
                        continue
                    # An error is raised again when the log is used.
                    with suppress(OdradekError, OSError):
                        await asyncio.get_running_loop().run_in_executor(self._executor, self._logs.__getitem__, key)
                        self.get(*key)
        finally:
            self._opening -= 1

    def closed(self, names: Iterable[tuple[str | None, UUID | None, int]]) -> Iterator[tuple[str, int]]:
        """Yield the partitions that are not open yet; names are as for `named`, and unknown ids are skipped."""
        for topic, topic_id, number in names:
            if topic_id is None:
                if (topic, number) not in self._partitions:
                    yield topic or "", number
            elif (topic_id, number) not in self._by_id:
                known = self._logs.metadata_image.topic_by_id(topic_id)
                if known is not None:
                    yield known.name, number

    @property
    def is_opening(self) -> bool:
        """Whether logs are being opened for a request, one by one."""
        return self._opening > 0

    def topic_name(self, topic_id: UUID | None) -> str:
        """Return the name of a topic by its id.

        Raises:
            ApiError: The partition does not exist.
        """
        topic = None if topic_id is None else self._logs.metadata_image.topic_by_id(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.unknown_topic_id)
        return topic.name

    def drop_deleted(self) -> None:
        """Forget the partitions whose topic was deleted, and wake those that wait for them."""
        for key, partition in list(self._partitions.items()):
            if partition.log.is_closed:
                del self._partitions[key]
                partition.changed()
        self._by_id = {key: partition for key, partition in self._by_id.items() if not partition.log.is_closed}
