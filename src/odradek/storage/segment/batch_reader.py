"""Reads the batches of a file, continues after damage, and leaves the page cache as it found it.

    | batch | batch | damage ............ | batch | batch | torn tail
                      ^ reported            ^ the next batch whose checksum holds

It spares the page cache, on which a broker on the same machine relies: pages that were not in it before are dropped
once they are read, and the others stay.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from odradek import system
from odradek.errors import FormatError, TruncatedBatchError
from odradek.records import BatchHeader, scan_batches
from odradek.records.header import LOG_OVERHEAD, claimed_size
from odradek.records.kernels.batches import BatchTable, walk_batches
from odradek.records.resync import find_batch
from odradek.storage.readable_bytes import ReadableBytes
from odradek.storage.regular_files import open_file
from odradek.storage.system_errors import raise_unless_of_system

WINDOW_BYTES = 16 << 20
"""After how many bytes the pages that were read are released."""

UNREADABLE = "the disk does not give these bytes"

_PROBE_BYTES = 1 << 20


class Damage(NamedTuple):
    """Bytes of a file that cannot be read.

    Attributes:
        path: The file.
        position: Where they start.
        size_bytes: How many they are: up to the next good batch, or the end of the file.
        reason: What is wrong with them.
        is_truncation: Whether the file ends in the middle of a batch.
    """

    path: Path
    position: int
    size_bytes: int
    reason: str
    is_truncation: bool = False

    def __str__(self) -> str:
        return f"{self.path}: position {self.position}: {self.size_bytes} bytes not read: {self.reason}"


@contextmanager
def mapped(path: Path, most_bytes: int | None = None) -> Iterator[mmap.mmap | bytes]:
    """Map a file for reading, or its first bytes; an empty one is `b""`.

    Args:
        path: The file.
        most_bytes: How many bytes at most; all of them if None.

    Raises:
        FormatError: It is not a regular file, or was cut while it was opened.
        OSError: It cannot be read.
    """
    with open_file(path) as file:
        descriptor = file.fileno()
        size = os.fstat(descriptor).st_size
        if most_bytes is not None:
            size = min(size, most_bytes)
        if not size:
            yield b""
            return
        try:
            data = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise FormatError("it was cut while it was opened", path=path) from error
        cold = not _is_cached(descriptor, size)
        try:
            data.madvise(mmap.MADV_SEQUENTIAL)
            yield data
        finally:
            if cold:
                data.madvise(mmap.MADV_DONTNEED)
                system.drop_from_page_cache(descriptor)
            # A view that an error still holds keeps the mapping, which goes with it.
            with suppress_exported_pointers():
                data.close()


def is_damaged(path: Path) -> bool:
    """Whether a file has bytes that are no sound batch.

    Raises:
        FormatError: It is not a regular file.
        OSError: It cannot be read.
    """
    with mapped(path) as data:
        scan = scan_batches(data, path=path)
        for _ in scan:
            pass
        return scan.damage is not None


@contextmanager
def suppress_exported_pointers() -> Iterator[None]:
    """Suppress the error of closing a mapping that is still in use."""
    try:
        yield
    except BufferError:
        return


def _is_cached(descriptor: int, size: int) -> bool:
    """Whether some of a file is in the page cache already; where the system does not say, it is taken to be."""
    try:
        return any(system.is_in_page_cache(descriptor, position) for position in range(0, size, _PROBE_BYTES))
    except OSError as error:
        raise_unless_of_system(error)
        return True


class BatchReader:
    """An iterator over the batches of a file that steps over damage.

    Args:
        path: The file.
        data: Its bytes.
        report: Is given each damage.
        position: Where to start.
        keep_bad_checksums: Whether a batch whose checksum does not hold is given like any other, after its report.
    """

    def __init__(
        self,
        path: Path,
        data: mmap.mmap | bytes,
        report: Callable[[Damage], None],
        position: int = 0,
        *,
        keep_bad_checksums: bool = False,
    ) -> None:
        self._path = path
        self._data = data
        self._report = report
        self._position = position
        self._released = position
        self._keep_bad_checksums = keep_bad_checksums
        self._readable = ReadableBytes(data)
        self._last_end = -1
        self._next_offset = 0

    def __iter__(self) -> Iterator[BatchHeader]:
        for table, _ in self.tables():
            for index in range(len(table)):
                yield table.header(index)

    def tables(self) -> Iterator[tuple[BatchTable, bool]]:
        """Yield the headers of consecutive batches, and whether their checksums hold."""
        data, position, size = self._data, self._position, len(self._data)
        end = position
        while position < size:
            if end <= position:
                end = self._readable.end(position, min(size, position + WINDOW_BYTES))
            if end == position:
                end = position = self._step_over(position, position, UNREADABLE)
                continue
            scan = scan_batches(data, position, end, path=self._path)
            for table in scan.tables():
                # A batch that does not go on where the one before it ends may have a wrong base offset, which no
                # checksum covers: after damage, batches would be looked for beyond it in vain.
                self._last_end, self._next_offset = table.trusted_end(self._last_end, self._next_offset)
                yield table, True
                self._release(table.stop_position)
            position = scan.position
            if scan.damage is None:
                continue
            needed = self._needed(position) if isinstance(scan.damage, TruncatedBatchError) else 0
            if end < size and end < needed:
                # The batch goes on beyond what was looked at so far, or beyond the end: only its length is looked at.
                end = self._readable.end(end, needed) if needed <= size else size
                if end < min(needed, size):
                    end = position = self._step_over(position, end, UNREADABLE)
                continue
            kept = None
            if self._keep_bad_checksums:
                kept = walk_batches(data, position, end, 1, check_crc=False)
            if kept:
                self._report(Damage(self._path, position, kept.size_bytes, scan.damage.reason))
                yield kept, False
                position = kept.stop_position
            else:
                is_truncation = isinstance(scan.damage, TruncatedBatchError)
                position = self._step_over(position, position + 1, scan.damage.reason, is_truncation=is_truncation)
                end = position

    def _needed(self, position: int) -> int:
        """Return up to where a batch must be readable for more to be said of it."""
        head_end = position + LOG_OVERHEAD + 5
        if head_end > len(self._data) or self._readable.end(position, head_end) < head_end:
            return head_end
        return position + claimed_size(self._data, position)

    def _step_over(self, position: int, search_from: int, reason: str, *, is_truncation: bool = False) -> int:
        """Report what starts at a position, and return where the next batch starts, or the end of the file."""
        found = self._find(search_from)
        after = len(self._data) if found is None else found
        self._report(Damage(self._path, position, after - position, reason, is_truncation and found is None))
        return after

    def _find(self, position: int) -> int | None:
        size = len(self._data)
        while position < size:
            end = self._readable.end(position, min(size, position + 2 * WINDOW_BYTES))
            if end == position:
                position = self._readable.next(position)
                continue
            is_cut = end < min(size, position + 2 * WINDOW_BYTES)
            # What lies beyond is only looked at for a batch that is longer than a window.
            stop = end if is_cut or end == size else end - WINDOW_BYTES
            limit = end if is_cut else size
            found = find_batch(self._data, position, limit, stop=stop, minimum_offset=self._next_offset)
            if found is not None:
                return found
            position = stop
            self._release(position)
        return None

    def _release(self, position: int) -> None:
        """Let the pages go that were read, out of this process."""
        data = self._data
        if position - self._released >= WINDOW_BYTES and isinstance(data, mmap.mmap):
            start = self._released - self._released % mmap.PAGESIZE
            length = (position - start) - (position - start) % mmap.PAGESIZE
            data.madvise(mmap.MADV_DONTNEED, start, length)
            self._released = position


def damage_of(path: Path, header: BatchHeader, error: FormatError) -> Damage:
    """Return the damage of a batch whose checksum holds and whose records cannot be read."""
    return Damage(path, header.position, header.size_bytes, error.reason)
