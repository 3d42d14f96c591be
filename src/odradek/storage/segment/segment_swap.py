"""Replaces segments by the one that was compacted from them, so that a crash leaves either the old ones or the new one.

    0.log.cleaned ->  0.log.swap  ->  0.log                  written and synced before; see `CleanedSegment`
    0.log 7.log                   ->  0.log.deleted 7.log.deleted, unlinked later
                  ^ before this a restart discards the new segment, after it a restart completes the swap

The new segments are renamed to `.swap` from the last to the first: a loader that finds a `.cleaned` file treats every
`.swap` at or above its offset as unfinished. The old ones are renamed from the first to the last: the records that a
tombstone deletes, or a marker ends, are gone before it.

Source in Kafka: `LocalLog.replaceSegments`, `LogSegment.changeFileSuffixes`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from odradek.storage.files import FILES, FileSystem
from odradek.storage.names import CLEANED_SUFFIX, DELETED_SUFFIX, SEGMENT_SUFFIXES, SWAP_SUFFIX, segment_file_name
from odradek.storage.segment.segment import Segment


def replaced_offsets(swapped: Sequence[Segment]) -> range:
    """Return the base offsets of the segments that `.swap` segments replace; for one without records, its own.

    Args:
        swapped: The `.swap` segments, at least one, by base offset.
    """
    end = max(segment.end().next_offset for segment in swapped)
    return range(swapped[0].base_offset, max(end, swapped[-1].base_offset + 1))


def rename_segment_files(
    directory: Path, base_offset: int, old_suffix: str, new_suffix: str, files: FileSystem = FILES
) -> list[Path]:
    """Change the suffix of a segment's files; skip those that are missing.

    Returns:
        The files under their new names.
    """
    renamed = []
    for suffix in SEGMENT_SUFFIXES:
        source = directory / segment_file_name(base_offset, suffix + old_suffix)
        target = directory / segment_file_name(base_offset, suffix + new_suffix)
        if source.exists():
            files.rename(source, target)
            renamed.append(target)
    return renamed


class SegmentSwap:
    """Replaces segments by those whose `.cleaned` files are complete and synced.

    The caller holds the lock under which the log's list of segments changes. The caller also deletes producer snapshots
    at old base offsets that are not among the new ones.

    Args:
        directory: The partition's folder.
        new_base_offsets: The new segments.
        old_base_offsets: The old ones, including those with the same base offsets.
        files: The file system to write through.
    """

    def __init__(
        self,
        directory: Path,
        new_base_offsets: Collection[int],
        old_base_offsets: Collection[int],
        files: FileSystem = FILES,
    ) -> None:
        self._directory = directory
        self._new = sorted(new_base_offsets)
        self._old = sorted(old_base_offsets)
        self._files = files
        self._steps_done = 0

    @property
    def deleted(self) -> list[Path]:
        """The files that are to be unlinked after `file.delete.delay.ms`."""
        names = [
            segment_file_name(base_offset, suffix + DELETED_SUFFIX)
            for base_offset in self._old
            for suffix in SEGMENT_SUFFIXES
        ]
        return [path for path in map(self._directory.joinpath, names) if path.exists()]

    def run(self) -> None:
        """Rename the files; if an exception ended it, call it again to continue.

        An incomplete step is repeated: files that it has renamed no longer have their old names.
        """
        for number, step in enumerate((self._mark_complete, self._mark_deleted, self._take_place)):
            if self._steps_done == number:
                step()
                self._steps_done = number + 1

    def _mark_complete(self) -> None:
        # The `.cleaned` names reach the disk first: if a rename to `.swap` does not, the remaining `.cleaned` file
        # shows it.
        self._files.sync_directory(self._directory)
        for base_offset in reversed(self._new):
            rename_segment_files(self._directory, base_offset, CLEANED_SUFFIX, SWAP_SUFFIX, self._files)
            # If a later rename reached the disk before these, a crash could lose both the old segments and a new one.
            self._files.sync_directory(self._directory)

    def _mark_deleted(self) -> None:
        for base_offset in self._old:
            rename_segment_files(self._directory, base_offset, "", DELETED_SUFFIX, self._files)
            self._files.sync_directory(self._directory)

    def _take_place(self) -> None:
        for base_offset in self._new:
            rename_segment_files(self._directory, base_offset, SWAP_SUFFIX, "", self._files)
            # One by one: a loader that finds a `.swap` removes what lies between it and the last one.
            self._files.sync_directory(self._directory)
