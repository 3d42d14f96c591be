"""The segment that is appended to: the last one of a log, with its preallocated indexes.

    .log         | batch | batch | batch | <- position: the next append, one write     (zeros after it, if preallocated)
    .index       | entry | entry | zeros ...             an entry every index.interval.bytes
    .timeindex   | entry | entry | zeros ...             or so: see `IndexBuilder`
    .txnindex    | entry |                               one for each ABORT marker

    write(batches)     -> the files hold them; nobody sees them yet
    written = ...      -> one assignment, and everybody does        the end, the entries in use, the greatest timestamp

What an append that was not completed left in the files is written over by the next one, or cut off. When the segment is
rolled, the greatest timestamp gets a last entry and the indexes are cut to their entries.

Source in Kafka: `LogSegment`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.records.header import NO_TIMESTAMP
from odradek.records.kernels.batches import BatchTable
from odradek.records.kernels.lookup import surrounding_positions
from odradek.records.kernels.segment_end import Room, Written
from odradek.records.scan import scan_batches
from odradek.storage.files import FILES, Buffer, FileSystem, WritableFile
from odradek.storage.formats.index_file import MAX_RELATIVE_OFFSET
from odradek.storage.formats.offset_index import OffsetIndex, WritableOffsetIndex
from odradek.storage.formats.time_index import TimeIndex, TimestampOffset, WritableTimeIndex
from odradek.storage.formats.transaction_index import AbortedTransaction, TransactionIndex, WritableTransactionIndex
from odradek.storage.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from odradek.storage.segment.contents import Contents
from odradek.storage.segment.index_builder import IndexBuilder
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.segment.segment import Access, Segment, SegmentEnd
from odradek.storage.segment.timestamp_lookup import largest_timestamp


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentLimits:
    """The settings that say how a segment is written and when it is rolled.

    Attributes:
        segment_bytes: `segment.bytes`.
        segment_ms: `segment.ms`, or `max.compaction.lag.ms` of a compacted topic if that is less.
        segment_index_bytes: `segment.index.bytes`.
        index_interval_bytes: `index.interval.bytes`.
        preallocate: `preallocate`.
    """

    segment_bytes: int
    segment_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    preallocate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSetup:
    """Where and how an active segment is written.

    Attributes:
        directory: The folder of the partition.
        opened: The register of open segments.
        limits: How it is written, and when it is rolled.
        created_ms: The time that its age counts from while it holds no timestamp.
        jitter_ms: How much earlier than `segment.ms` it is rolled.
        files: The file system to write through.
    """

    directory: Path
    opened: OpenSegments
    limits: SegmentLimits
    created_ms: int
    jitter_ms: int = 0
    files: FileSystem = FILES


class _SegmentFiles:
    """The open files of an active segment.

    Attributes:
        indexed: What the indexes stand at; None while they change, and where that was interrupted.
    """

    def __init__(self, directory: Path, base_offset: int, limits: SegmentLimits, files: FileSystem) -> None:
        def path(suffix: str) -> Path:
            return directory / segment_file_name(base_offset, suffix)

        self.log: WritableFile = files.open(path(LOG_SUFFIX))
        index_bytes = limits.segment_index_bytes
        self.offset_index = WritableOffsetIndex(path(INDEX_SUFFIX), base_offset, index_bytes, files)
        self.time_index = WritableTimeIndex(path(TIME_INDEX_SUFFIX), base_offset, index_bytes, files)
        self.builder = IndexBuilder(self.offset_index, self.time_index, limits.index_interval_bytes)
        self.transaction_index = WritableTransactionIndex(path(TRANSACTION_INDEX_SUFFIX), base_offset, files)
        self.indexed: Written | None = None

    def go_back(self, written: Written) -> None:
        """Set the indexes to what was published."""
        self.offset_index.go_back(written.offset_entries)
        self.time_index.go_back(written.time_entries)
        self.transaction_index.go_back(len(written.transactions))
        self.indexed = written

    def builder_at(self, written: Written) -> IndexBuilder:
        """Return what adds entries to the indexes, as it stands at what was published."""
        largest = TimestampOffset(written.max_timestamp, written.offset_of_max_timestamp)
        self.builder.go_back(written.position, largest, written.bytes_since_index_entry)
        return self.builder

    def add_entry(self, before: Written, batches: BatchTable) -> Written | None:
        """Do what the builder does for one batch that needs an entry, as large ones do; None for all others."""
        offset_index, time_index = self.offset_index, self.time_index
        if offset_index.is_full or time_index.is_full:
            return None
        written = before.after_entry(batches, self.builder.interval_bytes, time_index.last_entry.timestamp)
        if written is not None:
            offset_index.append(written.next_offset - 1, before.position)
            time_index.maybe_append(written.max_timestamp, written.offset_of_max_timestamp)
        return written

    def written(self, next_offset: int, transactions: tuple[AbortedTransaction, ...]) -> Written:
        """Return what the indexes and their builder stand at."""
        builder = self.builder
        return Written(
            builder.position,
            next_offset,
            *builder.largest,
            builder.bytes_since_entry,
            self.offset_index.count,
            self.time_index.count,
            transactions,
        )

    def abandon(self) -> None:
        self.log.close()
        self.offset_index.abandon()
        self.time_index.abandon()
        self.transaction_index.close()


class ActiveSegment(Segment):
    """A segment, open for appending and reading. Who appends holds the log's lock; who reads needs none.

    Made by `create` and `resume`.

    Args:
        base_offset: The offset that its files are named after.
        setup: Where and how it is written.
        written: What its files hold.

    Attributes:
        written: As given; replaced with each append.
    """

    def __init__(self, base_offset: int, setup: SegmentSetup, written: Written) -> None:
        # Its own process may cut it: what an interrupted append left.
        super().__init__(setup.directory, base_offset, setup.opened, access=Access.UNSTABLE)
        self.written = written
        self._setup = setup
        # The greatest timestamp of the first batch; None if it was not looked at.
        self._first_timestamp: int | None = None
        # What it takes before it is rolled, under which settings; None if `must_roll` has to find out.
        self._room: tuple[SegmentLimits, Room] | None = None
        self._opened_files: _SegmentFiles | None = None

    @classmethod
    def create(cls, base_offset: int, setup: SegmentSetup) -> ActiveSegment:
        """Make the files of a new, empty segment; those that bear its name already are deleted."""
        directory, files = setup.directory, setup.files
        cls.remove(directory, base_offset, files)
        # Preallocated with the first append: an empty segment must be found as it was left.
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            files.open(directory / segment_file_name(base_offset, suffix)).close()
        return cls(base_offset, setup, Written(0, base_offset, NO_TIMESTAMP, base_offset))

    @staticmethod
    def remove(directory: Path, base_offset: int, files: FileSystem = FILES) -> None:
        """Remove the files of a segment that nothing was appended to."""
        for suffix in SEGMENT_SUFFIXES:
            files.unlink(directory / segment_file_name(base_offset, suffix))

    @classmethod
    def resume(cls, segment: Segment, setup: SegmentSetup) -> ActiveSegment:
        """Continue a segment whose end is in order."""
        end = segment.end()
        written = Written(
            end.position,
            end.next_offset,
            *largest_timestamp(segment),
            offset_entries=segment.offset_index.count,
            time_entries=segment.time_index.count,
            transactions=tuple(segment.transaction_index().transactions),
        )
        segment.close()
        return cls(segment.base_offset, setup, written)

    # -- writing

    def _writable(self) -> _SegmentFiles:
        opened = self._opened_files
        if opened is None:
            setup = self._setup
            opened = self._opened.open(
                lambda: _SegmentFiles(self.directory, self.base_offset, setup.limits, setup.files)
            )
            opened.go_back(self.written)
            self._opened_files = opened
            self._offset_index = self._time_index = None
        return opened

    def must_roll(self, batches: BatchTable, limits: SegmentLimits, clock: Callable[[], int]) -> bool:
        """Whether batches are to go into a new segment.

        Args:
            batches: Their headers.
            limits: The settings as they are now.
            clock: The time, in ms; it counts where the segment holds no timestamp.
        """
        room = self._room
        if room is not None and room[0] is limits and self.written.fits(batches, room[1]):
            return False
        return self._must_roll(batches, limits, clock)

    def is_full(self, size_bytes: int, max_timestamp: int, limits: SegmentLimits, clock: Callable[[], int]) -> bool:
        """Whether batches of a size and a time are to go into a new segment, as far as size and time go."""
        position = self.written.position
        if position > limits.segment_bytes - size_bytes:
            return True
        if not position:
            return False
        if self._first_timestamp is None:
            first = self.batch_at(0)
            self._first_timestamp = NO_TIMESTAMP if first is None else first.max_timestamp
        since, until = self._first_timestamp, max_timestamp
        if since < 0:
            since, until = self._setup.created_ms, clock()
        return until - since > limits.segment_ms - self._setup.jitter_ms

    def _must_roll(self, batches: BatchTable, limits: SegmentLimits, clock: Callable[[], int]) -> bool:
        if self.is_full(batches.size_bytes, batches.max_timestamp, limits, clock):
            return True
        opened = self._opened_files or self._writable()
        if (
            opened.offset_index.is_full
            or opened.time_index.is_full
            or not 0 <= batches.last_offset - self.base_offset <= MAX_RELATIVE_OFFSET
        ):
            return True
        self._room = None
        first_timestamp = self._first_timestamp
        if self.written.position and first_timestamp is not None and first_timestamp >= 0:
            allowed_ms = limits.segment_ms - self._setup.jitter_ms
            self._room = limits, Room(limits.segment_bytes, first_timestamp, allowed_ms, self.base_offset)
        return False

    def write(self, data: Buffer, batches: BatchTable, aborted: Sequence[AbortedTransaction] = ()) -> Written:
        """Write batches with a single write, and index them. No reader sees them before `written` is set to the result.

        Args:
            data: The batches, from the first byte of the first to the last byte of the last.
            batches: Their headers.
            aborted: The transactions that end with ABORT markers among them.

        Returns:
            What to publish.

        Raises:
            LogOfflineError: The disk failed. What of the batches is in the file is unknown.
        """
        opened = self._opened_files or self._writable()
        before = self.written
        position = before.position
        if position == 0:
            self._first_timestamp = batches.header(0).max_timestamp
            if self._setup.limits.preallocate:
                opened.log.truncate(self._setup.limits.segment_bytes)
        opened.log.write_at(position, data)
        written = None if aborted else before.after(batches, opened.builder.interval_bytes)
        return self._index(opened, batches, aborted) if written is None else written

    def _index(self, opened: _SegmentFiles, batches: BatchTable, aborted: Sequence[AbortedTransaction]) -> Written:
        before = self.written
        # An index may be full after this, also if an exception ends it.
        room, self._room = self._room, None
        if opened.indexed is not before:
            opened.go_back(before)
        opened.indexed = None
        written = None if aborted else opened.add_entry(before, batches)
        if written is None:
            opened.builder_at(before).add(batches.headers())
            for transaction in aborted:
                opened.transaction_index.append(transaction)
            written = opened.written(batches.last_offset + 1, (*before.transactions, *aborted))
        opened.indexed = written
        if not (opened.offset_index.is_full or opened.time_index.is_full):
            self._room = room
        return written

    def settle(self, batches: BatchTable, aborted: Sequence[AbortedTransaction]) -> Written | None:
        """Find out how far an interrupted `write` came; if the file does not hold all of its batches, undo it.

        Args:
            batches: The headers of its batches.
            aborted: As given to it.

        Returns:
            What to publish if the file holds all of the batches; otherwise None, and the file ends as before.
        """
        opened, position = self._writable(), self.written.position
        end = position + batches.size_bytes
        window = self.contents.window(position, end - position)
        stop = min(end, window.end)
        found = scan_batches(window.data, position, max(position, stop), origin=window.origin)
        if stop == end and [header[1:] for header in found] == [header[1:] for header in batches.headers()]:
            return self._index(opened, batches, aborted)
        if self._setup.limits.preallocate:
            opened.log.write_at(position, bytes(max(0, min(end, opened.log.size) - position)))
        else:
            opened.log.truncate(position)
        return None

    def park(self) -> None:
        """Close the files as they are; the next append opens them again."""
        opened, self._opened_files = self._opened_files, None
        if opened is not None:
            opened.abandon()

    def seal(self) -> Segment:
        """Write the last entry of the time index, cut the files to their used size, and close them.

        The segment can be appended to all the same, where the next one cannot be made: then it is as if it had been
        closed and opened again.

        Returns:
            The same segment, as one that is only read.
        """
        opened, written = self._writable(), self.written
        self._room = None
        opened.go_back(written)
        opened.indexed = None
        opened.builder_at(written).finish()
        written = opened.written(written.next_offset, written.transactions)
        if opened.log.size != written.position:
            opened.log.truncate(written.position)
        self.written = written
        self._opened_files = None
        opened.offset_index.close()
        opened.time_index.close()
        opened.transaction_index.close()
        opened.log.close()
        sealed = Segment(self.directory, self.base_offset, self._opened).identify()
        sealed.assume_end(self.end(), self.known_largest())
        return sealed

    # -- reading

    @property
    def size_bytes(self) -> int:
        """How many bytes of batches there are."""
        return self.written.position

    def known_bytes(self, contents: Contents) -> int:
        """Return where the published batches end."""
        return self.written.position

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, up to the published entries."""
        count = self.written.offset_entries
        opened = self._opened_files
        if opened is not None:
            return OffsetIndex.of(opened.offset_index.path, self.base_offset, opened.offset_index.entries, count)
        # Nothing is written before the files are opened again.
        index = super().offset_index
        index.count = min(index.count, count)
        return index

    def surroundings(self, offset: int) -> tuple[int, int, int]:
        """Return the positions between which the published entries place an offset."""
        opened = self._opened_files
        if opened is None:
            return super().surroundings(offset)
        count = self.written.offset_entries
        return surrounding_positions(opened.offset_index.entries, count, offset - self.base_offset)

    @property
    def time_index(self) -> TimeIndex:
        """The time index, up to the published entries."""
        count = self.written.time_entries
        opened = self._opened_files
        if opened is not None:
            return TimeIndex.of(opened.time_index.path, self.base_offset, opened.time_index.entries, count)
        index = super().time_index
        index.count = min(index.count, count)
        return index

    def transaction_index(self) -> TransactionIndex:
        """The transaction index as it is in memory."""
        return TransactionIndex.of(self.transaction_index_path, self.base_offset, list(self.written.transactions))

    def end(self) -> SegmentEnd:
        """Return the published end."""
        written = self.written
        return SegmentEnd(written.position, written.next_offset, None)

    def known_largest(self) -> TimestampOffset:
        """Return the published greatest timestamp."""
        written = self.written
        return TimestampOffset(written.max_timestamp, written.offset_of_max_timestamp)

    def refresh(self, *, is_same_file: bool = False) -> bool:
        """Do nothing: who writes the file knows it."""
        return False
