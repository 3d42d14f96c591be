"""Batches that we write, in every format and by every codec, read by Kafka's dump tool and by three clients."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from odradek.records import Record, scan_batches
from odradek.records.builder import build_batch, build_control_batch, build_empty_batch
from odradek.records.compression import LEVELS, Codec
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.storage.formats.partition_metadata import PARTITION_METADATA, write_partition_metadata
from odradek.storage.metadata.cluster import ClusterMetadata
from odradek.storage.metadata.formatting import format_log_directory, new_meta_properties
from odradek.storage.names import TopicPartition, partition_directory_name, segment_file_name
from odradek.testing.message_builder import build_message_set
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.ledger import require, require_same

TIME = 1_600_000_000_000
TOPIC = "formats"

CONTENTS = [
    Record(b"key", b"value", [("name", b"1"), ("none", None), ("name", b""), ("é", b"\xff")], TIME),
    Record(None, b"", (), TIME + 70_000),
    Record(b"", b"\0\xff" * 300, (), TIME - 3),
    Record(b"tombstone", None, (), TIME + 1),
    Record(None, b"text " * 20_000, (), TIME + 2),
]
BARE = [Record(record.key, record.value, (), record.timestamp) for record in CONTENTS]


@dataclass
class Segment:
    """Batches one behind the other, and the records that a consumer should be given of them."""

    data: bytes
    records: list[Record]

    @property
    def next_offset(self) -> int:
        return max((header.next_offset for header in scan_batches(self.data)), default=0)

    def add(self, batch: bytes, records: list[Record], timestamp_type: str | None = "CreateTime") -> None:
        offset = self.next_offset
        self.data += batch
        for number, record in enumerate(records):
            timestamp = record.timestamp if timestamp_type else None
            at = offset + number if record.offset is None else record.offset
            self.records.append(Record(record.key, record.value, record.headers, timestamp, at, timestamp_type))


def _old_messages(segment: Segment) -> None:
    for magic in (0, 1):
        kind = "CreateTime" if magic else None
        for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            data = build_message_set(BARE, magic=magic, codec=codec, base_offset=segment.next_offset)
            segment.add(data, BARE, kind)
        bare = build_message_set(
            BARE, magic=magic, codec=Codec.SNAPPY, base_offset=segment.next_offset, bare_snappy=True
        )
        segment.add(bare, BARE, kind)
    for codec in (Codec.NONE, Codec.GZIP, Codec.LZ4):
        data = build_message_set(
            BARE,
            magic=1,
            codec=codec,
            base_offset=segment.next_offset,
            timestamp_type="LogAppendTime",
            append_time_ms=TIME + 5,
        )
        stamped = [Record(record.key, record.value, (), TIME + 5) for record in BARE]
        segment.add(data, stamped, "LogAppendTime")


def _batches(segment: Segment) -> None:
    def add(records: list[Record] = CONTENTS, read: list[Record] | None = None, **fields: Any) -> None:
        stamp = str(fields.get("timestamp_type", "CreateTime"))
        fields = {"base_offset": segment.next_offset, "partition_leader_epoch": 0, **fields}
        segment.add(build_batch(records, **fields), records if read is None else read, stamp)

    for codec in Codec:
        default, lowest, highest = LEVELS.get(codec, (None, None, None))
        for level in sorted({default, lowest, highest, None}, key=str):
            add(codec=codec, level=level if level is None else max(level, -20))
        stamped = [Record(record.key, record.value, record.headers, TIME + 5) for record in CONTENTS]
        add(read=stamped, codec=codec, timestamp_type="LogAppendTime", append_time_ms=TIME + 5)
        add(codec=codec, delete_horizon_ms=TIME + 86_400_000)
        first = segment.next_offset
        gaps = [
            Record(record.key, record.value, record.headers, record.timestamp, first + 2 + number * 3)
            for number, record in enumerate(CONTENTS)
        ]
        add(gaps, codec=codec, keep_offsets=True, base_offset=first, last_offset=first + 40)
    add([Record(b"k", b"v", (), None)], [Record(b"k", b"v", (), None)])
    add(producer_id=7, producer_epoch=1, base_sequence=0, codec=Codec.ZSTD)
    segment.data += build_empty_batch(
        segment.next_offset,
        segment.next_offset + 4,
        producer_id=7,
        producer_epoch=1,
        base_sequence=5,
        max_timestamp=TIME,
    )
    for sequence, kind in enumerate((ControlRecordType.COMMIT, ControlRecordType.ABORT)):
        add(producer_id=8, producer_epoch=0, base_sequence=sequence * len(CONTENTS), is_transactional=True)
        segment.data += build_control_batch(
            EndTransactionMarker(kind, 0),
            producer_id=8,
            producer_epoch=0,
            timestamp=TIME,
            base_offset=segment.next_offset,
            partition_leader_epoch=0,
        )


def _written(*parts: Callable[[Segment], None]) -> Segment:
    segment = Segment(b"", [])
    for part in parts:
        part(segment)
    return segment


@pytest.mark.parametrize("part", [_old_messages, _batches], ids=["v0 and v1", "v2"])
def test_the_dump_tool_finds_every_batch_and_record_valid(
    kafka_tools: KafkaTools, tmp_path: Path, part: Callable[[Segment], None]
) -> None:
    segment = _written(part)
    path = tmp_path / segment_file_name(0, ".log")
    path.write_bytes(segment.data)

    printed = kafka_tools.dump_log(path, "--deep-iteration", "--print-data-log").check().stdout

    batches = [line for line in printed.splitlines() if re.match(r"(baseOffset|offset): \d+ ", line)]
    headers = list(scan_batches(segment.data))
    assert len(batches) == len(headers)
    assert all(line.endswith(" isvalid: true") for line in batches)
    assert [int(line.split()[1]) for line in batches if "magic: 2" in line] == [
        header.base_offset for header in headers if header.magic == 2
    ]
    found = [
        int(match[1])
        for line in printed.splitlines()
        if (match := re.match(r"\| offset: (\d+) ", line)) and "endTxnMarker" not in line
    ]
    require(found == [record.offset for record in segment.records], "the records")
    assert "isValid: false" not in printed


@pytest.fixture(scope="module")
def served(
    kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[KafkaBroker, list[Record]]]:
    """A broker that serves one partition of everything, and what it holds."""
    log_dir = tmp_path_factory.mktemp("formats") / "log-dir"
    format_log_directory(log_dir, new_meta_properties(node_id=1))
    metadata = ClusterMetadata(log_dir)
    metadata.create_topic(TOPIC, 1, {"retention.ms": "-1"})
    topic_id = metadata.image.topics[TOPIC].topic_id
    assert topic_id is not None
    folder = log_dir / partition_directory_name(TopicPartition(TOPIC, 0))
    folder.mkdir()
    write_partition_metadata(folder / PARTITION_METADATA, topic_id)
    segment = _written(_old_messages, _batches)
    (folder / segment_file_name(0, ".log")).write_bytes(segment.data)
    with KafkaBroker(kafka_tools, log_dir) as broker:
        yield broker, segment.records


def test_kafka_s_own_consumer(kafka_tools: KafkaTools, served: tuple[KafkaBroker, list[Record]]) -> None:
    broker, records = served
    consumed = kafka_tools.consume(broker.bootstrap_servers, TOPIC)[f"{TOPIC}-0"]["records"]

    def data(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    assert [
        Record(
            data(row["key"]),
            data(row["value"]),
            [(name, data(value)) for name, value in row["headers"]],
            None if row["timestamp"] == -1 else row["timestamp"],
            row["offset"],
            None if row["timestampType"] == "NoTimestampType" else row["timestampType"],
        )
        for row in consumed
    ] == records


def test_librdkafka(served: tuple[KafkaBroker, list[Record]]) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    from peers.librdkafka import read_to_end

    broker, records = served
    names = {confluent.TIMESTAMP_CREATE_TIME: "CreateTime", confluent.TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime"}
    found = []
    for message in read_to_end(broker.bootstrap_servers, [(TOPIC, 0)], "read_uncommitted", **{"check.crcs": True}):
        kind, timestamp = message.timestamp()
        headers: Any = message.headers() or ()
        found.append(
            Record(
                message.key(),
                message.value(),
                headers,
                timestamp if timestamp > 0 else None,
                message.offset(),
                names.get(kind),
            )
        )
    require_same(
        [_without_type(record) for record in found], [_without_type(record) for record in records], "the records"
    )


def _without_type(record: Record) -> Record:
    """librdkafka says "not available" of a timestamp of -1, whatever its type."""
    kind = record.timestamp_type if record.timestamp is not None else None
    return Record(record.key, record.value, record.headers, record.timestamp, record.offset, kind)


def test_kafka_python(served: tuple[KafkaBroker, list[Record]]) -> None:
    kafka = pytest.importorskip("kafka")
    pytest.importorskip("snappy")
    pytest.importorskip("xxhash")  # for lz4 in v0
    broker, records = served
    partition = kafka.TopicPartition(TOPIC, 0)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        enable_auto_commit=False,
        consumer_timeout_ms=20_000,
        check_crcs=True,
    )
    found: list[Record] = []
    try:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        end = consumer.end_offsets([partition])[partition]
        names = {0: "CreateTime", 1: "LogAppendTime", None: None}
        while consumer.position(partition) < end:
            polled = consumer.poll(timeout_ms=20_000)
            assert polled or consumer.position(partition) >= end
            for message in polled.get(partition, []):
                timestamp = None if message.timestamp in (None, -1) else message.timestamp
                found.append(
                    Record(
                        message.key,
                        message.value,
                        message.headers,
                        timestamp,
                        message.offset,
                        names[message.timestamp_type],
                    )
                )
    finally:
        consumer.close()
    require(found == records, "the records")
