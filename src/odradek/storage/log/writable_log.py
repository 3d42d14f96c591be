"""A log that is appended to: one partition's records, written as Apache Kafka's leader writes them.

    append(records)        built into batches         \\
    append_batches(bytes)  checked and numbered        >  roll?  producers?  one write  indexes  readers see it  flush?
    append_batches(bytes)  as they are: a replica's   /

It has its segments (`LocalLog`), where they begin for readers (`LogHead`), how much of them is on the disk
(`Durability`), its producers and its leader epochs.
Each of these parts writes its own state, and no other's. Appended records reach the disk with `flush`, with a durable
append, when `flush.messages` or `flush.ms` say so, and when the log is closed. A crash of the program loses no appended
record; a crash of the machine loses what was not flushed. Durable appends that wait for the disk at the same time share
a sync. A failure of the disk takes the log offline: what was not acknowledged may be lost, and only opening the log
again tells.

**Threads.** Any thread may call anything. Appends happen one at a time; reads take no lock. The locks are taken in the
order of `odradek.storage.locks`: CLEANING, FLUSH, LOG. The owner is called without them.

**Signals.** An exception from a signal handler, such as Ctrl-C, may end any call anywhere. The log is then as before or
as after the call, never in between, and can be used further; after an append, `log_end_offset` tells which.

**Forks.** A child process may read what its parent had open, as it was at the fork, but change nothing.

Source in Kafka: `UnifiedLog`, `LocalLog`.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import NamedTuple, Protocol
from weakref import WeakSet

from typing_extensions import Buffer

from odradek.arguments import checked_flag, checked_int, given_text
from odradek.errors import (
    FormatError,
    LogError,
    UnknownTopicOrPartitionError,
)
from odradek.records.append.batching import AppendResult
from odradek.records.append.given import Headers, given_records
from odradek.records.append.validator import MAX_INT64, AppendOrigin
from odradek.records.builder import build_control_batch
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.records.kernels.objects import Record
from odradek.records.timestamps import Time, now_ms
from odradek.storage.config_def import MAX_INT32
from odradek.storage.files import FILES, FileSystem
from odradek.storage.formats.checkpoints import EpochEntry
from odradek.storage.formats.transaction_index import AbortedTransaction
from odradek.storage.locks import Rank, create_lock, run_if_free
from odradek.storage.log.appender import Appender
from odradek.storage.log.cleaning_turn import CleaningTurn
from odradek.storage.log.durability import Durability
from odradek.storage.log.loader import LogLoader
from odradek.storage.log.local_log import LocalLog
from odradek.storage.log.log import Log
from odradek.storage.log.log_disk import LogDisk
from odradek.storage.log.log_head import LogHead
from odradek.storage.log.new_segments import NewSegments
from odradek.storage.log.open_writers import OpenWriters
from odradek.storage.log.recovery import write_transaction_index
from odradek.storage.log.recovery_report import RecoveryReport
from odradek.storage.log.retention import Deletion
from odradek.storage.log.transactions import Transactions, rebuilt_index
from odradek.storage.process import WritingProcess
from odradek.storage.producers.producer_state_manager import (
    PRODUCER_ID_EXPIRATION_MS,
    LastRecord,
    ProducerStateManager,
)
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.segment.segment import Segment
from odradek.storage.topic_config import TopicConfig

_BASE_OFFSET = attrgetter("base_offset")


class LogOwner(Protocol):
    """The log directory that a log belongs to. It is called without any lock of the log."""

    def rolled(self, log: WritableLog) -> None:
        """Note that a segment was rolled that is not on the disk yet."""

    def start_moved(self, log: WritableLog) -> None:
        """Bring a new log start offset to the disk."""


class LogOffsets(NamedTuple):
    """What the checkpoints of a log directory say of a log."""

    recovery_point: int
    first_base_offset: int
    log_start_offset: int
    high_watermark: int


class WritableLog(Log):
    """One topic-partition, open for appending and reading; a context manager that closes it.

    The caller holds the lock of the log directory.

    Args:
        path: Its folder.
        config: The topic's settings.
        is_clean: Whether the last program that wrote it closed it in order.
        recovery_point: The checkpointed recovery point.
        log_start_offset: The checkpointed log start offset.
        leader_epoch: The leader epoch that batches are written in; at least the last one in the log.
        producer_id_expiration_ms: `producer.id.expiration.ms`.
        opened: The register of open segments, shared by the logs of a log directory.
        writers: The register of logs with files open for appending, shared as well.
        files: The file system to write through.
        clock: Returns the time in ms.
        owner: The log directory, which is told of changes.
        flushes_late: Whether the owner flushes rolled segments some time later; otherwise a roll flushes them.
        was_compacted: Whether the log was compacted before.

    Attributes:
        leader_epoch: The leader epoch that batches are written in.
        report: What had to be done when the log was opened.
        cleaning: Whose turn it is to work on its sealed segments.
        flushes_late: As given; it may be changed.

    Raises:
        LogOfflineError: The disk failed.
        CheckpointError: `leader-epoch-checkpoint` is not of the form that Kafka reads.
    """

    _is_only_writer = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        config: TopicConfig | None = None,
        is_clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        leader_epoch: int = 0,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        opened: OpenSegments | None = None,
        writers: OpenWriters | None = None,
        files: FileSystem = FILES,
        clock: Callable[[], int] = now_ms,
        owner: LogOwner | None = None,
        flushes_late: bool = False,
        was_compacted: bool = False,
    ) -> None:
        super().__init__(path)
        self._process = WritingProcess(self.path)
        self._flush_lock = create_lock(Rank.FLUSH)
        self._lock = create_lock(Rank.LOG)
        self._opened = OpenSegments() if opened is None else opened
        self._writers = OpenWriters() if writers is None else writers
        self._disk = LogDisk(self.path, files, self._free_descriptors)
        self._clock = clock
        self._owner = owner
        self._is_deleted = False
        self.cleaning = CleaningTurn()
        self._config = config or TopicConfig()
        loaded = LogLoader(
            self.path,
            self._opened,
            is_clean=is_clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            index_interval_bytes=self._config.index_interval_bytes,
            producer_id_expiration_ms=producer_id_expiration_ms,
            files=self._disk,
            clock=clock,
        ).load()
        self.report: RecoveryReport = loaded.report
        self._epochs = loaded.epochs
        latest = loaded.epochs.latest_epoch
        self.leader_epoch = leader_epoch if latest is None else max(leader_epoch, latest)
        is_new = latest is None and loaded.log_end_offset == loaded.log_start_offset
        is_dirty = not is_clean or is_new or not loaded.segments
        self._durability = Durability(self._disk, loaded.recovery_point, is_dirty=is_dirty)
        self._transactions = Transactions(self.path)
        self._checked: WeakSet[Segment] = WeakSet()
        self._last_flush_ms = clock()
        new_segments = NewSegments(self.path, self._config, opened=self._opened, disk=self._disk, clock=clock)
        self._local = LocalLog(
            self.path,
            loaded.segments[:-1],
            new_segments.resume(loaded.segments[-1])
            if loaded.segments
            else new_segments.create(loaded.log_start_offset),
            producers=loaded.producers,
            disk=self._disk,
            durability=self._durability,
            opened=self._opened,
            new_segments=new_segments,
            writers=self._writers,
            lock=self._lock,
            clock=clock,
            flushes_late=flushes_late and owner is not None,
        )
        self._head = LogHead(
            loaded.log_start_offset, local=self._local, epochs=self._epochs, durability=self._durability
        )
        self._appender = Appender(self._local, self._epochs, self._config, disk=self._disk, clock=clock)
        self._was_compacted = was_compacted or self._config.is_compacted
        if is_new:
            self._epochs.assign(self.leader_epoch, loaded.log_start_offset)

    # -- state

    @property
    def is_within_call(self) -> bool:
        """Whether this thread is in the middle of changing this log: a signal handler interrupted the change."""
        return self._lock._is_owned() or self._flush_lock._is_owned()

    def _check_entry(self) -> None:
        """Raise in a fork, or if this thread is in the middle of a change; to be called before a lock is taken."""
        if os.getpid() != self._process.pid or self._lock._is_owned() or self._flush_lock._is_owned():
            self._process.check()
            raise LogError(f"{self.path}: a change was asked for in the middle of another one, by a signal's handler?")

    def _check_turn(self) -> None:
        """Raise if this thread is compacting this log."""
        if self.cleaning.lock._is_owned():
            raise LogError(f"{self.path}: a change was asked for in the middle of its compaction")

    def _check_usable(self) -> None:
        """Raise if nothing can be changed; to be called under the LOG lock, before a change."""
        if self._is_closed or self._disk.failure is not None:
            self._disk.check()
            self._check_open()
        # A change was interrupted.
        if self._local.changes.unfinished is not None or self._appender.in_parts.unfinished is not None:
            self._settle()

    def _settle(self) -> None:
        self._local.changes.settle()
        self._appender.in_parts.settle()

    def _settled(self) -> LocalLog:
        """Return the segments, as before or after an interrupted change; for readers.

        An exception may have interrupted the settling of the change too. If the lock is taken, the thread that holds it
        settles the change.
        """
        local = self._local
        is_unsettled = local.changes.unfinished is not None or self._appender.in_parts.unfinished is not None
        if is_unsettled and not self._is_closed and self._process.is_this:
            # A disk that fails takes the log offline; the rest can still be read.
            with suppress(LogError):
                run_if_free(self._lock, self._settle)
        return local

    def _check_open(self) -> None:
        if self._is_deleted or self._is_closed:
            self._check_exists()
            super()._check_open()

    def _check_exists(self) -> None:
        if self._is_deleted:
            raise UnknownTopicOrPartitionError(*self.topic_partition, path=self.path.parent)

    def _free_descriptors(self) -> None:
        self._writers.park_all(but=self._lock)
        self._opened.close_all()

    @property
    def is_offline(self) -> bool:
        """Whether the disk has failed: nothing is written any more."""
        return self._disk.failure is not None

    @property
    def is_dirty(self) -> bool:
        """Whether it was changed since it was last closed in order: then the next opening recovers it."""
        return self._durability.is_dirty

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or its topic deleted."""
        return self._is_closed

    @property
    def producers(self) -> ProducerStateManager:
        """The log's producers; read only."""
        return self._local.producers

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, by base offset.

        Raises:
            UnknownTopicOrPartitionError: The topic was deleted; a new topic of the same name has another log.
            LogError: The log is closed.
        """
        self._check_open()
        return self._settled().segments

    @property
    def leader_epochs(self) -> list[EpochEntry]:
        """The leader epochs and where they begin."""
        self._check_open()
        return self._epochs.entries

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers can get: records below it were deleted."""
        self._check_open()
        return self._head.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        self._check_open()
        return self._settled().log_end_offset

    @property
    def high_watermark(self) -> int:
        """The end of what readers get: the log end offset, since there are no replicas to wait for."""
        return self.log_end_offset

    @property
    def recovery_point(self) -> int:
        """All segments below it are on the disk, with their indexes, so recovery skips them."""
        self._check_open()
        return self._durability.recovery_point

    @property
    def offsets_to_checkpoint(self) -> LogOffsets:
        """What the checkpoints say of the log, also after it was closed."""
        local = self._settled()
        return LogOffsets(
            self._durability.recovery_point,
            local.segments[0].base_offset,
            self._head.log_start_offset,
            local.log_end_offset,
        )

    @property
    def last_stable_offset(self) -> int:
        """The end of what `read_committed` returns: where the oldest open transaction begins, or the log end offset."""
        end = self.log_end_offset
        first = self.producers.first_unstable_offset
        # Records of an open transaction may have been deleted; Kafka then uses the log start offset.
        return end if first is None else max(min(first, end), self.log_start_offset)

    @property
    def damage(self) -> list[FormatError]:
        """What is wrong at the ends of the sealed segments; damage that was found at opening is in `report`."""
        ends = self._retried(lambda: [segment.end().damage for segment in self.segments])
        return [damage for damage in ends if damage is not None]

    def _aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        found = self._retried(lambda: self._transactions.aborted(self.segments, start_offset, end_offset))
        if not self._is_closed and self._process.is_this:
            self._check_transaction_indexes(start_offset, end_offset)
        return found

    def unread_transactions_bytes(self, start_offset: int, end_offset: int) -> int:
        """Return how much `aborted_transactions` has to go through that was not looked at before."""
        return self._retried(lambda: self._transactions.unread_bytes(self.segments, start_offset, end_offset))

    def _check_transaction_indexes(self, start_offset: int, end_offset: int) -> None:
        """Check the indexes of sealed segments against their batches, once for each, and rewrite those that are wrong.

        No answer of this class relies on them, but those of a Kafka that takes over do.
        """
        segments = self.segments
        first = max(0, bisect_right(segments, start_offset, key=_BASE_OFFSET) - 1)
        for number in range(first, len(segments) - 1):
            segment = segments[number]
            if segment.base_offset >= end_offset:
                break
            if segment in self._checked:
                continue
            known = self._transactions.of_segment(segments, number)
            with self._lock:
                if not self._is_closed and segment in self.segments and not self.is_offline:
                    rebuilt = rebuilt_index(segment, known, was_compacted=self._was_compacted)
                    if rebuilt is not None:
                        write_transaction_index(segment.transaction_index_path, *rebuilt, self.report, self._disk)
            self._checked.add(segment)

    def may_have_gaps(self) -> bool:
        """Whether offsets may be missing without a loss: the log is compacted, or was."""
        return self._was_compacted or self.config.is_compacted

    def last_records(self) -> Mapping[int, LastRecord]:
        """Return the last record of each active producer, for the cleaner."""
        self._check_entry()
        with self._lock:
            return self.producers.last_records()

    def expire_producers(self) -> None:
        """Forget the producers that have been silent for `producer.id.expiration.ms`."""
        self._check_entry()
        with self._lock:
            if not self._is_closed and not self.is_offline:
                self._check_usable()
                self.producers.remove_expired(self._clock())

    def refresh(self) -> None:
        """Wait for a change of the segments that is in progress; no other process changes the folder."""
        self._check_open()
        if self._process.is_this:
            with self._lock:
                pass

    # -- settings

    @property
    def config(self) -> TopicConfig:
        """The topic's settings; they may be replaced."""
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._check_entry()
        with self._lock:
            if not self._is_closed and not self.is_offline:
                # A change that began under the old settings is completed under them.
                self._settle()
            self._local.configure(config)
            self._appender.configure(config)
            self._was_compacted = self._was_compacted or config.is_compacted
            self._config = config

    @property
    def flushes_late(self) -> bool:
        """Whether the owner flushes rolled segments some time later; otherwise a roll flushes them."""
        return self._local.flushes_late

    @flushes_late.setter
    def flushes_late(self, flushes_late: bool) -> None:
        self._local.flushes_late = flushes_late and self._owner is not None

    # -- appending

    def append(
        self,
        records: Record | Iterable[Record] | None = None,
        *,
        key: Buffer | None = None,
        value: Buffer | None = None,
        headers: Headers = (),
        timestamp: Time | None = None,
        durable: bool = False,
    ) -> int:
        """Append records, in batches of at most `max.message.bytes`, compressed as `compression.type` says.

        Args:
            records: The records, or one. A record without a timestamp gets the current time. Their offsets are ignored.
                The iterable is read to its end first, while no lock is held.
            key: Instead of records, the parts of one record: its key,
            value: its value,
            headers: its headers,
            timestamp: and its timestamp.
            durable: Whether to return only when these records, and all before them, are on the disk.

        Returns:
            The offset of the first record.

        Raises:
            InvalidRecordError: There is no record, or the topic does not accept one; nothing was appended.
            InvalidTimestampError: A timestamp is too far from the clock; nothing was appended.
            RecordTooLargeError: A record does not fit into `max.message.bytes`; nothing was appended.
            LogError: The log is closed, or this is a fork of the process that opened it.
            LogOfflineError: The disk failed, now or before; all, none or the first ones of the records may have been
                appended.
            TypeError: Something is not a record, or nothing was given.
        """
        if durable is not False:
            checked_flag("durable", durable)
        self._check_entry()
        appender = self._appender
        builder = appender.builder
        given = given_records(records, key, value, headers, timestamp)
        built = None if builder.stamps else builder.build(given, self._clock())
        with self._lock:
            self._check_usable()
            if built is None:
                # The append times must increase as the offsets do.
                built = builder.build(given, self._clock())
            first_offset, end_offset, rolled = appender.append_built(built, self.leader_epoch)
        self._after_append(end_offset, rolled, durable)
        return first_offset

    def append_batches(
        self,
        data: Buffer,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        durable: bool = False,
        transaction_version: int = 0,
        supports_epoch_bump: bool = False,
    ) -> AppendResult:
        """Append batches that are encoded already.

        Args:
            data: From a client or a coordinator: one v2 batch, a v0 or v1 wrapper, or plain v0 or v1 messages. They are
                checked, get their offsets, and are rewritten if the topic requires it; in place if this memory is
                writable. From a replica: any number of batches, which keep their offsets and are written unchanged.
            origin: Who appends.
            durable: Whether to return only when these records, and all before them, are on the disk.
            transaction_version: `transaction.version` of the coordinator that writes a marker.
            supports_epoch_bump: Whether the producer's transaction was verified under `transaction.version` 2.

        Raises:
            BrokerError: With Kafka's code for what is wrong; nothing was appended.
            TypeError: `origin` is no `AppendOrigin`, or `transaction_version` no int.
            LogError: The log is closed, or this is a fork of the process that opened it.
            LogOfflineError: The disk failed, now or before; the batches may or may not have been appended.
        """
        self._check_entry()
        if not isinstance(origin, AppendOrigin):
            raise TypeError(f"origin must be an AppendOrigin, not {given_text(origin)}")
        if durable is not False:
            checked_flag("durable", durable)
        if supports_epoch_bump is not False:
            checked_flag("supports_epoch_bump", supports_epoch_bump)
        version = checked_int("transaction_version", transaction_version)
        with self._lock:
            self._check_usable()
            appended = self._appender.append_encoded(
                data,
                origin,
                self.leader_epoch,
                transaction_version=version,
                supports_epoch_bump=supports_epoch_bump,
            )
        self._after_append(appended.end_offset, appended.rolled, durable)
        return AppendResult(appended.first_offset, appended.last_offset, appended.append_time_ms, appended.is_duplicate)

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int = 0,
        durable: bool = False,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append the marker that commits or aborts a producer's transaction.

        Raises:
            BrokerError: The producer or the coordinator has been replaced.
            LogOfflineError: The disk failed, now or before.
        """
        checked_int("producer_id", producer_id)
        checked_int("producer_epoch", producer_epoch, -(1 << 15), (1 << 15) - 1)
        checked_int("coordinator_epoch", coordinator_epoch, -(1 << 31), MAX_INT32)
        kind = ControlRecordType.COMMIT if checked_flag("commit", commit) else ControlRecordType.ABORT
        batch = build_control_batch(
            EndTransactionMarker(kind, coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=self._clock(),
        )
        return self.append_batches(
            batch, origin=AppendOrigin.COORDINATOR, durable=durable, transaction_version=transaction_version
        )

    def _after_append(self, end_offset: int, rolled: bool, durable: bool) -> None:
        """Finish an append without the lock: tell the owner, and flush what the settings require."""
        self._wakeup.wake()
        if rolled:
            self._after_roll()
        config = self._config
        if (config.flush_messages != MAX_INT64 or config.flush_ms != MAX_INT64) and self._is_flush_due(end_offset):
            self.flush()
        elif durable:
            self._make_durable(end_offset)

    def _is_flush_due(self, end_offset: int) -> bool:
        config = self._config
        return (
            end_offset - self._durability.recovery_point >= config.flush_messages
            or self._clock() - self._last_flush_ms >= config.flush_ms
        )

    # -- rolling

    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        self._check_entry()
        with self._lock:
            self._check_usable()
            if not self._local.active.size_bytes:
                return
            self._local.about_to_write()
            self._local.roll(self._local.log_end_offset)
        self._after_roll()

    def _after_roll(self) -> None:
        if self.flushes_late and self._owner is not None:
            self._owner.rolled(self)

    # -- bringing to the disk

    def flush_if_due(self) -> None:
        """Flush if `flush.ms` has passed.

        Raises:
            LogOfflineError: The disk failed now.
        """
        if not self.is_offline and self._clock() - self._last_flush_ms >= self.config.flush_ms:
            self.flush()

    def flush_sealed(self) -> None:
        """Flush all segments but the active one, while other threads append; do nothing if the log is closed.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        self._check_entry()
        with self._flush_lock:
            with self._lock:
                if self._is_closed:
                    return
                self._check_usable()
                segments = self.segments
            if self._durability.unflushed(segments):
                self._durability.sync_sealed(segments)

    def flush(self) -> None:
        """Return when all that was appended is on the disk; other threads may append meanwhile.

        Raises:
            LogError: The log is closed, or this is a fork of the process that opened it.
            LogOfflineError: The disk failed, now or before; what was not flushed before may be lost.
        """
        self._check_entry()
        with self._flush_lock:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            self._check_usable()
            segments, end_offset = self.segments, self.log_end_offset
            self._last_flush_ms = self._clock()
        if end_offset != self._durability.recovery_point or not self._disk.are_names_synced:
            self._durability.sync(segments, end_offset, indexes=True)

    def _make_durable(self, end_offset: int) -> None:
        """Return when the records below an offset are on the disk; their indexes may not be: recovery makes them again.

        Other threads may append meanwhile. The first of the threads that wait here for their turn syncs for all of
        them.

        Raises:
            LogOfflineError: The disk failed, now or before; what was not flushed before may be lost.
        """
        # No other thread may delete, compact or close what is being synced.
        with self._flush_lock:
            if self._durability.durable_end >= end_offset:
                return
            with self._lock:
                self._check_usable()
                segments, covered = self.segments, self.log_end_offset
            self._durability.sync(segments, covered, indexes=False)

    # -- removing and replacing

    def delete_records(self, before_offset: int | None = None) -> int:
        """Move the log start offset up; segments below it are deleted by the next retention.

        Args:
            before_offset: The new log start offset; the log end offset if None.

        Returns:
            The log start offset, which never decreases.

        Raises:
            OffsetOutOfRangeError: It is negative, or above the log end offset.
            TypeError: It is no int.
            LogError: The log is closed, or this is a fork of the process that opened it.
        """
        self._check_entry()
        with self._lock:
            self._check_usable()
            self._head.delete_records(before_offset)
        self._wakeup.wake()
        if self._owner is not None:
            self._owner.start_moved(self)
        return self.log_start_offset

    def delete_old_segments(self) -> list[Deletion]:
        """Delete the segments that are due; return which, and why.

        Raises:
            LogError: The log is closed, or this is a fork of the process that opened it.
            LogOfflineError: The disk failed, now or before.
        """
        self._check_entry()
        with self._lock:
            self._check_usable()
            found = self._head.retire(self._config, self._clock())
        if not found:
            return []
        self._wakeup.wake()
        if self._owner is not None:
            # Only some of the renames may reach the disk: the rest of the deleted head must not reappear.
            self._owner.start_moved(self)
        self._check_turn()
        with self.cleaning.asked():
            self.cleaning.give_way()
            with self._flush_lock, self._lock:
                self._check_usable()
                self._head.remove_segments(self._clock() + self._config.file_delete_delay_ms)
        return found

    def remove_deleted_files(self) -> None:
        """Unlink the files of deleted segments whose `file.delete.delay.ms` has passed."""
        self._check_entry()
        with self._lock:
            if len(self._local.deleted) and not self.is_offline and not self._is_closed:
                self._local.deleted.run(self._clock())

    def replace_segments(self, new_base_offset: int, old: Sequence[Segment]) -> None:
        """Replace segments by the one whose `.cleaned` files are complete; for the cleaner.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        self._check_entry()
        with self._flush_lock:
            # A power cut must not lose the markers by which the cleaner decided what to leave out.
            self._flush()
            with self._lock:
                self._check_usable()
                if not all(segment in self.segments[:-1] for segment in old):
                    raise LogError(f"{self.path}: segments that were cleaned are not there any more")
                self._durability.is_dirty = True
                self._was_compacted = True
                self._local.replace(new_base_offset, old, self._clock() + self.config.file_delete_delay_ms)

    # -- closing

    def discard(self, *, is_deleted: bool = False) -> None:
        """Close the files as they are, as a crash would, or because the log is being deleted.

        Args:
            is_deleted: Whether its topic is gone, so that it must not be read any more either.

        Raises:
            LogError: This is a fork of the process that opened it.
        """
        self._check_entry()
        self._check_turn()
        with self.cleaning.asked():
            self.cleaning.give_way()
            with self._flush_lock, self._lock:
                self._is_closed = True
                self._is_deleted = self._is_deleted or is_deleted
                self._local.close()
        self._wakeup.wake()

    def close(self) -> None:
        """Flush everything, write the producers' state, cut the files to their used size, and close them.

        A log that is offline, or that a fork inherited, is left as it is. If an exception ended it, it can be called
        again, and continues where it stopped.

        Raises:
            LogOfflineError: The disk failed now.
        """
        if not self._process.is_this or self._is_closed:
            return
        self._check_entry()
        self._check_turn()
        with self.cleaning.asked():
            self.cleaning.give_way()
            with self._flush_lock, self._lock:
                if self._is_closed:
                    return
                try:
                    if not self.is_offline:
                        self._close_in_order()
                finally:
                    # Otherwise it was interrupted: the next `close` completes it.
                    if self.is_offline:
                        self._is_closed = True
                        self._local.close()
                self._is_closed = True
                self._local.close()
        self._wakeup.wake()

    def _close_in_order(self) -> None:
        self._settle()
        if not self._durability.is_dirty:
            return
        self._head.follow()
        self.producers.take_snapshot()
        self._local.seal_active(is_synced=False)
        self._durability.sync(self.segments, self.log_end_offset, indexes=True)
        self._durability.is_dirty = False
