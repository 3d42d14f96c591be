from uuid import UUID

import pytest

from odradek.storage.names import (
    PartitionDirectory,
    SegmentFile,
    TopicPartition,
    invalid_topic_name_reason,
    marked_directory_name,
    parse_partition_directory,
    parse_raft_snapshot_file,
    parse_segment_file,
    partition_directory_name,
    raft_snapshot_file_name,
    segment_file_name,
)
from peers.kafka_fixture import KafkaFixture

UNIQUE = UUID("0123456789abcdef0123456789abcdef")


@pytest.mark.parametrize(
    ("name", "topic", "partition", "suffix"),
    [
        ("orders-0", "orders", 0, ""),
        ("a-b.c-12", "a-b.c", 12, ""),
        ("x-delete-3", "x-delete", 3, ""),
        ("__cluster_metadata-0", "__cluster_metadata", 0, ""),
        (f"orders-0.{UNIQUE.hex}-delete", "orders", 0, "-delete"),
        (f"or.ders-7.{UNIQUE.hex}-stray", "or.ders", 7, "-stray"),
        (f"orders-0.{UNIQUE.hex}-future", "orders", 0, "-future"),
    ],
)
def test_partition_directory_names_both_ways(name: str, topic: str, partition: int, suffix: str) -> None:
    topic_partition = TopicPartition(topic, partition)
    assert parse_partition_directory(name) == PartitionDirectory(topic_partition, suffix)
    made = (
        marked_directory_name(topic_partition, UNIQUE, suffix) if suffix else partition_directory_name(topic_partition)
    )
    assert made == name


@pytest.mark.parametrize(
    "name",
    ["orders", "orders-", "-0", "orders-01", "orders-x", "orders--1x", "orders-99999999999", "o r-0", "", "orders-²"],
)
def test_other_directories_are_no_partitions(name: str) -> None:
    assert parse_partition_directory(name) is None


def test_a_long_topic_is_cut_where_the_folder_is_to_be_deleted() -> None:
    long = TopicPartition("t" * 249, 3)
    assert len(marked_directory_name(long, UNIQUE, "-delete")) == 255
    assert len(marked_directory_name(long, UNIQUE, "-future")) == 249 + 2 + 1 + 32 + 7


@pytest.mark.parametrize(
    ("name", "offset", "suffix"),
    [
        ("00000000000000000000.log", 0, ".log"),
        ("00000000000000001180.timeindex", 1180, ".timeindex"),
        ("09223372036854775807.snapshot", 2**63 - 1, ".snapshot"),
        ("00000000000000000042.log.deleted", 42, ".log.deleted"),
        ("00000000000000000042.txnindex.swap", 42, ".txnindex.swap"),
    ],
)
def test_segment_file_names_both_ways(name: str, offset: int, suffix: str) -> None:
    assert parse_segment_file(name) == SegmentFile(offset, suffix)
    assert segment_file_name(offset, suffix) == name


@pytest.mark.parametrize(
    "name", ["0.log", "leader-epoch-checkpoint", "99999999999999999999.log", "0000000000000000000a.log"]
)
def test_other_files_are_no_segments(name: str) -> None:
    assert parse_segment_file(name) is None


def test_raft_snapshot_names_both_ways() -> None:
    name = raft_snapshot_file_name(7, 2)
    assert name == "00000000000000000007-0000000002.checkpoint"
    assert parse_raft_snapshot_file(name) == (7, 2)
    assert parse_raft_snapshot_file("bootstrap.checkpoint") is None
    assert parse_segment_file(name) is None


@pytest.mark.parametrize("topic", ["orders", "a", "A.b_c-9", "x" * 249])
def test_topic_names_that_kafka_takes(topic: str) -> None:
    assert invalid_topic_name_reason(topic) is None


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("", "empty"),
        (".", "named"),
        ("..", "named"),
        ("x" * 250, "249"),
        ("a/b", "ASCII"),
        ("naïve", "ASCII"),
        ("a b", "ASCII"),
    ],
)
def test_topic_names_that_kafka_refuses(topic: str, reason: str) -> None:
    assert reason in str(invalid_topic_name_reason(topic))


def test_every_name_of_a_real_log_directory_is_understood(kafka_fixture: KafkaFixture) -> None:
    for log_dir in (kafka_fixture.log_dir, kafka_fixture.log_dir_unclean):
        folders = [path for path in log_dir.iterdir() if path.is_dir()]
        assert len(folders) > 10
        for folder in folders:
            parsed = parse_partition_directory(folder.name)
            assert parsed is not None
            assert partition_directory_name(parsed.topic_partition) == folder.name
            for file in folder.glob("0*"):
                named = parse_segment_file(file.name) or parse_raft_snapshot_file(file.name)
                assert named is not None, file
