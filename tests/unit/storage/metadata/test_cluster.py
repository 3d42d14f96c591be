from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from odradek.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidTopicError,
    LogError,
    OdradekError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from odradek.messages.metadata.metadata_records import (
    ConfigRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnknownRecord,
    encode_metadata_record,
)
from odradek.records import read_records, scan_batches
from odradek.storage.formats.meta_properties import MetaProperties
from odradek.storage.formats.metadata_snapshot import read_snapshot, write_snapshot
from odradek.storage.metadata.cluster import ClusterMetadata
from odradek.storage.metadata.formatting import format_log_directory, new_meta_properties
from odradek.storage.metadata.metadata_image import TOPIC_RESOURCE, ConfigResource, MetadataImage
from odradek.storage.metadata.metadata_log import MetadataTail, append_metadata, load_metadata
from odradek.storage.metadata.new_topic import NewTopic
from peers.kafka_fixture import KafkaFixture
from peers.topic_settings import alter_topic

METADATA = "__cluster_metadata-0"


def _content(image: MetadataImage) -> object:
    topics = {name: (topic.topic_id, topic.partitions) for name, topic in image.topics.items()}
    return topics, image.configs, image.features, image.next_producer_id


def test_a_new_folder_is_as_kafkas_format_tool_makes_it(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    theirs = fixture_4_3_1.log_dir
    meta = MetaProperties.read(theirs / "meta.properties")
    assert meta is not None
    (voter,) = read_snapshot(theirs / METADATA / f"{0:020d}-{0:010d}.checkpoint").voters

    format_log_directory(tmp_path, meta, voters=[voter])

    assert MetaProperties.read(tmp_path / "meta.properties") == meta
    for name in ("bootstrap.checkpoint", f"{METADATA}/{0:020d}-{0:010d}.checkpoint"):
        assert _batches(tmp_path / name) == _batches(theirs / name)
    with pytest.raises(LogError, match="formatted already"):
        format_log_directory(tmp_path, meta)


def _batches(path: Path) -> object:
    """Everything that a file's batches hold, but for times and checksums."""
    data = path.read_bytes()
    found = []
    for header in scan_batches(data):
        records = [(record.offset, record.key, record.value) for record in read_records(data, header)]
        if header.base_offset == 0:
            records[0] = (*records[0][:2], b"")
        found.append((header._replace(crc=0, base_timestamp=0, max_timestamp=0), records))
    return found


@pytest.mark.slow
def test_changes_are_there_when_the_folder_is_opened_again(metadata: ClusterMetadata) -> None:
    before = set(metadata.image.topics)
    topic_id = UUID(int=4711)
    topic = metadata.create_topic("t", 2, {"retention.ms": "-1", "segment.ms": "5"}, topic_id=topic_id)
    metadata.create_topic("u")
    metadata.create_partitions({"t": 3})
    alter_topic(metadata, "t", {"segment.ms": None, "retention.ms": "7", "flush.ms": "9"})
    metadata.alter_broker_config({"log.retention.hours": "5"})
    metadata.alter_broker_config({"log.cleaner.threads": "2"}, node_id=1)
    metadata.delete_topics(["u"])
    first = metadata.image.next_producer_id
    assert metadata.take_producer_ids(10) == range(first, first + 10)

    again = ClusterMetadata(metadata.directory)

    assert _content(again.image) == _content(metadata.image)
    assert set(again.image.topics) == before | {"t"}
    assert again.image.topics["t"].topic_id == topic_id == topic.topic_id
    assert again.meta is not None
    for partition in again.image.topics["t"].partitions.values():
        assert (partition.replicas, partition.leader, partition.leader_epoch) == ((1,), 1, 0)
        assert partition.directories == (again.meta.directory_id,)
    assert again.image.topic_config("t") == {"retention.ms": "7", "flush.ms": "9"}
    assert again.image.broker_config(1)["log.retention.hours"] == "5"
    assert again.image.broker_config(1)["log.cleaner.threads"] == "2"
    assert again.image.next_producer_id == first + 10


@pytest.mark.slow
def test_what_somebody_else_wrote_meanwhile_is_not_lost(metadata: ClusterMetadata) -> None:
    # A Kafka that is started while the folder is locked moves the bootstrap records into its log, and then gives up.
    kafka = ClusterMetadata(metadata.directory)
    if kafka.image.topics:
        kafka.create_topic("theirs")
    else:
        values = read_snapshot(metadata.directory / "bootstrap.checkpoint").values
        (metadata.directory / METADATA).mkdir()
        tail = MetadataTail(metadata.directory / METADATA / f"{0:020d}.log", 0, 0, 1)
        append_metadata(tail, [value for value in values if value is not None])
    present = set(kafka.image.topics)
    metadata.create_topic("ours")
    assert set(metadata.image.topics) == present | {"ours"}
    again = ClusterMetadata(metadata.directory)
    assert _content(again.image) == _content(metadata.image)


@pytest.mark.slow
def test_every_record_of_an_appended_batch_has_one_timestamp(writable_log_dir: Path) -> None:
    path = writable_log_dir / METADATA / f"{0:020d}.log"
    size = path.stat().st_size

    ClusterMetadata(writable_log_dir).create_topic("t", 3, {"retention.ms": "-1"})

    data = path.read_bytes()
    (header,) = scan_batches(data, size)
    assert (header.base_offset, header.records_count, header.partition_leader_epoch) == (254, 5, 1)
    assert {record.timestamp for record in read_records(data, header)} == {header.base_timestamp}
    assert (header.attributes, header.producer_id, header.max_timestamp) == (0, -1, header.base_timestamp)


def test_bootstrap_is_no_longer_than_what_it_says(tmp_path: Path) -> None:
    format_log_directory(tmp_path, new_meta_properties())
    path = tmp_path / "bootstrap.checkpoint"
    unknown = encode_metadata_record(UnknownRecord(99, 1, b"kept"))
    write_snapshot(path, [*read_snapshot(path).values, unknown])
    metadata = ClusterMetadata(tmp_path)
    metadata.create_topic("stays", 1, {"retention.ms": "1"})
    before = read_snapshot(path).values
    for number in range(5):
        metadata.create_topic("t", 4, {"retention.ms": "1"})
        alter_topic(metadata, "stays", {"retention.ms": f"{number}"})
        metadata.delete_topics(["t"])
    alter_topic(metadata, "stays", {"retention.ms": "1"})

    assert sorted(filter(None, read_snapshot(path).values)) == sorted(filter(None, before))
    assert unknown in before


@pytest.mark.slow
def test_changes_among_many_topics_are_there_when_the_folder_is_opened_again(tmp_path: Path) -> None:
    format_log_directory(tmp_path, new_meta_properties(node_id=1))
    metadata = ClusterMetadata(tmp_path)
    first = [
        NewTopic(f"t{number}", 1 + number % 3, {"retention.ms": number} if number % 2 else {}) for number in range(600)
    ]
    metadata.create_topics(first)
    for number in (0, 129, 299, 300, 599):
        metadata.delete_topics([f"t{number}"])
        metadata.create_topic(f"new{number}", 2)
        changed = f"t{number // 2 + 2}"
        metadata.create_partitions({changed: 5})
        alter_topic(metadata, changed, {"retention.ms": None, "retention.bytes": "1"})
        assert _content(ClusterMetadata(tmp_path).image) == _content(metadata.image)
    metadata = ClusterMetadata(tmp_path)
    for number in range(2, 40):
        metadata.delete_topics([f"t{number}"])
    assert _content(ClusterMetadata(tmp_path).image) == _content(metadata.image)
    metadata.create_topic("t3")
    assert ClusterMetadata(tmp_path).image.topic_config("t3") == {}


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", InvalidTopicError),
        ("a/b", InvalidTopicError),
        ("..", InvalidTopicError),
        ("x" * 250, InvalidTopicError),
        ("__cluster_metadata", InvalidTopicError),
        ("a.b", InvalidTopicError),
        ("a_b", TopicExistsError),
    ],
)
def test_names_that_are_refused(tmp_path: Path, name: str, error: type[OdradekError]) -> None:
    format_log_directory(tmp_path, new_meta_properties())
    metadata = ClusterMetadata(tmp_path)
    metadata.create_topic("a_b")

    with pytest.raises(error):
        metadata.create_topic(name)


@pytest.mark.slow
def test_what_is_refused_changes_nothing(metadata: ClusterMetadata) -> None:
    metadata.create_topic("t", 2, {"max.compaction.lag.ms": "10"})
    before = _content(load_metadata(metadata.directory).image)

    with pytest.raises(InvalidPartitionsError, match="0 partitions"):
        metadata.create_topic("u", 0)
    with pytest.raises(InvalidPartitionsError, match="cannot get 2"):
        metadata.create_partitions({"t": 2})
    with pytest.raises(InvalidConfigError, match=r"no\.such"):
        metadata.create_topic("u", 1, {"no.such": "1"})
    with pytest.raises(InvalidConfigError, match=r"retention\.ms"):
        alter_topic(metadata, "t", {"flush.ms": "1", "retention.ms": "-2"})
    with pytest.raises(InvalidConfigError, match=r"no\.such"):
        alter_topic(metadata, "t", {"no.such": None})
    with pytest.raises(InvalidConfigError, match=r"min\.compaction\.lag\.ms"):
        alter_topic(metadata, "t", {"min.compaction.lag.ms": "11"})
    with pytest.raises(InvalidConfigError, match=r"log\.retention\.hours"):
        metadata.alter_broker_config({"log.retention.hours": "often"})
    with pytest.raises(TopicExistsError, match=r"topic id \S+ is that of t$"):
        metadata.create_topic("u", topic_id=metadata.image.topics["t"].topic_id)
    for change in (
        lambda: metadata.create_partitions({"none": 2}),
        lambda: alter_topic(metadata, "none", {}),
        lambda: metadata.delete_topics(["none"]),
    ):
        with pytest.raises(UnknownTopicOrPartitionError):
            change()
    with pytest.raises(ValueError, match="1 log directories are given for 2"):
        metadata.create_topics([NewTopic("u", 2)], directory_ids=[UUID(int=1)])

    assert _content(metadata.image) == before == _content(load_metadata(metadata.directory).image)


def test_a_folder_without_a_place_for_metadata_is_refused(fixture_2_8_2: KafkaFixture, tmp_path: Path) -> None:
    with pytest.raises(LogError, match="no metadata to change"):
        ClusterMetadata(fixture_2_8_2.log_dir).create_topic("t")
    with pytest.raises(LogError, match="not formatted"):
        ClusterMetadata(tmp_path).create_topic("t")


def test_settings_of_a_topic_that_is_created_again() -> None:
    image = MetadataImage()
    resource = ConfigResource(TOPIC_RESOURCE, "t")
    for number in (1, 2):
        topic_id = UUID(int=number)
        image.apply_all([TopicRecord("t", topic_id), ConfigRecord(TOPIC_RESOURCE, "t", "retention.ms", str(number))])
        before, image = image, image.copy()
        image.apply_all([ConfigRecord(TOPIC_RESOURCE, "t", name, "1") for name in ("segment.ms", "retention.bytes")])
        assert before.configs[resource] == {"retention.ms": str(number)}
        assert image.configs[resource].keys() == {"retention.ms", "segment.ms", "retention.bytes"}
        image.apply_all([ConfigRecord(TOPIC_RESOURCE, "t", name, None) for name in image.configs[resource].copy()])
        assert resource not in image.configs
        image.apply_all([ConfigRecord(TOPIC_RESOURCE, "t", "segment.ms", "2"), RemoveTopicRecord(topic_id)])
        assert resource not in image.configs
