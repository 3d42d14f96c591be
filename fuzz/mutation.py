"""Breaks bytes: blindly, and where it hurts (varints, lengths, counts), with the checksums made right again."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence

from odradek.errors import FormatError
from odradek.records import scan_batches
from odradek.records.compression import Codec, Decompressor, compress
from odradek.records.kernels.checksums import crc32c
from odradek.records.payload import records_section

MAX_INPUT = 64 << 10
V2_HEADER = 61

INTERESTING = (0, 1, 2, 3, 4, 6, 7, 8, 13, 14, 21, 22, 48, 49, 61, 63, 64, 127, 128, 255, 256, 4096, 32767, 65535)
LARGE = (1 << 20, (1 << 28) - 1, (1 << 31) - 13, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 62), (1 << 63) - 1)
VARINTS = (
    b"\xff" * 10 + b"\x01",  # of 11 bytes
    b"\xff" * 9 + b"\x01",  # the longest, -2^63
    b"\xfe" + b"\xff" * 8 + b"\x01",  # 2^63 - 1
    b"\xfe\xff\xff\xff\x0f",  # 2^31 - 1
    b"\xff\xff\xff\xff\x0f",  # -2^31
    b"\xff\xff\xff\xff\x7f",  # more bits than fit
    b"\x80\x80\x80\x80\x00",  # 0, too long
    b"\x80",
    b"\x01",
    b"\x03",
)
# Position, format and what it is of each field of a v2 header.
V2_FIELDS = (
    (0, ">q"), (8, ">i"), (12, ">i"), (16, ">b"), (21, ">h"), (23, ">i"), (27, ">q"), (35, ">q"),
    (43, ">q"), (51, ">h"), (53, ">i"), (57, ">i"),
)  # fmt: skip
MESSAGE_FIELDS = ((0, ">q"), (8, ">i"), (16, ">b"), (17, ">b"), (18, ">q"), (18, ">i"), (22, ">i"), (26, ">i"))


def number(rng: random.Random, bits: int = 64) -> int:
    """Return an integer that is likely to be at an edge."""
    if rng.random() < 0.06:
        return -1
    value = rng.choice(INTERESTING) if rng.random() < 0.6 else rng.choice(LARGE)
    value += rng.choice((-1, 0, 0, 0, 1))
    if rng.random() < 0.3:
        value = -value
    half = 1 << (bits - 1)
    return (value + half) % (2 * half) - half


def varint(value: int) -> bytes:
    """Return a zig-zag varint or varlong."""
    raw = (value << 1 ^ value >> 63) & (1 << 64) - 1
    out = bytearray()
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def mutate_bytes(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Change, insert, delete, repeat or splice a few times."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(11)
        if kind <= 2 and at < len(out):
            out[at] = rng.randrange(256)
        elif kind == 3 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 4:
            out[at:at] = rng.randbytes(rng.randint(1, 8))
        elif kind == 5:
            del out[at : at + rng.choice((1, 1, 2, 4, 8, 64))]
        elif kind == 6:
            width, layout = rng.choice(((2, ">h"), (4, ">i"), (8, ">q"), (4, "<i")))
            if at + width <= len(out):
                out[at : at + width] = struct.pack(layout, number(rng, 8 * width))
        elif kind == 7:
            out[at : at + rng.choice((0, 1, 1, 2, 5))] = rng.choice(VARINTS)
        elif kind == 8:
            out[at:at] = varint(number(rng, rng.choice((32, 64))))
        elif kind == 9:
            stop = rng.randrange(at, min(len(out), at + 64) + 1)
            out[at:at] = out[at:stop] * rng.choice((1, 1, 2, 20))
        elif others:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            out[at : at + rng.choice((0, 8, 64))] = other[start : start + rng.choice((4, 16, 64, 1024))]
        del out[MAX_INPUT:]
    if rng.random() < 0.05:
        del out[rng.randrange(len(out) + 1) :]
    return bytes(out)


def seal(batch: bytes | bytearray, *, size: bool = True) -> bytes:
    """Return a batch or message with its size field, and its checksum, made right."""
    out = bytearray(batch)
    if len(out) < 18:
        return bytes(out)
    if size:
        struct.pack_into(">i", out, 8, len(out) - 12)
    if out[16] < 2:
        struct.pack_into(">I", out, 12, zlib.crc32(out[16:]))
    elif len(out) >= V2_HEADER:
        struct.pack_into(">I", out, 17, crc32c(out[21:]))
    return bytes(out)


def _pieces(data: bytes) -> list[bytes]:
    scan = scan_batches(data, check_crc=False)
    pieces = [data[header.position : header.end_position] for header in scan]
    if scan.position < len(data):
        pieces.append(data[scan.position :])
    return pieces or [b""]


def _section(piece: bytes, limit: int = 1 << 20) -> bytes | None:
    """Return the records of a batch, or the inner messages of a wrapper, decompressed; None where there are none."""
    header = next(iter(scan_batches(piece, check_crc=False)), None)
    if header is None or (header.magic < 2 and not header.codec):
        return None
    try:
        return bytes(memoryview(records_section(piece, header, Decompressor(limit))))
    except FormatError:
        return None


def _with_section(rng: random.Random, piece: bytes, section: bytes, codec: int) -> bytes:
    magic = piece[16]
    out = bytearray(piece[:V2_HEADER] if magic == 2 else piece[: 26 if magic else 18])
    attributes = 22 if magic == 2 else 17
    if magic < 2 and codec in (0, Codec.ZSTD):
        codec = rng.choice((1, 2, 3))
    out[attributes] = out[attributes] & ~7 | codec
    payload = compress(codec, section[:MAX_INPUT], magic=magic)
    if magic < 2:
        out += struct.pack(">ii", -1, len(payload))
    return seal(out + payload)


def mutate_batches(rng: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Break one batch or message of `data`, so that most of what is broken gets past the checksum."""
    pieces = _pieces(data)
    index = rng.randrange(len(pieces))
    piece = pieces[index]
    kind = rng.randrange(12)
    section = _section(piece) if kind < 5 else None
    if section is not None:
        inner = mutate_batches if piece[16] < 2 and rng.random() < 0.7 else mutate_section
        changed = inner(rng, section, others)
        same = piece[22] & 7 if piece[16] == 2 else piece[17] & 7
        codec = same if rng.random() < 0.7 and same <= 4 else rng.randrange(5)
        piece = _with_section(rng, piece, changed, codec)
        if piece[16] == 2 and rng.random() < 0.3:
            delta = rng.choice((-1, 1))
            out = bytearray(piece)
            count = int.from_bytes(out[57:61], "big", signed=True)
            struct.pack_into(">i", out, 57, max(-1, min(count + delta, (1 << 31) - 1)))
            piece = seal(out)
    elif kind < 8 and len(piece) > 30:
        out = bytearray(piece)
        fields = V2_FIELDS if out[16] == 2 else MESSAGE_FIELDS
        for _ in range(rng.choice((1, 1, 2))):
            at, layout = rng.choice(fields)
            width = struct.calcsize(layout)
            if at + width <= len(out):
                struct.pack_into(layout, out, at, number(rng, width * 8))
        piece = seal(out, size=False) if rng.random() < 0.9 else bytes(out)
    elif kind < 10:
        piece = mutate_bytes(rng, piece, others)
        if rng.random() < 0.8:
            piece = seal(piece, size=rng.random() < 0.8)
    elif kind == 10 and others:
        pieces.insert(index, rng.choice(_pieces(rng.choice(others))))
    else:
        pieces[index:index] = [piece] * rng.choice((1, 1, 3))
    pieces[index] = piece
    return b"".join(pieces)[:MAX_INPUT]


def mutate_section(rng: random.Random, section: bytes, others: Sequence[bytes]) -> bytes:
    """Break the records of a v2 batch: their bytes, or records made up from scratch."""
    if rng.random() < 0.5:
        return mutate_bytes(rng, section, others)
    made = b"".join(record(rng, index) for index in range(rng.choice((0, 1, 1, 2, 3, 8))))
    return made if rng.random() < 0.5 else section + made


def record(rng: random.Random, index: int, damage: float = 0.04) -> bytes:
    """Return a v2 record, some of whose numbers are wrong."""

    def integer(value: int) -> bytes:
        if rng.random() < damage:
            return rng.choice(VARINTS) if rng.random() < 0.5 else varint(number(rng, rng.choice((8, 32, 64))))
        return varint(value)

    def field() -> bytes:
        if rng.random() < 0.2:
            return integer(-1)
        content = rng.randbytes(rng.choice((0, 1, 5, 12, 13, 31, 32, 33, 200)))
        return integer(len(content)) + content

    headers = rng.choice((0, 0, 0, 1, 2))
    body = b"\0" + integer(rng.choice((0, 0, 1, -1, 1000))) + integer(index) + field() + field() + integer(headers)
    for _ in range(headers):
        name = rng.choice((b"", b"name", "ключ".encode(), b"\xff\xfe"))
        body += integer(len(name)) + name + field()
    return integer(len(body)) + body


Mutator = Callable[[random.Random, bytes, Sequence[bytes]], bytes]
