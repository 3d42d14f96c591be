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


def index_path(segment: Path, base_offset: int, suffix: str) -> Path:
    """Return the index of a segment that has a suffix, also in the middle of a compaction that replaces the segment.

    Then `.log.swap` is the new one, and `.index.swap` its index; the segment gets its final name first.
    """
    marked = segment.name.partition(names.LOG_SUFFIX)[2]
    path = segment.with_name(names.segment_file_name(base_offset, suffix + marked))
    swapped = path.with_name(path.name + names.SWAP_SUFFIX)
    is_late = not marked and swapped.exists() and not segment.with_name(segment.name + names.SWAP_SUFFIX).exists()
    return swapped if is_late else path


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
    path = index_path(segment, base_offset, suffix)
    try:
        # Raises if this is not a regular file: opening a FIFO as an index would wait for ever.
        file_size(path)
        return kind(path, base_offset)
    except (FormatError, OSError):
        return None
