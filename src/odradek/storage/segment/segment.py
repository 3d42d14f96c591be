"""A segment: a `.log` file of record batches, back to back, and the indexes beside it.

    00000000000000000042.log         | batch | batch | batch | ...    offsets from 42 on, increasing, with gaps
    00000000000000000042.index       offset -> position               may be missing, padded, stale or garbage
    00000000000000000042.timeindex   timestamp -> offset              likewise
    00000000000000000042.txnindex    aborted transactions             only where there are any

An index is a hint: each entry is checked against the batch that it points to, and if they differ, the segment is
scanned from its start. Files are opened when they are first needed, and closed when too many are open.

Source in Kafka: `LogSegment`, `FileRecords`.
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Iterator
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from odradek.errors import FormatError
from odradek.records.batch import read_records
from odradek.records.header import LOG_OVERHEAD, V2_HEADER_BYTES, BatchHeader
from odradek.records.kernels.objects import Record
from odradek.storage.file_version import FileVersion, settled_version, version_of
from odradek.storage.formats.offset_index import OffsetIndex
from odradek.storage.formats.time_index import TimeIndex, TimestampOffset
from odradek.storage.formats.transaction_index import TransactionIndex
from odradek.storage.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from odradek.storage.segment.contents import Contents, Mapped
from odradek.storage.segment.log_slice import LogSlice, cut_slice
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.segment.segment_scan import SegmentScan
from odradek.storage.uncopied import Uncopied

_Index = TypeVar("_Index", OffsetIndex, TimeIndex)


class Access(Enum):
    """How a reader may hold a segment's files; see `contents`."""

    OWN = "own"
    """This process alone changes the files, and cuts none that is sealed."""

    STABLE = "stable"
    """Another process writes the log, and nothing that it does cuts the `.log` file."""

    UNSTABLE = "unstable"
    """Another process writes the log, and may cut the file when it starts again."""


class SegmentEnd(NamedTuple):
    """Where the whole batches of a segment end.

    Attributes:
        position: After the last whole batch.
        next_offset: After its last offset; the base offset of a segment without batches.
        damage: What is wrong with the bytes from there on, if there are any.
    """

    position: int
    next_offset: int
    damage: FormatError | None


class _LastBatch(NamedTuple):
    position: int
    head: bytes


class Segment(Uncopied):
    """A segment, open for reading. Any thread may read it.

    Args:
        directory: The folder of the partition.
        base_offset: The offset that its files are named after.
        opened: The register of open segments.
        suffix: What its names end with in the middle of a compaction: `.swap`, else empty.
        access: How its files may be held.

    Attributes:
        directory: As given.
        base_offset: As given.
        suffix: As given.
        access: As given; it may be changed.
        rewritten: How often it was found that what was read of it was cut, or another file took its name.
    """

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        opened: OpenSegments,
        *,
        suffix: str = "",
        access: Access = Access.OWN,
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self.access = access
        self._opened = opened
        self._identity: tuple[int, int] | None = None
        self._contents: Contents | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._end: SegmentEnd | None = None
        self._largest: TimestampOffset | None = None
        self._last_batch: _LastBatch | None = None
        self._settled: tuple[FileVersion | None, SegmentEnd | None] = (None, None)
        self.rewritten = 0
        self._looks = 0
        self._arrivals = -1

    def __repr__(self) -> str:
        return f"<Segment {self.path}>"

    def _sibling(self, suffix: str) -> Path:
        return self.directory / segment_file_name(self.base_offset, suffix + self.suffix)

    # -- files

    @cached_property
    def path(self) -> Path:
        """The `.log` file."""
        # Made when it is asked for: of 10,000 segments most are listed and never looked at.
        return self._sibling(LOG_SUFFIX)

    @property
    def inode(self) -> int | None:
        """The inode of the `.log` file, if it was looked at before."""
        return None if self._identity is None else self._identity[1]

    @property
    def identity(self) -> tuple[int, int, int]:
        """Which bytes it holds: device and inode of the file, and how often what was read of it was cut.

        While that stays, a position that was read is followed by what was appended, and by nothing else.

        Raises:
            FileNotFoundError: The file was deleted.
        """
        return *self.contents.identity, self.rewritten

    def identify(self) -> Segment:
        """Use only the `.log` file that has the name now, not one that replaces it when the log is compacted.

        Raises:
            FileNotFoundError: There is none.
        """
        name = segment_file_name(self.base_offset, LOG_SUFFIX + self.suffix)
        status = os.stat(f"{self.directory}/{name}")  # noqa: PTH116 - the path costs several times as much
        self._identity = status.st_dev, status.st_ino
        return self

    def hold(self, access: Access) -> None:
        """Hold the files in another way from now on."""
        self.access = access
        self._contents = None

    @property
    def contents(self) -> Contents:
        """The bytes of the `.log` file.

        Raises:
            FileNotFoundError: The file was deleted: its writer deleted or compacted it; another may have its name.
            FormatError: It is not a regular file.
        """
        contents = self._contents
        while contents is None:
            access = self.access
            contents = self._opened.open(partial(Contents, self.path, is_stable=access is not Access.UNSTABLE))
            if self._identity not in (None, contents.identity):
                # Positions in one file mean nothing in the other, which may also hold the records of the next segment.
                raise FileNotFoundError(errno.ENOENT, "another file has its name", str(self.path))
            if self.access is access:
                self._contents, self._identity = contents, contents.identity
                self._arrivals = -1
            else:
                # Another thread came between.
                contents = self._contents
        if self._arrivals != self._opened.arrivals:
            self._opened.touch(self)
            self._arrivals = self._opened.arrivals
        return contents

    @property
    def data(self) -> Mapped:
        """The whole file, mapped; only for a stable file.

        Raises:
            FileNotFoundError: The file was deleted.
        """
        mapped = self.contents.mapped
        assert mapped is not None
        return mapped

    @property
    def size_bytes(self) -> int:
        """The size of the `.log` file; of a mapped one, as it was mapped."""
        return self.contents.size

    def known_bytes(self, contents: Contents) -> int:
        """Return where the part of the file ends in which batches are looked up: at the end, if it was found before."""
        end = self._end
        return contents.size if end is None else end.position

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index; empty where the file is missing."""
        index = self._offset_index
        if index is None:
            index = self._offset_index = self._open_index(OffsetIndex, INDEX_SUFFIX)
            self._opened.touch(self)
        return index

    @property
    def time_index(self) -> TimeIndex:
        """The time index; empty where the file is missing."""
        index = self._time_index
        if index is None:
            index = self._time_index = self._open_index(TimeIndex, TIME_INDEX_SUFFIX)
            self._opened.touch(self)
        return index

    def _open_index(self, kind: type[_Index], suffix: str) -> _Index:
        is_own = self.access is Access.OWN
        return self._opened.open(lambda: kind(self._sibling(suffix), self.base_offset, is_own=is_own))

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

    # -- batches

    def batch_at(self, position: int) -> BatchHeader | None:
        """Return the header of the batch that starts at a position; `None` if no valid batch does."""
        return self.contents.batch_at(position, self.size_bytes)

    def scan(
        self,
        position: int = 0,
        end: int | None = None,
        *,
        check_crc: bool = False,
        next_offset: int = -1,
        transactional: bool = False,
    ) -> SegmentScan:
        """Walk over the headers of the batches between two positions; see `SegmentScan`."""
        return SegmentScan(
            self.path,
            self.contents,
            position,
            self.size_bytes if end is None else end,
            check_crc=check_crc,
            next_offset=next_offset,
            transactional=transactional,
        )

    def readable_bytes(self, *, is_last: bool) -> int:
        """Return up to where readers get batches.

        The log ends where its last segment is damaged. In the others a damaged batch hides none behind it.

        Args:
            is_last: Whether it is the last segment of its log.
        """
        return self.end().position if is_last else self.size_bytes

    def is_sound(self) -> bool:
        """Whether all of it is whole batches whose checksums hold."""
        scan = self.scan(check_crc=True)
        deque(scan, maxlen=0)
        return scan.damage is None

    def read(self, header: BatchHeader) -> list[Record]:
        """Return the records of one batch, control records among them.

        Raises:
            FormatError: They contradict the header.
        """
        window = self.contents.window(header.position, header.size_bytes)
        try:
            return read_records(window.data, header, origin=window.origin)
        except FormatError as error:
            raise error.at(self.path, header.position) from None

    def surroundings(self, offset: int) -> tuple[int, int, int]:
        """Return the positions between which the index places an offset; see `OffsetIndex.surroundings`."""
        return self.offset_index.surroundings(offset)

    def slices(
        self,
        position: int,
        end_position: int,
        slice_bytes: int,
        next_offset: int | None = None,
        first_bytes: int | None = None,
    ) -> Iterator[LogSlice]:
        """Cut a range of whole batches into parts of about a size, one after the other.

        Args:
            position: Where the first batch starts.
            end_position: Where the last one ends.
            slice_bytes: About how many bytes a slice has at most.
            next_offset: Where the next segment begins, if the range goes up to it.
            first_bytes: About how many bytes the first slice has, from which on they grow.
        """
        # All that it needs is open from here on: the files may be replaced or deleted meanwhile.
        whole = LogSlice(self.path, self.contents, position, end_position, self.base_offset, next_offset)
        yield from cut_slice(whole, self.offset_index, slice_bytes, first_bytes)

    # -- ends and times

    def end(self) -> SegmentEnd:
        """Return where the whole batches end: the last indexed batch is looked up and the rest verified."""
        end = self._end
        while end is None:
            looks = self._looks
            end, last_batch = self._scan_end(*self._last_indexed())
            # No other thread comes between these looks and what follows: nothing is called.
            if self._end is None and self._looks == looks:
                self._end, self._last_batch = end, last_batch
            else:
                end = self._end
        return end

    def _last_indexed(self) -> tuple[int, int]:
        index = self.offset_index
        number = index.floor_position(self.size_bytes - 1)
        if number >= 0:
            entry = index.entry(number)
            header = self.batch_at(entry.position)
            if header is not None and self.base_offset <= header.base_offset <= entry.offset:
                return entry.position, header.next_offset
        return 0, self.base_offset

    def _scan_end(self, position: int, next_offset: int) -> tuple[SegmentEnd, _LastBatch | None]:
        scan = self.scan(position, check_crc=True)
        header = last_batch = None
        for header in scan:
            next_offset = header.next_offset
        if header is not None:
            last_batch = _LastBatch(header.position, self._head_at(header.position)[: header.size_bytes])
        return SegmentEnd(scan.position, next_offset, scan.damage), last_batch

    def _head_at(self, position: int) -> bytes:
        """Return the first bytes of a batch, its offset and its checksum among them."""
        window = self.contents.window(position, V2_HEADER_BYTES)
        at = position - window.origin
        return window.data[at : at + V2_HEADER_BYTES]

    def _is_rewritten(self) -> bool:
        """Whether the batch that was the last one is not there any more: its writer cut the file and went on."""
        last = self._last_batch
        return last is not None and not self._head_at(last.position).startswith(last.head)

    def assume_end(self, end: SegmentEnd, largest: TimestampOffset) -> None:
        """Take the end and the greatest timestamp from the program that has just written the file."""
        self._end, self._largest = end, largest

    def known_largest(self) -> TimestampOffset | None:
        """Return the greatest timestamp, if it was found before: see `timestamp_lookup.largest_timestamp`."""
        return self._largest

    def note_largest(self, largest: TimestampOffset) -> None:
        """Remember the greatest timestamp until the file changes."""
        self._largest = largest

    # -- following another process

    def refresh(self, *, is_same_file: bool = False) -> bool:
        """Look whether the file has grown or is another one; what was handed out stays valid.

        Args:
            is_same_file: Whether it is known that no other file has taken the name.

        Raises:
            FileNotFoundError: The file was deleted.
        """
        while True:
            known = self._end
            has_changed = self._look(known, is_same_file=is_same_file)
            if has_changed is not None:
                return has_changed

    def _look(self, known: SegmentEnd | None, *, is_same_file: bool) -> bool | None:
        """Do what `refresh` does; None where another thread did meanwhile, and may have seen more, or less.

        What one thread has seen is never replaced by what another one saw before: the end would go back. There is no
        lock, for a child process might find it taken. Instead each looks whether it is still the first one.
        """
        before_ns, contents = time.time_ns(), self._contents
        status = contents.status() if is_same_file and contents is not None else None
        if status is None:
            status = self.path.stat()
        identity = status.st_dev, status.st_ino
        if contents is None and known is None:
            # What is known of the old file does not apply to it.
            self._identity = identity
            return False
        if identity != self._identity or known is None or status.st_size < known.position:
            self._identity = identity
            return self._forget(known, is_rewritten=True)
        if self.access is not Access.UNSTABLE:
            return self._forget(known) if status.st_size != known.position else False
        version, end_then = self._settled
        if version is not None and version == version_of(status) and known is end_then:
            return False
        if self._is_rewritten():
            return self._forget(known, is_rewritten=True)
        # What was verified stays. After it there may be more, also in a file of the same size: a preallocated one.
        if status.st_size == known.position or not any(self.contents.window(known.position, LOG_OVERHEAD).data):
            self._settled = settled_version(status, before_ns), known
            return False
        self._offset_index = self._time_index = None
        end, last_batch = self._scan_end(known.position, known.next_offset)
        if self._end is not known:
            return None
        self._end = end
        if last_batch is None:
            return False
        self._last_batch, self._largest = last_batch, None
        return True

    def _forget(self, known: SegmentEnd | None, *, is_rewritten: bool = False) -> bool | None:
        if self.access is Access.STABLE:
            # Its writer appends to it, so it may cut it again.
            self.access = Access.UNSTABLE
        self.close()
        if self._end is not known:
            return None
        # A reader that looks for the end looks again: it may have opened the file before.
        self._looks += 1
        self._end = self._largest = None
        if is_rewritten:
            self.rewritten += 1
            self._last_batch = None
        return True

    def close(self) -> None:
        """Close the files; they are opened again when needed."""
        self._contents = None
        self._offset_index = None
        self._time_index = None
        self._opened.forget(self)
