"""What the offset index and the time index share: sorted entries of a fixed size in a preallocated file.

    | entry 0 | entry 1 | ... | entry n-1 | zeros up to segment.index.bytes, cut off at roll and close |

A file that Kafka wrote may be padded with zeros (the active segment, after a crash) or be garbage: Kafka itself does
not check it. So the entries end where the zeros begin, and a reader that follows an entry into the segment checks what
it finds there.

An index that this process writes is mapped, but only the pages that hold entries, since the padding may be cut off at
any moment. The index of another writer is read with `pread`, a small one whole: when that writer restarts after a crash
it may cut the file, and reading a mapping of the part that was cut ends a process with SIGBUS. The entries of the
active segment are kept in memory.

Source in Kafka: `AbstractIndex`.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Generic, Self, TypeAlias, TypeVar

from odradek.errors import CorruptIndexError, LogError
from odradek.records.kernels.lookup import floor_entry
from odradek.storage.files import FILES, Buffer, FileSystem, WritableFile
from odradek.storage.regular_files import open_descriptor

MAX_RELATIVE_OFFSET = 0x7FFFFFFF

_SMALL_BYTES = 1 << 14
"""Up to which size an index that is not mapped is read into memory."""

_BLOCK_ENTRIES = 512
"""How many entries of a file that is not mapped are read at once, where a bisection has come down to them."""

_HELD_BYTES = 1 << 22
"""Up to which size such a file is read into memory when as many bytes of it have been read already."""


class FileBytes:
    """The bytes of an open file, read when they are used; fewer than asked for if the file has been cut.

    Attributes:
        read_bytes: How many were read so far, apart from probes.
    """

    _descriptor = -1

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._probed: dict[int, bytes] = {}
        self.read_bytes = 0

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def __getitem__(self, part: slice) -> bytes:
        self.read_bytes += part.stop - part.start
        return os.pread(self._descriptor, part.stop - part.start, part.start)

    def probe(self, position: int, size: int) -> bytes:
        """Return some bytes, as they were when they were first asked for: every bisection begins at the same ones."""
        known = self._probed.get(position)
        if known is None:
            known = self._probed[position] = os.pread(self._descriptor, size, position)
        return known


_Data: TypeAlias = mmap.mmap | bytes | bytearray | FileBytes


class IndexFile:
    """A file of sorted entries, open for reading; a missing file is an index without entries.

    Args:
        path: The file.
        base_offset: The segment's base offset, which the entries' offsets are relative to.
        is_own: Whether this process alone changes the file, so that it may be mapped.

    Attributes:
        path: As given.
        base_offset: As given.
        count: How many entries are in use.
    """

    ENTRY_SIZE = 8
    OFFSET_COLUMN = 0
    """The position of the relative offset in an entry, in bytes."""

    def __init__(self, path: Path, base_offset: int, *, is_own: bool = True) -> None:
        self.path = path
        self.base_offset = base_offset
        self.count = 0
        self._is_own = is_own
        self._data: _Data = b""
        self.refresh()

    @classmethod
    def of(cls, path: Path, base_offset: int, entries: bytes | bytearray, count: int) -> Self:
        """Return an index whose entries are in memory.

        Args:
            path: The file that they are in, or will be.
            base_offset: The segment's base offset.
            entries: The entries; more may come after those that are in use.
            count: How many are in use.
        """
        index = cls.__new__(cls)
        index.path, index.base_offset, index.count = path, base_offset, count
        index._is_own, index._data = True, entries
        return index

    def refresh(self) -> None:
        """Look at the file again: its writer may have appended to it."""
        self.close()
        try:
            descriptor = open_descriptor(self.path)
        except FileNotFoundError:
            return
        data: _Data = FileBytes(descriptor)
        count = self._used_entries(descriptor, os.fstat(descriptor).st_size // self.ENTRY_SIZE)
        if self._is_own:
            data = mmap.mmap(descriptor, count * self.ENTRY_SIZE, access=mmap.ACCESS_READ) if count else b""
        elif count * self.ENTRY_SIZE <= _SMALL_BYTES:
            data = data[0 : count * self.ENTRY_SIZE]
        self._data, self.count = data, count

    def in_use(self) -> bytes:
        """Return the entries in use, as they are in the file."""
        return bytes(self._data[0 : self.count * self.ENTRY_SIZE]) if self.count else b""

    def _entry_bytes(self, number: int) -> bytes | bytearray:
        start = number * self.ENTRY_SIZE
        entry = self._data[start : start + self.ENTRY_SIZE]
        # If the file was cut since, the entry is gone; zeros stand for it.
        return entry if len(entry) == self.ENTRY_SIZE else bytes(self.ENTRY_SIZE)

    def _used_entries(self, descriptor: int, capacity: int) -> int:
        size = self.ENTRY_SIZE
        zeros = bytes(size)

        def is_used(entry: int) -> bool:
            return os.pread(descriptor, size, entry * size).rstrip(b"\0") != b""

        if capacity == 0 or os.pread(descriptor, size, (capacity - 1) * size) != zeros:
            return capacity
        # Most of a preallocated file is not used: the end is near its beginning.
        low = high = 0
        while high < capacity - 1 and is_used(high):
            low, high = high + 1, min(2 * high + 1, capacity - 1)
        while low < high:
            middle = (low + high) // 2
            if is_used(middle):
                low = middle + 1
            else:
                high = middle
        return low

    def _floor(self, key: bytes, column: int = 0) -> int:
        """Return the number of the last entry whose column is at most `key`, or -1.

        Non-negative integers sort as their big-endian bytes do, so the search unpacks nothing.
        """
        first, data, count = self._narrowed(key, column)
        return first + floor_entry(data, count, self.ENTRY_SIZE, column, key)

    def _narrowed(self, key: bytes, column: int = 0, more: int = 0) -> tuple[int, mmap.mmap | bytes | bytearray, int]:
        """Return entries among which the one for a key is: the number of the first, their bytes, how many they are.

        Of a file that is not mapped these are few; `more` after them are among them, where there are any.
        """
        data, size, count = self._data, self.ENTRY_SIZE, self.count
        if isinstance(data, FileBytes) and data.read_bytes >= count * size <= _HELD_BYTES:
            # So many look-ups are at random. What reads on from one place needs a block or two.
            data = self._data = data[0 : count * size]
        if not isinstance(data, FileBytes):
            return 0, data, count
        low, high = 0, count - 1
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high + 1) // 2
            if data.probe(middle * size + column, len(key)) <= key:
                low = middle
            else:
                high = middle - 1
        end = min(high + 1 + more, count)
        return low, data[low * size : end * size], end - low

    def floor_entry_of_offset(self, offset: int) -> int:
        """Return the number of the last entry whose offset is at most `offset`, or -1 if there is none."""
        relative_offset = offset - self.base_offset
        if relative_offset < 0:
            return -1
        return self._floor(min(relative_offset, MAX_RELATIVE_OFFSET).to_bytes(4, "big"), self.OFFSET_COLUMN)

    def check_size(self) -> None:
        """Raise `CorruptIndexError` if the file's size is not a whole number of entries."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size % self.ENTRY_SIZE:
            raise CorruptIndexError(
                f"{size} bytes are not a multiple of the entry size {self.ENTRY_SIZE}", path=self.path, position=size
            )

    def close(self) -> None:
        """Close the file; the index reads as empty until `refresh`."""
        # A look-up in another thread may still use the mapping, which is closed after its last use.
        self.count = 0
        self._data = b""


Index = TypeVar("Index", bound=IndexFile)


class _NoFile(WritableFile):
    """The file of an index that is kept in memory only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0

    def write_at(self, position: int, data: Buffer) -> None:
        """Do nothing."""

    def truncate(self, size: int) -> None:
        """Do nothing."""

    def sync(self) -> None:
        """Do nothing."""


class WritableIndexFile(Generic[Index]):
    """An index that grows with its segment: preallocated, appended to in place, cut to its used size when closed.

    Its entries are kept in memory too. They are looked up there, so that no growing file has to be mapped.

    Args:
        path: The file.
        base_offset: The segment's base offset.
        max_index_size_bytes: `segment.index.bytes`, which the file is preallocated to.
        files: The file system to write through.

    Attributes:
        path: The file; if it exists, its entries are kept.
        base_offset: The segment's base offset.
        entries: The entries, as they are in the file; there may be more than are in use.
        count: How many entries are in use.
        is_full: Whether there is no room for another entry, apart from the one that is reserved for the roll.
    """

    _kind: type[Index]
    _kept_entries = 0
    """How many entries are reserved for the roll."""

    def __init__(self, path: Path, base_offset: int, max_index_size_bytes: int, files: FileSystem = FILES) -> None:
        self._begin(self._kind(path, base_offset), files.open(path), max_index_size_bytes)

    @classmethod
    def in_memory(cls, path: Path, base_offset: int) -> Self:
        """Return an index without entries, for a file that is written later; it is never full."""
        index = cls.__new__(cls)
        reader = cls._kind.of(path, base_offset, b"", 0)
        index._begin(reader, _NoFile(path), MAX_RELATIVE_OFFSET * reader.ENTRY_SIZE)
        return index

    def _begin(self, reader: Index, file: WritableFile, max_index_size_bytes: int) -> None:
        self.path = reader.path
        self.base_offset = reader.base_offset
        self.entries = bytearray(reader.in_use())
        self.count = reader.count
        self._take_last()
        self._file = file
        self.resize(max_index_size_bytes)

    def _take_last(self) -> None:
        """Note the last entry, since the next one must be greater."""
        raise NotImplementedError

    @property
    def _current(self) -> Index:
        return self._kind.of(self.path, self.base_offset, self.entries, self.count)

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
        position = self.count * self._kind.ENTRY_SIZE
        if len(self.entries) > position:
            del self.entries[position:]
        self.entries += entry
        self._file.write_at(position, entry)
        self._use(self.count + 1)

    def _use(self, count: int) -> None:
        self.is_full = count >= self._max_entries - self._kept_entries
        self.count = count

    def go_back(self, count: int) -> None:
        """Keep only the first entries in use: the others were written for an append that was not completed."""
        if self.count != count or len(self.entries) != count * self._kind.ENTRY_SIZE:
            self._use(count)
            del self.entries[count * self._kind.ENTRY_SIZE :]
            self._take_last()

    def resize(self, max_index_size_bytes: int) -> None:
        """Give the file its preallocated size, rounded down to whole entries; never less than the entries in use."""
        size = self._kind.ENTRY_SIZE
        # Kafka accepts a segment.index.bytes below the size of an entry, and then cannot roll.
        least = 1 if max_index_size_bytes else 0
        self._max_entries = max(max_index_size_bytes // size, self.count, least)
        self._use(self.count)
        if self._file.size != self._max_entries * size:
            self._file.truncate(self._max_entries * size)

    def trim(self) -> None:
        """Cut the file after its entries, as when the segment is rolled."""
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
