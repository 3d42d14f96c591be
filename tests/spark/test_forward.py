"""Forwarding to a topic of Apache Kafka, through transactions."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import odradek
from odradek.errors import SinkError
from odradek.kafka.client import BrokerClient
from odradek.kafka.settings import BrokerSettings
from odradek.offsets.store import Position, open_store
from odradek.places.broker_transaction import CommittedPosition, Transaction
from odradek.records.compression import Codec
from odradek.spark.options import SourceOptions
from odradek.spark.pipeline import Job, JobError, Pipeline
from odradek.spark.pipeline.functions import Transform
from odradek.spark.pipeline.sink_specs import TopicSinkSpec
from odradek.spark.source import SourceReader
from odradek.spark.spark_schema import arrow_schema, source_schema
from odradek.storage.names import TopicPartition
from peers.files import create_log
from peers.fixtures import BrokerFactory
from peers.kafka import KafkaBroker
from peers.kafka_fixture import KafkaFixture
from peers.kafka_tools import KafkaTools
from peers.ledger import require, require_same

pytestmark = pytest.mark.interop


@pytest.fixture
def broker(fixture_broker: KafkaBroker) -> KafkaBroker:
    """One for all tests: each has topics of its own."""
    return fixture_broker


def create_topic(tools: KafkaTools, broker: KafkaBroker, topic: str, partitions: int, *configs: str) -> None:
    tools.run(
        "org.apache.kafka.tools.TopicCommand",
        "--bootstrap-server", broker.bootstrap_servers, "--create", "--topic", topic,
        "--partitions", str(partitions), "--replication-factor", "1",
        *(part for config in configs for part in ("--config", config)),
    )  # fmt: skip


def job(tmp_path: Path, broker: KafkaBroker, **changes: Any) -> Job:
    values: dict[str, Any] = {
        "name": "forward",
        "source": {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "keyed", "includeHeaders": "true"},
        "offset_store": (tmp_path / "offsets.json").as_uri(),
        "sinks": (
            TopicSinkSpec("copy", {"bootstrap.servers": broker.bootstrap_servers}, compression="lz4", on_held="skip"),
        ),
    }
    return Job(**{**values, **changes})


def committed(broker: KafkaBroker, topic: str) -> dict[int, list[tuple[Any, ...]]]:
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": topic,
        "isolation.level": "read_committed",
    }
    reader = SourceReader(SourceOptions.parse(options), arrow_schema(source_schema(include_headers=True)))
    found: dict[int, list[tuple[Any, ...]]] = {}
    for split in reader.partitions():
        for batch in reader.read(split):
            for row in batch.to_pylist():
                headers = row["headers"] and [(header["key"], header["value"]) for header in row["headers"]]
                found.setdefault(row["partition"], []).append((row["key"], row["value"], headers, row["timestamp"]))
    return found


def expected(fixture: KafkaFixture, partition: int) -> list[tuple[Any, ...]]:
    records = fixture.records(f"keyed-{partition}")
    return [(record.key, record.value, list(record.headers) or None, record.timestamp) for record in records]


@pytest.mark.every_case
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
            partition: [(key, value, headers, round(when.timestamp() * 1000)) for key, value, headers, when in rows]
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
    zombie.write(TopicPartition("copy", 0), pa.record_batch({"value": pa.array([b"undead"])}))
    assert Pipeline(job(tmp_path, broker, max_offsets_per_batch=444), spark).run() >= 2
    with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
        zombie.commit(CommittedPosition(9999))
    client.close()
    require(copied() == wanted, "the records")
    assert Pipeline(job(tmp_path, broker), spark).run() == 0
    require(copied() == wanted, "the records")

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
    require(found == Counter((key, value) for number in (0, 2) for key, value, _, _ in wanted[number]), "the records")
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
    early.commit(CommittedPosition(3))
    client.close()
    with open_store(behind.offset_store) as store:
        store.commit({TopicPartition("keyed", 2): Position(10)}, expected=store.load())
    with pytest.raises(JobError, match="forwarded up to offset 3"):
        Pipeline(behind, spark).run()


LARGEST = 5 << 20


def write_source(log_dir: Path) -> dict[int, list[tuple[Any, ...]]]:
    """Write records of 0 bytes to 5 MB, many of them in batches of more than a megabyte."""
    rng, now_ms = random.Random(7), round(time.time() * 1000)
    sent: dict[int, list[tuple[Any, ...]]] = {0: [], 1: []}
    with odradek.open(log_dir) as logs:
        logs.create_topic("sizes", partitions=2, config={"max.message.bytes": str(LARGEST + (1 << 20))})
        for partition, rows in sent.items():
            sizes = [1000] * 1500 + [rng.choice((0, 1, 100, 20_000, 899_000)) for _ in range(40)] + [LARGEST]
            for number, size in enumerate(sizes):
                value = None if number % 97 == 3 else rng.randbytes(size)
                key = None if number % 5 == 0 else b"key-%d" % (number % 11)
                headers = [("number", b"%d" % number), ("null", None)] if number % 3 == 0 else []
                rows.append((key, value, headers or None, now_ms + number))
            records = [odradek.Record(key, value, headers or (), when) for key, value, headers, when in rows]
            for start in range(0, len(records), 400):
                logs["sizes", partition].append(records[start : start + 400])
    return sent


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_forwards_records_of_any_size(
    spark: SparkSession, broker: KafkaBroker, kafka_tools: KafkaTools, tmp_path: Path, compression: str
) -> None:
    topic = f"sizes-{compression}"
    create_topic(kafka_tools, broker, topic, 2, f"max.message.bytes={LARGEST + (1 << 20)}")
    sent = write_source(tmp_path / "source")
    sink = TopicSinkSpec(topic, {"bootstrap.servers": broker.bootstrap_servers}, compression=compression)
    source = {"path": str(tmp_path / "source"), "subscribe": "sizes", "includeHeaders": "true"}
    assert Pipeline(job(tmp_path, broker, source=source, sinks=(sink,)), spark).run() == 1
    found = {
        partition: [(key, value, headers, round(when.timestamp() * 1000)) for key, value, headers, when in rows]
        for partition, rows in committed(broker, topic).items()
    }
    assert found.keys() == sent.keys()
    for partition, rows in sent.items():
        require_same(found[partition], rows, f"partition {partition}")


@pytest.mark.laboratory  # a setting of Apache Kafka
def test_a_record_of_10_mb_is_forwarded_where_both_sides_allow_it(
    spark: SparkSession, any_broker: BrokerFactory, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    largest, rng, now_ms = 12 << 20, random.Random(10), round(time.time() * 1000)
    sizes = [10, 10 << 20, 900_000, 10 << 20, 0]
    records = [odradek.Record(b"%d" % n, rng.randbytes(size), (), now_ms + n) for n, size in enumerate(sizes)]
    create_log(tmp_path / "data", "big", records, config={"max.message.bytes": str(largest)})
    broker = any_broker(tmp_path / "data", {"message.max.bytes": str(largest)})
    source = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "big"}
    sinks = []
    for codec in ("none", "zstd"):
        # The topic has the broker's limit.
        create_topic(kafka_tools, broker, f"big-{codec}", 1)
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        sinks.append(TopicSinkSpec(f"big-{codec}", servers, compression=codec))
    # Two sinks: Spark keeps what both of them read.
    assert Pipeline(job(tmp_path, broker, source=source, sinks=tuple(sinks)), spark).run() == 1
    for codec in ("none", "zstd"):
        found = committed(broker, f"big-{codec}")[0]
        assert [(key, len(value)) for key, value, _, _ in found] == [(b"%d" % n, size) for n, size in enumerate(sizes)]
        require_same([value for _, value, _, _ in found], [record.value for record in records], f"big-{codec}")
        # What Kafka's tools show of the group that holds the position.
        (row,) = kafka_tools.consumer_group_describe(broker.bootstrap_servers, f"forward-big-{codec}-big-0")
        assert (row["TOPIC"], row["LAG"]) == (f"big-{codec}", "0")


def test_columns_that_only_have_the_name_of_the_sources_are_refused(
    spark: SparkSession, broker: KafkaBroker, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    create_topic(kafka_tools, broker, "columns", 1)
    sink = TopicSinkSpec("columns", {"bootstrap.servers": broker.bootstrap_servers}, view="some")
    for columns, wrong in (
        ("topic, 0 AS partition, offset", "partition"),
        ("topic, partition, 10L AS offset", "offset"),
    ):
        some = Transform("some", f"SELECT {columns}, value FROM records")
        with pytest.raises(SinkError, match=f"column {wrong} of the view some is not the source's"):
            Pipeline(job(tmp_path, broker, transforms=(some,), sinks=(sink,)), spark).run()
    assert committed(broker, "columns") == {}


def test_what_is_forwarded_already_is_asked_about(
    spark: SparkSession, broker: KafkaBroker, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    create_topic(kafka_tools, broker, "again", 1)
    log_dir = tmp_path / "source"
    create_log(log_dir, "t", [b"%d" % number for number in range(50)])

    def run(on_held: str) -> list[bytes]:
        sink = TopicSinkSpec("again", {"bootstrap.servers": broker.bootstrap_servers}, on_held=on_held)
        source = {"path": str(log_dir), "subscribe": "t"}
        Pipeline(job(tmp_path, broker, name="again", source=source, sinks=(sink,)), spark).run()
        return [value for _, value, _, _ in committed(broker, "again")[0]]

    once = [b"%d" % number for number in range(50)]
    assert run("error") == once
    (tmp_path / "offsets.json").unlink()
    with pytest.raises(SinkError, match="holds t-0 up to offset 50 already"):
        run("error")
    assert run("skip") == once
    (tmp_path / "offsets.json").unlink()
    assert run("replay") == once * 2
    # The topic is made again: what was forwarded is no part of it.
    with odradek.open(log_dir) as logs:
        logs.delete_topic("t")
        logs.create_topic("t")
        logs["t", 0].append([odradek.Record(value=b"new")])
    (tmp_path / "offsets.json").unlink()
    with pytest.raises(SinkError, match="another topic of that name"):
        run("skip")
    assert run("replay") == [*once * 2, b"new"]


def test_columns_say_where_each_record_goes(
    spark: SparkSession, broker: KafkaBroker, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    """All external topics to their internal ones by one sink, also after a crash before the end was stored."""
    log_dir = tmp_path / "source"
    with odradek.open(log_dir) as logs:
        logs.create_topic("tea", partitions=2)
        logs.create_topic("coffee")
        for name, count in (("tea-0", 90), ("tea-1", 5), ("coffee-0", 60)):
            topic, number = name.split("-")
            logs[topic, int(number)].append([odradek.Record(b"k", b"%s %d" % (name.encode(), n)) for n in range(count)])
    create_topic(kafka_tools, broker, "internal.tea", 2)
    create_topic(kafka_tools, broker, "internal.coffee", 3)
    routed = Transform(
        "routed",
        "SELECT topic, partition, offset, key, value, concat('internal.', topic) AS target, "
        "IF(topic = 'coffee', offset % 3, NULL) AS target_partition FROM records",
    )
    servers = {"bootstrap.servers": broker.bootstrap_servers}

    def sink(view: str = "routed", **changes: Any) -> TopicSinkSpec:
        return TopicSinkSpec(None, servers, view, topic_column="target", partition_column="target_partition", **changes)

    def run(spec: TopicSinkSpec, *more: Transform, **changes: Any) -> int:
        source = {"path": str(log_dir), "subscribe": "tea,coffee"}
        work = job(tmp_path, broker, source=source, transforms=(routed, *more), sinks=(spec,), **changes)
        return Pipeline(work, spark).run()

    def values(topic: str) -> dict[int, list[bytes]]:
        return {number: [value for _, value, _, _ in rows] for number, rows in committed(broker, topic).items()}

    assert run(sink(), max_offsets_per_batch=70) == 3
    (tmp_path / "offsets.json").unlink()
    assert run(sink(on_held="skip"), max_offsets_per_batch=100) == 2
    require(
        values("internal.tea")
        == {
            0: [b"tea-0 %d" % n for n in range(90)],
            1: [b"tea-1 %d" % n for n in range(5)],
        },
        "the records",
    )
    require(
        values("internal.coffee") == {rest: [b"coffee-0 %d" % n for n in range(rest, 60, 3)] for rest in range(3)},
        "the records",
    )

    # Where there is no such topic, or no such partition, on_invalid decides.
    lost = Transform(
        "lost",
        "SELECT topic, partition, offset, value, CASE WHEN topic = 'tea' THEN target WHEN offset = 7 THEN 'no topic' "
        "WHEN offset <> 8 THEN target END AS target, IF(topic = 'tea' AND offset = 4, 9, 0) AS target_partition "
        "FROM routed",
    )
    store = {"offset_store": (tmp_path / "lost.json").as_uri(), "name": "lost"}
    told = r"topics by target of .* does not take the record at offset 7 of coffee-0: there is no topic no topic"
    with pytest.raises(SinkError, match=told):
        run(sink("lost"), lost, **store)
    source = {"path": str(log_dir), "subscribe": "tea,coffee"}
    skipping = job(
        tmp_path, broker, source=source, transforms=(routed, lost), sinks=(sink("lost", on_invalid="skip"),), **store
    )
    reports: list[Any] = []
    Pipeline(skipping, spark).run(reports.append)
    # Two of coffee-0, one of tea-0 and one of tea-1.
    assert [report.refused for report in reports] == [4]
    assert sum(len(rows) for topic in ("internal.tea", "internal.coffee") for rows in values(topic).values()) == 306


DAY_MS = 86_400_000


@pytest.mark.parametrize("partition_by", ["source", "key"])
def test_what_a_target_does_not_take_is_an_error_or_put_aside(
    spark: SparkSession, broker: KafkaBroker, kafka_tools: KafkaTools, tmp_path: Path, partition_by: str
) -> None:
    settings = (
        "cleanup.policy=compact",
        "max.message.bytes=20000",
        f"message.timestamp.before.max.ms={DAY_MS}",
        "min.cleanable.dirty.ratio=1",
    )
    strict, skips, puts_aside, letters = (f"{name}-{partition_by}" for name in ("strict", "skip", "aside", "letters"))
    for topic in (strict, skips, puts_aside):
        create_topic(kafka_tools, broker, topic, 2, *settings)
    create_topic(kafka_tools, broker, letters, 1, f"max.message.bytes={LARGEST}")
    now_ms = round(time.time() * 1000)
    records = [odradek.Record(b"key-%d" % n, b"%04d" % n * 100, (), now_ms + n) for n in range(300)]
    wrong = {
        70: odradek.Record(None, records[70].value, (), now_ms),
        71: odradek.Record(b"large", bytes(30_000), (), now_ms),
        200: odradek.Record(b"old", b"old", (), now_ms - 2 * DAY_MS),
    }
    with odradek.open(tmp_path / "source") as logs:
        logs.create_topic("t")
        for number in range(0, 300, 100):
            logs["t", 0].append([wrong.get(n, record) for n, record in enumerate(records)][number : number + 100])
    source = {"path": str(tmp_path / "source"), "subscribe": "t", "includeHeaders": "true"}

    def run(topic: str, **changes: Any) -> list[Any]:
        sink = TopicSinkSpec(
            topic, {"bootstrap.servers": broker.bootstrap_servers}, partition_by=partition_by, **changes
        )
        reports: list[Any] = []
        store = (tmp_path / f"{topic}.json").as_uri()
        Pipeline(job(tmp_path, broker, source=source, sinks=(sink,), offset_store=store), spark).run(reports.append)
        return reports

    def values(topic: str) -> list[bytes]:
        return sorted(value for rows in committed(broker, topic).values() for _, value, _, _ in rows)

    # What was before the record is there, once, however often it is tried again.
    for _ in range(2):
        told = rf"topic {strict} .* offset 70 of t-0: .*is forwarded.*on_invalid"
        with pytest.raises(SinkError, match=told) as error:
            run(strict)
    assert "key" in str(error.value)
    assert values(strict) == [record.value for record in records[:70]]
    valid = [record.value for number, record in enumerate(records) if number not in wrong]
    assert [report.refused for report in run(skips, on_invalid="skip")] == [3]
    assert values(skips) == valid
    aside = {"on_invalid": "dead-letter", "dead_letter_topic": letters}
    assert [report.refused for report in run(puts_aside, **aside)] == [3]
    assert values(puts_aside) == valid
    found = {
        int(dict(headers)["__odradek.errors.offset"]): (key, value, round(when.timestamp() * 1000), dict(headers))
        for key, value, headers, when in committed(broker, letters)[0]
    }
    assert {offset: row[:3] for offset, row in found.items()} == {
        offset: (record.key, record.value, record.timestamp) for offset, record in wrong.items()
    }
    assert found[71][3]["__odradek.errors.topic"] == b"t"
    assert found[71][3]["__odradek.errors.partition"] == b"0"
    assert b"max.message.bytes" in found[71][3]["__odradek.errors.message"]
    assert b"message.timestamp.before.max.ms" in found[200][3]["__odradek.errors.message"]
    assert b"key" in found[70][3]["__odradek.errors.message"]
