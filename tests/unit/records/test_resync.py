"""Finding the next batch after damage: what a model in a few lines of Python finds, however the bytes look."""

from __future__ import annotations

import random
import time

import pytest

from odradek.records import Record, scan_batches
from odradek.records.builder import build_batch
from odradek.records.resync import MAX_OFFSET_STEP, find_batch
from odradek.testing.message_builder import build_message_set


def model(data: bytes, position: int = 0, end: int | None = None, *, minimum_offset: int = 0) -> int | None:
    end = len(data) if end is None else end
    budget = 8 * (end - position) + (1 << 20)
    for start in range(position, end - 16):
        offset = int.from_bytes(data[start : start + 8], "big", signed=True)
        size = int.from_bytes(data[start + 8 : start + 12], "big", signed=True)
        if size < 14 or data[start + 16] > 2 or not minimum_offset <= offset <= minimum_offset + MAX_OFFSET_STEP:
            continue
        if start + 12 + size > end:
            continue
        if next(iter(scan_batches(data[start : start + 12 + size])), None) is not None:
            return start
        budget -= 12 + size
        if budget < 0:
            return None
    return None


def batch(base_offset: int, source: random.Random) -> bytes:
    values = [source.randbytes(source.randrange(40)) for _ in range(source.randrange(1, 4))]
    records = [Record(None, value, timestamp=source.randrange(1 << 40)) for value in values]
    if source.random() < 0.3:
        return build_message_set(records, magic=source.randrange(2), base_offset=base_offset)
    return build_batch(records, base_offset=base_offset)


def filler(source: random.Random) -> bytes:
    size = source.choice((0, 1, 7, 8, 9, 16, 17, 40, 200))
    match source.randrange(5):
        case 0:
            return bytes(size)
        case 1:
            return source.randbytes(size)
        case 2:
            return bytes(source.randrange(3) for _ in range(size))
        case 3:
            # What passes for a header: offset 5, a size, a magic.
            return (bytes(7) + b"\5" + source.randrange(60).to_bytes(4, "big") + bytes(5))[:17] * (size // 17)
        case _:
            return b"a line of text\n" * (size // 15)


def damaged(data: bytes, source: random.Random) -> bytes:
    broken = bytearray(data)
    for _ in range(source.randrange(3)):
        broken[source.randrange(len(broken))] ^= 1 << source.randrange(8)
    return bytes(broken)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(8))
def test_what_is_found_is_what_the_model_finds(seed: int) -> None:
    source = random.Random(seed)
    found = 0
    for _ in range(100):
        parts = []
        for _ in range(source.randrange(1, 5)):
            parts += [filler(source), damaged(batch(source.choice((0, 0, 5, 1000, 1 << 33)), source), source)]
        data = b"".join([*parts, filler(source)])
        position = source.randrange(len(data) // 3 + 1)
        end = source.choice((None, None, source.randrange(position, len(data) + 1)))
        far = (1 << 33) - MAX_OFFSET_STEP
        minimum = source.choice((0, 0, 0, 0, 0, 5, 6, 1001, far, far - 1))
        expected = model(data, position, end, minimum_offset=minimum)
        assert find_batch(data, position, end, minimum_offset=minimum) == expected
        found += expected is not None
    assert found > 15  # the others have no batch from there on


@pytest.mark.parametrize("before", [*range(20), 100, 4096])
def test_a_batch_is_found_after_any_number_of_zeros(before: int) -> None:
    good = build_batch([Record(None, b"found")], base_offset=0)
    assert find_batch(bytes(before) + good) == before
    assert find_batch(bytes(before) + good[:-1]) is None
    assert find_batch(bytes(before) + good, end=before + len(good) - 1) is None


@pytest.mark.parametrize("size", range(18))
def test_too_few_bytes_hold_none(size: int) -> None:
    assert find_batch(bytes(size)) is None
    assert find_batch(b"\1" * size, size) is None


def test_an_offset_above_all_offsets_is_that_of_no_batch() -> None:
    good = build_batch([Record(None, b"value")], base_offset=(1 << 63) - 2)
    assert find_batch(b"damage" + good, minimum_offset=(1 << 63) - 2) == 6
    assert find_batch(b"damage" + good, minimum_offset=(1 << 63) - 1) is None
    assert find_batch(b"damage" + good, minimum_offset=1 << 63) is None


def test_what_looks_like_batches_everywhere_is_given_up_as_the_model_does() -> None:
    """Each header claims all that follows, so that summing up each of them would be quadratic."""
    count = 600
    headers = b"".join(
        bytes(8) + (17 * (count - number) - 12).to_bytes(4, "big") + bytes(4) + b"\2" for number in range(count)
    )
    data = headers + build_batch([Record(None, b"never found")])
    assert find_batch(data) == model(data)
    assert find_batch(headers[-17 * 100 :] + data[len(headers) :]) == 1700


@pytest.mark.slow
def test_zeros_and_random_bytes_are_passed_over_at_the_speed_of_memory() -> None:
    """It takes a fraction of the processor's time that a loop of Python takes over the same bytes."""
    for data in (bytes(1 << 23), random.Random(1).randbytes(1 << 23), b"some text\n" * (1 << 20)):
        started_ns = time.thread_time_ns()
        assert find_batch(data) is None
        found_ns = time.thread_time_ns()
        for _ in data:
            pass
        assert found_ns - started_ns < (time.thread_time_ns() - found_ns) / 2
