"""Reads some records of a partition, of a folder or a broker, and no more bytes than a page may take."""

from __future__ import annotations

from typing import NamedTuple

from odradek.errors import FormatError
from odradek.places.path import PathPlace
from odradek.places.place import Place
from odradek.records import Record
from odradek.records.isolation import Isolation
from odradek.sources.growing_partition import growing_partition
from odradek.storage.names import TopicPartition

_SLICE_BYTES = 1 << 20
_PAGE_BYTES = 8 << 20
_CONTENT_BYTES = 4 << 20
_LARGEST_BATCH_BYTES = 64 << 20


class ReadRecords(NamedTuple):
    """Records of one partition.

    Attributes:
        records: The records.
        start_offset: The log start offset.
        end_offset: The end of what is given.
        next_offset: Where the next page begins.
        notes: What is damaged, or too large for a page.
        is_too_large: Whether a batch that is too large comes next.
    """

    records: list[Record]
    start_offset: int
    end_offset: int
    next_offset: int
    notes: list[str]
    is_too_large: bool = False


def read_last(place: Place, name: TopicPartition, count: int, isolation: Isolation) -> ReadRecords:
    """Return the last records of a partition."""
    notes: list[str] = []
    partition = growing_partition(place, name, isolation, notes.append)
    start, end = partition.log_start_offset, partition.end_offset(isolation)
    # A batch that no page shows would be read for its last records only.
    _, is_too_large = _bounded(place, name, max(start, end - count), end)
    records = [] if is_too_large else partition.last(count)
    partition.report_end()
    if is_too_large:
        notes.append(_TOO_LARGE)
    return ReadRecords(records, start, end, end, notes)


def read_from(place: Place, name: TopicPartition, offset: int, count: int, isolation: Isolation) -> ReadRecords:
    """Return records from an offset on, or from the first that there is after it."""
    notes: list[str] = []
    partition = growing_partition(place, name, isolation, notes.append)
    first, end = partition.log_start_offset, partition.end_offset(isolation)
    start = min(max(offset, first), end)
    stop, is_too_large = _bounded(place, name, start, end)
    records: list[Record] = []
    size, next_offset = 0, stop
    if start < stop:
        for record in partition.read(start, stop, isolation=isolation):
            if len(records) >= count or size > _CONTENT_BYTES:
                next_offset = record.offset or 0
                break
            records.append(record)
            size += len(record.key or b"") + len(record.value or b"")
    if next_offset >= end:
        partition.report_end()
    is_too_large = is_too_large and next_offset == stop
    if is_too_large:
        notes.append(f"{_TOO_LARGE} Offset {stop} is in it.")
    return ReadRecords(records, first, end, next_offset, notes, is_too_large)


_TOO_LARGE = f"A batch of more than {_LARGEST_BATCH_BYTES >> 20} MiB is not shown here: odradek dump shows it."


def _bounded(place: Place, name: TopicPartition, start: int, end: int) -> tuple[int, bool]:
    """Return up to where a page may read, and whether a batch that is too large for a page comes there.

    Of a folder the headers of batches tell it. What a broker may send at once is limited by its own settings.
    """
    if not isinstance(place, PathPlace) or start >= end:
        return end, False
    seen = 0
    try:
        for part in place.slices(name, start, end, slice_bytes=_SLICE_BYTES):
            if part.size_bytes > _LARGEST_BATCH_BYTES:
                return max(start, _first_offset(part.batches)), True
            if seen > _PAGE_BYTES:
                return max(start + 1, _first_offset(part.batches)), False
            seen += part.size_bytes
    except FormatError:
        # What is damaged is reported when it is read.
        return end, False
    return end, False


def _first_offset(batches: memoryview) -> int:
    return int.from_bytes(batches[:8], "big")
