"""Recovery of segments that are no crash's doing: offsets that go back, or that cannot be in a segment at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.errors import CorruptRecordError
from odradek.records import Record
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import build_batch
from odradek.records.timestamps import now_ms
from odradek.storage.log.appender import transaction_marker
from odradek.storage.log.log import Log
from odradek.storage.log.log_options import LogOptions
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.log.recovery_report import RecoveryKind
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.names import LOG_SUFFIX, segment_file_name
from odradek.storage.topic_config import TopicConfig
from odradek.testing.faults import FaultyFileSystem
from peers.batches import transactional

TIME = 1_700_000_000_000


def batch(offset: int, timestamp: int = TIME, count: int = 2) -> bytes:
    records = [Record(b"k", b"%d" % number, timestamp=timestamp) for number in range(count)]
    return bytes(build_batch(records, base_offset=offset))


def make(folder: Path, base_offset: int, *batches: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / segment_file_name(base_offset, LOG_SUFFIX)
    path.write_bytes(b"".join(batches))
    return path


def offsets(log: Log) -> list[int | None]:
    return [record.offset for record in log.read()]


def batches_of(log: Log) -> list[int]:
    return [header.base_offset for segment in log.segments for header in segment.scan()]


def config(interval: int) -> TopicConfig:
    return TopicConfig.load({"index.interval.bytes": str(interval)})


def test_what_goes_back_is_kept_where_no_index_tells(tmp_path: Path) -> None:
    make(tmp_path / "t-0", 0, batch(0), batch(4), batch(2), batch(8))
    make(tmp_path / "t-0", 10, batch(10))
    with WritableLog(tmp_path / "t-0", LogOptions(config=config(4096), recovery_point=9, was_compacted=True)) as log:
        assert batches_of(log) == [0, 4, 2, 8, 10]
        with pytest.raises(CorruptRecordError, match="offset 2 follows 5"):
            offsets(log)
        assert not any(action.kind in {RecoveryKind.TRUNCATED, RecoveryKind.REMOVED} for action in log.report.actions)
        assert log.append([Record(b"k", b"v")]) == 12
    with WritableLog(tmp_path / "t-0", LogOptions(config=config(4096), is_clean=True, recovery_point=13)) as again:
        assert not again.report
        assert batches_of(again)[-1] == 12


@pytest.mark.parametrize(
    ("batches", "end"),
    [
        ([batch(0), batch(0), batch(2)], 4),
        ([batch(0), batch(2), batch(0), batch(2), batch(4)], 6),
        ([batch(0), batch(2), batch(0), batch(4)], 6),
        # Other records at the same offsets.
        ([batch(0), batch(0, TIME + 1), batch(2)], 4),
    ],
)
def test_what_comes_again_is_kept_though_no_checkpoint_says_that_it_is_on_the_disk(
    batches: list[bytes], end: int, tmp_path: Path
) -> None:
    path = make(tmp_path / "t-0", 0, *batches)
    with WritableLog(tmp_path / "t-0", LogOptions(config=config(4096))) as log:
        assert log.log_end_offset == end
        assert path.read_bytes() == b"".join(batches)
        if batches[0] in batches[1:]:
            assert offsets(log) == list(range(end))
        assert log.append([Record(b"k", b"v")]) == end


@pytest.mark.parametrize("batches", [[batch(0), batch(2), batch(0)], [batch(0), batch(2), batch(0, count=1), batch(4)]])
def test_a_base_offset_that_did_not_reach_the_disk_is_cut(batches: list[bytes], tmp_path: Path) -> None:
    path = make(tmp_path / "t-0", 0, *batches)
    with WritableLog(tmp_path / "t-0", LogOptions(config=config(4096))) as log:
        assert (log.log_end_offset, offsets(log)) == (4, [0, 1, 2, 3])
        assert path.read_bytes() == batches[0] + batches[1]
        assert [action.kind for action in log.report.actions if action.path == path] == [RecoveryKind.TRUNCATED]


@pytest.mark.parametrize(
    "batches",
    [
        # The offset index would have to go back.
        [batch(0), batch(4), batch(2), batch(8)],
        [batch(0), batch(4), batch(8), batch(4)],
        # The time index: the batch that went back has the greatest timestamp.
        [batch(0), batch(4, TIME + 1), batch(2, TIME + 2)],
    ],
)
def test_what_goes_back_is_cut_where_an_index_would_have_to(batches: list[bytes], tmp_path: Path) -> None:
    path = make(tmp_path / "t-0", 0, *batches)
    path.with_suffix(".index").touch()
    last = make(tmp_path / "t-0", 10, batch(10))
    kept = 3 if len(batches) == 4 and batches[2] == batch(8) else 2
    with WritableLog(tmp_path / "t-0", LogOptions(config=config(0), was_compacted=True)) as log:
        assert offsets(log) == [0, 1, 4, 5, 8, 9][: kept * 2]
        assert not last.exists()
        (cut,) = [action for action in log.report.actions if action.kind is RecoveryKind.TRUNCATED]
        assert (cut.path, cut.position) == (path, sum(map(len, batches[:kept])))
        assert "follows" in cut.reason


@pytest.mark.parametrize("has_index", [True, False])
def test_what_follows_a_cut_stays_where_the_index_was_lost(tmp_path: Path, *, has_index: bool) -> None:
    """Kafka recovers a segment without an offset index while it lists them, and then finds nothing to cut."""
    path = make(tmp_path / "t-0", 0, batch(0), batch(2)[:-1])
    if has_index:
        path.with_suffix(".index").touch()
    make(tmp_path / "t-0", 4, batch(4))
    with WritableLog(tmp_path / "t-0", LogOptions(config=config(0), was_compacted=True)) as log:
        assert offsets(log) == ([0, 1] if has_index else [0, 1, 4, 5])
        assert path.read_bytes() == batch(0)
        assert path.with_suffix(".index").exists()
    with WritableLog(tmp_path / "t-0", LogOptions(config=config(0), was_compacted=True, is_clean=True)) as log:
        assert not log.report.actions


def test_every_recovered_segment_leaves_its_snapshot(tmp_path: Path) -> None:
    """Those without an offset index are recovered while they are listed; the recovery of what is before starts anew."""
    for base_offset in (0, 2, 4, 6, 8):
        path = make(tmp_path / "t-0", base_offset, batch(base_offset))
        if base_offset not in {2, 4}:
            path.with_suffix(".index").touch()
    with WritableLog(tmp_path / "t-0", LogOptions(config=config(0))):
        assert sorted(int(path.stem) for path in path.parent.glob("*.snapshot")) == [2, 4, 6, 8, 10]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_lost_time_index_cuts_no_damaged_segment(tmp_path: Path, *, is_clean: bool) -> None:
    """Kafka makes an empty one; for a sound segment we write it again."""
    data = bytearray(batch(0) + batch(2) + batch(4))
    data[len(batch(0)) * 2 - 1] ^= 1
    path = make(tmp_path / "t-0", 0, bytes(data))
    path.with_suffix(".index").touch()
    make(tmp_path / "t-0", 6, batch(6)).with_suffix(".index").touch()
    with WritableLog(tmp_path / "t-0", LogOptions(config=config(4096), is_clean=is_clean, recovery_point=8)) as log:
        assert log.log_end_offset == 8
    assert path.read_bytes() == bytes(data)


def test_copies_at_the_end_of_a_segment_stay(tmp_path: Path) -> None:
    """Cut there, they would take the segments after it with them."""
    twice = [batch(0), batch(2), batch(2)]
    path = make(tmp_path / "t-0", 0, *twice)
    path.with_suffix(".index").touch()
    last = make(tmp_path / "t-0", 4, batch(4), batch(4))
    last.with_suffix(".index").touch()
    with WritableLog(tmp_path / "t-0", LogOptions(config=config(4096))) as log:
        assert (log.log_end_offset, offsets(log)) == (6, [0, 1, 2, 3, 4, 5])
    assert path.read_bytes() == b"".join(twice)
    assert last.read_bytes() == batch(4) * 2


def test_what_goes_back_is_cut_where_the_time_index_could_not_end_after_it(tmp_path: Path) -> None:
    first, small = batch(0, count=50), len(batch(0))
    kept = [first, batch(60, TIME + 1)]
    # Below the recovery point an offset may go back, after it none. The indexes could hold all of them, but not end
    # before the last two.
    path = make(tmp_path / "t-0", 0, *kept, batch(57, TIME + 2), batch(64), batch(63), batch(70, TIME + 3))
    with WritableLog(tmp_path / "t-0", LogOptions(config=config(4 * small - 1), recovery_point=65)) as log:
        (cut,) = [action for action in log.report.actions if action.kind is RecoveryKind.TRUNCATED]
        assert (cut.path, cut.position) == (path, sum(map(len, kept)))
        assert list(log.segments[0].offset_index.entries()) == [(61, len(first))]
        assert list(log.segments[0].time_index.entries()) == [(TIME + 1, 61)]


@pytest.mark.parametrize(
    "batches",
    [
        [batch(3)],
        [batch(10), batch(3)],
        [batch(10), batch(1 << 40), batch(12)],
        [batch(10), batch(14), batch(12), batch(1 << 40, TIME + 1)],
    ],
    ids=["all below the base", "one below the base", "one far above", "one far above after what goes back"],
)
def test_an_offset_that_cannot_be_there_is_refused_and_nothing_is_lost(batches: list[bytes], tmp_path: Path) -> None:
    path = make(tmp_path / "t-0", 10, *batches)
    last = make(tmp_path / "t-0", 20, batch(20))
    with pytest.raises(CorruptRecordError, match="cannot be in this segment") as raised:
        WritableLog(tmp_path / "t-0", LogOptions(recovery_point=19))
    assert raised.value.path == str(path)
    assert path.read_bytes() == b"".join(batches)
    assert last.read_bytes() == batch(20)


def test_what_is_behind_damage_in_an_old_segment_counts(tmp_path: Path) -> None:
    """A transaction behind it, which a later segment aborts; and what its producer has sent."""
    # Producers that were silent for long are forgotten.
    now = now_ms()
    data = bytearray(batch(0) + batch(2))
    data[-1] ^= 1
    records = [Record(value=b"a", timestamp=now), Record(value=b"b", timestamp=now)]
    sent = transactional(records, 7, base_offset=4)
    make(tmp_path / "t-0", 0, bytes(data), sent).with_suffix(".index").touch()
    marker = transaction_marker(7, 0, is_commit=False, coordinator_epoch=0, timestamp=now)
    make(tmp_path / "t-0", 6, (6).to_bytes(8, "big") + marker[8:], batch(7)).with_suffix(".index").touch()
    with ReadOnlyLog(tmp_path / "t-0") as log:
        assert [record.offset for record in log.read(4, isolation="read_committed")] == [7, 8]
        assert log.last_stable_offset == 9
    with WritableLog(tmp_path / "t-0", LogOptions(config=config(4096), recovery_point=9)) as writable:
        assert [record.offset for record in writable.read(4, isolation="read_committed")] == [7, 8]
        assert writable.append_batches(transactional(records, 7)).first_offset == 4


@pytest.mark.slow
@pytest.mark.parametrize("crash", ["kill", "power"])
def test_a_crash_in_the_recovery_leaves_no_hole(crash: str, tmp_path: Path) -> None:
    live = tmp_path / "live"
    (live / "t-0").mkdir(parents=True)
    with WritableLog(live / "t-0", LogOptions(config=TopicConfig.load({"internal.segment.bytes": "170"}))) as log:
        for number in range(6):
            log.append_batches(batch(2 * number), origin=AppendOrigin.REPLICATION)
        assert len(log.segments) == 3
    damaged = live / "t-0" / segment_file_name(0, LOG_SUFFIX)
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    files = FaultyFileSystem(live)
    WritableLog(live / "t-0", LogOptions(files=files)).discard()
    for operations in range(len(files.history) + 1):
        root = tmp_path / "after" / str(operations)
        root.mkdir(parents=True)
        disk = files.replay(operations)
        if crash == "kill":
            torn = files.history[operations] if operations < len(files.history) else None
            disk.kill(root, torn, operations)
        else:
            disk.cut_power(root, operations)
        with WritableLog(root / "t-0", LogOptions()) as log:
            assert (offsets(log), log.log_end_offset) == ([0, 1], 2)
