"""A segment goes by its own file, also where another one has taken its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.segment.segment import Access, Segment


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
