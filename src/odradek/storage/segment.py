"""A segment: a `.log` file of record batches, back to back, and the indexes beside it.

    00000000000000000042.log         | batch | batch | batch | ...    offsets from 42 on, increasing, with gaps
    00000000000000000042.index       offset -> position               may be missing, padded, stale or garbage
    00000000000000000042.timeindex   timestamp -> offset              likewise
    00000000000000000042.txnindex    aborted transactions             only where there are any

An index is a hint: whatever it says is checked against the batch that it points to, and the segment is scanned
from its start where the two differ. Files are mapped when they are first needed and let go when others are needed more.

Source in Kafka: `LogSegment`, `FileRecords`.
"""

from __future__ import annotations

import mmap
import os
import resource
import threading
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple, TypeAlias

from odradek.errors import FormatError
from odradek.records.batch import read_records
from odradek.records.header import LOG_OVERHEAD, NO_TIMESTAMP, BatchHeader
from odradek.records.scan import BatchScan, scan_batches
from odradek.storage.index.offset_index import OffsetIndex
from odradek.storage.index.time_index import TimeIndex
from odradek.storage.index.transaction_index import TransactionIndex
from odradek.storage.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)

Mapped: TypeAlias = mmap.mmap | bytes
"""A file's bytes; an empty file cannot be mapped."""


class TimestampedOffset(NamedTuple):
    """The answer to a look-up by time.

    Attributes:
        timestamp: Of the record, in ms.
        offset: Of the record.
        leader_epoch: Of its batch; -1 in messages of v0 and v1.
    """

    timestamp: int
    offset: int
    leader_epoch: int


class SegmentEnd(NamedTuple):
    """Where the whole batches of a segment end.

    Attributes:
        position: Behind the last whole batch.
        next_offset: Behind its last offset; the base offset of a segment without batches.
        damage: What is wrong with the bytes from there on, if there are any.
    """

    position: int
    next_offset: int
    damage: FormatError | None


class OpenSegments:
    """The segments whose files are mapped, the one used last at the end; the first goes where there are too many.

    A mapping holds a file descriptor. What was handed out stays valid: a mapping goes with its last user.
    """

    def __init__(self, limit: int | None = None) -> None:
        if limit is None:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            limit = max(16, min(4096, soft // 8))
        self._limit = limit
        self._lock = threading.Lock()
        self._segments: OrderedDict[Segment, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._segments)

    def touch(self, segment: Segment) -> None:
        """Note that a segment is in use."""
        excess = []
        with self._lock:
            self._segments[segment] = None
            self._segments.move_to_end(segment)
            while len(self._segments) > self._limit:
                excess.append(self._segments.popitem(last=False)[0])
        for unused in excess:
            unused.close()

    def forget(self, segment: Segment) -> None:
        """Note that a segment was closed."""
        with self._lock:
            self._segments.pop(segment, None)


class Segment:
    """A segment, open for reading.

    Attributes:
        directory: The folder of the partition.
        base_offset: The offset that its files are named after.
        path: The `.log` file.
        suffix: What its names end with in the middle of a compaction: `.swap`, else empty.
    """

    def __init__(self, directory: Path, base_offset: int, opened: OpenSegments, *, suffix: str = "") -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.path = directory / segment_file_name(base_offset, LOG_SUFFIX + suffix)
        self.suffix = suffix
        self._opened = opened
        self._identity: tuple[int, int] | None = None
        self._data: Mapped | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._end: SegmentEnd | None = None
        self._largest_timestamp: int | None = None

    def __repr__(self) -> str:
        return f"<Segment {self.path}>"

    def _sibling(self, suffix: str) -> Path:
        return self.directory / segment_file_name(self.base_offset, suffix + self.suffix)

    @property
    def data(self) -> Mapped:
        """The whole file, mapped.

        Raises:
            FileNotFoundError: The file is gone; a running Kafka deleted or compacted it.
        """
        data = self._data
        if data is None:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                self._identity, size = (status.st_ino, status.st_size), status.st_size
                data = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) if size else b""
            finally:
                os.close(descriptor)
            self._data = data
        self._opened.touch(self)
        return data

    @property
    def size_bytes(self) -> int:
        """The size of the `.log` file as it was mapped."""
        return len(self.data)

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index; empty where the file is missing."""
        index = self._offset_index
        if index is None:
            index = self._offset_index = OffsetIndex(self._sibling(INDEX_SUFFIX), self.base_offset)
            self._opened.touch(self)
        return index

    @property
    def time_index(self) -> TimeIndex:
        """The time index; empty where the file is missing."""
        index = self._time_index
        if index is None:
            index = self._time_index = TimeIndex(self._sibling(TIME_INDEX_SUFFIX), self.base_offset)
            self._opened.touch(self)
        return index

    @property
    def transaction_index_path(self) -> Path:
        """Where the transaction index is, if there is one."""
        return self._sibling(TRANSACTION_INDEX_SUFFIX)

    def transaction_index(self) -> TransactionIndex:
        """Read the transaction index; empty where the file is missing.

        Raises:
            CorruptIndexError: An entry's version is unknown.
        """
        return TransactionIndex(self.transaction_index_path, self.base_offset)

    def batch_at(self, position: int) -> BatchHeader | None:
        """Return the header of the batch that starts at a position; `None` where no valid batch does."""
        data = self.data
        if not 0 <= position <= len(data) - LOG_OVERHEAD:
            return None
        size = int.from_bytes(data[position + 8 : position + LOG_OVERHEAD], "big", signed=True)
        end = position + LOG_OVERHEAD + size
        if size < 0 or end > len(data):
            return None
        return next(iter(scan_batches(data, position, end)), None)

    def scan(self, position: int = 0, end: int | None = None, *, check_crc: bool = False) -> BatchScan:
        """Walk over the headers of the batches between two positions."""
        return scan_batches(self.data, position, end, check_crc=check_crc, path=self.path)

    def _locate(self, offset: int) -> tuple[BatchHeader | None, int]:
        index, size = self.offset_index, len(self.data)
        number = index.floor_entry_of_offset(offset)
        position = 0
        if number >= 0:
            entry = index.entry(number)
            header = self.batch_at(entry.position)
            if header is not None and self.base_offset <= header.base_offset <= offset:
                position = entry.position
            else:
                number = -1
        # A scan walks over many batches at a time: the batch should lie before the next entry, so look there first.
        expected_end = index.entry(number + 1).position if number + 1 < index.count else size
        for end in (expected_end, size):
            if position < end <= size:
                scan = self.scan(position, end)
                for header in scan:
                    if header.last_offset >= offset:
                        return header, header.position
                position = scan.position
        return None, position

    def batch_for(self, offset: int) -> BatchHeader | None:
        """Return the first batch whose last offset is at or above an offset; `None` where none is.

        It holds the offset, or begins above it where compaction left a gap.
        """
        return self._locate(offset)[0]

    def position_for(self, offset: int) -> int:
        """Return where to read on for the records from an offset on.

        That is where `batch_for` starts, or where the bytes on the way to it are no batch, or the end of the file.
        """
        return self._locate(offset)[1]

    def boundaries(self, position: int, end_position: int, slice_bytes: int) -> list[int]:
        """Cut a range of whole batches into parts of about a size; return where the parts begin and end."""
        bounds = [position]
        while end_position - position > slice_bytes:
            entry = self.offset_index.floor_position(position + slice_bytes)
            cut = self.offset_index.entry(entry).position if entry >= 0 else 0
            if cut <= position or self.batch_at(cut) is None:
                cut = end_position
                for header in self.scan(position, end_position):
                    if header.end_position - position > slice_bytes:
                        cut = header.position if header.position > position else header.end_position
                        break
            position = cut
            bounds.append(position)
        if position < end_position:
            bounds.append(end_position)
        return bounds

    def end(self) -> SegmentEnd:
        """Return where the whole batches end: the last indexed batch is looked up and the rest verified."""
        if self._end is None:
            index, data = self.offset_index, self.data
            position = 0
            next_offset = self.base_offset
            number = index.floor_position(len(data) - 1)
            if number >= 0:
                entry = index.entry(number)
                header = self.batch_at(entry.position)
                if header is not None and self.base_offset <= header.base_offset <= entry.offset:
                    position = entry.position
            scan = self.scan(position, check_crc=True)
            for header in scan:
                next_offset = header.next_offset
            self._end = SegmentEnd(scan.position, next_offset, scan.damage)
        return self._end

    def assume_end(self, end: SegmentEnd, largest_timestamp: int) -> None:
        """Take the end and the greatest timestamp from the program that has just written the file."""
        self._end, self._largest_timestamp = end, largest_timestamp

    def largest_timestamp(self) -> int:
        """Return the greatest timestamp of any batch, -1 where none has one."""
        if self._largest_timestamp is None:
            end = self.end().position
            position, largest = 0, NO_TIMESTAMP
            index, times = self.offset_index, self.time_index
            number, entry = index.floor_position(end - 1), times.last_entry()
            if number >= 0 and times.count and self._confirms(entry.timestamp, entry.offset):
                # An entry of the offset index goes with one of the time index: only what follows is not covered.
                indexed = index.entry(number).position
                if self.batch_at(indexed) is not None:
                    position, largest = indexed, entry.timestamp
            for header in self.scan(position, end):
                largest = max(largest, header.max_timestamp)
            self._largest_timestamp = largest
        return self._largest_timestamp

    def _confirms(self, timestamp: int, offset: int) -> bool:
        header = self.batch_for(offset)
        return header is not None and header.base_offset <= offset and header.max_timestamp == timestamp

    def largest_timestamp_from(self, start_offset: int) -> int:
        """Return the greatest timestamp of any record at or behind an offset, -1 where none has one.

        Raises:
            FormatError: The batch that holds the offset is corrupt.
        """
        first, largest = self.batch_for(start_offset), NO_TIMESTAMP
        if first is None:
            return largest
        for header in self.scan(first.position, self.end().position):
            if header.base_offset >= start_offset:
                largest = max(largest, header.max_timestamp)
                continue
            for record in read_records(self.data, header):
                if record.timestamp is not None and record.offset is not None and record.offset >= start_offset:
                    largest = max(largest, record.timestamp)
        return largest

    def find_timestamp(self, timestamp: int, start_offset: int) -> TimestampedOffset | None:
        """Return the first record at or behind an offset whose timestamp is at or above a timestamp.

        Raises:
            FormatError: A batch that has to be read is corrupt.
        """
        entry = self.time_index.lookup(timestamp)
        confirmed = entry.timestamp >= 0 and self._confirms(entry.timestamp, entry.offset)
        first = self.batch_for(max(entry.offset, start_offset) if confirmed else start_offset)
        if first is None:
            return None
        for header in self.scan(first.position, self.end().position):
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            checked = self.batch_at(header.position)
            if checked is None:
                # Say what is wrong with it.
                scan = self.scan(header.position, header.end_position, check_crc=True)
                list(scan)
                raise scan.damage or FormatError("this batch is corrupt", path=self.path, position=header.position)
            for record in read_records(self.data, checked):
                found = NO_TIMESTAMP if record.timestamp is None else record.timestamp
                if found >= timestamp and record.offset is not None and record.offset >= start_offset:
                    return TimestampedOffset(found, record.offset, header.partition_leader_epoch)
        return None

    def refresh(self) -> bool:
        """Look whether the file has grown or is another one; memory that was handed out stays valid.

        Raises:
            FileNotFoundError: The file is gone.
        """
        status = self.path.stat()
        identity = (status.st_ino, status.st_size)
        # A preallocated file has its size from the start: batches take the place of zeros.
        is_whole = self._end is None or self._end.position == status.st_size
        if identity == self._identity and is_whole:
            return False
        self.close()
        self._identity = identity
        self._end = None
        self._largest_timestamp = None
        return True

    def close(self) -> None:
        """Let go of the files; they are opened again when needed."""
        self._data = None
        self._offset_index = None
        self._time_index = None
        self._opened.forget(self)
