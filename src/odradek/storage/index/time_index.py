"""`.timeindex`: from a timestamp to an offset.

    | timestamp: int64 | relative offset: int32 |      12 bytes an entry, big-endian, neither column decreasing

An entry says: so far the greatest timestamp of any batch is this one, and the first batch that has it ends with that
offset. So no batch before the one of the greatest entry at or below a timestamp can have a record at or above that
timestamp. A segment without timestamps (v0) has no entries.

Source in Kafka: `TimeIndex`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from odradek.errors import CorruptIndexError, LogError
from odradek.storage.files import FILES, FileSystem
from odradek.storage.index.index_file import IndexFile, IndexWriter

_ENTRY = struct.Struct(">qi")
NO_TIMESTAMP = -1
MAX_TIMESTAMP = 0x7FFFFFFFFFFFFFFF
MAX_RELATIVE_OFFSET = 0x7FFFFFFF


class TimestampOffset(NamedTuple):
    """A timestamp, and the offset of the record that has it."""

    timestamp: int
    offset: int


class TimeIndex(IndexFile):
    """A time index, open for reading."""

    ENTRY_SIZE = _ENTRY.size

    def _used_entries(self, descriptor: int, capacity: int) -> int:
        # A segment whose only record has offset 0 and timestamp 0 gives a single entry of zeros, no padding.
        return super()._used_entries(descriptor, capacity) if capacity != 1 else 1

    def entry(self, number: int) -> TimestampOffset:
        """Return one entry."""
        timestamp, relative_offset = _ENTRY.unpack_from(self._data, number * self.ENTRY_SIZE)
        return TimestampOffset(timestamp, self.base_offset + relative_offset)

    def entries(self) -> Iterator[TimestampOffset]:
        """Give every entry in turn."""
        return map(self.entry, range(self.count))

    def last_entry(self) -> TimestampOffset:
        """Return the last entry, or no timestamp at the segment's base offset."""
        return self.entry(self.count - 1) if self.count else TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the greatest entry at or below a timestamp, or no timestamp at the segment's base offset."""
        number = -1 if timestamp < 0 else self._floor(min(timestamp, MAX_TIMESTAMP).to_bytes(8, "big"))
        return TimestampOffset(NO_TIMESTAMP, self.base_offset) if number < 0 else self.entry(number)

    def floor_entry_of_offset(self, offset: int) -> int:
        """Return the number of the last entry whose offset is at most `offset`; -1 where there is none."""
        relative_offset = offset - self.base_offset
        if relative_offset < 0:
            return -1
        return self._floor(min(relative_offset, MAX_RELATIVE_OFFSET).to_bytes(4, "big"), column=8)

    def check(self) -> None:
        """Compare every entry with the one before it.

        Raises:
            CorruptIndexError: The size is not of whole entries, or timestamps or offsets decrease.
        """
        self.check_size()
        last = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        for number, entry in enumerate(self.entries()):
            if entry.timestamp < last.timestamp or entry.offset < last.offset:
                raise CorruptIndexError(
                    f"entry {number} ({entry.timestamp}, {entry.offset}) follows ({last.timestamp}, {last.offset})",
                    path=self.path,
                    position=number * self.ENTRY_SIZE,
                )
            last = entry


class WritableTimeIndex:
    """A time index that grows with its segment.

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
        self._reader = TimeIndex(path, base_offset)
        if count is not None:
            self._reader.show(count)
        self.last_entry = self._reader.last_entry()
        self._writer = IndexWriter(path, _ENTRY.size, self._reader.count, max_index_size_bytes, files)
        # Until somebody looks something up, nothing is mapped: a mapping holds a file descriptor.
        self._reader.close()

    @property
    def count(self) -> int:
        """How many entries there are."""
        return self._writer.count

    @property
    def is_full(self) -> bool:
        """Whether only the place is left that is kept for the entry at the roll."""
        return self._writer.count >= self._writer.max_entries - 1

    @property
    def _is_out_of_room(self) -> bool:
        return self._writer.count >= self._writer.max_entries

    def maybe_append(self, timestamp: int, offset: int, *, at_roll: bool = False) -> None:
        """Add an entry where the timestamp is above the last one.

        Args:
            timestamp: The greatest timestamp of the segment so far.
            offset: The last offset of the first batch that has it.
            at_roll: Whether the entry may take the place that is kept for it.

        Raises:
            LogError: The index is full, or the timestamp or the offset is below the last one.
        """
        # What recovery wrote may have taken the kept place: at the roll there is nothing left to add then.
        if self.is_full if not at_roll else timestamp > self.last_entry.timestamp and self._is_out_of_room:
            raise LogError(f"{self.path}: the index is full at {self.count} entries")
        last = self.last_entry
        if self.count and (offset < last.offset or timestamp < last.timestamp):
            raise LogError(f"{self.path}: ({timestamp}, {offset}) is below the last entry {tuple(last)}")
        if timestamp > last.timestamp:
            if not 0 <= offset - self.base_offset <= MAX_RELATIVE_OFFSET:
                raise LogError(f"{self.path}: offset {offset} is out of reach of the base offset {self.base_offset}")
            self._writer.append(_ENTRY.pack(timestamp, offset - self.base_offset))
            self.last_entry = TimestampOffset(timestamp, offset)

    def _current(self) -> TimeIndex:
        self._reader.show(self._writer.count)
        return self._reader

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the greatest entry at or below a timestamp, or no timestamp at the segment's base offset."""
        return self._current().lookup(timestamp)

    def truncate_to(self, offset: int) -> None:
        """Forget the entries at or above an offset."""
        self._writer.truncate_to(self._current().floor_entry_of_offset(offset - 1) + 1)
        self.last_entry = self._current().last_entry()

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
