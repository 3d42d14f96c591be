from __future__ import annotations

import random

import pytest

from odradek.records import read_records, scan_batches
from odradek.records.builder import build_batch
from odradek.records.kernels.batch_filter import BatchFilter
from odradek.records.kernels.encode import seal
from odradek.records.kernels.objects import Record
from odradek.records.kernels.offset_map import OffsetMap
from odradek.records.scan import Status

NOW = 2_000_000_000_000
NEVER = 1 << 60


def filter_of(
    latest: dict[bytes, int], *, base_offset: int = 0, end: int = NEVER, kept: tuple[int, ...] = ()
) -> BatchFilter:
    offsets = OffsetMap(bytearray(24 * 256), bytes(16), 200)
    for key, offset in latest.items():
        assert offsets.put(key, offset)
    offsets.latest_offset = 1000
    return BatchFilter(offsets, base_offset, NOW, 1000, end, kept, 0)


def batch(offset: int, *keys: bytes, **options: object) -> bytes:
    records = [Record(key, b"value", (), 5000 + number) for number, key in enumerate(keys)]
    return build_batch(records, base_offset=offset, **options)  # type: ignore[arg-type]


def test_it_stops_when_the_output_is_large_enough() -> None:
    data = b"".join(batch(offset, b"%d" % offset) for offset in range(100))
    size = len(data) // 100
    filtered = filter_of({})
    position, output = 0, b""
    for _ in range(100):
        status, position = filtered.run(data, position, len(data), 3 * size)
        output += bytes(memoryview(filtered.take()))
        if status == Status.END:
            break
        assert status == Status.FULL
        assert len(output) == position
    assert output == data
    assert (filtered.next_position, filtered.bytes_read, filtered.records_kept) == (len(data), len(data), 100)


def test_it_stops_at_batches_that_are_not_for_it_to_decide() -> None:
    data = batch(0, b"a") + batch(1, b"b", producer_id=5, producer_epoch=0) + batch(2, b"c")
    positions = [header.position for header in scan_batches(data)]
    filtered = filter_of({}, kept=(1,), end=3)
    assert filtered.run(data, 0, len(data), NEVER) == (Status.COMPRESSED, positions[1])
    assert filtered.batch == list(scan_batches(data))[1]
    assert filtered.filter_batch(data, None, True, True, False) == Status.OK
    assert filtered.run(data, positions[2], len(data), NEVER) == (Status.COMPRESSED, positions[2])
    assert filtered.filter_batch(data, None, False, True, False) == Status.OK
    output = bytes(memoryview(filtered.take()))
    assert [header.records_count for header in scan_batches(output)] == [1, 0, 1]
    with pytest.raises(ValueError):
        filtered.filter_batch(data[:10], None, False, True, False)
    with pytest.raises(ValueError):
        filtered.run(data, 0, len(data) + 1, NEVER)
    with pytest.raises(ValueError):
        filtered.add(data)
    with pytest.raises(ValueError):
        filtered.add(b"")


@pytest.mark.parametrize(("base_offset", "offset", "fits"), [(0, (1 << 31) - 1, True), (0, 1 << 31, False)])
def test_offsets_too_far_from_the_segment(base_offset: int, offset: int, fits: bool) -> None:
    data = batch(offset, b"a")
    filtered = filter_of({}, base_offset=base_offset)
    status, _ = filtered.run(data, 0, len(data), NEVER)
    assert (status == Status.END) is fits
    assert filtered.overflowed is not fits


def test_a_bad_checksum_is_seen() -> None:
    data = bytearray(batch(0, b"a"))
    data[-1] ^= 1
    assert filter_of({}).run(data, 0, len(data), NEVER) == (Status.BAD_CRC, 0)


@pytest.mark.slow
def test_records_that_contradict_their_batch() -> None:
    # The checksum is right, the records are whatever chance makes of them: refused, or filtered into a valid batch.
    source = random.Random(3)
    data = batch(0, *(b"%d" % number for number in range(6)))
    refused = kept = 0
    for _ in range(20_000):
        body = bytearray(data[61:])
        for _ in range(source.randint(1, 3)):
            body[source.randrange(len(body))] = source.randrange(256)
        damaged = seal(data[:61], bytes(body))
        filtered = filter_of({b"1": 50, b"4": 50})
        status, _ = filtered.run(damaged, 0, len(damaged), NEVER)
        if status == Status.BAD_RECORD:
            refused += 1
            continue
        assert status == Status.END
        kept += 1
        output = memoryview(filtered.take())
        scan = scan_batches(output)
        assert sum(header.records_count for header in scan) == filtered.records_kept
        assert scan.damage is None
    assert refused > 1000
    assert kept > 1000


def test_a_count_of_records_that_its_bytes_cannot_hold() -> None:
    data = batch(0, b"a", codec=4)
    header = bytearray(data[:61])
    header[57:61] = (0x7FFFFFFF).to_bytes(4, "big")
    damaged = seal(bytes(header), data[61:])
    filtered = filter_of({})
    assert filtered.run(damaged, 0, len(damaged), NEVER)[0] == Status.COMPRESSED
    assert filtered.filter_batch(damaged, b"\x0c" * 100, False, False, False) == Status.BAD_RECORD
    assert filtered.filter_batch(damaged, b"", False, False, False) == Status.BAD_RECORD
    with pytest.raises(ValueError):
        filtered.filter_batch(damaged, None, False, False, False)


def test_large_timestamp_deltas_have_room() -> None:
    times = [0, 1 << 62, 5, 1 << 61]
    records = [Record(b"%d" % number, b"", (), time) for number, time in enumerate(times)]
    data = build_batch(records, base_offset=0)
    # The first goes, so that all deltas are counted from the second, and change sign and length.
    filtered = filter_of({b"0": 99})
    assert filtered.run(data, 0, len(data), NEVER)[0] == Status.END
    output = bytes(memoryview(filtered.take()))
    (header,) = scan_batches(output)
    assert [record.timestamp for record in read_records(output, header)] == times[1:]
    assert (header.base_timestamp, header.max_timestamp) == (1 << 62, 1 << 62)
