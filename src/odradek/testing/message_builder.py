"""Builds messages of the formats v0 and v1, plain or in a wrapper, as brokers and clients before Kafka 0.11 wrote them.

    plain     message | message | ...
    wrapper   | offset of the last, size, crc, magic, attributes: codec | null key | compressed: message | message ... |

`message_set` draws a message.

Source in Kafka: `MemoryRecordsBuilder`, `LegacyRecord`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

from odradek.records.compression import Codec, compress
from odradek.records.compression.snappy import compress_block
from odradek.records.header import LOG_APPEND_TIME_FLAG, NO_TIMESTAMP
from odradek.records.kernels.objects import Record

_FRAME = struct.Struct(">qiIbb")
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)

_CRC_FIELD_END = 16
_MAX_SIZE = (1 << 31) - 1


def _message(magic: int, offset: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    """Return one message; its checksum covers the bytes from the magic on."""
    fields = [_FRAME.pack(offset, 0, 0, magic, attributes)]
    if magic:
        fields.append(_TIMESTAMP.pack(timestamp))
    for field in (key, value):
        if field is None:
            fields.append(_NULL)
        else:
            fields += (_LENGTH.pack(len(field)), field)
    size = sum(map(len, fields)) - 12
    if size > _MAX_SIZE:
        raise ValueError(f"a message of {size} bytes is longer than a message can be")
    message = bytearray().join(fields)
    crc = zlib.crc32(memoryview(message)[_CRC_FIELD_END:])
    _FRAME.pack_into(message, 0, offset, size, crc, magic, attributes)
    return bytes(message)


def _offsets(records: list[Record], base_offset: int | None, keep_offsets: bool) -> list[int]:
    if not keep_offsets:
        return list(range(base_offset or 0, (base_offset or 0) + len(records)))
    offsets = []
    least = base_offset or 0
    for index, record in enumerate(records):
        if record.offset is None:
            raise ValueError(f"record {index} has no offset to keep")
        if record.offset < least:
            raise ValueError(f"record {index} cannot be written: its offset is not above the one before")
        offsets.append(record.offset)
        least = record.offset + 1
    return offsets


def _field(data: object, what: str) -> bytes | None:
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"a record's {what} is bytes or None, not {type(data).__name__}")


def build_message_set(
    records: Iterable[Record],
    *,
    magic: int,
    base_offset: int | None = None,
    keep_offsets: bool = False,
    codec: int = Codec.NONE,
    level: int | None = None,
    timestamp_type: str = "CreateTime",
    append_time_ms: int | None = None,
    bare_snappy: bool = False,
) -> bytes:
    """Build messages, in one wrapper if they are compressed.

    Args:
        records: Their contents; a timestamp of None is written as -1, and v0 has no timestamps.
        magic: The format, 0 or 1.
        base_offset: The first offset; None is 0, or with `keep_offsets` that of the first record.
        keep_offsets: Whether the records keep their own offsets, which must increase but may have gaps.
        codec: The wrapper's codec; none writes plain messages.
        level: The codec's level; None is Kafka's default.
        timestamp_type: `CreateTime` or, in v1, `LogAppendTime`.
        append_time_ms: The time of the append, for `LogAppendTime`.
        bare_snappy: Whether snappy writes one raw block, as some C clients do, instead of Java's stream of blocks.

    Raises:
        ValueError: The format cannot hold this: headers, zstd, a negative timestamp, offsets that do not increase.
        TypeError: A key or value has the wrong type.
    """
    table = list(records)
    if magic not in (0, 1):
        raise ValueError(f"a message has magic 0 or 1, not {magic}")
    if not table:
        raise ValueError("a message set without messages")
    if base_offset is not None and base_offset < 0:
        raise ValueError(f"base_offset {base_offset} is negative")
    append_time = timestamp_type == "LogAppendTime"
    if not append_time and timestamp_type != "CreateTime":
        raise ValueError(f"timestamp_type is CreateTime or LogAppendTime, not {timestamp_type!r}")
    if append_time and (magic == 0 or append_time_ms is None or append_time_ms < 0):
        raise ValueError(f"LogAppendTime needs magic 1 and append_time_ms, not magic {magic} and {append_time_ms}")
    attributes = LOG_APPEND_TIME_FLAG if append_time else 0
    offsets = _offsets(table, base_offset, keep_offsets)
    inner_base = 0
    if codec and magic == 1:
        inner_base = offsets[0] if base_offset is None or not keep_offsets else base_offset
    messages = []
    max_timestamp = NO_TIMESTAMP
    for index, (record, offset) in enumerate(zip(table, offsets, strict=True)):
        if record.headers:
            raise ValueError(f"record {index} cannot be written: messages of magic {magic} have no headers")
        timestamp = NO_TIMESTAMP if record.timestamp is None else record.timestamp
        if timestamp < NO_TIMESTAMP:
            raise ValueError(f"record {index} cannot be written: its timestamp is negative")
        if append_time_ms is not None and append_time:
            timestamp = append_time_ms
        max_timestamp = max(max_timestamp, timestamp)
        key, value = _field(record.key, "key"), _field(record.value, "value")
        messages.append(_message(magic, offset - inner_base, attributes, timestamp, key, value))
    content = b"".join(messages)
    if not codec:
        return content
    if bare_snappy and codec == Codec.SNAPPY:
        payload = compress_block(content)
    else:
        payload = compress(codec, content, level=level, magic=magic)
    return _message(magic, offsets[-1], attributes | int(codec), max_timestamp, None, payload)
