"""A log that can be shortened: its head deleted, old segments removed, compacted ones put in their place.

    delete_records(250)    | 0 | 100 | 200 | 300 active |    ->    log start offset 250: readers see nothing below
    delete_old_segments    | 0 | 100 |                       ->    .deleted, unlinked after file.delete.delay.ms
    replace_segments             | 100.cleaned |             ->    100.log, for the cleaner

Source in Kafka: `UnifiedLog.deleteOldSegments`, `UnifiedLog.maybeIncrementLogStartOffset`, `LocalLog.replaceSegments`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from odradek.errors import LogError, OffsetOutOfRangeError
from odradek.storage.cleaning.retention import Deletion, deletable_segments
from odradek.storage.cleaning.segment_swap import rename_segment_files, swap_segments
from odradek.storage.names import DELETED_SUFFIX
from odradek.storage.owned_log import OwnedLog
from odradek.storage.segment import Segment


class TrimmableLog(OwnedLog):
    """One topic-partition whose segments can be removed and replaced; see `OwnedLog` for its arguments."""

    def delete_records(self, before_offset: int | None = None) -> int:
        """Move the log start offset up; segments that lie below it go with the next retention.

        Args:
            before_offset: The new log start offset; the log end offset if None.

        Returns:
            The log start offset, which never falls.

        Raises:
            OffsetOutOfRangeError: It is above the log end offset.
        """
        with self._lock, self._disk_guard():
            end = self.log_end_offset
            offset = end if before_offset is None else before_offset
            if not 0 <= offset <= end:
                raise OffsetOutOfRangeError(offset, self.log_start_offset, end, log=str(self.path))
            self._raise_start_offset(offset)
        if self._owner is not None:
            self._owner.start_moved(self)
        return self.log_start_offset

    def _raise_start_offset(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self._start_offset = offset
            self._is_dirty = True
            self._epochs.truncate_from_start(offset)
            self.producers.on_log_start_offset_incremented(offset)

    def old_segments(self) -> list[Deletion]:
        """Return the segments that have served their time, as the settings say, and why."""
        with self._lock:
            return deletable_segments(
                self.segments,
                self.config,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=self.high_watermark,
                now_ms=self._clock(),
            )

    def delete_old_segments(self) -> list[Deletion]:
        """Delete the segments that have served their time; return which, and why.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        with self._flush_lock, self._lock, self._disk_guard():
            found = self.old_segments()
            if not found:
                return []
            if len(found) == len(self.segments):
                self._writers.touch(self)
                self._roll(self.log_end_offset)
            self._remove_oldest(len(found))
            return found

    def _remove_oldest(self, count: int) -> None:
        segments = self.segments
        self._raise_start_offset(segments[count].base_offset)
        if self._owner is not None:
            # Only some of the renames may reach the disk: what is left of the deleted head must not be seen again.
            self._owner.start_moved(self)
        going, self._files.segments = segments[:count], segments[count:]
        self._unsynced = [segment for segment in self._unsynced if segment not in going]
        for segment in going:
            renamed = rename_segment_files(self.path, segment.base_offset, "", DELETED_SUFFIX, self._disk)
            snapshot = self.producers.mark_snapshot_deleted(segment.base_offset)
            self._delete_later([*renamed, *([] if snapshot is None else [snapshot])])
            segment.close()
        # The checkpoint leaves out a start that is the first segment's: it must not be written before this.
        self._disk.sync_directory(self.path)

    def remove_deleted_files(self) -> None:
        """Unlink the files of deleted segments whose `file.delete.delay.ms` has passed."""
        with self._lock:
            if len(self.deleted) and self._sync.failure is None:
                with self._disk_guard():
                    self.deleted.run(self._clock())

    def _delete_later(self, paths: Sequence[Path]) -> None:
        self.deleted.schedule(paths, self._clock() + self.config.file_delete_delay_ms)

    def replace_segments(self, new_base_offset: int, old: Sequence[Segment]) -> None:
        """Put the segment whose `.cleaned` files are complete in the place of others, for the cleaner.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        with self._flush_lock, self._lock, self._disk_guard():
            bases = {segment.base_offset for segment in old}
            present = [segment for segment in self.segments if segment.base_offset in bases]
            if len(present) < len(bases) or self._active in present:
                raise LogError(f"{self.path}: segments that were cleaned are not there any more")
            # A power cut must not take the markers by which the cleaner judged what it left out.
            self.flush()
            self._is_dirty = True
            renamed = swap_segments(self.path, [new_base_offset], bases, self._disk)
            for base_offset in bases - {new_base_offset}:
                snapshot = self.producers.mark_snapshot_deleted(base_offset)
                renamed += [] if snapshot is None else [snapshot]
            new = Segment(self.path, new_base_offset, self._opened)
            kept = [segment for segment in self.segments if segment.base_offset not in bases]
            self._files.segments = sorted([*kept, new], key=lambda segment: segment.base_offset)
            self._unsynced = [segment for segment in self._unsynced if segment.base_offset not in bases]
            self._delete_later(renamed)
            for segment in present:
                segment.close()
