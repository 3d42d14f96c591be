"""Opens the indexes beside a segment: as hints for a reader, or to check them against the segment."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from odradek.errors import FormatError
from odradek.inspection.finding import Finding, FindingKind, dangling, unreadable
from odradek.storage import names
from odradek.storage.formats.offset_index import OffsetIndex
from odradek.storage.formats.time_index import TimeIndex
from odradek.storage.regular_files import file_size

Index = TypeVar("Index", OffsetIndex, TimeIndex)


def offset_index_beside(segment: Path, base_offset: int) -> OffsetIndex | None:
    """Return the offset index of a segment; None if there is none that can be read."""
    return _open(OffsetIndex, segment, base_offset, names.INDEX_SUFFIX)


def time_index_beside(segment: Path, base_offset: int) -> TimeIndex | None:
    """Return the time index of a segment; None if there is none that can be read."""
    return _open(TimeIndex, segment, base_offset, names.TIME_INDEX_SUFFIX)


def checked_index(kind: type[Index], path: Path, base_offset: int, found: list[Finding]) -> Index | None:
    """Return an index whose entries are in order, to be checked against its segment; None if it cannot be.

    Args:
        kind: Which kind of index.
        path: The file.
        base_offset: The segment's base offset.
        found: Gets a finding for what is wrong with the index by itself.
    """
    try:
        file_size(path)
        index = kind(path, base_offset)
        index.check()
    except FileNotFoundError:
        found += dangling(path)
    except FormatError as error:
        found.append(Finding(path, error.position, FindingKind.INDEX, error.reason))
    except OSError as error:
        found.append(unreadable(path, error))
    else:
        return index
    return None


def _open(kind: type[Index], segment: Path, base_offset: int, suffix: str) -> Index | None:
    # While a compaction replaces a segment, .log.swap has the new one, and .index.swap its index.
    marked = segment.name.partition(names.LOG_SUFFIX)[2]
    path = segment.with_name(names.segment_file_name(base_offset, suffix + marked))
    try:
        # Raises if this is not a regular file: opening a FIFO as an index would wait for ever.
        file_size(path)
        return kind(path, base_offset)
    except (FormatError, OSError):
        return None
