"""The partitions as the broker uses them: appended to, fetched from, and waited for.

    append  -> in the loop's thread, if it takes no longer than a request may   -> wakes the fetches that wait
            -> in another thread: compressed, large, or to be flushed; in order

A partition belongs to the event loop's thread; its log is shared with other threads.

Source in Kafka: `ReplicaManager`, `Partition`, `DelayedOperationPurgatory`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError
from odradek.errors import LogError, OdradekError, UnknownTopicOrPartitionError
from odradek.records.append.batching import AppendResult
from odradek.records.append.validator import AppendOrigin
from odradek.records.header import CODEC_MASK
from odradek.storage.config_def import MAX_INT64
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.log.fetch import fetch_records
from odradek.storage.log.segment_search import SegmentSearch
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.names import TopicPartition
from odradek.storage.segment.file_records import FileRecords
from odradek.storage.topic_config import TopicConfig

_T = TypeVar("_T")

_QUICK_BYTES = (1 << 20) + (1 << 16)
"""A batch of the default `max.message.bytes` takes half a millisecond, as long as handing it to another thread."""
_OPENED_AT_ONCE = 4
"""So many logs may be opened in one turn of the loop, while other requests wait: a millisecond each."""
_MAGIC_POSITION = 16
_ATTRIBUTES_POSITION = 22


class Partition:
    """A partition of the broker.

    Attributes:
        topic_partition: Its name.
        log: Its log.
    """

    def __init__(self, topic_partition: TopicPartition, log: WritableLog, executor: ThreadPoolExecutor) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self._executor = executor
        self._search = SegmentSearch()
        self._waiting: dict[object, Callable[[], None]] = {}
        self._last: asyncio.Future[Any] | None = None
        # What follows from the settings `_config`, kept until they change.
        self._config: TopicConfig | None = None
        self._flushes = self._keeps_codecs = False

    # -- appending

    def is_quick(self, data: bytearray | memoryview) -> bool:
        """Whether an append of a batch takes no longer than a request may keep the others waiting."""
        return (
            _ATTRIBUTES_POSITION < len(data) < _QUICK_BYTES
            and self.is_prompt
            and self._keeps_codecs
            and data[_MAGIC_POSITION] == 2
            and not data[_ATTRIBUTES_POSITION] & CODEC_MASK
        )

    @property
    def is_prompt(self) -> bool:
        """Whether an append need not wait: for another one, or for the disk."""
        config = self.log.config
        if config is not self._config:
            self._flushes = config.flush_messages != MAX_INT64 or config.flush_ms != MAX_INT64
            self._keeps_codecs = config.compression_type in ("producer", "uncompressed")
            self._config = config
        return not self._flushes and (self._last is None or self._last.done())

    def append(
        self,
        data: bytearray | memoryview,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        supports_epoch_bump: bool = False,
    ) -> AppendResult:
        """Append a batch, and wake the fetches that wait for it.

        Raises:
            BrokerError: The batch is refused.
            LogError: The log is offline, or its topic was deleted.
        """
        result = self.log.append_batches(data, origin=origin, supports_epoch_bump=supports_epoch_bump)
        self.changed()
        return result

    def in_order(self, action: Callable[[], _T]) -> Awaitable[_T]:
        """Do something in another thread after the calls before this one; then wake the fetches that wait.

        It is done even if nobody waits for the result any more.
        """
        done = asyncio.ensure_future(self._after(self._last, action))
        # Take the error: otherwise asyncio logs it if nobody waits for it.
        done.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._last = done
        return asyncio.shield(done)

    async def _after(self, before: asyncio.Future[Any] | None, action: Callable[[], _T]) -> _T:
        try:
            if before is not None:
                await asyncio.wait([before])
            return await asyncio.get_running_loop().run_in_executor(self._executor, action)
        finally:
            self.changed()

    # -- waiting

    def changed(self) -> None:
        """Tell those that wait that the log has changed."""
        if self._waiting:
            for wake in list(self._waiting.values()):
                wake()

    def wait(self, waiter: object, wake: Callable[[], None]) -> None:
        """Call `wake` whenever the log changes, until `forget`."""
        self._waiting[waiter] = wake

    def forget(self, waiter: object) -> None:
        """Do not call a waiter any more."""
        self._waiting.pop(waiter, None)

    # -- reading

    @property
    def leader_epoch(self) -> int:
        """The leader epoch."""
        return self.log.leader_epoch

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch that an offset was written in, or -1."""
        found = -1
        for entry in self.log.leader_epochs:
            if entry.start_offset > offset:
                break
            found = entry.epoch
        return found

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
        """Whether the records from an offset on, up to another one, are in more than one segment."""
        segments, number_of = self.log.segments, self._search.number_of
        return number_of(segments, offset) < number_of(segments, end_offset - 1)

    def segment_end_offset(self, offset: int, end_offset: int) -> int:
        """Return where the segment that holds an offset ends, or another offset that comes first."""
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
    """

    def __init__(self, logs: WritableLogDirectory, executor: ThreadPoolExecutor) -> None:
        self._logs = logs
        self._executor = executor
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[UUID, int], Partition] = {}
        self._opened_now = 0
        self._opening = 0
        self._opens = asyncio.Lock()

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def get(self, topic: str, number: int) -> Partition:
        """Return a partition; its log is opened if it is not yet.

        Raises:
            ApiError: There is none.
        """
        partition = self._partitions.get((topic, number))
        if partition is not None and not partition.log.is_closed:
            return partition
        if partition is not None:
            del self._partitions[topic, number]
            partition.changed()
        try:
            log = self._logs[topic, number]
        except (UnknownTopicOrPartitionError, TypeError, ValueError):
            raise ApiError(ErrorCode.unknown_topic_or_partition) from None
        except LogError as error:
            raise ApiError(ErrorCode.kafka_storage_error, str(error)) from error
        partition = self._partitions[topic, number] = Partition(TopicPartition(topic, number), log, self._executor)
        return partition

    def in_use(self, topic: str | UUID, number: int) -> Partition | None:
        """Return a partition by its topic's name or id, if it was used before; else `named` finds it."""
        partition = (
            self._partitions.get((topic, number)) if isinstance(topic, str) else self._by_id.get((topic, number))
        )
        return None if partition is None or partition.log.is_closed else partition

    def named(self, topic: str | None, topic_id: UUID | None, number: int) -> Partition:
        """Return a partition as a request names it: by the topic's id, or by its name if there is no id.

        Raises:
            ApiError: There is none.
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
        """Do something with partitions; if many logs are to be opened, others have their turn in between.

        Requests that want logs opened take turns, too: however many there are, one log is opened for them in a turn of
        the loop.

        Args:
            keys: The topics and numbers of the partitions.
            action: What to do, and to wait for.

        Returns:
            What `action` returns, or what waits for it.
        """
        closed = [key for key in keys if key not in self._partitions]
        if not closed:
            return action()
        if self._opened_now + len(closed) > _OPENED_AT_ONCE:
            return self._open_first(closed, action)
        if not self._opened_now:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._opened_now += len(closed)
        return action()

    def _next_turn(self) -> None:
        self._opened_now = 0

    async def _open_first(self, keys: Iterable[tuple[str, int]], action: Callable[[], _T | Awaitable[_T]]) -> _T:
        self._opening += 1
        try:
            for key in keys:
                # A fair lock: requests that wait open their logs in turns.
                async with self._opens:
                    if key in self._partitions:
                        continue
                    # An error is raised again when the log is used.
                    with suppress(OdradekError, OSError):
                        self.get(*key)
                    await asyncio.sleep(0)
        finally:
            self._opening -= 1
        result = action()
        return await result if isinstance(result, Awaitable) else result

    def closed(self, names: Iterable[tuple[str | None, UUID | None, int]]) -> Iterator[tuple[str, int]]:
        """Yield the partitions that are not open yet; names are as for `named`, and unknown ids are left out."""
        for topic, topic_id, number in names:
            if topic_id is None:
                if (topic, number) not in self._partitions:
                    yield topic or "", number
            elif (topic_id, number) not in self._by_id:
                with suppress(ApiError):
                    yield self.topic_name(topic_id), number

    @property
    def is_opening(self) -> bool:
        """Whether logs are being opened for a request, one in each turn of the loop."""
        return self._opening > 0

    def topic_name(self, topic_id: UUID | None) -> str:
        """Return the name of a topic by its id.

        Raises:
            ApiError: There is none.
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
