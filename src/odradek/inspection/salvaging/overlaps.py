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
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from odradek.buffers import Buffer
from odradek.errors import FormatError
from odradek.inspection.batches import batches_and_damage, salvageable, wrapper_length
from odradek.inspection.index_evidence import IndexEvidence
from odradek.inspection.live_segments import LiveSegment, find_end
from odradek.inspection.log_files import PartitionFolder
from odradek.inspection.offset_order import OffsetOrder, SegmentPlace
from odradek.records import BatchHeader, Record
from odradek.records.batch import each_record
from odradek.records.scan import scan_batches
from odradek.storage.names import SWAP_SUFFIX
from odradek.storage.segment.batch_reader import is_damaged, mapped


class Chain(NamedTuple):
    """Segments of a log that hold offsets of each other; most are alone.

    Attributes:
        segments: They.
        following: The base offset of the segment after them; None if there is none.
        disordered: The paths of those whose batches start again below the end of those before them.
    """

    segments: list[LiveSegment]
    following: int | None
    disordered: frozenset[Path]

    @property
    def is_in_order(self) -> bool:
        """Whether the batches are written in the order in which they are read."""
        return len(self.segments) == 1 and not self.disordered


def first_offset(data: Buffer, header: BatchHeader) -> int:
    """Return the first offset of a batch; of a wrapper that cannot be read the last one."""
    return header.next_offset - (wrapper_length(data, header) or 1) if header.is_wrapper else header.base_offset


def chains(segments: Sequence[LiveSegment], *, is_dense: bool) -> Iterator[Chain]:
    """Yield the segments of a log in chains: those that hold offsets of each other together."""
    chain = list[LiveSegment]()
    disordered = set[Path]()
    reach = 0
    for number, segment in enumerate(segments):
        lowest = _lowest_out_of_order(segment)
        if chain and reach <= segment.base_offset and not (lowest is not None and lowest < segment.base_offset):
            yield Chain(chain, segment.base_offset, frozenset(disordered))
            chain = []
            disordered.clear()
        chain.append(segment)
        if lowest is not None:
            disordered.add(segment.path)
        if number + 1 < len(segments):
            reach = _reach(segments, number, reach, is_dense=is_dense, is_disordered=lowest is not None)
    if chain:
        yield Chain(chain, None, frozenset(disordered))


def _reach(segments: Sequence[LiveSegment], number: int, reach: int, *, is_dense: bool, is_disordered: bool) -> int:
    """Return the offset after the last one that a segment holds, or those before it, if it is beyond the next base.

    A batch beyond it, which no checksum of its base offset proves, counts if a later segment has a copy of it, or if
    there is no room for it elsewhere.
    """
    segment, following = segments[number], segments[number + 1].base_offset
    try:
        if not is_disordered:
            end = find_end(segment)
            if end.damage is None and end.next_offset <= following:
                return reach
        with mapped(segment.path) as data:
            copied = _copied(segment, data, segments[number + 1 :], reach)
            ends = _placed(segment, data, following, is_dense=is_dense, is_disordered=is_disordered)
            # One batch that is far ahead of others is no reason to take all segments up to there together.
            farthest = segments[number + 2].base_offset if is_disordered and number + 2 < len(segments) else None
            return max([copied, *(end for end in ends if farthest is None or end <= farthest)])
    except (FormatError, OSError):
        # Whoever reads it reports that.
        return reach


def with_replaced(folder: PartitionFolder, segments: list[LiveSegment]) -> list[LiveSegment]:
    """Add the segments that `.swap` segments are to replace where these may lack records that those have.

    A `.swap` segment that is damaged may; and one whose last batch, whose offsets say which segments it replaces, ends
    where no batch of those does. No compaction takes the last segment of a log.

    Args:
        folder: The partition.
        segments: The segments of its log.
    """
    known = {segment.path for segment in segments}
    replaced = [LiveSegment(file.path, file.base_offset) for file in folder.segments if file.path not in known]
    is_doubtful, kept = False, list(segments)
    for segment in segments:
        if segment.path.suffix != SWAP_SUFFIX:
            continue
        old = [other for other in replaced if other.base_offset >= segment.base_offset]
        try:
            if is_damaged(segment.path):
                is_doubtful = True
            elif old and (segment is segments[-1] or not _ends_with_one_of(segment, old)):
                is_doubtful = True
                # The first one is removed first: so none is missing.
                if old[0].base_offset == segment.base_offset and not any(is_damaged(other.path) for other in old):
                    kept.remove(segment)
        except (FormatError, OSError):
            is_doubtful = True
    if not is_doubtful:
        return segments
    # Of the same base offset the replaced one, which has all records, comes first.
    return sorted([*replaced, *kept], key=lambda segment: segment.base_offset)


def _ends_with_one_of(segment: LiveSegment, replaced: Sequence[LiveSegment]) -> bool:
    """Whether the last batch of a compacted segment ends where one of a segment does that it replaces."""
    with mapped(segment.path) as data:
        last = next(iter(deque(scan_batches(data, check_crc=False), 1)), None)
    if last is None or last.magic < 2:
        # Of messages of old formats compaction may keep one in the middle of what was a batch.
        return True
    for segment in replaced:
        with mapped(segment.path) as data:
            ends = (header.next_offset for header in scan_batches(data, check_crc=False))
            end = next((end for end in ends if end >= last.next_offset), None)
        if end is not None:
            return end == last.next_offset
    # The segment that had it may be gone.
    return True


def _lowest_out_of_order(segment: LiveSegment) -> int | None:
    """Return the lowest offset of batches that start below the end of those before them; None if there are none."""
    try:
        with mapped(segment.path) as data:
            # Without checksums that is seen at once in nearly all segments.
            headers = scan_batches(data, check_crc=False)
            if min(_out_of_order(segment, data, headers), default=None) is None and headers.damage is None:
                return None
            items = salvageable(segment.path, data, is_last=False)
            sound = (item for item in items if isinstance(item, BatchHeader))
            return min(_out_of_order(segment, data, sound), default=None)
    except (FormatError, OSError):
        # Whoever reads it reports that.
        return None


def _out_of_order(segment: LiveSegment, data: mmap.mmap | bytes, headers: Iterable[BatchHeader]) -> Iterator[int]:
    end = segment.base_offset
    for header in headers:
        start = first_offset(data, header)
        if start < end:
            yield start
        end = header.next_offset


def _copied(segment: LiveSegment, data: mmap.mmap | bytes, later: Sequence[LiveSegment], known: int) -> int:
    """Return where those batches of a segment end that a later segment has, too, if that is beyond what is known."""
    beyond = {
        item.identity: item.next_offset
        for item in batches_and_damage(segment.path, data)
        if isinstance(item, BatchHeader) and item.last_offset >= later[0].base_offset
    }
    end, reach = max(beyond.values(), default=0), known
    for other in later if end > known else ():
        if other.base_offset >= end:
            break
        try:
            with mapped(other.path) as copies:
                scan = scan_batches(copies, check_crc=False)
                reach = max([reach, *(beyond.get(header.identity, 0) for header in scan)])
        except (FormatError, OSError):
            continue
    return reach


def _placed(
    segment: LiveSegment, data: mmap.mmap | bytes, following: int, *, is_dense: bool, is_disordered: bool
) -> Iterator[int]:
    """Yield where the batches of a segment end: if it is in order, as far as it tells where they belong."""
    evidence = IndexEvidence.beside(segment.path, segment.base_offset)
    items = salvageable(segment.path, data, is_last=False)
    try:
        if not is_disordered:
            place = SegmentPlace(segment.path, segment.base_offset, following, is_dense=is_dense)
            placed = OffsetOrder(place, evidence, data, reads_wrappers=True).batches(items)
            yield from (item.next_offset for item in placed if isinstance(item, BatchHeader))
            return
        yield from (item.next_offset for item in items if isinstance(item, BatchHeader))
    finally:
        evidence.close()


class Kept:
    """What has been written: which offsets, and which batches."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._identities: set[tuple[int, int, int]] = set()
        self._batches: list[tuple[int, Buffer, BatchHeader]] = []

    def add(self, header: BatchHeader, start: int, data: Buffer, written: BatchHeader) -> None:
        """Note a batch that was written; its start is not below the end of the one before it.

        Args:
            header: Its header in the source.
            start: The first offset that was written of it.
            data: What was written.
            written: Its header there.
        """
        if not self._ends or start > self._ends[-1]:
            self._starts.append(start)
            self._ends.append(header.next_offset)
        self._ends[-1] = header.next_offset
        self._identities.add(header.identity)
        self._batches.append((start, data, written))

    def __contains__(self, header: BatchHeader) -> bool:
        """Whether a copy of a batch was written."""
        return header.identity in self._identities

    def has_records_of(self, data: Buffer, header: BatchHeader, start: int, end: int) -> bool:
        """Whether the records of a batch with offsets in `[start, end)` were written, the same ones."""
        number = max(bisect_right(self._batches, start, key=itemgetter(0)) - 1, 0)
        there = dict[int | None, Record]()
        try:
            # Not by a slice, which would be made, or walked to, anew for each batch.
            for index in range(number, len(self._batches)):
                first, other, written = self._batches[index]
                if first >= end:
                    break
                there.update((record.offset, record) for record in each_record(other, written))
            return all(
                there.get(record.offset) == record
                for record in each_record(data, header)
                if record.offset is not None and start <= record.offset < end
            )
        except FormatError:
            return False

    def first_missing(self, start: int) -> int:
        """Return the first offset from one on that was not written."""
        number = bisect_right(self._starts, start) - 1
        return start if number < 0 else max(start, self._ends[number])

    def covers(self, start: int, end: int) -> bool:
        """Whether all offsets of a range were written."""
        return end <= self.first_missing(start)
