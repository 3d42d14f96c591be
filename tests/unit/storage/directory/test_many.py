"""Many topics and partitions: what is written of them, and how often the disk is waited for."""

from __future__ import annotations

import errno
from collections.abc import Callable
from cProfile import Profile
from pathlib import Path
from uuid import UUID

import pytest

import odradek
from odradek import NewTopic
from odradek.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidTopicError,
    OptionError,
    PolicyViolationError,
    TopicExistsError,
)
from odradek.storage.files import FileSystem, WritableFile
from odradek.storage.formats.partition_metadata import PARTITION_METADATA, read_partition_metadata
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


@pytest.mark.sampled
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
