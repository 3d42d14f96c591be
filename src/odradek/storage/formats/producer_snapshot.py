"""`<offset>.snapshot`: a partition's state of its producers when its log ended at that offset.

    | version: int16 = 1 | crc: uint32 | count: int32 | entry * count |      crc: CRC-32C of what follows it

    | producer_id: int64 | producer_epoch: int16 | last_sequence: int32 | last_offset: int64 | offset_delta: int32
    | last_timestamp: int64 | coordinator_epoch: int32 | current_transaction_first_offset: int64 |    46 bytes an entry

Only the last batch of each producer is kept. `offset_delta` is the number of the batch's records minus one; -1 means
"none" everywhere.

Source in Kafka: `ProducerStateManager`, `ProducerStateEntry`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from odradek.errors import FormatError
from odradek.records.kernels.checksums import crc32c
from odradek.storage.files import FILES, Buffer, FileSystem, replace_file
from odradek.storage.regular_files import open_file, read_at

HEADER = struct.Struct(">hIi")
"""The version, the checksum, and how many entries follow."""
ENTRY = struct.Struct(">qhiqiqiq")
"""An entry: the fields of `ProducerSnapshotEntry`, in their order."""
_VERSION = 1
_CRC_END = 6
_MAX_BYTES = 1 << 30
"""Twenty million producers: more than a partition ever has."""
NONE = -1


@dataclass(frozen=True, slots=True)
class ProducerSnapshotEntry:
    """The state of one producer in a snapshot; -1 means none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    last_timestamp: int
    coordinator_epoch: int
    current_transaction_first_offset: int


def parse_snapshot(data: Buffer, *, path: Path | None = None) -> list[ProducerSnapshotEntry]:
    """Read a snapshot.

    Raises:
        FormatError: The version is unknown, the checksum differs, or the size does not match the count.
    """
    crc = _check_header(data, len(data), path)
    actual = crc32c(memoryview(data)[_CRC_END:])
    if crc != actual:
        raise FormatError(f"the checksum is {crc:#010x}, its bytes give {actual:#010x}", path=path, position=2)
    return [ProducerSnapshotEntry(*fields) for fields in ENTRY.iter_unpack(memoryview(data)[HEADER.size :])]


def _check_header(data: Buffer, size: int, path: Path | None) -> int:
    """Return the checksum in a snapshot of `size` bytes, after checking version and count."""
    if len(data) < HEADER.size:
        raise FormatError(f"{len(data)} bytes are too few for a producer snapshot", path=path, position=0)
    version, crc, count = HEADER.unpack_from(data)
    if version != _VERSION:
        raise FormatError(f"version {version} is unknown", path=path, position=0)
    expected = HEADER.size + count * ENTRY.size
    if count < 0 or expected != size or size > _MAX_BYTES:
        raise FormatError(f"{count} producers take {expected} bytes, there are {size}", path=path, position=6)
    return int(crc)


def format_snapshot(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    """Return a snapshot's bytes."""
    body = b"".join(
        ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_transaction_first_offset,
        )
        for entry in entries
    )
    checked = (len(body) // ENTRY.size).to_bytes(4, "big") + body
    return struct.pack(">hI", _VERSION, crc32c(checked)) + checked


def read_snapshot(path: Path) -> list[ProducerSnapshotEntry]:
    """Read a snapshot file, after checking that its size is what its header says.

    Raises:
        FormatError: It is damaged. Kafka then deletes it and uses the previous one.
        OSError: It does not exist, or the disk failed.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        _check_header(read_at(file, path, 0, HEADER.size), size, path)
        return parse_snapshot(read_at(file, path, 0, size), path=path)


def write_snapshot(path: Path, entries: Iterable[ProducerSnapshotEntry], files: FileSystem = FILES) -> None:
    """Write a snapshot file and bring it to the disk; what is interrupted leaves no part of one under its name."""
    replace_file(path, format_snapshot(entries), files)
