"""Transactions beside Apache Kafka: the same answers, the same records, one folder; and clients for Python."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

import odradek
from odradek.broker.partitions import Partition
from odradek.broker.running import BrokerThread
from odradek.errors import LogOfflineError
from odradek.messages.coordinators.transaction_records import decode_transaction_record
from odradek.records.append.batching import AppendResult
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from odradek.testing.wire import WireClient
from peers.fixtures import BrokerFactory
from peers.kafka_tools import KafkaTools
from peers.librdkafka import read_to_end
from peers.process import PATIENCE, wait_for
from peers.transactional import CREATE_TOPICS, STATES, Described, TransactionalProducer, answers, find_coordinator

EXPECTED: dict[str, dict[str, list[Any]]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "transaction-answers-kafka-4.3.1.json").read_text(encoding="utf-8")
)
OURS: dict[str, str | int | float | bool] = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.num.partitions": 5,
    "group.initial.rebalance.delay.ms": 0,
}
TOPIC_ALREADY_EXISTS = 36
SKIPPED = "these partitions are likely deleted already and hence can be skipped"
"""What Apache Kafka says when it leaves out the markers of a decided transaction."""
KAFKAS = {"offsets.topic.num.partitions": "5", "transaction.state.log.num.partitions": "1"}


@contextmanager
def ours(path: Path) -> Iterator[tuple[WireClient, str]]:
    """Run our broker, with the topic; give a connection and its address."""
    with BrokerThread(path, OURS) as running:
        if "events" not in running.broker.logs.metadata_image.topics:
            running.broker.logs.create_topic("events", 2)
        endpoint = running.endpoint()
        with WireClient(endpoint.host, endpoint.port) as client:
            wait_for(lambda: not running.broker.transactions.states.is_loading, 30, "the states")
            yield client, f"{endpoint.host}:{endpoint.port}"


@contextmanager
def apache(kafka_broker: BrokerFactory, path: Path) -> Iterator[tuple[WireClient, str]]:
    """Run Apache Kafka, with the topic; give a connection and its address."""
    broker = kafka_broker(path, KAFKAS)
    try:
        with WireClient("127.0.0.1", broker.port) as client:
            topic = {"name": "events", "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
            message = {"topics": [topic], "timeout_ms": 10_000, "validate_only": False}
            assert int(client.call(CREATE_TOPICS, 5, message).topics[0].error_code) in (0, TOPIC_ALREADY_EXISTS)
            yield client, broker.bootstrap_servers
    finally:
        broker.stop()


@pytest.mark.laboratory  # of Apache Kafka alone
def test_apache_kafka_answers_so(kafka_broker: BrokerFactory, tmp_path: Path) -> None:
    with apache(kafka_broker, tmp_path / "kafka") as (client, _):
        find_coordinator(client, "t")
        for state, expected in EXPECTED.items():
            version, name = state.split()
            assert answers(client, "events", None, int(version), name) == expected


def every_state(client: WireClient) -> dict[tuple[int, str], Described]:
    """Bring transactional ids into every state, and describe them."""
    find_coordinator(client, "t")
    for version in (1, 2):
        for name, bring in STATES.items():
            if name != "none":
                bring(TransactionalProducer(client, f"{version}-{name}", version, "events", None))
    return described(client)


def described(client: WireClient) -> dict[tuple[int, str], Described]:
    find_coordinator(client, "t")
    found = {}
    for version in (1, 2):
        for name in STATES:
            if name != "none":
                producer = TransactionalProducer(client, f"{version}-{name}", version, "events", None)
                producer.patiently(lambda producer=producer: producer.describe().error_code)  # type: ignore[misc]
                found[version, name] = producer.describe()
    return found


def go_on(client: WireClient) -> None:
    """End the open transactions, and commit one more of each transactional id."""
    for (version, name), found in described(client).items():
        producer = TransactionalProducer(client, f"{version}-{name}", version, "events", None)
        producer.producer_id, producer.producer_epoch = found.producer_id, found.producer_epoch
        producer.sequences[0] = 1 if name == "Ongoing" or (version == 1 and name.startswith("Complete")) else 0
        if version == 1 and name != "Ongoing":
            producer.patiently(lambda producer=producer: producer.add(0)[0])  # type: ignore[misc]
        producer.patiently(lambda producer=producer: producer.produce(0, b"more", sequence=producer.sequences[0]))  # type: ignore[misc]
        producer.patiently(lambda producer=producer: producer.end(True))  # type: ignore[misc]
        assert producer.until_idle() == "CompleteCommit"


def test_our_transactions_go_on_on_apache_kafka(kafka_broker: BrokerFactory, tmp_path: Path) -> None:
    with ours(tmp_path / "data") as (client, _):
        before = every_state(client)
    with apache(kafka_broker, tmp_path / "data") as (client, _):
        assert described(client) == before
        go_on(client)


def test_apache_kafkas_transactions_go_on_on_ours(kafka_broker: BrokerFactory, tmp_path: Path) -> None:
    with apache(kafka_broker, tmp_path / "data") as (client, _):
        before = every_state(client)
    with ours(tmp_path / "data") as (client, _):
        assert described(client) == before
        go_on(client)


def test_the_records_are_those_of_apache_kafka(kafka_broker: BrokerFactory, tmp_path: Path) -> None:
    def script(client: WireClient) -> None:
        every_state(client)
        for version in (1, 2):
            # Fenced, and aborted though nothing was written.
            producer = TransactionalProducer(client, f"{version}-Ongoing", version, "events", None)
            producer.patiently(producer.init)
            producer.patiently(producer.init)
            if version == 2:
                producer.patiently(lambda producer=producer: producer.end(False))  # type: ignore[misc]
                producer.until_idle()

    def stored(path: Path) -> list[Any]:
        with odradek.open(path, mode="r") as logs:
            records = list(logs[TRANSACTION_STATE_TOPIC, 0].read())
        found = []
        for record in records:
            read = decode_transaction_record(record.key, record.value)
            began = read.value.transaction_start_timestamp_ms
            value = read.value._replace(
                transaction_last_update_timestamp_ms=0,
                transaction_start_timestamp_ms=min(began, 0),
            )
            found.append((read.type, read.key, read.version, value))
        return found

    with ours(tmp_path / "ours") as (client, _):
        script(client)
    with apache(kafka_broker, tmp_path / "kafka") as (client, _):
        script(client)
    assert stored(tmp_path / "ours") == stored(tmp_path / "kafka")


def decide(path: Path, monkeypatch: pytest.MonkeyPatch, *, commit: bool) -> None:
    """Have our broker end a transaction, but for the marker of its second partition."""
    append = Partition.append_acknowledged

    async def append_marker(self: Partition, *args: Any, **kwargs: Any) -> AppendResult:
        if self.log.path.name == "events-1":
            raise LogOfflineError(self.log.path, "the disk failed")
        return await append(self, *args, **kwargs)

    with monkeypatch.context() as patch, ours(path) as (client, _):
        patch.setattr(Partition, "append_acknowledged", append_marker)
        find_coordinator(client, "t")
        producer = TransactionalProducer(client, "t", 2, "events", None)
        producer.init()
        for partition in (0, 1):
            producer.produce(partition, b"a")
        assert producer.end(commit) == 0
        wait_for(lambda: producer.describe().partitions == (("events", 1),), 10, "the marker of one partition")


@pytest.mark.parametrize(("before", "commit"), [("ours", True), ("ours", False), ("closed", True), ("killed", False)])
def test_apache_kafka_completes_what_we_have_decided(
    kafka_broker: BrokerFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, commit: bool
) -> None:
    path = tmp_path / "data"
    if before == "closed":
        # The partitions of the topic have no leader, and there is no topic yet for the states of transactions.
        with apache(kafka_broker, path):
            pass
    elif before == "killed":
        # The states of transactions have a leader.
        broker = kafka_broker(path, KAFKAS)
        with WireClient("127.0.0.1", broker.port) as client:
            find_coordinator(client, "t")
        broker.kill()
    decide(path, monkeypatch, commit=commit)
    with apache(kafka_broker, path) as (client, servers):
        find_coordinator(client, "t")
        producer = TransactionalProducer(client, "t", 2, "events", None)
        producer.patiently(lambda: producer.describe().error_code)
        assert producer.until_idle() == ("CompleteCommit" if commit else "CompleteAbort")
        assert read_committed(servers, 0) == read_committed(servers, 1) == ([b"a"] if commit else [])
    with odradek.open(path, mode="r") as logs:
        for log in (logs["events", number] for number in (0, 1)):
            assert log.last_stable_offset == log.log_end_offset
    assert SKIPPED not in (tmp_path / "data.kafka" / "server.out").read_text(encoding="utf-8")


# -- clients

Transact = Callable[[str, str, list[bytes], bool], None]


def with_confluent(servers: str, group: str, values: list[bytes], commit: bool) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": "t", "log_level": 0})
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    try:
        producer.init_transactions(30)
        producer.begin_transaction()
        for number, value in enumerate(values):
            producer.produce("events", value, partition=number % 2)
        place = confluent_kafka.TopicPartition("events", 0, len(values))
        producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    finally:
        consumer.close()


def with_kafka_python(servers: str, group: str, values: list[bytes], commit: bool) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id="t")
    try:
        producer.init_transactions()
        producer.begin_transaction()
        for number, value in enumerate(values):
            producer.send("events", value, partition=number % 2)
        place = {kafka.TopicPartition("events", 0): kafka.OffsetAndMetadata(len(values), "", -1)}
        producer.send_offsets_to_transaction(place, group)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    finally:
        producer.close()


def with_aiokafka(servers: str, group: str, values: list[bytes], commit: bool) -> None:
    async def transact() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="t")
        await producer.start()
        try:
            await producer.begin_transaction()
            for number, value in enumerate(values):
                await producer.send("events", value, partition=number % 2)
            await producer.send_offsets_to_transaction({aiokafka.TopicPartition("events", 0): len(values)}, group)
            if commit:
                await producer.commit_transaction()
            else:
                await producer.abort_transaction()
        finally:
            await producer.stop()

    asyncio.run(transact())


def read_committed(servers: str, partition: int) -> list[bytes | None]:
    """Read a partition to its end."""
    return [message.value() for message in read_to_end(servers, [("events", partition)])]


def committed_offset(servers: str, group: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group, "log_level": 0})
    try:
        (found,) = consumer.committed([confluent_kafka.TopicPartition("events", 0)], timeout=30 * PATIENCE)
        return int(found.offset)
    finally:
        consumer.close()


# kafka-python leaves sockets to the garbage collector.
@pytest.mark.usefixtures("collected")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("transact", [with_confluent, with_kafka_python, with_aiokafka])
def test_clients_for_python(transact: Transact, tmp_path: Path) -> None:
    with ours(tmp_path / "data") as (_, servers):
        for number in range(3):
            values = [b"%d-%d" % (number, at) for at in range(4)]
            transact(servers, "group", values, number != 1)
        for partition in (0, 1):
            expected = [b"%d-%d" % (number, at) for number in (0, 2) for at in (partition, partition + 2)]
            assert read_committed(servers, partition) == expected
        assert committed_offset(servers, "group") == 4
    with odradek.open(tmp_path / "data", mode="r") as logs:
        for log in (logs["events", 0], *(logs[CONSUMER_OFFSETS_TOPIC, number] for number in range(5))):
            assert log.last_stable_offset == log.log_end_offset


def test_kafkas_own_tool(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    with ours(tmp_path / "data") as (client, servers):
        find_coordinator(client, "t")
        open_, hanging = (TransactionalProducer(client, name, 2, "events", None) for name in ("open", "hanging"))
        for producer in (open_, hanging):
            producer.init()
            producer.produce(0, b"a")

        def tool(*arguments: str) -> list[list[str]]:
            result = kafka_tools.run(
                "org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", servers, *arguments
            ).check()
            return [line.split() for line in result.stdout.splitlines()][1:]

        assert [line[0] for line in sorted(tool("list"))] == ["hanging", "open"]
        (described,) = tool("describe", "--transactional-id", "open")
        assert {"open", str(open_.producer_id), "Ongoing", "events-0"} <= set(described)
        producers = tool("describe-producers", "--topic", "events", "--partition", "0")
        assert sorted(int(line[0]) for line in producers) == sorted((open_.producer_id, hanging.producer_id))
        # The transaction that begins at offset 1 is ended behind its coordinator's back.
        tool("abort", "--topic", "events", "--partition", "0", "--start-offset", "1")
        producers = tool("describe-producers", "--topic", "events", "--partition", "0")
        assert {int(line[0]): line[-1] for line in producers} == {open_.producer_id: "0", hanging.producer_id: "None"}
