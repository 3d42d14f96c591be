"""Checks an offset index against its segment: every entry has the start of a batch and the last offset of one.

    .index   (27 at 512) (54 at 1024)         .log   | ... | 512: [20, 28) | ... | 1024: [48, 55) | ...

Before Kafka 4 an entry has the position of the append whose last batch holds the offset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from odradek.inspection.finding import Finding, FindingKind, together
from odradek.inspection.indexes import checked_index, index_path
from odradek.inspection.log_files import LogFile
from odradek.inspection.offset_order import Lost
from odradek.records import BatchHeader
from odradek.storage import names
from odradek.storage.formats.offset_index import OffsetIndex


class _Passed(NamedTuple):
    """An entry whose position the check has passed, but not yet its offset."""

    number: int
    offset: int
    position: int
    starts: bool


class OffsetIndexCheck:
    """Is given the batches of a segment, and what was lost between them, then asked what is wrong.

    Args:
        file: The segment.
        is_dense: Whether the log was never compacted: before Kafka 4 the cleaner wrote the offset of the last record
            that it kept, not the last offset of the batch.
    """

    def __init__(self, file: LogFile, *, is_dense: bool) -> None:
        self._is_dense = is_dense
        self._path = index_path(file.path, file.base_offset, names.INDEX_SUFFIX)
        self._found: list[Finding] = []
        self._next = 0
        self._passed: deque[_Passed] = deque()
        self._end = file.base_offset
        self._after_loss = False
        self._index = checked_index(OffsetIndex, self._path, file.base_offset, self._found)

    def batch(self, header: BatchHeader) -> None:
        """Take the next batch."""
        index = self._index
        if index is None or not (self._passed or self._next < index.count):
            self._end, self._after_loss = header.next_offset, False
            return
        # A wrapper's header (v0, v1) does not have its first offset, which is after the previous batch.
        start = self._end if header.is_wrapper else header.base_offset
        while self._next < index.count:
            offset, position = index.entry(self._next)
            if position > header.position:
                break
            self._passed.append(_Passed(self._next, offset, position, position == header.position and start <= offset))
            self._next += 1
        while self._passed and self._passed[0].offset <= header.last_offset:
            entry = self._passed.popleft()
            if not entry.starts:
                self._add(entry, "no batch for it starts there")
            elif entry.offset < start and not self._after_loss:
                self._add(entry, "no batch holds that offset")
            elif start <= entry.offset < header.last_offset and self._is_dense:
                self._add(entry, f"the batch that holds it ends at offset {header.last_offset}")
        self._end = header.next_offset
        self._after_loss = False

    def lost(self, lost: Lost) -> None:
        """Note bytes that may have held any batches; entries for them are not checked."""
        index = self._index
        while index is not None and self._next < index.count and index.entry(self._next).position < lost.end_position:
            entry = index.entry(self._next)
            if entry.position < lost.position:
                self._passed.append(_Passed(self._next, *entry, False))
            self._next += 1
        self._after_loss = True

    def findings(self) -> Iterator[Finding]:
        """Yield what is wrong, after the last batch."""
        yield from together(self._found)

    def beyond(self) -> list[Finding]:
        """Return the entries for offsets after the last batch: they are wrong, or the segment has lost its end."""
        index = self._index
        if index is None or self._after_loss:
            return []
        rest = (_Passed(number, *index.entry(number), False) for number in range(self._next, index.count))
        return [self._finding(entry, "the segment ends before it") for entry in (*self._passed, *rest)]

    def _add(self, entry: _Passed, what: str) -> None:
        self._found.append(self._finding(entry, what))

    def _finding(self, entry: _Passed, what: str) -> Finding:
        reason = f"entry {entry.number}: offset {entry.offset} at position {entry.position}: {what}"
        return Finding(self._path, entry.number * OffsetIndex.ENTRY_SIZE, FindingKind.INDEX, reason)
