"""Decides which segments are to be deleted, and when the files of a deleted segment are unlinked.

    | 0 | 100 | 200 | 300 active |        only from the oldest on, up to the first that must be kept
      ^ base of the next <= log start offset        always
      ^ the log is longer than retention.bytes      if cleanup.policy has `delete`
      ^ its newest record is older than retention.ms

A deleted segment's files are first renamed to `.deleted`, so that readers that have them open can finish; they are
unlinked after `file.delete.delay.ms`.

Source in Kafka: `UnifiedLog.deleteOldSegments`, `UnifiedLog.deletableSegments`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.storage.files import FILES, FileSystem
from odradek.storage.topic_config import TopicConfig

if TYPE_CHECKING:
    from odradek.storage.segment.segment import Segment
from odradek.storage.segment.timestamp_lookup import largest_timestamp


class DeletionReason(Enum):
    """Why a segment is deleted."""

    START_OFFSET = "all of its records are below the log start offset"
    SIZE = "the log is longer than retention.bytes"
    TIME = "its newest record is older than retention.ms"


@dataclass(frozen=True, slots=True)
class Deletion:
    """A segment that is to be deleted.

    Attributes:
        segment: The segment.
        reason: Why.
        size_bytes: Its size, which cannot be asked for any more once it is deleted.
    """

    segment: Segment
    reason: DeletionReason
    size_bytes: int


def age_timestamp(segment: Segment) -> int:
    """Return the greatest timestamp of a segment's batches, in ms; if none has one, when its file was modified."""
    timestamp = largest_timestamp(segment).timestamp
    return timestamp if timestamp >= 0 else segment.path.stat().st_mtime_ns // 1_000_000


def deletable_segments(
    segments: Sequence[Segment],
    config: TopicConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> list[Deletion]:
    """Return the segments that are to be deleted, from the oldest on.

    The active segment, the last one, may be among them, but never if it is empty: a new segment has to be rolled before
    it is deleted.

    Args:
        segments: All segments, in order.
        config: The topic's configs.
        log_start_offset: The first offset that readers can get.
        log_end_offset: The offset after the last record.
        high_watermark: No offset at or above it is deleted.
        now_ms: The time, in ms.
    """
    candidates = []
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        end_offset = log_end_offset if is_last else segments[number + 1].base_offset
        if end_offset > high_watermark or (is_last and segment.size_bytes == 0):
            break
        candidates.append((segment, None if is_last else end_offset))
    found = []
    for segment, next_base_offset in candidates:
        if next_base_offset is None or next_base_offset > log_start_offset:
            break
        found.append(Deletion(segment, DeletionReason.START_OFFSET, segment.size_bytes))
    if not config.is_deleted:
        return found
    if config.retention_bytes >= 0:
        left = sum(segment.size_bytes for segment in segments[len(found) :])
        for segment, _ in candidates[len(found) :]:
            if left - segment.size_bytes < config.retention_bytes:
                break
            left -= segment.size_bytes
            found.append(Deletion(segment, DeletionReason.SIZE, segment.size_bytes))
    if config.retention_ms >= 0:
        for segment, _ in candidates[len(found) :]:
            if now_ms - age_timestamp(segment) <= config.retention_ms:
                break
            found.append(Deletion(segment, DeletionReason.TIME, segment.size_bytes))
    return found


class DelayedDeletes:
    """Files that are to be unlinked when they are due.

    Args:
        files: The file system to unlink them from.
        scheduled: Called after files were scheduled.
    """

    def __init__(self, files: FileSystem = FILES, scheduled: Callable[[], object] = lambda: None) -> None:
        self._files = files
        self._scheduled = scheduled
        self._queue: list[tuple[int, Path]] = []

    def __len__(self) -> int:
        return len(self._queue)

    def schedule(self, paths: Iterable[Path], due_ms: int) -> None:
        """Schedule files to be unlinked."""
        for path in paths:
            heapq.heappush(self._queue, (due_ms, path))
        self._scheduled()

    def run(self, now_ms: int) -> int:
        """Unlink the files that are due; return their number."""
        count = 0
        while self._queue and self._queue[0][0] <= now_ms:
            self._files.unlink(self._queue[0][1])
            heapq.heappop(self._queue)
            count += 1
        return count
