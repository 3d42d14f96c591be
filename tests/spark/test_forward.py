"""Forwarding to a topic of Apache Kafka 4.3.1, through transactions."""

from __future__ import annotations

import base64
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from odradek.kafka.client import BrokerClient
from odradek.kafka.producer import Transaction
from odradek.kafka.settings import BrokerSettings
from odradek.offsets.store import Position, open_store
from odradek.records.compression import Codec
from odradek.spark.options import SourceOptions
from odradek.spark.pipeline import Job, JobError, Pipeline
from odradek.spark.pipeline.job import TopicSinkSpec, Transform
from odradek.spark.source import BatchReader
from odradek.spark.spark_schema import arrow_schema, source_schema
from odradek.storage.names import TopicPartition
from peers.fixtures import BrokerFactory
from peers.kafka import KafkaBroker
from peers.kafka_fixture import KafkaFixture
from peers.kafka_tools import KafkaTools

pytestmark = pytest.mark.interop


@pytest.fixture
def broker(kafka_broker: BrokerFactory, writable_log_dir: Path) -> KafkaBroker:
    return kafka_broker(writable_log_dir)


def create_topic(tools: KafkaTools, broker: KafkaBroker, topic: str, partitions: int) -> None:
    tools.run(
        "org.apache.kafka.tools.TopicCommand",
        "--bootstrap-server", broker.bootstrap_servers, "--create", "--topic", topic,
        "--partitions", str(partitions), "--replication-factor", "1",
    )  # fmt: skip


def job(tmp_path: Path, broker: KafkaBroker, **changes: Any) -> Job:
    values: dict[str, Any] = {
        "name": "forward",
        "source": {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "keyed", "includeHeaders": "true"},
        "offset_store": (tmp_path / "offsets.json").as_uri(),
        "sinks": (TopicSinkSpec("copy", {"bootstrap.servers": broker.bootstrap_servers}, compression="lz4"),),
    }
    return Job(**{**values, **changes})


def committed(broker: KafkaBroker, topic: str) -> dict[int, list[tuple[Any, ...]]]:
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topic,
        "isolation.level": "read_committed",
    }
    reader = BatchReader(SourceOptions.parse(options), arrow_schema(source_schema(include_headers=True)))
    found: dict[int, list[tuple[Any, ...]]] = {}
    for split in reader.partitions():
        for batch in reader.read(split):
            for row in batch.to_pylist():
                headers = row["headers"] and [(header["key"], header["value"]) for header in row["headers"]]
                found.setdefault(row["partition"], []).append((row["key"], row["value"], headers, row["timestamp"]))
    return found


def expected(fixture: KafkaFixture, partition: int) -> list[tuple[Any, ...]]:
    def decoded(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text)

    return [
        (
            decoded(record["key"]),
            decoded(record["value"]),
            [(key, decoded(value)) for key, value in record["headers"]] or None,
            record["timestamp"],
        )
        for record in fixture.consumed[f"keyed-{partition}"]["records"]
    ]


def test_forwards_every_record_once(
    spark: SparkSession,
    broker: KafkaBroker,
    kafka_tools: KafkaTools,
    fixture_4_3_1: KafkaFixture,
    tmp_path: Path,
) -> None:
    create_topic(kafka_tools, broker, "copy", 3)
    wanted = {partition: expected(fixture_4_3_1, partition) for partition in range(3)}

    def copied() -> dict[int, list[tuple[Any, ...]]]:
        return {
            partition: [(key, value, headers, round(time.timestamp() * 1000)) for key, value, headers, time in rows]
            for partition, rows in committed(broker, "copy").items()
        }

    # Stops after the first batch, as if it had died before its end was stored.
    pipeline = Pipeline(job(tmp_path, broker, max_offsets_per_batch=300), spark)
    pipeline.run(lambda report: pipeline.stop())
    (tmp_path / "offsets.json").unlink()
    # A zombie's transaction is open: it must be ended, not waited for, and what it wrote must not be seen.
    client = BrokerClient(BrokerSettings.parse({"bootstrap.servers": broker.bootstrap_servers}))
    zombie = Transaction(client, "forward-copy-keyed-0", "copy", Codec.NONE)
    zombie.begin()
    zombie.send(0, pa.record_batch({"value": pa.array([b"undead"])}))
    assert Pipeline(job(tmp_path, broker, max_offsets_per_batch=444), spark).run() >= 2
    with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
        zombie.commit(9999)
    client.close()
    assert copied() == wanted
    assert Pipeline(job(tmp_path, broker), spark).run() == 0
    assert copied() == wanted

    # By key, through a shuffle, and with nothing at all to forward from one partition.
    create_topic(kafka_tools, broker, "by-key", 2)
    by_key = job(
        tmp_path,
        broker,
        name="by-key",
        offset_store=(tmp_path / "by-key.json").as_uri(),
        transforms=(Transform("some", "SELECT DISTINCT * FROM records WHERE partition <> 1"),),
        sinks=(
            TopicSinkSpec("by-key", {"bootstrap.servers": broker.bootstrap_servers}, view="some", partition_by="key"),
        ),
        max_offsets_per_batch=600,
    )
    assert Pipeline(by_key, spark).run() == 2
    rows = committed(broker, "by-key")
    found = Counter((key, value) for part in rows.values() for key, value, _, _ in part)
    assert found == Counter((key, value) for number in (0, 2) for key, value, _, _ in wanted[number])
    homes = {
        key: {partition for partition, part in rows.items() for found, *_ in part if found == key}
        for key, *_ in rows[0]
    }
    assert all(len(partitions) == 1 for key, partitions in homes.items() if key is not None)

    # The store says that more is done than was forwarded.
    behind = job(
        tmp_path,
        broker,
        offset_store=(tmp_path / "behind.json").as_uri(),
        name="behind",
        sinks=(TopicSinkSpec("copy", {"bootstrap.servers": broker.bootstrap_servers}),),
    )
    client = BrokerClient(BrokerSettings.parse({"bootstrap.servers": broker.bootstrap_servers}))
    early = Transaction(client, "behind-copy-keyed-2", "copy", Codec.NONE)
    early.begin()
    early.commit(3)
    client.close()
    with open_store(behind.offset_store) as store:
        store.commit({TopicPartition("keyed", 2): Position(10)}, expected=store.load())
    with pytest.raises(JobError, match="forwarded up to offset 3"):
        Pipeline(behind, spark).run()
