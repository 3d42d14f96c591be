"""Recovers one segment: scans it, cuts it where it is torn, and writes its indexes again.

    before   | batch | batch | batch | torn batch or zeros     .index: missing, padded or stale
    after    | batch | batch | batch |                         .index, .timeindex, .txnindex: as if appended and rolled

Whatever recovery does to a folder is noted in a report. Files that are as they should be stay untouched.

Source in Kafka: `LogSegment.recover`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from odradek.errors import CorruptRecordError, FormatError, LogError
from odradek.records.header import BatchHeader
from odradek.storage.files import FILES, FileSystem, replace_file
from odradek.storage.formats.index_file import MAX_RELATIVE_OFFSET
from odradek.storage.formats.offset_index import WritableOffsetIndex
from odradek.storage.formats.time_index import WritableTimeIndex
from odradek.storage.formats.transaction_index import AbortedTransaction, format_transaction
from odradek.storage.log.leader_epochs import LeaderEpochCache
from odradek.storage.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_file_name
from odradek.storage.producers.producer_state import read_marker
from odradek.storage.producers.producer_state_manager import ProducerStateManager
from odradek.storage.segment.index_builder import IndexBuilder
from odradek.storage.segment.segment import Segment

_CHUNK_BYTES = 1 << 20


class RecoveryKind(Enum):
    """What recovery did."""

    TRUNCATED = "truncated"
    """Bytes after the last whole batch were cut off."""

    REMOVED = "removed"
    """A file that cannot belong to the log any more was removed."""

    SWAPPED = "swapped"
    """A compaction that was complete but for its renaming was completed."""

    SPLIT = "split"
    """Batches whose offsets were out of reach of the base offset were given a segment of their own."""

    REBUILT = "rebuilt"
    """An index was written again."""

    LOST = "lost"
    """Records are gone that a checkpoint tells of; nothing was done about it."""


@dataclass(frozen=True, slots=True)
class RecoveryAction:
    """One thing that recovery did.

    Attributes:
        kind: What it did.
        path: To which file.
        position: From which byte on.
        size_bytes: To how many bytes.
        reason: Why, in words.
    """

    kind: RecoveryKind
    path: Path
    position: int
    size_bytes: int
    reason: str

    def __str__(self) -> str:
        if self.kind is RecoveryKind.LOST:
            return f"{self.path}: {self.reason}"
        return f"{self.path}: {self.kind.value} {self.size_bytes} bytes from position {self.position}: {self.reason}"


@dataclass(slots=True)
class RecoveryReport:
    """What recovery did to a log, or to all logs of a directory, in order; empty where all was well.

    Attributes:
        actions: What was done.
        segments_scanned: How many segments were read whole.
        bytes_scanned: How many bytes they have.
    """

    actions: list[RecoveryAction] = field(default_factory=list)
    segments_scanned: int = 0
    bytes_scanned: int = 0

    def __bool__(self) -> bool:
        return bool(self.actions)

    def add(self, kind: RecoveryKind, path: Path, position: int, size_bytes: int, reason: str) -> None:
        """Note something."""
        self.actions.append(RecoveryAction(kind, path, position, size_bytes, reason))

    def extend(self, other: RecoveryReport) -> None:
        """Take over another report."""
        self.actions += other.actions
        self.segments_scanned += other.segments_scanned
        self.bytes_scanned += other.bytes_scanned


class _Indexes:
    """The indexes of a segment, in memory, as its batches come."""

    def __init__(self, segment: Segment, interval_bytes: int) -> None:
        def path(suffix: str) -> Path:
            return segment.directory / segment_file_name(segment.base_offset, suffix)

        self.offsets = WritableOffsetIndex.in_memory(path(INDEX_SUFFIX), segment.base_offset)
        self.times = WritableTimeIndex.in_memory(path(TIME_INDEX_SUFFIX), segment.base_offset)
        self.transactions_path = path(TRANSACTION_INDEX_SUFFIX)
        self.aborted: list[AbortedTransaction] = []
        self.builder = IndexBuilder(self.offsets, self.times, interval_bytes)

    def write(self, report: RecoveryReport, files: FileSystem) -> None:
        """Write the files."""
        _write_index(self.offsets.path, bytes(self.offsets.entries), report, files)
        _write_index(self.times.path, bytes(self.times.entries), report, files)
        transactions = b"".join(map(format_transaction, self.aborted))
        if transactions or self.transactions_path.exists():
            _write_index(self.transactions_path, transactions, report, files)


def _can_be_indexed(segment: Segment, interval_bytes: int, recovery_point: int) -> bool:
    """Return whether the indexes can hold the batches that recovery keeps of a segment whose offsets go back."""
    builder = _Indexes(segment, interval_bytes).builder
    next_offset = segment.base_offset
    try:
        for header in segment.scan(check_crc=True):
            if _is_torn(header, next_offset, recovery_point):
                break
            if not _is_in_reach(segment, header):
                # Recovery raises there.
                return True
            builder.add((header,))
            next_offset = header.next_offset
        builder.finish()
    except LogError:
        return False
    return True


def recover_segment(
    segment: Segment,
    producers: ProducerStateManager,
    epochs: LeaderEpochCache,
    *,
    index_interval_bytes: int,
    recovery_point: int = 0,
    report: RecoveryReport,
    files: FileSystem = FILES,
) -> int:
    """Recover a segment.

    Args:
        segment: The segment; its file is cut after the last whole batch.
        producers: The producers' state at the segment's base offset, which goes on to its end.
        epochs: The leaders' terms, to which those of the batches are added.
        index_interval_bytes: `index.interval.bytes`.
        recovery_point: What is below it is known to be on the disk; what is not is written once more, since a failed
            sync may have left it in memory alone, where no later sync would take it from.
        report: Where it is noted what was done.
        files: The way to the disk.

    Returns:
        How many bytes were cut off.

    Raises:
        BrokerError: A batch contradicts the state of its producer: such a log cannot be recovered.
        CorruptRecordError: An offset is below the base offset, or too far above it: nor can such a log.
        OSError: The disk failed.
    """
    size = segment.path.stat().st_size
    indexes = _Indexes(segment, index_interval_bytes)
    next_offset = segment.base_offset
    position = flushed_end = 0
    scan = segment.scan(check_crc=True)
    damage: FormatError | None = None
    goes_back = False
    for header in scan:
        if _is_torn(header, next_offset, recovery_point):
            damage = _misplaced(segment, header, f"offset {header.last_offset} follows {next_offset - 1}")
            break
        if not _is_in_reach(segment, header):
            # Kafka does not start then. It is nothing that a crash does, and what follows may be all there is.
            raise _misplaced(segment, header, f"offset {header.last_offset} cannot be in this segment")
        if header.last_offset < next_offset and not goes_back:
            goes_back = True
            if not _can_be_indexed(segment, index_interval_bytes, recovery_point):
                # Kafka empties such a segment; what is before it is good. Where no index tells, it keeps all.
                damage = _misplaced(segment, header, f"offset {header.last_offset} follows {next_offset - 1}")
                break
        indexes.builder.add((header,))
        indexes.aborted += _replay(segment, header, producers, epochs)
        next_offset, position = header.next_offset, header.end_position
        if next_offset <= recovery_point:
            flushed_end = position
    else:
        damage = scan.damage
    indexes.builder.finish()
    report.segments_scanned += 1
    report.bytes_scanned += size
    cut = size - position
    segment.close()
    if cut > 0:
        reason = damage.reason if damage is not None else "no batch"
        report.add(RecoveryKind.TRUNCATED, segment.path, position, cut, reason)
        if next_offset < recovery_point:
            # What is known to be on the disk may be mapped by readers, which a cut would end.
            replace_file(segment.path, bytes(memoryview(segment.path.read_bytes())[:position]), files)
        else:
            _truncate(segment.path, position, files)
    _write_again(segment.path, flushed_end, position, files)
    producers.map_end_offset = max(next_offset, producers.map_end_offset)
    indexes.write(report, files)
    segment.refresh()
    return cut


def _is_torn(header: BatchHeader, next_offset: int, recovery_point: int) -> bool:
    """Whether the base offset, which no checksum covers, is the part of a batch that did not reach the disk."""
    return header.last_offset < next_offset and next_offset >= recovery_point


def _is_in_reach(segment: Segment, header: BatchHeader) -> bool:
    return 0 <= header.last_offset - segment.base_offset <= MAX_RELATIVE_OFFSET


def _misplaced(segment: Segment, header: BatchHeader, reason: str) -> CorruptRecordError:
    return CorruptRecordError(reason, path=segment.path, position=header.position)


def _replay(
    segment: Segment,
    header: BatchHeader,
    producers: ProducerStateManager,
    epochs: LeaderEpochCache,
) -> Sequence[AbortedTransaction]:
    """Let a batch take effect on the producers' state and the leaders' terms; return what it aborted."""
    if header.magic < 2:
        return ()
    latest = epochs.latest_epoch
    if header.partition_leader_epoch >= 0 and (latest is None or header.partition_leader_epoch > latest):
        epochs.assign(header.partition_leader_epoch, header.base_offset)
    if not header.has_producer_id:
        return ()
    return producers.replay(header, read_marker(segment.data, header) if header.is_control else None)


def replay_producers(segment: Segment, producers: ProducerStateManager, start_offset: int, end_offset: int) -> None:
    """Let the batches of a segment from one offset up to another take effect on the producers' state."""
    for header in segment.scan(segment.position_for(start_offset), segment.end().position):
        if header.base_offset >= end_offset:
            break
        if header.has_producer_id and header.last_offset >= start_offset:
            producers.replay(header, read_marker(segment.data, header) if header.is_control else None)


def _truncate(path: Path, size: int, files: FileSystem) -> None:
    file = files.open(path)
    try:
        file.truncate(size)
        file.sync()
    finally:
        file.close()


def _write_again(path: Path, position: int, end: int, files: FileSystem) -> None:
    if position >= end:
        return
    file = files.open(path)
    try:
        with path.open("rb") as source:
            source.seek(position)
            while position < end:
                data = source.read(min(_CHUNK_BYTES, end - position))
                file.write_at(position, data)
                position += len(data)
    finally:
        file.close()


def lost_records(start_offset: int, end_offset: int) -> str:
    """Say that the records of a range are gone, though a checkpoint says that they were on the disk."""
    return f"offsets {start_offset} to {end_offset - 1} were on the disk and are not there any more"


def write_transaction_index(
    path: Path, transactions: Iterable[AbortedTransaction], reason: str, report: RecoveryReport, files: FileSystem
) -> None:
    """Write a transaction index that was found to be wrong."""
    entries = b"".join(map(format_transaction, transactions))
    report.add(RecoveryKind.REBUILT, path, 0, len(entries), reason)
    replace_file(path, entries, files)


def _write_index(path: Path, entries: bytes, report: RecoveryReport, files: FileSystem) -> None:
    try:
        present: bytes | None = path.read_bytes()
    except FileNotFoundError:
        present = None
    # The last entries of a segment that was appended to may be missing, and that of its end always is.
    if present is None or not entries.startswith(present.rstrip(b"\0")):
        reason = "it was missing" if present is None else "its entries were not those that the segment gives"
        report.add(RecoveryKind.REBUILT, path, 0, len(entries), reason)
    # In one step: somebody may have the old one mapped.
    replace_file(path, entries, files)
