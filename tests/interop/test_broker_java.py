"""Kafka's own programs use our broker: console tools, verifiable clients, Kafka Streams, Kafka Connect."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from odradek.broker.running import BrokerThread
from peers.jars import classpath
from peers.java_programs import events, java
from peers.java_properties import write_properties
from peers.kafka_tools import KafkaTools
from peers.ledger import require
from peers.process import free_port, wait_for

TIMEOUT_S = 90
WORD_COUNT = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
TEXT = ["all streams lead to kafka", "hello kafka streams", "join kafka summit"]
COUNTS = {"all": 1, "streams": 2, "lead": 1, "to": 1, "kafka": 3, "hello": 1, "join": 1, "summit": 1}
CONFIG = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
}


@pytest.fixture(scope="module")
def jars() -> str:
    return classpath("streams")


def properties(path: Path, **settings: str | int) -> Path:
    return write_properties(path, {name.replace("_", "."): value for name, value in settings.items()})


def test_verifiable_clients_lose_nothing(
    running: BrokerThread, servers: str, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    running.call(lambda: running.broker.logs.create_topic("verifiable", 3))
    count = 5000
    common = ("--bootstrap-server", servers, "--topic", "verifiable", "--max-messages", str(count))
    jars, tools = kafka_tools.classpath, "org.apache.kafka.tools"
    sent = events(jars, tmp_path / "sent", f"{tools}.VerifiableProducer", *common)
    acknowledged = [event for event in sent if event["name"] == "producer_send_success"]
    assert len({(event["partition"], event["offset"]) for event in acknowledged}) == count
    more = ("--group-id", "verifiable", "--reset-policy", "earliest")
    read = events(jars, tmp_path / "read", f"{tools}.VerifiableConsumer", *common, *more)
    assert sum(event["count"] for event in read if event["name"] == "records_consumed") == count
    committed = [event for event in read if event["name"] == "offsets_committed"]
    assert committed
    assert all(event["success"] for event in committed)
    assert sum(log.log_end_offset for log in running.broker.logs if log.topic_partition.topic == "verifiable") == count


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_producer_of_every_codec(running: BrokerThread, servers: str, kafka_tools: KafkaTools, codec: str) -> None:
    topic = f"codec-{codec}"
    running.call(lambda: running.broker.logs.create_topic(topic))
    kafka_tools.run(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", "2000", "--record-size", "500", "--throughput", "-1"),
        *("--bootstrap-server", servers, "--command-property", f"compression.type={codec}"),
    ).check()
    require(sum(1 for _ in running.broker.logs[topic, 0].read()) == 2000, "the records")


def test_streams_count_words(running: BrokerThread, servers: str, jars: str, tmp_path: Path) -> None:
    logs = running.broker.logs
    for topic in ("streams-plaintext-input", "streams-wordcount-output"):
        running.call(lambda topic=topic: logs.create_topic(topic, 2))  # type: ignore[misc]
    for line in TEXT:
        logs["streams-plaintext-input", 0].append(value=line.encode())
    common = {"bootstrap_servers": servers, "state_dir": str(tmp_path / "state")}
    settings = properties(tmp_path / "streams.properties", **common, group_protocol="classic")

    def counted() -> dict[str, int]:
        found: dict[str, int] = {}
        for number in range(2):
            for record in logs["streams-wordcount-output", number].read(isolation="read_committed"):
                assert record.key is not None
                assert record.value is not None
                found[record.key.decode()] = struct.unpack(">q", record.value)[0]
        return found

    # Its own protocol is not there: it says so at once.
    own, output = tmp_path / "own.out", tmp_path / "streams.out"
    unsupported = properties(tmp_path / "own.properties", **common, group_protocol="streams")
    with java(jars, own, WORD_COUNT, unsupported):
        refused = "The cluster does not support the STREAMS group protocol"
        wait_for(lambda: refused in own.read_text("utf-8", "replace"), TIMEOUT_S, "the protocol to be refused")
    with java(jars, output, WORD_COUNT, settings) as process:
        try:
            wait_for(lambda: counted() == COUNTS or process.poll() is not None, TIMEOUT_S, "the words to be counted")
        finally:
            told = output.read_text("utf-8", "replace")[-4000:]
        assert counted() == COUNTS, told
    assert any("repartition" in topic for topic in logs.topics())


def test_connect_copies_a_file_through_a_topic(running: BrokerThread, servers: str, jars: str, tmp_path: Path) -> None:
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    lines = [f"line {number}" for number in range(200)]
    source.write_text("\n".join(lines) + "\n", "utf-8")
    text = "org.apache.kafka.connect.storage.StringConverter"
    worker = properties(
        tmp_path / "worker.properties",
        bootstrap_servers=servers,
        key_converter=text,
        value_converter=text,
        offset_storage_file_filename=str(tmp_path / "connect.offsets"),
        offset_flush_interval_ms=500,
        listeners=f"http://127.0.0.1:{free_port()}",
        plugin_discovery="service_load",
    )
    reading = properties(
        tmp_path / "reading.properties",
        name="reading",
        connector_class="org.apache.kafka.connect.file.FileStreamSourceConnector",
        tasks_max=1,
        file=str(source),
        topic="lines",
    )
    writing = properties(
        tmp_path / "writing.properties",
        name="writing",
        connector_class="org.apache.kafka.connect.file.FileStreamSinkConnector",
        tasks_max=1,
        file=str(target),
        topics="lines",
    )
    output = tmp_path / "connect.out"
    main = "org.apache.kafka.connect.cli.ConnectStandalone"
    with java(jars, output, main, worker, reading, writing) as process:

        def copied() -> bool:
            return process.poll() is not None or (
                target.exists() and len(target.read_text("utf-8").splitlines()) >= 200
            )

        try:
            wait_for(copied, TIMEOUT_S, "the file to be copied")
        finally:
            told = output.read_text("utf-8", "replace")[-4000:]
    assert target.exists(), told
    assert target.read_text("utf-8").splitlines() == lines, told
