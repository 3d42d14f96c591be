"""What the offset index and the time index have in common: sorted entries of a fixed size in a preallocated file.

    | entry 0 | entry 1 | ... | entry n-1 | zeros up to segment.index.bytes, cut off at roll and close |

A file of Kafka's may be padded with zeros (the active segment, a crash) or be garbage: Kafka itself does not check. So
the entries end where the zeros begin, and whoever follows an entry into the segment checks what it finds there. Only
the pages that hold entries are mapped, since the program that writes the file may cut the padding at any moment.

Source in Kafka: `AbstractIndex`.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Generic, Self, TypeVar

from odradek.errors import CorruptIndexError, LogError
from odradek.storage.files import FileSystem, WritableFile

MAX_RELATIVE_OFFSET = 0x7FFFFFFF


class IndexFile:
    """A file of sorted entries, open for reading; an absent file is an index without entries.

    Attributes:
        path: The file.
        base_offset: The segment's base offset, which the entries' offsets are relative to.
        count: How many entries are in use.
    """

    ENTRY_SIZE = 8
    OFFSET_COLUMN = 0
    """Where in an entry the relative offset is."""

    def __init__(self, path: Path, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.count = 0
        self._data: mmap.mmap | bytes = b""
        self.refresh()

    def refresh(self) -> None:
        """Look at the file again, which its writer may have appended to."""
        self._map(None)

    @classmethod
    def shown(cls, path: Path, base_offset: int, count: int, known: Self | None = None) -> Self:
        """Return an index of which `count` entries are used, with the mapping of a known one if that is long enough."""
        index = cls.__new__(cls)
        index.path, index.base_offset, index.count = path, base_offset, 0
        index._data = b"" if known is None else known._data
        index.show(count)
        return index

    def show(self, count: int) -> None:
        """Take `count` entries for used; for the program that writes the file, and so knows."""
        if count * self.ENTRY_SIZE > len(self._data):
            self._map(count)
        self.count = count

    def _map(self, count: int | None) -> None:
        self.close()
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            capacity = os.fstat(descriptor).st_size // self.ENTRY_SIZE
            used = self._used_entries(descriptor, capacity) if count is None else count
            mapped = used if count is None else capacity
            if mapped:
                self._data = mmap.mmap(descriptor, mapped * self.ENTRY_SIZE, access=mmap.ACCESS_READ)
            self.count = used
        finally:
            os.close(descriptor)

    def _used_entries(self, descriptor: int, capacity: int) -> int:
        size = self.ENTRY_SIZE
        zeros = bytes(size)

        def is_used(entry: int) -> bool:
            return os.pread(descriptor, size, entry * size).rstrip(b"\0") != b""

        if capacity == 0 or os.pread(descriptor, size, (capacity - 1) * size) != zeros:
            return capacity
        low, high = 0, capacity - 1
        while low < high:
            middle = (low + high) // 2
            if is_used(middle):
                low = middle + 1
            else:
                high = middle
        return low

    def _floor(self, key: bytes, column: int = 0) -> int:
        """Return the last entry whose column is at most `key`, or -1.

        Integers that are not negative sort as their big-endian bytes do, so nothing is unpacked on the way.
        """
        data, size, width = self._data, self.ENTRY_SIZE, len(key)
        low, high = -1, self.count - 1
        while low < high:
            middle = (low + high + 1) // 2
            start = middle * size + column
            if data[start : start + width] <= key:
                low = middle
            else:
                high = middle - 1
        return low

    def floor_entry_of_offset(self, offset: int) -> int:
        """Return the number of the last entry whose offset is at most `offset`; -1 where there is none."""
        relative_offset = offset - self.base_offset
        if relative_offset < 0:
            return -1
        return self._floor(min(relative_offset, MAX_RELATIVE_OFFSET).to_bytes(4, "big"), self.OFFSET_COLUMN)

    def check_size(self) -> None:
        """Raise `CorruptIndexError` where the file is not a whole number of entries."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size % self.ENTRY_SIZE:
            raise CorruptIndexError(
                f"{size} bytes are no multiple of the entry size {self.ENTRY_SIZE}", path=self.path, position=size
            )

    def close(self) -> None:
        """Let go of the file; the index reads as empty until `refresh`."""
        # A look-up in another thread may still use the mapping, which goes when the last of them does.
        self._data, self.count = b"", 0


Index = TypeVar("Index", bound=IndexFile)


class WritableIndexFile(Generic[Index]):
    """An index that grows with its segment: preallocated, appended to in place, cut to its used size when closed.

    Args:
        reader: The same index, open for reading.
        max_index_size_bytes: `segment.index.bytes`, which the file is preallocated to.
        files: The way to the disk.
        count: How many entries are in use, where the caller knows; else where the zeros begin is looked for.

    Attributes:
        path: The file; where it exists, its entries stay.
        base_offset: The segment's base offset.
        count: How many entries are in use.
    """

    def __init__(self, reader: Index, max_index_size_bytes: int, files: FileSystem, count: int | None) -> None:
        self.path = reader.path
        self.base_offset = reader.base_offset
        self._reader = reader
        if count is not None:
            reader.show(count)
        self.count = reader.count
        self._take_last()
        self._file: WritableFile = files.open(self.path)
        self.resize(max_index_size_bytes)
        # Until somebody looks something up, nothing is mapped: a mapping holds a file descriptor.
        reader.close()

    def _take_last(self) -> None:
        """Note the last entry, which the next one has to be above."""
        raise NotImplementedError

    @property
    def _current(self) -> Index:
        self._reader.show(self.count)
        return self._reader

    @property
    def _is_out_of_room(self) -> bool:
        return self.count >= self._max_entries

    def _full(self) -> LogError:
        return LogError(f"{self.path}: the index is full at {self.count} entries")

    def _relative(self, offset: int) -> int:
        relative_offset = offset - self.base_offset
        if not 0 <= relative_offset <= MAX_RELATIVE_OFFSET:
            raise LogError(f"{self.path}: offset {offset} is out of reach of the base offset {self.base_offset}")
        return relative_offset

    def _write(self, entry: bytes) -> None:
        self._file.write_at(self.count * self._reader.ENTRY_SIZE, entry)
        self.count += 1

    def truncate_to(self, offset: int) -> None:
        """Forget the entries at or above an offset."""
        size, count = self._reader.ENTRY_SIZE, self._current.floor_entry_of_offset(offset - 1) + 1
        if count < self.count:
            # Their place is zeroed, so that no reader takes them for valid.
            self._file.write_at(count * size, bytes((self.count - count) * size))
            self.count = count
        self._take_last()

    def truncate(self) -> None:
        """Forget every entry."""
        self.truncate_to(self.base_offset)

    def resize(self, max_index_size_bytes: int) -> None:
        """Give the file its preallocated size, rounded down to whole entries; never less than the entries in use."""
        size = self._reader.ENTRY_SIZE
        # Kafka takes a segment.index.bytes that is below an entry, and then cannot roll.
        least = 1 if max_index_size_bytes else 0
        self._max_entries = max(max_index_size_bytes // size, self.count, least)
        if self._file.size != self._max_entries * size:
            self._file.truncate(self._max_entries * size)

    def trim(self) -> None:
        """Cut the file to its entries, as when the segment is rolled."""
        self.resize(0)

    def sync(self) -> None:
        """Return when the entries are on the disk."""
        self._file.sync()

    def close(self) -> None:
        """Trim the file and close it."""
        self._reader.close()
        self.trim()
        self._file.close()

    def abandon(self) -> None:
        """Close the file as it is, as a crash would."""
        self._reader.close()
        self._file.close()
