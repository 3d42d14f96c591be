"""Finds records of a segment by their timestamps, with the time index as a hint.

    .timeindex   1000 -> 41, 1030 -> 56      1030 is the greatest timestamp up to offset 56: checked against the batches

Source in Kafka: `LogSegment.findOffsetByTimestamp`, `FileRecords.searchForTimestamp`.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.errors import FormatError
from odradek.records.header import NO_TIMESTAMP, BatchHeader
from odradek.storage.formats.time_index import TimestampOffset
from odradek.storage.segment.offset_lookup import locate_batch
from odradek.storage.segment.segment import Segment


class TimestampedOffset(NamedTuple):
    """The answer to a look-up by time.

    Attributes:
        timestamp: Of the record, in ms.
        offset: Of the record.
        leader_epoch: Of its batch; -1 in messages of v0 and v1.
    """

    timestamp: int
    offset: int
    leader_epoch: int


def largest_timestamp(segment: Segment) -> TimestampOffset:
    """Return the greatest timestamp of any batch, and the last offset of the first batch that has it.

    The timestamp is -1 if no batch has one; then the offset is the base offset.
    """
    known = segment.known_largest()
    if known is None:
        times = segment.time_index
        indexed = _batch_of_time_entry(segment, times.count - 1)
        position, known = 0, TimestampOffset(NO_TIMESTAMP, segment.base_offset)
        if indexed is not None:
            position, known = indexed.position, times.last_entry()
        for header in segment.scan(position, segment.end().position):
            if header.max_timestamp > known.timestamp:
                known = TimestampOffset(header.max_timestamp, header.last_offset)
        segment.note_largest(known)
    return known


def _batch_of_time_entry(segment: Segment, number: int) -> BatchHeader | None:
    """Return the batch that an entry of the time index names, or `None` if the entry is wrong.

    The entry says that the batch has this greatest timestamp, and that every batch before it has a lower one. Only the
    part from the previous entry on is looked at.
    """
    if number < 0:
        return None
    entry = segment.time_index.entry(number)
    header, position = locate_batch(segment, entry.offset)
    if header is None or header.base_offset > entry.offset or header.max_timestamp != entry.timestamp:
        return None
    start = 0
    if number > 0:
        before = segment.time_index.entry(number - 1)
        if before.timestamp >= entry.timestamp or before.offset > entry.offset:
            return None
        _, start = locate_batch(segment, before.offset)
    is_first = all(one.max_timestamp < entry.timestamp for one in segment.scan(start, position))
    return header if is_first else None


def largest_timestamp_from(segment: Segment, start_offset: int) -> int:
    """Return the greatest timestamp of any record at or after an offset, -1 if none has one.

    Raises:
        FormatError: The batch that holds the offset is corrupt.
    """
    if segment.base_offset >= start_offset:
        return largest_timestamp(segment).timestamp
    first, position = locate_batch(segment, start_offset)
    found = NO_TIMESTAMP
    if first is None:
        return found
    for header in segment.scan(position, segment.end().position):
        if header.base_offset >= start_offset:
            found = max(found, header.max_timestamp)
            continue
        for record in segment.read(header):
            if record.timestamp is not None and record.offset is not None and record.offset >= start_offset:
                found = max(found, record.timestamp)
    return found


def find_timestamp(segment: Segment, timestamp: int, start_offset: int) -> TimestampedOffset | None:
    """Return the first record at or after an offset whose timestamp is at or above a timestamp.

    Raises:
        FormatError: A batch that has to be read is corrupt.
    """
    first = _batch_of_time_entry(segment, segment.time_index.floor_entry_of_timestamp(timestamp))
    if first is None or first.last_offset < start_offset:
        first, _ = locate_batch(segment, start_offset)
    if first is None:
        return None
    for header in segment.scan(first.position, segment.end().position):
        if header.max_timestamp < timestamp or header.last_offset < start_offset:
            continue
        checked = segment.batch_at(header.position)
        if checked is None:
            # Say what is wrong with it.
            scan = segment.scan(header.position, header.end_position, check_crc=True)
            list(scan)
            raise scan.damage or FormatError("this batch is corrupt", path=segment.path, position=header.position)
        for record in segment.read(checked):
            found = NO_TIMESTAMP if record.timestamp is None else record.timestamp
            if found >= timestamp and record.offset is not None and record.offset >= start_offset:
                return TimestampedOffset(found, record.offset, header.partition_leader_epoch)
    return None
