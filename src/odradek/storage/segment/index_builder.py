"""Decides which batches of a segment get entries in its indexes.

    .log         | batch | batch | batch | batch | batch |            position: where a batch begins
                 |<- more than index.interval.bytes ->|
    .index                                       last offset, position          of the batch that begins there
    .timeindex                                   the greatest timestamp so far  if it is above that of the last entry
                                                                                and once more at the segment's end

Appends, recovery (after a split as well) and salvage add their entries by it. Compiled code has copies: compaction,
`odradek.records.kernels.segment_output`, and appends of which no batch gets an entry, or the only one does,
`odradek.records.kernels.segment_end`. `tests/property/test_index_builder.py` holds them together.

Source in Kafka: `LogSegment.append`, `LogSegment.recover`, `LogSegment.onBecomeInactiveSegment`.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.records.header import NO_TIMESTAMP, BatchHeader
from odradek.storage.formats.offset_index import WritableOffsetIndex
from odradek.storage.formats.time_index import TimestampOffset, WritableTimeIndex


class IndexBuilder:
    """Adds the entries of a segment's two indexes as its batches come.

    Args:
        offset_index: The offset index.
        time_index: The time index.
        interval_bytes: `index.interval.bytes`.

    Attributes:
        interval_bytes: As given.
        position: Where the next batch begins.
        largest: The greatest timestamp so far, and the last offset of the first batch that has it.
        bytes_since_entry: How many bytes of batches there are from the last one that got an entry on.
    """

    def __init__(self, offset_index: WritableOffsetIndex, time_index: WritableTimeIndex, interval_bytes: int) -> None:
        self._offset_index = offset_index
        self._time_index = time_index
        self.interval_bytes = interval_bytes
        self.go_back(0, TimestampOffset(NO_TIMESTAMP, offset_index.base_offset), 0)

    def go_back(self, position: int, largest: TimestampOffset, bytes_since_entry: int) -> None:
        """Continue from another position; the caller sets the indexes back."""
        self.position = position
        self.largest = largest
        self.bytes_since_entry = bytes_since_entry

    def add(self, headers: Iterable[BatchHeader]) -> None:
        """Add the next batches. If an index is full, none of them gets an entry.

        Raises:
            LogError: An index would have to go back, which it cannot.
        """
        interval_bytes = self.interval_bytes
        position, largest, since = self.position, self.largest, self.bytes_since_entry
        for header in headers:
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
            if since > interval_bytes and not (self._offset_index.is_full or self._time_index.is_full):
                self._offset_index.append(header.last_offset, position)
                self._time_index.maybe_append(*largest)
                since = 0
            position += header.size_bytes
            since += header.size_bytes
        self.position, self.largest, self.bytes_since_entry = position, largest, since

    def finish(self) -> None:
        """Add the last entry of the time index, as when a segment is rolled or closed.

        Raises:
            LogError: The index would have to go back, which it cannot.
        """
        self._time_index.maybe_append(*self.largest, at_roll=True)
