"""What a folder that was closed in order promises of its logs, held against them when one is opened."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

import odradek
from odradek.errors import CheckpointError, InvalidRecordError, LogError, LogOfflineError
from odradek.records import Record
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import build_batch
from odradek.storage.files import FileSystem
from odradek.storage.formats.checkpoints import LOG_START_OFFSET_CHECKPOINT, write_offset_checkpoint
from odradek.storage.log.recovery_report import RecoveryKind
from odradek.storage.names import CLEAN_SHUTDOWN_MARKER, TopicPartition
from peers.batches import transactional

T0 = TopicPartition("t", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of 50 records in several segments, closed in order."""
    path = tmp_path / "data"
    with odradek.open(path) as logs:
        logs.create_topic(
            "t", config={"internal.segment.bytes": "2000", "index.interval.bytes": "100", "retention.ms": "-1"}
        )
        for number in range(50):
            logs["t", 0].append([Record(b"k", b"%0060d" % number, timestamp=1_700_000_000_000 + number)])
    return path


def test_a_log_that_starts_after_its_end_is_not_opened_and_nothing_is_deleted(folder: Path) -> None:
    write_offset_checkpoint(folder / LOG_START_OFFSET_CHECKPOINT, {T0: 5000})
    before = {path: path.read_bytes() for path in (folder / "t-0").iterdir()}
    with odradek.open(folder) as logs, pytest.raises(CheckpointError, match="starts at 5000, after its end at 50"):
        logs["t", 0]
    assert {path: path.read_bytes() for path in (folder / "t-0").iterdir()} == before
    assert (folder / CLEAN_SHUTDOWN_MARKER).exists()


@pytest.mark.parametrize("gone", ["last segment", "all segments", "folder"])
def test_records_that_are_gone_at_the_end_are_told(folder: Path, gone: str) -> None:
    bases = sorted((folder / "t-0").glob("*.log"))
    end = {"last segment": int(bases[-1].stem), "all segments": 0, "folder": 0}[gone]
    for path in list((folder / "t-0").iterdir()):
        if gone != "last segment" or path.stem == bases[-1].stem:
            path.unlink()
    if gone == "folder":
        (folder / "t-0").rmdir()
    else:
        with odradek.open(folder, mode="r") as logs:
            assert [f"offsets {end} to 49" in str(damage) for damage in logs["t", 0].damage] == [True]
    with odradek.open(folder) as logs:
        assert logs["t", 0].log_end_offset == end
        lost = [action for action in logs.report.actions if action.kind is RecoveryKind.LOST]
        assert [action.reason for action in lost] == [
            f"offsets {end} to 49 were on the disk and are not there any more"
        ]


def test_a_reader_that_has_not_looked_again_takes_nothing_for_lost(folder: Path) -> None:
    with odradek.open(folder, mode="r") as readers:
        assert readers["t", 0].log_end_offset == 50
        with odradek.open(folder) as logs:
            logs["t", 0].append([Record(b"k", b"more")])
        assert readers["t", 0].damage == []


@pytest.mark.parametrize(("suffix", "byte"), [(".index", -8), (".timeindex", -11)])
def test_a_log_whose_index_is_ahead_of_it_is_appended_to(folder: Path, suffix: str, byte: int) -> None:
    """A flipped bit in the last entry: whatever comes next would have to be above it."""
    path = max((folder / "t-0").glob(f"*{suffix}"))
    data = bytearray(path.read_bytes())
    data[byte] ^= 0x20
    path.write_bytes(data)
    with odradek.open(folder) as logs:
        for number in range(50, 60):
            timestamp = 1_700_000_000_000 + number
            assert logs["t", 0].append([Record(b"k", b"%0060d" % number, timestamp=timestamp)]) == number
        assert [(action.kind, action.path) for action in logs.report.actions] == [(RecoveryKind.REBUILT, path)]
        assert [logs["t", 0].offset_for_time(1_700_000_000_000 + number) for number in range(60)] == list(range(60))
    assert (folder / CLEAN_SHUTDOWN_MARKER).exists()


class FailingRename(FileSystem):
    """A disk that fails once a file is to be marked as deleted."""

    def __init__(self) -> None:
        self.fails = False

    def rename(self, source: Path, target: Path) -> None:
        if self.fails and target.name.endswith(".deleted"):
            self.fails = False
            raise OSError(errno.EIO, "Input/output error", str(source))
        super().rename(source, target)


def test_records_that_were_deleted_stay_deleted_where_the_disk_fails_as_their_files_go(folder: Path) -> None:
    files = FailingRename()
    logs = odradek.open(folder, files=files)
    assert logs["t", 0].delete_records(40) == 40
    files.fails = True
    with pytest.raises(LogOfflineError):
        logs.maintain()
    logs.close()
    assert not (folder / CLEAN_SHUTDOWN_MARKER).exists()
    with odradek.open(folder) as logs:
        assert [record.offset for record in logs["t", 0].read()] == list(range(40, 50))


@pytest.mark.parametrize("offset", [1.5, 2.0, "3"])
def test_a_log_start_offset_is_an_integer(folder: Path, offset: object) -> None:
    with odradek.open(folder) as logs, pytest.raises(TypeError):
        logs["t", 0].delete_records(offset)  # type: ignore[arg-type]


def test_a_log_that_was_let_go_without_closing_it_leaves_no_clean_folder(folder: Path) -> None:
    with odradek.open(folder) as logs:
        logs["t", 0].append([Record(b"k", b"v")])
        logs["t", 0].discard()
    assert not (folder / CLEAN_SHUTDOWN_MARKER).exists()


@pytest.mark.parametrize(
    ("offsets", "reason"),
    [([50, 50 + (1 << 31)], "do not fit one segment"), ([(1 << 63) - 1], "there is no offset after")],
)
def test_a_replica_takes_no_offsets_that_cannot_be_kept(folder: Path, offsets: list[int], reason: str) -> None:
    data = b"".join(build_batch([Record(b"k", b"v")], base_offset=offset) for offset in offsets)
    with odradek.open(folder) as logs:
        with pytest.raises(InvalidRecordError, match=reason):
            logs["t", 0].append_batches(data, origin=AppendOrigin.REPLICATION)
        assert logs["t", 0].append([Record(b"k", b"v")]) == 50


def test_offsets_do_not_begin_again_after_the_last_one(folder: Path) -> None:
    last = build_batch([Record(b"k", b"v")], base_offset=(1 << 63) - 4)
    with odradek.open(folder) as logs:
        log = logs["t", 0]
        log.append_batches(last, origin=AppendOrigin.REPLICATION)
        for append in (log.append, lambda records: log.append_batches(bytearray(build_batch(records)))):
            with pytest.raises(InvalidRecordError, match="too few offsets"):
                append([Record(b"k", b"v", timestamp=1_700_000_000_000)] * 5)
        assert log.log_end_offset == (1 << 63) - 3


@pytest.mark.parametrize("count", [0, -3, 1 << 63])
def test_producer_ids_are_given_once(folder: Path, count: int) -> None:
    with odradek.open(folder) as logs:
        assert logs.take_producer_ids(5) == range(5)
        with pytest.raises(LogError, match="cannot be allocated"):
            logs.take_producer_ids(count)
        assert logs.take_producer_ids(3) == range(5, 8)


def test_reading_without_a_start_goes_on_where_the_head_was_deleted(folder: Path) -> None:
    with odradek.open(folder) as logs:
        log = logs["t", 0]
        records = log.read()
        assert next(records).offset == 0
        log.delete_records(40)
        log.upkeep.delete_old_segments()
        following = [record.offset for record in records]
        assert following[-10:] == list(range(40, 50))


def test_settings_that_change_meanwhile_do_not_reach_an_append(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", config={"segment.bytes": "1048576", "max.message.bytes": "60000"})
        log = logs["t", 0]
        written: list[Path] = []
        original = type(log._local).append

        def append(*args: object) -> bool:
            rolled = original(*args)  # type: ignore[arg-type]
            if not written:
                written.append(log.path)
                with pytest.raises(LogError, match="in the middle of"):
                    log.config = log.config
            return rolled

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(log._local), "append", append)
            log.append([Record(b"k", b"x" * 50_000) for _ in range(40)])
        assert log.log_end_offset == 40


@pytest.mark.sampled(4)
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("harm", ["emptied", "cut", "version", "producer", "removed"])
def test_a_transaction_index_that_is_wrong_is_told_and_written_again(tmp_path: Path, harm: str, sealed: bool) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        log = logs["t", 0]
        for producer_id in (7, 8):
            log.append_batches(transactional([Record(b"k", b"aborted")], producer_id))
            log.end_transaction(producer_id, 0, commit=False)
        log.append([Record(b"k", b"kept")])
        if sealed:
            log.roll()
            log.append([Record(b"k", b"kept")])
    (path,) = (tmp_path / "t-0").glob("*.txnindex")
    whole = path.read_bytes()
    data = bytearray(whole)
    data[0 if harm == "version" else 9] ^= 0x80
    if harm == "removed":
        path.unlink()
    else:
        path.write_bytes({"emptied": b"", "cut": whole[:34]}.get(harm, bytes(data)))
    for mode in ("r", "a"):
        with odradek.open(tmp_path, mode=mode) as logs:
            values = [record.value for record in logs["t", 0].read(isolation="read_committed")]
            assert values == [b"kept"] * (1 + sealed), mode
            report = getattr(logs["t", 0], "report", None)
    assert report is not None
    assert [(action.kind, action.path) for action in report.actions] == [(RecoveryKind.REBUILT, path)]
    assert path.read_bytes() == whole
