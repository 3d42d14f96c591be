"""Holds a time index against its segment: every entry is the greatest timestamp so far, and the batch that has it.

.timeindex   (1700 at 27) (1712 at 54)    .log   | ... | [20, 28) 1700 | [28, 48) 1699 | [48, 55) 1712 | ...
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.inspection.finding import Finding, FindingKind, together
from odradek.inspection.indexes import checked_index
from odradek.inspection.log_files import LogFile
from odradek.inspection.offset_order import Lost
from odradek.records import BatchHeader
from odradek.storage import names
from odradek.storage.formats.time_index import TimeIndex, TimestampOffset


class TimeIndexCheck:
    """Is shown the batches of a segment, and what was lost between them, then asked what is wrong."""

    def __init__(self, file: LogFile) -> None:
        self._path = file.sibling(names.TIME_INDEX_SUFFIX)
        self._found: list[Finding] = []
        self._next = 0
        self._greatest = -1
        self._end = file.base_offset
        self._after_loss = False
        self._index = checked_index(TimeIndex, self._path, file.base_offset, self._found)

    def batch(self, header: BatchHeader) -> None:
        """Take the next batch."""
        index = self._index
        if index is None or self._next >= index.count:
            return
        # The first of a wrapper (v0, v1) is known only to its content: it is after the batch before it, which
        # may be lost.
        start = header.base_offset if header.magic == 2 or self._after_loss else self._end
        greatest = max(self._greatest, header.max_timestamp)
        while index is not None and self._next < index.count and index.entry(self._next).offset <= header.last_offset:
            entry = index.entry(self._next)
            if entry.offset >= start:
                is_right = header.max_timestamp == entry.timestamp == greatest
            else:
                # Of an offset that no batch holds any more only the timestamp can be said to be known.
                is_right = self._after_loss or entry.timestamp in {self._greatest, greatest}
            if not is_right:
                self._found.append(
                    self._finding(self._next, entry, f"the greatest timestamp up to there is {greatest}")
                )
            self._next += 1
        self._greatest = greatest
        self._end = header.next_offset
        self._after_loss = False

    def lost(self, lost: Lost) -> None:
        """Take note of bytes of which nothing is known; entries for them are not looked at."""
        self._after_loss = True

    def findings(self) -> Iterator[Finding]:
        """Give what is wrong, after the last batch."""
        yield from together(self._found)

    def beyond(self) -> list[Finding]:
        """Return the entries for what comes after the last batch: either they are wrong, or the segment is short."""
        index = self._index
        if index is None or self._after_loss:
            return []
        return [
            self._finding(number, index.entry(number), "the segment ends before it")
            for number in range(self._next, index.count)
        ]

    def _finding(self, number: int, entry: TimestampOffset, what: str) -> Finding:
        reason = f"entry {number}: timestamp {entry.timestamp} at offset {entry.offset}: {what}"
        return Finding(self._path, number * TimeIndex.ENTRY_SIZE, FindingKind.INDEX, reason)
