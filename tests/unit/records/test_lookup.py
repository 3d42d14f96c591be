"""The kernel that finds an entry, a batch and a record."""

from __future__ import annotations

import random
import struct
from bisect import bisect_right

import pytest

from odradek.errors import FormatError
from odradek.records import BatchHeader, Record, scan_batches
from odradek.records.batch import read_records
from odradek.records.builder import build_batch
from odradek.records.kernels.encode import seal
from odradek.records.kernels.lookup import find_batch, surrounding_positions

FIRST = 100
TIME = 1_700_000_000_000


def rows(count: int) -> list[Record]:
    return [Record(b"k%d" % n, b"v" * n, [("h", b"%d" % n)], timestamp=TIME + n) for n in range(count)]


def batches() -> bytes:
    return b"".join(build_batch(rows(4), base_offset=FIRST + 4 * number) for number in range(3))


def found(
    data: bytes, offset: int, *, position: int = 0, origin: int = 0, end: int | None = None, takes: bool = True
) -> Record | BatchHeader | int | None:
    return find_batch(data, origin, position, origin + len(data) if end is None else end, FIRST, offset, True, takes)


def all_of(data: bytes) -> dict[int | None, Record]:
    return {record.offset: record for header in scan_batches(data) for record in read_records(data, header)}


def test_a_header_is_enough_where_nothing_is_verified() -> None:
    data = batches()
    first, second, _ = scan_batches(data)
    for offset in range(second.base_offset, second.next_offset):
        head = data[: second.position + 61]
        assert find_batch(head, 0, 0, len(data), FIRST, offset, False, True, False) == second
        assert find_batch(head, 0, 0, len(data), FIRST, offset, False, True) == second.position
        assert find_batch(head[:-1], 0, 0, len(data), FIRST, offset, False, True, False) == second.position
    damaged = bytearray(data)
    damaged[first.size_bytes - 1] ^= 1
    assert find_batch(damaged, 0, 0, len(data), FIRST, FIRST, False, True) is None
    assert find_batch(damaged, 0, 0, len(data), FIRST, FIRST, True, True, False) == first


@pytest.mark.parametrize("origin", [0, 1 << 40])
def test_each_record(origin: int) -> None:
    data = batches()
    expected = all_of(data)
    assert len(expected) == 12
    for offset, record in expected.items():
        assert offset is not None
        assert found(data, offset, position=origin, origin=origin) == record
        header = find_batch(data, origin, origin, origin + len(data), FIRST, offset, False, True)
        assert isinstance(header, BatchHeader)
        assert header.base_offset <= offset <= header.last_offset
        assert (header.position - origin) % header.size_bytes == 0
    for offset in (0, FIRST - 1, FIRST + 12):
        assert found(data, offset) is None


def test_the_log_append_time_is_that_of_the_batch() -> None:
    data = bytearray(build_batch(rows(2), base_offset=FIRST))
    data[21:23] = (8).to_bytes(2, "big")
    sealed = bytes(seal(bytes(data[:61]), bytes(data[61:])))
    record = found(sealed, FIRST)
    assert isinstance(record, Record)
    assert (record, record.timestamp_type, record.timestamp) == (all_of(sealed)[FIRST], "LogAppendTime", TIME + 1)


def test_bytes_that_end_anywhere() -> None:
    data = batches()
    starts = [header.position for header in scan_batches(data)]
    for offset, record in all_of(data).items():
        assert offset is not None
        for size in range(len(data)):
            # The file goes on: more bytes are asked for. It ends there: there is nothing.
            outcome = found(data[:size], offset, end=len(data))
            assert outcome == record or (isinstance(outcome, int) and outcome in starts)
            assert found(data[:size], offset) in (None, record)


def test_a_flipped_bit_is_never_a_record() -> None:
    data = build_batch(rows(3), base_offset=FIRST)
    # No checksum covers the base offset and the leader epoch, nor the size, by which the checksum is found.
    for at in range(8, len(data)):
        if 12 <= at < 16:
            continue
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            assert not isinstance(found(bytes(damaged), FIRST + 1), Record | BatchHeader), (at, bit)


@pytest.mark.slow
def test_records_that_contradict_their_header_are_left_to_those_who_say_why() -> None:
    """The checksum is right each time."""
    data = build_batch(rows(3), base_offset=FIRST)
    rng = random.Random(2)
    for _ in range(3000):
        damaged = bytearray(data)
        damaged[rng.randrange(57, len(data))] = rng.randrange(256)
        sealed = bytes(seal(bytes(damaged[:61]), bytes(damaged[61:])))
        try:
            # Two may have the same offset by now: the first one is found.
            whole = {
                record.offset: record for record in reversed(read_records(sealed, next(iter(scan_batches(sealed)))))
            }
        except (FormatError, StopIteration):
            whole = None
        for offset in range(FIRST, FIRST + 3):
            outcome = found(sealed, offset)
            if isinstance(outcome, Record):
                assert outcome.offset == offset
                assert whole is None or outcome == whole[offset]
            else:
                assert outcome is None or isinstance(outcome, BatchHeader)
                assert whole is None or offset not in whole


@pytest.mark.parametrize(
    ("options", "takes"),
    [
        ({"codec": 1}, True),
        ({"is_control": True}, True),
        ({"is_transactional": True, "producer_id": 1, "producer_epoch": 0, "base_sequence": 0}, False),
    ],
)
def test_what_takes_more_is_given_as_a_batch(options: dict[str, int], takes: bool) -> None:
    data = build_batch(rows(3), base_offset=FIRST, **options)  # type: ignore[arg-type]
    assert found(data, FIRST + 1, takes=takes) == next(iter(scan_batches(data)))


def test_positions_outside_of_the_bytes_are_refused() -> None:
    data = batches()
    for position in (-1, len(data) + 1):
        with pytest.raises(ValueError, match="is not between"):
            found(data, FIRST, position=position)
    assert found(data, FIRST, position=len(data)) is None
    assert found(b"", FIRST) is None


def test_the_entries_around_an_offset() -> None:
    rng = random.Random(3)
    for count in (0, 1, 2, 3, 50):
        offsets = sorted(rng.sample(range(1000), count))
        entries = b"".join(struct.pack(">ii", offset, 10 * offset) for offset in offsets)
        positions = [0, *(10 * offset for offset in offsets), -1, -1]
        for wanted in (-5, *range(1001), 1 << 40):
            number = bisect_right(offsets, wanted)
            for given in (entries, bytearray(entries), entries + entries[:7]):
                # More are said to be there than there are.
                for said in (count, count + 5):
                    assert surrounding_positions(given, said, wanted) == tuple(positions[number : number + 3])
            assert surrounding_positions(entries + b"\0" * 80, count, wanted) == tuple(positions[number : number + 3])
