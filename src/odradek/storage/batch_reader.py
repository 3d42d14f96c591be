"""Reads the batches of a file, going on after damage, and leaves the page cache as it found it.

    | batch | batch | damage ............ | batch | batch | torn tail
                      ^ reported            ^ the next batch whose checksum holds

A broker beside us lives from the page cache: what was not in it before we came is dropped behind us, and what was is
left there.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from odradek.errors import FormatError, TruncatedBatchError
from odradek.records import BatchHeader, scan_batches
from odradek.records.resync import find_batch

WINDOW_BYTES = 16 << 20
"""After how many bytes the pages behind are let go."""

_PROBE_BYTES = 1 << 20


class Damage(NamedTuple):
    """Bytes of a file that cannot be read.

    Attributes:
        path: The file.
        position: Where they start.
        size_bytes: How many they are: up to the next good batch, or the end of the file.
        reason: What is wrong with them.
        is_truncation: Whether the file ends in the midst of a batch.
    """

    path: Path
    position: int
    size_bytes: int
    reason: str
    is_truncation: bool = False

    def __str__(self) -> str:
        return f"{self.path}: position {self.position}: {self.size_bytes} bytes not read: {self.reason}"


@contextmanager
def mapped(path: Path) -> Iterator[mmap.mmap | bytes]:
    """Map a file for reading, from one end to the other; an empty one is `b""`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if not size:
            yield b""
            return
        data = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        cold = not _is_cached(descriptor, size)
        try:
            data.madvise(mmap.MADV_SEQUENTIAL)
            yield data
        finally:
            if cold:
                data.madvise(mmap.MADV_DONTNEED)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            # A view that an error still holds keeps the mapping, which goes with it.
            with suppress_exported_pointers():
                data.close()
    finally:
        os.close(descriptor)


@contextmanager
def suppress_exported_pointers() -> Iterator[None]:
    """Let go of a mapping that somebody still looks into."""
    try:
        yield
    except BufferError:
        return


def _is_cached(descriptor: int, size: int) -> bool:
    """Whether some of a file is in the page cache already; where the system does not say, it is taken to be."""
    probe = [bytearray(1)]
    for position in range(0, size, _PROBE_BYTES):
        try:
            os.preadv(descriptor, probe, position, os.RWF_NOWAIT)
        except BlockingIOError:
            continue
        except OSError:
            return True
        return True
    return False


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

    def __iter__(self) -> Iterator[BatchHeader]:
        position, end, next_offset = self._position, len(self._data), 0
        while position < end:
            scan = scan_batches(self._data, position, path=self._path)
            for header in scan:
                next_offset = header.next_offset
                yield header
                self._release(header.end_position)
            if scan.damage is None:
                return
            position, kept = scan.position, None
            if self._keep_bad_checksums:
                kept = next(iter(scan_batches(self._data, position, check_crc=False)), None)
            if kept is None:
                found = find_batch(self._data, position + 1, minimum_offset=next_offset)
                after = end if found is None else found
            else:
                after = kept.end_position
            cut = found is None and isinstance(scan.damage, TruncatedBatchError) if kept is None else False
            self._report(Damage(self._path, position, after - position, scan.damage.reason, cut))
            if kept is not None:
                yield kept
            position = after

    def _release(self, position: int) -> None:
        """Let the pages go that lie behind, out of this process."""
        data = self._data
        if position - self._released >= WINDOW_BYTES and isinstance(data, mmap.mmap):
            start = self._released - self._released % mmap.PAGESIZE
            length = (position - start) - (position - start) % mmap.PAGESIZE
            data.madvise(mmap.MADV_DONTNEED, start, length)
            self._released = position


def damage_of(path: Path, header: BatchHeader, error: FormatError) -> Damage:
    """Return the damage of a batch whose checksum holds and whose records cannot be read."""
    return Damage(path, header.position, header.size_bytes, error.reason)
