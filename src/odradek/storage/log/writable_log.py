"""A log that is appended to: one partition's records, written as Apache Kafka's leader writes them.

    append(records)        built into batches         \\
    append_batches(bytes)  checked and numbered        >  roll?  producers?  one write  indexes  readers see it  flush?
    append_batches(bytes)  as they are: a replica's   /

It has its segments (`LocalLog`), where they begin for readers (`LogHead`), how much of them is on the disk
(`Durability`), its producers and its leader epochs. Each of these parts keeps a state of its own.

Appended records reach the disk with `flush`, with a durable append, when `flush.messages` or `flush.ms` say so, when
their segment is full, and when the log is closed. A crash of the program loses no appended record; a crash of the
machine loses what was not flushed. Durable appends that wait for the disk at the same time share a sync. A failure of
the disk takes the log offline: what was not acknowledged may be lost, and only opening the log again tells.

**Threads.** Any thread may call anything. Appends happen one at a time; reads take no lock. The locks are taken in the
order of `odradek.storage.locks`: CLEANING, FLUSH, LOG. The owner is called without them.

**Signals.** An exception from a signal handler, such as Ctrl-C, may end any call anywhere. The log is then as before or
as after the call, never in between, and can be used further; after an append, `log_end_offset` tells which.

**Forks.** A child process may read what its parent had open, as it was at the fork, but change nothing.

Source in Kafka: `UnifiedLog`, `LocalLog`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from odradek.arguments import checked_flag, checked_int, given_text
from odradek.buffers import Buffer
from odradek.errors import FormatError, LogError
from odradek.records.append.batching import AppendResult
from odradek.records.append.given import Headers, given_records
from odradek.records.append.validator import AppendOrigin
from odradek.records.kernels.objects import Record
from odradek.records.timestamps import Time
from odradek.storage.formats.checkpoints import EpochEntry
from odradek.storage.formats.transaction_index import AbortedTransaction
from odradek.storage.log.appender import transaction_marker
from odradek.storage.log.log import Log
from odradek.storage.log.log_options import LogOptions
from odradek.storage.log.log_parts import LogParts
from odradek.storage.log.nonblocking_appends import NonblockingAppends
from odradek.storage.log.recovery_report import RecoveryReport
from odradek.storage.log.replaced_files import retried
from odradek.storage.log.shutdown import Shutdown
from odradek.storage.log.transactions import Transactions
from odradek.storage.log.upkeep import TransactionIndexRepair, Upkeep
from odradek.storage.names import TopicPartition
from odradek.storage.producers.producer_state_manager import LastRecord
from odradek.storage.segment.segment import Segment
from odradek.storage.topic_config import TopicConfig


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
        options: What it is opened with.
        owner: The log directory, which is notified of changes.
        topic_partition: The topic-partition; None to take it from the name of the folder.

    Attributes:
        leader_epoch: The leader epoch that batches are written in.
        report: What had to be done when the log was opened.
        cleaning: Whose turn it is to work on its sealed segments.
        nonblocking: The appends that never wait.
        flushing: How its records reach the disk.
        upkeep: Retention and the like.
        producers: The log's producers; read only.
        guard: Whether a thread may change it now.
        durability: How much of it is on the disk.

    Raises:
        LogOfflineError: The disk failed.
        CheckpointError: `leader-epoch-checkpoint` is not of the form that Kafka reads.
    """

    _is_only_writer = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: LogOptions | None = None,
        *,
        owner: LogOwner | None = None,
        topic_partition: TopicPartition | None = None,
    ) -> None:
        super().__init__(path, topic_partition)
        options = options or LogOptions()
        announce = partial(options.pending.add, self.topic_partition)
        parts = self._parts = LogParts(self.path, self._state, options, announce)
        self.guard = parts.guard
        self.report: RecoveryReport = parts.report
        self.durability = parts.durability
        self.flushing = parts.flushing
        self.cleaning = parts.guard.cleaning
        self.producers = parts.local.producers
        self.leader_epoch = parts.appender.leader_epoch
        self.nonblocking = NonblockingAppends(parts, self._wakeup, self.roll)
        self.upkeep = Upkeep(parts, self._start_moved)
        self._local = parts.local
        self._head = parts.head
        self._appender = parts.appender
        self._shutdown = Shutdown(parts)
        self._clock = parts.clock
        self._owner = owner
        self._transactions = Transactions(self.path)
        self._index_repair = TransactionIndexRepair(parts, self._transactions)

    # -- state

    @property
    def is_offline(self) -> bool:
        """Whether the disk has failed: nothing is written any more."""
        return self.guard.disk.failure is not None

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or its topic deleted."""
        return self._state.is_closed

    @property
    def has_pending(self) -> bool:
        """Whether the maintenance has to look at the log each second: for a flush, files to unlink, or a full disk."""
        if self.is_closed:
            return False
        return self.flushing.has_interval or self.upkeep.has_deleted_files or self.guard.disk.is_full

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, by base offset.

        Raises:
            UnknownTopicOrPartitionError: The topic was deleted; a new topic of the same name has another log.
            LogError: The log is closed.
        """
        self.guard.check_readable()
        return self._local.segments

    @property
    def leader_epochs(self) -> list[EpochEntry]:
        """The leader epochs and where they begin."""
        self._state.check_open()
        return self._appender.epochs.entries

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers can get: records below it were deleted."""
        self._state.check_open()
        return self._head.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        self.guard.check_readable()
        return self._local.log_end_offset

    @property
    def high_watermark(self) -> int:
        """The end of what readers get: the log end offset, since there are no replicas to wait for."""
        return self.log_end_offset

    @property
    def recovery_point(self) -> int:
        """All segments below it are on the disk, with their indexes, so recovery skips them."""
        self._state.check_open()
        return self.durability.recovery_point

    @property
    def offsets_to_checkpoint(self) -> LogOffsets:
        """What the checkpoints say of the log, also after it was closed."""
        self.guard.settle_if_free()
        return LogOffsets(
            self.durability.recovery_point,
            self._local.segments[0].base_offset,
            self._head.log_start_offset,
            self._local.log_end_offset,
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
        ends = retried(self, lambda: [segment.end().damage for segment in self.segments])
        return [damage for damage in ends if damage is not None]

    def _aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        found = retried(self, lambda: self._transactions.aborted(self.segments, start_offset, end_offset))
        if self.guard.is_owned:
            self._index_repair.check(start_offset, end_offset)
        return found

    def unread_transactions_bytes(self, start_offset: int, end_offset: int) -> int:
        """Return how much `aborted_transactions` has to go through that was not looked at before."""
        return retried(self, lambda: self._transactions.unread_bytes(self.segments, start_offset, end_offset))

    def may_have_gaps(self) -> bool:
        """Whether offsets may be missing without a loss: the log is compacted, or was."""
        return self._parts.was_compacted

    def last_records(self) -> Mapping[int, LastRecord]:
        """Return the last record of each active producer, for the cleaner."""
        self.guard.check_entry()
        with self.guard.lock:
            return self.producers.last_records()

    def refresh(self) -> None:
        """Wait for a change of the segments that is in progress; no other process changes the folder."""
        self._state.check_open()
        if self.guard.is_owned:
            with self.guard.lock:
                pass

    # -- settings

    @property
    def config(self) -> TopicConfig:
        """The topic's settings; they may be replaced."""
        return self._parts.config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self.guard.check_entry()
        with self.guard.lock:
            self._parts.configure(config)

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
        guard, appender, clock = self.guard, self._appender, self._clock
        guard.check_entry()
        builder = appender.builder
        given = given_records(records, key, value, headers, timestamp)
        built = None if builder.stamps else builder.build(given, clock())
        with guard.lock:
            guard.check_usable()
            if built is None:
                # The append times must increase as the offsets do.
                built = builder.build(given, clock())
            first_offset, end_offset, rolled = appender.append_built(built)
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
        flushes: bool = True,
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
            flushes: Whether to flush if the settings say so; otherwise the caller does (`flushing.is_due`).

        Raises:
            BrokerError: With Kafka's code for what is wrong; nothing was appended.
            TypeError: `origin` is no `AppendOrigin`, or `transaction_version` no int.
            LogError: The log is closed, or this is a fork of the process that opened it.
            LogOfflineError: The disk failed, now or before; the batches may or may not have been appended.
        """
        guard = self.guard
        guard.check_entry()
        if not isinstance(origin, AppendOrigin):
            raise TypeError(f"origin must be an AppendOrigin, not {given_text(origin)}")
        if durable is not False:
            checked_flag("durable", durable)
        if supports_epoch_bump is not False:
            checked_flag("supports_epoch_bump", supports_epoch_bump)
        version = checked_int("transaction_version", transaction_version)
        with guard.lock:
            guard.check_usable()
            result, end_offset, rolled = self._appender.append_encoded(
                data, origin, transaction_version=version, supports_epoch_bump=supports_epoch_bump
            )
        self._after_append(end_offset, rolled, durable, flushes=flushes)
        return result

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
        checked_flag("commit", commit)
        batch = transaction_marker(producer_id, producer_epoch, commit, coordinator_epoch, self._clock())
        return self.append_batches(
            batch, origin=AppendOrigin.COORDINATOR, durable=durable, transaction_version=transaction_version
        )

    def _after_append(self, end_offset: int, rolled: bool, durable: bool, *, flushes: bool = True) -> None:
        """Finish an append without the lock: tell the owner, and flush what the settings require."""
        self._wakeup.wake()
        if rolled:
            self._after_roll()
        if durable or (flushes and self._parts.config.flushes and self.flushing.is_due):
            self.flushing.make_durable(end_offset)

    # -- rolling

    def roll(self) -> None:
        """Begin a new segment, unless the active one is empty.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        self.guard.check_entry()
        with self.guard.lock:
            self.guard.check_usable()
            if not self._local.active.size_bytes:
                return
            self._local.about_to_write()
            self._local.roll(self._local.log_end_offset)
        self._after_roll()

    def _after_roll(self) -> None:
        if self.durability.flushes_late and self._owner is not None:
            self._owner.rolled(self)

    # -- bringing to the disk

    def flush(self) -> None:
        """Return when all that was appended is on the disk; other threads may append meanwhile.

        Raises:
            LogError: The log is closed, or this is a fork of the process that opened it.
            LogOfflineError: The disk failed, now or before; what was not flushed before may be lost.
        """
        self.flushing.flush()

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
        self.guard.check_entry()
        with self.guard.lock:
            self.guard.check_usable()
            self._head.delete_records(before_offset)
        self._start_moved()
        return self.log_start_offset

    def _start_moved(self) -> None:
        self._wakeup.wake()
        if self._owner is not None:
            self._owner.start_moved(self)

    def replace_segments(self, new_base_offset: int, old: Sequence[Segment]) -> None:
        """Replace segments by the one whose `.cleaned` files are complete; for the cleaner.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        guard = self.guard
        guard.check_entry()
        with guard.flush_lock:
            # A power cut must not lose the markers by which the cleaner decided what to leave out.
            self.flushing.flush_under_lock()
            with guard.lock:
                guard.check_usable()
                if not all(segment in self.segments[:-1] for segment in old):
                    raise LogError(f"{self.path}: segments that were cleaned are not there any more")
                self.durability.is_dirty = True
                self._parts.was_compacted = True
                self._local.replace(new_base_offset, old, self._clock() + self.config.file_delete_delay_ms)

    # -- closing

    def discard(self, *, is_deleted: bool = False) -> None:
        """Close the files as they are, as a crash would, or because the log is being deleted.

        Args:
            is_deleted: Whether its topic is gone, so that it must not be read any more either.

        Raises:
            LogError: This is a fork of the process that opened it.
        """
        self._shutdown.discard(is_deleted=is_deleted)
        self._wakeup.wake()

    def close(self) -> None:
        """Flush everything, write the producers' state, cut the files to their used size, and close them.

        A log that is offline, or that a fork inherited, is left as it is. If an exception ended it, it can be called
        again, and continues where it stopped.

        Raises:
            LogOfflineError: The disk failed now.
        """
        if not self.guard.is_owned:
            return
        self._shutdown.close()
        self._wakeup.wake()
