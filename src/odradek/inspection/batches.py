"""Reads the batches of a file with the damage between them, and verifies those of a file that is no log's segment."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from odradek.errors import FormatError
from odradek.inspection.finding import Finding, FindingKind
from odradek.inspection.log_files import LogFile
from odradek.records import BatchHeader, read_records
from odradek.storage.segment.batch_reader import BatchReader, Damage, damage_of, mapped

_CHUNK_BYTES = 1 << 20


def batches_and_damage(path: Path, data: mmap.mmap | bytes) -> Iterator[BatchHeader | Damage]:
    """Give the batches of a file, and the damage between them in its place."""
    damages: list[Damage] = []
    for header in BatchReader(path, data, damages.append):
        yield from damages
        damages.clear()
        yield header
    yield from damages


def active_batches(
    path: Path, data: mmap.mmap | bytes, *, is_preallocated: bool = False
) -> Iterator[BatchHeader | Damage]:
    """Give the batches of a log's last segment, which somebody may be writing to, and the damage between them.

    Args:
        path: The file.
        data: Its bytes.
        is_preallocated: Whether zeros at the end are the room of what is to come, and no damage.
    """
    for item in batches_and_damage(path, data):
        if isinstance(item, Damage):
            # A batch of which only the first part was there is whole a moment later.
            if item.is_truncation and path.stat().st_size > len(data):
                continue
            if is_preallocated and item.position + item.size_bytes == len(data) and _is_zero(data, item.position):
                continue
        yield item


def _is_zero(data: mmap.mmap | bytes, position: int) -> bool:
    return all(not any(data[start : start + _CHUNK_BYTES]) for start in range(position, len(data), _CHUNK_BYTES))


def damage_finding(damage: Damage) -> Finding:
    """Return the finding for bytes that cannot be read."""
    reason = f"{damage.size_bytes} bytes not read: {damage.reason}"
    return Finding(damage.path, damage.position, FindingKind.DAMAGE, reason)


class LooseBatches:
    """The batches of a file that is no segment of a log any more, or not yet: a leftover.

    Args:
        file: The file.
        decode: Whether every record is decoded too.

    Attributes:
        batches: How many batches were read.
    """

    def __init__(self, file: LogFile, *, decode: bool) -> None:
        self._path = file.path
        self._decode = decode
        self.batches = 0

    def findings(self) -> Iterator[Finding]:
        """Give what is damaged.

        Raises:
            FormatError: There is no file.
            OSError: It cannot be read.
        """
        with mapped(self._path) as data:
            for item in batches_and_damage(self._path, data):
                if isinstance(item, Damage):
                    yield damage_finding(item)
                    continue
                self.batches += 1
                if self._decode:
                    try:
                        read_records(data, item)
                    except FormatError as error:
                        yield damage_finding(damage_of(self._path, item, error))
