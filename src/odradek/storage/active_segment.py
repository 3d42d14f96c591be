"""The segment that is appended to: the last one of a log, with its preallocated indexes.

    .log         | batch | batch | batch | <- position: the next append, one write     (zeros behind, if preallocated)
    .index       | entry | entry | zeros ...             an entry where a batch begins more than
    .timeindex   | entry | entry | zeros ...             index.interval.bytes behind the last indexed one
    .txnindex    | entry |                               one for each ABORT marker

Readers of the same process read the segment while it grows: they see the end as it was last published, after the bytes
were written. When the segment is rolled, the greatest timestamp gets a last entry and the indexes are cut to their
entries.

Source in Kafka: `LogSegment`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.records.header import NO_TIMESTAMP, BatchHeader
from odradek.storage.files import FILES, Buffer, FileSystem, WritableFile
from odradek.storage.index.index_file import MAX_RELATIVE_OFFSET
from odradek.storage.index.offset_index import OffsetIndex, WritableOffsetIndex
from odradek.storage.index.time_index import TimeIndex, TimestampOffset, WritableTimeIndex
from odradek.storage.index.transaction_index import AbortedTransaction, TransactionIndex, WritableTransactionIndex
from odradek.storage.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from odradek.storage.segment import Mapped, OpenSegments, Segment, SegmentEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLimits:
    """The settings that say how a segment is written and when it is rolled.

    Attributes:
        segment_bytes: `segment.bytes`.
        segment_ms: `segment.ms`, or `max.compaction.lag.ms` of a compacted topic where that is less.
        segment_index_bytes: `segment.index.bytes`.
        index_interval_bytes: `index.interval.bytes`.
        preallocate: `preallocate`.
    """

    segment_bytes: int
    segment_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    preallocate: bool = False


class _SegmentFiles:
    """The open files of an active segment."""

    def __init__(
        self, directory: Path, base_offset: int, limits: SegmentLimits, counts: tuple[int, int], files: FileSystem
    ) -> None:
        def path(suffix: str) -> Path:
            return directory / segment_file_name(base_offset, suffix)

        index_bytes = limits.segment_index_bytes
        self.log: WritableFile = files.open(path(LOG_SUFFIX))
        try:
            self.offset_index = WritableOffsetIndex(
                path(INDEX_SUFFIX), base_offset, index_bytes, files, count=counts[0]
            )
            try:
                self.time_index = WritableTimeIndex(
                    path(TIME_INDEX_SUFFIX), base_offset, index_bytes, files, count=counts[1]
                )
                self.transaction_index = WritableTransactionIndex(path(TRANSACTION_INDEX_SUFFIX), base_offset, files)
            except BaseException:
                self.offset_index.abandon()
                raise
        except BaseException:
            self.log.close()
            raise

    def sync(self) -> None:
        self.log.sync()
        self.offset_index.sync()
        self.time_index.sync()
        self.transaction_index.sync()

    def abandon(self) -> None:
        self.log.close()
        self.offset_index.abandon()
        self.time_index.abandon()
        self.transaction_index.close()


class ActiveSegment(Segment):
    """A segment, open for appending and reading. Who appends holds the log's lock; who reads needs none.

    Args:
        directory: The folder of the partition.
        base_offset: The offset that its files are named after.
        opened: The register of mapped segments.
        limits: How it is written.
        created_ms: The time that its age counts from while it holds no timestamp.
        jitter_ms: How much earlier than `segment.ms` it is rolled.
        files: The way to the disk.

    Attributes:
        position: Where the next batch goes.
        created_ms: As given.
    """

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        opened: OpenSegments,
        limits: SegmentLimits,
        *,
        created_ms: int,
        jitter_ms: int = 0,
        files: FileSystem = FILES,
    ) -> None:
        super().__init__(directory, base_offset, opened)
        self._limits = limits
        self._disk = files
        self._jitter_ms = jitter_ms
        self.created_ms = created_ms
        self._first_timestamp: int | None = None
        self._bytes_since_index_entry = 0
        self._largest = TimestampOffset(NO_TIMESTAMP, base_offset)
        self._index_counts = (0, 0)
        self._transactions: list[AbortedTransaction] = []
        self._open_files: _SegmentFiles | None = None
        self._published = SegmentEnd(0, base_offset, None)
        self.position = 0

    @classmethod
    def create(
        cls,
        directory: Path,
        base_offset: int,
        opened: OpenSegments,
        limits: SegmentLimits,
        *,
        created_ms: int,
        jitter_ms: int = 0,
        files: FileSystem = FILES,
    ) -> ActiveSegment:
        """Make the files of a new, empty segment; those that bear its name already are deleted."""
        for suffix in SEGMENT_SUFFIXES:
            files.unlink(directory / segment_file_name(base_offset, suffix))
        segment = cls(directory, base_offset, opened, limits, created_ms=created_ms, jitter_ms=jitter_ms, files=files)
        # Preallocated with the first append: an empty segment is to be found as it was left.
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            files.open(directory / segment_file_name(base_offset, suffix)).close()
        return segment

    @classmethod
    def resume(
        cls,
        segment: Segment,
        opened: OpenSegments,
        limits: SegmentLimits,
        *,
        created_ms: int,
        jitter_ms: int = 0,
        files: FileSystem = FILES,
    ) -> ActiveSegment:
        """Go on with a segment whose end is in order."""
        active = cls(
            segment.directory,
            segment.base_offset,
            opened,
            limits,
            created_ms=created_ms,
            jitter_ms=jitter_ms,
            files=files,
        )
        end = segment.end()
        active.position = end.position
        active._index_counts = (segment.offset_index.count, segment.time_index.count)
        active._transactions = segment.transaction_index().transactions
        active._largest = _largest_of(segment, end)
        active._published = SegmentEnd(end.position, end.next_offset, None)
        segment.close()
        return active

    # -- writing

    def _files(self) -> _SegmentFiles:
        opened = self._open_files
        if opened is None:
            opened = self._open_files = _SegmentFiles(
                self.directory, self.base_offset, self._limits, self._index_counts, self._disk
            )
        return opened

    def must_roll(self, size: int, max_timestamp: int, last_offset: int, limits: SegmentLimits, now_ms: int) -> bool:
        """Whether batches are to go into a new segment.

        Args:
            size: How many bytes they have.
            max_timestamp: Their greatest timestamp.
            last_offset: Their last offset.
            limits: The settings as they are now.
            now_ms: The clock.
        """
        if self.position > limits.segment_bytes - size:
            return True
        if self.position and self._waited_ms(max_timestamp, now_ms) > limits.segment_ms - self._jitter_ms:
            return True
        opened = self._files()
        return (
            opened.offset_index.is_full
            or opened.time_index.is_full
            or not 0 <= last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
        )

    def _waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        if self._first_timestamp is None:
            first = self.batch_at(0)
            if first is not None:
                self._first_timestamp = first.max_timestamp
        if self._first_timestamp is not None and self._first_timestamp >= 0:
            return max_timestamp - self._first_timestamp
        return now_ms - self.created_ms

    def append(self, data: Buffer, headers: Sequence[BatchHeader]) -> None:
        """Write batches, in one go, and index them. Readers do not see them before `publish`.

        Args:
            data: The batches, from the first byte of the first to the last byte of the last.
            headers: Their headers.

        Raises:
            OSError: The disk failed. What of the batches is in the file is unknown.
        """
        opened = self._files()
        if self._limits.preallocate and self.position == 0:
            opened.log.truncate(self._limits.segment_bytes)
        opened.log.write_at(self.position, data)
        interval, since = self._limits.index_interval_bytes, self._bytes_since_index_entry
        position, largest = self.position, self._largest
        for header in headers:
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
            if since > interval and not (opened.offset_index.is_full or opened.time_index.is_full):
                opened.offset_index.append(header.last_offset, position)
                opened.time_index.maybe_append(*largest)
                since = 0
            position += header.size_bytes
            since += header.size_bytes
        if self._first_timestamp is None and self.position == 0:
            self._first_timestamp = headers[0].max_timestamp
        self._bytes_since_index_entry, self._largest, self.position = since, largest, position

    def add_aborted(self, transaction: AbortedTransaction) -> None:
        """Note a transaction whose ABORT marker was written."""
        self._files().transaction_index.append(transaction)
        self._transactions = [*self._transactions, transaction]

    def publish(self, next_offset: int) -> None:
        """Let readers see what was written."""
        opened = self._open_files
        if opened is not None:
            self._index_counts = (opened.offset_index.count, opened.time_index.count)
        self._published = SegmentEnd(self.position, next_offset, None)

    def flush(self) -> None:
        """Return when what was written is on the disk."""
        self._files().sync()

    def park(self) -> None:
        """Close the files as they are, to be opened again at the next append."""
        opened, self._open_files = self._open_files, None
        if opened is not None:
            opened.abandon()

    def seal(self) -> Segment:
        """Write the last entry of the time index, cut the files to their used size, close them, and end appending.

        Returns:
            The same segment, as one that is only read.
        """
        opened = self._files()
        opened.time_index.maybe_append(*self._largest, at_roll=True)
        if opened.log.size != self.position:
            opened.log.truncate(self.position)
        opened.offset_index.close()
        opened.time_index.close()
        opened.transaction_index.close()
        opened.log.close()
        self._open_files = None
        sealed = Segment(self.directory, self.base_offset, self._opened)
        sealed.assume_end(self._published, self._largest.timestamp)
        return sealed

    # -- reading

    @property
    def data(self) -> Mapped:
        """The file, mapped at least up to the published end."""
        mapped = self._data
        if mapped is not None and len(mapped) < self._published.position:
            self._data = None
        return super().data

    @property
    def size_bytes(self) -> int:
        """How many bytes of batches there are."""
        return self._published.position

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, up to the published entries."""
        index, count = self._offset_index, self._index_counts[0]
        if index is None or index.count != count:
            # Others may be reading the one that is there: another takes its place.
            index = OffsetIndex.shown(self._sibling(INDEX_SUFFIX), self.base_offset, count, index)
            self._offset_index = index
            self._opened.touch(self)
        return index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, up to the published entries."""
        index, count = self._time_index, self._index_counts[1]
        if index is None or index.count != count:
            index = TimeIndex.shown(self._sibling(TIME_INDEX_SUFFIX), self.base_offset, count, index)
            self._time_index = index
            self._opened.touch(self)
        return index

    def transaction_index(self) -> TransactionIndex:
        """The transaction index as it is in memory."""
        return TransactionIndex.of(self.transaction_index_path, self.base_offset, self._transactions)

    def end(self) -> SegmentEnd:
        """Return the published end."""
        return self._published

    def largest_timestamp(self) -> int:
        """Return the greatest timestamp of any batch, -1 where none has one."""
        return self._largest.timestamp

    def refresh(self) -> bool:
        """Do nothing: who writes the file knows it."""
        return False


def _largest_of(segment: Segment, end: SegmentEnd) -> TimestampOffset:
    times = segment.time_index
    largest = times.last_entry() if times.count else TimestampOffset(NO_TIMESTAMP, segment.base_offset)
    # A segment that was closed in order ends with an entry for its greatest timestamp; one without index does not.
    if segment.largest_timestamp() != largest.timestamp:
        for header in segment.scan(0, end.position):
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
    return largest
