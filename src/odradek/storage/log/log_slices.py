"""Finds the batches of a log that hold an offset, or a range of offsets, while its segments are replaced or deleted.

    range [70, 190)     | segment 0..99        | segment 100..199     |
                                |-- slice --|   |-- slice --|-- sl..|       as the segments are when it gets there

Source in Kafka: `LocalLog.read`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from odradek.errors import FormatError, OffsetOutOfRangeError
from odradek.records.batch import read_record
from odradek.records.isolation import Isolation
from odradek.records.kernels.objects import Record
from odradek.storage.log.aborted_part import AbortedPart
from odradek.storage.log.readable_log import ReadableLog
from odradek.storage.log.replaced_files import retried
from odradek.storage.log.segment_search import SegmentSearch
from odradek.storage.log.transactions import AbortedRanges
from odradek.storage.segment.log_slice import LogSlice
from odradek.storage.segment.offset_lookup import FoundBatch, find_record, locate_batch
from odradek.storage.segment.segment import Segment

SLICE_BYTES = 64 << 20
"""About how much a slice holds, unless one batch is larger."""


def near_record(log: ReadableLog, search: SegmentSearch, offset: int, isolation: Isolation) -> Record | None:
    """Return the record at an offset if the index leads straight to it.

    None does not mean that there is no record: only reading the range tells.
    """
    takes_transactions = isolation == "read_uncommitted"
    try:
        found = _find(log, search, offset, takes_transactions)
        if found is None or isinstance(found, Record):
            return found
        if found.header.is_control:
            return None
        if found.header.is_transactional and not takes_transactions:
            aborted = AbortedRanges(log.aborted_transactions(offset, offset + 1))
            # As it is now: what it holds was in the log when it was asked what was aborted.
            found = _find(log, search, offset, takes_transactions)
            if found is None or isinstance(found, Record) or found.header in aborted:
                return None
        return read_record(found.data, found.header, offset, origin=found.origin)
    except (FileNotFoundError, FormatError):
        return None


def _find(log: ReadableLog, search: SegmentSearch, offset: int, takes_transactions: bool) -> Record | FoundBatch | None:
    segments = log.segments
    if not segments:
        return None
    return find_record(segments[search.number_of(segments, offset)], offset, takes_transactions)


def log_slices(
    log: ReadableLog,
    search: SegmentSearch,
    offset: int,
    end: int,
    slice_bytes: int,
    *,
    may_start_later: bool,
    first_bytes: int | None = None,
    aborted: AbortedPart | None = None,
) -> Iterator[LogSlice]:
    """Yield the slices of a range of offsets.

    Args:
        log: The log.
        search: Looks up its segments.
        offset: The first offset.
        end: The offset after the last one.
        slice_bytes: About how many bytes a slice has at most.
        may_start_later: Whether to continue at the log start offset if that moves above the first offset.
        first_bytes: About how many bytes the first slice has, from which on they grow.
        aborted: What is looked up for each segment before it is read.

    Raises:
        OffsetOutOfRangeError: The first offset is below the log start offset, and the range may not start later.
    """
    while True:
        found = retried(
            log, partial(_first_slices, log, search, offset, end, slice_bytes, may_start_later, first_bytes, aborted)
        )
        if found is None:
            return
        first, parts, offset = found
        if first is not None:
            yield first
            yield from parts
        first_bytes = None


def _first_slices(
    log: ReadableLog,
    search: SegmentSearch,
    offset: int,
    end: int,
    slice_bytes: int,
    may_start_later: bool,
    first_bytes: int | None,
    aborted: AbortedPart | None,
) -> tuple[LogSlice | None, Iterator[LogSlice], int] | None:
    """Return a segment's first slice, its others, and the offset to continue at; None at the end of the range."""
    start = log.log_start_offset
    if offset < start:
        if not may_start_later:
            raise out_of_range(log, offset)
        offset = start
    if offset >= end:
        return None
    parts, next_offset = _segment_slices(log, search, offset, end, slice_bytes, first_bytes, aborted)
    # Once the first slice has been made, the segment may be deleted: its file stays open.
    return next(parts, None), parts, next_offset


def _segment_slices(
    log: ReadableLog,
    search: SegmentSearch,
    offset: int,
    end: int,
    slice_bytes: int,
    first_bytes: int | None,
    aborted: AbortedPart | None,
) -> tuple[Iterator[LogSlice], int]:
    # A writer in this process replaces the list when it rolls or deletes.
    segments = log.segments
    number = search.number_of(segments, offset)
    segment = segments[number]
    if number + 1 == len(segments):
        whole = segment.end()
        segment_end_offset, next_offset, end_position = whole.next_offset, end, whole.position
    else:
        segment_end_offset = next_offset = segments[number + 1].base_offset
        end_position = segment.size_bytes
        if end > next_offset:
            next_offset = _end_of_copies(segments, search, number)
    if aborted is not None and not aborted.covers(offset, min(end, next_offset)):
        aborted.look_up(log, offset, min(end, next_offset))
        # The segments are those of now: what they hold was in the log when it was asked what was aborted.
        return _segment_slices(log, search, offset, end, slice_bytes, first_bytes, aborted)
    position = locate_batch(segment, offset)[1] if offset > segment.base_offset else 0
    following = segment_end_offset if number + 1 < len(segments) and end >= segment_end_offset else None
    if end < segment_end_offset:
        last, _ = locate_batch(segment, end - 1)
        if last is not None:
            # Where a wrapper of v0 or v1 begins, only its content tells.
            may_begin_before = last.base_offset < end or last.is_wrapper
            end_position = last.end_position if may_begin_before else last.position
    return segment.slices(position, end_position, slice_bytes, following, first_bytes), next_offset


def _end_of_copies(segments: Sequence[Segment], search: SegmentSearch, number: int) -> int:
    """Return where to go on after a sealed segment: at the next one, or after what later ones have copies of.

    A wrong base offset, which no checksum covers, has no copy: who reads finds that the next segment contradicts it.
    """
    segment, following = segments[number], segments[number + 1].base_offset
    end_offset = segment.end().next_offset
    if end_offset <= following:
        return following
    is_continued = segments[search.number_of(segments, end_offset)].base_offset == end_offset
    for offset in (following,) if is_continued else (following, end_offset - 1):
        here, _ = locate_batch(segment, offset)
        there, _ = locate_batch(segments[search.number_of(segments, offset)], offset)
        if here is None or there is None or here.identity != there.identity:
            return following
    return end_offset


def overlaps(log: ReadableLog, search: SegmentSearch) -> dict[int, int]:
    """Return by the base offset of a segment the offset that it is read from, where that is another one.

    Records below it are copies of those of an earlier segment, which are given.
    """
    segments = log.segments
    starts: dict[int, int] = {}
    start = 0
    for number, segment in enumerate(segments[1:]):
        start = max(start, _end_of_copies(segments, search, number))
        if start > segment.base_offset:
            starts[segment.base_offset] = start
    return starts


def out_of_range(log: ReadableLog, offset: int) -> OffsetOutOfRangeError:
    """Return the error for an offset that a log does not have."""
    return OffsetOutOfRangeError(offset, log.log_start_offset, log.log_end_offset, log=str(log.path))
