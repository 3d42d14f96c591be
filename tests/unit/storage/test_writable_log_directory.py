"""A log directory that is written to: topics, locking, closing, recovery after a crash, several folders."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import odradek
from odradek.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    LogDirectoryLockedError,
    LogError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from odradek.records import Record
from odradek.storage.directory_state import CLEAN_SHUTDOWN_MARKER
from odradek.storage.writable_log_directory import WritableLogDirectory
from peers.kafka_fixture import KafkaFixture


def values(log: odradek.Log) -> list[bytes | None]:
    return [record.value for record in log.read()]


def test_the_interface_as_it_is_promised(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events", partitions=3, config={"compression.type": "zstd"})
        log = logs["events", 0]
        first = log.append([odradek.Record(key=b"tech", value=b"for good", headers=[("trace", b"1")])])
        assert [record.value for record in log.read(start_offset=first)] == [b"for good"]
        assert log.offset_for_time(1_600_000_000_000) == 0
    with odradek.open(tmp_path / "data", mode="r") as logs:
        assert logs.topics() == ["events"]
        assert [record.headers for record in logs["events", 0].read()] == [(("trace", b"1"),)]
    with pytest.raises(LogError, match="mode"):
        odradek.open(tmp_path / "data", mode="w")  # type: ignore[call-overload]


def test_one_program_writes_at_a_time(tmp_path: Path) -> None:
    with odradek.open(tmp_path), pytest.raises(LogDirectoryLockedError):
        odradek.open(tmp_path)
    with odradek.open(tmp_path) as logs:
        assert logs.topics() == []


def test_topics_come_grow_change_and_go(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        created = logs.create_topic("a", partitions=2, config={"retention.ms": "-1"})
        with pytest.raises(TopicExistsError):
            logs.create_topic("a")
        with pytest.raises(InvalidConfigError, match="retention"):
            logs.create_topic("b", config={"retention.ms": "soon"})
        logs["a", 1].append([Record(None, b"1")])
        logs.create_partitions("a", 3)
        with pytest.raises(InvalidPartitionsError):
            logs.create_partitions("a", 2)
        logs["a", 2].append([Record(None, b"2")])
        assert logs.alter_topic_config("a", {"max.message.bytes": "2000"}).max_message_bytes == 2000
        assert logs["a", 1].config.max_message_bytes == 2000
        assert logs.topic_partitions("a") == [("a", 0), ("a", 1), ("a", 2)]
        with pytest.raises(UnknownTopicOrPartitionError):
            logs["a", 3]
        logs.create_topic("b")
        logs["b", 0].append([Record(None, b"b")])
        logs.delete_topic("b")
        with pytest.raises(UnknownTopicOrPartitionError):
            logs["b", 0]
    with odradek.open(tmp_path) as logs:
        assert logs.topics() == ["a"]
        assert logs.topic_id("a") == created.topic_id
        assert logs.topic_config("a").overrides == {"retention.ms": "-1", "max.message.bytes": "2000"}
        assert [values(log) for log in logs] == [[], [b"1"], [b"2"]]
        assert not list(tmp_path.glob("*-delete"))
        logs.create_topic("b")
        assert values(logs["b", 0]) == []


@pytest.mark.parametrize("crashed", [False, True])
def test_what_kafka_wrote_goes_on(crashed: bool, kafka_fixture: KafkaFixture, tmp_path: Path) -> None:
    source = kafka_fixture.log_dir_unclean if crashed else kafka_fixture.log_dir
    directory = Path(shutil.copytree(source, tmp_path / "log-dir"))
    ends = {}
    with odradek.open(directory) as logs:
        assert not logs.strays
        for log in logs:
            name = log.topic_partition
            if name.topic.startswith("__"):
                continue
            consumed = kafka_fixture.records(str(name))
            assert list(log.read()) == consumed
            assert list(log.read(isolation="read_committed")) == kafka_fixture.records(str(name), "read_committed")
            ends[name] = log.append([Record(b"new", b"record")], durable=True)
            assert [record.value for record in log.read(ends[name])] == [b"record"]
        assert bool(logs.report.segments_scanned) == crashed
    assert (directory / CLEAN_SHUTDOWN_MARKER).exists()
    with odradek.open(directory) as logs:
        for name, end in ends.items():
            assert logs[name].log_end_offset == end + 1
            assert not logs[name].report
            assert values(logs[name])[-1] == b"record"


def test_folders_of_unknown_origin_become_topics(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "a") as logs:
        logs.create_topic("t", partitions=2)
        topic_id = logs.topic_id("t")
        logs["t", 1].append([Record(None, b"v")])
    shutil.copytree(tmp_path / "a" / "t-1", tmp_path / "b" / "t-1")
    with odradek.open(tmp_path / "b") as logs:
        assert logs.topic_id("t") == topic_id
        assert [values(log) for log in logs] == [[], [b"v"]]
    shutil.copytree(tmp_path / "a" / "t-1", tmp_path / "b" / "other-0")
    with odradek.open(tmp_path / "b") as logs:
        assert logs.topics() == ["t"]
        assert logs.strays == [tmp_path / "b" / "other-0"]


def test_several_folders(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    with WritableLogDirectory(paths) as logs:
        logs.create_topic("t", partitions=4)
        for number in range(4):
            logs["t", number].append([Record(None, b"%d" % number)])
    for path in paths:
        assert len(list(path.glob("t-*"))) == 2
        assert (path / CLEAN_SHUTDOWN_MARKER).exists()
    with WritableLogDirectory(paths) as logs:
        assert [values(log) for log in logs] == [[b"0"], [b"1"], [b"2"], [b"3"]]
    with odradek.open(tmp_path / "c"):
        pass
    with pytest.raises(LogError, match="another cluster"):
        WritableLogDirectory([tmp_path / "a", tmp_path / "c"])
    with pytest.raises(LogError, match="twice"):
        WritableLogDirectory([tmp_path / "a", tmp_path / "b" / ".." / "a"])


def test_few_files_are_open_at_a_time(tmp_path: Path) -> None:
    with WritableLogDirectory(tmp_path, max_open_logs=2) as logs:
        logs.create_topic("t", partitions=20, config={"index.interval.bytes": "10"})
        for turn in range(3):
            for log in logs:
                log.append([Record(None, b"%d" % turn, timestamp=0)] * 5)
        opened = [path for path in Path("/proc/self/fd").iterdir() if str(tmp_path) in str(path.resolve())]
        assert len(opened) < 20
        for log in logs:
            assert values(log) == [b"0"] * 5 + [b"1"] * 5 + [b"2"] * 5
    with odradek.open(tmp_path, mode="r") as logs:
        for log in logs:
            assert not log.damage
            assert len(values(log)) == 15
            for segment in log.segments:
                segment.offset_index.check()
                segment.time_index.check()
                assert segment.offset_index.count == 2
