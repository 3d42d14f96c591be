"""The part of a batch that holds its records, decompressed: bytes, not yet read.

    v2 batch           header | records
    v0 or v1 wrapper   header | key | value: the inner message set

The kernels call it for compressed batches, so it uses none of them.
"""

from __future__ import annotations

import struct

from odradek.buffers import Buffer
from odradek.errors import CorruptRecordError, FormatError
from odradek.records.compression import Decompressor
from odradek.records.header import LOG_OVERHEAD, V2_HEADER_BYTES, BatchHeader

_LENGTH = struct.Struct(">i")


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


def compressed_part(data: Buffer, header: BatchHeader) -> Buffer:
    """Return what a batch has compressed, or the records of a v2 batch that are not; no position is in its errors.

    Raises:
        CorruptRecordError: A wrapper has no value, or its lengths contradict its size.
    """
    if header.magic == 2:
        return memoryview(data).cast("B")[header.position + V2_HEADER_BYTES : header.end_position]
    _, value = message_payload(data, header)
    if value is None:
        raise CorruptRecordError("a wrapper message without a value")
    return value


def records_section(data: Buffer, header: BatchHeader, decompressor: Decompressor) -> Buffer:
    """Return the bytes of a batch after its header, decompressed if they were compressed.

    For a v0 or v1 wrapper that is the inner message set.

    Args:
        data: The bytes that hold the batch.
        header: Its header.
        decompressor: Decompresses them; its memory is valid until its next call.

    Raises:
        CorruptRecordError: The codec rejects the bytes, or they decompress to more than the decompressor's limit.
    """
    try:
        section = compressed_part(data, header)
        # An empty batch has nothing to compress, and Kafka's consumer looks no further than the count.
        if header.magic == 2 and (not header.codec or (header.records_count == 0 and not section)):
            return section
        return decompressor.decompress(header.codec, section, magic=header.magic)
    except FormatError as error:
        raise error.at(position=header.position) from None
