"""A backup is the log directory at one moment, whatever its writer does meanwhile."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.errors import LogError
from odradek.inspection import backup, restore, verify
from odradek.inspection.backups import run
from odradek.inspection.backups.coherence import coherent_ends, transaction_states
from odradek.inspection.backups.held_partition import ChangedError, HeldPartition
from odradek.inspection.backups.run import MARKER, is_backup
from odradek.messages.coordinators.group_records import OffsetCommitKey, OffsetCommitValue, encode_offset_commit
from odradek.messages.coordinators.transaction_records import (
    TransactionState,
    TransactionTopic,
    TransactionValue,
    encode_transaction_record,
)
from odradek.records import Record
from odradek.storage.files import UnsyncedFileSystem
from odradek.storage.log.root_checkpoints import RootCheckpoints
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.names import TopicPartition
from odradek.testing.faults import FaultyFileSystem
from peers.batches import transactional
from peers.kafka_fixture import KafkaFixture

SMALL = {"index.interval.bytes": 256, "file.delete.delay.ms": 0}


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def written(folder: Path, records: int = 3000) -> Path:
    """A log directory with some segments, closed in order."""
    with odradek.open(folder) as logs:
        logs.create_topic("events", config=SMALL)
        for number in range(0, records, 100):
            logs["events", 0].append([Record(value=b"%06d" % n * 4) for n in range(number, number + 100)])
            if number % 600 == 500:
                logs["events", 0].roll()
    return folder


def values(folder: Path, topic: str = "events") -> list[bytes | None]:
    with odradek.open(folder, mode="r") as logs:
        return [record.value for record in logs[topic, 0].read()]


@pytest.mark.slow
def test_only_what_never_changes_is_linked(tmp_path: Path) -> None:
    source = written(tmp_path / "data")
    report = backup(source, tmp_path / "copy")
    segments = sorted((source / "events-0").glob("*.log"))
    assert len(segments) > 3
    links = [(tmp_path / "copy" / "events-0" / path.name).stat().st_ino == path.stat().st_ino for path in segments]
    assert links == [True] * (len(segments) - 1) + [False]
    assert report.linked_bytes > 0
    assert values(tmp_path / "copy") == values(source)
    assert list(verify(tmp_path / "copy")) == []
    # Beside a writer without checkpoints nothing is known to stay.
    (source / "recovery-point-offset-checkpoint").unlink()
    assert backup(source, tmp_path / "other").linked_bytes == 0


def test_copies_share_nothing_with_the_source(tmp_path: Path) -> None:
    source = written(tmp_path / "data")
    inodes = {path.stat().st_ino for path in source.rglob("*")}
    backup(source, tmp_path / "copy")
    # The last backup's links are not used again either.
    for _ in range(2):
        backup(source, tmp_path / "copy", links=False)
        assert not inodes & {path.stat().st_ino for path in (tmp_path / "copy").rglob("*")}


def test_the_next_backup_uses_the_files_of_the_last(tmp_path: Path) -> None:
    source, copy = written(tmp_path / "data"), tmp_path / "copy"
    backup(source, copy, links=False)
    before = {path.name: path.stat().st_ino for path in (copy / "events-0").glob("*.log")}
    with odradek.open(source) as logs:
        logs["events", 0].append([Record(value=b"more")])
        logs["events", 0].roll()
        logs["events", 0].append([Record(value=b"last")])
    report = backup(source, copy, links=False)
    after = {path.name: path.stat().st_ino for path in (copy / "events-0").glob("*.log")}
    assert report.linked_bytes > 0
    assert [name for name in before if before[name] != after[name]] == [max(before)]
    assert values(copy) == values(source)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "data"]


def test_an_index_of_the_last_backup_stays_with_its_segment(tmp_path: Path) -> None:
    source, copy = written(tmp_path / "data"), tmp_path / "copy"
    backup(source, copy, links=False)
    # Kafka gives what it compacted the times of what was there; an index often keeps its size.
    log = min((source / "events-0").glob("*.log"))
    index = log.with_suffix(".index")
    for path, data in [(log, log.read_bytes()[: log.stat().st_size // 2]), (index, bytes(index.stat().st_size))]:
        status = path.stat()
        path.unlink()
        path.write_bytes(data)
        os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))
    backup(source, copy, links=False)
    for path in (log, index):
        assert (copy / "events-0" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_an_archive_holds_the_same(tmp_path: Path) -> None:
    source = written(tmp_path / "data")
    backup(source, tmp_path / "copy")
    stream = io.BytesIO()
    backup(source, stream)
    stream.seek(0)
    restore(stream, tmp_path / "from-archive")
    restore(tmp_path / "copy", tmp_path / "from-folder")
    expected = content(tmp_path / "copy")
    del expected[MARKER]
    assert content(tmp_path / "from-archive") == content(tmp_path / "from-folder") == expected
    copied = {path.stat().st_ino for path in (tmp_path / "copy").rglob("*")}
    assert not copied & {path.stat().st_ino for path in (tmp_path / "from-folder").rglob("*")}
    with odradek.open(tmp_path / "from-folder") as logs:
        assert logs["events", 0].append([Record(value=b"next")]) == 3000


@pytest.mark.slow
def test_a_directory_of_kafka_comes_out_with_every_record(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    for folder in (fixture_4_3_1.log_dir, fixture_4_3_1.log_dir_unclean):
        backup(folder, tmp_path / folder.name)
        assert list(verify(tmp_path / folder.name)) == []
        with odradek.open(folder, mode="r") as before, odradek.open(tmp_path / folder.name, mode="r") as after:
            assert before.topic_partitions() == after.topic_partitions()
            for owner in before.topic_partitions():
                assert list(after[owner].read()) == list(before[owner].read()), owner
                assert after[owner].log_start_offset == before[owner].log_start_offset


@pytest.mark.slow
def test_what_is_no_backup_is_left_alone(tmp_path: Path) -> None:
    source, other = written(tmp_path / "data"), written(tmp_path / "other")
    for target, reason in [
        (other, "neither empty nor a backup"),
        (source / "copy", "in one another"),
        (tmp_path, "in one another"),
        (other / "copy", "within the log directory"),
    ]:
        with pytest.raises(LogError, match=reason):
            backup(source, target)
    with pytest.raises(LogError, match="is not a backup"):
        restore(source, tmp_path / "new")
    backup(source, tmp_path / "copy")
    with pytest.raises(LogError, match="is not empty"):
        restore(tmp_path / "copy", other)
    (tmp_path / "taken.incomplete" / "mine").mkdir(parents=True)
    for action in (lambda: backup(source, tmp_path / "taken"), lambda: restore(tmp_path / "copy", tmp_path / "taken")):
        with pytest.raises(LogError, match="remove it first"):
            action()


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    for names in (["meta.properties"], [MARKER, "../outside"], [MARKER, "/tmp/outside"], [MARKER]):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as tar:
            for name in names:
                tar.addfile(tarfile.TarInfo(name))
        stream.seek(0)
        with pytest.raises(LogError):
            restore(stream, tmp_path / "data")
    with pytest.raises(LogError, match="cannot be read"):
        restore(io.BytesIO(b"nothing of the kind" * 100), tmp_path / "data")
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "outside").exists()


@pytest.mark.sampled
@pytest.mark.parametrize("renames", range(3))
def test_an_interrupted_backup_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    source, copy = written(tmp_path / "data", 300), tmp_path / "copy"
    backup(source, copy)
    with odradek.open(source) as logs:
        logs["events", 0].append([Record(value=b"more")])
    done = itertools.count()
    rename = os.rename

    def failing(*paths: Path) -> None:
        if next(done) == renames:
            raise KeyboardInterrupt
        rename(*paths)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", failing)
        if renames < 2:
            with pytest.raises(KeyboardInterrupt):
                backup(source, copy)
        else:
            backup(source, copy)
    there = copy if copy.exists() else tmp_path / "copy.previous"
    assert len(values(there)) == (300 if renames < 2 else 301)
    backup(source, copy)
    assert len(values(copy)) == 301
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "data"]


class _KilledError(BaseException):
    """The process is over at this moment."""


def is_killed(monkeypatch: pytest.MonkeyPatch, calls: int, action: Callable[[], object]) -> bool:
    """Whether an action changes the disk more than so many times; it is ended then."""
    done = itertools.count()

    def counted(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if next(done) >= calls:
            raise _KilledError
        return call(*arguments, **options)

    with monkeypatch.context() as patch:
        for name in ("rename", "link", "unlink", "mkdir", "rmdir", "pwrite", "utime"):
            patch.setattr(os, name, partial(counted, getattr(os, name)))
        try:
            action()
        except _KilledError:
            return True
    return False


@pytest.mark.slow
def test_a_backup_that_was_killed_anywhere_can_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, copy = written(tmp_path / "data", 700), tmp_path / "copy"
    backup(source, copy)
    calls = 0
    while is_killed(monkeypatch, calls, lambda: backup(source, copy, UnsyncedFileSystem())):
        assert is_backup(copy) or is_backup(tmp_path / "copy.previous")
        backup(source, copy, UnsyncedFileSystem())
        assert len(values(copy)) == 700
        assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "data"]
        calls += 1
    assert calls > 30


@pytest.mark.slow
def test_a_restore_that_was_killed_anywhere_can_be_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy, data, work = (tmp_path / name for name in ("copy", "data", "data.incomplete"))
    backup(written(data, 700), copy)
    shutil.rmtree(data)
    calls = unnamed = 0
    while is_killed(monkeypatch, calls, lambda: restore(copy, data, UnsyncedFileSystem())):
        if (work / "meta.properties").exists() and not (work / MARKER).exists():
            # It is whole, and no longer to be told from a log directory of somebody else.
            unnamed += 1
            with pytest.raises(LogError, match="remove it first"):
                restore(copy, data)
            work.rename(data)
        else:
            restore(copy, data, UnsyncedFileSystem())
        assert len(values(data)) == 700
        assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "data"]
        shutil.rmtree(data)
        calls += 1
    assert calls > 30
    assert unnamed == 1


def test_an_empty_folder_does_not_cost_the_last_backup(tmp_path: Path) -> None:
    source, copy = written(tmp_path / "data", 300), tmp_path / "copy"
    backup(source, copy)
    # As an interrupted backup leaves it; somebody made the folder again.
    copy.rename(tmp_path / "copy.previous")
    copy.mkdir()
    files = FaultyFileSystem(tmp_path)
    files.space_bytes = 10
    with pytest.raises(OSError, match="No space"):
        backup(source, copy, files)
    assert len(values(copy)) == 300


@pytest.mark.slow
def test_a_topic_that_was_deleted_meanwhile_is_not_in_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, copy = written(tmp_path / "data", 300), tmp_path / "copy"
    with odradek.open(source) as logs:
        for topic in ("deleted", "made-again"):
            logs.create_topic(topic, config=SMALL)
            logs[topic, 0].append([Record(value=b"old")])

        def change(*arguments: Any) -> Any:
            # The partitions are held by now, but not the metadata.
            logs.delete_topic("deleted")
            logs.delete_topic("made-again")
            logs.create_topic("made-again", config=SMALL)
            return transaction_states(*arguments)

        monkeypatch.setattr(run, "transaction_states", change)
        backup(source, copy)
    assert list(verify(copy)) == []
    restore(copy, tmp_path / "restored")
    with odradek.open(tmp_path / "restored") as restored:
        assert restored.problems == []
        assert restored.topics() == ["events", "made-again"]
        assert len(list(restored["events", 0].read())) == 300
        assert list(restored["made-again", 0].read()) == []


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("backups", [1, pytest.param(12, marks=pytest.mark.slow)])
def test_backups_beside_a_writer_are_of_one_moment(tmp_path: Path, backups: int) -> None:
    """Copy while records are appended, rolled, compacted and deleted; each copy must be a moment of the source.

    `states` takes 40 keys in turn, so its latest values are those of the last 40 records before the copy's end. Of
    `events`, whose head retention deletes, every record from the first to the last must be there.
    """
    keys, source = 40, tmp_path / "data"
    stop = threading.Event()
    with odradek.open(source, sync="off") as logs:
        logs.create_topic("states", config={**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
        logs.create_topic("events", config={**SMALL, "retention.bytes": 65536})

        def append() -> None:
            for number in itertools.count():
                if stop.is_set():
                    return
                records = [
                    Record(key=b"%d" % (n % keys), value=b"%09d" % n) for n in range(number * 50, number * 50 + 50)
                ]
                for topic in ("states", "events"):
                    logs[topic, 0].append(records)
                    if number % 11 == 0:
                        logs[topic, 0].roll()

        def maintain() -> None:
            while not stop.is_set():
                logs.maintain()

        threads = [threading.Thread(target=action) for action in (append, maintain)]
        for thread in threads:
            thread.start()
        try:
            while logs["events", 0].log_start_offset == 0:
                stop.wait(0.001)
            for number in range(backups):
                copy = tmp_path / "copy"
                backup(source, copy, links=number % 3 != 2)
                restored = tmp_path / f"restored-{number}"
                restore(copy, restored)
                with odradek.open(restored, sync="off") as copied:
                    events = [int(record.value or b"") for record in copied["events", 0].read()]
                    assert events == list(
                        range(copied["events", 0].log_start_offset, copied["events", 0].log_end_offset)
                    )
                    states = copied["states", 0]
                    latest = {record.key: int(record.value or b"") for record in states.read()}
                    assert sorted(latest.values()) == list(range(states.log_end_offset - keys, states.log_end_offset))
                assert not any(verify(restored))
        finally:
            stop.set()
            for thread in threads:
                thread.join()


class Coordinators:
    """A log directory whose logs are written as brokers do it, step by step.

    Attributes:
        logs: The log directory.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = odradek.open(folder, sync="off")
        for topic in ("a", "b", "__consumer_offsets", "__transaction_state"):
            self.logs.create_topic(topic, config=SMALL)
        self.checkpoints = RootCheckpoints(folder)
        self._sequences: dict[tuple[str, int], int] = {}

    def log(self, topic: str) -> WritableLog:
        return self.logs[topic, 0]

    def data(self, topic: str, producer_id: int, record: Record | None = None, epoch: int = 0) -> None:
        sequence = self._sequences.get((topic, producer_id), 0)
        self._sequences[topic, producer_id] = sequence + 1
        batch = transactional([record or Record(value=b"x")], producer_id, sequence, producer_epoch=epoch)
        self.log(topic).append_batches(batch)

    def commit(self, topic: str, producer_id: int, epoch: int = 0) -> None:
        self.log(topic).end_transaction(producer_id, epoch, commit=True)

    def state(self, producer_id: int, state: TransactionState, *, started: int = -1) -> None:
        partitions = tuple(TransactionTopic(topic, (0,)) for topic in "ab")
        # Kafka takes the time of the last update before it writes the markers.
        value = TransactionValue(producer_id, 0, 60000, state, partitions, 0, started)
        key, encoded = encode_transaction_record(f"id-{producer_id}", value)
        self.log("__transaction_state").append([Record(key=key, value=encoded)])

    def hold(self, topic: str) -> HeldPartition:
        owner = TopicPartition(topic, 0)
        return HeldPartition(self.folder / str(owner), owner, lambda: 0)

    def ends(self, held: list[HeldPartition]) -> dict[str, int]:
        with self.hold("__transaction_state") as states:
            known = transaction_states([states], self.checkpoints)
        found = coherent_ends(held, known, self.checkpoints)
        return {owner.topic: end for owner, end in found.items()}


@pytest.fixture
def coordinators(tmp_path: Path) -> Iterator[Coordinators]:
    made = Coordinators(tmp_path / "data")
    with made.logs:
        yield made


def test_a_transaction_that_has_ended_has_its_markers(coordinators: Coordinators) -> None:
    coordinators.data("a", 7)
    coordinators.data("b", 7)
    coordinators.data("a", 8)
    coordinators.state(7, TransactionState.PREPARE_COMMIT)
    coordinators.commit("a", 7)
    with coordinators.hold("a") as a, coordinators.hold("b") as b:
        coordinators.commit("b", 7)
        coordinators.state(7, TransactionState.COMPLETE_COMMIT)
        # It began after that, and may not be in the copy in one partition only.
        coordinators.data("b", 8)
        assert coordinators.ends([a, b]) == {"b": 2}


def test_a_transaction_that_has_not_ended_is_left_open(coordinators: Coordinators) -> None:
    for topic in "ab":
        coordinators.data(topic, 7)
    coordinators.state(7, TransactionState.ONGOING, started=1)
    with coordinators.hold("a") as a, coordinators.hold("b") as b, coordinators.hold("__transaction_state") as states:
        known = transaction_states([states], coordinators.checkpoints)
        # What comes after the states were read.
        coordinators.commit("a", 7)
        assert coherent_ends([a, b], known, coordinators.checkpoints) == {}


def test_a_transaction_that_will_be_committed_has_its_data(coordinators: Coordinators) -> None:
    with coordinators.hold("a") as a, coordinators.hold("b") as b, coordinators.hold("__transaction_state") as before:
        for topic in "ab":
            coordinators.data(topic, 7)
        coordinators.data("a", 8)
        coordinators.data("b", 9)
        coordinators.state(7, TransactionState.PREPARE_COMMIT)
        coordinators.state(9, TransactionState.PREPARE_ABORT)
        with coordinators.hold("__transaction_state") as states:
            known = transaction_states([states], coordinators.checkpoints)
        # What comes after the states were read: the markers, and the next transaction.
        for topic in "ab":
            coordinators.commit(topic, 7)
            coordinators.data(topic, 7)
        found = coherent_ends([a, b], known, coordinators.checkpoints)
        assert found == {TopicPartition(topic, 0): 1 for topic in "ab"}
        assert transaction_states([before], coordinators.checkpoints) == {}


def test_the_broker_times_tell_transactions_of_one_epoch(coordinators: Coordinators) -> None:
    coordinators.data("a", 7)
    with coordinators.hold("a") as a:
        coordinators.commit("a", 7)
        end_offset = coordinators.log("a").log_end_offset
        coordinators.data("a", 7)
        coordinators.state(7, TransactionState.ONGOING, started=1 << 60)
        assert coordinators.ends([a]) == {"a": end_offset}


def test_no_position_points_after_the_records(coordinators: Coordinators) -> None:
    coordinators.data("a", 7)
    value = OffsetCommitValue(2, "", 0)
    key, encoded = encode_offset_commit(OffsetCommitKey("group", "b", 0), value)
    with coordinators.hold("__consumer_offsets") as offsets, coordinators.hold("a") as a, coordinators.hold("b") as b:
        coordinators.log("b").append([Record(value=b"1"), Record(value=b"2"), Record(value=b"3")])
        coordinators.log("b").append([Record(value=b"4")])
        coordinators.data("__consumer_offsets", 7, Record(key=key, value=encoded))
        coordinators.commit("__consumer_offsets", 7)
        coordinators.commit("a", 7)
        coordinators.state(7, TransactionState.COMPLETE_COMMIT)
        ends = coordinators.ends([offsets, a, b])
        assert ends == {"__consumer_offsets": 2, "a": 2, "b": 2}
        owner = TopicPartition("b", 0)
        with HeldPartition(coordinators.folder / "b-0", owner, lambda: 0, ends["b"]) as longer:
            # A batch is whole.
            assert longer.end_offset == 3


def test_a_held_partition_notices_that_it_was_compacted(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data", sync="off") as logs:
        logs.create_topic("states", config={**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0})
        for number in range(30):
            logs["states", 0].append([Record(key=b"%d" % (number % 7), value=b"%09d" % number)])
        logs["states", 0].roll()
        owner = TopicPartition("states", 0)
        with HeldPartition(tmp_path / "data" / "states-0", owner, lambda: 0) as held:
            held.check()
            size_bytes = held.size_bytes
            logs.maintain()
            with pytest.raises(ChangedError):
                held.check()
            read = sum(len(os.pread(segment.file.descriptor, 1 << 20, 0)) for segment in held.segments)
            assert read == size_bytes
