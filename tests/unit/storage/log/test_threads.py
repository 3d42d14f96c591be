"""A log that several threads use, and iterables that take their time or use it themselves."""

from __future__ import annotations

import errno
import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.errors import LogOfflineError, UnknownTopicOrPartitionError
from odradek.records import Record
from odradek.storage.directory.maintenance import Maintenance
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.files import FileSystem, WritableFile
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.log_disk import LogDisk
from peers.process import wait_for


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[WritableLogDirectory]:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", config={"internal.segment.bytes": "300"})
        yield logs


def values(log: odradek.Log) -> list[bytes | None]:
    return [record.value for record in log.read()]


def test_an_iterable_may_append_to_the_log_that_it_is_appended_to(logs: WritableLogDirectory) -> None:
    log = logs["t", 0]

    def records() -> Iterator[Record]:
        yield Record(b"k", b"outer 1")
        assert log.append([Record(b"k", b"inner")]) == 0
        yield Record(b"k", b"outer 2")

    assert log.append(records()) == 1
    assert values(log) == [b"inner", b"outer 1", b"outer 2"]


def test_a_slow_iterable_keeps_nobody_waiting(logs: WritableLogDirectory) -> None:
    log = logs["t", 0]
    begun, go_on = threading.Event(), threading.Event()

    def records() -> Iterator[Record]:
        begun.set()
        assert go_on.wait(100)
        yield Record(b"k", b"slow")

    slow = threading.Thread(target=lambda: log.append(records()))
    slow.start()
    assert begun.wait(100)
    assert log.append([Record(b"k", b"quick")]) == 0
    go_on.set()
    slow.join()
    assert values(log) == [b"quick", b"slow"]


def test_an_iterable_that_fails_appends_nothing(logs: WritableLogDirectory) -> None:
    log = logs["t", 0]

    def records() -> Iterator[Record]:
        yield Record(b"k", b"v")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        log.append(records())
    assert log.log_end_offset == 0
    assert log.append([Record(b"k", b"w")]) == 0


@pytest.mark.parametrize(
    "change",
    [lambda log: log.delete_records(5), lambda log: log.upkeep.delete_old_segments()],
    ids=["records", "segments"],
)
def test_the_directory_is_told_without_any_lock_of_the_log(
    logs: WritableLogDirectory, monkeypatch: pytest.MonkeyPatch, change: Callable[[WritableLog], Any]
) -> None:
    log = logs["t", 0]
    for number in range(10):
        log.append([Record(b"k", b"%0100d" % number)])
    logs.alter_topic_config("t", {"retention.bytes": "1"})
    told = []
    started = logs.start_moved

    def start_moved(changed: WritableLog) -> None:
        # Whoever deletes the topic at this moment holds the directory's lock and waits for the log's.
        def append_and_flush() -> None:
            log.append([Record(b"k", b"v")])
            log.flush()

        other = threading.Thread(target=append_and_flush)
        other.start()
        other.join(100)
        told.append(other.is_alive())
        started(changed)

    monkeypatch.setattr(logs, "start_moved", start_moved)
    change(log)
    assert told == [False]


@pytest.mark.slow
def test_two_threads_that_maintain_compact_each_log_once(tmp_path: Path) -> None:
    with odradek.open(tmp_path, background=True, config={"log.cleaner.backoff.ms": "1"}) as logs:
        config = {"internal.segment.bytes": "3000", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        logs.create_topic("c", config=config)
        log = logs["c", 0]
        expected = {}
        threads = [threading.Thread(target=logs.maintain) for _ in range(6)]
        for number in range(3000):
            key = b"%d" % (number * 7919 % 400)
            expected[key] = log.append([Record(key, b"%d" % number)])
            if number % 400 == 200:
                threads[number // 400 % 6].start() if number < 2400 else None
        for thread in threads:
            thread.join()
        logs.maintain()
        newest = {record.key: record.offset for record in log.read()}
        assert newest == expected


def test_a_topic_made_again_is_compacted_though_the_one_before_could_not_be(tmp_path: Path) -> None:
    config = {"internal.segment.bytes": "300", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
    with odradek.open(tmp_path) as logs:
        for is_damaged in (True, False):
            logs.create_topic("c", config=config)
            log = logs["c", 0]
            for number in range(10):
                log.append([Record(b"k", b"%0100d" % number)])
            if is_damaged:
                path = log.segments[0].path
                data = bytearray(path.read_bytes())
                data[80] ^= 1
                path.write_bytes(data)
            logs.maintain()
            assert (log.cleaning.failure is not None) == is_damaged
            if is_damaged:
                logs.delete_topic("c")
        assert len(values(log)) < 5


def test_an_old_handle_of_a_topic_made_again_is_that_of_the_one_that_is_gone(logs: WritableLogDirectory) -> None:
    old, reader = logs["t", 0], odradek.open(logs.path, mode="r")["t", 0]
    old.append([Record(b"k", b"old")])
    reader.refresh()
    under_way = reader.read()
    assert next(under_way).value == b"old"
    logs.delete_topic("t")
    logs.create_topic("t")
    logs["t", 0].append([Record(b"k", b"new"), Record(b"k", b"newer")])
    for action in (
        lambda: old.append([Record(b"k", b"v")]),
        lambda: list(old.read()),
        lambda: old.log_end_offset,
        lambda: old.offset_for_time(0),
        lambda: old.roll(),
        lambda: old.flush(),
        lambda: reader.refresh(),
    ):
        with pytest.raises(UnknownTopicOrPartitionError):
            action()
    assert list(under_way) == []
    assert values(logs["t", 0]) == [b"new", b"newer"]


@pytest.mark.slow
@pytest.mark.parametrize("background", [False, True])
def test_a_directory_that_nobody_refers_to_gives_its_lock_back(tmp_path: Path, background: bool) -> None:
    logs = odradek.open(tmp_path, background=background)
    logs.create_topic("t")
    logs["t", 0].append([Record(b"k", b"v")])

    def is_locked() -> bool:
        gc.collect()
        return (tmp_path / ".lock").exists()

    del logs
    with pytest.warns(ResourceWarning, match="was not closed"):
        wait_for(lambda: not is_locked(), 20, "the lock", interval_s=0.01)
    with odradek.open(tmp_path) as again:
        assert again.report.segments_scanned == 1
        assert values(again["t", 0]) == [b"v"]


@pytest.mark.slow
def test_a_log_keeps_its_directory(tmp_path: Path) -> None:
    def opened() -> WritableLog:
        logs = odradek.open(tmp_path)
        logs.create_topic("t")
        return logs["t", 0]

    log = opened()
    gc.collect()
    assert log.append([Record(b"k", b"v")], durable=True) == 0
    owner = log._owner
    assert isinstance(owner, WritableLogDirectory)
    owner.close()


@pytest.mark.slow
def test_the_maintenance_goes_on_after_an_error_that_nobody_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = 0

    def fail(self: Maintenance) -> None:
        nonlocal failures
        failures += 1
        raise ZeroDivisionError

    monkeypatch.setattr(Maintenance, "_flush_rolled", fail)
    with odradek.open(tmp_path, background=True):
        wait_for(lambda: failures > 2, 20, "the maintenance")
    assert "goes on after an error" in caplog.text


def test_maintenance_that_meets_a_closed_directory_ends_quietly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
    maintenance = logs._maintenance
    ran = []

    def task() -> None:
        ran.append(logs.is_closed)
        logs.topic_partitions()

    maintenance._guarded(task)
    assert (ran, caplog.text) == ([True], "")


def test_names_are_synced_only_once_the_sync_has_succeeded(tmp_path: Path) -> None:
    class Failing(FileSystem):
        fails = True

        def sync_directory(self, path: Path) -> None:
            if self.fails:
                raise TimeoutError
            super().sync_directory(path)

    files = Failing()
    disk = LogDisk(tmp_path, files)
    disk.names_changed()
    with pytest.raises(TimeoutError):
        disk.sync_names()
    assert not disk.are_names_synced
    files.fails = False
    disk.sync_names()
    assert disk.are_names_synced


def test_a_disk_that_failed_stays_so_though_another_thread_has_no_descriptors_left(tmp_path: Path) -> None:
    class Failing(FileSystem):
        def open(self, path: Path) -> WritableFile:
            # In another thread, a moment ago.
            with pytest.raises(LogOfflineError):
                disk.sync_directory(tmp_path)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        def sync_directory(self, path: Path) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk = LogDisk(tmp_path, Failing())
    with pytest.raises(LogOfflineError):
        disk.open(tmp_path / "file")
    assert disk.failure is not None
    assert disk.failure.errno == errno.EIO


@pytest.mark.slow
def test_a_look_up_beside_rolls_and_closings(logs: WritableLogDirectory) -> None:
    log = logs["t", 0]
    log.append([Record(b"k", b"v", timestamp=1_700_000_000_000)])
    stop, failures = threading.Event(), []

    def look_up() -> None:
        try:
            while not stop.is_set():
                end = log.log_end_offset
                assert next(log.read(end - 1)).offset == end - 1
                assert log.offset_for_time(1_700_000_000_000) == 0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=look_up) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(60):
        log.append([Record(b"k", b"%050d" % number)])
        if number % 10 == 0:
            log.roll()
        if number % 7 == 0:
            for segment in log.segments:
                segment.close()
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
