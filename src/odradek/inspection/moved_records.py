"""Reads the segments of a listing, although a broker deletes and compacts them meanwhile.

    listed   0.log   100.log   200.log
    now      0.log             200.log      0.log was written again, and holds what compaction left of 0 to 199
             |- 100 to 199 are read there, unless it was already read as it is now

What retention deleted is left out. A file that the caller named itself must be there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from odradek.errors import OdradekError
from odradek.inspection.live_segments import live_segments
from odradek.inspection.log_files import FileKind, LogFile, PartitionFolder, partition_folder
from odradek.inspection.selection import NO_END, DumpSelection
from odradek.storage.log.read_only_log import ReadOnlyLog

T = TypeVar("T")
_MOST_LOOKS = 8
_MOST_MOVES = 20
"""A range that moves more often than that is not read."""


class MovedRecords:
    """Reads segments one after the other, in the order of their listing. Belongs to one thread at a time."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._whole: set[tuple[int, int]] = set()

    def read(
        self, file: LogFile, selection: DumpSelection, action: Callable[[LogFile, DumpSelection], Iterator[T]]
    ) -> Iterator[T]:
        """Yield what an action yields of a file, or of those that hold now what was in it.

        Args:
            file: The file.
            selection: Which of its records are wanted.
            action: Opens a file before it yields anything, and yields what is wanted of it.

        Raises:
            OSError: A file cannot be read, or one that was named is not there.
            OdradekError: The folder cannot be listed any more.
        """
        if file.is_named or not file.is_segment:
            yield from action(file, selection)
            return
        if file.path.parent != self._folder:
            self._folder, self._whole = file.path.parent, set()
        identity = _identity(file.path)
        if identity is not None:
            try:
                yield from action(file, selection)
            except FileNotFoundError:
                pass
            else:
                self._whole.add(identity)
                return
        end = NO_END if file.next_base_offset is None else file.next_base_offset
        yield from self._read_moved(file.path.parent, file.base_offset, end, selection, action, 0)

    def _read_moved(
        self,
        folder: Path,
        start: int,
        end: int,
        selection: DumpSelection,
        action: Callable[[LogFile, DumpSelection], Iterator[T]],
        moves: int,
    ) -> Iterator[T]:
        for file in _files_of(folder, start, end):
            first = max(start, file.base_offset)
            last = end if file.next_base_offset is None else min(end, file.next_base_offset)
            if _identity(file.path) in self._whole:
                continue
            try:
                yield from action(file, selection.within(first, last))
            except FileNotFoundError:
                if moves > _MOST_MOVES:
                    raise
                yield from self._read_moved(folder, first, last, selection, action, moves + 1)


def while_unchanged(folder: PartitionFolder, look: Callable[[PartitionFolder], T], finds: Callable[[T], bool]) -> T:
    """Look at a partition as a whole, and again if something is found and its segments were replaced meanwhile.

    Args:
        folder: The partition.
        look: Looks at it.
        finds: Whether there is something that is worth another look.

    Returns:
        What the last look gave.
    """
    for _ in range(_MOST_LOOKS - 1):
        before = _identities(folder)
        found = look(folder)
        if not finds(found) or (before == _identities(folder) and None not in before):
            return found
        folder = partition_folder(folder.path)
    return look(folder)


def overlaps_of(folder: Path) -> dict[int, int]:
    """Return what `Log.overlaps` says of a folder; nothing if it cannot be read, which its readers report."""
    try:
        with ReadOnlyLog(folder) as log:
            return log.overlaps()
    except (OSError, OdradekError):
        return {}


def _identities(folder: PartitionFolder) -> list[tuple[int, int] | None]:
    return [_identity(file.path) for file in folder.segments]


def unless_deleted(action: Callable[[LogFile], Iterator[T]], file: LogFile) -> Iterator[T]:
    """Yield what an action yields of a file; nothing of one that was deleted since its folder was listed.

    Raises:
        FileNotFoundError: It was named, or what was in it is in another file now.
    """
    try:
        yield from action(file)
    except FileNotFoundError:
        end = NO_END if file.next_base_offset is None else file.next_base_offset
        if file.is_named or os.path.lexists(file.path):
            raise
        if file.is_segment and _files_of(file.path.parent, file.base_offset, end):
            raise


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        # A link that leads nowhere is one that cannot be read, and stays so.
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _files_of(folder: Path, start: int, end: int) -> list[LogFile]:
    """Return the segments that may hold a range of offsets now; none if the folder is gone."""
    now = partition_folder(folder)
    try:
        segments = live_segments(now)
    except (FileNotFoundError, OdradekError):
        if not folder.exists():
            return []
        raise
    following = [*(segment.base_offset for segment in segments[1:]), None]
    return [
        LogFile(segment.path, FileKind.RECORDS, segment.base_offset, now.topic_partition, next_base)
        for segment, next_base in zip(segments, following, strict=True)
        if segment.base_offset < end and (next_base is None or next_base > start)
    ]
