"""What the indexes of a segment say about the offsets of its batches: each entry tells one offset of one batch."""

from __future__ import annotations

from pathlib import Path

from odradek.inspection.indexes import offset_index_beside, time_index_beside
from odradek.records import BatchHeader
from odradek.storage.formats.offset_index import OffsetIndex
from odradek.storage.formats.time_index import TimeIndex


class IndexEvidence:
    """What the indexes of a segment say about the offsets of its batches."""

    def __init__(self, offsets: OffsetIndex | None, times: TimeIndex | None) -> None:
        self._offsets = offsets
        self._times = times

    @classmethod
    def beside(cls, segment: Path, base_offset: int) -> IndexEvidence:
        """Return what the indexes beside a segment say, as far as they can be read."""
        return cls(offset_index_beside(segment, base_offset), time_index_beside(segment, base_offset))

    @classmethod
    def none(cls) -> IndexEvidence:
        """Return the evidence of no indexes."""
        return cls(None, None)

    def indexed_offset(self, header: BatchHeader) -> int | None:
        """Return the offset that the index says is in or after a batch, if it has an entry for its position."""
        index = self._offsets
        if index is None:
            return None
        number = index.floor_position(header.position)
        if number < 0:
            return None
        entry = index.entry(number)
        return entry.offset if entry.position == header.position else None

    def votes(self, header: BatchHeader, start: int, end: int) -> int:
        """Return how strongly the entries say that a batch has the offsets in `[start, end)`."""
        votes = _votes(self.indexed_offset(header), start, end)
        if self._times is not None and header.max_timestamp >= 0:
            entry = self._times.lookup(header.max_timestamp)
            if entry.timestamp == header.max_timestamp:
                votes += _votes(entry.offset, start, end)
        return votes

    def close(self) -> None:
        """Close the files."""
        for index in (self._offsets, self._times):
            if index is not None:
                index.close()


def _votes(offset: int | None, start: int, end: int) -> int:
    # An entry has the last offset of a batch; before Kafka 4 it may have any offset of it.
    if offset is None or not start <= offset < end:
        return 0
    return 2 if offset == end - 1 else 1
