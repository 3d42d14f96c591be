"""Which records a command asks for, and where in a segment to start looking for them."""

from __future__ import annotations

import mmap
from dataclasses import dataclass, replace

from odradek.inspection.indexes import offset_index_beside, time_index_beside
from odradek.inspection.log_files import LogFile
from odradek.records import BatchHeader, Record, scan_batches

NO_END = (1 << 63) - 1
_LEAST = -(1 << 63)


@dataclass(frozen=True, slots=True)
class DumpSelection:
    """Which records are asked for; the ranges are half-open.

    Attributes:
        start_offset: The first offset, or None.
        end_offset: The offset to stop before, or None.
        since: The first timestamp in ms, or None.
        until: The timestamp to stop before, or None.
    """

    start_offset: int | None = None
    end_offset: int | None = None
    since: int | None = None
    until: int | None = None

    def within(self, start_offset: int, end_offset: int) -> DumpSelection:
        """Return the same, of the offsets of a range only."""
        start = start_offset if self.start_offset is None else max(start_offset, self.start_offset)
        end = end_offset if self.end_offset is None else min(end_offset, self.end_offset)
        return replace(self, start_offset=start, end_offset=end)

    @property
    def bounds(self) -> tuple[int, int, int, int]:
        """The ranges as the kernels take them: the least and the greatest number stand for None."""
        return (
            _LEAST if self.start_offset is None else self.start_offset,
            NO_END if self.end_offset is None else self.end_offset,
            _LEAST if self.since is None else self.since,
            NO_END if self.until is None else self.until,
        )

    def skips_segment(self, file: LogFile) -> bool:
        """Whether a segment cannot hold a wanted record, by its name and the name of the next one."""
        if self.end_offset is not None and file.base_offset >= self.end_offset and file.is_segment:
            return True
        following = file.next_base_offset
        return following is not None and self.start_offset is not None and following <= self.start_offset

    def skips_batch(self, header: BatchHeader) -> bool:
        """Whether a batch cannot hold a wanted record, by its header."""
        if self.start_offset is not None and header.last_offset < self.start_offset:
            return True
        # A wrapper's header has only the offset of its last record.
        if self.end_offset is not None and not header.is_wrapper and header.base_offset >= self.end_offset:
            return True
        # The timestamp of a compressed message of v0 or v1 may not be right for the messages in it.
        return self.since is not None and header.magic == 2 and 0 <= header.max_timestamp < self.since

    def takes(self, record: Record) -> bool:
        """Whether a record is wanted."""
        offset, timestamp = record.offset, record.timestamp
        if offset is None:
            return False
        if self.start_offset is not None and offset < self.start_offset:
            return False
        if self.end_offset is not None and offset >= self.end_offset:
            return False
        if self.since is None and self.until is None:
            return True
        if timestamp is None:
            return False
        return (self.since is None or timestamp >= self.since) and (self.until is None or timestamp < self.until)


def start_position(file: LogFile, data: mmap.mmap | bytes, selection: DumpSelection) -> int:
    """Return where a batch starts that is at or before the first batch with a wanted record.

    An index is used only if a valid batch starts at the position that it gives; a segment without indexes is read from
    its start.
    """
    if not file.is_segment:
        return 0
    offset = selection.start_offset if selection.start_offset is not None else file.base_offset
    if selection.since is not None:
        time_index = time_index_beside(file.path, file.base_offset)
        if time_index is not None:
            offset = max(offset, time_index.lookup(selection.since).offset)
            time_index.close()
    if offset <= file.base_offset:
        return 0
    index = offset_index_beside(file.path, file.base_offset)
    if index is None:
        return 0
    position = index.lookup(offset).position
    index.close()
    if not 0 < position < len(data):
        return 0
    first = next(iter(scan_batches(data, position)), None)
    # Before Kafka 4 an entry's batch may start after the position that it names, never before.
    return position if first is not None and file.base_offset < first.base_offset and first.last_offset <= offset else 0
