"""What a forked child may do with what its parent has open: read it, as it was at the fork."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import odradek
from odradek.errors import LogDirectoryLockedError, LogError
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.storage.directory.writable_log_directory import WritableLogDirectory


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[WritableLogDirectory]:
    with odradek.open(tmp_path / "data") as logs:
        for topic in ("looked-at", "not-looked-at"):
            logs.create_topic(topic, config={"cleanup.policy": "compact,delete"})
        logs["looked-at", 0].append([Record(b"k", b"v")], durable=True)
        yield logs


def in_a_child(action: Callable[[], object]) -> None:
    """Run something in a fork of this process; it fails there if it raises."""
    pid = os.fork()
    if pid == 0:
        try:
            action()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


CHANGES: dict[str, Callable[[WritableLogDirectory], object]] = {
    "append": lambda logs: logs["looked-at", 0].append([Record(b"k", b"w")]),
    "append, durable": lambda logs: logs["looked-at", 0].append([Record(b"k", b"w")], durable=True),
    "append batches": lambda logs: logs["looked-at", 0].append_batches(build_batch([Record(b"k", b"w")])),
    "end a transaction": lambda logs: logs["looked-at", 0].end_transaction(1, 0, commit=True),
    "append to a log that was not looked at": lambda logs: logs["not-looked-at", 0].append([Record(b"k", b"w")]),
    "open a log that was not looked at": lambda logs: logs["not-looked-at", 0],
    "have a log on the disk": lambda logs: logs["looked-at", 0].flushing.make_durable(),
    "flush a log": lambda logs: logs["looked-at", 0].flush(),
    "roll": lambda logs: logs["looked-at", 0].roll(),
    "delete records": lambda logs: logs["looked-at", 0].delete_records(),
    "delete old segments": lambda logs: logs["looked-at", 0].upkeep.delete_old_segments(),
    "create a topic": lambda logs: logs.create_topic("new"),
    "let a topic grow": lambda logs: logs.create_partitions("looked-at", 2),
    "alter a topic": lambda logs: logs.alter_topic_config("looked-at", {"retention.ms": "1"}),
    "delete a topic": lambda logs: logs.delete_topic("looked-at"),
    "take producer ids": lambda logs: logs.take_producer_ids(),
    "maintain": lambda logs: logs.maintain(),
    "flush": lambda logs: logs.flush(),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", CHANGES)
def test_a_child_changes_nothing(logs: WritableLogDirectory, tmp_path: Path, name: str) -> None:
    def change() -> None:
        with pytest.raises(LogError, match=f"was opened by process {os.getppid()}: a fork of it"):
            CHANGES[name](logs)

    before = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "data").rglob("*"))
    in_a_child(change)
    assert sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "data").rglob("*")) == before
    assert logs["looked-at", 0].append([Record(b"k", b"x")]) == 1


def test_a_child_is_refused_at_once_where_another_thread_held_the_locks(logs: WritableLogDirectory) -> None:
    log = logs["looked-at", 0]
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with logs._guard.lock, log.guard.flush_lock, log.guard.lock:
            held.set()
            let_go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def change() -> None:
        for action in CHANGES.values():
            with pytest.raises(LogError, match="a fork of it"):
                action(logs)
        logs.close()
        log.close()

    try:
        in_a_child(change)
    finally:
        let_go.set()
        thread.join()


def test_a_child_reads_what_was_there_and_closes_nothing(logs: WritableLogDirectory) -> None:
    log = logs["looked-at", 0]

    def read() -> None:
        assert [record.value for record in log.read()] == [b"v"]
        assert log.offset_for_time(0) == 0
        log.refresh()
        with pytest.raises(LogDirectoryLockedError):
            odradek.open(logs.path)
        log.close()
        logs.close()

    in_a_child(read)
    assert (logs.path / ".lock").exists()
    assert log.append([Record(b"k", b"w")], durable=True) == 1


@pytest.mark.slow
def test_a_child_opens_the_folder_once_its_parent_has_closed_it(tmp_path: Path) -> None:
    logs = odradek.open(tmp_path)
    logs.create_topic("t")
    ready, done = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.read(ready, 1)
            with odradek.open(tmp_path) as ours:
                ours["t", 0].append([Record(b"k", b"v")])
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    logs.close()
    os.write(done, b"x")
    _, status = os.waitpid(pid, 0)
    for descriptor in (ready, done):
        os.close(descriptor)
    assert os.waitstatus_to_exitcode(status) == 0
    with odradek.open(tmp_path) as again:
        assert not again.report
        assert again["t", 0].log_end_offset == 1


@pytest.mark.slow
@pytest.mark.parametrize("auto_commit", [True, False])
def test_a_child_reads_with_its_parents_consumer_and_commits_nothing(
    logs: WritableLogDirectory, tmp_path: Path, auto_commit: bool
) -> None:
    log = logs["looked-at", 0]
    log.append([Record(b"k", b"w"), Record(b"k", b"x")])
    store = f"file://{tmp_path}/offsets.json"
    with odradek.consume(
        logs.path,
        "looked-at",
        group=store,
        auto_commit=auto_commit,
        auto_commit_interval_ms=0,
        auto_offset_reset="earliest",
        follow=False,
    ) as consumer:
        assert next(consumer).record.value == b"v"

        def read() -> None:
            with consumer:
                assert [consumed.record.value for consumed in consumer] == [b"w", b"x"]
                with pytest.raises(LogError, match="a fork of it"):
                    consumer.commit()

        in_a_child(read)
        assert [consumed.record.value for consumed in consumer] == [b"w", b"x"]
        consumer.commit()
    with odradek.open_store(store) as opened:
        assert opened.load().offset(log.topic_partition) == 3
