"""Opens the indexes beside a segment, where they can be opened: they are hints, and a reader does without one."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from odradek.errors import FormatError
from odradek.storage import names
from odradek.storage.index.offset_index import OffsetIndex
from odradek.storage.index.time_index import TimeIndex
from odradek.storage.regular_files import file_size

Index = TypeVar("Index", OffsetIndex, TimeIndex)


def offset_index_beside(segment: Path, base_offset: int) -> OffsetIndex | None:
    """Return the offset index of a segment; None where there is none that can be read."""
    return _open(OffsetIndex, segment, base_offset, names.INDEX_SUFFIX)


def time_index_beside(segment: Path, base_offset: int) -> TimeIndex | None:
    """Return the time index of a segment; None where there is none that can be read."""
    return _open(TimeIndex, segment, base_offset, names.TIME_INDEX_SUFFIX)


def _open(kind: type[Index], segment: Path, base_offset: int, suffix: str) -> Index | None:
    path = segment.with_name(names.segment_file_name(base_offset, suffix))
    try:
        # The indexes themselves open whatever is there, and wait at a FIFO.
        file_size(path)
        return kind(path, base_offset)
    except (FormatError, OSError):
        return None
