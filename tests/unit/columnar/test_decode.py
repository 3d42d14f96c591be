"""Columns out of compressed batches: where views point, and when memory is used again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from odradek.columnar import decode_slices, select
from odradek.errors import CompressionError
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.records.compression import Codec

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


@pytest.mark.sampled
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
