"""Reads the batches of a file and the damage between them, and verifies those of files that are not part of a log."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from odradek.buffers import Buffer
from odradek.errors import FormatError
from odradek.inspection.finding import Finding, FindingKind
from odradek.inspection.log_files import LogFile
from odradek.records import BatchHeader, scan_batches
from odradek.records.batch import check_section, each_record
from odradek.records.compression import MAX_DECOMPRESSED_BYTES, Decompressor
from odradek.records.header import claimed_size
from odradek.records.large_section import open_section
from odradek.storage.segment.batch_reader import BatchReader, Damage, damage_of, mapped

_CHUNK_BYTES = 1 << 20
_SIGN = 0x80


def batches_and_damage(path: Path, data: mmap.mmap | bytes) -> Iterator[BatchHeader | Damage]:
    """Yield the batches of a file, and the damage between them, in the order of their positions."""
    damages: list[Damage] = []
    for header in BatchReader(path, data, damages.append):
        yield from damages
        damages.clear()
        yield header
    yield from damages


def active_batches(
    path: Path, data: mmap.mmap | bytes, *, is_preallocated: bool = False
) -> Iterator[BatchHeader | Damage]:
    """Yield the batches of a log's last segment, which a program may be writing to, and the damage between them.

    Args:
        path: The file.
        data: Its bytes.
        is_preallocated: Whether zeros at the end are preallocated space, and not damage.
    """
    for item in batches_and_damage(path, data):
        if isinstance(item, Damage):
            # An incomplete last batch may be complete a moment later.
            if item.is_truncation and path.stat().st_size > len(data):
                continue
            if is_preallocated and item.position + item.size_bytes == len(data) and _is_zero(data, item.position):
                continue
        yield item


def _is_zero(data: mmap.mmap | bytes, position: int) -> bool:
    return all(not any(data[start : start + _CHUNK_BYTES]) for start in range(position, len(data), _CHUNK_BYTES))


def salvageable(
    path: Path, data: mmap.mmap | bytes, *, is_last: bool, is_preallocated: bool = False
) -> Iterator[BatchHeader | Damage]:
    """Yield the batches of a segment, also those whose base offset is negative by one bit, and the damage between.

    Args:
        path: The file.
        data: Its bytes.
        is_last: Whether it is the log's last segment, which a program may be writing to.
        is_preallocated: Whether zeros at the end of the last one are preallocated space, and not damage.
    """
    items = active_batches(path, data, is_preallocated=is_preallocated) if is_last else batches_and_damage(path, data)
    for item in items:
        yield (_without_sign(data, item) or item) if isinstance(item, Damage) else item


def _without_sign(data: mmap.mmap | bytes, damage: Damage) -> BatchHeader | None:
    """Return the batch that bytes are whose base offset is negative: without that bit it is one; None if it is not.

    No checksum covers the base offset, and no log has a negative one.
    """
    start, end = damage.position, damage.position + damage.size_bytes
    if claimed_size(data, start) != damage.size_bytes or data[start] < _SIGN:
        return None
    header = next(iter(scan_batches(bytes([data[start] - _SIGN]) + data[start + 1 : end])), None)
    return None if header is None else header._replace(position=start)


def wrapper_length(data: Buffer, header: BatchHeader) -> int | None:
    """Return how many offsets a wrapper spans; None if it cannot be read, or does not say."""
    first = last = None
    try:
        for number, record in enumerate(each_record(data, header)):
            first, last = record.offset if number == 0 else first, record.offset
    except FormatError:
        return None
    return None if first is None or last is None or last < first else last - first + 1


class Copies:
    """Which batches of a file have a copy before them.

    The file is read when this is asked for the first time.

    Args:
        path: The file.
        data: Its bytes.
    """

    def __init__(self, path: Path, data: mmap.mmap | bytes) -> None:
        self._path, self._data = path, data
        self._first: dict[tuple[int, int, int], int] | None = None

    def __contains__(self, header: object) -> bool:
        if not isinstance(header, BatchHeader):
            return False
        if self._first is None:
            # Only of batches that start below others something is kept, for there are millions.
            end, again = 0, set[tuple[int, int, int]]()
            for item in self._batches():
                if item.base_offset < end:
                    again.add(item.identity)
                end = max(end, item.next_offset)
            self._first = {}
            for item in self._batches() if again else ():
                if item.identity in again:
                    self._first.setdefault(item.identity, item.position)
        return self._first.get(header.identity, header.position) < header.position

    def _batches(self) -> Iterator[BatchHeader]:
        return (item for item in batches_and_damage(self._path, self._data) if isinstance(item, BatchHeader))


def damage_finding(damage: Damage) -> Finding:
    """Return the finding for bytes that cannot be read."""
    reason = f"{damage.size_bytes} bytes not read: {damage.reason}"
    return Finding(damage.path, damage.position, FindingKind.DAMAGE, reason)


class RecordCheck:
    """Reads records to see whether they can be read, and makes no object of any. It belongs to one thread at a time."""

    def __init__(self) -> None:
        self._decompressor = Decompressor(MAX_DECOMPRESSED_BYTES)

    def batch(self, data: Buffer, header: BatchHeader) -> None:
        """Read the records of the batch at `header.position`.

        Raises:
            CorruptRecordError: As `read_records` raises it.
        """
        if header.magic == 2:
            check_section(open_section(data, header, self._decompressor), header)
        else:
            each_record(data, header)


class LooseBatches:
    """The batches of a file that is not, or not yet, a segment of a log: a leftover.

    Args:
        file: The file.
        decode: Whether to decode every record too.

    Attributes:
        batches: How many batches were read.
    """

    def __init__(self, file: LogFile, *, decode: bool) -> None:
        self._path = file.path
        self._records = RecordCheck() if decode else None
        self.batches = 0

    def findings(self) -> Iterator[Finding]:
        """Yield what is damaged.

        Raises:
            FormatError: It is not a regular file.
            OSError: It cannot be read.
        """
        with mapped(self._path) as data:
            for item in batches_and_damage(self._path, data):
                if isinstance(item, Damage):
                    yield damage_finding(item)
                    continue
                self.batches += 1
                if self._records is not None:
                    try:
                        self._records.batch(data, item)
                    except FormatError as error:
                        yield damage_finding(damage_of(self._path, item, error))
