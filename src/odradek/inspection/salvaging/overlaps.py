"""Finds the segments of a log that hold the same offsets, and puts their batches into one order.

    0.log     | 0..4 | 5..9 |             copies of a folder put together, a crash between two steps
    5.log            | 5..9 | 8..11 |
    written   | 0..4 | 5..9 | 10..11 |    each offset once

The first batch in the order of offsets, then of segments, is the one that is written; of a batch that begins before the
end of that, the rest is.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from typing_extensions import Buffer

from odradek.errors import FormatError
from odradek.inspection.batches import batches_and_damage, wrapper_length
from odradek.inspection.finding import Finding
from odradek.inspection.index_evidence import IndexEvidence
from odradek.inspection.live_segments import LiveSegment, find_end
from odradek.inspection.log_files import PartitionFolder
from odradek.inspection.offset_order import OffsetOrder, SegmentPlace
from odradek.records import BatchHeader
from odradek.records.scan import scan_batches
from odradek.storage.names import SWAP_SUFFIX
from odradek.storage.segment.batch_reader import BatchReader, is_damaged, mapped


@dataclass(slots=True)
class SoundBatch:
    """A batch whose checksum holds, of one of several segments.

    Attributes:
        number: The number of the segment.
        header: Its header, with the right base offset.
        start: Its first offset, also of a wrapper (v0, v1).
        misplaced: The finding, if its base offset was wrong.
    """

    number: int
    header: BatchHeader
    start: int
    misplaced: Finding | None


def first_offset(data: Buffer, header: BatchHeader) -> int:
    """Return the first offset of a batch; of a wrapper that cannot be read the last one."""
    return header.next_offset - (wrapper_length(data, header) or 1) if header.is_wrapper else header.base_offset


def chains(segments: Sequence[LiveSegment], *, is_dense: bool) -> Iterator[tuple[list[LiveSegment], int | None]]:
    """Yield the segments of a log in groups: those that hold offsets of each other together, most of them alone.

    With each group comes the base offset of the segment after it, None for the last one.
    """
    chain: list[LiveSegment] = []
    reach = 0
    for number, segment in enumerate(segments):
        if chain and reach <= segment.base_offset:
            yield chain, segment.base_offset
            chain = []
        chain.append(segment)
        if number + 1 < len(segments):
            reach = max(reach, _reach(segments, number, is_dense=is_dense))
    if chain:
        yield chain, None


def _reach(segments: Sequence[LiveSegment], number: int, *, is_dense: bool) -> int:
    """Return the offset after the last one that a segment holds, if that is beyond the base of the next one.

    A batch beyond it, which no checksum of its base offset proves, counts if a later segment has a copy of it, or if
    there is no room for it elsewhere.
    """
    segment, following = segments[number], segments[number + 1].base_offset
    try:
        end = find_end(segment)
        if end.damage is None and end.next_offset <= following:
            return 0
        with mapped(segment.path) as data:
            copied = _copied(segment, data, segments[number + 1 :])
            return max(copied, _placed(segment, data, following, is_dense=is_dense))
    except (FormatError, OSError):
        # Whoever reads it reports that.
        return 0


def with_replaced(folder: PartitionFolder, segments: list[LiveSegment]) -> list[LiveSegment]:
    """Add the segments that damaged `.swap` segments are to replace: they may have what those have lost.

    Args:
        folder: The partition.
        segments: The segments of its log.
    """
    swapped = [segment for segment in segments if segment.path.suffix == SWAP_SUFFIX]
    if not any(map(_may_lack_records, swapped)):
        return segments
    known = {segment.path for segment in segments}
    replaced = [LiveSegment(file.path, file.base_offset) for file in folder.segments if file.path not in known]
    return sorted([*replaced, *segments], key=lambda segment: segment.base_offset)


def _may_lack_records(segment: LiveSegment) -> bool:
    try:
        return is_damaged(segment.path)
    except (FormatError, OSError):
        return True


def goes_back(segment: LiveSegment) -> bool:
    """Whether a segment has batches that start below the end of those before them."""
    try:
        with mapped(segment.path) as data:
            # Without checksums that is seen at once in nearly all segments.
            headers = scan_batches(data, check_crc=False)
            if not _goes_back(headers) and headers.damage is None:
                return False
            return _goes_back(BatchReader(segment.path, data, lambda damage: None))
    except (FormatError, OSError):
        # Whoever reads it reports that.
        return False


def _goes_back(headers: Iterable[BatchHeader]) -> bool:
    end = 0
    for header in headers:
        if header.base_offset < end:
            return True
        end = header.next_offset
    return False


def _copied(segment: LiveSegment, data: mmap.mmap | bytes, later: Sequence[LiveSegment]) -> int:
    beyond = {
        item.identity: item.next_offset
        for item in batches_and_damage(segment.path, data)
        if isinstance(item, BatchHeader) and item.last_offset >= later[0].base_offset
    }
    end, reach = max(beyond.values(), default=0), 0
    for other in later:
        if other.base_offset >= end:
            break
        try:
            with mapped(other.path) as copies:
                scan = scan_batches(copies, check_crc=False)
                reach = max(reach, *(beyond.get(header.identity, 0) for header in scan), 0)
        except (FormatError, OSError):
            continue
    return reach


def _placed(segment: LiveSegment, data: mmap.mmap | bytes, following: int, *, is_dense: bool) -> int:
    place = SegmentPlace(segment.path, segment.base_offset, following, is_dense=is_dense)
    evidence = IndexEvidence.beside(segment.path, segment.base_offset)
    try:
        order = OffsetOrder(place, evidence, data, reads_wrappers=True)
        items = order.batches(batches_and_damage(segment.path, data))
        return max((item.next_offset for item in items if isinstance(item, BatchHeader)), default=0)
    finally:
        evidence.close()


class Kept:
    """Which offsets have been written, and which batches."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._batches: set[tuple[int, int, int]] = set()

    def add(self, header: BatchHeader, start: int) -> None:
        """Note a batch that was written; its start is not below the end of the one before it."""
        if not self._ends or start > self._ends[-1]:
            self._starts.append(start)
            self._ends.append(header.next_offset)
        self._ends[-1] = header.next_offset
        self._batches.add(header.identity)

    def __contains__(self, header: BatchHeader) -> bool:
        """Whether a copy of a batch was written."""
        return header.identity in self._batches

    def covers(self, start: int, end: int) -> bool:
        """Whether all offsets of a range were written."""
        number = bisect_right(self._starts, start) - 1
        return start >= end or (number >= 0 and end <= self._ends[number])
