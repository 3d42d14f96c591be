"""Finds what a Fetch request asks for: a range of one segment's file, not of a log's records.

    fetch(70, max_bytes)     | 0..31 | 32..63 | 64..95 | 96..127 | ...       from the batch that holds the offset on,
                                              |<-- max_bytes -->|            as many bytes as are asked for

Nothing is decoded: a client drops the records before its offset, and the batch at the end that is cut short.

Source in Kafka: `LocalLog.read`, `LogSegment.read`, `ReplicaManager.readFromLog`.
"""

from __future__ import annotations

from odradek.errors import CorruptRecordError, LogError, OffsetOutOfRangeError
from odradek.storage.log.log import Log
from odradek.storage.log.segment_search import SegmentSearch
from odradek.storage.segment.file_records import FileRecords
from odradek.storage.segment.offset_lookup import locate_batch
from odradek.storage.segment.segment import Segment

_RETRIES = 100


def fetch_records(
    log: Log, search: SegmentSearch, offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool
) -> FileRecords | None:
    """Return the bytes of a log from the batch on that holds an offset, or follows it.

    Args:
        log: The log.
        search: Looks up its segments.
        offset: The offset.
        end_offset: No batch that begins at or above it is returned.
        max_bytes: How many bytes to return at most.
        at_least_one: Whether the first batch is returned even if it is larger.

    Returns:
        None if there is nothing below `end_offset`. No bytes if the first batch is larger than `max_bytes`: clients do
        not expect a part of it.

    Raises:
        CorruptRecordError: What holds the offset is no batch. Checksums are not verified: that is for clients.
        OffsetOutOfRangeError: The offset is below the log start offset, or above the log end offset.
        LogError: The log is closed, or its disk cannot be read.
        UnknownTopicOrPartitionError: The topic was deleted.
    """
    for _ in range(_RETRIES):
        start = log.log_start_offset
        if not start <= offset <= log.log_end_offset:
            raise OffsetOutOfRangeError(offset, start, log.log_end_offset, log=str(log.path))
        try:
            return _fetch(log, search, offset, end_offset, max_bytes, at_least_one=at_least_one)
        except FileNotFoundError:
            # Retention or compaction replaced the segment meanwhile.
            log.refresh()
    raise LogError(f"{log.path}: its segments change faster than they can be read")


def _fetch(
    log: Log, search: SegmentSearch, offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool
) -> FileRecords | None:
    segments = log.segments
    number = search.number_of(segments, offset)
    while number < len(segments) and offset < end_offset:
        segment = segments[number]
        if segment.base_offset >= end_offset:
            return None
        # Before the log end offset: what another thread appends meanwhile may be above `end_offset`.
        whole = segment.size_bytes
        is_last = number + 1 == len(segments)
        segment_end_offset = log.log_end_offset if is_last else segments[number + 1].base_offset
        end = whole if end_offset >= segment_end_offset else _end_position(segment, end_offset, whole)
        header, position = locate_batch(segment, offset, verifies=False)
        if position < end:
            if header is None:
                # A client would take it for a batch that is cut short, and ask for it again for ever.
                raise CorruptRecordError("no batch begins here", path=segment.path, position=position)
            size = min(max_bytes, end - position)
            if at_least_one:
                size = max(size, header.size_bytes)
            elif size < header.size_bytes:
                size = 0
            return FileRecords(segment.contents, position, size, header.magic)
        # Compaction may have left nothing from here on in this segment.
        number += 1
    return None


def _end_position(segment: Segment, end_offset: int, whole: int) -> int:
    """Return where the batches that begin below an offset end, which is at the end of the segment at most."""
    header, _ = locate_batch(segment, end_offset, verifies=False)
    return whole if header is None else header.position
