"""Walks over batches, header by header, and says where and why it had to stop.

    | batch | batch | batch | torn tail ...
                            ^ position; damage says why

Bytes that are not a batch raise nothing: the batches before them are good, and the caller decides.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import IntEnum

from odradek.buffers import Buffer
from odradek.errors import (
    CorruptRecordError,
    FormatError,
    MissingRecordsError,
    TruncatedBatchError,
    UnsupportedMagicError,
)
from odradek.records.header import (
    CODEC_MASK,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    SIZE_POSITION,
    V2_FIELDS,
    V2_HEADER_BYTES,
    BatchHeader,
    claimed_size,
)
from odradek.records.kernels.batches import BatchTable, walk_batches

MAX_CODEC = 4

CHUNK_BATCHES = 4096
"""How many headers are walked over at a time; this bounds the memory of a scan."""

_CHUNK_GROWTH = 8
"""A caller that stops at the first batch has had one looked at, not thousands."""


class Status(IntEnum):
    """Why a kernel stopped; the numbers are those of `kernels/wire.pxd`."""

    OK = 0
    END = 1
    TRUNCATED = 2
    BAD_SIZE = 3
    BAD_MAGIC = 4
    BAD_CRC = 5
    BAD_HEADER = 6
    BAD_RECORD = 7
    COMPRESSED = 8
    FULL = 9
    NO_MEMORY = 10
    BAD_ORDER = 11
    GAP = 12


def damage_at(
    status: int,
    data: Buffer,
    position: int,
    end: int,
    path: str | os.PathLike[str] | None = None,
    *,
    origin: int = 0,
    next_offset: int = -1,
) -> FormatError:
    """Return an error that says why the bytes at `position` are not a batch, or not the next one.

    Args:
        status: What the kernel said.
        data: The bytes.
        position: Where the batch should have started.
        end: Where the bytes end.
        path: The file that they come from, if any.
        origin: The position in the file at which `data` starts; `position` and `end` count from the start of the file.
        next_offset: The least offset that the batch should have had.

    Raises:
        MemoryError: The kernel ran out of memory, so nothing is known about the bytes.
    """
    view, start = memoryview(data), position - origin
    left = end - position
    size = (
        int.from_bytes(view[start + SIZE_POSITION : start + LOG_OVERHEAD], "big", signed=True)
        if left >= LOG_OVERHEAD
        else 0
    )
    if status == Status.NO_MEMORY:
        raise MemoryError(f"no memory left to decode the batch at position {position}")
    if status in (Status.BAD_ORDER, Status.GAP):
        base_offset = int.from_bytes(view[start : start + 8], "big", signed=True)
        if status == Status.GAP:
            return MissingRecordsError(next_offset, base_offset, path=path, position=position)
        return CorruptRecordError(f"offset {base_offset} follows {next_offset - 1}", path=path, position=position)
    if status == Status.TRUNCATED:
        if left < LOG_OVERHEAD + 5:
            return TruncatedBatchError(f"{left} bytes are too few for a batch", path=path, position=position)
        reason = f"the batch claims {size + LOG_OVERHEAD} bytes, {left} are left"
        return TruncatedBatchError(reason, path=path, position=position)
    if status == Status.BAD_MAGIC:
        magic = int.from_bytes(view[start + MAGIC_POSITION : start + MAGIC_POSITION + 1], signed=True)
        reason = f"unknown message format: magic {magic}"
        return UnsupportedMagicError(reason, path=path, position=position)
    if status == Status.BAD_SIZE:
        reason = f"size field {size} is below the smallest batch"
        if not any(view[start : min(end - origin, start + 64)]):
            reason = "zeros where a batch should start"
    elif status == Status.BAD_CRC:
        reason = f"checksum mismatch in a batch of {size + LOG_OVERHEAD} bytes"
    else:
        reason = f"the batch header contradicts itself: {_contradiction(view[start : end - origin])}"
    return CorruptRecordError(reason, path=path, position=position)


def _contradiction(view: memoryview) -> str:
    """Return which field of a header cannot be right."""
    size = claimed_size(view)
    base_offset = int.from_bytes(view[:8], "big", signed=True)
    if base_offset < 0:
        return f"offset {base_offset}"
    if view[MAGIC_POSITION] < 2:
        return f"codec {view[MAGIC_POSITION + 1] & CODEC_MASK} in a message of magic {view[MAGIC_POSITION]}"
    *_, attributes, last_offset_delta, _, _, _, _, _, records_count = V2_FIELDS.unpack_from(view)
    if last_offset_delta < 0 or base_offset + last_offset_delta >= 1 << 63:
        return f"last offset delta {last_offset_delta} after offset {base_offset}"
    if attributes & CODEC_MASK > MAX_CODEC:
        return f"codec {attributes & CODEC_MASK}"
    return f"{records_count} records in {size - V2_HEADER_BYTES} bytes"


class BatchScan:
    """An iterator over the headers of consecutive batches.

    Args:
        data: A segment, or part of one: contiguous bytes.
        position: Where the first batch starts.
        end: Where to stop; the end of `data` if None.
        check_crc: Whether each batch's checksum is verified.
        path: The file, for the error in `damage`.
        origin: The position in the file at which `data` starts; all other positions count from the start of the file.
        next_offset: The least offset that the first batch may have; from then on offsets must increase. -1: not
            checked.
        transactional: Whether to yield only the batches of transactions, including their markers.

    Attributes:
        position: The first byte that was not understood (or not yet reached).
        next_offset: The offset after the last batch, if offsets are checked; else -1.
        damage: Why the scan stopped before the end; None as long as all is well. It is not raised.
    """

    def __init__(
        self,
        data: Buffer,
        position: int = 0,
        end: int | None = None,
        *,
        check_crc: bool = True,
        path: str | os.PathLike[str] | None = None,
        origin: int = 0,
        next_offset: int = -1,
        transactional: bool = False,
    ) -> None:
        self._data = data
        self._origin = origin
        self._end = origin + memoryview(data).nbytes if end is None else end
        self._check_crc = check_crc
        self._path = path
        self._transactional = transactional
        self.position = position
        self.next_offset = next_offset
        self.damage: FormatError | None = None

    def __iter__(self) -> Iterator[BatchHeader]:
        for table in self.tables():
            for index in range(len(table)):
                header = table.header(index)
                self.position = header.end_position
                yield header

    def tables(self) -> Iterator[BatchTable]:
        """Yield the headers in tables of up to `CHUNK_BATCHES`, for the kernels that take a table."""
        chunk_batches = 1
        while self.damage is None and self.position < self._end:
            table = walk_batches(
                self._data,
                self.position,
                self._end,
                chunk_batches,
                self._check_crc,
                self._origin,
                self.next_offset,
                self._transactional,
            )
            yield table
            self.position, self.next_offset = table.stop_position, table.stop_offset
            chunk_batches = min(chunk_batches * _CHUNK_GROWTH, CHUNK_BATCHES)
            if table.stop not in (Status.OK, Status.END):
                self.damage = damage_at(
                    table.stop,
                    self._data,
                    self.position,
                    self._end,
                    self._path,
                    origin=self._origin,
                    next_offset=self.next_offset,
                )


scan_batches = BatchScan
"""Walk over the batches of some bytes: an iterator over their headers, with `position` and `damage`."""
