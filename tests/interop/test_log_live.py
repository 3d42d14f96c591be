"""Reads the folder of a Kafka that is writing in it: appending, rolling, compacting and deleting."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from kafka import KafkaProducer

from odradek.records import Record
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.log.log import Log
from peers.fixtures import BrokerFactory
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.ledger import require_same
from peers.placed import timestamps_of
from peers.process import wait_for

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]

SMALL_SEGMENTS = ("internal.segment.bytes=8000", "index.interval.bytes=512")
FREQUENT = {
    "log.retention.check.interval.ms": "300",
    "log.initial.task.delay.ms": "300",
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "100",
}


def as_consumed(record: Record) -> dict[str, Any]:
    def text(value: bytes | None) -> str | None:
        return None if value is None else base64.b64encode(value).decode()

    return {
        "offset": record.offset,
        "timestampType": record.timestamp_type,
        "timestamp": record.timestamp,
        "key": text(record.key),
        "value": text(record.value),
        "headers": [[name, text(value)] for name, value in record.headers],
    }


def create_topic(tools: KafkaTools, broker: KafkaBroker, topic: str, *configs: str) -> None:
    settings = [flag for config in (*SMALL_SEGMENTS, *configs) for flag in ("--config", config)]
    tools.topics(broker.bootstrap_servers, "--create", "--topic", topic, *settings).check()
    wait_for((broker.log_dir / f"{topic}-0").exists, 30, "the partition's folder")


def produce(bootstrap_servers: str, topic: str, count: int, keys: int) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, linger_ms=5, compression_type="gzip")
    try:
        for number in range(count):
            producer.send(topic, key=b"k%d" % (number % keys), value=b"v%d" % number * 10, partition=0)
        producer.flush(60)
    finally:
        producer.close()


def first_offset(log: Log) -> int:
    log.refresh()
    return next((record.offset or 0 for record in log.read()), 0)


def test_what_kafka_appends_rolls_and_deletes_is_followed(kafka_broker: BrokerFactory, kafka_tools: KafkaTools) -> None:
    broker = kafka_broker(None, FREQUENT)
    create_topic(kafka_tools, broker, "events")
    create_topic(kafka_tools, broker, "short", "retention.bytes=20000")
    with LogDirectory(broker.log_dir) as logs:
        events, short = logs["events", 0], logs["short", 0]
        seen: list[int] = []
        deleted = 0
        for _ in range(8):
            produce(broker.bootstrap_servers, "events", 500, 100)
            produce(broker.bootstrap_servers, "short", 1500, 100)
            events.refresh()
            seen += [
                record.offset for record in events.read(seen[-1] + 1 if seen else None) if record.offset is not None
            ]
            assert events.damage == []
            short.refresh()
            found = [record.offset for record in short.read()]
            require_same(found, list(range(found[0] or 0, short.log_end_offset)), "offsets of short")
            deleted = max(deleted, found[0] or 0)
        require_same(seen, list(range(4000)), "offsets of events")
        assert len(events.segments) > 2
        # Apache Kafka deletes a segment some time after it has renamed it.
        wait_for(lambda: deleted or first_offset(short), 60, "a segment to be deleted")
        consumed = kafka_tools.consume(broker.bootstrap_servers, ["events"])["events-0"]
        require_same([as_consumed(record) for record in events.read()], consumed["records"], "events")
        times = timestamps_of(events.read())
        for timestamp in sorted(set(times))[::20]:
            assert events.offset_for_time(timestamp) == times.index(timestamp)
    broker.kill()
    with LogDirectory(broker.log_dir) as logs:
        require_same([as_consumed(record) for record in logs["events", 0].read()], consumed["records"], "killed")


def test_what_kafka_compacts_is_read_on(kafka_broker: BrokerFactory, kafka_tools: KafkaTools) -> None:
    broker = kafka_broker(None, FREQUENT)
    create_topic(kafka_tools, broker, "keyed", "cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01")
    with LogDirectory(broker.log_dir) as logs:
        log = logs["keyed", 0]

        def read_while_compacted() -> bool:
            log.refresh()
            newest = {record.key: record.offset for record in log.read()}
            assert len(newest) == 100
            return len(list(log.read())) < log.log_end_offset / 2

        for _ in range(4):
            produce(broker.bootstrap_servers, "keyed", 3000, 100)
            wait_for(read_while_compacted, 60, "the cleaner", interval_s=0)
        consumed = kafka_tools.consume(broker.bootstrap_servers, ["keyed"])["keyed-0"]
        log.refresh()
        assert {record.key: record.value for record in log.read()} == {
            base64.b64decode(row["key"]): base64.b64decode(row["value"]) for row in consumed["records"]
        }
