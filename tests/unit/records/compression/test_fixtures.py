"""Every compressed batch that real brokers wrote: it opens, and holds as many records as its header says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from odradek.records.compression import Codec, Decompressor, compress, decompress
from peers.kafka_fixture import KafkaFixture


def compressed_batches(fixture: KafkaFixture) -> Iterator[tuple[Codec, int, bytes]]:
    """Yield codec, record count and block of each compressed v2 batch, read by hand."""
    for path in sorted(fixture.path.rglob("*.log")):
        data = path.read_bytes()
        position = 0
        while len(data) - position >= 61:
            size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
            if data[position + 16] > 2 or size > len(data) - position or size < 14:
                break  # the torn end of an unclean log, or room that was reserved
            if data[position + 16] == 2 and (codec := data[position + 22] & 7):
                count = int.from_bytes(data[position + 57 : position + 61], "big")
                yield Codec(codec), count, data[position + 61 : position + size]
            position += size


def records(data: bytes) -> int:
    """Count the records by their lengths; the last one ends where the data ends."""
    count = position = 0
    while position < len(data):
        length = shift = 0
        while True:
            byte = data[position]
            position += 1
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        position += (length >> 1) ^ -(length & 1)
        count += 1
    assert position == len(data)
    return count


def test_the_blocks_of_real_brokers(kafka_fixture: KafkaFixture) -> None:
    decompressor = Decompressor()
    found: Counter[Codec] = Counter()
    for codec, count, block in compressed_batches(kafka_fixture):
        content = bytes(decompressor.decompress(codec, block))
        assert records(content) == count
        assert bytes(decompress(codec, compress(codec, content))) == content
        found[codec] += 1
    assert set(found) == set(Codec) - {Codec.NONE}


def test_the_framings_of_real_brokers(kafka_fixture: KafkaFixture) -> None:
    """All snappy in these v2 batches is one bare block, without the xerial header; lz4 starts as our frames do."""
    blocks = list(compressed_batches(kafka_fixture))
    assert not any(block.startswith(b"\x82SNAPPY\0") for codec, _, block in blocks if codec == Codec.SNAPPY)
    assert {block[:4] for codec, _, block in blocks if codec == Codec.LZ4} == {compress(Codec.LZ4, b"")[:4]}
