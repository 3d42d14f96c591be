"""The store in a log directory: the conformance suite, and what only a folder can go through."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

import odradek
import odradek.testing
from odradek.errors import CommitConflictError, OffsetStoreError
from odradek.messages.coordinators.group_records import GroupMetadataValue, MemberMetadata, encode_group_metadata
from odradek.offsets.folder import FolderOffsetStore
from odradek.offsets.store import Position, open_store
from odradek.places.group_log import append_group_records
from odradek.storage.names import TopicPartition
from odradek.testing.offset_store_suite import EVENTS_0, EVENTS_1, OTHER_0, OffsetStoreSuite


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    with odradek.open(path) as logs:
        # As one that Kafka made, and small.
        logs.create_topic("__consumer_offsets", 2, {"cleanup.policy": "compact"})
        logs.create_topic("events", 2)
        logs.create_topic(OTHER_0.topic)
    return path


@pytest.mark.slow
class TestFolderStore(OffsetStoreSuite):
    topic_names = ("a", "version", "with.dots", "under_score", "da-sh-0", "x" * 249)
    partitions_count = 100
    claims_empty_groups = False

    @pytest.fixture
    def address(self, folder: Path) -> str:
        return f"folder:{folder}?group=words"

    def delete_topic(self, address: str, topic: str) -> None:
        with odradek.testing.Broker(address.removeprefix("folder:").partition("?")[0]) as broker:
            broker.delete_topic(topic)

    def prepare(self, address: str, partitions: Iterable[TopicPartition]) -> None:
        path = Path(address.removeprefix("folder:").partition("?")[0])
        counts: dict[str, int] = {}
        for topic, partition in partitions:
            counts[topic] = max(counts.get(topic, 0), partition + 1)
        with odradek.open(path) as logs:
            for topic, count in counts.items():
                if topic not in logs.topics():
                    logs.create_topic(topic, count)
                elif len(logs.topic_partitions(topic)) < count:
                    logs.create_partitions(topic, count)


def test_groups_are_apart_and_the_topic_is_made_as_a_broker_makes_it(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events", 2)
    for group, offset in (("a", 1), ("b", 2)):
        with open_store(f"folder:{tmp_path}/data?group={group}") as store:
            store.commit({EVENTS_1: Position(offset)}, expected=store.load())
    for group, offset in (("a", 1), ("b", 2)):
        assert dict(FolderOffsetStore(tmp_path / "data", group).load()) == {EVENTS_1: Position(offset)}
    with odradek.open(tmp_path / "data", "r") as logs:
        assert len(logs.topic_partitions("__consumer_offsets")) == 50
        assert logs.topic_config("__consumer_offsets").cleanup_policy == ("compact",)


@pytest.mark.slow
def test_a_folder_that_a_broker_has_open_is_read_and_not_changed(folder: Path) -> None:
    store = FolderOffsetStore(folder, "words", timeout_ms=0)
    loaded = store.load()
    with odradek.testing.Broker(folder):
        assert dict(store.load()) == {}
        with pytest.raises(OffsetStoreError, match="is locked: this program has it open already"):
            store.commit({EVENTS_0: Position(1)}, expected=loaded)
    assert dict(store.commit({EVENTS_0: Position(1)}, expected=loaded)) == {EVENTS_0: Position(1)}


def test_a_group_with_members_is_refused(folder: Path) -> None:
    member = MemberMetadata("m-1", "counter", "/10.0.0.7", 45_000, b"", b"")
    with odradek.open(folder) as logs:
        value = GroupMetadataValue("consumer", 1, "range", "m-1", (member,), 0)
        append_group_records(logs, "words", [encode_group_metadata("words", value)])
    store = FolderOffsetStore(folder, "words")
    with pytest.raises(OffsetStoreError, match=r"words has 1 member \(counter /10\.0\.0\.7\), as its broker left it"):
        store.commit({EVENTS_0: Position(1)}, expected=store.load())
    assert dict(store.load()) == {}
    store.force = True
    store.commit({EVENTS_0: Position(1)}, expected=store.load())
    assert dict(store.load()) == {EVENTS_0: Position(1)}


def test_a_partition_that_is_not_there_is_refused(folder: Path) -> None:
    store = FolderOffsetStore(folder, "words")
    with pytest.raises(OffsetStoreError, match="events-7 is not in "):
        store.commit({EVENTS_0: Position(1), TopicPartition("events", 7): Position(1)}, expected=store.load())
    assert dict(store.load()) == {}


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("folder:data", "folder:///absolute/path"),
        ("folder://host/data?group=g", "folder:///absolute/path"),
        ("folder:?group=g", "folder:///absolute/path"),
        ("folder:data?group=g&x=1", "unknown option x"),
    ],
)
def test_addresses_that_are_none(address: str, reason: str) -> None:
    with pytest.raises(OffsetStoreError, match=reason):
        open_store(address)


def test_a_folder_that_is_missing_is_not_made(tmp_path: Path) -> None:
    store = FolderOffsetStore(tmp_path / "data", "words")
    for call in (store.load, store.claim):
        with pytest.raises(OffsetStoreError, match="cannot be read"):
            call()
    assert not (tmp_path / "data").exists()


def test_a_group_has_a_name_that_kafka_can_store(folder: Path) -> None:
    for name in ("a\0b", "é" * 16383):
        with FolderOffsetStore(folder, name) as store:
            assert store.claim() == store.load()
    for name, reason in (("é" * 16384, "at most 32767 bytes, not 32768"), ("\ud800", "half a surrogate pair")):
        with pytest.raises(odradek.OptionError, match=reason):
            FolderOffsetStore(folder, name)
        with pytest.raises(odradek.OptionError, match=reason):
            open_store(f"kafka://localhost:1/{name}")


def test_a_group_of_a_folder_that_this_program_has_open(tmp_path: Path) -> None:
    path = tmp_path / "data"
    with odradek.open(path) as logs:
        logs.create_topic("events")
        for batch in range(2):
            logs["events", 0].append([odradek.Record(b"a"), odradek.Record(b"b")])
            with odradek.consume(path, "events", group="g", auto_offset_reset="earliest", follow=False) as consumer:
                assert [offset.offset for _, _, offset in consumer] == [2 * batch, 2 * batch + 1]
        store = FolderOffsetStore(path, "g", timeout_ms=0)
        assert store.load().offset(TopicPartition("events", 0)) == 4
        # A zombie is refused there, too.
        late = store.load()
        store.commit({}, expected=late)
        with pytest.raises(CommitConflictError):
            store.commit({TopicPartition("events", 0): Position(1)}, expected=late)
    # Closed, it is opened for each commit.
    store.delete([TopicPartition("events", 0)], expected=store.load())
