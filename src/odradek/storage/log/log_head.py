"""Where a log begins, and what is deleted before that.

    | sealed        | sealed        | sealed | active |
    ^ deleted by    ^ log start offset: readers get nothing below it
      the next retention

Records are deleted in two steps. First the log start offset moves up, and leader epochs and producers follow it. The
segments below it go later, when no compaction works on them.

Source in Kafka: `UnifiedLog.maybeIncrementLogStartOffset`, `UnifiedLog.deleteOldSegments`.
"""

from __future__ import annotations

from odradek.arguments import checked_index
from odradek.errors import OffsetOutOfRangeError
from odradek.storage.log.durability import Durability
from odradek.storage.log.leader_epochs import LeaderEpochCache
from odradek.storage.log.local_log import LocalLog
from odradek.storage.log.retention import Deletion, deletable_segments
from odradek.storage.topic_config import TopicConfig


class LogHead:
    """The log start offset of one log. Its methods need the log's LOG lock, and a log without an unfinished change.

    Args:
        log_start_offset: As it is known.
        local: The log's segments.
        epochs: Its leader epochs.
        durability: How much of it is on the disk.

    Attributes:
        log_start_offset: The first offset that readers can get.
    """

    def __init__(
        self, log_start_offset: int, *, local: LocalLog, epochs: LeaderEpochCache, durability: Durability
    ) -> None:
        self.log_start_offset = log_start_offset
        self._local = local
        self._epochs = epochs
        self._durability = durability

    def delete_records(self, before_offset: int | None) -> None:
        """Move the log start offset up to an offset; to the log end offset if it is None.

        Raises:
            OffsetOutOfRangeError: It is negative, or above the log end offset.
            TypeError: It is no int.
        """
        end = self._local.log_end_offset
        offset = end if before_offset is None else checked_index("before_offset", before_offset)
        if not 0 <= offset <= end:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, end, log=str(self._local.path))
        self._raise(offset)

    def retire(self, config: TopicConfig, now_ms: int) -> list[Deletion]:
        """Move the log start offset after the segments that are due for deletion; return those.

        Raises:
            LogOfflineError: The disk failed now.
        """
        found = deletable_segments(
            self._local.segments,
            config,
            log_start_offset=self.log_start_offset,
            log_end_offset=self._local.log_end_offset,
            high_watermark=self._local.log_end_offset,
            now_ms=now_ms,
        )
        if found:
            if len(found) == len(self._local.segments):
                self._local.about_to_write()
                self._local.roll(self._local.log_end_offset)
            self._raise(self._local.segments[len(found)].base_offset)
        return found

    def _raise(self, offset: int) -> None:
        self._durability.is_dirty = True
        self.log_start_offset = max(offset, self.log_start_offset)
        # If an exception interrupts this, the next call that raises the log start offset does it, or `close`.
        self.follow()

    def follow(self) -> None:
        """Forget the leader epochs and producers that are only below the log start offset."""
        self._epochs.truncate_from_start(self.log_start_offset)
        self._local.producers.on_log_start_offset_incremented(self.log_start_offset)

    def remove_segments(self, unlink_ms: int) -> None:
        """Remove the segments below the log start offset; this needs the CLEANING and FLUSH locks too.

        Args:
            unlink_ms: When their files are unlinked.

        Raises:
            LogOfflineError: The disk failed now.
        """
        following = [segment.base_offset for segment in self._local.segments[1:]]
        gone = sum(base_offset <= self.log_start_offset for base_offset in following)
        if gone:
            self._local.remove_oldest(gone, unlink_ms)
