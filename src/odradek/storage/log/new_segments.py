"""Makes the active segments of one log, with its settings at that time.

Source in Kafka: `LogSegment.open`, `LogConfig.randomSegmentJitter`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from odradek.storage.log_disk import LogDisk
from odradek.storage.segment.active_segment import ActiveSegment, SegmentLimits, SegmentSetup
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.segment.segment import Segment
from odradek.storage.topic_config import TopicConfig


class NewSegments:
    """Makes the segments that a log is appended to. The caller holds the log's LOG lock.

    Args:
        path: The partition's folder.
        config: The topic's settings.
        opened: The register of open segments.
        disk: The log's disk.
        clock: Returns the time in ms.

    Attributes:
        limits: The settings for segments.
    """

    def __init__(
        self, path: Path, config: TopicConfig, *, opened: OpenSegments, disk: LogDisk, clock: Callable[[], int]
    ) -> None:
        self._path = path
        self._opened = opened
        self._disk = disk
        self._clock = clock
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        """Use other settings from now on."""
        segment_ms = config.segment_ms
        if config.is_compacted:
            segment_ms = min(segment_ms, config.max_compaction_lag_ms)
        self._jitter_bound_ms = min(config.segment_jitter_ms, config.segment_ms)
        self.limits = SegmentLimits(
            segment_bytes=config.max_segment_bytes,
            segment_ms=segment_ms,
            segment_index_bytes=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            preallocate=config.preallocate,
        )

    def _setup(self) -> SegmentSetup:
        return SegmentSetup(
            directory=self._path,
            opened=self._opened,
            limits=self.limits,
            created_ms=self._clock(),
            jitter_ms=random.randrange(self._jitter_bound_ms) if self._jitter_bound_ms > 0 else 0,
            files=self._disk,
        )

    def create(self, base_offset: int) -> ActiveSegment:
        """Make the files of a new segment; files that have its name are replaced."""
        segment = ActiveSegment.create(base_offset, self._setup())
        # Only now: a sync before this does not cover the new names.
        self._disk.names_changed()
        return segment

    def resume(self, segment: Segment) -> ActiveSegment:
        """Append to the last segment of a log that was opened."""
        return ActiveSegment.resume(segment, self._setup())

    def begin_again(self, empty: ActiveSegment) -> ActiveSegment:
        """Append to an empty segment under other settings than it was made with."""
        empty.park()
        return ActiveSegment(empty.base_offset, self._setup(), empty.written)
