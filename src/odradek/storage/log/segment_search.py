"""Finds the segment of a log that holds an offset or a time.

    base offsets          0      42     99         the last one that is not above the offset
    greatest timestamps   17:00  17:00  18:30      up to each sealed segment: never falls, so it can be searched

Both lists are made when they are first needed, and again when the segments have changed.

Source in Kafka: `LogSegments`, `UnifiedLog.fetchOffsetByTimestamp`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from odradek.records.header import NO_TIMESTAMP
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.timestamp_lookup import (
    TimestampedOffset,
    find_timestamp,
    largest_timestamp,
    largest_timestamp_from,
)


class SegmentSearch:
    """Looks up segments of one log. Any thread may use it."""

    def __init__(self) -> None:
        self._base_offsets: tuple[Sequence[Segment], list[int]] = ((), [])
        self._largest_timestamps: tuple[Sequence[Segment], list[int]] = ((), [])

    def number_of(self, segments: Sequence[Segment], offset: int) -> int:
        """Return the number of the segment that an offset is in, the first one where it is below."""
        known_of, base_offsets = self._base_offsets
        if known_of is not segments:
            base_offsets = [segment.base_offset for segment in segments]
            self._base_offsets = segments, base_offsets
        number = bisect_right(base_offsets, offset) - 1
        return max(0, number)

    def find_timestamp(
        self, segments: Sequence[Segment], timestamp: int, start: int, end: int
    ) -> TimestampedOffset | None:
        """Return the first record of a range of offsets whose timestamp is at or above `timestamp`.

        Raises:
            FormatError: A batch that has to be read is corrupt.
        """
        for number in range(self._first_at(timestamp, segments), len(segments)):
            segment = segments[number]
            if segment.base_offset >= end:
                break
            if largest_timestamp(segment).timestamp >= timestamp:
                found = find_timestamp(segment, timestamp, start)
                if found is not None:
                    return found if found.offset < end else None
        return None

    def _first_at(self, timestamp: int, segments: Sequence[Segment]) -> int:
        """Return the number of the first segment with a timestamp at or above `timestamp`."""
        known_of, largest = self._largest_timestamps
        if known_of is not segments:
            sealed = (largest_timestamp(segment).timestamp for segment in segments[:-1])
            largest = list(accumulate(sealed, max))
            self._largest_timestamps = segments, largest
        return bisect_left(largest, timestamp)


def newest_timestamp(segments: Sequence[Segment], start: int) -> int:
    """Return the greatest timestamp of the records from an offset on, -1 if none has one.

    Raises:
        FormatError: The batch that holds the offset is corrupt.
    """
    return max((largest_timestamp_from(segment, start) for segment in segments), default=NO_TIMESTAMP)
