"""Damage in the last segment of a log that was closed in order: what is behind it was on the disk, and stays."""

from __future__ import annotations

from pathlib import Path

import pytest

import odradek
from odradek import CorruptRecordError, Record
from odradek.inspection import verify
from odradek.records import scan_batches
from odradek.records.header import V2_HEADER_BYTES
from odradek.storage.log.recovery_report import RecoveryKind
from odradek.testing import Broker
from peers.batches import transactional
from peers.command import rows, told

SEGMENT = "00000000000000000000.log"
BATCHES = 34


def make(folder: Path) -> Path:
    with odradek.open(folder) as logs:
        logs.create_topic("events")
        log = logs["events", 0]
        for number in range(BATCHES):
            log.append([Record(b"k", b"v%d" % number)])
    return folder / "events-0" / SEGMENT


def flip(path: Path, number: int) -> int:
    data = bytearray(path.read_bytes())
    position = list(scan_batches(data))[number].position
    data[position + V2_HEADER_BYTES + 3] ^= 1
    path.write_bytes(data)
    return position


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return make(tmp_path / "data")


@pytest.mark.parametrize("number", [0, 10, BATCHES - 2])
def test_nothing_is_cut_and_appends_go_on_behind_it(path: Path, number: int) -> None:
    position = flip(path, number)
    before = path.read_bytes()
    folder = path.parents[1]
    for count in range(1, 3):
        with odradek.open(folder) as logs:
            assert logs["events", 0].log_end_offset == BATCHES + count - 1
            assert path.read_bytes().startswith(before)
            (action,) = [action for action in logs.report.actions if action.kind is RecoveryKind.DAMAGED]
            assert (action.path, action.position, action.loses) == (path, position, False)
            assert not [action for action in logs.report.actions if action.loses]
            assert logs["events", 0].append([Record(b"k", b"new")]) == BATCHES + count - 1
            with pytest.raises(CorruptRecordError):
                list(logs["events", 0].read())
            assert [record.offset for record in logs["events", 0].read(number + 1)] == [
                *range(number + 1, BATCHES + count)
            ]
    assert any(finding.position == position for finding in verify(folder))


def test_a_read_does_not_cut_it_and_the_broker_tells(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    position = flip(path, 10)
    before = path.read_bytes()
    with Broker(path.parents[1]) as broker:
        address = f"kafka://{broker.bootstrap_servers}"
        told("produce", address, "events", "--partition", "0", given=b"x\n")
        offsets = [row["offset"] for row in rows("tail", "-n", "100", address, code=1)]
        assert offsets == [*range(10), *range(11, BATCHES + 1)]
    assert path.read_bytes().startswith(before)
    assert any(f"{path}: position {position}: " in record.getMessage() for record in caplog.records)


def test_what_is_torn_behind_it_is_cut(path: Path) -> None:
    flip(path, 10)
    before = path.read_bytes()
    path.write_bytes(before + before[:40])
    with odradek.open(path.parents[1]) as logs:
        assert logs["events", 0].log_end_offset == BATCHES
        assert path.read_bytes() == before
        assert [action.kind for action in logs.report.actions if action.loses] == [RecoveryKind.TRUNCATED]


def test_a_last_batch_that_is_damaged_is_cut(path: Path) -> None:
    position = flip(path, BATCHES - 1)
    with odradek.open(path.parents[1]) as logs:
        assert logs["events", 0].log_end_offset == BATCHES - 1
        assert path.stat().st_size == position
        assert {action.kind for action in logs.report.actions if action.loses} == {
            RecoveryKind.TRUNCATED,
            RecoveryKind.LOST,
        }


def test_transactions_stay_as_the_snapshot_has_them(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events")
        log = logs["events", 0]
        for number in range(5):
            log.append([Record(b"k", b"v%d" % number)])
        log.append_batches(transactional([Record(b"k", b"open")], 7))
    flip(tmp_path / "data" / "events-0" / SEGMENT, 3)
    with odradek.open(tmp_path / "data") as logs:
        assert logs["events", 0].log_end_offset == 6
        assert logs["events", 0].last_stable_offset == 5
        logs["events", 0].append_batches(transactional([Record(b"k", b"more")], 7, 1))
        assert logs["events", 0].last_stable_offset == 5
