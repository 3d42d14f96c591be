"""Tasks and the driver of a write to a log directory, without Spark between them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import odradek
from odradek.coordination.state_log import state_batch
from odradek.coordination.transactions.metadata import TransactionMetadata
from odradek.errors import FormatError, LogDirectoryLockedError, LogError, SinkError
from odradek.inspection.groups import load_groups
from odradek.messages.coordinators.transaction_records import TransactionState, encode_transaction_record
from odradek.places.folder_transaction import FolderTransaction
from odradek.places.group_log import state_partition
from odradek.records.append.validator import AppendOrigin
from odradek.records.compression import Codec
from odradek.spark.writing import folder_write
from odradek.spark.writing.epochs import PREFIX, Epoch
from odradek.spark.writing.folder_write import FolderWrite
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from peers.batches import transactional

QUERY = "5e0f63b3-2c0a-4f0c-8d3f-2f5a3f9f2a11"


@pytest.fixture
def log_dir(tmp_path: Path) -> Iterator[Path]:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("t", partitions=2)
    yield tmp_path / "data"
    # Nothing is left of what was staged, and nothing was ever staged within the log directory.
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def write_of(log_dir: Path, transactional_id: str | None = "", topic: str | None = "t") -> FolderWrite:
    return FolderWrite(log_dir, topic, Codec.ZSTD, log_dir.with_name("data.odradek-staging"), transactional_id)


def rows(*values: str, partition: int = 0, **columns: Any) -> list[pa.RecordBatch]:
    partitions = pa.array([partition] * len(values), pa.int32())
    return [pa.record_batch({"value": list(values), "partition": partitions, **columns})]


def committed(log_dir: Path, partition: int = 0) -> list[str]:
    with odradek.open(log_dir, "r") as logs:
        log = logs["t", partition]
        assert log.last_stable_offset == log.log_end_offset
        return [(record.value or b"").decode() for record in log.read(isolation="read_committed")]


@pytest.mark.parametrize("transactional_id", [None, ""])
def test_rows_of_all_tasks_in_the_order_of_the_tasks(log_dir: Path, transactional_id: str | None) -> None:
    write = write_of(log_dir, transactional_id)
    told = [write.write(rows("c", "d"), 1), write.write(rows(), 2), write.write(rows("a") + rows("b"), 0)]
    assert committed(log_dir) == []
    write.commit(told)
    write.commit([write.write(rows("e", partition=1), 0)])
    assert committed(log_dir) == ["a", "b", "c", "d"]
    assert committed(log_dir, 1) == ["e"]


@pytest.mark.slow
def test_more_rows_than_a_batch_takes(log_dir: Path) -> None:
    values = [f"{number:01000}" for number in range(3000)]
    for transactional_id in (None, ""):
        write = write_of(log_dir, transactional_id)
        write.commit([write.write(rows(*values), 0)])
    assert committed(log_dir) == values * 2


@pytest.mark.slow
def test_rows_that_a_partition_does_not_take_leave_nothing_behind(log_dir: Path) -> None:
    write = write_of(log_dir, topic=None)
    with odradek.open(log_dir) as logs:
        logs.create_topic("small", config={"max.message.bytes": "1000"})
    random_bytes = random.Random(1).randbytes(5000)
    long = pa.record_batch({"topic": ["t", "small"], "value": [b"x", random_bytes]})
    with pytest.raises(SinkError, match=r"small-0 of .*data does not take a record: .*max\.message\.bytes"):
        write.commit([write.write([long], 0)])
    assert committed(log_dir) == committed(log_dir, 1) == []
    write.commit([write.write(rows("a", topic=["t"]), 0)])
    assert committed(log_dir) == ["a"]


@pytest.mark.slow
def test_a_batch_of_a_stream_that_is_repeated_is_written_once(log_dir: Path) -> None:
    write, epoch = write_of(log_dir), Epoch(QUERY, 7)
    for tasks in (2, 2, 3):
        write.commit_epoch([write.write(rows("a"), task, epoch) for task in range(tasks)])
    after = Epoch(QUERY, 8)
    write.commit_epoch([write.write(rows("b"), 0, after)])
    assert committed(log_dir) == ["a", "a", "b"]
    with pytest.raises(SinkError, match="older copy"):
        write.commit_epoch([write.write(rows("a"), 0, epoch)])


@pytest.mark.slow
def test_a_new_query_under_the_transactional_id_of_an_earlier_one(log_dir: Path) -> None:
    write = write_of(log_dir, "job")
    write.commit_epoch([write.write(rows("old", partition=0), 0, Epoch("another", 100))])
    for _ in range(2):
        # The number is kept under another partition than the old query's higher one.
        write.commit_epoch([write.write(rows("new", partition=1), 0, Epoch(QUERY, 0))])
    assert committed(log_dir, 1) == ["new"]


class _CrashError(BaseException):
    pass


@pytest.mark.costly
# What a commit writes: the transaction, rows in two partitions, the position, the decision, three markers, the end.
@pytest.mark.slow
@pytest.mark.parametrize("step", range(9))
def test_a_crash_anywhere_in_a_commit(log_dir: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    write, epoch = write_of(log_dir), Epoch(QUERY, 0)
    left = step

    def crash_at(name: str, kind: type) -> None:
        before = getattr(kind, name)

        def called(self: Any, *given: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise _CrashError
            return before(self, *given, **named)

        monkeypatch.setattr(kind, name, called)

    def run() -> None:
        write.commit_epoch([write.write(rows("a") + rows("b", partition=1), 0, epoch)])

    with monkeypatch.context() as patched:
        monkeypatch = patched
        crash_at("append_batches", odradek.WritableLog)
        patched.setattr(WritableLogDirectory, "close", WritableLogDirectory.abandon)
        with pytest.raises(_CrashError):
            run()
    for _ in range(2):
        run()
        assert (committed(log_dir), committed(log_dir, 1)) == (["a"], ["b"])


@pytest.mark.parametrize("kind", [LogError, OSError])
def test_a_commit_that_fails_after_its_decision_says_so(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise kind("no space left")

    write = write_of(log_dir)
    with monkeypatch.context() as patched:
        patched.setattr(FolderTransaction, "_mark", fail)
        with pytest.raises(SinkError, match=r"are committed, .*: do not run the job again .no space left"):
            write.commit([write.write(rows("a"), 0)])
    with monkeypatch.context() as patched:
        patched.setattr(FolderTransaction, "begin", fail)
        with pytest.raises(kind, match=r"^no space left"):
            write.commit([write.write(rows("b"), 0)])
    assert committed(log_dir) == ["a"]


def test_a_folder_that_cannot_be_closed_after_a_commit(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    close = WritableLogDirectory.close

    def failing(logs: WritableLogDirectory) -> None:
        close(logs)
        raise LogError("a file cannot be synced")

    with monkeypatch.context() as patched:
        patched.setattr(WritableLogDirectory, "close", failing)
        write = write_of(log_dir)
        # The job must not be run again.
        write.commit([write.write(rows("a"), 0)])
        assert "are committed, but the folder could not be closed: a file cannot be synced" in caplog.text
        write = write_of(log_dir, None)
        with pytest.raises(LogError, match="a file cannot be synced"):
            write.commit([write.write(rows("b"), 0)])
    assert committed(log_dir) == ["a", "b"]


@pytest.mark.parametrize("is_there", [False, True])
def test_a_commit_whose_decision_fails_says_that_it_may_be_there(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    append = FolderTransaction._append

    def failing(transaction: FolderTransaction, state: TransactionMetadata) -> None:
        if state.state is not TransactionState.PREPARE_COMMIT:
            append(transaction, state)
            return
        if is_there:
            append(transaction, state)
        raise OSError("it cannot be synced")

    write = write_of(log_dir)
    with monkeypatch.context() as patched:
        patched.setattr(FolderTransaction, "_append", failing)
        with pytest.raises(SinkError, match=r"may be committed, .*: look before you run the job again .it cannot be"):
            write.commit([write.write(rows("a"), 0)])
    write.commit([write.write(rows("b"), 0)])
    assert committed(log_dir) == (["a", "b"] if is_there else ["b"])


@pytest.mark.slow
def test_a_broker_goes_on_with_the_folder(log_dir: Path) -> None:
    write = write_of(log_dir)
    write.commit_epoch([write.write(rows("a"), 0, Epoch(QUERY, 4))])
    with odradek.open(log_dir) as logs:
        # As a crash leaves it.
        FolderTransaction(logs, PREFIX).begin([odradek.TopicPartition("t", 0)])
        assert load_groups(logs).committed(f"{PREFIX}-{QUERY}")[odradek.TopicPartition("t", 0)].offset == 5
    with odradek.testing.Broker(log_dir) as broker:
        broker.clock.advance(120)
        records = broker.logs["t", 0].read(isolation="read_committed")
        assert [record.value for record in records] == [b"a"]
        assert broker.logs["t", 0].last_stable_offset == broker.logs["t", 0].log_end_offset


@pytest.mark.slow
def test_another_writer_is_named(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_write, "_LOCK_WAIT_S", 0.1)
    write = write_of(log_dir)
    with odradek.open(log_dir), pytest.raises(LogDirectoryLockedError, match="data is locked"):
        write.commit([write.write(rows("a"), 0)])
    assert committed(log_dir) == []


def test_no_folder_and_no_topic(log_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="there is no topic nowhere"):
        write_of(log_dir, topic="nowhere").check()
    for topic in ("t", None):
        with pytest.raises(LogError, match="nothing"):
            write_of(tmp_path / "nothing", topic=topic).check()
    assert not (tmp_path / "nothing").exists()


def test_a_place_where_nothing_can_be_staged_is_told(log_dir: Path) -> None:
    write = FolderWrite(log_dir, "t", Codec.NONE, log_dir / "meta.properties")
    with pytest.raises(SinkError, match=r"meta.properties/.*: rows cannot be staged: .*Not a directory"):
        write.write(rows("a"), 0)


def test_what_a_task_staged_is_not_there(log_dir: Path) -> None:
    write = write_of(log_dir)
    told = write.write(rows("a"), 0)
    assert told.path is not None
    told.path.unlink()
    with pytest.raises(SinkError, match="stagingPath"):
        write.commit([told])


@pytest.mark.parametrize("committed", [True, False])
def test_the_folder_finishes_what_a_broker_of_transaction_version_2_left(log_dir: Path, committed: bool) -> None:
    partition = odradek.TopicPartition("t", 0)
    began = TransactionMetadata(7, 3, 60_000, TransactionState.EMPTY, 0).with_partitions([partition], 2, 1)
    left = began.ending(commit=True, client_version=2, now_ms=2) if committed else began
    with odradek.open(log_dir) as logs:
        log = logs[state_partition(logs, "__transaction_state", PREFIX)]
        record = encode_transaction_record(PREFIX, left.to_value(1))
        log.append_batches(state_batch([record], 0), origin=AppendOrigin.COORDINATOR)
        logs[partition].append_batches(transactional([odradek.Record(value=b"a")], 7, producer_epoch=3))
        assert FolderTransaction(logs, PREFIX).producer == (7, left.producer_epoch + 1)
        found = logs[partition].read(isolation="read_committed")
        assert [one.value for one in found] == ([b"a"] if committed else [])
        assert logs[partition].last_stable_offset == 2


def test_only_damage_of_the_transactional_id_itself_stops_it(log_dir: Path) -> None:
    with odradek.open(log_dir) as logs:
        log = logs[state_partition(logs, "__transaction_state", PREFIX)]

        def append_damaged(transactional_id: str) -> None:
            key, _ = encode_transaction_record(transactional_id, None)
            # The version is Kafka's, and then the value ends.
            log.append_batches(state_batch([(key, b"\0\0")], 0), origin=AppendOrigin.COORDINATOR)

        append_damaged("another")
        assert FolderTransaction(logs, PREFIX).producer[1] == 0
        append_damaged(PREFIX)
        with pytest.raises(FormatError) as caught:
            FolderTransaction(logs, PREFIX)
        assert caught.value.path == str(log.segments[-1].path)
