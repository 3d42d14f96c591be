"""A log directory that is written to: topics, locking, closing, recovery after a crash, several folders."""

from __future__ import annotations

import errno
import gc
import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import odradek
from odradek.errors import (
    CheckpointError,
    InvalidConfigError,
    InvalidPartitionsError,
    LogDirectoryLockedError,
    LogError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from odradek.kafka_version import KAFKA_VERSION
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.files import FileSystem
from odradek.storage.formats.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from odradek.storage.metadata.cluster import ClusterMetadata
from odradek.storage.names import CLEAN_SHUTDOWN_MARKER, TopicPartition
from peers.descriptors import descriptors
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


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.parametrize("crashed", [False, True])
def test_what_kafka_wrote_goes_on(crashed: bool, kafka_fixture: KafkaFixture, tmp_path: Path) -> None:
    source = kafka_fixture.log_dir_unclean if crashed else kafka_fixture.log_dir
    directory = Path(shutil.copytree(source, tmp_path / "log-dir"))
    if crashed:
        # As the broker would have done within a minute: until then a crash forgets that records were deleted.
        write_offset_checkpoint(directory / LOG_START_OFFSET_CHECKPOINT, kafka_fixture.log_start_offsets)
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


@pytest.mark.parametrize("first_is_new", [False, True])
def test_the_folder_with_the_metadata_comes_first(first_is_new: bool, tmp_path: Path) -> None:
    # Taken for a folder of partitions only, it would give its topics the default retention.
    paths = [tmp_path / "a", tmp_path / "b"]
    with odradek.open(paths[:1] if first_is_new else paths) as logs:
        logs.create_topic("t", config={"retention.ms": "-1"})
    with pytest.raises(LogError, match="/a holds the metadata of the topics: it has to be the first folder"):
        odradek.open(paths[::-1])
    with odradek.open(paths) as logs:
        assert logs.topic_config("t").retention_ms == -1


def test_a_new_topic_has_none_of_the_records_of_a_stray_folder(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", partitions=2, config={"segment.ms": "1000", "cleanup.policy": "compact,delete"})
        logs["t", 0].append([Record(b"k", b"old")] * 3)
        logs["t", 0].delete_records(2)
    # A crash, once the metadata had lost the topic and before its folders were marked.
    metadata = ClusterMetadata(tmp_path)
    metadata.delete_topics(["t"])
    write_offset_checkpoint(tmp_path / CLEANER_OFFSET_CHECKPOINT, {TopicPartition("t", 0): 2})
    with odradek.open(tmp_path) as logs:
        assert logs.strays == [tmp_path / "t-0", tmp_path / "t-1"]
        logs.create_topic("t")
        assert (logs["t", 0].log_start_offset, logs["t", 0].log_end_offset) == (0, 0)
        logs["t", 0].append([Record(b"k", b"new")])
        aside, other = logs.strays
        assert (aside.parent, other) == (tmp_path, tmp_path / "t-1")
        assert aside.name.startswith("t-0.")
        assert aside.name.endswith("-stray")
        assert read_offset_checkpoint(tmp_path / CLEANER_OFFSET_CHECKPOINT) == {}
    with odradek.open(tmp_path) as logs:
        assert values(logs["t", 0]) == [b"new"]
        assert set(logs.strays) == {aside, other}


def test_a_deleted_topic_is_removed_in_its_time(tmp_path: Path) -> None:
    now = [1_700_000_000_000]
    with WritableLogDirectory(tmp_path, clock=lambda: now[0]) as logs:
        logs.create_topic("t", partitions=2, config={"file.delete.delay.ms": "1000"})
        write_offset_checkpoint(tmp_path / CLEANER_OFFSET_CHECKPOINT, {TopicPartition("t", 1): 2})
        logs.delete_topic("t")
        assert read_offset_checkpoint(tmp_path / CLEANER_OFFSET_CHECKPOINT) == {}
        logs.refresh()
        logs.maintain()
        first, second = tmp_path.glob("t-*-delete")
        (first / "of-somebody-else").mkdir()
        shutil.rmtree(second)
        now[0] += 1000
        logs.maintain()
        assert not list(tmp_path.glob("t-*"))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("log.retention.ms", "soon", "'soon' is not a whole number"),
        ("log.retention.check.interval.ms", "1_000", "'1_000' is not a whole number"),
        ("log.retention.check.interval.ms", "0", "'0' is not within 1 to 9223372036854775807"),
        ("log.retention.check.interval.ms", None, "None is neither text nor a number nor a bool"),
        ("log.retention.check.interval.ms", 0, "'0' is not within 1 to 9223372036854775807"),
        ("log.retension.ms", "1", "no such setting of a broker; did you mean log.retention.ms?"),
        ("log.retention.hour", "1", "no such setting of a broker; did you mean log.retention.hours?"),
        ("retention.ms", "1", "this is a setting of a topic; the broker's for all topics is log.retention.ms"),
        ("Retention.ms", "1", "retention.ms is a setting of a topic; the broker's for all topics is log.retention.ms"),
        ("retention_ms", "1", "retention.ms is a setting of a topic; the broker's for all topics is log.retention.ms"),
        ("retention.mss", "1", "retention.ms is a setting of a topic; the broker's for all topics is log.retention.ms"),
        ("log_retention_ms", "1", "no such setting of a broker; did you mean log.retention.ms?"),
        ("node_id", "1", "no such setting of a broker; did you mean node.id?"),
        ("LOG-DIRS", "1", "no such setting of a broker; did you mean log.dirs?"),
        ("log.cleaner.io.max.bytes.per.second", "nan", "'nan' is not a number"),
        ("log.cleaner.io.max.bytes.per.second", "0", "'0' is not within 1 to inf"),
        ("log.cleaner.dedupe.buffer.size", "0", "'0' is not within 4096 to"),
        ("log.cleaner.io.buffer.load.factor", "0", "'0' is not within 0.01 to 1"),
        ("log.cleaner.enable", "yes", "'yes' is neither true nor false"),
    ],
)
def test_settings_of_the_broker_are_checked_when_it_is_opened(
    name: str, value: Any, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidConfigError, match=re.escape(f"{name}: {reason}")):
        odradek.open(tmp_path / "data", config={name: value})
    assert not (tmp_path / "data").exists()


def test_settings_may_be_numbers_and_bools_and_are_kept_as_text(tmp_path: Path) -> None:
    broker = {"log.retention.check.interval.ms": 60_000, "log.cleaner.enable": False, "log.retention.hours": 2}
    with odradek.open(tmp_path / "data", config=broker) as logs:
        logs.create_topic("t", config={"retention.bytes": 1 << 30, "preallocate": True, "segment.ms": "5"})
        logs.alter_topic_config("t", {"min.cleanable.dirty.ratio": 0.25, "segment.ms": None})
        config = logs.topic_config("t")
    assert config.overrides == {
        "retention.bytes": "1073741824",
        "preallocate": "true",
        "min.cleanable.dirty.ratio": "0.25",
    }
    assert (config.retention_ms, config.preallocate, config.min_cleanable_dirty_ratio) == (7_200_000, True, 0.25)


OF_OTHER_VERSIONS = [
    "zookeeper.connect",
    "zookeeper.connection.timeout.ms",
    "zookeeper.session.timeout.ms",
    "zookeeper.max.in.flight.requests",
    "broker.id.generation.enable",
    "reserved.broker.max.id",
    "inter.broker.protocol.version",
    "log.message.format.version",
    "log.message.timestamp.difference.max.ms",
    "log.message.downconversion.enable",
    "delegation.token.master.key",
    "offsets.commit.required.acks",
    "advertised.host.name",
    "advertised.port",
    "host.name",
    "port",
    "group.coordinator.new.enable",
    "password.encoder.secret",
    "password.encoder.old.secret",
    "control.plane.listener.name",
    "eligible.leader.replicas.enable",
    "auto.include.jmx.reporter",
    "confluent.support.metrics.enable",
    "zookeeper.metadata.migration.enable",
]
"""Of earlier Kafkas, and of others'; some are like those of today."""


def test_settings_of_a_broker_that_are_not_used_here_are_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config: dict[str, odradek.ConfigValue] = {
        "listeners": "PLAINTEXT://:9092",
        "num.partitions": 3,
        "listener.name.external.ssl.keystore.location": "/etc/kafka/external.jks",
        **dict.fromkeys(OF_OTHER_VERSIONS, "1"),
    }
    with odradek.open(tmp_path / "data", config=config):
        pass
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"{name} is not a setting of Kafka {KAFKA_VERSION}'s broker, and has no effect"
        for name in ("listener.name.external.ssl.keystore.location", *OF_OTHER_VERSIONS)
    ]


def test_misspelt_settings_of_a_topic_are_named_with_the_nearest(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        with pytest.raises(InvalidConfigError, match=r"retention\.m: .*did you mean retention\.ms\?"):
            logs.create_topic("t", config={"retention.m": 1})
        with pytest.raises(InvalidConfigError, match=r"log\.retention\.hours: .*did you mean retention\.ms\?"):
            logs.create_topic("t", config={"log.retention.hours": 1})
        logs.create_topic("t")
        with pytest.raises(InvalidConfigError, match=r"did you mean cleanup\.policy\?"):
            logs.alter_topic_config("t", {"cleanup.polity": "compact"})
        assert logs.topic_config("t").overrides == {}


def test_a_log_that_cannot_be_opened_does_not_keep_the_others_from_being_shortened(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        for name, policy in (("a", "compact,delete"), ("b", "delete"), ("c", "compact")):
            logs.create_topic(name, config={"retention.ms": "1000", "cleanup.policy": policy})
            for _ in range(2):
                logs[name, 0].append([Record(b"k", b"v", timestamp=1000)] * 5)
                logs[name, 0].roll()
    (tmp_path / "a-0" / "leader-epoch-checkpoint").write_text("garbage")
    interval = {"log.retention.check.interval.ms": "20", "log.initial.task.delay.ms": "0"}
    with odradek.open(tmp_path, config=interval, background=True) as logs:
        deadline = time.monotonic() + 20
        while logs["b", 0].log_start_offset < 10 or len(values(logs["c", 0])) > 1:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(CheckpointError, match="a-0/leader-epoch-checkpoint"):
            logs.maintain()


def test_producers_of_old_records_are_forgotten_no_sooner_than_by_kafka(tmp_path: Path) -> None:
    batch = build_batch([Record(b"k", b"v", timestamp=1000)], producer_id=1, producer_epoch=0, base_sequence=0)
    config = {"log.initial.task.delay.ms": "0"}
    with odradek.open(tmp_path, config=config) as logs:
        logs.create_topic("t", config={"retention.ms": "-1"})
        log = logs["t", 0]
        log.append_batches(batch)
        maintenance = logs._maintenance
        for task in maintenance._tasks():
            if task.due <= time.monotonic():
                task.run()
        assert 1 in log.producers.producers
        logs.maintain()
        assert 1 not in log.producers.producers


def test_an_index_that_has_room_for_no_entry(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t", config={"segment.index.bytes": "4", "index.interval.bytes": "0"})
        for number in range(4):
            logs["t", 0].append([Record(None, b"%d" % number, timestamp=1_700_000_000_000 + number)])
    with odradek.open(tmp_path) as logs:
        assert not logs.report
        assert values(logs["t", 0]) == [b"0", b"1", b"2", b"3"]
        assert logs["t", 0].offset_for_time(1_700_000_000_002) == 2


def test_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LogError, match="file cannot be made a log directory: File exists"):
        odradek.open(tmp_path / "file")
    with pytest.raises(LogError, match="file cannot be read as a log directory: Not a directory"):
        odradek.open(tmp_path / "file", mode="r")
    with pytest.raises(LogError, match="several folders"):
        odradek.open([tmp_path], mode="r")  # type: ignore[call-overload]


def test_checkpoints_that_kafka_had_no_time_to_write_are_written(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
    # Kafka makes them when it starts, and was killed.
    (tmp_path / CLEAN_SHUTDOWN_MARKER).unlink()
    for checkpoint in (LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT):
        (tmp_path / checkpoint).write_bytes(b"")
    for value in (b"0", b"1"):
        with odradek.open(tmp_path) as logs:
            logs["t", 0].append(value=value)
    with odradek.open(tmp_path, mode="r") as reader:
        assert [record.value for record in reader["t", 0]] == [b"0", b"1"]
        assert reader.problems == []


@pytest.mark.slow
def test_few_files_are_open_at_a_time(tmp_path: Path) -> None:
    with WritableLogDirectory(tmp_path, max_open_logs=2) as logs:
        logs.create_topic("t", partitions=20, config={"index.interval.bytes": "10"})
        for turn in range(3):
            for log in logs:
                log.append([Record(None, b"%d" % turn, timestamp=0)] * 5)
        opened = [target for _, target in descriptors() if str(tmp_path) in target]
        assert len(opened) < 20
        for log in logs:
            assert values(log) == [b"0"] * 5 + [b"1"] * 5 + [b"2"] * 5
    with odradek.open(tmp_path, mode="r") as reader:
        for written in reader:
            assert not written.damage
            assert len(values(written)) == 15
            for segment in written.segments:
                segment.offset_index.check()
                segment.time_index.check()
                assert segment.offset_index.count == 2


def test_a_fork_leaves_alone_what_its_parent_opened(tmp_path: Path) -> None:
    said = tmp_path / "said"
    logs = odradek.open(tmp_path / "data")
    logs.create_topic("t")
    log = logs["t", 0]
    log.append([Record(value=b"before")])
    child = os.fork()
    if child == 0:
        try:
            with logs:
                log.append([Record(value=b"by the child")])
        except LogError as error:
            said.write_text(str(error))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert f"was opened by process {os.getpid()}" in said.read_text()
    assert not (tmp_path / "data" / CLEAN_SHUTDOWN_MARKER).exists()
    log.append([Record(value=b"after")])
    logs.close()
    with odradek.open(tmp_path / "data") as again:
        assert values(again["t", 0]) == [b"before", b"after"]
        assert not again.report


class Interrupting(FileSystem):
    """A disk beside which Ctrl-C comes, once, right after a file was put in its place."""

    def __init__(self) -> None:
        self.name = ""

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        if target.name == self.name:
            self.name = ""
            raise KeyboardInterrupt


def test_settings_reach_open_logs_also_where_the_call_was_interrupted(tmp_path: Path) -> None:
    files = Interrupting()
    with odradek.open(tmp_path, files=files) as logs:
        logs.create_topic("t", config={"retention.ms": "1", "internal.segment.bytes": "500"})
        log = logs["t", 0]
        for number in range(20):
            log.append([Record(b"k", b"%0100d" % number, timestamp=1)])
        files.name = "bootstrap.checkpoint"
        with pytest.raises(KeyboardInterrupt):
            logs.alter_topic_config("t", {"retention.ms": "-1"})
        assert (logs.topic_config("t").retention_ms, log.config.retention_ms) == (-1, -1)
        logs.maintain()
        assert log.log_start_offset == 0


def test_a_directory_is_closed_in_order_after_a_deletion_that_was_interrupted(tmp_path: Path) -> None:
    files = Interrupting()
    logs = odradek.open(tmp_path, files=files)
    logs.create_topic("t")
    logs["t", 0].append([Record(b"k", b"v")])
    files.name = "bootstrap.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        logs.delete_topic("t")
    logs.close()
    assert (tmp_path / CLEAN_SHUTDOWN_MARKER).exists()
    assert not (tmp_path / "t-0").exists()
    with odradek.open(tmp_path) as logs:
        assert logs.topics() == []


def test_a_refresh_that_fails_forgets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        logs["t", 0].append([Record(b"k", b"v")] * 10)
        logs["t", 0].delete_records(7)
    with odradek.open(tmp_path) as logs:
        with monkeypatch.context() as patch:
            patch.setattr(os, "listdir", no_descriptor)
            patch.setattr(os, "scandir", no_descriptor)
            with pytest.raises(LogError, match="Too many open files"):
                logs.refresh()
        assert logs["t", 0].log_start_offset == 7
    with odradek.open(tmp_path) as logs:
        assert [record.offset for record in logs["t", 0].read()] == [7, 8, 9]


def no_descriptor(path: object = ".") -> None:
    raise OSError(errno.EMFILE, "Too many open files", str(path))


def test_what_is_not_marked_as_deleted_is_not_removed(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        with pytest.raises(LogError, match="not marked as deleted"):
            logs.remove_deleted_folder(tmp_path / "t-0")
        assert (tmp_path / "t-0").is_dir()


class Removing(FileSystem):
    """A disk on which somebody else removes a folder at the same time."""

    def remove_directory(self, path: Path) -> None:
        super().remove_directory(path)
        super().remove_directory(path)


def test_a_folder_that_somebody_else_removes_at_the_same_time_is_gone(tmp_path: Path) -> None:
    with odradek.open(tmp_path) as logs:
        logs.create_topic("t")
        logs.delete_topic("t")
    odradek.open(tmp_path, files=Removing()).close()
    assert not list(tmp_path.glob("*-delete"))


@pytest.mark.parametrize("name", [".lock", ".kafka_cleanshutdown"])
def test_what_stands_in_the_place_of_a_file_of_the_root_is_named(tmp_path: Path, name: str) -> None:
    odradek.open(tmp_path).close()
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).mkdir()
    with pytest.raises(LogError, match=rf"{name}: Is a directory"):
        odradek.open(tmp_path)


def opened_twice(path: Path) -> WritableLogDirectory:
    odradek.open(path).create_topic("t")
    # A log and its directory refer to one another.
    odradek.open(path)["t", 0].append([Record(b"k", b"v")])
    return odradek.open(path)


@pytest.mark.slow
def test_a_folder_that_nobody_refers_to_is_opened_again_at_once(tmp_path: Path) -> None:
    gc.disable()
    try:
        with pytest.warns(ResourceWarning, match="was not closed"):
            logs = opened_twice(tmp_path)
    finally:
        gc.enable()
    assert logs["t", 0].log_end_offset == 1
    with pytest.raises(LogDirectoryLockedError, match="this program has it open already"):
        odradek.open(tmp_path)
    logs.close()


@pytest.mark.parametrize("number", [0, 1, 99])
def test_a_topic_gets_no_id_that_kafka_reserves(tmp_path: Path, number: int) -> None:
    with odradek.open(tmp_path) as logs:
        with pytest.raises(odradek.OptionError, match="reserved by Kafka"):
            logs.create_topic("events", topic_id=UUID(int=number))
        logs.create_topic("events", topic_id=UUID(int=100))
    with odradek.open(tmp_path) as logs:
        assert logs.topics() == ["events"]


def test_a_directory_that_is_closed_meanwhile_has_nothing_to_compact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with WritableLogDirectory(tmp_path) as logs:
        logs.create_topic("compacted", 3, {"cleanup.policy": "compact"})
    logs = WritableLogDirectory(tmp_path)
    places = logs.topic_partitions()

    def close_first(topic: str | None = None) -> Sequence[TopicPartition]:
        logs.close()
        return places

    monkeypatch.setattr(logs, "topic_partitions", close_first)
    assert logs._maintenance.compacted_logs() == []
    assert caplog.messages == []
