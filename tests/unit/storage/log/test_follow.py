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

import pytest

import odradek
from odradek.errors import LogError, OffsetOutOfRangeError, OptionError, UnknownTopicOrPartitionError
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.log.follow import Wakeup, waits
from odradek.storage.log.log import Log
from odradek.storage.log.read_only_log import ReadOnlyLog

LONG_MS = 60_000


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
            log.delete_old_segments()


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


def test_the_iteration_ends_when_its_time_is_over(logs: WritableLogDirectory, followed: Log) -> None:
    log = logs["t", 0]
    log.append([Record(b"k", b"0")])
    assert [record.offset for record in followed.follow(0, timeout_ms=0)] == [0]
    started = time.monotonic()
    assert [record.offset for record in followed.follow(0, timeout_ms=200)] == [0]
    assert 0.2 <= time.monotonic() - started < 20
    # The time counts from when a record is asked for.
    records = followed.follow(0, timeout_ms=300)
    assert next(records).offset == 0
    time.sleep(0.4)
    appending = Later(lambda: log.append(value=b"1", key=b"k"), delay_s=0.02)
    assert next(records).offset == 1
    appending.join()


@pytest.mark.parametrize("closes", ["close", "delete"])
def test_a_log_that_is_closed_or_deleted(closes: str, logs: WritableLogDirectory, followed: Log) -> None:
    records = followed.follow(0, timeout_ms=LONG_MS)
    ending = Later(followed.close if closes == "close" else lambda: logs.delete_topic("t"))
    started = time.monotonic()
    with pytest.raises(LogError if closes == "close" else UnknownTopicOrPartitionError):
        next(records)
    assert time.monotonic() - started < 10
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
        log.append_batches(
            bytearray(
                build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
            )
        )

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
        thread.join(60)
    assert seen == [list(range(200))] * 5


FOLLOWER = """
import sys, odradek
with odradek.open(sys.argv[1], mode="r") as logs:
    print("ready", flush=True)
    for record in logs["t", 0].follow(0):
        print(record.value.decode(), flush=True)
"""


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
            started = time.monotonic()
            process.wait(30)
            assert time.monotonic() - started < 10
            assert "KeyboardInterrupt" in process.stderr.read()
        finally:
            process.kill()


def test_ctrl_c_ends_a_wait_at_once_and_the_log_goes_on(
    logs: WritableLogDirectory, followed: Log, request: pytest.FixtureRequest
) -> None:
    # A shell starts what runs in the background with this signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    interrupting = Later(lambda: os.kill(os.getpid(), signal.SIGINT), delay_s=0.1)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        next(followed.follow(0, timeout_ms=LONG_MS))
    assert time.monotonic() - started < 10
    interrupting.join()
    logs["t", 0].append([Record(b"k", b"v")])
    assert next(followed.follow(0, timeout_ms=LONG_MS)).value == b"v"


def test_a_change_before_the_wait_is_not_slept_through() -> None:
    wakeup = Wakeup()
    before = wakeup.changes
    wakeup.wake()
    started = time.monotonic()
    wakeup.wait(before, 60)
    assert time.monotonic() - started < 10
    waking = Later(wakeup.wake)
    wakeup.wait(wakeup.changes, 60)
    assert time.monotonic() - started < 20
    waking.join()


def test_the_waits_grow_up_to_a_limit() -> None:
    pauses = waits()
    found = [next(pauses) for _ in range(10)]
    assert found[:3] == [0.001, 0.002, 0.004]
    assert found[-1] == max(found) == 0.05
