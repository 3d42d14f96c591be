"""What a log directory says of its cluster: read from real folders, and from folders that are not whole."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from uuid import UUID

import pytest

from odradek.errors import FormatError, LogError
from odradek.inspection import verify
from odradek.messages.metadata.control_records import (
    LeaderChange,
    LeaderVoter,
    Voter,
    VoterEndpoint,
    encode_control_record,
)
from odradek.messages.metadata.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnknownRecord,
    encode_metadata_record,
)
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.storage.formats.metadata_snapshot import read_snapshot, write_snapshot
from odradek.storage.formats.partition_metadata import read_partition_metadata, write_partition_metadata
from odradek.storage.metadata.cluster import ClusterMetadata
from odradek.storage.metadata.formatting import format_log_directory, new_meta_properties
from odradek.storage.metadata.metadata_image import PartitionImage
from odradek.storage.metadata.metadata_log import (
    METADATA_DIRECTORY,
    append_metadata,
    cut_tail,
    load_metadata,
    metadata_stamps,
)
from odradek.storage.names import parse_partition_directory
from peers.kafka_fixture import KafkaFixture

METADATA = "__cluster_metadata-0"
TOPIC_ID = UUID(int=1000)
VERSION = FeatureLevelRecord("metadata.version", 30)
TOPIC = TopicRecord("t", TOPIC_ID)
PARTITION = PartitionRecord(0, TOPIC_ID, (1,), (1,), 1)


@pytest.mark.parametrize("state", ["log_dir", "log_dir_unclean"])
def test_topics_of_a_kafka_folder(fixture_4_3_1: KafkaFixture, state: str) -> None:
    log_dir = getattr(fixture_4_3_1, state)

    loaded = load_metadata(log_dir)

    image = loaded.image
    made = fixture_4_3_1.topics
    assert set(image.topics) == {*made, "__consumer_offsets", "__transaction_state"}
    for name, topic in made.items():
        assert sorted(image.topics[name].partitions) == list(range(topic["partitions"])), name
        assert image.topic_config(name) == topic["config"], name
    for folder in log_dir.iterdir():
        parsed = parse_partition_directory(folder.name)
        if parsed is not None and folder.name != METADATA:
            topic_image = image.topics[parsed.topic_partition.topic]
            assert topic_image.topic_id == read_partition_metadata(folder / "partition.metadata")
            assert topic_image.topic_id is not None
            assert image.topic_by_id(topic_image.topic_id) is topic_image
            partition = topic_image.partitions[parsed.topic_partition.partition]
            assert (partition.replicas, partition.leader_epoch in {0, 1}) == ((1,), True)
    assert image.features["metadata.version"] == 30
    assert image.features["transaction.version"] == 2
    assert image.broker_config() == {"min.insync.replicas": "1"}
    assert (image.next_producer_id, list(image.brokers), dict(image.skipped)) == (1000, [1], {})
    assert loaded.tail is not None
    assert (loaded.tail.damage, loaded.tail.voters, loaded.bootstrap) == (None, frozenset({1}), None)
    assert loaded.tail.position == (log_dir / METADATA / "00000000000000000000.log").stat().st_size


def test_a_folder_from_before_kraft_is_read_from_its_names(fixture_2_8_2: KafkaFixture) -> None:
    loaded = load_metadata(fixture_2_8_2.log_dir)

    assert {name: len(topic.partitions) for name, topic in loaded.image.topics.items()} == {
        **{name: topic["partitions"] for name, topic in fixture_2_8_2.topics.items()},
        "__consumer_offsets": 1,
        "__transaction_state": 1,
    }
    assert (loaded.tail, loaded.bootstrap) == (None, None)


@pytest.mark.slow
def test_bootstrap_counts_while_the_log_is_empty(writable_log_dir: Path) -> None:
    # As after a crash of the controller that had just been elected for the first time.
    for folder in writable_log_dir.glob("*-[0-9]"):
        if folder.name != METADATA:
            shutil.rmtree(folder)
    log = writable_log_dir / METADATA / "00000000000000000000.log"
    log.write_bytes(log.read_bytes()[:174])

    loaded = load_metadata(writable_log_dir)

    assert loaded.image.features["metadata.version"] == 30
    assert loaded.bootstrap is not None
    assert len(loaded.bootstrap.values) == 6
    assert not loaded.image.topics


VOTERS = (Voter(1, UUID(int=7), (VoterEndpoint("CONTROLLER", "127.0.0.1", 9093),)),)


@pytest.fixture(params=[(), VOTERS], ids=["static", "dynamic"])
def formatted(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder as Apache Kafka 4.4 formats it: without `bootstrap.checkpoint`."""
    path = tmp_path / "data"
    format_log_directory(path, new_meta_properties())
    (path / METADATA_DIRECTORY).mkdir(exist_ok=True)
    values = read_snapshot(path / "bootstrap.checkpoint").values
    (path / "bootstrap.checkpoint").unlink()
    write_snapshot(path / METADATA_DIRECTORY / FIRST, values, voters=request.param, logged_ms=5)
    (path / METADATA_DIRECTORY / FIRST).chmod(0o400)
    return path


FIRST = "00000000000000000000-0000000000.checkpoint"


def test_an_empty_log_s_first_snapshot_is_changed(formatted: Path) -> None:
    before = read_snapshot(formatted / METADATA_DIRECTORY / FIRST)
    metadata = ClusterMetadata(formatted)
    topic_id = metadata.create_topic("events", 2, {"retention.ms": "-1"}).topic_id
    metadata.create_topic("gone", 1)
    metadata.delete_topics(["gone"])
    for image in (metadata.image, ClusterMetadata(formatted).image, load_metadata(formatted).image):
        assert {name: (one.topic_id, len(one.partitions)) for name, one in image.topics.items()} == {
            "events": (topic_id, 2)
        }
        assert image.features == load_metadata(formatted).image.features
    after = read_snapshot(formatted / METADATA_DIRECTORY / FIRST)
    assert (after.header, after.voters) == (before.header, before.voters)
    assert list(verify(formatted)) == []
    assert not (formatted / "bootstrap.checkpoint").exists()


@pytest.mark.parametrize("left", [None, b""])
def test_a_lost_log_is_not_taken_for_an_empty_one(formatted: Path, left: bytes | None) -> None:
    """The controller was the leader, and its topics are here."""
    (formatted / METADATA_DIRECTORY / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n", encoding="ascii")
    if left is not None:
        (formatted / METADATA_DIRECTORY / f"{0:020}.log").write_bytes(left)
    load_metadata(formatted)
    (formatted / "events-0").mkdir()
    write_partition_metadata(formatted / "events-0" / "partition.metadata", UUID(int=9))
    with pytest.raises(FormatError, match="it knows nothing of 1 partitions that are here, events-0 among them"):
        load_metadata(formatted)


@pytest.mark.slow
def test_a_folder_that_lost_its_metadata_is_read_from_its_names(writable_log_dir: Path) -> None:
    known = load_metadata(writable_log_dir).image
    shutil.rmtree(writable_log_dir / METADATA)
    (writable_log_dir / "bootstrap.checkpoint").unlink()

    found = load_metadata(writable_log_dir).image

    assert {name: (topic.topic_id, sorted(topic.partitions)) for name, topic in found.topics.items()} == {
        name: (topic.topic_id, sorted(topic.partitions)) for name, topic in known.topics.items()
    }
    assert load_metadata(writable_log_dir / "absent").image.topics == {}


def _write_log(
    log_dir: Path, records: list[MetadataRecord], base_offset: int = 0, epoch: int = 3, segment: int | None = None
) -> Path:
    folder = log_dir / METADATA
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base_offset if segment is None else segment:020d}.log"
    values = [Record(None, encode_metadata_record(record), timestamp=5) for record in records]
    with path.open("ab") as file:
        file.write(build_batch(values, base_offset=base_offset, partition_leader_epoch=epoch))
    return path


def test_a_snapshot_stands_for_what_lies_before_it(tmp_path: Path) -> None:
    _write_log(tmp_path, [ConfigRecord(2, "t", "a", "not to be seen"), TOPIC, PARTITION])
    folder = tmp_path / METADATA
    values = [encode_metadata_record(record) for record in (VERSION, TOPIC, PARTITION)]
    write_snapshot(folder / "00000000000000000002-0000000003.checkpoint", values, logged_ms=7)
    write_snapshot(folder / "00000000000000000001-0000000003.checkpoint", [])
    (folder / "00000000000000000002-0000000003.checkpoint.part").write_bytes(b"torn")
    _write_log(tmp_path, [PartitionChangeRecord(0, TOPIC_ID, leader=-1)], base_offset=3, epoch=4)

    loaded = load_metadata(tmp_path)

    # Offset 2, behind the snapshot in the first segment, makes the partition anew; offset 3 takes its leader.
    assert loaded.image.topics["t"].partitions == {0: PartitionImage((1,), (1,), -1, 1, 1)}
    assert loaded.image.configs == {}
    assert loaded.tail is not None
    assert (loaded.tail.next_offset, loaded.tail.epoch, loaded.tail.path.name) == (4, 4, f"{3:020d}.log")
    assert read_snapshot(folder / "00000000000000000002-0000000003.checkpoint").header.last_contained_log_timestamp == 7


def test_changes_of_a_partition(tmp_path: Path) -> None:
    directory = UUID(int=2000)
    _write_log(
        tmp_path,
        [
            VERSION,
            TOPIC,
            PARTITION,
            PartitionChangeRecord(0, TOPIC_ID, isr=(), leader=-1),
            PartitionChangeRecord(0, TOPIC_ID, isr=(1,), leader=1),
            PartitionChangeRecord(0, TOPIC_ID, replicas=(1, 2), adding_replicas=(2,)),
        ],
    )
    values = [Record(None, encode_metadata_record(PartitionChangeRecord(0, TOPIC_ID, directories=(directory,)), 1))]
    with (tmp_path / METADATA / f"{0:020d}.log").open("ab") as file:
        file.write(build_batch(values, base_offset=6, partition_leader_epoch=3))

    partition = load_metadata(tmp_path).image.topics["t"].partitions[0]

    assert partition == PartitionImage((1, 2), (1,), 1, 2, 4, (directory,), (), (2,))


def test_a_transaction_counts_when_it_has_ended(tmp_path: Path) -> None:
    begun: list[MetadataRecord] = [VERSION, BeginTransactionRecord("x"), TOPIC]
    for ending, topics, is_open in (
        ([], set(), True),
        ([AbortTransactionRecord("no")], set(), False),
        ([EndTransactionRecord()], {"t"}, False),
    ):
        log_dir = tmp_path / str(len(list(tmp_path.iterdir())))
        _write_log(log_dir, [*begun, *ending])
        image = load_metadata(log_dir).image
        assert (set(image.topics), image.open_transaction) == (topics, is_open)


def test_unknown_records_are_counted_and_lose_nothing(tmp_path: Path) -> None:
    unknown = UnknownRecord(99, 1, b"\x01\x02")
    _write_log(tmp_path, [VERSION, unknown, TOPIC, unknown, PARTITION, RemoveTopicRecord(TOPIC_ID), TOPIC])

    image = load_metadata(tmp_path).image

    assert dict(image.skipped) == {(99, 1): 2}
    assert list(image.topics) == ["t"]
    assert image.topics["t"].partitions == {}


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (PARTITION, "was not created"),
        (RemoveTopicRecord(TOPIC_ID), "was not created"),
        (EndTransactionRecord(), "without having begun"),
    ],
)
def test_a_record_out_of_place_is_named_with_its_place(tmp_path: Path, record: MetadataRecord, reason: str) -> None:
    first = _write_log(tmp_path, [VERSION]).stat().st_size
    path = _write_log(tmp_path, [record], base_offset=1, segment=0)

    with pytest.raises(FormatError, match=reason) as caught:
        load_metadata(tmp_path)

    assert (caught.value.path, caught.value.position) == (str(path), first)


def test_a_torn_tail_is_told_and_cut_before_the_next_change(tmp_path: Path) -> None:
    path = _write_log(tmp_path, [VERSION, TOPIC])
    whole = path.stat().st_size
    _write_log(tmp_path, [PARTITION], base_offset=2, segment=0)
    torn = path.read_bytes()[:-1]
    for tail in (torn, torn[: whole + 1], torn[:whole] + bytes(100)):
        path.write_bytes(tail)
        loaded = load_metadata(tmp_path)
        assert loaded.tail is not None
        assert (loaded.tail.position, loaded.tail.next_offset, loaded.tail.damage is None) == (whole, 2, False)
        with pytest.raises(FormatError) as caught:
            append_metadata(loaded.tail, [encode_metadata_record(PARTITION)])
        assert (caught.value.path, caught.value.position) == (str(path), whole)
        assert path.read_bytes() == tail

        after = append_metadata(cut_tail(loaded.tail), [encode_metadata_record(PARTITION)], timestamp_ms=5)

        assert (after.position, after.next_offset) == (path.stat().st_size, 3)
        again = load_metadata(tmp_path)
        assert again.tail == after
        assert again.image.topics["t"].partitions[0].leader == 1


def test_the_log_of_several_controllers_is_left_to_them(tmp_path: Path) -> None:
    path = _write_log(tmp_path, [VERSION])
    voters = (LeaderVoter(1), LeaderVoter(2), LeaderVoter(3))
    key, value = encode_control_record(LeaderChange(leader_id=1, voters=voters))
    with path.open("ab") as file:
        file.write(build_batch([Record(key, value)], base_offset=1, partition_leader_epoch=3, is_control=True))
    tail = load_metadata(tmp_path).tail
    assert tail is not None

    with pytest.raises(LogError, match="3 controllers"):
        append_metadata(tail, [b"\1\x14\0\0"])


def test_a_time_limit_that_ends_a_look_at_the_files_is_no_missing_file(
    kafka_metadata: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert metadata_stamps(kafka_metadata)

    def stat(path: Path) -> os.stat_result:
        raise TimeoutError("by the handler of a signal")

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(TimeoutError):
        metadata_stamps(kafka_metadata)
