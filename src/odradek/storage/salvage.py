"""Makes a sound log out of a damaged one: every batch whose checksum holds, with its offset, and nothing else.

    source   | batch | damage ...... | batch | batch again | torn        read only
    target   | batch | batch |        .index .timeindex .txnindex anew   what is between is reported as lost

The target is written as Kafka writes: the same segments, indexes made by its rules. It has no clean-shutdown marker and
no recovery points, so that Kafka looks at all of it before it serves it; producers' snapshots are left to Kafka, which
rebuilds them then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from odradek.errors import FormatError, LogError
from odradek.records import BatchHeader
from odradek.records.control import ControlRecordType
from odradek.storage.batch_reader import BatchReader, Damage, mapped
from odradek.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    read_leader_epochs,
    read_offset_checkpoint,
)
from odradek.storage.directory.meta_properties import META_PROPERTIES, MetaProperties
from odradek.storage.directory.partition_metadata import PARTITION_METADATA, read_partition_metadata
from odradek.storage.files import FILES, FileSystem, write_atomically
from odradek.storage.index.offset_index import WritableOffsetIndex
from odradek.storage.index.time_index import WritableTimeIndex
from odradek.storage.index.transaction_index import AbortedTransaction, WritableTransactionIndex
from odradek.storage.log.log import Log
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.names import (
    CHECKPOINT_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from odradek.storage.producers.producer_state import read_marker

INDEX_INTERVAL_BYTES = 4096
"""Kafka's default of `index.interval.bytes`."""

_ROOT_FILES = (META_PROPERTIES, "bootstrap.checkpoint", LOG_START_OFFSET_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT)
_PARTITION_FILES = (PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT, "quorum-state")
_READERS: dict[str, Callable[[Path], object]] = {
    META_PROPERTIES: MetaProperties.read,
    LOG_START_OFFSET_CHECKPOINT: read_offset_checkpoint,
    CLEANER_OFFSET_CHECKPOINT: read_offset_checkpoint,
    PARTITION_METADATA: read_partition_metadata,
    LEADER_EPOCH_CHECKPOINT: read_leader_epochs,
}


@dataclass(frozen=True, slots=True)
class Loss:
    """Bytes that are not in the target.

    Attributes:
        path: The source file.
        position: Where they start.
        size_bytes: How many they are.
        start_offset: The first offset that they could have held.
        end_offset: The offset after the last one; None where the log ends with them.
        reason: Why they were left out.
    """

    path: Path
    position: int
    size_bytes: int
    start_offset: int
    end_offset: int | None
    reason: str

    def __str__(self) -> str:
        end = "the end" if self.end_offset is None else str(self.end_offset)
        return (
            f"{self.path}: position {self.position}: {self.size_bytes} bytes lost, "
            f"offsets {self.start_offset} to below {end}: {self.reason}"
        )


@dataclass(slots=True)
class SalvagedLog:
    """What became of one partition.

    Attributes:
        path: Its folder in the target.
        batches: How many batches it has.
        size_bytes: How many bytes they have.
        losses: What was lost.
        open_transactions: By producer id, where a transaction begins whose marker is missing; as long as it is open,
            `read_committed` consumers stop before it.
        left_out: What is wrong with the files beside the segments that were not copied: Kafka refuses a whole log
            directory for one that it cannot read, and does without one that is missing.
    """

    path: Path
    batches: int = 0
    size_bytes: int = 0
    losses: list[Loss] = field(default_factory=list)
    open_transactions: dict[int, int] = field(default_factory=dict)
    left_out: list[FormatError] = field(default_factory=list)


class _SegmentWriter:
    """Writes one segment and its indexes by Kafka's rules."""

    def __init__(self, directory: Path, base_offset: int, size_bytes: int, files: FileSystem) -> None:
        def name(suffix: str) -> Path:
            return directory / segment_file_name(base_offset, suffix)

        entries = size_bytes // INDEX_INTERVAL_BYTES + 3
        self._log = files.open(name(LOG_SUFFIX))
        self._index = WritableOffsetIndex(name(INDEX_SUFFIX), base_offset, entries * 8, files)
        self._time_index = WritableTimeIndex(name(TIME_INDEX_SUFFIX), base_offset, entries * 12, files)
        self._transactions = WritableTransactionIndex(name(TRANSACTION_INDEX_SUFFIX), base_offset, files)
        self._since_entry = 0
        self._greatest = (-1, base_offset)

    def append(self, batch: memoryview, header: BatchHeader) -> None:
        if header.max_timestamp > self._greatest[0]:
            self._greatest = (header.max_timestamp, header.last_offset)
        if self._since_entry > INDEX_INTERVAL_BYTES:
            self._index.append(header.last_offset, self._log.size)
            self._time_index.maybe_append(*self._greatest)
            self._since_entry = 0
        self._log.write(batch)
        self._since_entry += header.size_bytes

    def aborted(self, transaction: AbortedTransaction) -> None:
        self._transactions.append(transaction)

    def close(self) -> None:
        if self._greatest[0] >= 0:
            self._time_index.maybe_append(*self._greatest, at_roll=True)
        for file in (self._log, self._index, self._time_index, self._transactions):
            file.sync()
            file.close()


class _Salvage:
    """The work on one partition."""

    def __init__(self, log: Log, target: Path, files: FileSystem) -> None:
        self._log = log
        self._files = files
        self._next_offset = log.segments[0].base_offset if log.segments else 0
        self._pending: list[Damage] = []
        self._open: dict[int, int] = {}
        self.result = SalvagedLog(target)

    def run(self) -> SalvagedLog:
        segments = self._log.segments
        bases = [segment.base_offset for segment in segments]
        for number, segment in enumerate(segments):
            is_last = number + 1 == len(segments)
            self._segment(segment.path, bases[number], None if is_last else bases[number + 1])
        self._lost_before(None)
        if self.result.losses:
            self.result.open_transactions = dict(self._open)
        return self.result

    def _segment(self, path: Path, base_offset: int, following: int | None) -> None:
        with mapped(path) as data:
            writer: _SegmentWriter | None = None
            view = memoryview(data)
            try:
                for header in BatchReader(path, data, self._pending.append):
                    misplaced = self._misplaced(header, base_offset, following)
                    if misplaced is not None:
                        self._pending.append(Damage(path, header.position, header.size_bytes, misplaced))
                        continue
                    self._lost_before(header.base_offset)
                    if writer is None:
                        writer = _SegmentWriter(self.result.path, base_offset, len(data), self._files)
                    writer.append(view[header.position : header.end_position], header)
                    self._follow_transactions(data, header, writer)
                    self._next_offset = header.next_offset
                    self.result.batches += 1
                    self.result.size_bytes += header.size_bytes
                if writer is None and following is None:
                    # The last segment says where the log goes on, even when nothing is left in it.
                    writer = _SegmentWriter(self.result.path, base_offset, 0, self._files)
            finally:
                view.release()
                if writer is not None:
                    writer.close()

    def _misplaced(self, header: BatchHeader, base_offset: int, following: int | None) -> str | None:
        if header.last_offset < header.base_offset or header.base_offset < max(self._next_offset, base_offset):
            return f"offsets {header.base_offset} to {header.last_offset} again, {self._next_offset} comes next"
        if following is not None and header.last_offset >= following:
            return f"offset {header.last_offset} belongs into the next segment"
        return None

    def _lost_before(self, offset: int | None) -> None:
        for damage in self._pending:
            self.result.losses.append(
                Loss(damage.path, damage.position, damage.size_bytes, self._next_offset, offset, damage.reason)
            )
        self._pending.clear()

    def _follow_transactions(self, data: object, header: BatchHeader, writer: _SegmentWriter) -> None:
        if not header.is_transactional:
            return
        if not header.is_control:
            self._open.setdefault(header.producer_id, header.base_offset)
            return
        try:
            marker = read_marker(data, header)  # type: ignore[arg-type]
        except FormatError:
            return
        first_offset = self._open.pop(header.producer_id, None) if marker is not None else None
        if marker is not None and first_offset is not None and marker.type is ControlRecordType.ABORT:
            stable = min(self._open.values(), default=header.next_offset)
            writer.aborted(AbortedTransaction(header.producer_id, first_offset, header.last_offset, stable))


def salvage_partition(source: Path, log_dir: Path, files: FileSystem = FILES) -> SalvagedLog:
    """Write what is sound in a partition's folder into a folder of the same name in another log directory.

    Args:
        source: The folder; it is only read.
        log_dir: The log directory to write into.
        files: The way to the disk.

    Raises:
        LogError: The target exists already, or `source` is no partition's folder.
    """
    with ReadOnlyLog(source) as log:
        target = log_dir / str(log.topic_partition)
        if target.exists():
            raise LogError(f"{target} exists already")
        files.make_directory(target)
        result = _Salvage(log, target, files).run()
    snapshots = [path.name for path in source.glob(f"*{CHECKPOINT_SUFFIX}")]
    result.left_out = _copy(source, target, [*_PARTITION_FILES, *snapshots], files)
    files.sync_directory(target)
    return result


def salvage_root(source: Path, log_dir: Path, files: FileSystem = FILES) -> list[FormatError]:
    """Copy the files of a log directory's root that say whose it is, where its logs begin and which were compacted.

    Returns:
        What is wrong with those that were left out.
    """
    return _copy(source, log_dir, _ROOT_FILES, files)


def _copy(source: Path, target: Path, file_names: list[str] | tuple[str, ...], files: FileSystem) -> list[FormatError]:
    left_out = []
    for name in file_names:
        path = source / name
        if not path.is_file():
            continue
        try:
            if name in _READERS:
                _READERS[name](path)
        except FormatError as error:
            left_out.append(error)
        else:
            write_atomically(target / name, path.read_bytes(), files)
    return left_out
