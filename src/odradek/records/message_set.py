"""Messages of the formats v0 and v1, and the sets that wrapper messages carry.

    v0   offset 8 | size 4 | crc 4 | magic 1 | attributes 1 |               key length 4, key | value length 4, value
    v1   offset 8 | size 4 | crc 4 | magic 1 | attributes 1 | timestamp 8 | key length 4, key | value length 4, value

A *wrapper* has a codec in its attributes, no key, and as its value the compressed concatenation of inner messages. Its
offset is that of the last of them; inner offsets are absolute in v0, counted from 0 in v1.

Source in Kafka: `LegacyRecord`, `AbstractLegacyRecordBatch`.
"""

from __future__ import annotations

import struct

from typing_extensions import Buffer

from odradek.errors import CorruptRecordError
from odradek.records.header import LOG_APPEND_TIME_FLAG, LOG_OVERHEAD, NO_TIMESTAMP, BatchHeader
from odradek.records.kernels.objects import Record, unchecked_record
from odradek.records.scan import scan_batches

_LENGTH = struct.Struct(">i")
MAX_OFFSET = (1 << 63) - 1


def _field(view: memoryview, position: int, end: int, what: str) -> tuple[bytes | None, int]:
    if end - position < _LENGTH.size:
        raise CorruptRecordError(f"the length of the {what} is cut off")
    (size,) = _LENGTH.unpack_from(view, position)
    position += _LENGTH.size
    if size < 0:
        return None, position
    if size > end - position:
        raise CorruptRecordError(f"the {what} claims {size} bytes, {end - position} are left")
    return bytes(view[position : position + size]), position + size


def message_payload(data: Buffer, header: BatchHeader) -> tuple[bytes | None, bytes | None]:
    """Return key and value of the message at `header.position`.

    Raises:
        CorruptRecordError: A length contradicts the message's size. The error has no position: `data` may be a
            decompressed set, whose positions are not those of the file.
    """
    view = memoryview(data).cast("B")
    start = header.position + LOG_OVERHEAD + (14 if header.magic == 1 else 6)
    key, position = _field(view, start, header.end_position, "key")
    value, position = _field(view, position, header.end_position, "value")
    if position != header.end_position:
        raise CorruptRecordError(f"{header.end_position - position} bytes too many in a message")
    return key, value


def _timestamp(header: BatchHeader) -> int | None:
    return None if header.max_timestamp == NO_TIMESTAMP else header.max_timestamp


def read_message(data: Buffer, header: BatchHeader) -> Record:
    """Read one uncompressed message.

    Raises:
        CorruptRecordError: A length contradicts the message's size.
    """
    try:
        key, value = message_payload(data, header)
    except CorruptRecordError as error:
        raise error.at(position=header.position) from None
    return unchecked_record(key, value, (), _timestamp(header), header.last_offset, header.timestamp_type)


def read_inner_messages(payload: Buffer, wrapper: BatchHeader, *, check_crc: bool) -> list[Record]:
    """Read the messages of a wrapper.

    Args:
        payload: The decompressed value of the wrapper.
        wrapper: The wrapper's header.
        check_crc: Whether the inner checksums are verified.

    Raises:
        CorruptRecordError: The set is empty, incomplete, of another format, or compressed itself, or its offsets do not
            fit the wrapper's.
    """
    scan = scan_batches(payload, check_crc=check_crc)
    inner = list(scan)
    if scan.damage is not None:
        raise CorruptRecordError(f"inner message {len(inner)}: {scan.damage.reason}", position=wrapper.position)
    if not inner:
        raise CorruptRecordError("a wrapper message with nothing in it", position=wrapper.position)
    if any(header.magic != wrapper.magic or header.codec for header in inner):
        raise CorruptRecordError("an inner message of another format than its wrapper", position=wrapper.position)
    base = 0
    # Old clients wrote 0 into wrappers whose inner offsets start at 0.
    if wrapper.magic == 1 and wrapper.last_offset != 0:
        base = wrapper.last_offset - inner[-1].last_offset
        if base < 0:
            raise CorruptRecordError("inner offsets past the offset of their wrapper", position=wrapper.position)
    if base + max(header.last_offset for header in inner) > MAX_OFFSET:
        raise CorruptRecordError("inner offsets past the greatest there is", position=wrapper.position)
    append_time = wrapper.attributes & LOG_APPEND_TIME_FLAG and wrapper.magic == 1
    records = []
    for number, header in enumerate(inner):
        try:
            key, value = message_payload(payload, header)
        except CorruptRecordError as error:
            raise CorruptRecordError(f"inner message {number}: {error.reason}", position=wrapper.position) from None
        timestamp = _timestamp(wrapper if append_time else header)
        records.append(unchecked_record(key, value, (), timestamp, base + header.last_offset, wrapper.timestamp_type))
    return records
