"""Zstandard frames (RFC 8878), as Kafka's `ZstdCompression` (KIP-110) writes and reads them.

    | 28 b5 2f fd | descriptor | [window 1] [dictionary 0-4] [content size 0-8] | block ... | [checksum 4] |
    block: | 3 bytes, little-endian: bit 0 last, bits 1-2 raw, run, compressed; size | bytes |

Kafka writes a frame as a stream, so without its content size. It reads all frames of a block, and passes over skippable
ones. The blocks are walked before any is decoded. That detects an incomplete frame, of which the library would silently
return the beginning, and it bounds the content, since no block holds more than 128 KiB.

The package `zstandard` reads them if it is installed, or else Python's own library.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from odradek.errors import CompressionError, DecompressedSizeError
from odradek.records.compression import CHUNK_BYTES, KEPT_BYTES, Scratch

try:
    from odradek.records.compression import zstd_package as library
except ModuleNotFoundError:
    from odradek.records.compression import zstd_standard as library  # type: ignore[no-redef]

_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50
_BLOCK_BYTES = 128 * 1024
_RAW, _RUN, _RESERVED = 0, 1, 3


class _Encoders(threading.local):
    """A thread's latest encoder: it is costly to make, and cannot be shared."""

    level: int | None = None

    def compress(self, data: memoryview, level: int) -> bytes:
        if self.level != level:
            self.encode: Callable[[memoryview], bytes] = library.encoder(level)
            self.level = level
        try:
            return self.encode(data)
        except BaseException:
            # It may have stopped within a frame.
            self.level = None
            raise


_encoders = _Encoders()


def compress(data: memoryview, *, level: int, magic: int) -> bytes:
    """Return one frame without its content size."""
    return _encoders.compress(data, level)


def _integer(data: memoryview, position: int, size: int) -> int:
    if len(data) - position < size:
        raise CompressionError(f"zstd: the block ends within a frame, at byte {len(data)}")
    return int.from_bytes(data[position : position + size], "little")


def _skip_frame(data: memoryview, position: int) -> tuple[int, int]:
    """Return where the frame at `position` ends, and how large its content can be at most."""
    magic = _integer(data, position, 4)
    if magic & ~0xF == _SKIPPABLE:
        end = position + 8 + _integer(data, position + 4, 4)
        if end > len(data):
            raise CompressionError(
                f"zstd: the skippable frame at byte {position} ends {end - len(data)} bytes too late"
            )
        return end, 0
    if magic != _MAGIC:
        raise CompressionError(f"zstd: at byte {position} stands {magic:08x}, not a frame's magic {_MAGIC:08x}")
    descriptor = _integer(data, position + 4, 1)
    single_segment = descriptor >> 5 & 1
    size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    position += 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3] + size_bytes
    bound = 0
    last = 0
    while not last:
        header = _integer(data, position, 3)
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        if kind == _RESERVED or size > _BLOCK_BYTES:
            raise CompressionError(f"zstd: the block at byte {position} has type {kind} and {size} bytes")
        bound += size if kind in (_RAW, _RUN) else _BLOCK_BYTES
        position += 3 + (1 if kind == _RUN else size)
    if descriptor & 4:
        position += 4
    if position > len(data):
        raise CompressionError(f"zstd: the block ends within a frame, at byte {len(data)}")
    return position, bound


def _check_frames(data: memoryview, magic: int) -> tuple[Sequence[tuple[int, int]], int]:
    """Walk over the frames; return where they are, and how large their content can be at most."""
    if magic < 2:
        raise CompressionError(f"zstd needs magic 2, not magic {magic}")
    frames = list[tuple[int, int]]()
    position = bound = 0
    while position < len(data):
        end, most = _skip_frame(data, position)
        frames.append((position, end))
        position, bound = end, bound + most
    return frames, bound


def decompress(data: memoryview, *, magic: int, limit: int, scratch: Scratch) -> memoryview:
    """Return the content of all frames; for no bytes at all, no bytes, as Kafka does."""
    frames, bound = _check_frames(data, magic)
    # One byte more than can be needed: with no room left, the library would stop before it verifies the checksum.
    room = min(bound, limit) + 1
    content = scratch(room)[:room]
    end = 0
    try:
        with library.content(data, frames, is_kept=room <= KEPT_BYTES) as reader:
            while end < room and (size := reader.readinto(content[end:])):
                end += size
    except library.ERROR as error:
        raise CompressionError(f"zstd: the block is damaged after {end} bytes of content: {error}") from error
    if end > limit:
        raise DecompressedSizeError(f"zstd: {len(data)} bytes grow past the limit of {limit} bytes")
    return content[:end]


def chunks(data: memoryview, *, magic: int, limit: int) -> Iterator[memoryview]:
    """Yield the content of all frames, a part at a time."""
    frames, _ = _check_frames(data, magic)
    content = memoryview(bytearray(CHUNK_BYTES))
    end = 0
    with library.content(data, frames, is_kept=False) as reader:
        while True:
            try:
                size = reader.readinto(content)
            except library.ERROR as error:
                raise CompressionError(f"zstd: the block is damaged after {end} bytes of content: {error}") from error
            if not size:
                return
            end += size
            if end > limit:
                raise DecompressedSizeError(f"zstd: {len(data)} bytes grow past the limit of {limit} bytes")
            yield content[:size]
