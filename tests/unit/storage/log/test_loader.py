"""A partition's folder is put in order: what is left over goes, what is missing is made, the torn tail is cut."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from odradek.errors import CheckpointError
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.storage.files import FILES
from odradek.storage.log.loader import LoadedLog, LogLoader
from odradek.storage.log.log_options import LogOptions
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.log.recovery_report import RecoveryKind
from odradek.storage.names import LOG_SUFFIX, SNAPSHOT_SUFFIX, segment_file_name
from odradek.storage.topic_config import TopicConfig
from peers.kafka_fixture import KafkaFixture

TIME = 1_700_000_000_000


def batch(offset: int, count: int = 2, epoch: int = 0) -> bytes:
    records = [Record(b"k", b"%d" % number, timestamp=TIME + offset) for number in range(count)]
    return bytes(build_batch(records, base_offset=offset, partition_leader_epoch=epoch))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A partition with two segments: 0 to 5, 6 to 9. They have no indexes yet."""
    path = tmp_path / "t-0"
    path.mkdir()
    (path / segment_file_name(0, LOG_SUFFIX)).write_bytes(batch(0) + batch(2) + batch(4))
    (path / segment_file_name(6, LOG_SUFFIX)).write_bytes(batch(6) + batch(8))
    return path


def load(folder: Path, *, is_clean: bool = False, recovery_point: int = 0, log_start_offset: int = 0) -> LoadedLog:
    options = LogOptions(
        config=TopicConfig(index_interval_bytes=0),
        is_clean=is_clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )
    return LogLoader(folder, options, FILES).load()


def done(loaded: LoadedLog) -> list[tuple[RecoveryKind, str]]:
    return [(action.kind, action.path.name) for action in loaded.report.actions]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_folder_is_an_empty_log(tmp_path: Path) -> None:
    loaded = load(tmp_path, log_start_offset=7)
    assert (loaded.segments, loaded.log_start_offset, loaded.log_end_offset, loaded.recovery_point) == ([], 7, 7, 0)
    assert not loaded.report


@pytest.mark.parametrize("is_clean", [False, True])
def test_missing_indexes_are_made_and_the_next_time_nothing_is_done(folder: Path, is_clean: bool) -> None:
    loaded = load(folder, is_clean=is_clean, recovery_point=10)
    assert {kind for kind, _ in done(loaded)} == {RecoveryKind.REBUILT}
    assert (loaded.log_start_offset, loaded.log_end_offset, loaded.recovery_point) == (0, 10, 10)
    assert [segment.base_offset for segment in loaded.segments] == [0, 6]
    size = len(batch(0))
    assert list(loaded.segments[0].offset_index.entries()) == [(3, size), (5, 2 * size)]
    assert list(loaded.segments[0].time_index.entries()) == [(TIME + 2, 3), (TIME + 4, 5)]
    assert loaded.segments[0].end().damage is None
    again = load(folder, is_clean=is_clean, recovery_point=10)
    assert not again.report
    # Of a log that was closed in order, none is read whole; else the last one is.
    assert again.report.segments_scanned == (0 if is_clean else 1)


def test_a_torn_tail_is_cut_and_what_follows_it_removed(folder: Path) -> None:
    first = folder / segment_file_name(0, LOG_SUFFIX)
    load(folder)
    with first.open("r+b") as file:
        file.truncate(2 * len(batch(0)) + 30)
    # Below the recovery point nobody looks.
    assert load(folder, recovery_point=6).log_end_offset == 10
    loaded = load(folder)
    assert first.read_bytes() == batch(0) + batch(2)
    assert loaded.log_end_offset == 4
    (cut,) = [action for action in loaded.report.actions if action.kind is RecoveryKind.TRUNCATED]
    assert (cut.path, cut.position, cut.size_bytes) == (first, 2 * len(batch(0)), 30)
    assert (RecoveryKind.REMOVED, segment_file_name(6, LOG_SUFFIX)) in done(loaded)
    assert not [name for name in names(folder) if name.startswith(segment_file_name(6, ""))]


def test_leftovers_go(folder: Path) -> None:
    load(folder)
    before = names(folder)
    leftovers = [
        "00000000000000000003.index",
        "00000000000000000006.log.cleaned",
        "00000000000000000006.log.deleted",
        "00000000000000000006.log.swap",
    ]
    for name in leftovers:
        (folder / name).write_bytes(b"")
    (folder / "leader-epoch-checkpoint.tmp").write_bytes(b"1")
    loaded = load(folder)
    assert sorted(done(loaded)) == sorted((RecoveryKind.REMOVED, name) for name in leftovers)
    assert names(folder) == before


def test_epochs_and_snapshots_are_made_of_the_batches(folder: Path) -> None:
    with (folder / segment_file_name(6, LOG_SUFFIX)).open("ab") as file:
        file.write(batch(10, epoch=3))
    loaded = load(folder)
    assert [tuple(entry) for entry in loaded.epochs.entries] == [(0, 0), (3, 10)]
    assert [name for name in names(folder) if name.endswith(SNAPSHOT_SUFFIX)] == [
        segment_file_name(offset, SNAPSHOT_SUFFIX) for offset in (6, 12)
    ]
    assert loaded.producers.map_end_offset == 12


def test_a_start_after_the_end(folder: Path) -> None:
    load(folder)
    # A log that was closed in order has no such checkpoint; after a crash its records had been deleted.
    with pytest.raises(CheckpointError, match="starts at 11, after its end at 10"):
        load(folder, is_clean=True, log_start_offset=11)
    assert len(load(folder, log_start_offset=9).segments) == 2
    loaded = load(folder, log_start_offset=11)
    assert (loaded.segments, loaded.log_start_offset, loaded.log_end_offset) == ([], 11, 11)
    assert not [name for name in names(folder) if name.endswith(LOG_SUFFIX)]


def test_a_compacted_segment_without_records_takes_its_place_whole(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    folder = tmp_path / "v2-none-0"
    shutil.copytree(fixture_4_3_1.log_dir / "v2-none-0", folder)
    with ReadOnlyLog(folder) as log:
        first, second = (segment.path for segment in log.segments[:2])
        second_base = log.segments[1].base_offset
        rest = [record.offset for record in log.read(second_base)]
        assert first.with_suffix(".timeindex").stat().st_size
    # A power cut may leave of its files the `.log` alone: the old indexes are still there then.
    (folder / f"{first.name}.swap").touch()
    with ReadOnlyLog(folder) as log:
        assert [segment.path.name for segment in log.segments[:2]] == [f"{first.name}.swap", second.name]
        assert [record.offset for record in log.read()] == rest
    load(folder, recovery_point=second_base)
    with ReadOnlyLog(folder) as log:
        assert [record.offset for record in log.read()] == rest
        found = log.find_timestamp(0)
        assert found is not None
        assert found.offset == rest[0]
        assert not first.stat().st_size
        assert not first.with_suffix(".timeindex").stat().st_size
        assert not first.with_suffix(".index").stat().st_size
