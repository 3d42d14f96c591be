"""Columns out of compressed and of large batches: where views point, and when memory is used again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from odradek.columnar import decode, decode_slices, select
from odradek.errors import CompressionError, FormatError
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.records.compression import Codec, compress
from odradek.records.kernels.encode import seal
from odradek.testing.message_builder import build_message_set
from peers.batches import transactional

CODECS = [codec for codec in Codec if codec != Codec.NONE]
COLUMNS = ["offset", "timestamp", "key", "value", "headers"]


@dataclass(frozen=True)
class Part:
    data: bytes
    path: Path = Path("t-0/0.log")
    position: int = 0
    origin: int = 0
    next_offset: int | None = None

    @property
    def end_position(self) -> int:
        return len(self.data)


def records(count: int, value_bytes: int, seed: int) -> list[Record]:
    source = random.Random(seed)
    return [
        Record(
            None if source.random() < 0.1 else b"key-%d" % source.randrange(10),
            None if source.random() < 0.1 else source.randbytes(value_bytes // 2) + b"-" * (value_bytes // 2),
            [("name", b"x" * source.randrange(20))] if source.random() < 0.3 else (),
            source.randrange(1 << 41),
        )
        for _ in range(count)
    ]


def segment(codec: Codec, batches: int, count: int, value_bytes: int) -> bytes:
    return b"".join(
        build_batch(records(count, value_bytes, number), base_offset=number * count, codec=codec)
        for number in range(batches)
    )


def decoded(data: bytes, *, views: bool, **options: Any) -> Iterator[pa.RecordBatch]:
    return decode_slices([Part(data)], select(COLUMNS, views=views), topic="t", partition=0, **options)


def rows(batches: list[pa.RecordBatch]) -> list[object]:
    for batch in batches:
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


# Batches that share a block, that have one of their own, and that fill several between two record batches.
@pytest.mark.sampled
@pytest.mark.parametrize(("batches", "count", "value_bytes"), [(300, 3, 40), (3, 200, 6000), (40, 100, 3000)])
@pytest.mark.parametrize("codec", CODECS)
def test_views_say_what_copies_say(codec: Codec, batches: int, count: int, value_bytes: int) -> None:
    data = segment(codec, batches, count, value_bytes)
    plain = rows(list(decoded(segment(Codec.NONE, batches, count, value_bytes), views=False)))
    assert len(plain) == batches * count
    assert rows(list(decoded(data, views=False))) == plain
    assert rows(list(decoded(data, views=True))) == plain


@pytest.mark.slow
@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_what_is_held_is_not_used_again(codec: Codec, views: bool) -> None:
    data = segment(codec, 40, 100, 1000)
    before = list(decoded(data, views=views, rows=500))
    wanted = rows(before)
    del before[::2]  # their memory is free to be filled by the next
    kept = rows(before)
    others = list(decoded(segment(codec, 50, 90, 900), views=views, rows=500))
    assert rows(before) == kept
    assert rows(list(decoded(data, views=views, rows=500))) == wanted
    assert sum(batch.num_rows for batch in others) == 4500


@pytest.mark.parametrize("codec", CODECS)
def test_of_a_batch_of_which_little_is_wanted_little_is_held(codec: Codec) -> None:
    data = segment(codec, 1, 1000, 2000)
    (batch,) = decoded(data, views=True, start_offset=500, end_offset=503)
    assert batch.column("offset").to_pylist() == [500, 501, 502]
    # Behind the mapped segment.
    assert sum(buffer.size for buffer in batch.column("value").buffers()[3:] if buffer) < 10_000


@pytest.mark.parametrize("views", [False, True])
def test_a_batch_that_its_codec_refuses_follows_the_rows_before_it(views: bool) -> None:
    good = segment(Codec.ZSTD, 2, 10, 100)
    broken = bytearray(build_batch(records(10, 100, 7), base_offset=20, codec=Codec.ZSTD))
    broken[61] ^= 0xFF
    found = decode_slices(
        [Part(good + bytes(broken))],
        select(COLUMNS, views=views),
        topic="t",
        partition=0,
        check_crc=False,
    )
    assert next(found).column("offset").to_pylist() == list(range(20))
    with pytest.raises(CompressionError) as caught:
        next(found)
    assert (caught.value.path, caught.value.position) == ("t-0/0.log", len(good))


@pytest.mark.parametrize("codec", CODECS)
def test_views_hold_no_more_than_was_decompressed(codec: Codec) -> None:
    (batch,) = decoded(segment(codec, 20, 5, 100), views=True)
    buffers = batch.column("value").buffers()[4:]
    assert 20 * 5 * 100 * 0.5 < sum(buffer.size for buffer in buffers) < 20 * 5 * 200


# -- parts of large batches ------------------------------------------------------------------------------------------


def outcome(data: bytes, **options: Any) -> tuple[list[object], str, list[int]]:
    """Return the rows of a segment, the error that ended it, and how many rows came at a time."""
    found: list[pa.RecordBatch] = []
    error = ""
    try:
        found.extend(decode_slices([Part(data)], topic="t", partition=0, **options))
    except FormatError as refused:
        error = f"{refused!r} {vars(refused)}"
    return rows(found), error, [batch.num_rows for batch in found]


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Say how many rows and bytes make a batch large."""

    def of(rows: int, size_bytes: int) -> None:
        monkeypatch.setattr(decode, "PART_ROWS", rows)
        monkeypatch.setattr(decode, "PART_BYTES", size_bytes)

    return of


MANY = 1 << 30


@pytest.mark.slow
@pytest.mark.parametrize("views", [False, True])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_parts_of_a_batch_are_the_batch(codec: Codec, views: bool, parts: Callable[[int, int], None]) -> None:
    data = segment(codec, 3, 17, 30)
    schema = select(COLUMNS, views=views)
    whole, _, together = outcome(data, schema=schema)
    assert together == [51]
    for most in range(1, 18):
        for limits in ((most, MANY), (MANY, most * 20)):
            parts(*limits)
            for wanted in (1, 4, 100):
                found, error, counts = outcome(data, schema=schema, rows=wanted)
                assert (found, error) == (whole, "")
                assert max(counts) <= wanted


def test_no_more_than_a_part_is_decoded_at_a_time(parts: Callable[[int, int], None]) -> None:
    data = segment(Codec.ZSTD, 1, 100, 10)
    parts(10, MANY)
    taken = decode_slices([Part(data)], select(["offset"]), topic="t", partition=0, rows=10)
    for batch in taken:
        (_, offsets) = batch.column("offset").buffers()
        assert (batch.num_rows, offsets.size) == (10, 80)
    parts(MANY, 300)
    taken = decode_slices([Part(data)], select(["value"]), topic="t", partition=0, rows=1)
    assert all(batch.column("value").buffers()[2].size <= 200 for batch in taken)


@pytest.mark.parametrize("columns", [["offset"], COLUMNS])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_filter_leaves_the_same_of_parts(codec: Codec, columns: list[str], parts: Callable[[int, int], None]) -> None:
    source = random.Random(1)
    data = b"".join(
        [
            transactional(records(9, 20, 1), 1, base_offset=3, codec=codec),
            transactional(records(9, 20, 2), 2, base_offset=12, codec=codec),
            build_batch(records(8, 4, 3), base_offset=21, codec=codec, is_control=True),
            build_batch(records(9, 20, 4), base_offset=29, codec=codec),
        ]
    )
    times = sorted(record.timestamp or 0 for seed in (1, 2, 4) for record in records(9, 20, seed))
    for _ in range(40):
        start, end = sorted(source.choices(range(40), k=2))
        since, until = sorted(source.choices(times, k=2))
        options: dict[str, Any] = {
            "schema": select(columns),
            "start_offset": start,
            "end_offset": end,
            "aborted": source.choice(((), [(1, 3, 21)], [(2, 5, 21)])),
            "include_control": source.random() < 0.5,
            "rows": source.choice((2, 100)),
        }
        if source.random() < 0.5:
            options |= {"start_timestamp": since, "end_timestamp": until}
        parts(MANY, MANY)
        whole = outcome(data, **options)[:2]
        parts(*source.choice(((source.randrange(1, 9), MANY), (MANY, source.randrange(1, 200)))))
        assert outcome(data, **options)[:2] == whole


@pytest.mark.slow
@pytest.mark.parametrize("columns", [["offset"], COLUMNS])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_of_a_batch_that_is_damaged_in_a_part_there_is_no_row(
    codec: Codec, columns: list[str], parts: Callable[[int, int], None]
) -> None:
    good = build_batch(records(5, 9, 1), codec=codec)
    header = build_batch(records(12, 9, 2), base_offset=5, codec=codec)[:61]
    content = build_batch(records(12, 9, 2), base_offset=5)[61:]
    schema = select(columns)
    source = random.Random(2)
    refused = 0
    for position in source.sample(range(len(content)), 150):
        damaged = content[:position] + bytes([content[position] ^ 1 << source.randrange(8)]) + content[position + 1 :]
        if not source.randrange(9):
            damaged = source.choice((content[:position], content + b"\0"))
        data = good + seal(header, compress(codec, damaged) if codec else damaged)
        parts(MANY, MANY)
        whole = outcome(data, schema=schema)[:2]
        parts(*source.choice(((source.randrange(1, 12), MANY), (MANY, source.randrange(1, 100)))))
        assert outcome(data, schema=schema, rows=source.choice((3, 100)))[:2] == whole
        refused += len(whole[0]) == 5
    assert refused > 20


def test_so_many_rows_come_at_a_time_that_the_longest_name_of_a_topic_fits_a_column() -> None:
    batch = build_batch([Record(None, None)] * 60_000, codec=Codec.ZSTD)
    data = b"".join(number.to_bytes(8, "big") + batch[8:] for number in range(0, 20 * 60_000, 60_000))
    found = decode_slices([Part(data)], select(["offset"]), topic="t", partition=0, rows=MANY)
    assert [rows.num_rows for rows in found] == [18 * 60_000, 2 * 60_000]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_gives_no_more_rows_than_are_wanted(magic: int, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [Record(b"k%d" % number, b"v" * number, timestamp=number) for number in range(20)]
    data = bytes(build_message_set(given, magic=magic, codec=Codec.GZIP, base_offset=7))
    schema = select(COLUMNS)
    whole, error, _ = outcome(data, schema=schema)
    assert (len(whole), error) == (20, "")
    for wanted in range(1, 21):
        assert outcome(data, schema=schema, rows=wanted, start_offset=9)[0] == whole[2:]
    (first, *_) = decode_slices([Part(data)], schema, topic="t", partition=0, rows=3)
    assert first.column("offset").buffers()[1].size == 24
