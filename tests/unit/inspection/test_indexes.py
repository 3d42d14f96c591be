from __future__ import annotations

import struct
from pathlib import Path

import odradek
from odradek.inspection import verify
from odradek.inspection.indexes import offset_index_beside
from odradek.records import Record


def test_a_segment_that_is_being_swapped_in_has_an_index_of_its_own(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", config={"index.interval.bytes": "100"})
        for number in range(20):
            logs["t", 0].append([Record(None, b"%050d" % number)])
    path = next((tmp_path / "t-0").glob("*.log"))
    whole = path.with_suffix(".index").read_bytes()
    own = offset_index_beside(path, 0)
    assert own is not None
    count = own.count
    own.close()
    assert count > 2
    swapped = path.with_suffix(".log.swap")
    path.rename(swapped)
    # The index of the segment that is replaced.
    path.with_suffix(".index").write_bytes(whole[:8])
    assert offset_index_beside(swapped, 0) is None
    path.with_suffix(".index.swap").write_bytes(whole[: count * 8])
    found = offset_index_beside(swapped, 0)
    assert found is not None
    assert found.count == count
    found.close()
    # The segment has its final name, and the index has not; the one beside it is that of the segment that was replaced.
    swapped.rename(path)
    path.with_suffix(".index").write_bytes(struct.pack(">4i", 5, 300, 90, 90_000))
    assert list(verify(tmp_path)) == []
    path.with_suffix(".index.swap").unlink()
    assert {finding.kind.name for finding in verify(tmp_path)} == {"INDEX"}
