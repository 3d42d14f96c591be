"""Sizes and lags over the last day, sampled while a console runs; `--history` keeps them in a file.

    block N    "ODRKHIST" | kind: byte | SHA-256 of kind and names | zeros up to 640 bytes | ring of minutes

`odradek.minutes` draws the ring; a block takes 40,960 bytes. There are series of the whole place, of groups and of
their partitions, a limited number of each. A new series takes the block of one that was not sampled for an hour; if
there is none, the new series is not kept. The file contains no names.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

from odradek.admin.group_rows import position_of
from odradek.errors import FormatError, LogError
from odradek.minutes import MINUTE_MS, RING_BYTES, Minute, Minutes, this_minute
from odradek.printable import logger
from odradek.storage.directory.surrounding import check_outside
from odradek.storage.file_lock import FileLock
from odradek.storage.files import FILES
from odradek.storage.regular_files import read_file

SIZE, LAG, GROUP, PARTITION = "size", "lag", "group", "partition"
"""The kinds of series, each with its level and its amount: the size of all topics, and the offsets written; the lag of
all groups; the lag of a group, and the offsets that it passed; the same of a group in one partition."""

GAP_MS = 10 * MINUTE_MS
"""Plots do not join samples that are further apart: the console was not running in between."""

_MOST = {SIZE: 1, LAG: 1, GROUP: 126, PARTITION: 128}
_KINDS = {kind: bytes([number]) for number, kind in enumerate(_MOST, 1)}
_CONSIDERED = 1000
_IDLE_MINUTES = 60
_MAGIC = b"ODRKHIST"
_HEAD_BYTES = 640
_BLOCK_BYTES = _HEAD_BYTES + RING_BYTES
_DIGEST_END = len(_MAGIC) + 1 + sha256().digest_size

_log = logger(__name__)


@dataclass
class _Series:
    """A series: its block in the file, its minutes, the minute of the last sample, and the position at that time."""

    block: int
    minutes: Minutes
    sampled: int
    position: int | None = None


class History:
    """The series of a console. Any thread may read them; one thread at a time may call `note`.

    Args:
        path: The file that keeps them; None keeps them in memory.
        folder: The log directory that the console shows; None for a broker.

    Raises:
        LogError: The file is in a log directory, is no history, or another console writes it.
        OSError: It cannot be read or written.
    """

    def __init__(self, path: Path | None = None, folder: Path | None = None) -> None:
        self._lock = Lock()
        self._series: dict[str, dict[bytes, _Series]] = {kind: {} for kind in _MOST}
        self._blocks = 0
        self._free: list[int] = []
        self._file = None
        if path is None:
            return
        try:
            check_outside(path, folder)
        except LogError as error:
            raise LogError(f"{path} is within a log directory: keep the history elsewhere") from error
        self._load(path)
        self._file_lock = FileLock(path)
        if not self._file_lock.acquire():
            raise LogError(f"{path} is written by another console")
        # It stays open: closing any descriptor of the file would release the lock.
        self._file = FILES.open(path)

    def _load(self, path: Path) -> None:
        try:
            content = read_file(path, sum(_MOST.values()) * _BLOCK_BYTES)
        except FileNotFoundError:
            return
        except FormatError as error:
            raise LogError(f"{path} is no history of a console: {error.reason}") from error
        if content[: len(_MAGIC)] != _MAGIC[: len(content)]:
            raise LogError(f"{path} is no history of a console: name another file")
        kinds = {number: kind for kind, number in _KINDS.items()}
        self._blocks = -(-len(content) // _BLOCK_BYTES)
        for block in range(self._blocks):
            held = content[block * _BLOCK_BYTES : (block + 1) * _BLOCK_BYTES]
            kind = kinds.get(held[len(_MAGIC) : len(_MAGIC) + 1]) if held.startswith(_MAGIC) else None
            if kind is None:
                # A crash tore it.
                self._free.append(block)
                continue
            digest = held[len(_MAGIC) + 1 : _DIGEST_END]
            minutes = Minutes(held[_HEAD_BYTES:])
            last = minutes.until(this_minute())[-1:]
            self._series[kind][digest] = _Series(block, minutes, last[0].number if last else 0)

    def minutes(self, kind: str, *names: object) -> list[Minute]:
        """Return the last day of a series, in order; empty if the series is not kept."""
        with self._lock:
            found = self._series[kind].get(_digest(kind, names))
            return [] if found is None else found.minutes.until(this_minute())

    def note(self, size_bytes: int, end_offsets: int, groups: Iterable[dict[str, Any]] | None) -> None:
        """Sample a place.

        Args:
            size_bytes: The size of all topics.
            end_offsets: The sum of the ends of all partitions.
            groups: The groups with their offsets, as `group_rows` has them; None if they are not known.
        """
        self._put(SIZE, (), size_bytes, end_offsets)
        if groups is None:
            return
        known = [group for group in groups if group["lag"] is not None]
        self._put(LAG, (), sum(max(0, group["lag"]) for group in known))
        shown = [
            group
            for group in heapq.nlargest(_CONSIDERED, known, key=lambda group: group["lag"])
            if self._put(GROUP, (group["group"],), group["lag"], sum(position_of(one) or 0 for one in group["offsets"]))
        ]
        rows = list(_first(shown, _CONSIDERED))
        for group_id, one in sorted(rows, key=lambda row: -row[1]["lag"]):
            self._put(PARTITION, (group_id, one["topic"], one["partition"]), one["lag"], position_of(one))

    def _put(self, kind: str, names: tuple[object, ...], level: int, position: int | None = None) -> bool:
        """Note a sample; return False if there is no room for its series."""
        minute, digest = this_minute(), _digest(kind, names)
        # Of a position after the end of its log nothing is left.
        level = max(0, level)
        with self._lock:
            series = self._series[kind].get(digest) or self._make(kind, digest, minute)
            if series is None:
                return False
            before, series.position, series.sampled = series.position, position, minute
            passed = 0 if before is None or position is None else max(0, position - before)
            changed = series.minutes.note(minute, level, passed)
            if changed is not None:
                self._write(series.block * _BLOCK_BYTES + _HEAD_BYTES + changed[0], changed[1])
        return True

    def _make(self, kind: str, digest: bytes, minute: int) -> _Series | None:
        kept = self._series[kind]
        if len(kept) < _MOST[kind]:
            block = self._free.pop() if self._free else self._blocks
            self._blocks = max(self._blocks, block + 1)
        else:
            oldest = min(kept, key=lambda one: kept[one].sampled)
            if minute - kept[oldest].sampled < _IDLE_MINUTES:
                return None
            block = kept.pop(oldest).block
            # The old minutes are erased first, so that a crash cannot give them to the new series.
            self._write(block * _BLOCK_BYTES + _HEAD_BYTES, bytes(RING_BYTES))
        series = kept[digest] = _Series(block, Minutes(), minute)
        self._write(block * _BLOCK_BYTES, (_MAGIC + _KINDS[kind] + digest).ljust(_HEAD_BYTES, b"\0"))
        return series

    def _write(self, position: int, data: bytes) -> None:
        if self._file is None:
            return
        try:
            self._file.write_at(position, data)
        except OSError as error:
            # The pages do not need the file.
            _log.error("%s is not written any more: %s", self._file.path, error.strerror or error)
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Close the file; later samples are kept in memory only."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None
                self._file_lock.release()


def _digest(kind: str, names: tuple[object, ...]) -> bytes:
    return sha256(repr((kind, *names)).encode("utf-8", "surrogatepass")).digest()


def _first(groups: Iterable[dict[str, Any]], most: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for group in groups:
        for one in group["offsets"]:
            if most == 0:
                return
            if one["lag"] is not None:
                most -= 1
                yield group["group"], one
