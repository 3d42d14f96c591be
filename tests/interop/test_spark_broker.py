"""The source against Apache Kafka 4.3.1, without Spark: the reader of its tasks, beside what other clients got."""

from __future__ import annotations

import base64
import gc
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek.errors import BrokerUnavailableError, OptionError
from odradek.records.builder import build_batch
from odradek.spark.open_transactions import OpenTransaction
from odradek.spark.options import SourceOptions
from odradek.spark.ranges import DataLossError, check_places
from odradek.spark.source import SourceReader
from odradek.spark.source_topics import open_topics
from odradek.spark.spark_schema import arrow_schema, source_schema
from odradek.spark.stream import StreamReader
from odradek.storage.names import TopicPartition
from peers.fixtures import BrokerFactory
from peers.kafka import KafkaBroker
from peers.kafka_fixture import KafkaFixture
from peers.ledger import require_same
from peers.process import free_port

pytestmark = pytest.mark.interop
TIMESTAMP_TYPES = {"CreateTime": 0, "LogAppendTime": 1, "NoTimestampType": -1}


def rows(broker: KafkaBroker, **options: str) -> list[dict[str, Any]]:
    parsed = SourceOptions.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, **options})
    reader = SourceReader(parsed, arrow_schema(source_schema(include_headers=True)))
    found = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            found.extend(batch.to_pylist())
    return found


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@pytest.fixture
def broker(any_broker: BrokerFactory, writable_log_dir: Path) -> KafkaBroker:
    return any_broker(writable_log_dir)


def test_reads_a_broker_as_its_consumers_do(broker: KafkaBroker, fixture_4_3_1: KafkaFixture) -> None:
    for isolation, consumed in (
        ("read_uncommitted", fixture_4_3_1.consumed),
        ("read_committed", fixture_4_3_1.consumed_committed),
    ):
        found: dict[str, list[tuple[Any, ...]]] = {}
        # Small fetches, so that transactions and batches lie across their borders.
        for row in rows(
            broker,
            subscribePattern="(?!__).*",
            **{"kafka.isolation.level": isolation, "kafka.max.partition.fetch.bytes": "5000"},
        ):
            headers = row["headers"] and [(header["key"], header["value"]) for header in row["headers"]]
            found.setdefault(f"{row['topic']}-{row['partition']}", []).append(
                (row["offset"], row["timestamp"].timestamp(), row["timestampType"], row["key"], row["value"], headers)
            )
        for name, partition in consumed.items():
            assert found.get(name, []) == [
                (
                    record["offset"],
                    record["timestamp"] / 1000,
                    TIMESTAMP_TYPES[record["timestampType"]],
                    decoded(record["key"]),
                    decoded(record["value"]),
                    [(key, decoded(value)) for key, value in record["headers"]] or None,
                )
                for record in partition["records"]
            ], (name, isolation)

    records = fixture_4_3_1.consumed["keyed-2"]["records"]
    cut = rows(
        broker,
        assign='{"keyed": [2]}',
        startingOffsets='{"keyed": {"2": 17}}',
        endingOffsets='{"keyed": {"2": 203}}',
        minPartitions="4",
    )
    require_same(
        [row["offset"] for row in cut],
        [record["offset"] for record in records if 17 <= record["offset"] < 203],
        "the records",
    )

    appended = fixture_4_3_1.consumed["v2-append-time-0"]["records"]
    time = appended[600]["timestamp"]
    late = rows(broker, subscribe="v2-append-time", startingTimestamp=str(time))
    assert late[0]["offset"] == next(record["offset"] for record in appended if record["timestamp"] >= time)

    head = {"subscribe": "truncated-head", "startingOffsets": '{"truncated-head": {"0": 3}}'}
    with pytest.raises(DataLossError, match="deleted by retention"):
        rows(broker, **head)
    assert rows(broker, **head, failOnDataLoss="false")[0]["offset"] == 777

    with pytest.raises(OptionError, match="topic nowhere does not exist"):
        rows(broker, subscribe="nowhere")

    stream = StreamReader(
        SourceOptions.parse(
            {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "keyed", "startingOffsets": "earliest"},
            streaming=True,
        ),
        arrow_schema(source_schema(include_headers=False)),
    )
    start = stream.initialOffset()
    assert {number: start["keyed"][number] for number in "012"} == {"0": 0, "1": 0, "2": 0}
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    ends = {str(n): fixture_4_3_1.consumed[f"keyed-{n}"]["highWatermark"] for n in range(3)}
    assert {number: end["keyed"][number] for number in "012"} == ends
    assert end["keyed"]["topic_id"] == start["keyed"]["topic_id"]
    assert set(end["keyed"]["leader_epochs"]) == set("012")
    read = [row for split in stream.partitions(start, end) for batch in stream.read(split) for row in batch.to_pylist()]
    assert {str(n): sum(row["partition"] == n for row in read) for n in range(3)} == {
        str(n): len(fixture_4_3_1.consumed[f"keyed-{n}"]["records"]) for n in range(3)
    }
    stream.stop()


def test_leader_epochs_are_a_brokers(broker: KafkaBroker) -> None:
    name = TopicPartition("keyed", 0)
    options = SourceOptions.parse({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "keyed"})
    with closing(open_topics(options)) as topics:
        bounds = topics.bounds([name])[name]
        assert bounds.leader_epoch is not None
        for epoch in (bounds.leader_epoch, 0):
            assert topics.epoch_ends({name: epoch})[name] <= bounds.end_offset
        assert topics.epoch_ends({name: bounds.leader_epoch}) == {name: bounds.end_offset}
        assert topics.epoch_ends({name: bounds.leader_epoch + 1}) == {}
        place = {name: replace(bounds.position(bounds.end_offset), leader_epoch=0)}
        cut = topics.epoch_ends({name: 0})[name] < bounds.end_offset
        with pytest.raises(DataLossError, match="grown since") if cut else nullcontext():
            check_places(topics, {name: bounds}, place, fail_on_data_loss=True)
        broker.kill()
        broker.start()
        # The same records, under another epoch perhaps: nothing is lost.
        check_places(topics, topics.bounds([name]), {name: bounds.position(bounds.end_offset)}, fail_on_data_loss=True)


def test_times_in_an_open_transaction_are_a_folders_too(kafka_broker: BrokerFactory, tmp_path: Path) -> None:
    log_dir, name = tmp_path / "log-dir", TopicPartition("t", 0)
    with odradek.open(log_dir) as logs:
        logs.create_topic("t", config={"retention.ms": "-1"})
        logs[name].append([odradek.Record(value=b"decided", timestamp=1000)])
        undecided = [odradek.Record(value=b"undecided", timestamp=2000)]
        logs[name].append_batches(
            bytearray(build_batch(undecided, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
        )
    broker = kafka_broker(log_dir)
    for isolation, found in (("read_uncommitted", [0, 1]), ("read_committed", [0, None])):
        for place in ({"path": str(log_dir)}, {"kafka.bootstrap.servers": broker.bootstrap_servers}):
            options = SourceOptions.parse({**place, "subscribe": "t", "isolation.level": isolation})
            with closing(open_topics(options)) as topics:
                assert [topics.offsets_for_times({name: time})[name] for time in (1000, 2000)] == found
                assert topics.open_transactions([name]) == [OpenTransaction(name, 1, 1, 2000)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_broker_that_is_not_there_is_one_line() -> None:
    parsed = SourceOptions.parse(
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "kafka.default.api.timeout.ms": "500",
            "subscribe": "t",
        }
    )
    said = ""
    try:
        SourceReader(parsed, arrow_schema(source_schema(include_headers=False))).partitions()
    except BrokerUnavailableError as error:
        said = str(error)
    assert said.startswith("BROKER_NOT_AVAILABLE (8): 127.0.0.1:1: listing topics")
    # kafka-python leaves the socket of a refused connection to the collector.
    gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_speaks_sasl(kafka_broker: BrokerFactory, tmp_path: Path) -> None:
    log_dir = tmp_path / "log-dir"
    with odradek.open(log_dir) as logs:
        logs.create_topic("secret", config={"retention.ms": "-1"})
        logs["secret", 0].append([odradek.Record(value=b"%d" % number, timestamp=number) for number in range(100)])
    port = free_port()
    controller = free_port()
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    broker = kafka_broker(
        log_dir,
        {
            "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"SASL_PLAINTEXT://127.0.0.1:{port}",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'{module} username="admin" password="a" user_admin="a" user_reader="r";'
            ),
        },
        port=port,
    )
    options = {
        "subscribe": "secret",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{module} username="reader" password="r";',
    }
    assert [row["value"] for row in rows(broker, **options)] == [b"%d" % number for number in range(100)]
    wrong = {"kafka.sasl.jaas.config": f'{module} username="reader" password="x";'}
    with pytest.raises(BrokerUnavailableError, match="listing topics"):
        rows(broker, **{**options, **wrong, "kafka.default.api.timeout.ms": "3000"})
    gc.collect()
