"""The producers of one partition: their states, what each may write next, and up to where transactions are decided.

    append:    check(batches) -> refused | duplicate | AppendCheck -> prepare -> begin -- published --> install
    restart:   newest readable <offset>.snapshot, then replay(batch) for every batch after it
    roll:      take_snapshot() at the new segment's base offset

The open transactions are kept by their first offsets; the first of these is the last stable offset. With a single node
a marker counts as soon as it is written, since there are no replicas to wait for.

Source in Kafka: `ProducerStateManager`, `UnifiedLog.analyzeAndValidateProducerState`.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from odradek.errors import FormatError, LogError
from odradek.printable import logger
from odradek.records.append.validator import AppendOrigin
from odradek.records.control import EndTransactionMarker
from odradek.records.header import BatchHeader
from odradek.storage.files import FILES, FileSystem
from odradek.storage.formats.producer_snapshot import NONE, read_snapshot, write_snapshot
from odradek.storage.formats.transaction_index import AbortedTransaction
from odradek.storage.names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, parse_segment_file, segment_file_name
from odradek.storage.producers.open_transactions import stable_offset_after
from odradek.storage.producers.producer_state import BatchMetadata, CompletedTransaction, ProducerAppend, ProducerState

PRODUCER_ID_EXPIRATION_MS = 86_400_000
"""The default of `producer.id.expiration.ms`."""

CheckedBatch = tuple[BatchHeader, EndTransactionMarker | None]
"""A batch as the checks see it: the header and, of a control batch, the marker (see `producer_state.read_marker`)."""

_logger = logger(__name__)


@dataclass(slots=True)
class AppendCheck:
    """The result of checking the batches of one append; nothing has changed yet.

    Attributes:
        duplicate: The batch as it was first written, if it was sent twice: answer with its offsets and write nothing.
        appends: The drafts, by producer id.
        completed: The transactions that markers among the batches end.
    """

    duplicate: BatchMetadata | None = None
    appends: dict[int, ProducerAppend] = field(default_factory=dict)
    completed: list[CompletedTransaction] = field(default_factory=list)


class ProducerChange(NamedTuple):
    """What an append changes; see `ProducerStateManager.prepare`. It holds absolute values, so it can be applied twice.

    Attributes:
        states: The new states, by producer id.
        open_before: The first offsets of the open transactions before the append, each with its producer's id.
        open_meanwhile: The same, plus those that the append begins.
        open_after: The same, minus those that the append ends.
        aborted: The entries for the transaction index of the segment.
        end_offset: The log end offset after it.
    """

    states: Mapping[int, ProducerState]
    open_before: Mapping[int, int]
    open_meanwhile: Mapping[int, int]
    open_after: Mapping[int, int]
    aborted: tuple[AbortedTransaction, ...]
    end_offset: int


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last record of an active producer, of which the cleaner keeps at least the batch.

    Attributes:
        last_data_offset: Its offset; None if only a marker is known of the producer.
        producer_epoch: The producer's epoch.
    """

    last_data_offset: int | None
    producer_epoch: int


class ProducerStateManager:
    """The state of all producers of a partition.

    Attributes:
        directory: The partition's folder, where the snapshots are.
        map_end_offset: The offset of the state: it includes every batch below it.
    """

    def __init__(
        self,
        directory: Path,
        *,
        files: FileSystem = FILES,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    ) -> None:
        self.directory = directory
        self.map_end_offset = 0
        self._files = files
        self._expiration_ms = producer_id_expiration_ms
        self._producers: dict[int, ProducerState] = {}
        # First offset -> producer id, sorted: transactions that begin later come later. Replaced, never changed:
        # readers use it without a lock.
        self._open: Mapping[int, int] = {}
        self._snapshots: list[int] = self._list_snapshots()
        self._last_snapshot_offset = 0
        # Java's HashMap grows and never shrinks; see `_in_kafkas_order`.
        self._buckets = 16

    # -- what is known

    @property
    def producers(self) -> Mapping[int, ProducerState]:
        """The producers by id. Read only."""
        return self._producers

    @property
    def has_transactions(self) -> bool:
        """Whether a known producer has begun or ended a transaction."""
        return bool(self._open) or any(state.coordinator_epoch != NONE for state in self._producers.values())

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest open transaction; None if none is open."""
        return next(iter(self._open), None)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset up to which all transactions are decided."""
        first = self.first_unstable_offset
        return high_watermark if first is None else min(first, high_watermark)

    def last_records(self) -> dict[int, LastRecord]:
        """Return the last record of each active producer, for the cleaner."""
        return {
            producer_id: LastRecord(state.last_data_offset if state.batches else None, state.producer_epoch)
            for producer_id, state in self._producers.items()
        }

    # -- appending

    def next_batch(self, header: BatchHeader) -> ProducerChange | None:
        """Return what a client's batch changes that simply follows its producer's last one.

        Args:
            header: The batch, whose offsets are assigned; the only one of its append, and no control batch.

        Returns:
            None if anything else changes: the epoch, a transaction that begins; or if it does not follow. Then `check`
            and `prepare` find out what it does.
        """
        state = self._producers.get(header.producer_id)
        if (
            state is None
            or not state.batches
            or header.producer_epoch != state.producer_epoch
            or header.base_sequence != state.batches[-1].last_sequence + 1
            or header.is_transactional != (state.current_transaction_first_offset is not None)
        ):
            return None
        last_offset = header.last_offset
        batch = BatchMetadata(header.last_sequence, last_offset, header.last_offset_delta, header.max_timestamp)
        states = {header.producer_id: state.followed_by(batch)}
        return ProducerChange(states, self._open, self._open, self._open, (), last_offset + 1)

    def check(
        self,
        batches: Iterable[CheckedBatch],
        origin: AppendOrigin,
        *,
        transaction_version: int = 0,
        supports_epoch_bump: bool = False,
    ) -> AppendCheck:
        """Check the batches of an append, whose offsets are assigned.

        Args:
            batches: All batches of the append; those without a producer id are ignored.
            origin: Who appends.
            transaction_version: See `ProducerAppend.append`.
            supports_epoch_bump: Whether the producer's transaction was verified under `transaction.version` 2, where an
                unknown producer begins with sequence 0.

        Raises:
            OutOfOrderSequenceNumberError: A sequence number does not follow.
            InvalidProducerEpochError: The producer's epoch has been replaced.
            InvalidTransactionStateError: A batch outside of its producer's open transaction.
            TransactionCoordinatorFencedError: A marker of a coordinator that has been replaced.
        """
        check = AppendCheck()
        for header, marker in batches:
            if not header.has_producer_id:
                continue
            state = self._producers.get(header.producer_id)
            if origin is AppendOrigin.CLIENT and state is not None:
                check.duplicate = state.find_duplicate(header)
                if check.duplicate is not None:
                    return check
            append = check.appends.get(header.producer_id)
            if append is None:
                append = ProducerAppend(
                    state or ProducerState(header.producer_id),
                    origin,
                    supports_epoch_bump=supports_epoch_bump,
                    log=self.directory.name,
                )
                check.appends[header.producer_id] = append
            completed = append.append(header, marker, transaction_version=transaction_version)
            if completed is not None:
                check.completed.append(completed)
        return check

    def prepare(self, check: AppendCheck, end_offset: int) -> ProducerChange:
        """Compute what the batches of an append change; nothing has changed yet.

        Args:
            check: What `check` returned.
            end_offset: The log end offset after the batches.

        Raises:
            LogError: A marker ends a transaction that never began: the log is at fault.
        """
        if not check.appends:
            return ProducerChange({}, self._open, self._open, self._open, (), end_offset)
        states = {}
        for producer_id, append in check.appends.items():
            state = states[producer_id] = self._state(producer_id).copy()
            state.merge(append.state)
        started = [(offset, producer_id) for producer_id, append in check.appends.items() for offset in append.started]
        opened = {**self._open, **dict(sorted(started))} if started else self._open
        if not check.completed:
            # Not copied for each append: thousands may be open.
            return ProducerChange(states, self._open, opened, opened, (), end_offset)
        left = dict(opened)
        aborted = []
        for transaction in check.completed:
            if transaction.first_offset not in left:
                raise LogError(f"{self.directory.name}: {transaction} ends a transaction that did not begin")
            if transaction.is_aborted:
                others = (first for first, producer_id in left.items() if producer_id != transaction.producer_id)
                stable = stable_offset_after(transaction.last_offset, others)
                aborted.append(AbortedTransaction(*transaction[:3], stable))
            del left[transaction.first_offset]
        return ProducerChange(states, self._open, opened, left, tuple(aborted), end_offset)

    def begin(self, change: ProducerChange) -> None:
        """Hold the last stable offset at the transactions that begin, before readers see their first batch."""
        self._open = change.open_meanwhile

    def install(self, change: ProducerChange) -> None:
        """Apply what an append changes, now that its batches are in the log; applying it again has no effect."""
        for state in change.states.values():
            self._add(state)
        self._open = change.open_after
        self.map_end_offset = change.end_offset

    def withdraw(self, change: ProducerChange) -> None:
        """Undo `begin` for an append whose batches are not in the log."""
        self._open = change.open_before

    def replay(self, header: BatchHeader, marker: EndTransactionMarker | None = None) -> tuple[AbortedTransaction, ...]:
        """Apply a batch that is in the log already, during recovery.

        Raises:
            InvalidTransactionStateError: A batch outside of its producer's open transaction: the log is at fault.
        """
        change = self.prepare(self.check([(header, marker)], AppendOrigin.REPLICATION), header.next_offset)
        self.install(change)
        return change.aborted

    def _state(self, producer_id: int) -> ProducerState:
        return self._producers.get(producer_id) or ProducerState(producer_id)

    def _add(self, state: ProducerState) -> None:
        self._producers[state.producer_id] = state
        while len(self._producers) * 4 > self._buckets * 3:
            self._buckets *= 2

    def remove_expired(self, now_ms: int) -> None:
        """Forget the producers that have been silent for `producer.id.expiration.ms`."""
        expired = [state for state in self._producers.values() if state.is_expired(now_ms, self._expiration_ms)]
        for state in expired:
            del self._producers[state.producer_id]

    # -- snapshots

    @property
    def snapshot_offsets(self) -> list[int]:
        """The offsets of the snapshots on the disk, in order."""
        return list(self._snapshots)

    def snapshot_path(self, offset: int) -> Path:
        """Return where the snapshot of an offset is, or would be."""
        return self.directory / segment_file_name(offset, SNAPSHOT_SUFFIX)

    def take_snapshot(self) -> Path | None:
        """Write the state at `map_end_offset` to the disk; None if it has not changed since the last snapshot."""
        if self.map_end_offset <= self._last_snapshot_offset:
            return None
        path = self.snapshot_path(self.map_end_offset)
        write_snapshot(path, (state.to_snapshot() for state in self._in_kafkas_order()), self._files)
        place = bisect_left(self._snapshots, self.map_end_offset)
        if self._snapshots[place : place + 1] != [self.map_end_offset]:
            self._snapshots.insert(place, self.map_end_offset)
        self._last_snapshot_offset = self.map_end_offset
        return path

    def _in_kafkas_order(self) -> list[ProducerState]:
        """Return the producers in the order in which Java's HashMap would give them, so that the bytes are the same."""

        def bucket(state: ProducerState) -> int:
            key = state.producer_id
            code = (key ^ key >> 32) & 0xFFFFFFFF
            return (code ^ code >> 16) & (self._buckets - 1)

        return sorted(self._producers.values(), key=bucket)

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Load the state from the newest readable snapshot within the log; the batches after it must be replayed.

        Snapshots after the log's end, and those that cannot be read, are deleted. Unlike in Kafka, those before its
        start are kept: the segment that they belong to is recovered again from them. If the state belongs to the log
        end offset already, it is kept.

        Args:
            log_start_offset: The log start offset.
            log_end_offset: The log end offset.
            now_ms: The time that expiry is compared with, in ms.
        """
        for offset in self.snapshot_offsets:
            if offset > log_end_offset:
                self.delete_snapshot(offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_offset_incremented(log_start_offset)
            return
        self._producers.clear()
        self._open = {}
        self._load_newest(log_start_offset, now_ms)

    def _load_newest(self, log_start_offset: int, now_ms: int) -> None:
        while self._snapshots:
            offset = self._snapshots[-1]
            try:
                states = [ProducerState.from_snapshot(entry) for entry in read_snapshot(self.snapshot_path(offset))]
            except FormatError as error:
                _logger.warning("a producer snapshot cannot be read and is deleted: %s", error)
                self.delete_snapshot(offset)
                continue
            except FileNotFoundError:
                self._snapshots.remove(offset)
                continue
            for state in states:
                if not state.is_expired(now_ms, self._expiration_ms):
                    self._add(state)
            opened = [state for state in self._producers.values() if state.current_transaction_first_offset is not None]
            opened.sort(key=lambda state: state.current_transaction_first_offset or 0)
            self._open = {state.current_transaction_first_offset or 0: state.producer_id for state in opened}
            self.map_end_offset = self._last_snapshot_offset = offset
            return
        self.map_end_offset = self._last_snapshot_offset = log_start_offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything, delete every snapshot, and begin again at an offset."""
        self._producers.clear()
        self._open = {}
        for snapshot in self.snapshot_offsets:
            self.delete_snapshot(snapshot)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Note that the head of the log was deleted; the producers stay."""
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        self._last_snapshot_offset = self._snapshots[-1] if self._snapshots else log_start_offset

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """Delete the snapshots that belong to no segment, except the newest one if it is after the last segment."""
        self._snapshots = self._list_snapshots()
        strays = [offset for offset in self._snapshots if offset not in segment_base_offsets]
        if strays and strays[-1] > max(segment_base_offsets, default=-1):
            strays.pop()
        for offset in strays:
            self.delete_snapshot(offset)

    def delete_snapshot(self, offset: int) -> None:
        """Delete a snapshot."""
        if offset in self._snapshots:
            self._snapshots.remove(offset)
            self._files.unlink(self.snapshot_path(offset))

    def mark_snapshot_deleted(self, offset: int) -> Path | None:
        """Rename a snapshot to `.deleted`, to be unlinked with its segment, or None."""
        if offset not in self._snapshots:
            return None
        self._snapshots.remove(offset)
        path = self.snapshot_path(offset)
        target = path.with_name(path.name + DELETED_SUFFIX)
        try:
            self._files.rename(path, target)
        except FileNotFoundError:
            return None
        return target

    def _list_snapshots(self) -> list[int]:
        if not self.directory.is_dir():
            return []
        with os.scandir(self.directory) as entries:
            named = [parse_segment_file(entry.name) for entry in entries if entry.name.endswith(SNAPSHOT_SUFFIX)]
        return sorted(name.base_offset for name in named if name is not None)
