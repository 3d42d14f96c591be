"""Builds v2 record batches: from `Record` objects, or from rows that a kernel reads in place.

    | header, 61 bytes | record | record | ...        if attributes name a codec, the records are one block of it

`columnar.encode` builds batches from Arrow columns in the same way.

Source in Kafka: `MemoryRecordsBuilder`, `DefaultRecordBatch`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from odradek.records.compression import Codec, compress
from odradek.records.control import EndTransactionMarker
from odradek.records.header import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    LAST_OFFSET_DELTA_POSITION,
    LOG_APPEND_TIME_FLAG,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    V2_FIELDS,
    V2_HEADER_BYTES,
)
from odradek.records.kernels.encode import BatchEncoder, seal
from odradek.records.kernels.objects import Record
from odradek.records.kernels.rows import ObjectRows, Rows

MAX_INT32 = (1 << 31) - 1
OUTPUT_BYTES = 1 << 20
"""The number of bytes after which `encode_rows` yields the batches that it has so far."""

_LAST_OFFSET_DELTA = struct.Struct(">i")


class _Ended(IntEnum):
    """Why a run of batches ended; the numbers are those of the kernel."""

    ROWS = 0
    RECORDS = 1
    BYTES = 2
    OFFSET = 3
    OUTPUT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """What all records of a batch share.

    Attributes:
        codec: How the records are compressed.
        level: The codec's level; None is Kafka's default.
        timestamp_type: `CreateTime` or `LogAppendTime`.
        append_time_ms: The time of the append, for `LogAppendTime`: readers get it for every record, whatever the
            record says.
        producer_id: That of an idempotent or transactional producer, else -1.
        producer_epoch: Its epoch, else -1.
        base_sequence: The sequence number of the first record, else -1.
        is_transactional: Whether the records belong to a transaction.
        is_control: Whether this is a control batch.
        partition_leader_epoch: The epoch of the leader that appends; -1 if it is not known (a producer's batch).
        delete_horizon_ms: When its tombstones may be removed, in ms; None if the cleaner has not met them yet.
        attributes: The attributes of the batch, as these options make them.

    Raises:
        ValueError: The options contradict each other.
    """

    codec: int = Codec.NONE
    level: int | None = None
    timestamp_type: str = "CreateTime"
    append_time_ms: int | None = None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
    is_control: bool = False
    partition_leader_epoch: int = -1
    delete_horizon_ms: int | None = None
    attributes: int = field(init=False)
    _encoder_fields: tuple[int, int, int, int, int, int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        attributes = self._attributes()
        fields = (
            attributes,
            NO_TIMESTAMP if self.append_time_ms is None else self.append_time_ms,
            NO_TIMESTAMP if self.delete_horizon_ms is None else self.delete_horizon_ms,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.partition_leader_epoch,
        )
        object.__setattr__(self, "attributes", attributes)
        object.__setattr__(self, "_encoder_fields", fields)

    def _attributes(self) -> int:
        attributes = int(Codec(self.codec))
        if self.timestamp_type == "LogAppendTime":
            if self.append_time_ms is None or self.append_time_ms < 0:
                raise ValueError(f"LogAppendTime needs append_time_ms, not {self.append_time_ms}")
            attributes |= LOG_APPEND_TIME_FLAG
        elif self.timestamp_type != "CreateTime":
            raise ValueError(f"timestamp_type is CreateTime or LogAppendTime, not {self.timestamp_type!r}")
        if self.is_transactional:
            if self.producer_id == NO_PRODUCER_ID:
                raise ValueError("a transactional batch needs a producer_id")
            attributes |= TRANSACTIONAL_FLAG
        if self.is_control:
            attributes |= CONTROL_FLAG
        if self.delete_horizon_ms is not None:
            attributes |= DELETE_HORIZON_FLAG
        if self.producer_id != NO_PRODUCER_ID and self.producer_epoch < 0:
            raise ValueError(f"producer_id {self.producer_id} needs a producer_epoch, not {self.producer_epoch}")
        return attributes

    def encoder(self) -> BatchEncoder:
        """Return a kernel that writes batches with these fields; base_sequence continues from batch to batch."""
        return BatchEncoder(*self._encoder_fields)


def _finish(batch: bytes, options: BatchOptions) -> bytes:
    """Compress the records of a batch that the kernel wrote."""
    if not options.codec:
        return batch
    return seal(batch, compress(options.codec, memoryview(batch)[V2_HEADER_BYTES:], level=options.level))


def encode_rows(
    rows: Rows,
    options: BatchOptions,
    *,
    base_offset: int = 0,
    max_batch_records: int = MAX_INT32,
    max_batch_bytes: int = MAX_INT32,
) -> Iterator[bytes]:
    """Encode rows as batches, one by one.

    Args:
        rows: Where the records come from.
        options: What the batches share.
        base_offset: The offset of the first record; if the rows have offsets, the least that the first may have.
        max_batch_records: How many records a batch has at most.
        max_batch_bytes: How many bytes a batch has at most before compression; a larger record gets a batch of its own.

    Yields:
        Blocks of one or more whole batches (exactly one if they are compressed).

    Raises:
        ValueError: A record cannot be written: its offset does not increase, its timestamp is negative, it is too long.
    """
    encoder = options.encoder()
    max_batches = 1 if options.codec else MAX_INT32
    row = 0
    offset = base_offset
    while row < rows.count:
        batches, row, offset = encoder.encode(
            rows, row, None, offset, max_batches, max_batch_records, max_batch_bytes, OUTPUT_BYTES
        )
        yield _finish(batches, options)


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    keep_offsets: bool = False,
    **options: Any,
) -> bytes:
    """Build one batch.

    Args:
        records: Its records; a timestamp of None is written as -1.
        base_offset: The batch's base offset; None is 0, or with `keep_offsets` the first record's offset.
        last_offset: The batch's last offset, if compaction removed the record that had it.
        keep_offsets: Whether the records keep their own offsets, which increase but may have gaps. Otherwise they are
            numbered from `base_offset` on.
        options: Those of `BatchOptions`.

    Raises:
        ValueError: The fields contradict each other, or a record does not fit: an offset delta of more than 32 bits,
            offsets that do not increase, a negative timestamp, more than 2^31 - 1 bytes.
        TypeError: A record, key, value or header has the wrong type.
    """
    shared = BatchOptions(**options)
    if base_offset is None and not keep_offsets:
        base_offset = 0
    if base_offset is not None and base_offset < 0:
        raise ValueError(f"base_offset {base_offset} is negative")
    rows = ObjectRows(records, keep_offsets)
    if not rows.count:
        raise ValueError("a batch without records is built by build_empty_batch")
    encoder = shared.encoder()
    batch, row, next_offset = encoder.encode(rows, 0, base_offset, base_offset or 0, 1, MAX_INT32, MAX_INT32, MAX_INT32)
    if row < rows.count:
        reason = "its offset delta takes more than 32 bits"
        if encoder.ended != _Ended.OFFSET:
            reason = f"the batch has {len(batch)} bytes already"
        raise ValueError(f"record {row} does not fit into the batch: {reason}")
    if last_offset is not None and last_offset != next_offset - 1:
        batch = _with_last_offset(batch, last_offset, next_offset)
    return _finish(batch, shared)


def _with_last_offset(batch: bytes, last_offset: int, next_offset: int) -> bytes:
    delta = last_offset - int.from_bytes(batch[:8], "big")
    if last_offset < next_offset or delta > MAX_INT32:
        raise ValueError(f"last_offset {last_offset} does not fit a batch whose records end at {next_offset - 1}")
    header = bytearray(batch[:V2_HEADER_BYTES])
    _LAST_OFFSET_DELTA.pack_into(header, LAST_OFFSET_DELTA_POSITION, delta)
    return seal(bytes(header), memoryview(batch)[V2_HEADER_BYTES:])


def build_empty_batch(
    base_offset: int, last_offset: int, *, max_timestamp: int = NO_TIMESTAMP, **options: Any
) -> bytes:
    """Build the batch that compaction leaves when a producer's last batch has lost all of its records.

    Kafka: DefaultRecordBatch.writeEmptyHeader.

    Args:
        base_offset: Its first offset.
        last_offset: Its last offset.
        max_timestamp: The largest timestamp that its records had.
        options: Those of `BatchOptions`, but for the codec and the time of the append.

    Raises:
        ValueError: The offsets are not in order, or too far apart.
    """
    if not 0 <= base_offset <= last_offset <= base_offset + MAX_INT32:
        raise ValueError(f"a batch cannot go from offset {base_offset} to {last_offset}")
    shared = BatchOptions(append_time_ms=max_timestamp, **options)
    numbering = (base_offset, 0, shared.partition_leader_epoch, 2, 0, shared.attributes, last_offset - base_offset)
    producer = (shared.producer_id, shared.producer_epoch, shared.base_sequence)
    return seal(V2_FIELDS.pack(*numbering, NO_TIMESTAMP, max_timestamp, *producer, 0), b"")


def build_control_batch(
    marker: EndTransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
) -> bytes:
    """Build the batch that ends a transaction.

    Args:
        marker: Commit or abort, and the coordinator's epoch.
        producer_id: Whose transaction it is.
        producer_epoch: The producer's epoch.
        timestamp: The timestamp of the marker, in ms.
        base_offset: Its offset.
        partition_leader_epoch: The epoch of the leader that appends it.
    """
    return build_batch(
        [Record(marker.key_bytes(), marker.value_bytes(), (), timestamp)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        partition_leader_epoch=partition_leader_epoch,
    )
