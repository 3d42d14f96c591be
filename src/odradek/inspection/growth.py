"""How a log grew, by the timestamps of its records: its time and offset indexes tell it, no record is read.

    time index     timestamp -> offset      some entries of each segment
    offset index   offset -> position       of the batch; the sizes of the segments before it are added

Records that retention or compaction removed do not count. A timestamp before an earlier one counts as that one.

Source in Kafka: `TimeIndex`, `OffsetIndex`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from odradek.inspection.indexes import offset_index_beside, time_index_beside
from odradek.inspection.live_segments import LiveSegment, find_end, live_segments
from odradek.inspection.log_files import PartitionFolder
from odradek.records import scan_batches
from odradek.storage.regular_files import file_size
from odradek.storage.segment.batch_reader import mapped

_MOST = 128


class Grown(NamedTuple):
    """How far a log had grown at a time.

    Attributes:
        timestamp: The time, in ms.
        offset: The log end offset at that time.
        size_bytes: The size at that time, without what was removed since.
    """

    timestamp: int
    offset: float
    size_bytes: float


def growth(folder: PartitionFolder, most: int = _MOST) -> list[Grown]:
    """Return how a log grew, in order; nothing if its records have no timestamps.

    Args:
        folder: The folder of the partition.
        most: About how many index entries to read.

    Raises:
        FormatError: A segment is not a regular file.
        OSError: The folder cannot be read.
    """
    segments = live_segments(folder)
    found: list[Grown] = []

    def add(timestamp: int | None, offset: int, size_bytes: int) -> None:
        if timestamp is not None and timestamp >= 0:
            latest = found[-1].timestamp if found else timestamp
            found.append(Grown(max(timestamp, latest), offset, size_bytes))

    size, stride, each = 0, -(-len(segments) // most), max(1, most // max(1, len(segments)))
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        if number == 0:
            add(first_timestamp(segment), segment.base_offset, 0)
        if is_last or number % stride == 0:
            for timestamp, offset, position in _indexed(segment, each):
                add(timestamp, offset, size + position)
        if is_last:
            end = find_end(segment)
            add(end.last_timestamp, end.next_offset, size + end.size_bytes)
        size += file_size(segment.path)
    return found


def first_timestamp(segment: LiveSegment) -> int | None:
    """Return the base timestamp of a segment's first batch, in ms; None if the segment is empty.

    Raises:
        FormatError: The segment is not a regular file.
        OSError: The segment cannot be read.
    """
    with mapped(segment.path) as data:
        first = next(iter(scan_batches(data, 0, path=segment.path)), None)
    return None if first is None else first.base_timestamp


def _indexed(segment: LiveSegment, most: int) -> list[tuple[int, int, int]]:
    """Return the timestamp, offset and position of some entries of a time index, the last entry among them."""
    times = time_index_beside(segment.path, segment.base_offset)
    offsets = offset_index_beside(segment.path, segment.base_offset)
    if times is None or offsets is None or not times.count:
        return []
    step = -(-times.count // most)
    entries = [times.entry(number) for number in range((times.count - 1) % step, times.count, step)]
    found = [(entry.timestamp, entry.offset, offsets.lookup(entry.offset).position) for entry in entries]
    times.close()
    offsets.close()
    return found


def grown_at(log: Sequence[Grown], times: Sequence[float]) -> list[Grown]:
    """Return how far a log had grown at some times, by linear interpolation."""
    known = [one.timestamp for one in log]
    found = []
    for time in times:
        after = bisect_right(known, time)
        low, high = log[max(0, after - 1)], log[min(after, len(log) - 1)]
        share = (time - low.timestamp) / (high.timestamp - low.timestamp) if low.timestamp < high.timestamp else 0.0
        share = max(0.0, share)
        found.append(
            Grown(
                int(time),
                low.offset + share * (high.offset - low.offset),
                low.size_bytes + share * (high.size_bytes - low.size_bytes),
            )
        )
    return found
