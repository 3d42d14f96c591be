"""Writes batches again where they cannot be written as they are: the rest of one, or one without its producer."""

from __future__ import annotations

import struct

from odradek.buffers import Buffer
from odradek.records import BatchHeader
from odradek.records.batch import each_record
from odradek.records.builder import build_batch
from odradek.records.header import (
    MAX_SEQUENCE,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PRODUCER_ID_POSITION,
    V2_HEADER_BYTES,
)
from odradek.records.kernels.encode import seal

_PRODUCER = struct.Struct(">qhi")


def rest_of(data: Buffer, header: BatchHeader, offset: int) -> bytes:
    """Return a batch with the records of another from an offset on; empty if it has none there.

    It has format v2, whatever format the other has, and the same codec, producer and timestamps.

    Raises:
        FormatError: The records cannot be read.
        ValueError: They cannot be written again, as with a timestamp before 1970.
    """
    records = [record for record in each_record(data, header) if record.offset is not None and record.offset >= offset]
    if not records:
        return b""
    sequence = header.base_sequence
    if sequence != NO_SEQUENCE:
        sequence = (sequence + offset - header.base_offset) & MAX_SEQUENCE
    is_stamped = header.timestamp_type == "LogAppendTime"
    return build_batch(
        records,
        base_offset=offset,
        last_offset=header.last_offset,
        keep_offsets=True,
        codec=header.codec,
        timestamp_type="LogAppendTime" if is_stamped else "CreateTime",
        append_time_ms=header.max_timestamp if is_stamped else None,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        partition_leader_epoch=header.partition_leader_epoch,
        delete_horizon_ms=header.delete_horizon_ms,
    )


def of_no_producer(batch: bytes | bytearray | memoryview) -> bytes:
    """Return a v2 batch as that of a producer that is not idempotent."""
    header = bytearray(batch[:V2_HEADER_BYTES])
    _PRODUCER.pack_into(header, PRODUCER_ID_POSITION, NO_PRODUCER_ID, -1, NO_SEQUENCE)
    return seal(bytes(header), batch[V2_HEADER_BYTES:])
