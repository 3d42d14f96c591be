"""A batch of a producer outside of its open transaction: no broker starts on it, and that is told and mended."""

from __future__ import annotations

from pathlib import Path

import pytest

import odradek
from odradek import LogError, Record
from odradek.inspection import salvage, verify
from odradek.records import scan_batches
from odradek.records.builder import build_batch, build_control_batch
from odradek.records.control import ControlRecordType, EndTransactionMarker
from peers.batches import transactional
from peers.files import crashed

SEGMENT = "00000000000000000000.log"


def plain(offset: int, sequence: int, value: bytes) -> bytes:
    records = [Record(b"k", value)]
    return build_batch(records, base_offset=offset, producer_id=7, producer_epoch=0, base_sequence=sequence)


def test_it_is_named_and_salvaged_as_of_no_producer(tmp_path: Path) -> None:
    first = transactional([Record(b"k", b"a")], 7)
    marker = build_control_batch(
        EndTransactionMarker(ControlRecordType.COMMIT, 0), producer_id=7, producer_epoch=0, timestamp=1, base_offset=2
    )
    folder = crashed(tmp_path / "data", {"t": {0: first + plain(1, 1, b"b") + marker + plain(3, 1, b"c")}})
    (finding,) = verify(folder)
    assert finding.position == len(first)
    assert "producer 7 outside of its transaction, which is open since 0: no broker starts on it" in finding.reason
    with pytest.raises(LogError, match="no broker recovers this log: `odradek salvage` makes one"):
        odradek.open(folder)
    report = salvage(folder, tmp_path / "out")
    ((mended,),) = [log.mended for log in report.logs if log.mended]
    assert mended.position == len(first)
    assert not report.losses
    headers = list(scan_batches((tmp_path / "out" / "t-0" / SEGMENT).read_bytes()))
    assert [header.producer_id for header in headers] == [7, -1, 7, 7]
    assert list(verify(tmp_path / "out", decode=True)) == []
    with odradek.open(tmp_path / "out") as logs:
        records = logs["t", 0].read(isolation="read_committed")
        assert [(record.offset, record.value) for record in records] == [(0, b"a"), (1, b"b"), (3, b"c")]
