"""CRC-32C, by the processor's instruction and without it."""

from __future__ import annotations

import random

import pytest

from odradek.records.kernels.checksums import crc32c

FORMS = pytest.mark.parametrize("by_tables", [False, True])


def bit_by_bit(data: bytes) -> int:
    found = 0xFFFFFFFF
    for byte in data:
        found ^= byte
        for _ in range(8):
            found = found >> 1 ^ (0x82F63B78 if found & 1 else 0)
    return found ^ 0xFFFFFFFF


@FORMS
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # RFC 3720, B.4; the first is the check value of the catalogue of parametrised CRC algorithms.
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"", 0),
    ],
)
def test_published_values(data: bytes, expected: int, by_tables: bool) -> None:
    assert crc32c(data, by_tables) == expected


@FORMS
def test_every_size_and_alignment(by_tables: bool) -> None:
    # Three streams of 256 bytes begin at 768, and of 4,096 at 12,288.
    sizes = [*range(70), *range(760, 790), *range(1530, 1550), 12_287, 12_288, 12_297, 13_056, 24_576, 30_001]
    data = random.Random(7).randbytes(max(sizes) + 8)
    for number, size in enumerate(sizes):
        part = memoryview(data)[number % 8 :][:size]
        assert crc32c(part, by_tables) == bit_by_bit(bytes(part))


@FORMS
def test_each_bit_counts(by_tables: bool) -> None:
    data = bytearray(random.Random(8).randbytes(12_288 + 768 + 8 + 7))
    whole = crc32c(data, by_tables)
    for position in range(0, len(data), 61):
        data[position] ^= 1 << position % 8
        assert crc32c(data, by_tables) != whole
        data[position] ^= 1 << position % 8
