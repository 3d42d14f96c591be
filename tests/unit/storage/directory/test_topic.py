"""A topic over all of its partitions."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import odradek
from odradek import InvalidRecordError, LogError, Record, TopicPartition, UnknownTopicOrPartitionError
from peers.kafka_fixture import KafkaFixture

T0 = 1_700_000_000_000


def test_appends_go_where_kafkas_producer_sends_them(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events", partitions=3, config={"cleanup.policy": "compact", "retention.ms": -1})
        topic = logs.topic("events")
        assert topic.partitions == [0, 1, 2]
        assert topic.config.cleanup_policy == ("compact",)
        records = [Record(b"%d" % number, b"", timestamp=T0) for number in range(50)]
        assert set(topic.append(records)) == {TopicPartition("events", number) for number in range(3)}
        # By Kafka's own test murmur2(b"21") is -973932308: without the sign and modulo 3 that is 0.
        assert topic.append(key=b"21", value=b"one", durable=True) == {
            TopicPartition("events", 0): topic[0].log_end_offset - 1
        }
        assert topic.append(Record(b"21", b"two"))[TopicPartition("events", 0)] == topic[0].log_end_offset - 1
        for partition in range(3):
            keys = [record.key for record in topic[partition]]
            assert keys == [r.key for r in records if r.key in keys] + [b"21", b"21"] * (partition == 0)


def test_all_partitions_are_read(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events", partitions=2)
        for partition in range(2):
            logs["events", partition].append(
                Record(value=b"%d-%d" % (partition, number), timestamp=T0 + number) for number in range(3)
            )
        topic = logs.topic("events")
        assert [(name, partition, record.value) for name, partition, record in topic] == [
            ("events", partition, b"%d-%d" % (partition, number)) for partition in range(2) for number in range(3)
        ]
        since = datetime.fromtimestamp(T0 / 1000, UTC)
        assert [found.record.value for found in topic.read(since=since, until=T0 + 1)] == [b"0-0", b"1-0"]
    with odradek.open(tmp_path / "data", mode="r") as logs:
        reading = logs.topic("events")
        assert len(list(reading)) == 6
        records = iter(reading)
        next(records)
        with pytest.raises(AttributeError):
            reading.append(value=b"")  # type: ignore[attr-defined]
    with pytest.raises(LogError, match="is closed"):
        next(records)
    with pytest.raises(LogError, match="is closed"):
        reading.partitions  # noqa: B018


def test_what_other_partitions_got_is_told(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events", partitions=2, config={"max.message.bytes": 200})
        topic = logs.topic("events")
        keys = [b"%d" % number for number in range(20)]
        by_number = {next(iter(topic.append(key=key))).partition: key for key in keys}
        first, second = Record(by_number[0], b"", timestamp=T0), Record(by_number[1], b"x" * 1000, timestamp=T0)
        end = topic[0].log_end_offset
        with pytest.raises(odradek.RecordTooLargeError) as refused:
            topic.append([second, first])
        assert refused.value.__notes__ == [f"events-0 has its records of this append, from offset {end} on"]
        assert topic[0].log_end_offset == end + 1
        with pytest.raises(InvalidRecordError, match="there is no record"):
            topic.append([])
        with pytest.raises(TypeError, match=r"append takes odradek\.Record objects"):
            topic.append([b"bytes"])  # type: ignore[list-item]


def test_a_topic_that_is_not_there(tmp_path: Path) -> None:
    with odradek.open(tmp_path / "data") as logs:
        with pytest.raises(UnknownTopicOrPartitionError, match="events"):
            logs.topic("events")
        logs.create_topic("events")
        topic = logs.topic("events")
        logs.delete_topic("events")
        with pytest.raises(UnknownTopicOrPartitionError, match="events"):
            topic.append(value=b"")


@pytest.mark.slow
def test_the_settings_of_a_topic_that_kafka_wrote(kafka_fixture: KafkaFixture) -> None:
    with odradek.open(kafka_fixture.log_dir, mode="r") as logs:
        for topic in logs.topics():
            assert logs.topic(topic).config == logs.topic_config(topic)
        if kafka_fixture.version == "4.3.1":
            assert logs.topic("compacted").config.cleanup_policy == ("compact",)
