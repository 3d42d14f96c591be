"""Many topics and partitions: what is written of them, and how often the disk is waited for."""

from __future__ import annotations

import errno
import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from cProfile import Profile
from pathlib import Path
from queue import SimpleQueue
from uuid import UUID

import pytest

import odradek
from odradek import NewTopic
from odradek.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidTopicError,
    LogOfflineError,
    OptionError,
    PolicyViolationError,
    TopicExistsError,
)
from odradek.records import Record
from odradek.storage.directory.log_opener import LogOpener
from odradek.storage.directory.maintenance import Maintenance, MaintenanceConfig, _Task, _Worker
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.files import FileSystem, WritableFile
from odradek.storage.formats.partition_metadata import PARTITION_METADATA, read_partition_metadata
from odradek.storage.log.writable_log import LogOwner, WritableLog
from odradek.storage.names import TopicPartition
from odradek.testing.faults import FaultyFileSystem


def syncs(files: FaultyFileSystem) -> int:
    return sum(operation.kind in {"sync", "sync_directory"} for operation in files.history)


def test_an_empty_partition_waits_for_no_sync(tmp_path: Path) -> None:
    files = FaultyFileSystem(tmp_path)
    with odradek.open(tmp_path, files=files) as logs:
        waited = []
        for name, partitions in (("one", 1), ("many", 50)):
            before = syncs(files)
            logs.create_topic(name, partitions)
            waited.append(syncs(files) - before)
        before = syncs(files)
        logs.create_partitions("many", 100)
        waited.append(syncs(files) - before)
        assert waited == [waited[0]] * 3
        topic_id = logs.topic_id("many")
        for number in range(100):
            assert read_partition_metadata(tmp_path / f"many-{number}" / PARTITION_METADATA) == topic_id


def test_logs_without_a_record_are_closed_and_opened_without_a_sync(tmp_path: Path) -> None:
    files = FaultyFileSystem(tmp_path)
    waited = []
    for count in (1, 30):
        path = tmp_path / str(count)
        with odradek.open(path, files=files) as logs:
            logs.create_topic("idle", count)
            assert [log.log_end_offset for log in logs] == [0] * count
            before = syncs(files)
        waited.append(syncs(files) - before)
        with odradek.open(path, files=files) as logs:
            before = syncs(files)
            assert [log.log_end_offset for log in logs] == [0] * count
            waited.append(syncs(files) - before)
    # The checkpoints and the marker.
    assert waited == [waited[0], 0, waited[0], 0]


@pytest.mark.slow
def test_many_logs_are_closed_in_order_by_several_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    files = FaultyFileSystem(tmp_path)
    logs = odradek.open(tmp_path / "data", files=files)
    logs.create_topic("events", 20)
    for number in range(20):
        logs["events", number].append(value=b"%d" % number)
    names: set[str] = set()
    both, closes = threading.Barrier(2), WritableLog.close

    def noted(self: WritableLog) -> None:
        names.add(threading.current_thread().name)
        both.wait(30)
        closes(self)

    monkeypatch.setattr(WritableLog, "close", noted)
    logs.close()
    monkeypatch.undo()
    assert len(names) == 2
    # All of it is on the disk: a power cut loses nothing.
    after = tmp_path / "after"
    after.mkdir()
    files.replay().cut_power(after)
    with odradek.open(after / "data") as logs:
        assert not logs.report
        assert [[record.value for record in log.read()] for log in logs] == [[b"%d" % n] for n in range(20)]


@pytest.mark.slow
def test_one_of_many_logs_that_fails_leaves_the_folder_unclean(tmp_path: Path) -> None:
    files = FaultyFileSystem(tmp_path)
    logs = odradek.open(tmp_path, files=files)
    logs.create_topic("events", 20)
    for number in range(20):
        logs["events", number].append(value=b"%d" % number)
    files.fail("sync", at="events-7/")
    with pytest.raises(LogOfflineError, match="events-7"):
        logs.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with odradek.open(tmp_path) as logs:
        assert [[record.value for record in log.read()] for log in logs] == [[b"%d" % n] for n in range(20)]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [range(0, 12, 4), range(12)])
def test_topics_made_in_one_call_outlive_a_power_cut(tmp_path: Path, seeds: range) -> None:
    live = tmp_path / "live"
    live.mkdir()
    files = FaultyFileSystem(live)
    logs = odradek.open(live, files=files)
    before = len(files.history)
    made = logs.create_topics([NewTopic("a", 5), NewTopic("b", 2, {"retention.ms": -1}), NewTopic("c")])
    after = len(files.history)
    logs["a", 3].append(value=b"kept", durable=True)
    partitions = logs.topic_partitions()
    assert len(partitions) == 8
    for seed in seeds:
        # In the middle of the call it has happened or it has not; afterwards it has.
        for moment in (before + seed * (after - before) // 12, after, len(files.history)):
            found = tmp_path / f"{seed}-{moment}"
            found.mkdir()
            files.replay(moment).cut_power(found, seed)
            with odradek.open(found, sync="off") as again:
                assert again.topic_partitions() in ([partitions] if moment >= after else [[], partitions])
                if again.topics():
                    assert [again.topic_id(topic.name) for topic in made] == [topic.topic_id for topic in made]
                    assert again.topic_config("b").retention_ms == -1
                    assert not again.strays
                    again["a", 4].append(value=b"first", durable=True)
                    assert read_partition_metadata(found / "a-4" / PARTITION_METADATA) == made[0].topic_id
                if moment > after:
                    assert [record.value for record in again["a", 3]] == [b"kept"]
    logs.close()


def test_all_topics_of_a_call_are_created_or_none(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("there", topic_id=UUID(int=1007))
        good = NewTopic("good")
        for error, wrong in (
            (TopicExistsError, [good, NewTopic("there")]),
            (TopicExistsError, [good, good]),
            (TopicExistsError, [good, NewTopic("other", topic_id=UUID(int=1007))]),
            (TopicExistsError, [NewTopic("b", topic_id=UUID(int=1008)), NewTopic("c", topic_id=UUID(int=1008))]),
            (InvalidTopicError, [NewTopic("a.b"), NewTopic("a_b")]),
            (InvalidTopicError, [good, NewTopic("no/name")]),
            (InvalidPartitionsError, [good, NewTopic("other", 0)]),
            (InvalidConfigError, [good, NewTopic("other", config={"retention.ms": "soon"})]),
            (PolicyViolationError, [NewTopic("x", 6_000), NewTopic("y", 6_000)]),
        ):
            with pytest.raises(error):
                logs.create_topics(wrong)
            assert logs.topics() == ["there"]
        assert logs.create_topics([]) == []
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["there-0"]


@pytest.mark.parametrize("error", [errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP])
def test_a_file_system_that_cannot_link_gets_a_file_each(tmp_path: Path, error: int) -> None:
    files = FaultyFileSystem(tmp_path)
    with odradek.open(tmp_path, files=files) as logs:
        files.fail("link", error=error, times=2)
        made = logs.create_topic("t", 4)
        paths = [tmp_path / f"t-{number}" / PARTITION_METADATA for number in range(4)]
        assert [read_partition_metadata(path) for path in paths] == [made.topic_id] * 4
        assert [path.stat().st_nlink for path in paths] == [2, 1, 1, 2]


def test_each_look_up_of_what_there_is_tells_of_every_change(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topics([NewTopic("b", 2), NewTopic("a")])
        assert logs.topic_partitions() == [("a", 0), ("b", 0), ("b", 1)]
        logs.create_partitions("a", 2)
        logs.delete_topic("b")
        assert logs.topics() == ["a"]
        assert logs.topic_partitions("a") == [("a", 0), ("a", 1)]
        assert TopicPartition("b", 0) not in logs


@pytest.mark.slow
def test_a_change_of_one_topic_takes_no_more_steps_beside_more_topics(tmp_path: Path) -> None:
    calls: dict[int, list[int]] = {}
    # Both leave as many topics in the block of the metadata that is not full.
    for count in (300, 300 + 256):
        with odradek.open(tmp_path / str(count), sync="off") as logs:
            logs.create_topics(NewTopic(f"t{number}") for number in range(count))
            calls[count] = [
                calls_of(lambda: logs.create_topic("one")),
                calls_of(lambda: logs["one", 0].append(value=b"")),
                calls_of(lambda: logs.create_partitions("one", 2)),
                calls_of(lambda: logs.alter_topic_config("one", {"retention.ms": 1})),
                calls_of(lambda: logs.delete_topic("one")),
            ]
    fewer, more = calls.values()
    # One more block of the metadata takes a few.
    assert all(many < few + 30 for few, many in zip(fewer, more, strict=True)), calls


def calls_of(action: Callable[[], object]) -> int:
    """Return how many functions an action calls."""
    profile = Profile()
    profile.runcall(action)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("name", ["sync", "sync_directory"])
def test_nothing_waits_for_the_disk_with_sync_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the disk was waited for")

    monkeypatch.setattr(WritableFile if name == "sync" else FileSystem, name, refuse)
    for _ in range(2):
        with odradek.open(tmp_path, sync="off") as logs:
            if not logs.topics():
                logs.create_topic("t", 2, {"cleanup.policy": "compact"})
            log = logs["t", 0]
            log.append(key=b"k", value=b"1", durable=True)
            log.roll()
            log.flush()
            logs.maintain()
    with odradek.open(tmp_path, mode="r") as reader:
        assert [record.value for record in reader["t", 0]][-1] == b"1"


def test_what_sync_can_be(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="'on' or 'off', not 'never'"):
        odradek.open(tmp_path, sync="never")  # type: ignore[call-overload]
    with pytest.raises(OptionError, match="give one of them"):
        odradek.open(tmp_path, sync="off", files=FaultyFileSystem(tmp_path))


@pytest.mark.slow
def test_many_logs_are_recovered_by_several_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = WritableLogDirectory(tmp_path / "data")
    logs.create_topic("events", 20)
    for number in range(20):
        logs["events", number].append([Record(None, b"%d" % number)])
    logs.abandon()
    names: set[str] = set()
    both = threading.Barrier(2)
    opens = LogOpener._open

    def noted(self: LogOpener, place: TopicPartition, owner: LogOwner) -> WritableLog:
        names.add(threading.current_thread().name)
        # Two logs at a time, until all are open.
        both.wait(30)
        return opens(self, place, owner)

    monkeypatch.setattr(LogOpener, "_open", noted)
    with WritableLogDirectory(tmp_path / "data") as logs:
        assert len(names) == 2
        assert [[record.value for record in log.read()] for log in logs] == [[b"%d" % n] for n in range(20)]


def test_each_second_only_logs_that_have_something_to_do_are_asked(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("idle", 20)
        logs.create_topic("timed", config={"flush.ms": 0})
        logs.create_topic(
            "short", config={"internal.segment.bytes": 200, "retention.bytes": 0, "file.delete.delay.ms": 0}
        )
        for topic_partition in logs.topic_partitions():
            logs[topic_partition].append(value=bytes(100))
        logs["short", 0].append(value=bytes(100))
        assert logs["short", 0].upkeep.delete_old_segments()
        asked: list[str] = []
        profile = Profile()
        profile.runcall(logs._maintenance._flush_due)
        profile.runcall(logs._maintenance._remove_deleted)
        for entry in profile.getstats():
            asked += [getattr(entry.code, "co_name", "")] * entry.callcount
        assert (asked.count("flush_if_due"), asked.count("remove_deleted_files")) == (1, 1)
        assert logs["timed", 0].recovery_point == 1
        assert not list((tmp_path / "short-0").glob("*.deleted"))


@pytest.mark.slow
def test_a_log_says_when_something_of_it_falls_due(tmp_path: Path) -> None:
    files = FaultyFileSystem(tmp_path)
    with odradek.open(tmp_path, files=files) as logs:
        logs.create_topic("events", 3)
        maintenance = logs._maintenance

        def pending() -> list[int]:
            return sorted(log.topic_partition.partition for log in maintenance._pending_logs())

        assert [log.append(value=b"1") for log in logs] == [0, 0, 0]
        assert (pending(), len(maintenance.pending)) == ([], 0)
        logs.alter_topic_config("events", {"flush.ms": 60_000})
        assert pending() == [0, 1, 2]
        logs.alter_topic_config("events", {"flush.ms": None})
        assert pending() == []
        files.fail("write", error=errno.ENOSPC, at="events-1/")
        with pytest.raises(LogOfflineError):
            logs["events", 1].append(value=b"2")
        assert pending() == [1]
        maintenance._reopen()
        assert (logs["events", 1].append(value=b"2"), pending()) == (1, [])


def test_a_log_that_was_closed_or_deleted_is_not_pending_any_more(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        maintenance = logs._maintenance
        for topic in ("closed", "deleted"):
            logs.create_topic(topic, config={"flush.ms": 0})
            logs[topic, 0].append(value=b"1")
        assert len(maintenance._pending_logs()) == 2
        logs["closed", 0].close()
        logs.delete_topic("deleted")
        maintenance._flush_due()
        assert not maintenance.pending


@pytest.mark.slow
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_thread_of_the_maintenance_works_when_it_is_time_or_woken(tmp_path: Path, is_stopped: bool) -> None:
    worked: SimpleQueue[int] = SimpleQueue()

    def work(_: Maintenance, tasks: list[_Task]) -> float:
        worked.put(1)
        # The greatest `log.cleaner.backoff.ms`, for which no thread of the system can wait.
        return (2**63 - 1) / 1000

    with odradek.open(tmp_path) as logs:
        maintenance = Maintenance(logs, MaintenanceConfig(), clock=lambda: 0)
        worker = _Worker("log-cleaner", maintenance, work, [])
        worker.start()
        worked.get(timeout=30)
        worker.wake()
        worked.get(timeout=30)
        if is_stopped:
            worker.stop()
        # Otherwise it ends because nothing refers to the maintenance any more.
        del maintenance
        gc.collect()
        worker.join(30)
        assert (worker.is_alive(), worked.qsize()) == (False, 0)


def test_a_log_that_an_exception_kept_from_saying_so_is_found_by_retention(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("events", config={"flush.ms": 0})
        log = logs["events", 0]
        log.append(value=b"1")
        maintenance = logs._maintenance
        # As by Ctrl-C between what falls due and its announcement.
        maintenance.pending.clear()
        maintenance._delete_old_segments()
        maintenance._flush_due()
        assert log.recovery_point == 1


def test_an_exception_in_the_look_at_the_logs_loses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("events", 3, {"flush.ms": 60_000})
        list(logs)
        maintenance = logs._maintenance

        def interrupt(_: TopicPartition) -> WritableLog:
            raise KeyboardInterrupt

        with monkeypatch.context() as interrupted:
            interrupted.setattr(logs, "open_log", interrupt)
            with pytest.raises(KeyboardInterrupt):
                maintenance._pending_logs()
        assert len(maintenance._pending_logs()) == 3


def test_a_log_that_says_so_again_and_again_is_noted_once(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("events")
        list(logs)
        for number in range(5):
            logs.alter_topic_config("events", {"flush.ms": number})
        assert len(logs._maintenance.pending) == 1


@pytest.mark.slow
@pytest.mark.parametrize("begins", ["", "import concurrent.futures.thread"])
def test_many_logs_are_closed_by_a_program_that_is_ending(tmp_path: Path, begins: str) -> None:
    program = f"""
import atexit, sys, odradek
{begins}
logs = odradek.open(sys.argv[1])
logs.create_topic("events", 20)
for log in logs:
    log.append(value=b"1")
atexit.register(logs.close)
"""
    ended = subprocess.run([sys.executable, "-c", program, tmp_path / "data"], capture_output=True, text=True)
    assert (ended.stderr, (tmp_path / "data" / ".kafka_cleanshutdown").exists()) == ("", True)


@pytest.mark.slow
def test_a_durable_append_after_an_opening_that_failed_outlasts_a_power_cut(tmp_path: Path) -> None:
    live = tmp_path / "live"
    with WritableLogDirectory(live / "data") as logs:
        logs.create_topic("events")
    files = FaultyFileSystem(live)
    logs = WritableLogDirectory(live / "data", files=files)
    files.fail("sync_directory", at="events-0")
    with pytest.raises(LogOfflineError):
        logs["events", 0]
    logs["events", 0].append(value=b"1", durable=True)
    disk = files.replay()
    logs.abandon()
    for seed in range(10):
        after = tmp_path / str(seed)
        after.mkdir()
        disk.cut_power(after, seed)
        with WritableLogDirectory(after / "data") as again:
            assert [record.value for record in again["events", 0]] == [b"1"]
