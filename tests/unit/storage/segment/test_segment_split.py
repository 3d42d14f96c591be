"""Segments whose offsets their indexes cannot hold are split when the log is opened; a crash may come in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.records import Record
from odradek.records.builder import build_batch, build_control_batch
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.storage.log.log import Log
from odradek.storage.log.log_options import LogOptions
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.log.recovery_report import RecoveryKind
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, segment_file_name
from odradek.storage.topic_config import TopicConfig
from odradek.testing.faults import FaultyFileSystem

REACH = (1 << 31) - 1
"""How far above the base offset an index goes."""
CONFIG = TopicConfig.load({"cleanup.policy": "compact", "index.interval.bytes": "0"})
TIME = 1_700_000_000_000


def batch(offset: int, count: int = 2, producer_id: int = -1) -> bytes:
    return bytes(
        build_batch(
            [Record(b"%d" % number, b"value", timestamp=TIME + number) for number in range(count)],
            base_offset=offset,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=offset % 1000 if producer_id >= 0 else -1,
            is_transactional=producer_id >= 0,
        )
    )


def abort(offset: int, producer_id: int) -> bytes:
    marker = EndTransactionMarker(ControlRecordType.ABORT, 0)
    return bytes(
        build_control_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp=TIME, base_offset=offset)
    )


def make(folder: Path, base_offset: int, *batches: bytes, index: bool = True) -> None:
    folder.mkdir(exist_ok=True)
    (folder / segment_file_name(base_offset, LOG_SUFFIX)).write_bytes(b"".join(batches))
    if index:
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            (folder / segment_file_name(base_offset, suffix)).write_bytes(b"")


def offsets(log: Log, start_offset: int | None = None) -> list[int | None]:
    return [record.offset for record in log.read(start_offset)]


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


FAR = REACH + 10
FARTHER = 2 * FAR


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # The last batch that is in reach stays: it ends 2^31 - 1 above the base offset.
        ([0, REACH - 1], [0]),
        ([0, REACH], [0, REACH]),
        ([0, 2, FAR, FAR + 2, FARTHER], [0, FAR, FARTHER]),
        # Compaction left nothing of the segment's first two billion offsets.
        ([FAR, FARTHER], [0, FAR, FARTHER]),
    ],
    ids=str,
)
def test_what_is_out_of_reach_gets_a_segment_of_its_own(
    found: list[int], expected: list[int], is_clean: bool, tmp_path: Path
) -> None:
    folder = tmp_path / "t-0"
    make(folder, 0, *map(batch, found))
    wanted = [offset + number for offset in found for number in range(2)]
    end = wanted[-1] + 1
    with WritableLog(
        folder, LogOptions(config=CONFIG, is_clean=is_clean, recovery_point=end if is_clean else 0)
    ) as log:
        assert bases(log) == expected
        split = [action for action in log.report.actions if action.kind is RecoveryKind.SPLIT]
        assert len(split) == len(expected) - 1
        assert not any(action.kind is RecoveryKind.TRUNCATED for action in log.report.actions)
        assert (log.log_start_offset, log.log_end_offset) == (0, end)
        assert offsets(log) == wanted
        for offset in wanted:
            assert offsets(log, offset)[0] == offset
        for segment in log.segments:
            segment.offset_index.check()
        assert log.append([Record(b"k", b"v")]) == end
    assert not [path for path in folder.iterdir() if path.name.endswith((".deleted", ".swap", ".cleaned"))]
    with WritableLog(folder, LogOptions(config=CONFIG, is_clean=True, recovery_point=end + 1)) as again:
        assert not again.report
        assert offsets(again) == [*wanted, end]


def test_what_follows_stays_and_transactions_are_known(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    make(folder, 0, batch(0), batch(5, producer_id=7), batch(FAR, producer_id=7), abort(FAR + 2, 7), batch(FAR + 3))
    make(folder, FAR + 5, batch(FAR + 5), batch(FAR + 7))
    with WritableLog(folder, LogOptions(config=CONFIG)) as log:
        assert bases(log) == [0, FAR, FAR + 5]
        assert [record.offset for record in log.read(isolation="read_committed")] == [
            *(0, 1, FAR + 3, FAR + 4, FAR + 5, FAR + 6, FAR + 7, FAR + 8)
        ]
        assert log.last_stable_offset == FAR + 9


def test_the_time_of_the_file_stays(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    make(folder, 0, batch(0), batch(FAR))
    make(folder, FAR + 2, batch(FAR + 2))
    FaultyFileSystem(tmp_path).set_modified_ms(folder / segment_file_name(0, LOG_SUFFIX), TIME)
    with WritableLog(folder, LogOptions(config=CONFIG, is_clean=True, recovery_point=FAR + 4)) as log:
        times = [segment.path.stat().st_mtime_ns // 1_000_000 for segment in log.segments]
    assert times[:2] == [TIME, TIME]


def test_a_torn_end_is_cut_where_it_is_now(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    make(folder, 0, batch(0), batch(FAR), batch(FAR + 2)[:50])
    with WritableLog(folder, LogOptions(config=CONFIG)) as log:
        assert offsets(log) == [0, 1, FAR, FAR + 1]
        cut = [action for action in log.report.actions if action.kind is RecoveryKind.TRUNCATED]
        assert [(action.path.name, action.size_bytes) for action in cut] == [(segment_file_name(FAR, LOG_SUFFIX), 50)]


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("crash", ["kill", "power"])
@pytest.mark.parametrize("first", [0, FAR])
def test_a_crash_leaves_the_segment_or_its_parts(first: int, crash: str, tmp_path: Path) -> None:
    live = tmp_path / "live"
    live.mkdir()
    found = [first, first + 2, FARTHER, FARTHER + 2]
    make(live / "t-0", 0, *map(batch, found))
    make(live / "t-0", FARTHER + 4, batch(FARTHER + 4))
    wanted = [offset + number for offset in [*found, FARTHER + 4] for number in range(2)]
    files = FaultyFileSystem(live)
    WritableLog(live / "t-0", LogOptions(config=CONFIG, files=files)).discard()
    cases = 0
    for operations in range(len(files.history) + 1):
        for seed in range(1 if crash == "kill" else 5):
            cases += 1
            root = tmp_path / "after" / str(cases)
            root.mkdir(parents=True)
            disk = files.replay(operations)
            if crash == "kill":
                torn = files.history[operations] if operations < len(files.history) else None
                disk.kill(root, torn, seed)
            else:
                disk.cut_power(root, seed)
            with ReadOnlyLog(root / "t-0") as reader:
                assert offsets(reader) == wanted
            with WritableLog(root / "t-0", LogOptions(config=CONFIG)) as log:
                assert offsets(log) == wanted
                assert bases(log) == sorted({0, first, FARTHER, FARTHER + 4})
    assert cases > 20
