"""Checks a time index against its segment: every entry has the greatest timestamp so far, and the batch with it.

    .timeindex   (1700 at 27) (1712 at 54)    .log   | ... | [20, 28) 1700 | [28, 48) 1699 | [48, 55) 1712 | ...

An entry names the last offset of its batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.inspection.finding import Finding, FindingKind, together
from odradek.inspection.indexes import checked_index, index_path
from odradek.inspection.log_files import LogFile
from odradek.inspection.offset_order import Lost
from odradek.records import BatchHeader
from odradek.storage import names
from odradek.storage.formats.time_index import TimeIndex, TimestampOffset


class TimeIndexCheck:
    """Is given the batches of a segment, and what was lost between them, then asked what is wrong."""

    def __init__(self, file: LogFile) -> None:
        self._path = index_path(file.path, file.base_offset, names.TIME_INDEX_SUFFIX)
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
        # A wrapper's header (v0, v1) does not have its first offset, which is after the previous batch, if that is not
        # lost.
        start = self._end if header.is_wrapper and not self._after_loss else header.base_offset
        greatest = max(self._greatest, header.max_timestamp)
        while index is not None and self._next < index.count and index.entry(self._next).offset <= header.last_offset:
            entry = index.entry(self._next)
            if entry.offset >= start:
                is_right = header.max_timestamp == entry.timestamp == greatest
            else:
                # If no batch holds the offset any more, only the timestamp can be checked.
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
        """Note bytes that may have held any batches; entries for them are not checked."""
        self._after_loss = True

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong, after the last batch."""
        yield from together(self._found)

    def beyond(self) -> list[Finding]:
        """Return the entries for offsets after the last batch: they are wrong, or the segment has lost its end."""
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
