"""A log whose calls end early: by Ctrl-C, by a time-out that a signal's handler raises, by want of descriptors."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import odradek
from odradek.errors import LogError, LogOfflineError
from odradek.inspection import verify
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.files import Buffer, FileSystem, WritableFile
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.names import CLEAN_SHUTDOWN_MARKER
from peers.batches import transactional

pytestmark = pytest.mark.usefixtures("real_locks")


class Interrupted(FileSystem):
    """A disk beside which a signal comes, once: its handler raises before, in the middle of, or after an operation."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.written = 0.0
        self.suffix = ""

    def raise_once(self, path: Path) -> None:
        if self.error is not None and self.suffix in path.name:
            error, self.error = self.error, None
            handle(error)

    def open(self, path: Path) -> WritableFile:
        return InterruptedFile(self, path)

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        if self.suffix == "rename":
            self.raise_once(Path("rename"))


def handle(error: BaseException) -> None:
    """Raise, in a frame of its own, as the handler of a signal does."""
    raise error


class InterruptedFile(WritableFile):
    def __init__(self, files: Interrupted, path: Path) -> None:
        super().__init__(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        self._files = files

    def write_at(self, position: int, data: Buffer) -> None:
        if self._files.error is not None and self._files.suffix in self.path.name:
            part = memoryview(data)[: int(len(data) * self._files.written)]
            if part:
                super().write_at(position, part)
            self._files.raise_once(self.path)
        super().write_at(position, data)

    def sync(self) -> None:
        if self._files.suffix == "sync":
            self._files.raise_once(Path("sync"))
        super().sync()


ERRORS = [KeyboardInterrupt, TimeoutError, lambda: InterruptedError(None), SystemExit]


@pytest.fixture
def files() -> Interrupted:
    return Interrupted()


@pytest.fixture
def logs(files: Interrupted, tmp_path: Path) -> Iterator[WritableLogDirectory]:
    with odradek.open(tmp_path / "data", files=files) as logs:
        logs.create_topic("t", config={"internal.segment.bytes": "400", "index.interval.bytes": "0"})
        yield logs


def values(log: WritableLog) -> list[bytes | None]:
    return [record.value for record in log.read()]


@pytest.mark.slow
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
@pytest.mark.parametrize("written", [0.0, 0.5, 1.0])
def test_an_append_that_is_interrupted_is_there_or_is_not(
    logs: WritableLogDirectory,
    files: Interrupted,
    tmp_path: Path,
    written: float,
    suffix: str,
    error: Callable[[], BaseException],
) -> None:
    log = logs["t", 0]
    log.append([Record(b"k", b"before")])
    files.error, files.written, files.suffix = error(), written, suffix
    with pytest.raises(type(files.error)):
        log.append([Record(b"k", b"one"), Record(b"k", b"two")])
    assert not log.is_offline
    is_there = suffix != ".log" or written == 1.0
    expected = [b"before", b"one", b"two"] if is_there else [b"before"]
    assert (log.log_end_offset, values(log)) == (len(expected), expected)
    # Another process sees the same.
    with odradek.open(tmp_path / "data", mode="r") as readers:
        reader = readers["t", 0]
        assert [record.value for record in reader.read()] == expected
        assert reader.damage == []
    assert log.append([Record(b"k", b"after")]) == len(expected)
    assert values(log) == [*expected, b"after"]
    logs.abandon()
    with odradek.open(tmp_path / "data") as again:
        assert values(again["t", 0]) == [*expected, b"after"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [lambda log: log.nonblocking.append(build_batch([Record(b"k", b"v")])), lambda log: log.nonblocking.has_room(100)],
)
def test_a_signal_just_after_the_lock_was_taken_leaves_it_free(
    logs: WritableLogDirectory, monkeypatch: pytest.MonkeyPatch, call: Callable[[WritableLog], object]
) -> None:
    log = logs["t", 0]
    lock = log.guard.lock

    class Signalled:
        """The lock; the signal comes as it is taken without waiting."""

        release, _is_owned = lock.release, lock._is_owned

        def acquire(self, blocking: bool = True) -> bool:
            assert lock.acquire(blocking)
            raise KeyboardInterrupt

    with monkeypatch.context() as signalled:
        signalled.setattr(log.guard, "lock", Signalled())
        with pytest.raises(KeyboardInterrupt):
            call(log)
    assert not lock._is_owned()
    assert log.append([Record(b"k", b"v")]) == log.log_end_offset - 1


@pytest.mark.sampled
@pytest.mark.parametrize("suffix", [".log", ".index", ".snapshot"])
def test_an_append_of_several_segments_is_there_as_a_whole_or_not_at_all(
    logs: WritableLogDirectory, files: Interrupted, suffix: str
) -> None:
    logs.alter_topic_config("t", {"max.message.bytes": "200"})
    log = logs["t", 0]
    log.append([Record(b"k", b"before")])
    files.error, files.suffix = KeyboardInterrupt(), suffix
    records = [Record(b"k", b"%0100d" % number) for number in range(20)]
    with pytest.raises(KeyboardInterrupt):
        log.append(records)
    assert log.log_end_offset in {1, 21}
    if log.log_end_offset == 21:
        assert len(log.segments) > 5
    assert log.append(records) == log.log_end_offset - 20


@pytest.mark.slow
def test_a_producer_that_is_interrupted_can_send_its_batch_again(
    logs: WritableLogDirectory, files: Interrupted
) -> None:
    log = logs["t", 0]
    batch = transactional([Record(b"k", b"v")], 7)
    for written, is_duplicate in ((0.5, False), (1.0, True)):
        files.error, files.written, files.suffix = KeyboardInterrupt(), written, ".log"
        data = transactional([Record(b"k", b"v")], 7, log.log_end_offset)
        with pytest.raises(KeyboardInterrupt):
            log.append_batches(data)
        assert log.last_stable_offset == 0
        assert log.append_batches(data).is_duplicate == is_duplicate
    assert log.append_batches(batch).is_duplicate
    assert [record.offset for record in log.read(isolation="read_committed")] == []
    log.end_transaction(7, 0, commit=True)
    assert [record.offset for record in log.read(isolation="read_committed")] == [0, 1]


@pytest.mark.sampled
@pytest.mark.parametrize("error", ERRORS)
def test_a_timeout_of_a_handler_is_no_failed_disk(
    logs: WritableLogDirectory, files: Interrupted, error: Callable[[], BaseException]
) -> None:
    log = logs["t", 0]
    log.append([Record(b"k", b"v")])
    files.error, files.suffix = error(), "sync"
    with pytest.raises(type(files.error)):
        log.flush()
    assert log.recovery_point == 0
    log.flush()
    assert (log.recovery_point, log.is_offline) == (1, False)


@pytest.mark.slow
def test_a_disk_that_fails_while_a_signal_comes_is_known_to_have_failed(
    logs: WritableLogDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = logs["t", 0]
    log.append([Record(b"k", b"v")])

    def sync(self: WritableFile) -> None:
        try:
            raise OSError(errno.EIO, "Input/output error")
        finally:
            handle(KeyboardInterrupt())

    monkeypatch.setattr(InterruptedFile, "sync", sync)
    with pytest.raises(KeyboardInterrupt):
        log.flush()
    monkeypatch.undo()
    with pytest.raises(LogOfflineError):
        log.append([Record(b"k", b"w")])


@pytest.mark.slow
def test_a_roll_that_is_interrupted_leaves_no_segment_behind(
    logs: WritableLogDirectory, files: Interrupted, tmp_path: Path
) -> None:
    log = logs["t", 0]
    log.append([Record(b"k", b"v")])
    files.error, files.suffix, files.written = KeyboardInterrupt(), ".snapshot", 0.5
    with pytest.raises(KeyboardInterrupt):
        log.roll()
    assert [path.name for path in sorted((tmp_path / "data" / "t-0").glob("*.log"))] == ["00000000000000000000.log"]
    log.append([Record(b"k", b"w")])
    log.roll()
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert values(log) == [b"v", b"w"]
    logs.close()
    # Not even the beginning of a snapshot.
    assert list(verify(tmp_path / "data")) == []


@pytest.mark.slow
@pytest.mark.parametrize("renames", range(8))
def test_a_compaction_that_is_interrupted_while_it_swaps_is_brought_to_its_end(
    renames: int, files: Interrupted, tmp_path: Path
) -> None:
    with odradek.open(tmp_path / "data", files=files) as logs:
        config = {"internal.segment.bytes": "400", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        logs.create_topic("c", config=config)
        log = logs["c", 0]
        for number in range(20):
            log.append([Record(b"%d" % (number % 3), b"%050d" % number)])
        newest = {record.key: record.value for record in log.read()}
        counted = 0

        class Counting(KeyboardInterrupt):
            pass

        def rename(source: Path, target: Path) -> None:
            nonlocal counted
            FileSystem.rename(files, source, target)
            counted += ".swap" in source.name + target.name or ".deleted" in target.name
            if counted == renames + 1:
                counted += 1
                handle(Counting())

        files.rename = rename  # type: ignore[method-assign]
        with pytest.raises(Counting):
            logs.maintain()
        assert {record.key: record.value for record in log.read()} == newest
        log.append([Record(b"0", b"later")])
        logs.maintain()
        assert {record.key: record.value for record in log.read()} == newest | {b"0": b"later"}
        assert not list(log.path.glob("*.swap"))


@pytest.mark.slow
def test_an_interrupted_close_can_be_called_again(files: Interrupted, tmp_path: Path) -> None:
    logs = odradek.open(tmp_path, files=files)
    logs.create_topic("t", partitions=3)
    for number in range(3):
        logs["t", number].append([Record(b"k", b"v")])
    files.error, files.suffix = KeyboardInterrupt(), "sync"
    with pytest.raises(KeyboardInterrupt):
        logs.close()
    assert not (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()
    logs.close()
    assert (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()
    with odradek.open(tmp_path) as again:
        assert not again.report
        assert [log.log_end_offset for log in again] == [1, 1, 1]


@pytest.mark.slow
def test_a_log_that_cannot_be_closed_in_order_leaves_no_clean_marker(tmp_path: Path) -> None:
    class Full(FileSystem):
        is_out = False

        def open(self, path: Path) -> WritableFile:
            if self.is_out and ".snapshot" in path.name:
                raise OSError(errno.EMFILE, "Too many open files", str(path))
            return super().open(path)

    files = Full()
    logs = odradek.open(tmp_path, files=files)
    logs.create_topic("t")
    logs["t", 0].append([Record(b"k", b"v")])
    files.is_out = True
    with pytest.raises(LogError, match="Too many open files"):
        logs.close()
    assert not (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()
    files.is_out = False
    with odradek.open(tmp_path, files=files) as again:
        assert again.report.segments_scanned
        assert values(again["t", 0]) == [b"v"]


OUT_OF_DESCRIPTORS = """
import os, resource, sys
import odradek
from odradek.errors import LogError

logs = odradek.open(sys.argv[1])
logs.create_topic("t", config={"internal.segment.bytes": "500"})
log = logs["t", 0]
log.append([odradek.Record(b"k", b"before")])
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
refused = 0
for number in range(50):
    try:
        log.append([odradek.Record(b"k", b"%0100d" % number)])
    except LogError:
        refused += 1
    try:
        log.flush()
    except LogError:
        refused += 1
assert refused and not log.is_offline
for descriptor in taken:
    os.close(descriptor)
end = log.log_end_offset
assert log.append([odradek.Record(b"k", b"after")], durable=True) == end
assert [record.offset for record in log.read()] == list(range(end + 1))
logs.close()
"""


@pytest.mark.slow
def test_a_process_without_descriptors_has_no_failed_disk(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", OUT_OF_DESCRIPTORS, str(tmp_path)], check=True, timeout=60)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 40
    with odradek.open(tmp_path) as logs:
        assert not logs.report
