"""Look-ups, ends and slices of one segment, whatever its indexes say; and it goes by its own file."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.storage.segment.offset_lookup import locate_batch
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.segment.segment import Access, Segment
from odradek.storage.segment.timestamp_lookup import find_timestamp, largest_timestamp


@pytest.mark.parametrize("access", list(Access))
def test_a_file_that_took_the_name_of_another_is_not_read_for_it(tmp_path: Path, access: Access) -> None:
    """What compaction puts in its place may hold the records of the next segments as well."""
    path = tmp_path / "00000000000000000000.log"
    batch = build_batch([Record(b"k", b"v")])
    path.write_bytes(batch)
    segment = Segment(tmp_path, 0, OpenSegments(), access=access).identify()
    assert [header.base_offset for header in segment.scan()] == [0]
    held = segment.contents
    segment.close()
    (tmp_path / "swapped").write_bytes(batch + build_batch([Record(b"k", b"v")], base_offset=1))
    (tmp_path / "swapped").rename(path)
    with pytest.raises(FileNotFoundError):
        list(segment.scan())
    assert held.size == len(batch)
    segment.refresh()
    assert [header.base_offset for header in segment.scan()] == [0, 1]


TIME = 1_700_000_000_000
SIZE = len(build_batch([Record(b"k", b"v", timestamp=TIME)]))


def batch(offset: int, timestamp: int = TIME, count: int = 1) -> bytes:
    return bytes(build_batch([Record(b"k", b"v", timestamp=timestamp)] * count, base_offset=offset))


def segment(folder: Path, *batches: bytes, access: Access = Access.OWN) -> Segment:
    """Return a segment with base offset 10, without indexes."""
    made = Segment(folder, 10, OpenSegments(), access=access)
    made.path.write_bytes(b"".join(batches))
    return made


def write_index(made: Segment, suffix: str, *entries: tuple[int, int]) -> None:
    form = ">qi" if suffix == ".timeindex" else ">ii"
    made.path.with_suffix(suffix).write_bytes(b"".join(struct.pack(form, *entry) for entry in entries))


def test_an_offset_is_looked_up_over_gaps(tmp_path: Path) -> None:
    made = segment(tmp_path, batch(10), batch(20), batch(30))
    found = {offset: locate_batch(made, offset)[0] for offset in (0, 10, 11, 20, 30, 31)}
    assert {offset: header and header.base_offset for offset, header in found.items()} == {
        0: 10,
        10: 10,
        11: 20,
        20: 20,
        30: 30,
        31: None,
    }
    assert [locate_batch(made, offset)[1] for offset in (0, 11, 31)] == [0, SIZE, 3 * SIZE]


@pytest.mark.parametrize(
    "entry",
    [(10, SIZE), (10, SIZE + 1), (10, 3 * SIZE), (0, 2 * SIZE), (10, -1)],
    ids=["right", "no batch there", "after the end", "a later batch", "before the start"],
)
def test_an_index_is_a_hint(tmp_path: Path, entry: tuple[int, int]) -> None:
    made = segment(tmp_path, batch(10, TIME), batch(20, TIME + 2), batch(30, TIME + 1))
    write_index(made, ".index", entry)
    write_index(made, ".timeindex", (TIME + 1, 20))
    assert [locate_batch(made, offset)[1] for offset in (10, 11, 20, 21, 31)] == [0, SIZE, SIZE, 2 * SIZE, 3 * SIZE]
    assert made.end() == (3 * SIZE, 31, None)
    # The greatest timestamp is not that of the index's last entry, and stands in the middle.
    assert largest_timestamp(made) == (TIME + 2, 20)
    assert find_timestamp(made, TIME + 1, 0) == (TIME + 2, 20, -1)
    assert find_timestamp(made, TIME + 1, 21) == (TIME + 1, 30, -1)
    assert find_timestamp(made, TIME + 3, 0) is None


@pytest.mark.parametrize("access", list(Access))
def test_the_end_is_after_the_last_whole_batch(tmp_path: Path, access: Access) -> None:
    made = segment(tmp_path, batch(10), batch(20), batch(30)[:-1], access=access)
    end = made.end()
    assert (end.position, end.next_offset) == (2 * SIZE, 21)
    assert end.damage is not None
    assert end.damage.position == 2 * SIZE
    assert segment(tmp_path, access=access).end() == (0, 10, None)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("access", list(Access))
@pytest.mark.parametrize("is_indexed", [False, True])
@pytest.mark.parametrize("slice_bytes", [1, SIZE, 2 * SIZE, 2 * SIZE + 1, 100 * SIZE])
def test_slices_are_whole_batches(tmp_path: Path, access: Access, is_indexed: bool, slice_bytes: int) -> None:
    made = segment(tmp_path, *(batch(10 + number) for number in range(7)), access=access)
    if is_indexed:
        write_index(made, ".index", *((number, number * SIZE) for number in (2, 3, 6)))
    slices = list(made.slices(SIZE, 7 * SIZE, slice_bytes, next_offset=17))
    assert [part.position for part in slices] == [SIZE, *(part.end_position for part in slices[:-1])]
    assert slices[-1].end_position == 7 * SIZE
    assert all(part.size_bytes % SIZE == 0 for part in slices)
    assert all(part.size_bytes <= max(slice_bytes, SIZE) for part in slices)
    # The last one tells where the next segment begins, whatever its size.
    assert [part.next_offset for part in slices] == [None] * (len(slices) - 1) + [17]
    read = b"".join(part.data[part.position - part.origin : part.end_position - part.origin] for part in slices)
    assert read == made.path.read_bytes()[SIZE:]
