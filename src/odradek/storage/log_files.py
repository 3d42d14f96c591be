"""What a partition's folder holds: which files make up its segments, also in the middle of a compaction.

    0.log.cleaned    being written            not a segment; of a later `.swap` too it says that the swap is not to be
    0.log.swap       complete, to replace     a segment: it stands for every one whose base offset lies in its range
    0.log.deleted    replaced, to unlink      not a segment

Source in Kafka: `LogLoader`, `LogSegments`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from odradek.errors import UnknownTopicOrPartitionError
from odradek.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    TopicPartition,
    parse_segment_file,
)
from odradek.storage.segment import OpenSegments, Segment

_LISTINGS = 20
_MARKS = (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)


class LogFiles:
    """The files of one partition, as they were when the folder was listed.

    Args:
        path: The folder.
        topic_partition: Whose it is.
        opened: The register of mapped segments.
        segments: The segments, where the caller knows them and keeps account of them; else the folder is listed.

    Attributes:
        path: The folder.
        segments: The segments, by base offset.
        snapshots: The offsets of the producer snapshots, in order.
        transaction_indexes: The base offsets of the segments that have a transaction index.
    """

    def __init__(
        self,
        path: Path,
        topic_partition: TopicPartition,
        opened: OpenSegments,
        *,
        segments: list[Segment] | None = None,
    ) -> None:
        self.path = path
        self._topic_partition = topic_partition
        self._opened = opened
        self.segments: list[Segment] = []
        self.snapshots: list[int] = []
        self.transaction_indexes: set[int] = set()
        if segments is None:
            self.refresh()
        else:
            self.segments = segments

    def refresh(self) -> None:
        """List the folder again.

        Raises:
            UnknownTopicOrPartitionError: The folder is gone.
        """
        for _ in range(_LISTINGS):
            # A file may go between the listing and a look at it.
            with suppress(FileNotFoundError):
                self._take_stock()
                return
        self._take_stock()

    def _take_stock(self) -> None:
        offsets = self._list()
        # Files that are renamed while the folder is listed may be missed; such work leaves marked files behind.
        for _ in range(_LISTINGS if any(suffix.endswith(_MARKS) for suffix in offsets) else 0):
            before, offsets = offsets, self._list()
            if offsets == before:
                break
        known = {segment.path: segment for segment in self.segments}
        cleaned = min(
            (min(found) for suffix, found in offsets.items() if suffix.endswith(CLEANED_SUFFIX)), default=None
        )
        bases = offsets.get(LOG_SUFFIX, set())
        swapped = [
            self._segment(base_offset, SWAP_SUFFIX, known)
            for base_offset in sorted(offsets.get(LOG_SUFFIX + SWAP_SUFFIX, ()))
            if cleaned is None or base_offset < cleaned
        ]
        if swapped:
            replaced = range(swapped[0].base_offset, max(segment.end().next_offset for segment in swapped))
            bases = {base_offset for base_offset in bases if base_offset not in replaced}
        segments = [*swapped, *(self._segment(base_offset, "", known) for base_offset in bases)]
        self.segments = sorted(segments, key=lambda segment: segment.base_offset)
        self.snapshots = sorted(offsets.get(SNAPSHOT_SUFFIX, ()))
        self.transaction_indexes = {
            segment.base_offset
            for segment in self.segments
            if segment.base_offset in offsets.get(TRANSACTION_INDEX_SUFFIX + segment.suffix, ())
        }
        for segment in known.values():
            segment.close()

    def _list(self) -> dict[str, set[int]]:
        offsets: dict[str, set[int]] = {}
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    named = parse_segment_file(entry.name)
                    if named is not None:
                        offsets.setdefault(named.suffix, set()).add(named.base_offset)
        except (FileNotFoundError, NotADirectoryError) as error:
            topic, partition = self._topic_partition
            raise UnknownTopicOrPartitionError(topic, partition, path=self.path.parent) from error
        return offsets

    def _segment(self, base_offset: int, suffix: str, known: dict[Path, Segment]) -> Segment:
        segment = Segment(self.path, base_offset, self._opened, suffix=suffix)
        before = known.pop(segment.path, None)
        if before is None:
            return segment
        before.refresh()
        return before

    def close(self) -> None:
        """Let go of every file."""
        for segment in self.segments:
            segment.close()
