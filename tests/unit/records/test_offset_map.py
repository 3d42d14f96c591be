from __future__ import annotations

import random
from typing import Any

import pytest

from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.records.kernels.objects import Record
from odradek.records.kernels.offset_map import SLOT_BYTES, OffsetMap, count_records, key_hash
from odradek.records.scan import Status, scan_batches
from peers.kafka_fixture import KafkaFixture

KEY = bytes(range(16))

# SipHash-2-4 with 128 bits under the key 00 01 .. 0f, of 00 01 .. n-1; as OpenSSL computes it.
HASHES = {
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    63: "5150d1772f50834a503e069a973fbd7c",
}


@pytest.mark.parametrize("size", HASHES)
def test_the_hash_is_siphash(size: int) -> None:
    assert key_hash(bytes(range(size)), KEY).hex() == HASHES[size]
    assert key_hash(bytes(range(size)), KEY[::-1]).hex() != HASHES[size]


def map_of(slots: int, limit: int | None = None) -> OffsetMap:
    return OffsetMap(bytearray(slots * SLOT_BYTES), KEY, slots - 1 if limit is None else limit)


def test_it_is_a_dictionary() -> None:
    source = random.Random(1)
    offsets, expected = map_of(1000), {}
    for offset in range(5000):
        key = b"%d" % source.randrange(900)
        assert offsets.put(key, offset)
        expected[key] = offset
    assert len(offsets) == offsets.size == len(expected)
    assert all(offsets.get(b"%d" % number) == expected.get(b"%d" % number, -1) for number in range(2000))


def test_the_last_slot_stays_free() -> None:
    offsets = map_of(8)
    for number in range(7):
        assert offsets.put(b"%d" % number, number)
    # As in Kafka's, a full map does not take a known key either.
    assert not offsets.put(b"7", 7)
    assert not offsets.put(b"0", 8)
    assert [offsets.get(b"%d" % number) for number in range(8)] == [*range(7), -1]


@pytest.mark.parametrize(("slots", "limit"), [(8, 0), (8, 8), (0, 1), (1, 1)])
def test_limits_that_do_not_fit(slots: int, limit: int) -> None:
    with pytest.raises(ValueError):
        OffsetMap(bytearray(slots * SLOT_BYTES), KEY, limit)
    with pytest.raises(ValueError):
        OffsetMap(bytearray(8 * SLOT_BYTES), KEY[1:], 4)


def batch(offset: int, *keys: bytes | None, **options: object) -> bytes:
    records = [Record(key, b"value", [("name", b"x")]) for key in keys]
    return build_batch(records, base_offset=offset, **options)  # type: ignore[arg-type]


def test_plain_batches_are_walked_over() -> None:
    data = batch(0, b"a", None, b"b") + batch(3, b"a") + batch(10, *(b"%d" % n for n in range(100)))
    offsets = map_of(1000)
    assert offsets.add_batches(data, 0, len(data), 0) == (Status.END, len(data))
    assert [offsets.get(key) for key in (b"a", b"b", b"0", b"99", b"")] == [3, 2, 10, 109, -1]
    assert (offsets.size, offsets.latest_offset) == (102, 109)
    later = map_of(1000)
    assert later.add_batches(data, 0, len(data), 2)[0] == Status.END
    assert [later.get(key) for key in (b"a", b"b")] == [3, 2]
    with pytest.raises(ValueError):
        offsets.add_batches(data, 5, 4, 0)
    with pytest.raises(ValueError):
        offsets.add_batches(data, 0, len(data) + 1, 0)


@pytest.mark.parametrize(
    "special",
    [
        {"codec": Codec.LZ4},
        {"is_transactional": True, "producer_id": 1, "producer_epoch": 0},
        {"is_control": True, "producer_id": 1, "producer_epoch": 0},
    ],
)
def test_it_stops_at_what_it_cannot_decide(special: dict[str, Any]) -> None:
    first = batch(0, b"a")
    data = first + batch(1, b"b", **special) + batch(2, b"c")
    offsets = map_of(100)
    assert offsets.add_batches(data, 0, len(data), 0) == (Status.COMPRESSED, len(first))
    headers = list(scan_batches(data))
    assert offsets.batch == headers[1]
    assert offsets.add_batches(data, headers[2].position, len(data), 0)[0] == Status.END
    assert [offsets.get(key) for key in (b"a", b"b", b"c")] == [0, -1, 2]


def test_a_full_map_stops_within_a_batch() -> None:
    data = batch(0, b"a", b"b") + batch(2, b"c", b"d", b"e")
    offsets = map_of(100, 4)
    status, position = offsets.add_batches(data, 0, len(data), 0)
    assert (status, position) == (Status.FULL, list(scan_batches(data))[1].position)
    assert (offsets.size, offsets.latest_offset) == (4, 1)


def test_damage_is_seen() -> None:
    data = batch(0, b"a", b"b")
    for cut in range(1, len(data)):
        status, _ = map_of(100).add_batches(data[:cut], 0, cut, 0)
        assert status == Status.TRUNCATED
    for position in range(61, len(data)):
        damaged = bytearray(data)
        damaged[position] = 0xFF
        status, _ = map_of(100).add_batches(damaged, 0, len(data), 0)
        assert status in (Status.END, Status.BAD_RECORD)
    records = data[61:]
    assert map_of(100).add_records(records, 2, 0, 0) == Status.OK
    assert map_of(100).add_records(records, 1, 0, 0) == Status.BAD_RECORD
    assert map_of(100).add_records(records, 3, 0, 0) == Status.BAD_RECORD
    assert map_of(100).add_records(records, 1 << 40, 0, 0) == Status.BAD_RECORD
    assert map_of(100).add_records(b"", 0, 0, 0) == Status.OK
    assert map_of(100).add_records(b"", 1, 0, 0) == Status.BAD_RECORD


@pytest.mark.slow
def test_counting(fixture_2_8_2: KafkaFixture) -> None:
    data = batch(0, b"a", None, b"b") + batch(3, b"a")
    assert count_records(data, 100) == 4
    assert count_records(data, 3) == 3
    assert count_records(data[:-1], 100) == 3
    assert count_records(b"", 100) == 0
    wrappers = next((fixture_2_8_2.log_dir / "v1-gzip-0").glob("*.log")).read_bytes()
    assert count_records(wrappers, 12345) == 12345
