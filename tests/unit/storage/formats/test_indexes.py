import random
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from odradek.errors import CorruptIndexError, LogError
from odradek.storage.formats.offset_index import OffsetIndex, OffsetPosition, WritableOffsetIndex
from odradek.storage.formats.time_index import NO_TIMESTAMP, TimeIndex, WritableTimeIndex
from odradek.storage.names import parse_segment_file
from peers.kafka_fixture import KafkaFixture

# Of a broker's segments: what the bytes are, and what they say.
OFFSET_INDEX = bytes.fromhex("0000009b00003ff9000000e900007ff2000001370000bfeb")
OFFSET_ENTRIES = [(155, 16377), (233, 32754), (311, 49131)]
TIME_INDEX = bytes.fromhex("000001a1fb3debd60000009b000001a1fb3debda000000e9")
TIME_ENTRIES = [(0x1A1FB3DEBD6, 155), (0x1A1FB3DEBDA, 233)]


def real_files(fixture: KafkaFixture, suffix: str) -> Iterator[tuple[Path, int]]:
    for log_dir in (fixture.log_dir, fixture.log_dir_unclean):
        for path in sorted(log_dir.rglob(f"*{suffix}")):
            parsed = parse_segment_file(path.name)
            assert parsed is not None
            yield path, parsed.base_offset


def test_the_bytes_of_a_broker(tmp_path: Path) -> None:
    (tmp_path / "i").write_bytes(OFFSET_INDEX)
    assert list(OffsetIndex(tmp_path / "i", 0).entries()) == OFFSET_ENTRIES
    (tmp_path / "t").write_bytes(TIME_INDEX)
    assert list(TimeIndex(tmp_path / "t", 0).entries()) == TIME_ENTRIES


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_real_indexes_are_read_and_written_alike(kafka_fixture: KafkaFixture, tmp_path: Path, suffix: str) -> None:
    seen = 0
    for path, base_offset in real_files(kafka_fixture, suffix):
        index: OffsetIndex | TimeIndex
        copy: WritableOffsetIndex | WritableTimeIndex
        data = path.read_bytes()
        if suffix == ".index":
            index, size = OffsetIndex(path, base_offset), 8
            copy = WritableOffsetIndex(tmp_path / f"{seen}", base_offset, len(data))
            append: Callable[..., object] = copy.append
        else:
            index, size = TimeIndex(path, base_offset), 12
            copy = WritableTimeIndex(tmp_path / f"{seen}", base_offset, len(data))
            append = partial(copy.maybe_append, at_roll=True)
        index.check()
        assert data[index.count * size :].strip(b"\0") == b""
        for entry in index.entries():
            append(*entry)
        assert copy.path.read_bytes() == data
        copy.close()
        assert copy.path.read_bytes() == data[: index.count * size]
        seen += 1
    assert seen > 100


@pytest.mark.parametrize("padding", [0, 1, 5, 8, 4096, 1 << 20])
def test_every_lookup_whatever_the_padding(tmp_path: Path, padding: int) -> None:
    seed = random.Random(padding)
    base = 10**12
    offsets = sorted(seed.sample(range(base, base + 5000), 700))
    positions = sorted(seed.sample(range(1, 1 << 30), 700))
    timestamps = sorted(seed.sample(range(1000, 9000), 700))
    entries = list(zip(offsets, positions, timestamps, strict=True))
    (tmp_path / "i").write_bytes(b"".join(struct.pack(">ii", o - base, p) for o, p, _ in entries) + bytes(padding))
    (tmp_path / "t").write_bytes(b"".join(struct.pack(">qi", t, o - base) for o, _, t in entries) + bytes(padding))
    index, times = OffsetIndex(tmp_path / "i", base), TimeIndex(tmp_path / "t", base)
    assert (index.count, times.count) == (700, 700)
    for offset in [base - 1, base, *range(base, base + 5100, 3), base + (1 << 40)]:
        number = bisect_right(offsets, offset)
        assert index.lookup(offset) == ((offsets[number - 1], positions[number - 1]) if number else (base, 0))
    for timestamp in [-1, 0, *range(900, 9100, 3), 1 << 70]:
        number = bisect_right(timestamps, timestamp)
        expected = (timestamps[number - 1], offsets[number - 1]) if number else (NO_TIMESTAMP, base)
        assert times.lookup(timestamp) == expected


def test_cut_at_every_byte(tmp_path: Path) -> None:
    for cut in range(len(OFFSET_INDEX) + 1):
        (tmp_path / "i").write_bytes(OFFSET_INDEX[:cut])
        index = OffsetIndex(tmp_path / "i", 0)
        assert list(index.entries()) == OFFSET_ENTRIES[: cut // 8]
        if cut % 8:
            with pytest.raises(CorruptIndexError, match="not a multiple"):
                index.check()
        else:
            index.check()
    for cut in range(len(TIME_INDEX) + 1):
        (tmp_path / "t").write_bytes(TIME_INDEX[:cut])
        assert list(TimeIndex(tmp_path / "t", 0).entries()) == TIME_ENTRIES[: cut // 12]


def test_a_missing_or_zeroed_index_sends_to_the_start(tmp_path: Path) -> None:
    index, times = OffsetIndex(tmp_path / "no", 7), TimeIndex(tmp_path / "no", 7)
    assert (index.lookup(9), times.lookup(9)) == ((7, 0), (NO_TIMESTAMP, 7))
    index.check()
    (tmp_path / "zeros").write_bytes(bytes(10 << 20))
    index, times = OffsetIndex(tmp_path / "zeros", 7), TimeIndex(tmp_path / "zeros", 7)
    assert (index.count, index.lookup(9), times.lookup(9)) == (0, (7, 0), (NO_TIMESTAMP, 7))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(50))
def test_garbage_never_gives_an_entry_above_the_target(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    (tmp_path / "x").write_bytes(chance.randbytes(chance.randrange(4000)))
    index, times = OffsetIndex(tmp_path / "x", 0), TimeIndex(tmp_path / "x", 0)
    for _ in range(200):
        offset, timestamp = chance.randrange(1 << 31), chance.randrange(1 << 63)
        assert index.lookup(offset).offset <= offset
        assert times.lookup(timestamp).timestamp <= timestamp


def test_check_finds_entries_out_of_order(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(struct.pack(">iiii", 5, 10, 5, 20))
    with pytest.raises(CorruptIndexError, match="entry 1") as caught:
        OffsetIndex(tmp_path / "x", 0).check()
    assert caught.value.position == 8
    (tmp_path / "x").write_bytes(struct.pack(">qiqi", 5, 10, 4, 20))
    with pytest.raises(CorruptIndexError, match="entry 1"):
        TimeIndex(tmp_path / "x", 0).check()


def test_an_offset_index_grows_fills_and_shrinks(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    index = WritableOffsetIndex(path, 100, 35)
    assert path.stat().st_size == 32
    for offset in (105, 110, 120, 130):
        assert not index.is_full
        index.append(offset, offset * 10)
    assert index.is_full
    with pytest.raises(LogError, match="full"):
        index.append(140, 1400)
    index.go_back(2)
    assert (index.count, index.last_offset) == (2, 110)
    with pytest.raises(LogError, match="above the last"):
        index.append(110, 1100)
    with pytest.raises(LogError, match="reach"):
        index.append(100 + (1 << 31), 1100)
    index.go_back(1)
    index.append(107, 1070)
    index.close()
    assert path.read_bytes() == struct.pack(">iiii", 5, 1050, 7, 1070)
    again = WritableOffsetIndex(path, 100, 80)
    assert (path.stat().st_size, again.last_offset) == (80, 107)
    again.go_back(0)
    assert (again.count, again.last_offset) == (0, 100)
    again.abandon()
    # As a crash leaves it: what the entries say is checked by whoever follows them.
    assert len(path.read_bytes()) == 80


def test_a_time_index_keeps_a_place_for_the_roll(tmp_path: Path) -> None:
    path = tmp_path / "x.timeindex"
    index = WritableTimeIndex(path, 100, 36)
    index.maybe_append(1000, 101)
    index.maybe_append(1000, 102)
    assert (index.count, index.is_full) == (1, False)
    index.maybe_append(1001, 103)
    assert index.is_full
    with pytest.raises(LogError, match="full"):
        index.maybe_append(1002, 104)
    index.maybe_append(1002, 104, at_roll=True)
    # Recovery takes the kept place too; the roll that follows adds nothing then.
    index.maybe_append(1002, 104, at_roll=True)
    with pytest.raises(LogError, match="full"):
        index.maybe_append(1003, 105, at_roll=True)
    index.go_back(2)
    for timestamp, offset in ((1000, 105), (1003, 100)):
        with pytest.raises(LogError, match="below the last"):
            index.maybe_append(timestamp, offset, at_roll=True)
    index.close()
    assert path.read_bytes() == struct.pack(">qiqi", 1000, 1, 1001, 3)


def test_a_reader_follows_a_writer(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    writer = WritableOffsetIndex(path, 0, 1 << 20)
    reader = OffsetIndex(path, 0)
    for offset in range(1, 2000):
        writer.append(offset, offset * 100)
        if offset % 500 == 0:
            assert reader.lookup(offset) < (offset, offset * 100)
            reader.refresh()
            assert reader.lookup(offset + 5) == OffsetPosition(offset, offset * 100)
    writer.close()
    assert reader.lookup(1 << 20) == OffsetPosition(1500, 150000)


def test_an_index_that_is_looked_up_at_random_is_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    entries = [(7 * number, 100 * number) for number in range(1, 20_000)]
    path.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    index = OffsetIndex(path, 0, is_own=False)
    rng = random.Random(1)

    def look_up(times: int) -> None:
        for _ in range(times):
            offset = rng.randrange(7 * 20_001)
            number = min(offset // 7, len(entries))
            positions = [100 * after if after < 20_000 else -1 for after in (number + 1, number + 2)]
            assert index.surroundings(offset) == (100 * number, *positions)

    look_up(200)
    # Its writer starts again, and makes it again: what was read of it serves until the reader is refreshed.
    path.write_bytes(b"")
    look_up(200)


def test_a_record_at_time_zero_is_not_padding(tmp_path: Path) -> None:
    index = WritableTimeIndex(tmp_path / "x", 0, 120)
    index.maybe_append(0, 0)
    index.close()
    assert (tmp_path / "x").read_bytes() == bytes(12)
    assert list(TimeIndex(tmp_path / "x", 0).entries()) == [(0, 0)]
