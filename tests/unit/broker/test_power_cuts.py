"""A broker on an imitated disk that forgets, at a power cut or a failed sync, what was not on it.

Whatever a client was told, that it is written or that it can be read, is on the disk if the settings ask for that.
"""

from __future__ import annotations

import errno
import random
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.broker import running as running_module
from odradek.broker.running import BrokerThread
from odradek.errors import LogError, LogOfflineError
from odradek.records import Record
from odradek.storage.directory import log_opener
from odradek.storage.directory.opening import open_log_directory
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.testing.faults import FaultyFile, FaultyFileSystem
from odradek.testing.wire import WireClient
from peers import requests
from peers.broker_thread import connect, eventually, start
from peers.group_requests import OffsetsTransaction, commit, find_coordinator
from peers.group_requests import fetched as offsets_of
from peers.requests import batch, produced, readable
from peers.transactional import TransactionalProducer
from peers.transactional import find_coordinator as find_transactions

produce_message = partial(requests.produce_message, topic="flushed")

CUTS = 5
STORAGE_ERROR = 56
FLUSHED = {"flush.messages": "1"}
CONFIG: dict[str, str | int | float | bool] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "log.flush.interval.messages": 1,
    # Those of their default size make an imitated disk slow.
    "log.index.size.max.bytes": 4096,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
}


@pytest.fixture
def files(tmp_path: Path) -> FaultyFileSystem:
    root = tmp_path / "live"
    root.mkdir()
    return FaultyFileSystem(root)


@pytest.fixture
def running(files: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerThread]:
    monkeypatch.setattr(log_opener, "_ZEROS", b"\0")
    monkeypatch.setattr(log_opener, "_ROOM_BYTES", 1)
    with monkeypatch.context() as patched:
        patched.setattr(running_module, "open_log_directory", partial(open_log_directory, files=files))
        started = BrokerThread(files.root / "data", CONFIG, background=False)
    with started as running:
        running.broker.logs.create_topic("flushed", 1, FLUSHED)
        yield running


def kept(files: FaultyFileSystem, target: Path) -> Iterator[list[bytes | None]]:
    """Yield the records that are there after power cuts now."""
    disk = files.replay()
    for seed in range(CUTS):
        target.mkdir()
        disk.cut_power(target, seed)
        with WritableLogDirectory(target / "data") as logs:
            yield [record.value for record in logs["flushed", 0].read()]
        shutil.rmtree(target)


@pytest.mark.slow
def test_what_a_failed_sync_left_in_memory_is_on_the_disk_before_it_is_served(
    running: BrokerThread, files: FaultyFileSystem, tmp_path: Path
) -> None:
    with connect(running) as client:
        assert produced(client.call(0, 9, produce_message(batch(b"a")))) == (0, 0)
        files.fail("sync", error=errno.ENOSPC, at=".log")
        assert produced(client.call(0, 9, produce_message(batch(b"b"))))[0] == STORAGE_ERROR
        running.broker.logs.reopen_logs()
        assert readable(client)[:2] == (2, 2)
        assert all(values == [b"a", b"b"] for values in kept(files, tmp_path / "after"))
        assert produced(client.call(0, 9, produce_message(batch(b"c")))) == (0, 2)
        assert all(values == [b"a", b"b", b"c"] for values in kept(files, tmp_path / "after"))


@pytest.mark.slow
def test_a_sync_that_fails_again_keeps_the_log_offline(
    running: BrokerThread, files: FaultyFileSystem, tmp_path: Path
) -> None:
    with connect(running) as client:
        assert produced(client.call(0, 9, produce_message(batch(b"a")))) == (0, 0)
        files.fail("sync", error=errno.ENOSPC, at=".log", times=3)
        assert produced(client.call(0, 9, produce_message(batch(b"b"))))[0] == STORAGE_ERROR
        for _ in range(2):
            with pytest.raises(LogOfflineError):
                running.broker.logs.reopen_logs()
            assert readable(client)[:2] == (1, 1)
            assert produced(client.call(0, 9, produce_message(batch(b"c"))))[0] == STORAGE_ERROR
        running.broker.logs.reopen_logs()
        assert readable(client)[:2] == (2, 2)
        assert all(values == [b"a", b"b"] for values in kept(files, tmp_path / "after"))


@pytest.mark.slow
def test_what_a_crash_left_in_memory_is_on_the_disk_before_it_is_served(
    files: FaultyFileSystem, tmp_path: Path
) -> None:
    logs = WritableLogDirectory(files.root / "data", files=files)
    logs.create_topic("flushed", 1, FLUSHED)
    logs["flushed", 0].append([Record(None, b"a")])
    logs["flushed", 0].append_batches(batch(b"b"), flushes=False)
    logs.abandon()
    logs = WritableLogDirectory(files.root / "data", files=files)
    assert logs["flushed", 0].log_end_offset == 2
    assert all(values == [b"a", b"b"] for values in kept(files, tmp_path / "after"))
    logs.abandon()


# -- power cuts beneath clients of all kinds


class SlowFile(FaultyFile):
    """A file whose syncs take a while, in which others append; they cover what was written before."""

    def sync(self) -> None:
        super().sync()
        time.sleep(0.002)


class Told(NamedTuple):
    """What clients were told of something up to a moment of the disk.

    Attributes:
        moment: How many operations the disk had done by then.
        what: What it is about.
        value: The value of a record, an offset that was committed, the end of a log.
    """

    moment: int
    what: str
    value: Any


class Load:
    """Clients that write down what they were told; each has a thread of its own."""

    def __init__(self, running: BrokerThread, files: FaultyFileSystem, steps: int) -> None:
        self._running = running
        self._files = files
        self._steps = steps
        self.told: list[Told] = []
        self.tried: set[bytes] = set()

    def run(self, kinds: int = 2) -> None:
        """Run until all clients are done."""
        with connect(self._running) as client:
            find_coordinator(client)
            find_transactions(client, "any")
        clients = (self._produce, self._commit, self._transact, self._commit_in_transactions)
        with ThreadPoolExecutor(kinds * len(clients) + 1) as threads:
            working = [threads.submit(one, number) for number in range(kinds) for one in clients]
            reading = threads.submit(self._read, working)
            while not all(one.done() for one in working):
                time.sleep(0.005)
                with suppress(LogError):
                    self._running.broker.logs.reopen_logs()
            for one in (*working, reading):
                one.result()

    def _tell(self, what: str, value: Any) -> None:
        self.told.append(Told(len(self._files.history), what, value))

    def _produce(self, number: int) -> None:
        with connect(self._running) as client:
            for step in range(self._steps):
                value = b"%d-%d" % (number, step)
                error, offset = produced(client.call(0, 9, produce_message(batch(value), acks=-1)))
                if not error:
                    self._tell("record", (offset, value))

    def _commit(self, number: int) -> None:
        with connect(self._running) as client:
            for step in range(1, self._steps):
                if commit(client, f"g{number}", {0: step}, topic="flushed") == [0]:
                    self._tell(f"g{number}", step)

    def _transact(self, number: int) -> None:
        with connect(self._running) as client:
            producer = TransactionalProducer(client, f"t{number}", 2, "moved", None)
            producer.patiently(producer.init)
            for step in range(self._steps // 2):
                values = [b"%d-%d-%d" % (number, step, one) for one in range(2)]
                self.tried.update(values if step % 2 else ())
                try:
                    producer.patiently(lambda values=values: producer.produce(0, *values))  # type: ignore[misc]
                    producer.patiently(lambda step=step: producer.end(bool(step % 2)))  # type: ignore[misc]
                except AssertionError:
                    # The disk failed.
                    producer.patiently(producer.init)
                else:
                    self._tell("committed" if step % 2 else "aborted", values)

    def _commit_in_transactions(self, number: int) -> None:
        with connect(self._running) as client:
            for step in range(1, self._steps // 2):
                with suppress(AssertionError):
                    transaction = OffsetsTransaction(client, f"o{number}")
                    assert transaction.commit_offsets(client, {0: step}) == [0]
                    transaction.decide(client, commit=True)
                    self._tell(f"o{number}", step)

    def _read(self, working: list[Future[None]]) -> None:
        with connect(self._running) as client:
            while not all(one.done() for one in working):
                self._tell("end", readable(client)[0])
                time.sleep(0.001)


def judge(told: list[Told], tried: set[bytes], folder: Path) -> None:
    """Check that everything that clients were told is still there when the broker is started again."""
    with start(folder, **CONFIG) as running, connect(running) as client:
        offsets: dict[str, int] = {}
        for one in told:
            if one.what[0] in "go":
                offsets[one.what] = max(one.value, offsets.get(one.what, 0))
        for group, offset in offsets.items():
            topic = "flushed" if group[0] == "g" else "events"
            eventually(lambda: fetched_offset(client, group, topic) >= offset)  # noqa: B023
        log = running.broker.logs["flushed", 0]
        found = {record.offset: record.value for record in log.read()}
        assert all(found[one.value[0]] == one.value[1] for one in told if one.what == "record")
        assert all(log.log_end_offset >= one.value for one in told if one.what == "end")
        assert len(set(found.values())) == len(found)
        moved = running.broker.logs["moved", 0]

        def committed() -> list[bytes | None]:
            return [record.value for record in moved.read(isolation="read_committed")]

        wanted = {value for one in told if one.what == "committed" for value in one.value}
        eventually(lambda: wanted <= set(committed()))
        values = committed()
        assert len(values) == len(set(values))
        assert set(values) <= tried


def fetched_offset(client: WireClient, group: str, topic: str) -> int:
    try:
        return offsets_of(client, group, [0], topic=topic)[0][0]
    except AssertionError:
        # The group is still being loaded.
        return -1


@pytest.mark.slow
@pytest.mark.parametrize("failures", [0, 5])
@pytest.mark.parametrize(("steps", "cuts"), [(12, 4), pytest.param(60, 100, marks=pytest.mark.laboratory)])
def test_nothing_that_clients_were_told_is_lost_by_a_power_cut(
    running: BrokerThread, files: FaultyFileSystem, tmp_path: Path, steps: int, cuts: int, failures: int
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    files.file_type = SlowFile
    for name in ("moved", "events"):
        running.broker.logs.create_topic(name, 1, FLUSHED)
    begun = len(files.history)
    for _ in range(failures):
        files.fail("sync", rng.randint(20, 20 * steps), error=errno.ENOSPC, at="0.log")
    load = Load(running, files, steps)
    load.run()
    files.repair()
    moments = sorted(rng.randint(begun, len(files.history)) for _ in range(cuts))
    target = tmp_path / "after"
    for operations, disk in files.replays():
        while moments and moments[0] == operations:
            moments.pop(0)
            target.mkdir()
            disk.cut_power(target, rng.getrandbits(32))
            judge([one for one in load.told if one.moment <= operations], load.tried, target / "data")
            shutil.rmtree(target)
