"""Does Apache Kafka start on the metadata that we write: topics, ids, settings, on new folders and on its own?"""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import pytest

import odradek
from odradek.messages.metadata.control_records import Voter, VoterEndpoint
from odradek.messages.uuids import format_uuid
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.storage.formats.partition_metadata import PARTITION_METADATA, write_partition_metadata
from odradek.storage.metadata.cluster import ClusterMetadata
from odradek.storage.metadata.formatting import format_log_directory, new_meta_properties
from odradek.storage.metadata.metadata_image import ELIGIBLE_LEADER_REPLICAS, MetadataImage
from odradek.storage.names import (
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
    partition_directory_name,
    segment_file_name,
)
from peers.fixtures import BrokerFactory
from peers.kafka import KafkaBroker
from peers.kafka_fixture import KafkaFixture
from peers.kafka_tools import KafkaTools
from peers.process import free_port
from peers.topic_settings import alter_topic

TIMESTAMP_MS = 1_700_000_000_000


def _write_partitions(metadata: ClusterMetadata, topic: str, values: list[bytes]) -> None:
    """One segment of one batch in each partition, as the smallest folder that Kafka takes."""
    image = metadata.image.topics[topic]
    assert image.topic_id is not None
    for number in image.partitions:
        folder = metadata.directory / partition_directory_name(TopicPartition(topic, number))
        folder.mkdir()
        write_partition_metadata(folder / PARTITION_METADATA, image.topic_id)
        records = [Record(b"%d" % number, value, timestamp=TIMESTAMP_MS) for value in values]
        (folder / segment_file_name(0, ".log")).write_bytes(build_batch(records, partition_leader_epoch=0))


def id_of(image: MetadataImage, topic: str) -> str:
    found = image.topics[topic].topic_id
    assert found is not None
    return format_uuid(found)


def _described(tools: KafkaTools, servers: str, topic: str) -> dict[str, str]:
    """The fields of the topic's line in TopicCommand --describe, settings aside."""
    line = tools.topics(servers, "--describe", "--topic", topic).check().stdout.splitlines()[0]
    fields = (field.split(": ", 1) for field in line.split("\t") if ": " in field)
    return {name.strip(): value.strip() for name, value in fields}


def _settings(tools: KafkaTools, servers: str, topic: str) -> dict[str, str]:
    lines = tools.configs(servers, "--describe", "--topic", topic).check().stdout.splitlines()
    return dict(line.split()[0].split("=", 1) for line in lines if "=" in line)


def _values(tools: KafkaTools, servers: str, topic: str) -> dict[str, list[bytes]]:
    consumed = tools.consume(servers, topic)
    return {
        name: [base64.b64decode(record["value"]) for record in partition["records"]]
        for name, partition in consumed.items()
    }


@pytest.mark.parametrize("quorum", ["static", "dynamic"])
def test_kafka_starts_on_a_folder_that_we_formatted(kafka_tools: KafkaTools, tmp_path: Path, quorum: str) -> None:
    log_dir = tmp_path / "log-dir"
    meta = new_meta_properties(node_id=7)
    controller_port = free_port()
    assert meta.directory_id is not None
    endpoint = VoterEndpoint("CONTROLLER", "127.0.0.1", controller_port)
    voters = [Voter(meta.node_id, meta.directory_id, (endpoint,))] if quorum == "dynamic" else []
    format_log_directory(log_dir, meta, voters=voters)
    metadata = ClusterMetadata(log_dir)
    metadata.create_topic("plain", 2, {"retention.ms": "-1", "compression.type": "zstd"})
    metadata.create_topic("gone", 1, {"cleanup.policy": "compact"})
    metadata.create_topic("compacted", 1, {"cleanup.policy": "compact,delete", "segment.ms": "5"})
    alter_topic(metadata, "compacted", {"segment.ms": None, "min.cleanable.dirty.ratio": "0.25"})
    metadata.create_partitions({"plain": 3})
    metadata.delete_topics(["gone"])
    assert list(metadata.take_producer_ids(1000)) == list(range(1000))
    for topic in ("plain", "compacted"):
        _write_partitions(metadata, topic, [b"a", b"b", b"c"])
    ours = metadata.image

    broker = KafkaBroker(kafka_tools, log_dir)
    broker.config["listeners"] = f"PLAINTEXT://127.0.0.1:{broker.port},CONTROLLER://127.0.0.1:{controller_port}"
    broker.config["controller.quorum.voters"] = f"7@127.0.0.1:{controller_port}"
    if voters:
        del broker.config["controller.quorum.voters"]
        broker.config["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{controller_port}"
    with broker:
        servers = broker.bootstrap_servers
        assert kafka_tools.topics(servers, "--list").check().stdout.split() == ["compacted", "plain"]
        for topic, partitions in (("plain", 3), ("compacted", 1)):
            described = _described(kafka_tools, servers, topic)
            assert (described["TopicId"], described["PartitionCount"]) == (
                id_of(ours, topic),
                str(partitions),
            )
            assert _settings(kafka_tools, servers, topic) == ours.topic_config(topic)
            assert _values(kafka_tools, servers, topic) == {
                f"{topic}-{number}": [b"a", b"b", b"c"] for number in range(partitions)
            }
    # What Kafka made of it is what we made, once it has copied our records into its own log.
    theirs = ClusterMetadata(log_dir).image
    assert {name: topic.topic_id for name, topic in theirs.topics.items()} == {
        name: topic.topic_id for name, topic in ours.topics.items()
    }
    assert {name: theirs.topic_config(name) for name in theirs.topics} == {
        name: ours.topic_config(name) for name in ours.topics
    }
    assert theirs.features == ours.features
    assert theirs.next_producer_id >= 1000
    assert not theirs.skipped
    assert not list(log_dir.glob("*-stray"))


@pytest.mark.every_case
def test_kafka_starts_on_a_folder_that_it_formatted_and_we_changed(every_kafka: KafkaTools, tmp_path: Path) -> None:
    """Apache Kafka 4.4 has the first records in a snapshot, the one before in `bootstrap.checkpoint`."""
    broker = KafkaBroker(every_kafka, tmp_path / "log-dir")
    broker.prepare()
    with odradek.open(broker.log_dir) as logs:
        logs.create_topic("events", 2, {"retention.ms": -1})
        logs["events", 1].append([Record(value=b"a")])
    with broker:
        servers = broker.bootstrap_servers
        assert every_kafka.topics(servers, "--list").check().stdout.split() == ["events"]
        assert _settings(every_kafka, servers, "events")["retention.ms"] == "-1"
        assert _values(every_kafka, servers, "events") == {"events-0": [], "events-1": [b"a"]}
        every_kafka.topics(servers, "--create", "--topic", "theirs").check()
    with odradek.open(broker.log_dir) as logs:
        logs.create_topic("ours")
        assert sorted(logs.topics()) == ["events", "ours", "theirs"]
    with broker:
        assert every_kafka.topics(broker.bootstrap_servers, "--list").check().stdout.split() == [
            "events",
            "ours",
            "theirs",
        ]


@pytest.mark.parametrize("state", ["log_dir", "log_dir_unclean"])
@pytest.mark.laboratory  # take_over creates topics on either side
def test_topics_of_ours_join_those_of_kafka(
    kafka_tools: KafkaTools, kafka_broker: BrokerFactory, fixture_4_3_1: KafkaFixture, tmp_path: Path, state: str
) -> None:
    log_dir = Path(shutil.copytree(getattr(fixture_4_3_1, state), tmp_path / "log-dir"))
    metadata = ClusterMetadata(log_dir)
    metadata.create_topic("added", 2, {"retention.ms": "-1", "segment.bytes": "2097152"})
    alter_topic(metadata, "keyed", {"max.message.bytes": "4711"})
    metadata.create_partitions({"v2-none": 2})
    metadata.delete_topics(["empty"])
    _write_partitions(metadata, "added", [b"x", b"y"])

    broker = kafka_broker(log_dir)
    for is_first in (True, False):
        servers = broker.bootstrap_servers
        assert _described(kafka_tools, servers, "added")["TopicId"] == id_of(metadata.image, "added")
        assert _described(kafka_tools, servers, "v2-none")["PartitionCount"] == "2"
        assert _settings(kafka_tools, servers, "added") == {"retention.ms": "-1", "segment.bytes": "2097152"}
        assert _settings(kafka_tools, servers, "keyed")["max.message.bytes"] == "4711"
        assert "empty" not in kafka_tools.topics(servers, "--list").check().stdout.split()
        assert _values(kafka_tools, servers, "added") == {"added-0": [b"x", b"y"], "added-1": [b"x", b"y"]}
        broker.stop()
        if is_first:
            broker.start()
    # And once more, behind what Kafka appended in the meantime.
    again = ClusterMetadata(log_dir)
    assert again.image.topic_config("added") == {"retention.ms": "-1", "segment.bytes": "2097152"}
    alter_topic(again, "added", {"retention.ms": "86400000"})
    broker.start()
    assert _settings(kafka_tools, broker.bootstrap_servers, "added")["retention.ms"] == "86400000"


def test_kafka_leads_its_partitions_after_we_have_turned_eligible_leader_replicas_on(
    kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    log_dir = tmp_path / "log-dir"
    with odradek.open(log_dir) as logs:
        logs.metadata.set_feature_levels({ELIGIBLE_LEADER_REPLICAS: 0})
        logs.create_topic(TRANSACTION_STATE_TOPIC)
    broker = KafkaBroker(kafka_tools, log_dir)
    with broker:
        assert kafka_tools.topics(broker.bootstrap_servers, "--create", "--topic", "t").check()
    with odradek.open(log_dir) as logs:
        logs.metadata.set_feature_levels({ELIGIBLE_LEADER_REPLICAS: 1})
    with broker:
        for topic in ("t", TRANSACTION_STATE_TOPIC):
            described = kafka_tools.topics(broker.bootstrap_servers, "--describe", "--topic", topic).check().stdout
            assert "Leader: 1\t" in described
