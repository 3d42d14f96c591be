"""The segment that is appended to: what its files hold, who sees it when, and when the next one begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.records.kernels.batches import BatchTable, walk_batches
from odradek.records.kernels.segment_end import Written
from odradek.storage.formats.transaction_index import AbortedTransaction
from odradek.storage.segment.active_segment import ActiveSegment, SegmentLimits, SegmentSetup
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.timestamp_lookup import largest_timestamp

BASE = 40
TIME = 1_700_000_000_000
DAY_MS = 86_400_000


def limits(
    segment_bytes: int = 1 << 20, index_bytes: int = 1200, interval: int = 0, *, preallocate: bool = False
) -> SegmentLimits:
    return SegmentLimits(
        segment_bytes=segment_bytes,
        segment_ms=DAY_MS,
        segment_index_bytes=index_bytes,
        index_interval_bytes=interval,
        preallocate=preallocate,
    )


def create(folder: Path, how: SegmentLimits | None = None) -> ActiveSegment:
    return ActiveSegment.create(BASE, setup(folder, how or limits(), TIME))


def setup(folder: Path, how: SegmentLimits, created_ms: int = 0) -> SegmentSetup:
    return SegmentSetup(directory=folder, opened=OpenSegments(), limits=how, created_ms=created_ms)


def batch(offset: int, timestamp: int = TIME, size: int = 10) -> bytes:
    return bytes(build_batch([Record(b"k", bytes(size), timestamp=timestamp)], base_offset=offset))


def table(data: bytes) -> BatchTable:
    return walk_batches(data, 0, len(data), 100, True)


def write(active: ActiveSegment, data: bytes, aborted: tuple[AbortedTransaction, ...] = ()) -> Written:
    return active.write(data, table(data), aborted)


def state(written: Written) -> dict[str, object]:
    return {
        name: getattr(written, name) for name in dir(written) if name[0] != "_" and not callable(getattr(written, name))
    }


def append(active: ActiveSegment, data: bytes) -> None:
    active.written = write(active, data)


def files(folder: Path) -> dict[str, bytes]:
    return {path.suffix: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_nobody_sees_what_is_written_before_it_is_published(tmp_path: Path) -> None:
    active = create(tmp_path)
    append(active, batch(40))
    written = write(active, batch(41, TIME + 1), (AbortedTransaction(7, 40, 41, 40),))
    assert (active.size_bytes, active.end().next_offset, largest_timestamp(active)) == (len(batch(40)), 41, (TIME, 40))
    assert (active.offset_index.count, active.time_index.count) == (0, 0)
    assert not active.transaction_index().transactions
    assert [header.base_offset for header in active.scan()] == [40]
    active.written = written
    assert (active.size_bytes, active.end().next_offset, largest_timestamp(active)) == (
        2 * len(batch(40)),
        42,
        (TIME + 1, 41),
    )
    assert list(active.offset_index.entries()) == [(41, len(batch(40)))]
    assert list(active.time_index.entries()) == [(TIME + 1, 41)]
    assert active.transaction_index().transactions == [AbortedTransaction(7, 40, 41, 40)]
    assert [header.base_offset for header in active.scan()] == [40, 41]
    active.park()


def test_what_is_written_and_not_published_is_written_over(tmp_path: Path) -> None:
    active = create(tmp_path)
    append(active, batch(40))
    write(active, batch(41, TIME + 9, size=500), (AbortedTransaction(7, 40, 41, 40),))
    append(active, batch(41, TIME + 1))
    append(active, batch(42, TIME + 2))
    active.seal()
    (tmp_path / "other").mkdir()
    other = create(tmp_path / "other")
    for data in (batch(40), batch(41, TIME + 1), batch(42, TIME + 2)):
        append(other, data)
    other.seal()
    found = files(tmp_path)
    assert found.pop(".txnindex") == b""
    assert found == files(tmp_path / "other")
    assert found[".log"] == batch(40) + batch(41, TIME + 1) + batch(42, TIME + 2)


@pytest.mark.parametrize("preallocate", [False, True])
def test_an_append_that_was_ended_early_is_completed_or_undone(tmp_path: Path, preallocate: bool) -> None:
    active = create(tmp_path, limits(4096, preallocate=preallocate))
    append(active, batch(40))
    data = batch(41) + batch(42)
    write(active, data)
    settled = active.settle(table(data), ())
    assert settled is not None
    assert (settled.next_offset, settled.position) == (43, len(batch(40) + data))
    assert active.end().next_offset == 41
    # A part of it only: the bytes of the last batch are others.
    with active.path.open("r+b") as file:
        file.seek(len(batch(40) + data) - 1)
        file.write(b"\xff")
    assert active.settle(table(data), ()) is None
    assert active.path.read_bytes() == batch(40) + (bytes(4096 - len(batch(40))) if preallocate else b"")
    active.written = write(active, data)
    active.seal()
    assert active.path.read_bytes() == batch(40) + data


def test_sealing_adds_the_last_time_and_cuts_the_files(tmp_path: Path) -> None:
    active = create(tmp_path, limits(4096, preallocate=True))
    for number in range(3):
        append(active, batch(40 + number, TIME + number // 2))
    assert {suffix: len(data) for suffix, data in files(tmp_path).items()} == {
        ".log": 4096,
        ".index": 1200,
        ".timeindex": 1200,
    }
    sealed = active.seal()
    assert type(sealed) is Segment
    assert (sealed.end().next_offset, largest_timestamp(sealed)) == (43, (TIME + 1, 42))
    assert {suffix: len(data) for suffix, data in files(tmp_path).items()} == {
        ".log": 3 * len(batch(40)),
        ".index": 16,
        ".timeindex": 24,
    }
    # Where the next segment cannot be made, this one goes on.
    append(active, batch(43, TIME + 3))
    assert list(active.time_index.entries()) == [(TIME, 40), (TIME + 1, 42), (TIME + 3, 43)]
    active.park()


def test_a_segment_goes_on_where_it_was_left(tmp_path: Path) -> None:
    active = create(tmp_path, limits(interval=100))
    for number in range(5):
        append(active, batch(40 + number, TIME + number))
    active.park()
    before = active.written
    again = ActiveSegment.resume(Segment(tmp_path, BASE, OpenSegments()), setup(tmp_path, limits()))
    # Kafka, too, counts the interval from the end then, and does not look at the first batch before it has to.
    assert state(again.written) == {**state(before), "bytes_since_index_entry": 0}
    append(again, batch(45))
    assert again.end().next_offset == 46
    again.park()


def test_when_the_next_segment_begins(tmp_path: Path) -> None:
    size = len(batch(40))
    how = limits(2 * size)
    active = create(tmp_path, how)

    def must_roll(timestamp: int = TIME, offset: int = 41, now_ms: int = TIME, more: int = 0) -> bool:
        batches = table(batch(offset, timestamp, size=10 + more))
        # The second answer may come from what is known since the first one.
        first, second = [active.must_roll(batches, how, lambda: now_ms) for _ in range(2)]
        assert first == second
        return first

    # While it is empty its age is nothing, but what is larger than a segment has none.
    assert not must_roll(timestamp=TIME + 2 * DAY_MS, now_ms=TIME + 2 * DAY_MS)
    append(active, batch(40))
    assert not must_roll()
    assert must_roll(more=1)
    # By the times of the records, where they have any.
    assert not must_roll(timestamp=TIME + DAY_MS, now_ms=TIME + 2 * DAY_MS)
    assert must_roll(timestamp=TIME + DAY_MS + 1)
    assert not must_roll(offset=BASE + (1 << 31) - 1)
    assert must_roll(offset=BASE + (1 << 31))
    # Under other settings from the next append on.
    assert not must_roll()
    how = limits(2 * size - 1)
    assert must_roll()
    active.park()


def test_a_full_index_begins_the_next_segment(tmp_path: Path) -> None:
    # Three places of the time index, of which the roll keeps one.
    how = limits(index_bytes=36)
    active = create(tmp_path, how)
    rolls = []
    for number in range(4):
        append(active, batch(40 + number, TIME + number))
        rolls.append(active.must_roll(table(batch(45)), how, lambda: TIME))
    assert rolls == [False, False, True, True]
    assert active.offset_index.count == active.time_index.count == 2
    active.park()
