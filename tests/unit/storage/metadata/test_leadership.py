from __future__ import annotations

import errno
from pathlib import Path
from uuid import UUID

import pytest

import odradek
from odradek.messages.metadata.metadata_records import (
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from odradek.storage.formats.metadata_snapshot import read_snapshot, write_snapshot
from odradek.storage.metadata.cluster import ClusterMetadata
from odradek.storage.metadata.formatting import OLDER_KAFKA_FEATURES, format_log_directory, new_meta_properties
from odradek.storage.metadata.metadata_image import ELIGIBLE_LEADER_REPLICAS, METADATA_VERSION, PartitionImage
from odradek.storage.metadata.metadata_log import MetadataTail, append_metadata
from odradek.storage.names import TRANSACTION_STATE_TOPIC
from odradek.testing.faults import FaultyFileSystem

TOPIC_ID = UUID(int=4711)
OLD_LEVELS = [{}, {ELIGIBLE_LEADER_REPLICAS: 0}, {METADATA_VERSION: 21}, {METADATA_VERSION: 7}]


def first_partition(directory: Path, topic: str = TRANSACTION_STATE_TOPIC) -> PartitionImage:
    return ClusterMetadata(directory).image.topics[topic].partitions[0]


def new_directory(path: Path, *, levels: dict[str, int] | None = None) -> Path:
    """Make a log directory whose features have other levels."""
    format_log_directory(path, new_meta_properties(node_id=1))
    features = {**OLDER_KAFKA_FEATURES, **(levels or {})}
    values = [encode_metadata_record(FeatureLevelRecord(name, level)) for name, level in features.items()]
    write_snapshot(path / "bootstrap.checkpoint", values)
    return path


def registered(broker: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(broker, UUID(int=7), 9, (), (), None, log_dirs=(UUID(int=broker),))


def add_states(
    directory: Path,
    *others: MetadataRecord,
    in_log: bool = False,
    leader: int = 1,
    replicas: tuple[int, ...] = (1,),
) -> None:
    """Write the topic of transactions' states with a leader, as earlier versions did, and other records."""
    directories = tuple(UUID(int=replica) for replica in replicas)
    partition = PartitionRecord(0, TOPIC_ID, replicas, replicas, leader, directories=directories)
    values = [encode_metadata_record(TopicRecord(TRANSACTION_STATE_TOPIC, TOPIC_ID))]
    values += [encode_metadata_record(partition, 2), *(encode_metadata_record(record, 3) for record in others)]
    path = directory / "bootstrap.checkpoint"
    values = [value for value in read_snapshot(path).values if value is not None] + values
    if in_log:
        (directory / "__cluster_metadata-0").mkdir()
        append_metadata(MetadataTail(directory / "__cluster_metadata-0" / f"{0:020d}.log", 0, 0, 1), values)
    else:
        write_snapshot(path, values)


def last_known_leaders(levels: dict[str, int]) -> tuple[int, ...]:
    return () if levels else (1,)


@pytest.mark.parametrize("levels", OLD_LEVELS)
def test_new_states_of_transactions_wait_for_an_election(tmp_path: Path, levels: dict[str, int]) -> None:
    directory = new_directory(tmp_path / "data", levels=levels)
    metadata = ClusterMetadata(directory)
    metadata.create_topic(TRANSACTION_STATE_TOPIC)
    metadata.create_partitions({TRANSACTION_STATE_TOPIC: 2})
    metadata.create_topic("t")
    for partition in ClusterMetadata(directory).image.topics[TRANSACTION_STATE_TOPIC].partitions.values():
        assert partition[:4] == ((1,), (1,), -1, 0)
        # After an unclean shutdown Kafka elects nobody else, if it has eligible leader replicas.
        assert partition.last_known_elr == last_known_leaders(levels)
    assert first_partition(directory, "t")[:4] == ((1,), (1,), 1, 0)


@pytest.mark.parametrize("others", [(), (registered(1),)])
@pytest.mark.parametrize("in_log", [False, True])
def test_states_that_have_a_leader_are_left_to_an_election_once(
    tmp_path: Path, in_log: bool, others: tuple[MetadataRecord, ...]
) -> None:
    directory = new_directory(tmp_path / "data")
    add_states(directory, *others, in_log=in_log)
    odradek.open(directory, mode="r").close()
    assert first_partition(directory).leader == 1
    odradek.open(directory).close()
    offset = ClusterMetadata(directory).offset
    assert first_partition(directory)[:5] == ((1,), (1,), -1, 1, 1)
    assert first_partition(directory).last_known_elr == (1,)
    odradek.open(directory).close()
    assert ClusterMetadata(directory).offset == offset
    if not in_log:
        written = [decode_metadata_record(value) for value in read_snapshot(directory / "bootstrap.checkpoint").values]
        assert PartitionChangeRecord(0, TOPIC_ID, leader=-1, last_known_elr=(1,)) in written


def test_a_full_disk_does_not_keep_the_directory_closed(tmp_path: Path) -> None:
    directory = new_directory(tmp_path / "data")
    add_states(directory)
    files = FaultyFileSystem(tmp_path)
    files.fail("write", error=errno.ENOSPC, at="bootstrap.checkpoint")
    with odradek.open(directory, files=files) as logs:
        assert logs.metadata_image.topics[TRANSACTION_STATE_TOPIC].partitions[0].leader == 1
    odradek.open(directory).close()
    assert first_partition(directory)[:4] == ((1,), (1,), -1, 1)


def test_the_leader_in_a_cluster_of_several_brokers_stays(tmp_path: Path) -> None:
    for name, replicas, broker in (("other", (1,), 2), ("replicated", (1, 2), 1)):
        directory = new_directory(tmp_path / name)
        add_states(directory, registered(broker), replicas=replicas)
        odradek.open(directory).close()
        assert first_partition(directory).leader == 1


@pytest.mark.parametrize("level", [30, 7])
def test_partitions_without_a_leader_can_be_elected_once_there_are_eligible_replicas(
    tmp_path: Path, level: int
) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.metadata.set_feature_levels({METADATA_VERSION: level, ELIGIBLE_LEADER_REPLICAS: 0})
        topic_id = logs.create_topic("closed").topic_id
        logs.create_topic("led")
    assert topic_id is not None
    # As Kafka's clean shutdown leaves it.
    change = PartitionChangeRecord(0, topic_id, leader=-1)
    ClusterMetadata(tmp_path / "data").change(lambda image: [change])
    with odradek.open(tmp_path / "data") as logs:
        logs.metadata.set_feature_levels({METADATA_VERSION: 30, ELIGIBLE_LEADER_REPLICAS: 1})
        logs.metadata.set_feature_levels({ELIGIBLE_LEADER_REPLICAS: 1})
    partitions = {name: topic.partitions[0] for name, topic in ClusterMetadata(tmp_path / "data").image.topics.items()}
    assert partitions["closed"][:5] == ((1,), (1,), -1, 1, 2)
    assert partitions["closed"].last_known_elr == (1,)
    assert partitions["led"][:5] == ((1,), (1,), 1, 0, 0)
    assert partitions["led"].last_known_elr == ()
