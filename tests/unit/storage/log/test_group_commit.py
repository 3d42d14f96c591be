"""Durable appends of several threads share syncs, and a sync that fails fails all that it was to cover."""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from odradek.errors import LogOfflineError
from odradek.records import Record
from odradek.storage.log.log_options import LogOptions
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.topic_config import TopicConfig
from odradek.testing.disk import Kind, Operation
from odradek.testing.faults import FaultyFileSystem
from peers.process import wait_for

TIMEOUT = 60


class GatedFiles(FaultyFileSystem):
    """A disk whose first sync of a `.log` waits until it is let through."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.is_waiting = threading.Event()
        self.gate = threading.Event()

    def run(self, operation: Operation) -> None:
        if operation.kind == "sync" and operation.path.endswith(".log") and not self.gate.is_set():
            self.is_waiting.set()
            assert self.gate.wait(TIMEOUT)
        super().run(operation)

    @property
    def log_syncs(self) -> int:
        return self.count("sync")

    def count(self, kind: Kind) -> int:
        return sum(operation.kind == kind and operation.path.endswith(".log") for operation in self.history)


@pytest.fixture
def files(tmp_path: Path) -> GatedFiles:
    root = tmp_path / "live"
    (root / "t-0").mkdir(parents=True)
    return GatedFiles(root)


def append(log: WritableLog, number: int) -> int:
    return log.append([Record(b"%d" % number, b"value")], durable=True)


def start_others(log: WritableLog, files: GatedFiles, pool: ThreadPoolExecutor, count: int) -> list[Future[int]]:
    """Let one append wait for the disk, and then some others, all written by the time this returns."""
    first = pool.submit(append, log, 0)
    assert files.is_waiting.wait(TIMEOUT)
    others = [pool.submit(append, log, number) for number in range(1, count)]
    wait_for(lambda: log.log_end_offset == count, TIMEOUT, "the others", interval_s=0.005)
    return [first, *others]


@pytest.mark.slow
def test_those_who_wait_share_one_sync(files: GatedFiles, tmp_path: Path) -> None:
    log = WritableLog(files.root / "t-0", LogOptions(files=files))
    with ThreadPoolExecutor(6) as pool:
        appended = start_others(log, files, pool, 6)
        assert not any(future.done() for future in appended)
        files.gate.set()
        assert sorted(future.result(TIMEOUT) for future in appended) == list(range(6))
    # The first one's sync began before the others were written; of the others one syncs for all.
    assert files.log_syncs == 2
    assert append(log, 6) == 6
    assert files.log_syncs == 3
    disk = files.replay()
    log.discard()
    for seed in range(20):
        after = tmp_path / f"after-{seed}"
        after.mkdir()
        disk.cut_power(after, seed)
        with WritableLog(after / "t-0") as again:
            assert len(list(again.read())) == 7


@pytest.mark.parametrize("succeeding", [0, 1])
def test_a_sync_that_fails_fails_all_that_it_was_to_cover(succeeding: int, files: GatedFiles) -> None:
    log = WritableLog(files.root / "t-0", LogOptions(files=files))
    files.fail("sync", succeeding, at=".log")
    with ThreadPoolExecutor(6) as pool:
        first, *others = start_others(log, files, pool, 6)
        files.gate.set()
        for future in others:
            with pytest.raises(LogOfflineError):
                future.result(TIMEOUT)
        if succeeding:
            assert first.result(TIMEOUT) == 0
        else:
            with pytest.raises(LogOfflineError):
                first.result(TIMEOUT)
    # Nobody tried again: the kernel would have said that all is well.
    assert files.log_syncs == succeeding + 1
    log.discard()


def test_a_roll_meanwhile_takes_nothing_from_it(files: GatedFiles) -> None:
    log = WritableLog(files.root / "t-0", LogOptions(files=files))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(append, log, 0)
        assert files.is_waiting.wait(TIMEOUT)
        rolled = pool.submit(log.roll)
        files.gate.set()
        assert first.result(TIMEOUT) == 0
        rolled.result(TIMEOUT)
    assert append(log, 1) == 1
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    log.close()


def test_a_roll_meanwhile_is_not_below_the_recovery_point_before_it_is_synced(files: GatedFiles) -> None:
    config = TopicConfig(preallocate=True, segment_bytes=4096, segment_index_bytes=1024)
    log = WritableLog(files.root / "t-0", LogOptions(files=files, config=config, flushes_late=True), owner=MagicMock())
    log.append([Record(b"0", b"value")])
    with ThreadPoolExecutor(2) as pool:
        flushed = pool.submit(log.flush)
        assert files.is_waiting.wait(TIMEOUT)
        rolled = pool.submit(log.roll)
        # For all that the first thread knows, the file is cut after its sync.
        wait_for(lambda: files.count("truncate") == 2, TIMEOUT, "the cut", interval_s=0.005)
        files.gate.set()
        flushed.result(TIMEOUT)
        rolled.result(TIMEOUT)
    assert log.recovery_point == 0
    syncs = files.log_syncs
    log.flushing.flush_sealed()
    assert (log.recovery_point, files.log_syncs) == (1, syncs + 1)
    log.close()


@pytest.mark.slow
def test_what_was_acknowledged_is_there_whenever_the_power_goes(files: GatedFiles, tmp_path: Path) -> None:
    files.gate.set()
    config = TopicConfig.load(
        {"internal.segment.bytes": "2000", "retention.bytes": "6000", "file.delete.delay.ms": "0"}
    )
    log = WritableLog(files.root / "t-0", LogOptions(files=files, config=config))
    acknowledged: list[tuple[int, int]] = []

    def work(number: int) -> None:
        for _ in range(25):
            offset = append(log, number)
            acknowledged.append((len(files.history), offset))

    def delete() -> None:
        for _ in range(10):
            log.upkeep.delete_old_segments()
            log.upkeep.remove_deleted_files()

    with ThreadPoolExecutor(5) as pool:
        for future in [*(pool.submit(work, number) for number in range(4)), pool.submit(delete)]:
            future.result(TIMEOUT)
    log.discard()
    assert sorted(offset for _, offset in acknowledged) == list(range(100))
    rng = random.Random(7)
    for number in range(40):
        operations = rng.randint(0, len(files.history))
        after = tmp_path / f"after-{number}"
        after.mkdir()
        files.replay(operations).cut_power(after, number)
        durable = [offset for moment, offset in acknowledged if moment <= operations]
        if durable:
            with WritableLog(after / "t-0", LogOptions(config=config)) as again:
                offsets = [record.offset for record in again.read()]
                assert offsets == list(range(again.log_start_offset, again.log_end_offset))
                assert again.log_end_offset > max(durable)
