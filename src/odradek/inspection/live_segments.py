"""The segments that make up a log, also in the middle of a compaction, and where each of them ends.

    0.log.swap   complete, to replace others      a segment of the log, in the place of those
    0.log        50.log

Source in Kafka: `LogLoader`, `LogSegment`.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import NamedTuple

from odradek.errors import FormatError
from odradek.inspection.indexes import offset_index_beside
from odradek.inspection.log_files import PartitionFolder
from odradek.records import scan_batches
from odradek.records.header import NO_TIMESTAMP
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.names import SWAP_SUFFIX
from odradek.storage.regular_files import file_size
from odradek.storage.segment.batch_reader import mapped


class LiveSegment(NamedTuple):
    """A segment of a log.

    Attributes:
        path: The `.log` file, or `.log.swap`.
        base_offset: The offset in its name.
    """

    path: Path
    base_offset: int


class LiveEnd(NamedTuple):
    """Where a segment ends.

    Attributes:
        next_offset: The offset after its last whole batch; the base offset if it has none.
        size_bytes: The size of the file.
        damage: What is wrong with the bytes after that batch; None if there are none.
        last_timestamp: The greatest timestamp of that batch, in ms; None if it has none.
    """

    next_offset: int
    size_bytes: int
    damage: FormatError | None
    last_timestamp: int | None = None


def live_segments(folder: PartitionFolder) -> list[LiveSegment]:
    """Return the segments of a log, in the order of their base offsets.

    Raises:
        FormatError: A file of an unfinished compaction is not a regular file.
        OSError: Such a file cannot be read.
    """
    swapped = list(folder.path.glob(f"*{SWAP_SUFFIX}"))
    if not swapped:
        return [LiveSegment(file.path, file.base_offset) for file in folder.segments]
    # The log decides below which segments count, and opens these files: first check that they are regular files.
    for path in swapped:
        try:
            file_size(path)
        except FileNotFoundError:
            # It has its final name by now, unless it is a link that leads nowhere.
            if path.is_symlink():
                raise
    with ReadOnlyLog(folder.path) as log:
        return [LiveSegment(segment.path, segment.base_offset) for segment in log.segments]


def find_end(segment: LiveSegment) -> LiveEnd:
    """Return where a segment ends: the last indexed batch is looked up, and the batches after it are verified.

    Raises:
        FormatError: It is not a regular file.
        OSError: It cannot be read.
    """
    with mapped(segment.path) as data:
        position, next_offset, timestamp = _last_indexed(segment, data), segment.base_offset, NO_TIMESTAMP
        scan = scan_batches(data, position, path=segment.path)
        for header in scan:
            next_offset, timestamp = header.next_offset, header.max_timestamp
        return LiveEnd(next_offset, len(data), scan.damage, None if timestamp < 0 else timestamp)


def _last_indexed(segment: LiveSegment, data: mmap.mmap | bytes) -> int:
    """Return where the last indexed batch starts; 0 if the index is wrong about it."""
    index = offset_index_beside(segment.path, segment.base_offset)
    if index is None:
        return 0
    number = index.floor_position(len(data) - 1)
    entry = index.entry(number) if number >= 0 else None
    index.close()
    header = None if entry is None else next(iter(scan_batches(data, entry.position)), None)
    if entry is None or header is None or not segment.base_offset <= header.base_offset <= entry.offset:
        return 0
    return entry.position
