"""How much of a log is on the disk, and how the rest gets there.

    | sealed | sealed | sealed        | active        |
    0                 ^ recovery point  ^ durable end   ^ log end offset

All segments below the recovery point are on the disk with their indexes, so recovery skips them. All records below the
durable end are on the disk, but not their indexes, which recovery can make again.

Source in Kafka: `UnifiedLog.flush`, `LocalLog.markFlushed`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from odradek.storage.log_disk import LogDisk
from odradek.storage.segment.segment import Segment


class Durability:
    """How much of one log is on the disk. Changes need the log's FLUSH lock, or its LOG lock for good.

    Args:
        disk: The log's disk.
        recovery_point: The recovery point that is known.
        is_dirty: Whether the log may differ from what was closed in order.
        flushes_late: Whether the log's owner flushes rolled segments some time later; otherwise a roll flushes them.

    Attributes:
        recovery_point: All segments below it are on the disk, with their indexes.
        durable_end: All records below it are on the disk.
        is_dirty: Whether the log was changed since it was last closed in order.
        flushes_late: As given; it may be changed.
    """

    def __init__(self, disk: LogDisk, recovery_point: int, *, is_dirty: bool, flushes_late: bool) -> None:
        self.is_dirty = is_dirty
        self.flushes_late = flushes_late
        self.recovery_point = recovery_point
        self.durable_end = recovery_point
        self._disk = disk

    def unflushed(self, segments: Sequence[Segment]) -> list[Segment]:
        """Return the sealed segments that may not be on the disk.

        Args:
            segments: All segments, in order; the last one is active.
        """
        after = bisect_right(segments, self.recovery_point, 1, key=lambda segment: segment.base_offset)
        return list(segments[after - 1 : -1])

    def sync_sealed(self, segments: Sequence[Segment]) -> None:
        """Return when all segments but the active one are on the disk.

        Args:
            segments: All segments, in order; the last one is active.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        for segment in self.unflushed(segments):
            self._disk.sync_segment(segment.base_offset)
        self._disk.sync_names()
        self.recovery_point = max(self.recovery_point, segments[-1].base_offset)
        self.durable_end = max(self.durable_end, self.recovery_point)

    def sync(self, segments: Sequence[Segment], end_offset: int, *, indexes: bool) -> None:
        """Return when all records below an offset are on the disk.

        Files are synced by name: those that are written to may be closed at any moment, as soon as they are rolled. So
        the recovery point moves no further than to the active segment: a roll may have cut its files after their sync.

        Args:
            segments: All segments, in order; the last one is active.
            end_offset: The log end offset, read no later than the segments.
            indexes: Whether to sync the indexes as well.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        for segment in self.unflushed(segments):
            self._disk.sync_segment(segment.base_offset)
        if indexes:
            self._disk.sync_segment(segments[-1].base_offset)
        else:
            self._disk.sync_file(segments[-1].path)
        self._disk.sync_names()
        self.durable_end = max(self.durable_end, end_offset)
        self.recovery_point = max(self.recovery_point, segments[-1].base_offset)
