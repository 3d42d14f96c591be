"""A reader that is refreshed again and again knows what one knows that looks for the first time."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import odradek
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.segment.segment_scan import SegmentScan
from peers.batches import transactional

TIME = 1_700_000_000_000
PRODUCERS = 3


def known(log: ReadOnlyLog) -> tuple[object, ...]:
    start, end = log.log_start_offset, log.log_end_offset
    return (
        start,
        end,
        log.last_stable_offset,
        log.aborted_transactions(start, end),
        list(log.read()),
        list(log.read(isolation="read_committed")),
        [segment.base_offset for segment in log.segments],
    )


def check(kept: ReadOnlyLog) -> None:
    kept.refresh()
    with ReadOnlyLog(kept.path) as fresh:
        assert known(kept) == known(fresh)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_beside_a_writer(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    config = {
        "cleanup.policy": "compact,delete",
        "min.cleanable.dirty.ratio": "0",
        "retention.ms": "-1",
        "internal.segment.bytes": "1500",
        "preallocate": str(seed % 2 == 0).lower(),
    }
    logs = odradek.open(tmp_path)
    logs.create_topic("t", config=config)
    kept = ReadOnlyLog(tmp_path / "t-0")
    sequences = [0] * PRODUCERS
    is_open = [False] * PRODUCERS
    for _ in range(80):
        log = logs["t", 0]
        producer = rng.randrange(PRODUCERS)
        action = rng.choices(
            ["append", "data", "end", "roll", "compact", "delete", "reopen"], [3, 6, 4, 1, 0.5, 0.5, 0.5]
        )[0]
        records = [Record(b"%d" % rng.randrange(9), b"v" * rng.randrange(90), timestamp=TIME) for _ in range(2)]
        if action == "append":
            log.append(records)
        elif action == "data":
            log.append_batches(transactional(records, producer, sequences[producer]))
            sequences[producer] += len(records)
            is_open[producer] = True
        elif action == "end" and is_open[producer]:
            log.end_transaction(producer, 0, commit=rng.random() < 0.5)
            is_open[producer] = False
        elif action == "roll":
            log.roll()
        elif action == "compact":
            logs.maintain()
        elif action == "delete" and rng.random() < 0.5:
            log.delete_records(rng.randint(log.log_start_offset, log.log_end_offset))
            log.upkeep.delete_old_segments()
        elif action == "reopen":
            logs.close()
            if rng.random() < 0.5:
                check(kept)
            logs = odradek.open(tmp_path)
        if rng.random() < 0.7:
            check(kept)
    logs.close()
    check(kept)
    kept.close()


def encoded(base_offset: int, producer_id: int, text: bytes) -> bytes:
    return transactional([Record(b"k", text, timestamp=TIME)], producer_id, base_offset, base_offset=base_offset)


@pytest.mark.sampled
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("longer", [0, 1, 5])
def test_a_file_that_was_cut_and_appended_to_between_two_looks(longer: int, waits: bool, tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    path = folder / f"{0:020d}.log"
    path.write_bytes(b"".join(encoded(offset, 1, b"old") for offset in range(6)))
    with ReadOnlyLog(folder) as kept:
        assert (kept.last_stable_offset, kept.log_end_offset) == (0, 6)
        if waits:
            time.sleep(0.15)  # a change in the same tick of the clock cannot be told by its time
            kept.refresh()
        with path.open("r+b") as file:
            file.truncate(len(encoded(0, 1, b"old")))
            file.seek(0, os.SEEK_END)
            file.write(b"".join(encoded(offset, 2, b"new") for offset in range(1, 6 + longer)))
        check(kept)
        assert [record.value for record in kept.read()] == [b"old"] + [b"new"] * (5 + longer)
        transactions = kept.aborted_transactions(0, 100)
        assert transactions == []


def test_the_transactions_are_read_on_from_where_they_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        log = logs["t", 0]
        for _ in range(300):
            log.append([Record(b"k", b"v" * 100)])
        reader = ReadOnlyLog(tmp_path / "t-0")
        assert reader.end_offset("read_committed") == 300
        scanned: list[int] = []
        begin = SegmentScan.__init__

        def noting(scan: SegmentScan, path: Path, contents: object, position: int, end: int, **how: object) -> None:
            scanned.append(end - position)
            begin(scan, path, contents, position, end, **how)  # type: ignore[arg-type]

        monkeypatch.setattr(SegmentScan, "__init__", noting)
        for number in range(5):
            log.append([Record(b"k", b"v" * 100)])
            if number == 3:
                log.roll()
            reader.refresh()
            assert reader.end_offset("read_committed") == 301 + number
        assert sum(scanned) < 20_000 < reader.size_bytes


@pytest.mark.slow
def test_an_empty_poll_opens_and_reads_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", config={"internal.segment.bytes": "200"})
        log = logs["t", 0]
        for _ in range(50):
            log.append([Record(b"k", b"v" * 100)])
        time.sleep(0.15)  # what was changed just now is looked at again: a clock's ticks are coarse
        reader = ReadOnlyLog(tmp_path / "t-0")
        reader.end_offset("read_committed")
        reader.refresh()
        calls: list[str] = []
        with monkeypatch.context() as patched:
            for name in ("open", "pread", "scandir"):
                patched.setattr(os, name, lambda *_, name=name, **__: calls.append(name))
            reader.refresh()
            assert list(reader.read(50, isolation="read_committed")) == []
        assert calls == []


def test_a_marker_that_ends_a_transaction_begun_before_the_last_look(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        log = logs["t", 0]
        log.append_batches(bytearray(encoded(0, 1, b"v")))
        reader = ReadOnlyLog(tmp_path / "t-0")
        assert reader.last_stable_offset == 0
        log.roll()
        reader.refresh()
        assert reader.last_stable_offset == 0
        log.end_transaction(1, 0, commit=False)
        reader.refresh()
        assert reader.last_stable_offset == 2
        assert [found.first_offset for found in reader.aborted_transactions(0, 2)] == [0]
        assert list(reader.read(isolation="read_committed")) == []


def test_a_segment_that_is_a_link_to_itself(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        logs["t", 0].append(value=b"v")
        with ReadOnlyLog(tmp_path / "t-0") as reader:
            segment = reader.segments[0].path
            segment.rename(tmp_path / "kept")
            segment.symlink_to(segment)
            for look in (
                reader.refresh,
                lambda: ReadOnlyLog(tmp_path / "t-0"),
                lambda: odradek.scan(tmp_path).read_all(),
            ):
                with pytest.raises(odradek.LogError, match=f"{segment} cannot be read: Too many levels of symbolic"):
                    look()
        segment.unlink()
        (tmp_path / "kept").rename(segment)


@pytest.mark.parametrize("second_ns", [1_000_000_000, 2_000_000_000])
@pytest.mark.parametrize("rolls", [False, True])
def test_a_file_system_that_keeps_whole_seconds(
    second_ns: int, rolls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that the test does happens within one of them."""
    now_ns = time.time_ns() // second_ns * second_ns
    stat = Path.stat

    def coarse(path: Path, *, follow_symlinks: bool = True) -> SimpleNamespace:
        status = stat(path, follow_symlinks=follow_symlinks)
        fields = {name: getattr(status, name) for name in dir(status) if name.startswith("st_")}
        return SimpleNamespace(**fields | {"st_mtime_ns": now_ns, "st_ctime_ns": now_ns})

    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", config={"preallocate": "true"})
        log = logs["t", 0]
        log.append(value=b"first")
        monkeypatch.setattr(Path, "stat", coarse)
        monkeypatch.setattr(time, "time_ns", lambda: now_ns + second_ns * 9 // 10)
        with ReadOnlyLog(tmp_path / "t-0") as kept:
            for number in range(3):
                check(kept)
                kept.refresh()
                if rolls:
                    log.roll()
                log.append(value=b"%d" % number)
            check(kept)
            assert kept.log_end_offset == 4


def test_a_file_that_was_copied_with_its_time(tmp_path: Path) -> None:
    """As `rsync --times --inplace` copies what was appended within one tick of the source's clock."""
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        log = logs["t", 0]
        log.append(value=b"first")
        (path,) = log.path.glob("*.log")
        past_ns = path.stat().st_mtime_ns - 10**12
        os.utime(path, ns=(past_ns, past_ns))
        with ReadOnlyLog(tmp_path / "t-0") as kept:
            for number in range(3):
                check(kept)
                kept.refresh()
                log.append(value=b"%d" % number)
                os.utime(path, ns=(past_ns, past_ns))
            check(kept)
            assert kept.log_end_offset == 4


@pytest.mark.parametrize("is_known", [True, False])
def test_what_was_seen_is_not_replaced_by_what_was_seen_before(
    is_known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread looks for the end; while it does, there is an append, and another thread looks too."""

    def batches(start: int, end: int) -> bytes:
        return b"".join(build_batch([Record(b"k", b"v")], base_offset=at) for at in range(start, end))

    (tmp_path / "t-0").mkdir()
    path = tmp_path / "t-0" / f"{0:020}.log"
    path.write_bytes(batches(0, 10))
    with ReadOnlyLog(tmp_path / "t-0") as log:
        segment = log.segments[-1]
        if is_known:
            assert log.log_end_offset == 10
        with path.open("ab") as file:
            file.write(batches(10, 20))
        scan_end = segment._scan_end
        others = iter([1])

        def interrupted(position: int, next_offset: int) -> object:
            found = scan_end(position, next_offset)
            for _ in others:
                with path.open("ab") as file:
                    file.write(batches(20, 30))
                log.refresh()
                assert log.log_end_offset == 30
            return found

        monkeypatch.setattr(segment, "_scan_end", interrupted)
        log.refresh()
        assert log.log_end_offset == 30
        assert [record.offset for record in log.read()] == list(range(30))


def test_the_stable_offset_belongs_to_the_end_that_it_was_found_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread looks for it; while it does, there is an append, and another thread refreshes the log."""
    (tmp_path / "t-0").mkdir()
    path = tmp_path / "t-0" / f"{0:020}.log"
    path.write_bytes(build_batch([Record(b"k", b"v")], base_offset=0))
    with ReadOnlyLog(tmp_path / "t-0") as log:
        find_end_offset, others = log._find_end_offset, iter([1])

        def interrupted() -> int:
            found = find_end_offset()
            for _ in others:
                with path.open("ab") as file:
                    file.write(build_batch([Record(b"k", b"v")], base_offset=1))
                log.refresh()
                assert log.log_end_offset == 2
            return found

        monkeypatch.setattr(log, "_find_end_offset", interrupted)
        assert log.last_stable_offset
        assert log.last_stable_offset == log.log_end_offset == 2
