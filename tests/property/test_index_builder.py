"""Whatever batches a segment has, compaction's compiled code indexes them as appends and recovery do."""

from __future__ import annotations

import struct
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records import Record, scan_batches
from odradek.records.builder import build_batch
from odradek.records.kernels.batch_filter import BatchFilter
from odradek.records.kernels.batches import walk_batches
from odradek.records.kernels.offset_map import OffsetMap
from odradek.records.scan import Status
from odradek.storage.formats.offset_index import WritableOffsetIndex
from odradek.storage.formats.time_index import WritableTimeIndex
from odradek.storage.segment.active_segment import ActiveSegment, SegmentLimits, SegmentSetup
from odradek.storage.segment.index_builder import IndexBuilder
from odradek.storage.segment.open_segments import OpenSegments

MAX_OFFSET = (1 << 62) - 1

timestamps = st.none() | st.integers(0, 20) | st.integers(0, 1 << 62)
# In multiples of what a batch takes beside its values: then some intervals end where a batch does.
sizes = st.integers(0, 300) | st.integers(0, 4).map(lambda count: 71 * count)
intervals = st.integers(0, 900) | st.integers(0, 8).map(lambda count: 71 * count)


@st.composite
def segments(draw: st.DrawFn) -> tuple[int, list[bytes]]:
    """Give a base offset and batches."""
    base_offset = draw(st.integers(0, MAX_OFFSET))
    offset, batches = base_offset, []
    for gap, times, size in draw(
        st.lists(st.tuples(st.integers(0, 1 << 20), st.lists(timestamps, min_size=1, max_size=3), sizes), max_size=30)
    ):
        records = [Record(b"k", bytes(size), timestamp=timestamp) for timestamp in times]
        batches.append(bytes(build_batch(records, base_offset=offset + gap)))
        offset += gap + len(records)
    return base_offset, batches


def compiled(base_offset: int, interval_bytes: int) -> BatchFilter:
    return BatchFilter(OffsetMap(bytearray(24 * 4), bytes(16), 2), base_offset, 0, 0, 0, [], interval_bytes)


def expected(base_offset: int, batches: list[bytes], interval_bytes: int) -> tuple[bytes, bytes]:
    """Return the two indexes by the rule as one would say it."""
    offsets, times = b"", b""
    position = indexed = 0
    largest = last = (-1, base_offset)
    for batch in batches:
        (header,) = scan_batches(batch)
        largest = max(largest, (header.max_timestamp, header.last_offset), key=lambda entry: entry[0])
        if position - indexed > interval_bytes:
            indexed = position
            offsets += struct.pack(">ii", header.last_offset - base_offset, position)
            if largest[0] > last[0]:
                last = largest
                times += struct.pack(">qi", last[0], last[1] - base_offset)
        position += len(batch)
    return offsets, times + (struct.pack(">qi", largest[0], largest[1] - base_offset) if largest[0] > last[0] else b"")


@pytest.mark.slow
@given(segments(), intervals)
def test_the_compiled_index_builder_adds_the_entries_of_the_other_one(
    segment: tuple[int, list[bytes]], interval_bytes: int
) -> None:
    base_offset, batches = segment
    offsets = WritableOffsetIndex.in_memory(Path("x.index"), base_offset)
    times = WritableTimeIndex.in_memory(Path("x.timeindex"), base_offset)
    builder = IndexBuilder(offsets, times, interval_bytes)
    builder.add(scan_batches(b"".join(batches)))
    largest, position = builder.largest, builder.position
    builder.finish()
    built = bytes(offsets.entries), bytes(times.entries)
    assert built == expected(base_offset, batches, interval_bytes)

    one_by_one = compiled(base_offset, interval_bytes)
    for batch in batches:
        assert one_by_one.add(batch) == Status.OK
    assert one_by_one.next_position == position
    if largest.timestamp >= 0:
        assert (one_by_one.max_timestamp, one_by_one.offset_of_max_timestamp) == largest
    assert one_by_one.finish() == built

    filtered = compiled(base_offset, interval_bytes)
    data = b"".join(batches)
    assert filtered.run(data, 0, len(data), 1 << 30) == (Status.END, len(data))
    assert bytes(filtered.take()) == data
    assert filtered.finish() == built


@pytest.mark.slow
@given(segments(), intervals, st.data())
def test_a_segment_gets_the_same_entries_however_it_is_appended(
    segment: tuple[int, list[bytes]], interval_bytes: int, data: st.DataObject
) -> None:
    base_offset, batches = segment
    limits = SegmentLimits(
        segment_bytes=1 << 30, segment_ms=1 << 60, segment_index_bytes=1 << 16, index_interval_bytes=interval_bytes
    )
    with TemporaryDirectory() as folder:
        setup = SegmentSetup(directory=Path(folder), opened=OpenSegments(), limits=limits, created_ms=0)
        active = ActiveSegment.create(base_offset, setup)
        left = list(batches)
        while left:
            count = data.draw(st.integers(1, len(left)))
            together, left = b"".join(left[:count]), left[count:]
            # One that an exception ended is written over by the next.
            table = walk_batches(together, 0, len(together), count, True)
            if data.draw(st.booleans()):
                active.write(together, table)
            active.written = active.write(together, table)
            if data.draw(st.booleans()):
                active.park()
        sealed = active.seal()
        indexes = sealed.offset_index.in_use(), sealed.time_index.in_use()
    assert indexes == expected(base_offset, batches, interval_bytes)
