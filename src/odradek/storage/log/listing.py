"""Finds the segments of a partition among the files in its folder, also in the middle of a compaction.

    0.log.cleaned    being written            not a segment; it also says that a later `.swap` must not be swapped in
    0.log.swap       complete, to replace     a segment: it replaces all whose base offset is in its range
    0.log.deleted    replaced, to unlink      not a segment

When a file is created, renamed or removed, the folder has another version (`FileVersion`). As long as it is the same,
only the last segment is looked at.

Source in Kafka: `LogLoader`, `LogSegments`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from odradek.errors import UnknownTopicOrPartitionError
from odradek.storage.file_version import FileVersion, settled_version, version_of
from odradek.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    TopicPartition,
    parse_segment_file,
)
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.segment.segment import Access, Segment
from odradek.storage.segment.segment_swap import replaced_offsets
from odradek.storage.system_errors import unreadable

_LISTINGS = 20
_BESIDE = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
_MARKS = (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)


class SegmentListing:
    """The segments of a partition that another program may be writing.

    Args:
        path: The folder.
        topic_partition: Whose it is.
        opened: The register of open segments.
        stable_offset: Returns the offset below which no program cuts the log.

    Attributes:
        segments: The segments, by base offset; replaced, never changed.
    """

    def __init__(
        self, path: Path, topic_partition: TopicPartition, opened: OpenSegments, stable_offset: Callable[[], int]
    ) -> None:
        self._path = path
        self._path_text = str(path)
        self._topic_partition = topic_partition
        self._opened = opened
        self._stable_offset = stable_offset
        self._identity: tuple[int, int] | None = None
        self._listed: FileVersion | None = None
        self.segments: tuple[Segment, ...] = ()
        self.refresh()

    def refresh(self) -> bool:
        """Look at the folder again, and return whether it had to be listed: something may have been renamed.

        Raises:
            UnknownTopicOrPartitionError: The folder was deleted, or belongs to another topic now.
            LogError: The folder, or a file in it, cannot be read.
        """
        for _ in range(_LISTINGS):
            try:
                return self._look()
            except FileNotFoundError:
                # A file was removed between the listing and a look at it.
                self._listed = None
            except OSError as error:
                raise unreadable(error, self._path) from error
        return self._look()

    def _look(self) -> bool:
        try:
            status = os.stat(self._path_text)  # noqa: PTH116 - for each poll, and a path takes longer
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._unknown() from error
        identity = status.st_dev, status.st_ino
        if self._identity not in (None, identity):
            # The topic was deleted and created again: this is not the log that was opened.
            raise self._unknown()
        if self.segments and self._listed == version_of(status):
            # No file has another name since: the one that is open is the one of that name.
            self.segments[-1].refresh(is_same_file=True)
            return False
        before_ns = time.time_ns()
        while not self._take_stock():
            pass
        self._identity = identity
        self._listed = settled_version(status, before_ns)
        return True

    def _unknown(self) -> UnknownTopicOrPartitionError:
        topic, partition = self._topic_partition
        return UnknownTopicOrPartitionError(topic, partition, path=self._path.parent)

    def _take_stock(self) -> bool:
        """List the folder; return whether no other thread did meanwhile, which may have seen less, or more."""
        segments_then = self.segments
        offsets = self._list()
        # Files that are renamed during the listing may be missed. Such work leaves files with a mark.
        for _ in range(_LISTINGS if any(suffix.endswith(_MARKS) for suffix in offsets) else 0):
            before, offsets = offsets, self._list()
            if offsets == before:
                break
        known = {(segment.base_offset, segment.suffix): segment for segment in segments_then}
        cleaned = min(
            (min(found) for suffix, found in offsets.items() if suffix.endswith(CLEANED_SUFFIX)), default=None
        )
        bases = set(offsets.get(LOG_SUFFIX, ()))
        swapped = [
            self._segment(base_offset, SWAP_SUFFIX, known, inode, segments_then)
            for base_offset, inode in sorted(offsets.get(LOG_SUFFIX + SWAP_SUFFIX, {}).items())
            if cleaned is None or base_offset < cleaned
        ]
        if swapped:
            replaced = replaced_offsets(swapped)
            bases = {base_offset for base_offset in bases if base_offset not in replaced}
        inodes = offsets.get(LOG_SUFFIX, {})
        segments = [*swapped, *(self._segment(base, "", known, inodes[base], segments_then) for base in bases)]
        segments.sort(key=lambda segment: segment.base_offset)
        self._set_access(segments)
        if segments:
            segments[-1].refresh()
        listed = segments_then if segments == list(segments_then) else tuple(segments)
        # No other thread comes between this look and what follows: nothing is called.
        if self.segments is not segments_then:
            return False
        self.segments = listed
        for segment in known.values():
            segment.close()
        return True

    def _set_access(self, segments: list[Segment]) -> None:
        stable_offset = self._stable_offset()
        for number, segment in enumerate(segments):
            is_sealed = number + 1 < len(segments)
            is_stable = is_sealed and segments[number + 1].base_offset <= stable_offset
            if is_sealed and (segment.access is Access.STABLE) != is_stable:
                segment.hold(Access.STABLE if is_stable else Access.UNSTABLE)

    def _list(self) -> dict[str, dict[int, int]]:
        """Return the base offsets of the files with each suffix, and their inodes."""
        offsets: dict[str, dict[int, int]] = {}
        try:
            with os.scandir(self._path) as entries:
                for entry in entries:
                    # Of 10,000 segments these are 30,000 files, and nobody asks for them here.
                    if entry.name.endswith(_BESIDE):
                        continue
                    named = parse_segment_file(entry.name)
                    if named is not None:
                        offsets.setdefault(named.suffix, {})[named.base_offset] = entry.inode()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._unknown() from error
        except OSError as error:
            raise unreadable(error, self._path) from error
        return offsets

    def _segment(
        self,
        base_offset: int,
        suffix: str,
        known: dict[tuple[int, str], Segment],
        inode: int,
        segments_then: Sequence[Segment],
    ) -> Segment:
        before = known.pop((base_offset, suffix), None)
        if before is None:
            return Segment(self._path, base_offset, self._opened, suffix=suffix, access=Access.UNSTABLE).identify()
        if before.inode != inode or before is segments_then[-1]:
            # It is another file, or the one that was the active segment and has grown since.
            before.refresh()
        return before

    def close(self) -> None:
        """Close all files."""
        for segment in self.segments:
            segment.close()
