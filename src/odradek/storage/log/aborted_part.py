"""Which records of the part of a log that is being read belong to aborted transactions."""

from __future__ import annotations

from odradek.records.header import BatchHeader
from odradek.storage.log.readable_log import ReadableLog
from odradek.storage.log.transactions import AbortedRanges


class AbortedPart:
    """What is aborted in the part of a log that is read, looked up segment by segment as the reader gets there."""

    def __init__(self) -> None:
        self._range = (0, 0)
        self._ranges = AbortedRanges(())

    def covers(self, start_offset: int, end_offset: int) -> bool:
        """Whether a range was looked up."""
        return self._range[0] <= start_offset and end_offset <= self._range[1]

    def look_up(self, log: ReadableLog, start_offset: int, end_offset: int) -> None:
        """Look up a range, which is all that is known then."""
        self._ranges = AbortedRanges(log.aborted_transactions(start_offset, end_offset))
        self._range = start_offset, end_offset

    @property
    def is_empty(self) -> bool:
        """Whether nothing is aborted in the range that was looked up last."""
        return self._ranges.is_empty

    def __contains__(self, header: BatchHeader) -> bool:
        return header in self._ranges
