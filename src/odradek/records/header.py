"""The header of a record batch (v2), or of a message (v0, v1) read as a batch of one.

    v2   baseOffset 8 | batchLength 4 | partitionLeaderEpoch 4 | magic 1 | crc 4 | attributes 2 | lastOffsetDelta 4 |
         baseTimestamp 8 | maxTimestamp 8 | producerId 8 | producerEpoch 2 | baseSequence 4 | recordsCount 4 | records
    v1   offset 8 | size 4 | crc 4 | magic 1 | attributes 1 | timestamp 8 | key | value
    v0   offset 8 | size 4 | crc 4 | magic 1 | attributes 1 | key | value

    attributes   bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon (4 to 6: v2 only)

Source in Kafka: `DefaultRecordBatch`, `LegacyRecord`.
"""

from __future__ import annotations

import struct
from mmap import mmap
from typing import NamedTuple

LOG_OVERHEAD = 12
"""Bytes before the part that a batch's size field counts: offset and size."""

V2_FIELDS = struct.Struct(">qiibIhiqqqhii")
V2_HEADER_BYTES = V2_FIELDS.size
SIZE_POSITION = 8
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 22
LAST_OFFSET_DELTA_POSITION = 23
PRODUCER_ID_POSITION = 43
BASE_SEQUENCE_POSITION = 53
"""Where fields of a v2 batch are, for code that needs only one; of the attributes the second byte, with all flags."""
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
MAX_SEQUENCE = 0x7FFFFFFF
"""The sequence after it is 0."""

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40


_PRODUCER = struct.Struct(">qh")


def claimed_size(data: bytes | bytearray | memoryview | mmap, position: int = 0) -> int:
    """Return how many bytes a batch says that it has; without a meaning where its first 12 bytes are not there."""
    return LOG_OVERHEAD + int.from_bytes(data[position + SIZE_POSITION : position + LOG_OVERHEAD], "big")


def codec_of(batch: bytearray | memoryview) -> int:
    """Return the codec of a v2 batch whose header is whole, like all functions that follow."""
    return batch[ATTRIBUTES_POSITION] & CODEC_MASK


def is_transactional(batch: bytearray | memoryview) -> bool:
    """Return whether a v2 batch belongs to a transaction."""
    return bool(batch[ATTRIBUTES_POSITION] & TRANSACTIONAL_FLAG)


def producer_of(batch: bytearray | memoryview) -> tuple[int, int]:
    """Return the producer id and the epoch of a v2 batch."""
    producer_id, producer_epoch = _PRODUCER.unpack_from(batch, PRODUCER_ID_POSITION)
    return producer_id, producer_epoch


def base_sequence_of(batch: bytearray | memoryview) -> int:
    """Return the sequence number of the first record of a v2 batch."""
    return int.from_bytes(batch[BASE_SEQUENCE_POSITION : BASE_SEQUENCE_POSITION + 4], signed=True)


class BatchHeader(NamedTuple):
    """The header of one batch, with Kafka's field names.

    A v0 or v1 message has -1 (or 0) in the fields that only v2 has. The first offset of a v0 or v1 *wrapper* (a
    compressed message) is not in its header: its `base_offset` equals its `last_offset`, and its `records_count` is -1.

    Attributes:
        position: Where the batch starts, in bytes from the start of the file or buffer.
        size_bytes: The whole batch, the first 12 bytes included.
    """

    position: int
    size_bytes: int
    base_offset: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def end_position(self) -> int:
        """The position of the byte after the batch."""
        return self.position + self.size_bytes

    @property
    def identity(self) -> tuple[int, int, int]:
        """What two copies of a batch have in common: base offset, size, checksum."""
        return self.base_offset, self.size_bytes, self.crc

    @property
    def last_offset(self) -> int:
        """The offset of the last record; compaction keeps it even if it removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, which wraps after 2^31 - 1, or -1 if there is none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF

    @property
    def codec(self) -> int:
        """The compression codec's number (see `odradek.records.compression.Codec`)."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> str | None:
        """`CreateTime`, `LogAppendTime`, or None in v0, which has no timestamps."""
        if self.magic == 0:
            return None
        return "LogAppendTime" if self.attributes & LOG_APPEND_TIME_FLAG else "CreateTime"

    @property
    def is_wrapper(self) -> bool:
        """Whether this is a compressed message (v0, v1), whose header does not have its first offset."""
        return self.magic < 2 and bool(self.attributes & CODEC_MASK)

    @property
    def is_transactional(self) -> bool:
        """Whether the records belong to a transaction."""
        return self.magic == 2 and bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds control records, which consumers are never given."""
        return self.magic == 2 and bool(self.attributes & CONTROL_FLAG)

    @property
    def is_marker(self) -> bool:
        """Whether the batch ends a transaction: not if compaction has emptied it, though it stays a control batch."""
        return self.is_control and self.records_count > 0

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent producer wrote the batch."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the batch's tombstones may be removed, in ms; None if the cleaner has not met them yet."""
        if self.magic == 2 and self.attributes & DELETE_HORIZON_FLAG:
            return self.base_timestamp
        return None
