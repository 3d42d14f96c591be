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
from typing import Self

from odradek.errors import CorruptIndexError
from odradek.storage.files import FILES, FileSystem, WritableFile


class IndexFile:
    """A file of sorted entries, open for reading; an absent file is an index without entries.

    Attributes:
        path: The file.
        base_offset: The segment's base offset, which the entries' offsets are relative to.
        count: How many entries are in use.
    """

    ENTRY_SIZE = 8

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


class IndexWriter:
    """The file of an index that grows: preallocated, appended to in place, cut to its used size when closed.

    Attributes:
        count: How many entries are in use.
        max_entries: How many entries the file has room for.
    """

    def __init__(self, path: Path, entry_size: int, count: int, max_size_bytes: int, files: FileSystem = FILES) -> None:
        self.path = path
        self.entry_size = entry_size
        self.count = count
        self._files = files
        self._file: WritableFile = files.open(path)
        self.max_entries = 0
        self.resize(max_size_bytes)

    def resize(self, max_size_bytes: int) -> None:
        """Give the file its preallocated size, rounded down to whole entries; never less than the entries in use."""
        # Kafka takes a segment.index.bytes that is below an entry, and then cannot roll.
        least = 1 if max_size_bytes else 0
        self.max_entries = max(max_size_bytes // self.entry_size, self.count, least)
        size = self.max_entries * self.entry_size
        if self._file.size != size:
            self._file.truncate(size)

    def append(self, entry: bytes) -> None:
        """Write an entry into the next free place."""
        self._file.write_at(self.count * self.entry_size, entry)
        self.count += 1

    def truncate_to(self, count: int) -> None:
        """Forget the entries from `count` on; their place is zeroed, so that no reader takes them for valid."""
        if count < self.count:
            self._file.write_at(count * self.entry_size, bytes((self.count - count) * self.entry_size))
            self.count = count

    def trim(self) -> None:
        """Cut the file to the entries in use."""
        self.resize(0)

    def sync(self) -> None:
        """Return when the entries are on the disk."""
        self._file.sync()

    def close(self) -> None:
        """Trim the file and close it."""
        self.trim()
        self._file.close()

    def abandon(self) -> None:
        """Close the file as it is, as a crash would."""
        self._file.close()
