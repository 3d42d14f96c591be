"""Records as they come: `Log.follow`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import odradek
from odradek.errors import LogError, OffsetOutOfRangeError, OptionError, UnknownTopicOrPartitionError
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.log import follow
from odradek.storage.log.follow import Wakeup, waits
from odradek.storage.log.log import Log
from odradek.storage.log.read_only_log import ReadOnlyLog
from peers.batches import transactional

LONG_MS = 3_600_000
"""Longer than a test may take: what waits for so long was not woken."""


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[WritableLogDirectory]:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", config={"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0"})
        yield logs


@pytest.fixture(params=["owner", "reader"])
def followed(request: pytest.FixtureRequest, logs: WritableLogDirectory) -> Log:
    return logs["t", 0] if request.param == "owner" else ReadOnlyLog(logs.path / "t-0")


class Later(threading.Thread):
    """Does something while the test waits."""

    def __init__(self, action: Callable[[], object], delay_s: float = 0.05) -> None:
        super().__init__(daemon=True)
        self._action = action
        self._delay_s = delay_s
        self.start()

    def run(self) -> None:
        time.sleep(self._delay_s)  # so that somebody waits by then; nothing depends on it
        self._action()


@pytest.mark.slow
def test_what_is_there_and_what_comes(logs: WritableLogDirectory, followed: Log) -> None:
    log = logs["t", 0]
    log.append([Record(b"a", b"0"), Record(b"b", b"1")])
    records = followed.follow(1, timeout_ms=LONG_MS)
    assert next(records).value == b"1"
    for number in range(2, 6):
        appending = Later(lambda number=number: log.append(key=b"k", value=b"%d" % number))  # type: ignore[misc]
        assert next(records).value == b"%d" % number
        appending.join()


def test_over_rolls_and_through_compaction_and_retention(logs: WritableLogDirectory, followed: Log) -> None:
    log = logs["t", 0]
    records = followed.follow(0, timeout_ms=LONG_MS)
    for offset in range(40):
        log.append([Record(b"same", b"%d" % offset)])
        assert next(records).offset == offset
        if offset % 4 == 0:
            log.roll()
        if offset % 10 == 0:
            logs.maintain()
        if offset == 20:
            log.delete_records()
            log.upkeep.delete_old_segments()


def test_what_was_deleted_before_it_was_read(logs: WritableLogDirectory, followed: Log) -> None:
    log = logs["t", 0]
    log.append([Record(b"k", b"0")])
    records = followed.follow(0, timeout_ms=LONG_MS)
    assert next(records).offset == 0
    log.append([Record(b"k", b"%d" % number) for number in range(5)])
    log.delete_records(3)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        next(records)
    assert (caught.value.offset, caught.value.log_start_offset) == (1, 3)


@pytest.mark.slow
def test_the_iteration_ends_when_its_time_is_over(logs: WritableLogDirectory, followed: Log) -> None:
    log = logs["t", 0]
    log.append([Record(b"k", b"0")])
    assert [record.offset for record in followed.follow(0, timeout_ms=0)] == [0]
    started = time.monotonic()
    assert [record.offset for record in followed.follow(0, timeout_ms=200)] == [0]
    assert time.monotonic() - started >= 0.2


def test_the_time_counts_from_when_a_record_is_asked_for(
    logs: WritableLogDirectory, followed: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logs["t", 0]
    log.append([Record(b"k", b"0")])
    now_s = [1000.0]
    monkeypatch.setattr(follow, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    records = followed.follow(0, timeout_ms=30_000)
    assert next(records).offset == 0
    # All of that time, before the next record is asked for.
    now_s[0] += 31
    appending = Later(lambda: log.append(value=b"1", key=b"k"))
    assert next(records).offset == 1
    appending.join()


@pytest.mark.parametrize("closes", ["close", "delete"])
def test_a_log_that_is_closed_or_deleted(closes: str, logs: WritableLogDirectory, followed: Log) -> None:
    records = followed.follow(0, timeout_ms=LONG_MS)
    ending = Later(followed.close if closes == "close" else lambda: logs.delete_topic("t"))
    with pytest.raises(LogError if closes == "close" else UnknownTopicOrPartitionError):
        next(records)
    ending.join()


def test_where_to_start(logs: WritableLogDirectory, followed: Log) -> None:
    log = logs["t", 0]
    log.append([Record(b"k", b"0")])
    # Also what was appended since the log was opened.
    assert list(followed.follow(1, timeout_ms=0)) == []
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRangeError):
            followed.follow(offset)
    with pytest.raises(OptionError):
        followed.follow(0, isolation="no")  # type: ignore[arg-type]


def test_records_of_a_transaction_come_when_it_is_committed(logs: WritableLogDirectory, followed: Log) -> None:
    log = logs["t", 0]

    def data(producer_id: int) -> None:
        records = [Record(b"k", b"%d" % producer_id, timestamp=1_700_000_000_000)]
        log.append_batches(transactional(records, producer_id))

    data(1)
    data(2)
    assert list(followed.follow(0, isolation="read_committed", timeout_ms=0)) == []
    records = followed.follow(0, isolation="read_committed", timeout_ms=LONG_MS)
    log.end_transaction(1, 0, commit=False)
    committing = Later(lambda: log.end_transaction(2, 0, commit=True))
    assert next(records).value == b"2"
    committing.join()
    log.append([Record(b"k", b"after")])
    assert next(records).value == b"after"


def test_many_threads_follow_one_log(logs: WritableLogDirectory, followed: Log) -> None:
    seen: list[list[int]] = [[] for _ in range(5)]

    def follow(offsets: list[int]) -> None:
        for record in followed.follow(0, timeout_ms=LONG_MS):
            offsets.append(record.offset or 0)
            if record.offset == 199:
                break

    threads = [threading.Thread(target=follow, args=(offsets,), daemon=True) for offsets in seen]
    for thread in threads:
        thread.start()
    for number in range(200):
        logs["t", 0].append([Record(b"%d" % number, b"")])
    for thread in threads:
        thread.join()
    assert seen == [list(range(200))] * 5


FOLLOWER = """
import sys, odradek
with odradek.open(sys.argv[1], mode="r") as logs:
    print("ready", flush=True)
    for record in logs["t", 0].follow(0):
        print(record.value.decode(), flush=True)
"""


@pytest.mark.slow
def test_another_process_follows_and_ends_by_ctrl_c(logs: WritableLogDirectory) -> None:
    log = logs["t", 0]
    with subprocess.Popen(
        [sys.executable, "-c", FOLLOWER, str(logs.path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline() == "ready\n"
            for number in range(20):
                log.append([Record(b"k%d" % number, b"%d" % number)])
                if number % 5 == 0:
                    log.roll()
                assert process.stdout.readline() == f"{number}\n"
            os.kill(process.pid, signal.SIGINT)
            process.wait()
            assert "KeyboardInterrupt" in process.stderr.read()
        finally:
            process.kill()


@pytest.mark.slow
def test_ctrl_c_ends_a_wait_at_once_and_the_log_goes_on(
    logs: WritableLogDirectory, followed: Log, request: pytest.FixtureRequest
) -> None:
    # A shell starts what runs in the background with this signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    interrupting = Later(lambda: os.kill(os.getpid(), signal.SIGINT), delay_s=0.1)
    with pytest.raises(KeyboardInterrupt):
        next(followed.follow(0, timeout_ms=LONG_MS))
    interrupting.join()
    logs["t", 0].append([Record(b"k", b"v")])
    assert next(followed.follow(0, timeout_ms=LONG_MS)).value == b"v"


def test_a_change_before_the_wait_is_not_slept_through() -> None:
    wakeup = Wakeup()
    before = wakeup.changes
    wakeup.wake()
    wakeup.wait(before, LONG_MS / 1000)
    before = wakeup.changes
    waking = Later(wakeup.wake)
    wakeup.wait(before, LONG_MS / 1000)
    waking.join()


def test_the_waits_grow_up_to_a_limit() -> None:
    pauses = waits()
    found = [next(pauses) for _ in range(10)]
    assert found[:3] == [0.001, 0.002, 0.004]
    assert found[-1] == max(found) == 0.05


@pytest.mark.sampled(4)
@pytest.mark.parametrize("may_have_gaps", [True, False])
@pytest.mark.parametrize("is_looked_at", [True, False])
@pytest.mark.parametrize("taken", [0, 1, 45, 60])
def test_a_log_that_is_cut_and_appended_to_within_one_read(
    taken: int, is_looked_at: bool, may_have_gaps: bool, tmp_path: Path
) -> None:
    """A writer that was killed cuts what it left of an append. No offset is left out, and none comes twice."""

    def batches(start: int, end: int, size: int) -> bytes:
        return b"".join(build_batch([Record(None, b"v" * size)], base_offset=at) for at in range(start, end))

    folder = tmp_path / "t-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(batches(0, 50, 1000))
    path = folder / f"{50:020}.log"
    path.write_bytes(batches(50, 200, 1000))
    with ReadOnlyLog(folder, may_have_gaps=lambda: may_have_gaps) as log:
        records = log.follow(0, timeout_ms=0)
        found = [next(records).offset for _ in range(taken)]
        os.truncate(path, len(batches(50, 180, 1000)))
        if is_looked_at:
            # By someone else who reads the same log.
            log.refresh()
        for record in records:
            found.append(record.offset)
            if record.offset == 179:
                with path.open("ab") as file:
                    file.write(batches(180, 230, 1500))
        assert found == list(range(230))


def test_what_was_read_to_its_end_may_be_deleted_at_once(
    logs: WritableLogDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that the reader gets was deleted: aborted records, whose segment goes when they have been read."""
    log = logs["t", 0]
    log.append([Record(b"k", b"0")])
    aborted = [Record(b"k", b"aborted", timestamp=1_700_000_000_000)] * 3
    log.append_batches(transactional(aborted, 1))
    log.end_transaction(1, 0, commit=False)
    read, deletions = log.read, iter([5])

    def reading(*arguments: Any, **options: Any) -> Iterator[Record]:
        yield from read(*arguments, **options)
        for offset in deletions:
            log.roll()
            log.append([Record(b"k", b"5"), Record(b"k", b"6")])
            log.delete_records(offset)

    monkeypatch.setattr(log, "read", reading)
    found = [record.offset for record in log.follow(0, isolation="read_committed", timeout_ms=0)]
    assert found == [0, 5, 6]
