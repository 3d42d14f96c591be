"""gzip (RFC 1952), as Kafka's `GzipCompression` writes and Java's `GZIPInputStream` reads it.

    | 1f 8b | 08 | flags | mtime 4 | xfl | os | ... | deflate data | crc32 4 | size mod 2^32 4 |

Kafka writes one member without name and time. It reads several members as one stream, and ignores bytes after a member
that do not begin another one. An incomplete member is an error here; Kafka accepts it if it is cut within its first
bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from isal import isal_zlib

from odradek.errors import CompressionError, DecompressedSizeError
from odradek.records.compression import CHUNK_BYTES, LEVELS, Codec, Scratch

_WINDOW_BITS_GZIP = 31
_MEMBER_START = b"\x1f\x8b\x08"
_STEP_BYTES = 4096
_FED_BYTES = 1 << 16

# ISA-L has the levels 0 to 3. Its level 3 comes within a few percent of zlib's default at many times the speed
# (docs/codecs.md). The levels 7 to 9 are for small output, which only zlib gives.
_ISAL_LEVELS = {LEVELS[Codec.GZIP].default: 3, 1: 1, 2: 2, 3: 3, 4: 3, 5: 3, 6: 3}


def compress(data: memoryview, *, level: int, magic: int) -> bytes:
    """Return one gzip member."""
    if level in _ISAL_LEVELS:
        member: bytes = isal_zlib.compress(data, _ISAL_LEVELS[level], _WINDOW_BITS_GZIP)
        return member
    deflater = zlib.compressobj(level, zlib.DEFLATED, _WINDOW_BITS_GZIP)
    return deflater.compress(data) + deflater.flush()


def _read_member(
    data: memoryview, position: int, step: int, expected: int, total: int, limit: int
) -> tuple[bytes, int]:
    """Return the content of the member at `position`, and where it ends.

    The member is fed in steps that double: a decoder copies the input that it did not need, so a block of many small
    members would otherwise take quadratic time. A buffer of the `expected` size saves the decoder from growing it; that
    size is only a hint.

    Args:
        data: The whole block.
        position: Where the member begins.
        step: The bytes to feed at first.
        expected: The size that the content probably has.
        total: The size of the content of the members before this one.
        limit: How large the content of all members may be.
    """
    inflater = isal_zlib.decompressobj(_WINDOW_BITS_GZIP)
    parts: list[bytes] = []
    while not inflater.eof:
        fed = data[position : position + step]
        try:
            part = inflater.decompress(fed, min(limit - total, expected) + 1)
        except isal_zlib.error as error:  # type: ignore[misc]  # its stub forgets the base class
            raise CompressionError(f"gzip: the member that holds byte {position} is damaged: {error}") from error
        if not (fed or part):
            raise CompressionError(f"gzip: the block ends within a member, at byte {len(data)}")
        position += len(fed) - len(inflater.unused_data) - len(inflater.unconsumed_tail)
        total += len(part)
        if total > limit:
            raise DecompressedSizeError(f"gzip: {len(data)} bytes grow past the limit of {limit} bytes")
        parts.append(part)
        step *= 2
        expected = max(expected, total)
    return parts[0] if len(parts) == 1 else b"".join(parts), position


def decompress(data: memoryview, *, magic: int, limit: int, scratch: Scratch) -> memoryview:
    """Return the content of all members."""
    if not data:
        raise CompressionError("gzip: the block is empty")
    size_field = int.from_bytes(data[-4:], "little")
    content, position = _read_member(data, 0, len(data), size_field, 0, limit)
    parts = [content]
    total = len(content)
    while data[position : position + 3] == _MEMBER_START:
        content, position = _read_member(data, position, _STEP_BYTES, _STEP_BYTES, total, limit)
        parts.append(content)
        total += len(content)
    return memoryview(content if len(parts) == 1 else b"".join(parts))


def chunks(data: memoryview, *, magic: int, limit: int) -> Iterator[bytes]:
    """Yield the content of all members, a part at a time."""
    if not data:
        raise CompressionError("gzip: the block is empty")
    position = total = 0
    while position == 0 or data[position : position + 3] == _MEMBER_START:
        inflater = isal_zlib.decompressobj(_WINDOW_BITS_GZIP)
        while not inflater.eof:
            fed = data[position : position + _FED_BYTES]
            try:
                part = inflater.decompress(fed, CHUNK_BYTES)
            except isal_zlib.error as error:  # type: ignore[misc]  # its stub forgets the base class
                raise CompressionError(f"gzip: the member that holds byte {position} is damaged: {error}") from error
            if not (fed or part or inflater.eof):
                raise CompressionError(f"gzip: the block ends within a member, at byte {len(data)}")
            position += len(fed) - len(inflater.unused_data) - len(inflater.unconsumed_tail)
            total += len(part)
            if total > limit:
                raise DecompressedSizeError(f"gzip: {len(data)} bytes grow past the limit of {limit} bytes")
            yield part
