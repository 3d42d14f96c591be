"""Holds the segments of a partition as they are at one moment, beside a program that continues to write.

    listing     0.log  100.log  200.log        opened, each by a descriptor
    meanwhile   0.log is deleted, 0.log and 100.log are compacted into one, 300.log is rolled
    held        0.log  100.log  200.log        up to where the whole batches of the last one ended

A file that is held stays readable when its name is gone. The folder is listed again after the files were opened. If one
of them was replaced meanwhile, the files are not of one moment, and all of them are opened again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from odradek.closing import Closing
from odradek.errors import LogError
from odradek.inspection.log_files import QUORUM_STATE
from odradek.storage.formats.checkpoints import LEADER_EPOCH_CHECKPOINT
from odradek.storage.formats.partition_metadata import PARTITION_METADATA
from odradek.storage.log.listing import SegmentListing
from odradek.storage.names import CHECKPOINT_SUFFIX, TopicPartition, parse_raft_snapshot_file
from odradek.storage.regular_files import open_descriptor, read_file
from odradek.storage.segment.offset_lookup import locate_batch
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.segment.segment import Segment

_ATTEMPTS = 200
_MAX_FILE_BYTES = 1 << 28
_WHOLE_FILES = (PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT, QUORUM_STATE)
"""Small files that are replaced by renames, so that each is whole whenever it is read."""


class ChangedError(LogError):
    """Files were replaced while they were looked at."""


class HeldFile:
    """An open file, whatever becomes of its name.

    Attributes:
        path: Its name when it was opened.
        descriptor: Its descriptor.
        status: What the system said of it then.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = open_descriptor(path)
        self.status = os.fstat(self.descriptor)

    def has_name(self) -> bool:
        """Whether the file still has its name."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) == (self.status.st_dev, self.status.st_ino)

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


@dataclass(frozen=True, slots=True)
class HeldSegment:
    """A segment of a partition that is held.

    Attributes:
        base_offset: Its base offset.
        suffix: `.swap` if a compaction was about to give it its name, else empty.
        file: The `.log` file.
        size_bytes: How much of it is wanted: whole batches.
        is_last: Whether it is the one that was written to, or where the partition is cut.
        is_settled: Whether no program will change it any more, only delete it.
    """

    base_offset: int
    suffix: str
    file: HeldFile
    size_bytes: int
    is_last: bool
    is_settled: bool


class HeldPartition(Closing):
    """The files of a partition at one moment; a context manager.

    Args:
        path: Its folder.
        topic_partition: Whose it is.
        stable_offset: Returns the offset below which no program cuts the log.
        end_offset: Where to cut it, after the whole batch; if None, or beyond the log, where it ends.

    Attributes:
        path: As given.
        topic_partition: As given.
        segments: The segments, by base offset.
        end_offset: The offset after the last record that is held.
        whole_files: The content of the small files, by name.
        snapshots: The snapshots of the metadata log.

    Raises:
        UnknownTopicOrPartitionError: The folder was deleted.
        ChangedError: Files are replaced too quickly.
    """

    def __init__(
        self,
        path: Path,
        topic_partition: TopicPartition,
        stable_offset: Callable[[], int],
        end_offset: int | None = None,
    ) -> None:
        self.path = path
        self.topic_partition = topic_partition
        self.segments: list[HeldSegment] = []
        self.end_offset = 0
        self.whole_files: dict[str, bytes] = {}
        self.snapshots: list[HeldFile] = []
        self._stable_offset = stable_offset
        self._files = ExitStack()
        for attempt in range(_ATTEMPTS):
            try:
                self._hold(end_offset)
            except (FileNotFoundError, ChangedError):
                self.close()
                time.sleep(0.0005 * attempt)
            except BaseException:
                self.close()
                raise
            else:
                return
        raise ChangedError(f"the files of {path} are replaced too quickly to be copied")

    def close(self) -> None:
        """Close the files."""
        self._files.close()
        self.segments, self.snapshots, self.whole_files = [], [], {}

    @property
    def size_bytes(self) -> int:
        """How many bytes of segments are held."""
        return sum(segment.size_bytes for segment in self.segments)

    def check(self) -> None:
        """Check that no segment was replaced since; the head of the log may be gone, and its end may have grown.

        Raises:
            ChangedError: A segment was replaced.
            UnknownTopicOrPartitionError: The folder was deleted.
        """
        inodes = {segment.base_offset: segment.file.status.st_ino for segment in self.segments}
        listing = SegmentListing(self.path, self.topic_partition, OpenSegments(), self._stable_offset)
        try:
            listed = {segment.base_offset: segment.inode for segment in listing.segments}
        finally:
            listing.close()
        first = min(listed, default=0)
        if any(listed.get(base_offset) != inode for base_offset, inode in inodes.items() if base_offset >= first):
            raise ChangedError(f"segments of {self.path} were replaced")

    def _open(self, path: Path) -> HeldFile:
        file = HeldFile(path)
        self._files.callback(file.close)
        return file

    def _hold(self, end_offset: int | None) -> None:
        for name in _WHOLE_FILES:
            with suppress(FileNotFoundError):
                self.whole_files[name] = read_file(self.path / name, _MAX_FILE_BYTES)
        listing = SegmentListing(self.path, self.topic_partition, OpenSegments(), self._stable_offset)
        try:
            self._hold_segments(listing.segments, end_offset)
        finally:
            listing.close()
        for path in sorted(self.path.glob(f"*{CHECKPOINT_SUFFIX}")):
            if parse_raft_snapshot_file(path.name) is not None:
                self.snapshots.append(self._open(path))
        self.check()

    def _hold_segments(self, segments: Sequence[Segment], end_offset: int | None) -> None:
        stable_offset = self._stable_offset()
        if segments:
            end = segments[-1].end()
            position, self.end_offset = end.position, end.next_offset
        if end_offset is not None and segments and end_offset < self.end_offset:
            segments = [segments[0], *(segment for segment in segments[1:] if segment.base_offset <= end_offset)]
            header, position = locate_batch(segments[-1], end_offset, verifies=False)
            self.end_offset = max(end_offset, segments[-1].base_offset)
            if header is not None and header.base_offset < end_offset:
                position, self.end_offset = header.end_position, header.next_offset
        for segment, following in zip_longest(segments, segments[1:]):
            file = self._open(segment.path)
            if file.status.st_ino != segment.inode:
                raise ChangedError(f"{segment.path} was replaced")
            self.segments.append(
                HeldSegment(
                    segment.base_offset,
                    segment.suffix,
                    file,
                    position if following is None else file.status.st_size,
                    following is None,
                    following is not None and following.base_offset <= stable_offset,
                )
            )
