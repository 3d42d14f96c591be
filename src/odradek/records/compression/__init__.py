"""The compressed part of a batch: what stands between a batch's header and its records.

A batch whose attributes name a codec holds all of its records as one compressed block:

    v2      | 61-byte header, attributes & 7 = codec | compressed records ................ |
    v0, v1  | offset, size, crc, magic, attributes   | null key | value = compressed set . |

The codecs and their numbers are those of Kafka's `CompressionType`; the levels are those of its
`compression.gzip.level`, `compression.lz4.level` and `compression.zstd.level` (KIP-780). A module of this package
describes the framing of one codec. A codec's package is imported when its first block is met.

A length that a block claims is not used before it is compared with the limit and with what that many compressed bytes
can hold at most. So the memory stays bounded by the limit, whatever the block says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from importlib import import_module
from typing import NamedTuple, Protocol, TypeAlias, cast

from odradek.buffers import Buffer
from odradek.errors import CompressionError

__all__ = [
    "CHUNK_BYTES",
    "CODECS",
    "KEPT_BYTES",
    "LARGE_BYTES",
    "LEVELS",
    "MAX_DECOMPRESSED_BYTES",
    "Codec",
    "Decompressor",
    "Levels",
    "chunks",
    "compress",
    "decompress",
]

Scratch: TypeAlias = Callable[[int], memoryview]

MAX_DECOMPRESSED_BYTES = 256 << 20
"""How many bytes one block may decompress to by default: well above any sensible `max.message.bytes`."""

KEPT_BYTES = 8 << 20
"""How many bytes are kept for the next block; what larger ones need is given back after each."""

LARGE_BYTES = 16 << 20
"""What decompresses to more is decompressed a chunk at a time by readers that go record by record."""

CHUNK_BYTES = 1 << 20
"""About how many bytes such a chunk has."""


class Codec(IntEnum):
    """The number that bits 0 to 2 of a batch's attributes hold."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODECS: Mapping[str, Codec] = {codec.name.lower(): codec for codec in Codec}
"""The codecs by the names that a producer's `compression.type` has for them."""


class Levels(NamedTuple):
    """The levels of a codec."""

    default: int
    lowest: int
    highest: int

    def allow(self, level: int) -> bool:
        """Whether a level exists; the default may lie outside of the range of the others."""
        return level == self.default or self.lowest <= level <= self.highest


LEVELS: Mapping[Codec, Levels] = {
    Codec.GZIP: Levels(-1, 1, 9),
    Codec.LZ4: Levels(9, 1, 17),
    Codec.ZSTD: Levels(3, -131072, 22),
}
"""The levels of the codecs that have levels, for checking settings and for compressing."""


class _Implementation(Protocol):
    """What each module of this package offers.

    `decompress` raises `CompressionError` if the bytes are damaged, incomplete, or grow past `limit` bytes. `chunks`
    yields the same content in pieces, each valid until the next, and raises the same errors when it meets their cause.
    """

    def compress(self, data: memoryview, *, level: int, magic: int) -> bytes: ...

    def decompress(self, data: memoryview, *, magic: int, limit: int, scratch: Scratch) -> memoryview: ...

    def chunks(self, data: memoryview, *, magic: int, limit: int) -> Iterator[Buffer]: ...


_loaded: dict[int, _Implementation] = {}


def _load(codec: int) -> _Implementation:
    """Import the module of a codec when it is first used."""
    if codec not in list(Codec):
        raise CompressionError(f"codec {codec} is unknown: Kafka has 0 to 4")
    implementation = cast("_Implementation", import_module(f"{__name__}.{Codec(codec).name.lower()}"))
    _loaded[codec] = implementation
    return implementation


def _bytes_view(data: Buffer) -> memoryview:
    view = data if type(data) is memoryview else memoryview(data)
    return view if view.format == "B" and view.contiguous else view.cast("B")


class Decompressor:
    """Decompresses block after block into one buffer that it keeps, up to `KEPT_BYTES`.

    What `decompress` returns is valid until the next call on the same object: copy what you need for longer. Reading a
    log batch by batch in this way saves allocating a new buffer for every batch, and its page faults. Only one thread
    at a time may use an object.

    Attributes:
        limit: How many bytes one block may decompress to.
    """

    __slots__ = ("_scratch", "limit")

    def __init__(self, limit: int = MAX_DECOMPRESSED_BYTES) -> None:
        self.limit = limit
        self._scratch = memoryview(bytearray())

    def _take(self, size: int) -> memoryview:
        """Return the scratch buffer, enlarged to at least `size` bytes; above `KEPT_BYTES` one that is not kept."""
        if size > KEPT_BYTES:
            return memoryview(bytearray(size))
        if len(self._scratch) < size:
            self._scratch = memoryview(bytearray())  # given back before the larger one is asked for
            self._scratch = memoryview(bytearray(size))
        return self._scratch

    def decompress(self, codec: int, data: Buffer, *, magic: int = 2, into: Scratch | None = None) -> memoryview:
        """Return the decompressed bytes of one block, valid until the next call.

        Args:
            codec: The codec of the batch: attributes & 7.
            data: The whole compressed block.
            magic: The batch's magic. lz4 in magic 0 has a header checksum of its own, and zstd needs magic 2.
            into: Called with a size, returns memory of at least that many bytes to use instead of the object's own
                buffer. The result may lie there or, if the codec allocated memory itself, elsewhere.

        Raises:
            CompressionError: The codec is unknown or rejects the block, the block is incomplete, or it decompresses to
                more than `limit` bytes.
        """
        view = _bytes_view(data)
        if codec == 0:
            return view
        implementation = _loaded.get(codec) or _load(codec)
        return implementation.decompress(view, magic=magic, limit=self.limit, scratch=into or self._take)


def decompress(codec: int, data: Buffer, *, magic: int = 2, limit: int = MAX_DECOMPRESSED_BYTES) -> memoryview:
    """Return the decompressed bytes of one block in memory of their own.

    Raises:
        CompressionError: As `Decompressor.decompress`.
    """
    return Decompressor(limit).decompress(codec, data, magic=magic)


def chunks(codec: int, data: Buffer, *, magic: int, limit: int) -> Iterator[memoryview]:
    """Yield the decompressed bytes of one block, at most `CHUNK_BYTES` at a time, each valid until the next.

    The memory is that of a chunk, of the codec's own block (snappy's may be the whole content, but at most 22 times its
    compressed size; lz4's 4 MiB), and of its window (zstd: 128 MiB at most, if the frame asks for it).

    Raises:
        CompressionError: As `Decompressor.decompress`, but some chunks may have come before.
    """
    implementation = _loaded.get(codec) or _load(codec)
    for content in implementation.chunks(_bytes_view(data), magic=magic, limit=limit):
        view = memoryview(content)
        for start in range(0, len(view), CHUNK_BYTES):
            yield view[start : start + CHUNK_BYTES]


def compress(codec: int, data: Buffer, *, level: int | None = None, magic: int = 2) -> bytes:
    """Return `data` as one compressed block in the framing that Kafka writes.

    Args:
        codec: One of `Codec`.
        data: The records (v2) or the inner message set (v0, v1).
        level: One of the codec's `LEVELS`; `None` is Kafka's default. Codecs without levels accept only `None`.
        magic: The magic of the batch that will hold the block.

    Raises:
        ValueError: The codec does not exist, does not exist for this magic, or does not have this level.
    """
    try:
        codec = Codec(codec)
    except ValueError:
        raise ValueError(f"codec {codec} is unknown: Kafka has 0 to 4") from None
    if codec == Codec.ZSTD and magic < 2:
        raise ValueError(f"zstd needs magic 2, not magic {magic}")
    if codec in LEVELS:
        levels = LEVELS[codec]
        if level is None:
            level = levels.default
        elif not levels.allow(level):
            raise ValueError(
                f"{codec.name.lower()} has levels {levels.lowest} to {levels.highest} (default {levels.default}), "
                f"not {level}"
            )
    elif level is not None:
        raise ValueError(f"{codec.name.lower()} has no levels, but level {level} was given")
    view = _bytes_view(data)
    if codec == Codec.NONE:
        return bytes(view)
    implementation = _loaded.get(codec) or _load(codec)
    return implementation.compress(view, level=level or 0, magic=magic)
