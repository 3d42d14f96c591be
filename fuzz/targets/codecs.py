"""Each codec's decompressor: within its limit, without a crash, and of one opinion with another implementation."""

from __future__ import annotations

import contextlib
import gzip as python_gzip
import re
import zlib
from collections.abc import Callable, Hashable, Sequence

import lz4.frame
import pyarrow as pa
import zstandard

from guard import GuardedMemory
from mutation import MAX_INPUT, mutate_bytes
from odradek.errors import CompressionError
from odradek.records.compression import LEVELS, Codec, Decompressor, compress, decompress
from odradek.records.compression.snappy import compress_block
from seeds import messages, v2_batches
from targets import Target, dice

LIMIT = 1 << 18
_memory = GuardedMemory(MAX_INPUT * 2)
_NUMBER = re.compile(r"[0-9a-f]*[0-9][0-9a-f]*")


def _contents() -> list[bytes]:
    return [b"", b"a", bytes(70_000), b"for good " * 9000, bytes(range(256)) * 4, v2_batches()[0], messages()[0]]


def _seeds(codec: Codec) -> Sequence[bytes]:
    levels: list[int | None] = [None]
    if codec in LEVELS:
        levels += LEVELS[codec][1:]
    found = [compress(codec, content, level=level) for content in _contents() for level in levels]
    if codec == Codec.SNAPPY:
        found += map(compress_block, _contents())
    if codec == Codec.LZ4:
        found += [compress(codec, content, magic=0) for content in _contents()]
        found += [
            lz4.frame.compress(
                content, block_size=size, block_checksum=checks, content_checksum=checks, store_size=sized
            )
            for content in _contents()
            for size, checks, sized in ((4, True, False), (5, False, True), (7, True, True))
        ]
    if codec == Codec.ZSTD:
        found += [
            zstandard.ZstdCompressor(write_checksum=True, write_content_size=sized).compress(content)
            for content in _contents()
            for sized in (False, True)
        ]
        found.append(bytes.fromhex("502a4d1803000000") + b"abc" + found[0])
    if codec == Codec.GZIP:
        found.append(found[0] + found[-1])
    return [data for data in found if len(data) <= MAX_INPUT]


def _gzip(data: bytes, size: int) -> bytes:
    return python_gzip.decompress(data)


def _lz4(data: bytes, size: int) -> bytes:
    found: bytes = lz4.frame.decompress(data)
    return found


def _snappy(data: bytes, size: int) -> bytes:
    if data.startswith(b"\x82SNAPPY\0"):
        raise ValueError("a stream, which this implementation does not know")
    found: bytes = pa.Codec("snappy").decompress(data, size, asbytes=True)
    return found


def _zstd(data: bytes, size: int) -> bytes:
    found: bytes = pa.Codec("zstd").decompress(data, size, asbytes=True)
    return found


_OTHERS: dict[Codec, Callable[[bytes, int], bytes]] = {
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
_decompressor = Decompressor(LIMIT)


def _check(codec: Codec, data: bytes) -> Hashable:
    view = _memory.place(data)
    limit = dice(data).choice((LIMIT, LIMIT, 0, 1, 1000))
    verdict = ""
    content = b""
    for magic in (0, 1, 2):
        try:
            content = bytes(decompress(codec, view, magic=magic, limit=limit))
            assert len(content) <= limit, f"{len(content)} bytes, above the limit"
            verdict = "good"
        except CompressionError as error:
            verdict = _NUMBER.sub("#", str(error))
    # Memory that is used again must not show through.
    try:
        again = bytes(_decompressor.decompress(codec, view))
    except CompressionError:
        again = None
    if limit == LIMIT:
        assert again == (content if verdict == "good" else None), "used memory gives another answer"
    if verdict == "good":
        # lz4.frame reads what Kafka does not, and refuses checksums that Kafka passes over.
        with contextlib.suppress(OSError, EOFError, RuntimeError, ValueError, zlib.error, MemoryError):
            other = _OTHERS[codec](data, len(content))
            assert other == content, f"another implementation reads {len(other)} bytes, this one {len(content)}"
        assert bytes(decompress(codec, compress(codec, content))) == content, "what was compressed again differs"
    return verdict


def _target(codec: Codec) -> Target:
    return Target(codec.name.lower(), lambda: _seeds(codec), mutate_bytes, lambda data: _check(codec, data))


TARGETS = [_target(codec) for codec in Codec if codec]
