"""Recovers one segment: scans it, cuts it where it is torn, and rebuilds its indexes.

    before   | batch | batch | batch | torn batch or zeros     .index: missing, padded or stale
    after    | batch | batch | batch |                         .index, .timeindex, .txnindex: as if appended and rolled

Every change that recovery makes to a folder is in a report. Files that are right are not changed.

Source in Kafka: `LogSegment.recover`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import tee, zip_longest
from pathlib import Path
from typing import BinaryIO

from odradek.errors import CorruptRecordError, FormatError, LogError
from odradek.records.header import BatchHeader
from odradek.storage.files import FILES, FileSystem, replace_file
from odradek.storage.formats.index_file import MAX_RELATIVE_OFFSET
from odradek.storage.formats.offset_index import WritableOffsetIndex
from odradek.storage.formats.time_index import WritableTimeIndex
from odradek.storage.formats.transaction_index import AbortedTransaction, format_transaction
from odradek.storage.log.leader_epochs import LeaderEpochCache
from odradek.storage.log.recovery_report import RecoveryKind, RecoveryReport, SoundRecords
from odradek.storage.names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, segment_file_name
from odradek.storage.producers.producer_state import read_marker
from odradek.storage.producers.producer_state_manager import ProducerStateManager
from odradek.storage.segment.batch_reader import BatchReader, Damage, mapped
from odradek.storage.segment.index_builder import IndexBuilder
from odradek.storage.segment.offset_lookup import locate_batch
from odradek.storage.segment.segment import Segment

_CHUNK_BYTES = 1 << 20
_ZEROS = bytes(_CHUNK_BYTES)


class _Indexes:
    """The indexes of a segment, built in memory batch by batch."""

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


def _can_be_indexed(segment: Segment, interval_bytes: int, torn: _TornOffsets) -> bool:
    """Return whether the indexes can hold the batches that recovery keeps, in a segment whose offsets go back."""
    builder = _Indexes(segment, interval_bytes).builder
    next_offset = segment.base_offset
    try:
        for header, following in _pairs(segment.scan(check_crc=True)):
            if torn.has(header, following, next_offset):
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
    is_last: bool = True,
    report: RecoveryReport,
    files: FileSystem = FILES,
    before_cut: Callable[[int], None] | None = None,
) -> int:
    """Recover a segment.

    Args:
        segment: The segment; its file is cut after the last whole batch.
        producers: The producers' state at the segment's base offset; it is updated to that at its end.
        epochs: The leader epochs, to which those of the batches are added.
        index_interval_bytes: `index.interval.bytes`.
        recovery_point: All records below it are known to be on the disk. The others are written again: a failed sync
            may have left them in memory only, and no later sync would write them.
        is_last: Whether it is the last one of its log.
        report: Receives what was done.
        files: The file system to write through.
        before_cut: Called with the offset after the last whole batch, before what follows is cut off.

    Returns:
        The number of bytes that were cut off.

    Raises:
        BrokerError: A batch contradicts the state of its producer, so the log cannot be recovered.
        CorruptRecordError: An offset is below the base offset, or too far above it; likewise.
        OSError: The disk failed.
    """
    size = segment.path.stat().st_size
    indexes = _Indexes(segment, index_interval_bytes)
    next_offset = segment.base_offset
    position = flushed_end = 0
    scan = segment.scan(check_crc=True)
    damage: FormatError | None = None
    goes_back = False
    torn = _TornOffsets(segment, recovery_point, is_last=is_last)
    for header, following in _pairs(scan):
        if torn.has(header, following, next_offset):
            damage = _misplaced(segment, header, f"offset {header.last_offset} follows {next_offset - 1}")
            break
        if not _is_in_reach(segment, header):
            # Kafka does not start in this case. No crash causes it, and the data after it may be all that is left.
            raise _misplaced(segment, header, f"offset {header.last_offset} cannot be in this segment")
        if header.last_offset < next_offset and not goes_back:
            goes_back = True
            again = _TornOffsets(segment, recovery_point, is_last=is_last)
            if not _can_be_indexed(segment, index_interval_bytes, again):
                # Kafka empties such a segment; the part before it is good. If no index says so, Kafka keeps all of it.
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
        # Zeros are preallocated space, or what a file system leaves that had not written the batch yet.
        loses = not _is_zero(segment.path, position)
        sound = sound_records(segment.path, position) if loses else None
        report.add(RecoveryKind.TRUNCATED, segment.path, position, cut, reason, sound=sound, loses=loses)
        if before_cut is not None:
            before_cut(next_offset)
        if next_offset < recovery_point:
            # Readers may have mapped the part that is known to be on the disk, and a cut would end them.
            replace_file(segment.path, bytes(memoryview(segment.path.read_bytes())[:position]), files)
        else:
            truncate(segment.path, position, files)
    _write_again(segment.path, flushed_end, position, files)
    producers.map_end_offset = max(next_offset, producers.map_end_offset)
    indexes.write(report, files)
    segment.refresh()
    return cut


def sound_records(path: Path, position: int) -> SoundRecords | None:
    """Return which records of a segment can be read from a position on, although the recovery gives them up."""
    count, start_offset, end_offset = 0, None, 0
    try:
        with mapped(path) as data:
            for header in BatchReader(path, data, _ignore, position):
                count += max(1, header.records_count)
                start_offset = header.base_offset if start_offset is None else min(start_offset, header.base_offset)
                end_offset = max(end_offset, header.next_offset)
    except (FormatError, OSError):
        return None
    return None if start_offset is None else SoundRecords(count, start_offset, end_offset)


def _is_zero(path: Path, position: int) -> bool:
    with path.open("rb") as file:
        file.seek(position)
        return _goes_on_with_zeros(file)


def _goes_on_with_zeros(file: BinaryIO) -> bool:
    return all(chunk == _ZEROS[: len(chunk)] for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""))


def _ignore(damage: Damage) -> None:
    """Ignore damage: what is not sound does not count."""


def _pairs(headers: Iterable[BatchHeader]) -> Iterator[tuple[BatchHeader, BatchHeader | None]]:
    """Yield each header with the one after it."""
    first, second = tee(headers)
    next(second, None)
    return zip_longest(first, second)


class _TornOffsets:
    """Finds batches whose base offset, which no checksum covers, did not reach the disk with the rest of them.

    Batches that come again are no such, and are kept as Kafka keeps them: it never looks at the order of offsets.
    """

    def __init__(self, segment: Segment, recovery_point: int, *, is_last: bool) -> None:
        self._segment = segment
        self._recovery_point = recovery_point
        self._is_last = is_last
        self._before: set[tuple[int, int, int]] | None = None

    def has(self, header: BatchHeader, following: BatchHeader | None, next_offset: int) -> bool:
        """Whether a batch is one, given the batch after it in the file, and the offset after the one before it."""
        is_again = header.last_offset < next_offset
        if is_again and self._before is None:
            self._before = {other.identity for other in self._segment.scan(0, header.position)}
        is_copy = self._before is not None and header.identity in self._before
        if self._before is not None:
            self._before.add(header.identity)
        if not is_again or next_offset < self._recovery_point:
            return False
        if is_copy:
            # At the end of the log it would let the log end go back, and offsets be given out again.
            return following is None and self._is_last and header.next_offset < next_offset
        return following is None or following.base_offset != header.next_offset


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
    """Apply a batch to the producers' state and the leader epochs; return what it aborted."""
    if header.magic < 2:
        return ()
    latest = epochs.latest_epoch
    if header.partition_leader_epoch >= 0 and (latest is None or header.partition_leader_epoch > latest):
        epochs.assign(header.partition_leader_epoch, header.base_offset)
    if not header.has_producer_id:
        return ()
    return producers.replay(header, read_marker(segment.data, header) if header.is_control else None)


def replay_producers(
    segment: Segment, producers: ProducerStateManager, start_offset: int, end_offset: int, *, is_last: bool
) -> None:
    """Apply the batches of a segment from one offset up to another to the producers' state.

    Like Kafka, this passes over batches whose checksum does not hold, but for the last segment, whose end they are.
    """
    for header in segment.scan(locate_batch(segment, start_offset)[1], segment.readable_bytes(is_last=is_last)):
        if header.base_offset >= end_offset:
            break
        if header.has_producer_id and header.last_offset >= start_offset:
            producers.replay(header, read_marker(segment.data, header) if header.is_control else None)


def truncate(path: Path, size: int, files: FileSystem) -> None:
    """Cut a file, durably."""
    with files.open(path) as file:
        file.truncate(size)
        file.sync()


def _write_again(path: Path, position: int, end: int, files: FileSystem) -> None:
    if position >= end:
        return
    with files.open(path) as file:
        with path.open("rb") as source:
            source.seek(position)
            while position < end:
                data = source.read(min(_CHUNK_BYTES, end - position))
                file.write_at(position, data)
                position += len(data)


def write_transaction_index(
    path: Path, transactions: Iterable[AbortedTransaction], reason: str, report: RecoveryReport, files: FileSystem
) -> None:
    """Write a transaction index that was found to be wrong."""
    entries = b"".join(map(format_transaction, transactions))
    report.add(RecoveryKind.REBUILT, path, 0, len(entries), reason)
    replace_file(path, entries, files)


def _write_index(path: Path, entries: bytes, report: RecoveryReport, files: FileSystem) -> None:
    reason = ""
    try:
        # The last entries of an active segment may be missing, and the one for its end always is.
        if not _is_beginning(path, entries):
            reason = "its entries did not match the segment"
    except FileNotFoundError:
        reason = "it was missing"
    if reason:
        report.add(RecoveryKind.REBUILT, path, 0, len(entries), reason)
    # In one step: a reader may have mapped the old file.
    replace_file(path, entries, files)


def _is_beginning(path: Path, entries: bytes) -> bool:
    """Whether a file holds the first of some entries and then zeros: it is preallocated, so these are many."""
    with path.open("rb") as file:
        if not entries.startswith(file.read(len(entries)).rstrip(b"\0")):
            return False
        return _goes_on_with_zeros(file)
