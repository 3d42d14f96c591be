"""Consecutive whole batches of one segment, for code that decodes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from odradek.errors import TruncatedBatchError
from odradek.records.batch import each_record
from odradek.records.header import BatchHeader
from odradek.records.kernels.objects import Record
from odradek.records.scan import scan_batches
from odradek.storage.formats.offset_index import OffsetIndex
from odradek.storage.segment.contents import Contents, Mapped, Window
from odradek.storage.segment.segment_scan import SegmentScan

_SLICE_BYTES_IN_MEMORY = 8 << 20
_GROWTH = 4


class LogSlice:
    """Consecutive whole batches of one segment. Their bytes are read when they are first asked for.

    Attributes:
        path: The `.log` file.
        position: Where the first batch starts, in the file.
        end_position: Where the last batch ends, in the file.
        base_offset: No batch of the slice begins below it.
        next_offset: Where the next segment begins, if this is the end of a sealed one; else None. Bytes at the end that
            are not a batch are no loss if the offsets before them reach it.
    """

    def __init__(
        self,
        path: Path,
        contents: Contents,
        position: int,
        end_position: int,
        base_offset: int,
        next_offset: int | None = None,
    ) -> None:
        self.path = path
        self.position = position
        self.end_position = end_position
        self.base_offset = base_offset
        self.next_offset = next_offset
        self._contents = contents
        self._read: Window | None = None

    def __repr__(self) -> str:
        return f"<LogSlice {self.path} [{self.position}, {self.end_position})>"

    @property
    def is_stable(self) -> bool:
        """Whether no program will ever cut the file: then it is mapped."""
        return self._contents.mapped is not None

    @property
    def inode(self) -> int:
        """The inode of the file."""
        return self._contents.identity[1]

    @property
    def size_bytes(self) -> int:
        """How many bytes the batches have."""
        return self.end_position - self.position

    @property
    def _window(self) -> Window:
        # No `cached_property`: in Python 3.11 all slices would share one lock, and threads read many at once.
        if self._read is None:
            read = self._contents.window(self.position, self.size_bytes)
            if read.end < self.end_position:
                reason = "the file was cut here while it was read"
                raise TruncatedBatchError(reason, path=self.path, position=read.end)
            self._read = read
        return self._read

    @property
    def data(self) -> Mapped:
        """The bytes: of the whole file if it is mapped, otherwise of the slice.

        Raises:
            TruncatedBatchError: Its writer has cut the file.
        """
        return self._window.data

    @property
    def origin(self) -> int:
        """The position in the file that `data` starts at."""
        return self._window.origin

    def part(self, position: int, end_position: int) -> LogSlice:
        """Return the slice between two positions."""
        next_offset = self.next_offset if end_position == self.end_position else None
        return LogSlice(self.path, self._contents, position, end_position, self.base_offset, next_offset)

    def after(self, before: LogSlice, size_bytes: int) -> LogSlice | None:
        """Return this slice and the one before it as one; `None` where they are of two files, or too large for that.

        Args:
            before: The slice before.
            size_bytes: About how many bytes both have at most; fewer where the file is not mapped.
        """
        if not self.is_stable:
            size_bytes = min(size_bytes, _SLICE_BYTES_IN_MEMORY)
        together = self.end_position - before.position
        if before._contents is not self._contents or before.end_position != self.position or together > size_bytes:
            return None
        return self.part(before.position, self.end_position)

    def _batch_end(self, position: int, index: OffsetIndex, size_bytes: int) -> int:
        """Return where a batch of the slice ends, about a number of bytes after a position where one begins."""
        entry = index.floor_position(position + size_bytes)
        end = index.entry(entry).position if entry >= 0 else 0
        if end > position and self._contents.batch_at(end, self.end_position) is not None:
            return end
        # The index has no such entry, or it is wrong.
        for header in SegmentScan(self.path, self._contents, position, self.end_position):
            if header.end_position - position > size_bytes:
                return header.position if header.position > position else header.end_position
        return self.end_position


def records_of(part: LogSlice) -> Iterator[tuple[Record, BatchHeader]]:
    """Yield all records of a slice, control records among them, each with the header of its batch.

    Raises:
        FormatError: A batch is damaged.
    """
    scan = scan_batches(part.data, part.position, part.end_position, path=part.path, origin=part.origin)
    next_offset = None
    for header in scan:
        next_offset = header.next_offset
        for record in each_record(part.data, header, origin=part.origin):
            yield record, header
    if scan.damage is not None and (part.next_offset is None or next_offset != part.next_offset):
        raise scan.damage


def cut_slice(
    whole: LogSlice, index: OffsetIndex, size_bytes: int, first_bytes: int | None = None
) -> Iterator[LogSlice]:
    """Cut a slice into parts of about a size, one after the other.

    Args:
        whole: The slice.
        index: The segment's offset index.
        size_bytes: About how many bytes a part has at most; fewer where the file is not mapped.
        first_bytes: About how many bytes the first part has; each one that follows has several times as many as the one
            before it, so that for a reader that stops early not much is read ahead. None: as many as all others.
    """
    if not whole.is_stable:
        size_bytes = min(size_bytes, _SLICE_BYTES_IN_MEMORY)
    position, end_position = whole.position, whole.end_position
    part_bytes = size_bytes if first_bytes is None else min(first_bytes, size_bytes)
    while end_position - position > part_bytes:
        end = whole._batch_end(position, index, part_bytes)
        yield whole.part(position, end)
        position, part_bytes = end, min(_GROWTH * part_bytes, size_bytes)
    if position < end_position:
        yield whole.part(position, end_position)
