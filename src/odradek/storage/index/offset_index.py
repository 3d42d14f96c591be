"""`.index`: from an offset to a position in the segment.

    | relative offset: int32 | position: int32 |      8 bytes an entry, big-endian, offsets increasing

The offset is the last one of a batch, relative to the segment's base offset; the position is where that batch starts
(before Kafka 4, where the append that ended with it started). An entry is added about every `index.interval.bytes`,
so a look-up gives the nearest entry at or below an offset and the segment is scanned from there.

Source in Kafka: `OffsetIndex`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from odradek.errors import CorruptIndexError, LogError
from odradek.storage.files import FILES, FileSystem
from odradek.storage.index.index_file import IndexFile, IndexWriter

_ENTRY = struct.Struct(">ii")
MAX_RELATIVE_OFFSET = 0x7FFFFFFF


class OffsetPosition(NamedTuple):
    """An offset, and the position in the `.log` of the batch that holds it."""

    offset: int
    position: int


class OffsetIndex(IndexFile):
    """An offset index, open for reading."""

    ENTRY_SIZE = _ENTRY.size

    def entry(self, number: int) -> OffsetPosition:
        """Return one entry."""
        relative_offset, position = _ENTRY.unpack_from(self._data, number * self.ENTRY_SIZE)
        return OffsetPosition(self.base_offset + relative_offset, position)

    def entries(self) -> Iterator[OffsetPosition]:
        """Give every entry in turn."""
        return map(self.entry, range(self.count))

    def last_entry(self) -> OffsetPosition:
        """Return the last entry, or the segment's start."""
        return self.entry(self.count - 1) if self.count else OffsetPosition(self.base_offset, 0)

    def floor_entry(self, offset: int) -> int:
        """Return the number of the last entry whose offset is at most `offset`; -1 where there is none."""
        relative_offset = offset - self.base_offset
        if relative_offset < 0:
            return -1
        return self._floor(min(relative_offset, MAX_RELATIVE_OFFSET).to_bytes(4, "big"))

    def floor_position(self, position: int) -> int:
        """Return the number of the last entry whose position is at most `position`; -1 where there is none."""
        return -1 if position < 0 else self._floor(min(position, MAX_RELATIVE_OFFSET).to_bytes(4, "big"), column=4)

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the greatest entry at or below an offset, or the segment's start."""
        number = self.floor_entry(offset)
        return OffsetPosition(self.base_offset, 0) if number < 0 else self.entry(number)

    def upper_bound(self, position: int) -> OffsetPosition | None:
        """Return the first entry at or behind a position of the segment, or `None`."""
        number = self.floor_position(position - 1) + 1
        return self.entry(number) if number < self.count else None

    def check(self) -> None:
        """Compare every entry with the one before it.

        Raises:
            CorruptIndexError: The size is not of whole entries, or offsets or positions do not increase.
        """
        self.check_size()
        last = OffsetPosition(self.base_offset - 1, -1)
        for number, entry in enumerate(self.entries()):
            if entry.offset <= last.offset or entry.position < last.position or entry.position < 0:
                raise CorruptIndexError(
                    f"entry {number} ({entry.offset} at {entry.position}) follows ({last.offset} at {last.position})",
                    path=self.path,
                    position=number * self.ENTRY_SIZE,
                )
            last = entry


class WritableOffsetIndex:
    """An offset index that grows with its segment.

    Args:
        path: The file; where it exists, its entries stay.
        base_offset: The segment's base offset.
        max_index_size_bytes: `segment.index.bytes`, which the file is preallocated to.
        files: The way to the disk.
        count: How many entries are in use, where the caller knows; else where the zeros begin is looked for.
    """

    def __init__(
        self,
        path: Path,
        base_offset: int,
        max_index_size_bytes: int,
        files: FileSystem = FILES,
        *,
        count: int | None = None,
    ) -> None:
        self.path = path
        self.base_offset = base_offset
        self._reader = OffsetIndex(path, base_offset)
        if count is not None:
            self._reader.show(count)
        self.last_offset = self._reader.last_entry().offset
        self._writer = IndexWriter(path, _ENTRY.size, self._reader.count, max_index_size_bytes, files)
        # Until somebody looks something up, nothing is mapped: a mapping holds a file descriptor.
        self._reader.close()

    @property
    def count(self) -> int:
        """How many entries there are."""
        return self._writer.count

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another entry."""
        return self._writer.count >= self._writer.max_entries

    def append(self, offset: int, position: int) -> None:
        """Add an entry.

        Raises:
            LogError: The index is full, or the offset is not above the last one, or too far from the base offset.
        """
        if self.is_full:
            raise LogError(f"{self.path}: the index is full at {self.count} entries")
        if self.count and offset <= self.last_offset:
            raise LogError(f"{self.path}: offset {offset} is not above the last one, {self.last_offset}")
        if not 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET:
            raise LogError(f"{self.path}: offset {offset} is out of reach of the base offset {self.base_offset}")
        self._writer.append(_ENTRY.pack(offset - self.base_offset, position))
        self.last_offset = offset

    def _current(self) -> OffsetIndex:
        self._reader.show(self._writer.count)
        return self._reader

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the greatest entry at or below an offset, or the segment's start."""
        return self._current().lookup(offset)

    def upper_bound(self, position: int) -> OffsetPosition | None:
        """Return the first entry at or behind a position of the segment, or `None`."""
        return self._current().upper_bound(position)

    def truncate_to(self, offset: int) -> None:
        """Forget the entries at or above an offset."""
        self._writer.truncate_to(self._current().floor_entry(offset - 1) + 1)
        self.last_offset = self._current().last_entry().offset

    def truncate(self) -> None:
        """Forget every entry."""
        self.truncate_to(self.base_offset)

    def resize(self, max_index_size_bytes: int) -> None:
        """Preallocate the file again, after `trim`."""
        self._writer.resize(max_index_size_bytes)

    def trim(self) -> None:
        """Cut the file to its entries, as when the segment is rolled."""
        self._writer.trim()

    def sync(self) -> None:
        """Return when the entries are on the disk."""
        self._writer.sync()

    def close(self) -> None:
        """Trim the file and close it."""
        self._reader.close()
        self._writer.close()

    def abandon(self) -> None:
        """Close the file as it is, as a crash would."""
        self._reader.close()
        self._writer.abandon()
