"""A log that a full disk took offline comes back by itself, with everything that was acknowledged."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.errors import LogError, LogOfflineError
from odradek.records import Record
from odradek.storage.directory import log_opener
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.log.writable_log import WritableLog
from odradek.testing.disk import Kind, Operation
from odradek.testing.faults import FaultyFileSystem


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_opener, "_ROOM_BYTES", 4096)
    monkeypatch.setattr(log_opener, "_ZEROS", bytes(1024))


@pytest.fixture
def files(tmp_path: Path) -> FaultyFileSystem:
    (tmp_path / "live").mkdir()
    return FaultyFileSystem(tmp_path / "live")


def append(logs: WritableLogDirectory, value: bytes) -> int:
    return logs["events", 0].append([Record(None, value)])


@pytest.mark.slow
def test_a_log_is_opened_again_when_the_disk_has_room(
    files: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    root = files.root
    with WritableLogDirectory(root / "data", files=files) as logs:
        logs.create_topic("events")
        assert [append(logs, b"%d" % number) for number in range(3)] == [0, 1, 2]
        logs["events", 0].delete_records(1)
        files.space_bytes = 10
        with pytest.raises(LogOfflineError):
            append(logs, bytes(1000))
        offline = logs["events", 0]
        assert offline.guard.disk.is_full
        with monkeypatch.context() as full:
            full.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=0, f_frsize=4096))
            with pytest.raises(LogError, match="no room to open events-0 again: No space left on device"):
                logs.reopen_logs()
            assert logs["events", 0] is offline
        # There seems to be room, but not enough: it stays as it is, and can still be read.
        with pytest.raises(LogError, match="no room"):
            logs.reopen_logs()
        assert logs["events", 0] is offline
        assert [record.value for record in logs["events", 0].read()] == [b"1", b"2"]
        files.repair()
        logs.reopen_logs()
        assert caplog.messages == ["events-0 is online again: the disk has room"]
        assert offline.is_closed
        # The part of the batch that was written is gone.
        assert append(logs, b"after") == 3
        assert [record.value for record in logs["events", 0].read()] == [b"1", b"2", b"after"]
        assert logs["events", 0].damage == []
    with WritableLogDirectory(root / "data", files=files) as logs:
        assert not logs.report.actions
        assert [record.value for record in logs["events", 0].read()] == [b"1", b"2", b"after"]


@pytest.mark.parametrize(("kind", "error"), [("create", errno.ENOSPC), ("write", errno.EDQUOT), ("sync", errno.EDQUOT)])
def test_nothing_is_recovered_while_inodes_or_a_quota_are_used_up(
    files: FaultyFileSystem, kind: Kind, error: int
) -> None:
    root = files.root
    with WritableLogDirectory(root / "data", files=files) as logs:
        logs.create_topic("events", 2, {"segment.index.bytes": 1024})
        for number in range(2):
            logs["events", number].append([Record(None, b"a")])
            files.fail("write", error=error, at=f"events-{number}")
            with pytest.raises(LogOfflineError):
                logs["events", number].append([Record(None, b"b")])
        files.fail(kind, error=error, times=3, at="room.tmp")
        said = set()
        for _ in range(3):
            done = len(files.history)
            with pytest.raises(LogError) as raised:
                logs.reopen_logs()
            said.add(str(raised.value))
            assert {one.path for one in files.history[done:]} <= {"data/events-0/room.tmp"}
        assert said == {f"{root / 'data'}: there is no room to open events-0 and 1 more again: {os.strerror(error)}"}
        logs.reopen_logs()
        assert [logs["events", number].append([Record(None, b"b")]) for number in range(2)] == [1, 1]
        assert not list(root.rglob("room.tmp"))


def test_no_log_is_opened_again_while_a_sync_of_it_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "live"
    root.mkdir()
    syncing, waited_for, done = threading.Event(), threading.Event(), []

    class Slow(FaultyFileSystem):
        def run(self, operation: Operation) -> None:
            if operation.kind == "sync" and operation.path.endswith(".log") and not syncing.is_set():
                syncing.set()
                assert waited_for.wait(20)
                done.append("synced")
            super().run(operation)

    files = Slow(root)
    with WritableLogDirectory(root / "data", files=files) as logs, ThreadPoolExecutor(1) as pool:
        logs.create_topic("events", config={"segment.index.bytes": 1024})
        append(logs, b"1")
        log = logs["events", 0]
        synced = pool.submit(log.flushing.make_durable)
        assert syncing.wait(20)
        files.fail("write", error=errno.ENOSPC, at="events-0")
        with pytest.raises(LogOfflineError):
            append(logs, b"2")
        log_lock, opened = log.guard.flush_lock, logs._opener._open

        class Lock:
            """The FLUSH lock, for which another thread waits."""

            _is_owned, __exit__ = log_lock._is_owned, log_lock.__exit__

            def __enter__(self) -> object:
                waited_for.set()
                return log_lock.__enter__()

        def open_again(*args: Any, **options: Any) -> WritableLog:
            done.append("opened")
            return opened(*args, **options)

        # Its failure would not be told to the sync of the log that is opened.
        monkeypatch.setattr(log.guard, "flush_lock", Lock())
        monkeypatch.setattr(logs._opener, "_open", open_again)
        logs.reopen_logs()
        assert done == ["synced", "opened"]
        with pytest.raises(LogOfflineError):
            synced.result(20)
        assert [record.value for record in logs["events", 0].read()] == [b"1"]


def test_a_disk_that_is_broken_stays_offline(files: FaultyFileSystem) -> None:
    with WritableLogDirectory(files.root / "data", files=files) as logs:
        logs.create_topic("events")
        append(logs, b"a")
        files.fail("write", at=".log")
        with pytest.raises(LogOfflineError):
            append(logs, b"b")
        logs.reopen_logs()
        assert logs["events", 0].is_offline


@pytest.mark.slow
def test_a_log_that_cannot_be_opened_again_keeps_no_other_one_offline(files: FaultyFileSystem) -> None:
    with WritableLogDirectory(files.root / "data", files=files) as logs:
        logs.create_topic("events", 3)
        for number in range(3):
            logs["events", number].append([Record(None, b"a")])
        files.space_bytes = 10
        for number in range(3):
            with pytest.raises(LogOfflineError):
                logs["events", number].append([Record(None, b"b")])
        files.repair()
        files.fail("truncate", at="events-0")
        with pytest.raises(LogError, match="events-0"):
            logs.reopen_logs()
        assert [logs["events", number].is_offline for number in range(3)] == [True, False, False]
        files.repair()
        logs.reopen_logs()
        assert logs["events", 0].append([Record(None, b"b")]) == 1
