from __future__ import annotations

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from odradek.errors import CorruptRecordError
from odradek.records.builder import build_batch
from odradek.records.kernels.objects import Record
from odradek.storage.cleaning.cleanable import CleaningRange
from odradek.storage.cleaning.cleaner_manager import LogCleaner, examine
from odradek.storage.files import FileSystem, WritableFile
from odradek.storage.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from odradek.storage.names import TopicPartition
from odradek.storage.topic_config import TopicConfig
from peers.folder_log import COMPACT, FolderLog

NOW = 2_000_000_000_000
CONFIG = COMPACT


def batch(offset: int, *, timestamp: int = 1000, **options: object) -> bytes:
    return build_batch([Record(b"key", b"v" * 100, (), timestamp)], base_offset=offset, **options)  # type: ignore[arg-type]


def log_of(directory: Path, name: str = "t-0", segments: int = 4, config: TopicConfig = CONFIG) -> FolderLog:
    """Make a log of segments of ten offsets, with timestamps of 1000 a segment; the last one is active."""
    log = FolderLog(directory / name, config)
    for number in range(segments):
        log.write(number * 10, *(batch(number * 10 + n, timestamp=(number + 1) * 1000) for n in range(10)))
    return log


# What is set on the log, its checkpoint, the time, and the range that is found.
RANGES: dict[str, tuple[dict[str, int], int | None, int, tuple[int, int]]] = {
    "never cleaned": ({}, None, NOW, (0, 30)),
    "from the checkpoint on": ({}, 20, NOW, (20, 30)),
    "all clean": ({}, 30, NOW, (30, 30)),
    "a checkpoint below the log's start": ({"start": 10}, 5, NOW, (10, 30)),
    "a checkpoint above the log's end": ({}, 99, NOW, (0, 30)),
    "no checkpoint, a deleted head": ({"start": 10}, None, NOW, (10, 30)),
    "in the middle of a segment": ({}, 25, NOW, (25, 30)),
    "up to the open transaction's segment": ({"open": 25}, None, NOW, (0, 20)),
    "all of it open": ({"open": 0}, None, NOW, (0, 0)),
    "min lag: all old": ({"min_lag": 1000}, None, 10_000, (0, 30)),
    "min lag: the third is fresh": ({"min_lag": 1000}, None, 3999, (0, 20)),
    "min lag: at the very time": ({"min_lag": 1000}, None, 4000, (0, 30)),
    "min lag: nothing is old": ({"min_lag": 1000}, None, 1500, (0, 0)),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", RANGES)
def test_the_cleanable_range(name: str, tmp_path: Path) -> None:
    settings, checkpoint, now_ms, expected = RANGES[name]
    config = dataclasses.replace(CONFIG, min_compaction_lag_ms=settings.get("min_lag", 0))
    log = FolderLog(tmp_path / "t-0", config)
    for number in range(4):
        batches = []
        for offset in range(number * 10, number * 10 + 10):
            options = {}
            if offset == settings.get("open"):
                options = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
            batches.append(batch(offset, timestamp=(number + 1) * 1000, **options))
        log.write(number * 10, *batches)
    log.log_start_offset = settings.get("start", 0)
    found = examine(log, checkpoint, now_ms)
    assert found.range == CleaningRange(*expected)
    assert found.cleanable_bytes == sum(
        segment.size_bytes for segment in log.segments if expected[0] // 10 * 10 <= segment.base_offset < expected[1]
    )


def test_what_is_due(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    assert examine(log, None, NOW).dirty_ratio == 1.0
    assert examine(log, 10, NOW).dirty_ratio == pytest.approx(2 / 3, abs=0.01)
    assert examine(log, 10, NOW).is_due
    assert not examine(log, 20, NOW).is_due
    log.config = dataclasses.replace(CONFIG, max_compaction_lag_ms=1000)
    # The first batch of the third segment has the timestamp 3000.
    assert examine(log, 20, 4001).is_due
    assert not examine(log, 20, 4000).is_due
    assert not examine(log, 30, NOW).is_due
    empty = FolderLog(tmp_path / "e-0", CONFIG)
    empty.write(0)
    assert not examine(empty, None, NOW).is_due


def test_the_dirtiest_log_comes_first(tmp_path: Path) -> None:
    logs = [log_of(tmp_path, f"t-{number}") for number in range(4)]
    logs[3].config = dataclasses.replace(CONFIG, cleanup_policy=("delete",))
    checkpoint = tmp_path / "cleaner-offset-checkpoint"
    write_offset_checkpoint(checkpoint, {TopicPartition("t", 0): 10, TopicPartition("t", 2): 30})
    cleaner = LogCleaner(lambda: logs, clock=lambda: NOW)
    order = []
    while (work := cleaner.dirtiest(NOW)) is not None:
        order.append(work.log.topic_partition.partition)
        stats = cleaner.clean_once()
        assert stats is not None
        assert stats.end_offset == 30
    assert order == [1, 0]
    assert read_offset_checkpoint(checkpoint) == {TopicPartition("t", number): 30 for number in range(3)}
    assert [len(log.segments) for log in logs] == [2, 2, 4, 4]
    assert cleaner.clean_once() is None


def test_an_impossible_checkpoint_is_corrected(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    log.log_start_offset = 10
    write_offset_checkpoint(tmp_path / "cleaner-offset-checkpoint", {log.topic_partition: 999})
    cleaner = LogCleaner(lambda: [log])
    cleaner.dirtiest(NOW)
    assert cleaner.checkpoints(tmp_path) == {log.topic_partition: 10}


def test_a_deleted_log_is_forgotten(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    cleaner = LogCleaner(lambda: [log])
    assert cleaner.clean_once() is not None
    assert cleaner.checkpoints(tmp_path) == {log.topic_partition: 30}
    for _ in range(2):
        cleaner.forget(tmp_path, [log.topic_partition, TopicPartition("other", 0)])
        assert cleaner.checkpoints(tmp_path) == {}


def test_a_damaged_log_is_set_aside(tmp_path: Path) -> None:
    good, bad = log_of(tmp_path, "good-0"), log_of(tmp_path, "bad-0", segments=6)
    path = bad.segments[0].path
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    bad.refresh()
    cleaner = LogCleaner(lambda: [bad, good], clock=lambda: NOW)
    done = [cleaner.clean_once(), cleaner.clean_once(), cleaner.clean_once()]
    assert sum(stats is not None for stats in done) == 1
    assert list(cleaner.uncleanable()) == [bad.topic_partition]
    assert isinstance(bad.cleaning.failure, CorruptRecordError)
    assert cleaner.checkpoints(tmp_path) == {good.topic_partition: 30}


class Gate(FileSystem):
    """A round stands still once its file is open, until it is let on."""

    def __init__(self) -> None:
        self.entered, self.left = threading.Event(), threading.Event()

    def open(self, path: Path) -> WritableFile:
        file = super().open(path)
        if path.name.endswith(".log.cleaned"):
            self.entered.set()
            assert self.left.wait(30)
        return file


def test_one_round_at_a_time_happens_to_a_log(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    cleaner = LogCleaner(lambda: [log], clock=lambda: NOW)
    with ThreadPoolExecutor(8) as threads:
        done = [future.result() for future in [threads.submit(cleaner.clean_once) for _ in range(8)]]
    assert sum(stats is not None for stats in done) == 1
    assert len(log.headers()) == 11


def test_whoever_asks_for_the_turn_gets_it_and_the_round_is_dropped(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    with ThreadPoolExecutor(1) as thread:
        for _ in range(2):
            gate = Gate()
            cleaner = LogCleaner(lambda: [log], files=gate, clock=lambda: NOW)
            round_ = thread.submit(cleaner.clean_once)
            assert gate.entered.wait(30)
            turn = log.cleaning.asked()
            gate.left.set()
            with turn:
                assert not list(log.path.glob("*.cleaned"))
                log.cleaning.give_way()
            assert round_.result() is None
    assert log.cleaning.failure is None
    # Who waits is let in first.
    log.cleaning.asked()
    assert cleaner.clean_once() is None


def test_it_stops_in_the_middle_of_a_round(tmp_path: Path) -> None:
    log, gate = log_of(tmp_path), Gate()
    cleaner = LogCleaner(lambda: [log], files=gate, clock=lambda: NOW)
    with ThreadPoolExecutor(1) as thread:
        round_ = thread.submit(cleaner.clean_once)
        assert gate.entered.wait(30)
        cleaner.stop()
        gate.left.set()
        assert round_.result() is None
    assert not list(log.path.glob("*.cleaned"))
