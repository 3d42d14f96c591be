"""Finds out whether a batch that begins below the end of the one before it is only a copy of an earlier one.

    | 0..4 | 5..6 | 0..4 | 7..8 |    written again by a program that took it for lost: Kafka keeps it, consumers skip it

No checksum covers a base offset: a batch that is no copy, and begins there, may have a wrong one.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from odradek.buffers import Buffer
from odradek.errors import FormatError
from odradek.records.header import BatchHeader
from odradek.records.scan import scan_batches
from odradek.storage.formats.offset_index import OffsetIndex
from odradek.storage.names import INDEX_SUFFIX
from odradek.storage.segment.batch_reader import mapped


class CopySearch:
    """Looks for copies in one file after the other. One thread at a time."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._position = 0

    def end_of_copy(self, path: Path, position: int) -> int | None:
        """Return where a batch ends that is a copy of one before it in the same segment; None if it is none.

        Args:
            path: The `.log` file.
            position: Where the batch begins.
        """
        try:
            with mapped(path) as data:
                header = next(iter(scan_batches(data, position)), None)
                if header is None:
                    return None
                # What was written again is often a run: look behind the copy that was found last.
                places = [_indexed(path, header.base_offset), 0]
                if path == self._path:
                    places.insert(0, self._position)
                for start in places:
                    found = _copy_of(header, data, start)
                    if found is not None:
                        self._path, self._position = path, found.end_position
                        return header.end_position
        except (FormatError, OSError, ValueError):
            # Nothing is known of it then.
            return None
        return None


def _copy_of(header: BatchHeader, data: Buffer, start: int) -> BatchHeader | None:
    for other in scan_batches(data, start, header.position, check_crc=False):
        if other.identity == header.identity:
            return other
        if other.base_offset > header.base_offset:
            break
    return None


def _indexed(path: Path, offset: int) -> int:
    """Return where the index says that a batch begins, at or before an offset; 0 if there is none."""
    with closing(OffsetIndex(path.with_suffix(INDEX_SUFFIX), int(path.stem))) as index:
        return index.lookup(offset).position
