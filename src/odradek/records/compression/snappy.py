"""snappy in the framing of `SnappyOutputStream` ("xerial"), as Kafka writes it, or as one bare block.

    | 82 53 4e 41 50 50 59 00 | version int32 | compatible version int32 |     once, or again where streams were joined
    | length int32 | snappy block |  | length int32 | snappy block |  ...       of up to 32 KiB of data each

Data that does not start with that magic is one snappy block (`SnappyInputStream` of snappy-java); C clients write it
so. A block starts with its decompressed length as a base-128 varint.

Like snappy-java, this accepts any version in the first header, and any from 1 on in a later one, of which only the
first four bytes of magic count. Unlike it, this refuses one to three bytes after the last block: they are an incomplete
length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import cramjam

from odradek.buffers import Buffer
from odradek.errors import CompressionError, DecompressedSizeError
from odradek.records.compression import Scratch

_MAGIC = b"\x82SNAPPY\x00"
_JOINED = int.from_bytes(_MAGIC[:4], "big", signed=True)
_HEADER = struct.Struct(">8sii")
_LENGTH = struct.Struct(">i")
_BLOCK_BYTES = 32 * 1024

# The densest element of a snappy block is a copy of 64 bytes written in 3.
_MAX_RATIO = 22


def compress(data: memoryview, *, level: int, magic: int) -> bytes:
    """Return a xerial stream; for no data, only its header."""
    blocks = -(-len(data) // _BLOCK_BYTES)
    most = cramjam.snappy.compress_raw_max_len(data[:_BLOCK_BYTES])
    stream = bytearray(_HEADER.size + blocks * (_LENGTH.size + most))
    _HEADER.pack_into(stream, 0, _MAGIC, 1, 1)
    end = _HEADER.size
    with memoryview(stream) as view:
        for start in range(0, len(data), _BLOCK_BYTES):
            position = end + _LENGTH.size
            length = cramjam.snappy.compress_raw_into(
                data[start : start + _BLOCK_BYTES], view[position : position + most]
            )
            _LENGTH.pack_into(stream, end, length)
            end = position + length
        return bytes(view[:end])


def compress_block(data: Buffer) -> bytes:
    """Return one bare block, without the framing of a stream."""
    return bytes(cramjam.snappy.compress_raw(data))


def _content_bytes(block: memoryview, position: int) -> int:
    """Return the decompressed size that a block claims, if that many compressed bytes can hold it."""
    try:
        claimed: int = cramjam.snappy.decompress_raw_len(block)
    except cramjam.DecompressionError as error:
        raise CompressionError(f"snappy: the block at byte {position} has no valid length: {error}") from error
    if claimed > _MAX_RATIO * len(block):
        raise CompressionError(
            f"snappy: the block at byte {position} claims {claimed} bytes, more than its {len(block)} bytes can hold"
        )
    return claimed


def _blocks(data: memoryview, limit: int) -> tuple[list[tuple[int, int]], int]:
    """Return where the blocks begin and end, and the size of their content."""
    if data[: len(_MAGIC)] != _MAGIC or len(data) < _HEADER.size:
        if not data:
            raise CompressionError("snappy: the block is empty")
        return [(0, len(data))], _content_bytes(data, 0)
    blocks = []
    total = 0
    position = _HEADER.size
    while position < len(data):
        if len(data) - position < _LENGTH.size:
            raise CompressionError(f"snappy: the stream ends within a length, at byte {len(data)}")
        (length,) = _LENGTH.unpack_from(data, position)
        if length == _JOINED:
            if len(data) - position < _HEADER.size:
                raise CompressionError(f"snappy: the stream ends within the header at byte {position}")
            _, version, _ = _HEADER.unpack_from(data, position)
            if version < 1:
                raise CompressionError(f"snappy: the header at byte {position} has version {version}, below 1")
            position += _HEADER.size
            continue
        start = position + _LENGTH.size
        if not 0 < length <= len(data) - start:
            raise CompressionError(
                f"snappy: the block at byte {position} claims {length} bytes, {len(data) - start} are left"
            )
        position = start + length
        total += _content_bytes(data[start:position], start)
        if total > limit:
            break
        blocks.append((start, position))
    return blocks, total


def _checked_blocks(data: memoryview, limit: int) -> tuple[list[tuple[int, int]], int]:
    blocks, total = _blocks(data, limit)
    if total > limit:
        raise DecompressedSizeError(
            f"snappy: {len(data)} bytes claim at least {total} bytes, past the limit of {limit} bytes"
        )
    return blocks, total


def _decode(data: memoryview, blocks: list[tuple[int, int]], content: memoryview) -> memoryview:
    """Decode blocks into memory that has their size; return their content."""
    end = 0
    for start, stop in blocks:
        try:
            end += cramjam.snappy.decompress_raw_into(data[start:stop], content[end:])
        except cramjam.DecompressionError as error:
            raise CompressionError(f"snappy: the block at byte {start} is damaged: {error}") from error
    return content[:end]


def decompress(data: memoryview, *, magic: int, limit: int, scratch: Scratch) -> memoryview:
    """Return the content of all blocks."""
    blocks, total = _checked_blocks(data, limit)
    return _decode(data, blocks, scratch(total)[:total])


def chunks(data: memoryview, *, magic: int, limit: int) -> Iterator[memoryview]:
    """Yield the content block by block."""
    blocks, _ = _checked_blocks(data, limit)
    content = memoryview(bytearray())
    for start, stop in blocks:
        size = _content_bytes(data[start:stop], start)
        if size > len(content):
            content = memoryview(bytearray(size))
        yield _decode(data, [(start, stop)], content[:size])
