"""LZ4 frames in the subset that Kafka's `Lz4BlockOutputStream` and `Lz4BlockInputStream` have.

    | 04 22 4d 18 | FLG | BD | [content size 8] | HC | block ... | 00 00 00 00 | [content checksum 4] |
    block: | length int32, little-endian; top bit: stored as it is | bytes | [checksum 4] |

    FLG  bits 6-7: version 1; flags: 5 independent blocks (a must), 4 block checksums, 3 content size,
         2 content checksum
    BD   bits 4-6: the largest block, 4 = 64 KiB, 5 = 256 KiB, 6 = 1 MiB, 7 = 4 MiB

Kafka writes FLG 60, BD 40. HC is the second byte of the xxHash-32 of FLG .. content size. In magic 0 Kafka computes it
from the frame's magic on, which is wrong (KAFKA-3160), so it is not verified there. Of the optional parts Kafka
verifies block checksums, skips the content size and the content checksum, and ignores all bytes after the frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import cramjam

from odradek.errors import CompressionError, DecompressedSizeError
from odradek.records.compression import LEVELS, Codec, Scratch

_MAGIC = b"\x04\x22\x4d\x18"
_DESCRIPTOR = b"\x60\x40"
_END_MARK = bytes(4)
_WORD = struct.Struct("<I")
_BLOCK_BYTES = 64 * 1024
_STORED = 0x80000000

# A byte of a length adds at most 255 to it.
_MAX_RATIO = 255

# Kafka's default level stands for the fast compressor; every other level belongs to the high compressor.
_FAST_LEVEL = LEVELS[Codec.LZ4].default


def _header_checksum(descriptor: bytes) -> int:
    """Return the HC byte of a descriptor: xxHash-32, seed 0, for inputs below 16 bytes."""
    mask = 0xFFFFFFFF
    value = 0x165667B1 + len(descriptor)
    words = len(descriptor) & ~3
    for start in range(0, words, 4):
        value = (value + int.from_bytes(descriptor[start : start + 4], "little") * 0xC2B2AE3D) & mask
        value = ((value << 17 | value >> 15) * 0x27D4EB2F) & mask
    for byte in descriptor[words:]:
        value = (value + byte * 0x165667B1) & mask
        value = ((value << 11 | value >> 21) * 0x9E3779B1) & mask
    value = ((value ^ value >> 15) * 0x85EBCA77) & mask
    value = ((value ^ value >> 13) * 0xC2B2AE3D) & mask
    return (value ^ value >> 16) >> 8 & 0xFF


_HEADER = _MAGIC + _DESCRIPTOR + bytes([_header_checksum(_DESCRIPTOR)])
_HEADER_MAGIC_0 = _MAGIC + _DESCRIPTOR + bytes([_header_checksum(_MAGIC + _DESCRIPTOR)])


def _fast(block: memoryview, level: int) -> bytes:
    return cramjam.lz4.compress_block(block, store_size=False)  # type: ignore[return-value]  # a buffer, which is enough


def _high_compression(block: memoryview, level: int) -> bytes:
    from lz4.block import compress as compress_block  # cramjam has this mode, but always at the fast compressor's ratio

    compressed: bytes = compress_block(block, mode="high_compression", compression=level, store_size=False)
    return compressed


def compress(data: memoryview, *, level: int, magic: int) -> bytes:
    """Return one frame of independent blocks of 64 KiB."""
    encode = _fast if level == _FAST_LEVEL else _high_compression
    parts: list[bytes | memoryview] = [_HEADER_MAGIC_0 if magic == 0 else _HEADER]
    for start in range(0, len(data), _BLOCK_BYTES):
        block = data[start : start + _BLOCK_BYTES]
        encoded = encode(block, level)
        if len(encoded) < len(block):
            parts += (_WORD.pack(len(encoded)), encoded)
        else:
            parts += (_WORD.pack(len(block) | _STORED), block)
    parts.append(_END_MARK)
    return b"".join(parts)


def _read_header(data: memoryview, magic: int) -> tuple[int, int, int, int]:
    """Return FLG, BD, the largest size of a block in bytes, and where the blocks begin."""
    if len(data) < 7:
        raise CompressionError(f"lz4: {len(data)} bytes are too few for a frame's header of at least 7")
    if data[:4] != _MAGIC:
        raise CompressionError(f"lz4: the block starts with {data[:4].hex()}, not with a frame's magic 04224d18")
    flags, descriptor = data[4], data[5]
    if data[:7] == _HEADER:  # as Kafka writes every one
        return flags, descriptor, _BLOCK_BYTES, 7
    if flags >> 6 != 1:
        raise CompressionError(f"lz4: the frame has version {flags >> 6}, Kafka reads version 1")
    if not flags & 0x20:
        raise CompressionError("lz4: the frame's blocks depend on each other, which Kafka does not read")
    if flags & 0x03 or descriptor & 0x8F or descriptor >> 4 < 4:
        raise CompressionError(
            f"lz4: the frame's descriptor {flags:02x} {descriptor:02x} sets reserved bits or no block size"
        )
    position = 14 if flags & 0x08 else 6
    if len(data) <= position:
        raise CompressionError(f"lz4: the block ends within the frame's header, at byte {len(data)}")
    if magic > 0:
        expected = _header_checksum(bytes(data[4:position]))
        if data[position] != expected:
            raise CompressionError(
                f"lz4: the header checksum is {data[position]:02x}, the header's bytes give {expected:02x}"
            )
    return flags, descriptor, 1 << (8 + 2 * (descriptor >> 4)), position + 1


def _blocks(
    data: memoryview, position: int, flags: int, block_bytes: int, enough: int
) -> tuple[list[tuple[int, int, bool]], int, int]:
    """Return the blocks (begin, end, stored), where the end mark is, and how large the content can be at most."""
    trailer = 4 if flags & 0x10 else 0
    blocks = []
    bound = 0
    while True:
        if len(data) - position < 4:
            raise CompressionError(f"lz4: the block ends before the frame's end mark, at byte {len(data)}")
        (word,) = _WORD.unpack_from(data, position)
        length = word & ~_STORED
        if length == 0:
            break
        start = position + 4
        if length > block_bytes or length + trailer > len(data) - start:
            raise CompressionError(
                f"lz4: the block at byte {position} claims {length} bytes, "
                f"{len(data) - start} are left and the frame allows {block_bytes}"
            )
        bound += length if word & _STORED else min(block_bytes, _MAX_RATIO * length)
        blocks.append((start, start + length, bool(word & _STORED)))
        position = start + length + trailer
    if flags & 0x04 and len(data) - position < 8:
        raise CompressionError(f"lz4: the block ends within the content checksum, at byte {len(data)}")
    return blocks, position, min(bound, enough)


def _verify_block_checksums(data: memoryview, start: int, end: int, descriptor: int, content: memoryview) -> int:
    """Decode with the LZ4 library's own frame reader, which verifies the checksums of blocks.

    It is given a header of ours: it would reject the wrong HC of magic 0, and a content checksum or size that Kafka
    ignores.
    """
    header = bytes([0x70, descriptor])
    frame = b"".join((_MAGIC, header, bytes([_header_checksum(header)]), data[start:end], _END_MARK))
    try:
        size: int = cramjam.lz4.decompress_into(frame, content)
    except cramjam.DecompressionError as error:
        raise DecompressedSizeError(
            f"lz4: the frame is damaged, or grows past {len(content)} bytes: {error}"
        ) from error
    return size


def _decode(
    data: memoryview, blocks: list[tuple[int, int, bool]], block_bytes: int, content: memoryview, limit: int
) -> int:
    """Decode blocks into memory, up to one that goes past the limit; return the size of their content."""
    end = 0
    for start, stop, stored in blocks:
        if stored:
            size = stop - start
            content[end : end + size] = data[start:stop]
        else:
            room = min(block_bytes, _MAX_RATIO * (stop - start))
            try:
                size = cramjam.lz4.decompress_block_into(data[start:stop], content[end : end + room], output_len=room)
            except cramjam.DecompressionError as error:
                raise CompressionError(f"lz4: the block at byte {start} is damaged: {error}") from error
        end += size
        if end > limit:
            break
    return end


def decompress(data: memoryview, *, magic: int, limit: int, scratch: Scratch) -> memoryview:
    """Return the content of the first frame."""
    flags, descriptor, block_bytes, position = _read_header(data, magic)
    blocks, end_mark, bound = _blocks(data, position, flags, block_bytes, limit + block_bytes)
    content = scratch(bound)
    if flags & 0x10:
        end = _verify_block_checksums(data, position, end_mark, descriptor, content[:bound])
    else:
        end = _decode(data, blocks, block_bytes, content, limit)
    if end > limit:
        raise DecompressedSizeError(f"lz4: {len(data)} bytes grow past the limit of {limit} bytes")
    return content[:end]


def chunks(data: memoryview, *, magic: int, limit: int) -> Iterator[memoryview]:
    """Yield the content of the first frame, block by block."""
    flags, descriptor, block_bytes, position = _read_header(data, magic)
    blocks, _, _ = _blocks(data, position, flags, block_bytes, limit + block_bytes)
    content = memoryview(bytearray(block_bytes))
    end = 0
    for block in blocks:
        if flags & 0x10:
            size = _verify_block_checksums(data, block[0] - 4, block[1] + 4, descriptor, content)
        else:
            size = _decode(data, [block], block_bytes, content, limit)
        end += size
        if end > limit:
            raise DecompressedSizeError(f"lz4: {len(data)} bytes grow past the limit of {limit} bytes")
        yield content[:size]
