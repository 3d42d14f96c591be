"""One folder, written in turn by us and by Apache Kafka, closed in order or killed: does each go on with it?"""

from __future__ import annotations

import json
import random
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import odradek
from odradek.errors import LogDirectoryLockedError
from odradek.inspection import verify
from odradek.messages.uuids import format_uuid
from odradek.records import Record
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.formats.checkpoints import LOG_START_OFFSET_CHECKPOINT, read_offset_checkpoint
from odradek.storage.names import TopicPartition
from odradek.testing.wire import WireClient
from peers import log_writer
from peers.kafka import KafkaBroker
from peers.kafka_fixture import consumed_record
from peers.kafka_tools import KafkaTools
from peers.ledger import ISOLATIONS, READ_COMMITTED, Ledger
from peers.librdkafka import read_to_end
from peers.log_writer import TOPICS, now_ms, open_transaction, sequence_batch, some_records, with_offsets, write_round
from peers.placed import offset_of, timestamp_of
from peers.process import PATIENCE, wait_for
from peers.requests import produce_message, produced

ROUNDS = 5
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
NO_ERROR = 0
FREQUENT = {
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.cleaner.backoff.ms": "300",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    "log.segment.delete.delay.ms": "1000",
    # Ours are verified by nobody: the coordinator never heard of them.
    "transaction.max.timeout.ms": "900000",
}
TIMESTAMP_TYPES = {
    confluent_kafka.TIMESTAMP_CREATE_TIME: "CreateTime",
    confluent_kafka.TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime",
}
LIBRDKAFKA = {"log_level": 0, "socket.timeout.ms": 30_000}


# -- what each side is given


def by_java(tools: KafkaTools, broker: KafkaBroker, isolation: str) -> dict[TopicPartition, list[Record]]:
    consumed = tools.consume(broker.bootstrap_servers, TOPICS, isolation=isolation)
    return {
        TopicPartition(name.rpartition("-")[0], int(name.rpartition("-")[2])): [
            consumed_record(row) for row in partition["records"]
        ]
        for name, partition in consumed.items()
    }


def by_librdkafka(broker: KafkaBroker, isolation: str) -> dict[TopicPartition, list[Record]]:
    places = [TopicPartition(topic, number) for topic, (count, _) in TOPICS.items() for number in range(count)]
    found: dict[TopicPartition, list[Record]] = {place: [] for place in places}
    for message in read_to_end(broker.bootstrap_servers, places, isolation, **LIBRDKAFKA):
        found[TopicPartition(message.topic() or "", message.partition() or 0)].append(as_record(message))
    return found


def as_record(message: confluent_kafka.Message) -> Record:
    kind, timestamp = message.timestamp()
    given = (timestamp, message.offset(), TIMESTAMP_TYPES[kind])
    headers: Any = message.headers() or ()
    return Record(message.key(), message.value(), headers, *given)


def check_reader(ledger: Ledger, isolation: str, found: dict[TopicPartition, list[Record]]) -> None:
    for place in ledger.partitions:
        ledger.check(place, isolation, found[place])


def check_ours(ledger: Ledger, logs: LogDirectory) -> None:
    """Read every partition by ourselves: all of it, what is committed, from the middle, and by time."""
    for place in ledger.partitions:
        log = logs[place]
        assert log.log_start_offset == ledger.start(place)
        assert log.damage == []
        for isolation in ISOLATIONS:
            ledger.check(place, isolation, list(log.read(isolation=isolation)))
        records = list(log.read())
        half = records[len(records) // 2 :]
        assert list(log.read(half[0].offset)) == half
        # A look-up by time finds markers too, as Kafka's does.
        timed = [(record.timestamp or 0, record.offset) for record in log.read(include_control=True)]
        for time_ms, _ in timed[:: max(1, len(timed) // 10)]:
            first = next(offset for timestamp, offset in timed if timestamp >= time_ms)
            assert log.offset_for_time(time_ms) == first


# -- what Kafka is asked to do


def check_topics(tools: KafkaTools, broker: KafkaBroker, ids: dict[str, str]) -> None:
    servers = broker.bootstrap_servers
    listed = set(tools.topics(servers, "--list").check().stdout.split())
    assert listed - {"__consumer_offsets", "__transaction_state"} == set(TOPICS)
    described = {}
    for line in tools.topics(servers, "--describe").check().stdout.splitlines():
        fields = dict(field.lstrip().split(": ", 1) for field in line.split("\t") if ": " in field)
        if "PartitionCount" in fields:
            described[fields["Topic"]] = (fields["TopicId"], int(fields["PartitionCount"]))
    assert {name: described[name] for name in TOPICS} == {
        name: (ids[name], partitions) for name, (partitions, _) in TOPICS.items()
    }
    settings: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in tools.configs(servers, "--describe", "--entity-type", "topics").check().stdout.splitlines():
        if line.startswith("Dynamic configs for topic "):
            current = settings.setdefault(line.split()[4], {})
        elif "=" in line:
            name, _, value = line.split()[0].partition("=")
            current[name] = value
    assert {name: settings.get(name, {}) for name in TOPICS} == {name: config for name, (_, config) in TOPICS.items()}


def send(producer: confluent_kafka.Producer, topic: str, partition: int, records: Sequence[Record]) -> list[Record]:
    """Send records, and return them with the offsets that the broker gave them."""
    delivered_at: list[tuple[int, int | None, str]] = []

    def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        assert error is None, error
        kind, timestamp = message.timestamp()
        delivered_at.append((timestamp, message.offset(), TIMESTAMP_TYPES[kind]))

    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition,
            on_delivery=delivered,
            timestamp=timestamp_of(record),
            headers=list(record.headers),
        )
    assert producer.flush(60) == 0
    return [
        Record(record.key, record.value, record.headers, *given)
        for record, given in zip(records, delivered_at, strict=True)
    ]


def append_by_kafka(broker: KafkaBroker, ledger: Ledger, number: int, source: random.Random) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20, **LIBRDKAFKA}
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    producer = confluent_kafka.Producer(
        {**settings, "compression.type": codecs[number % len(codecs)], "enable.idempotence": number % 2 == 0}
    )
    for topic, (partitions, _) in TOPICS.items():
        if topic in {"sequences", "transactions"}:
            continue
        for partition in range(partitions):
            ledger.acknowledged(topic, partition, send(producer, topic, partition, some_records(source, 100)))
    append_sequences(broker, ledger, source)
    append_transactions(settings, ledger, number, source)


def append_sequences(broker: KafkaBroker, ledger: Ledger, source: random.Random) -> None:
    """Go on with the sequence of the producer that we wrote for."""
    place = TopicPartition("sequences", 0)
    client = WireClient("127.0.0.1", broker.port)

    def sent(batch: bytes) -> tuple[int, int]:
        return produced(client.call(0, 7, produce_message(batch, "sequences", acks=-1)))

    for _ in range(3):
        records = some_records(source, 7)
        end = (ledger.expected(place, READ_COMMITTED)[-1].offset or 0) + 1
        gap = sequence_batch(records, end + 1)
        assert sent(gap)[0] == OUT_OF_ORDER_SEQUENCE_NUMBER
        batch = sequence_batch(records, end)
        assert sent(batch) == (NO_ERROR, end)
        # Once more: it knows it.
        assert sent(batch) == (NO_ERROR, end)
        ledger.acknowledged(*place, with_offsets(records, end))
    client.close()


def append_transactions(settings: dict[str, object], ledger: Ledger, number: int, source: random.Random) -> None:
    producer = confluent_kafka.Producer(
        {**settings, "transactional.id": "theirs", "transaction.timeout.ms": 900_000, "compression.type": "lz4"}
    )
    # This aborts what the one before it left undecided.
    producer.init_transactions(60)
    if number:
        ledger.ended(f"theirs-{number - 1}-open", False)
    for part, outcome in enumerate(["committed", "aborted", "open"]):
        name = f"theirs-{number}-{'open' if outcome == 'open' else part}"
        producer.begin_transaction()
        sent = send(producer, "transactions", 0, some_records(source, 15))
        ledger.acknowledged("transactions", 0, sent, name)
        if outcome == "committed":
            producer.commit_transaction(60)
        elif outcome == "aborted":
            producer.abort_transaction(60)
        if outcome != "open":
            ledger.ended(name, outcome == "committed")


def check_group(broker: KafkaBroker, number: int) -> None:
    """Look whether a group's position is what it was the round before, and move it on."""
    place = ("codecs", 0)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "kept", "enable.auto.commit": False, **LIBRDKAFKA}
    )
    with closing(consumer):
        (found,) = consumer.committed([confluent_kafka.TopicPartition(*place)], 30)
        assert found.offset == (number or confluent_kafka.OFFSET_INVALID)
        consumer.commit(offsets=[confluent_kafka.TopicPartition(*place, number + 1)], asynchronous=False)


def delete_by_kafka(tools: KafkaTools, broker: KafkaBroker, ledger: Ledger, folder: Path) -> None:
    place = TopicPartition("headless", 0)
    offset = offset_of(ledger.expected(place, READ_COMMITTED)[-30])
    wish = {"version": 1, "partitions": [{"topic": place.topic, "partition": 0, "offset": offset}]}
    path = folder / "delete-records.json"
    path.write_text(json.dumps(wish), encoding="utf-8")
    tool = "org.apache.kafka.tools.DeleteRecordsCommand"
    tools.run(tool, "--bootstrap-server", broker.bootstrap_servers, "--offset-json-file", path).check()
    ledger.started(*place, offset)
    # Until then a broker that is killed forgets it.
    checkpoint = broker.log_dir / LOG_START_OFFSET_CHECKPOINT
    wait_for(lambda: read_offset_checkpoint(checkpoint).get(place) == offset, 30, "the new log start on the disk")


def abort_by_kafka(tools: KafkaTools, broker: KafkaBroker, ledger: Ledger, number: int) -> None:
    """Let Kafka's tool abort the transaction that we left undecided, as it finds it in the producers' state."""
    name = open_transaction(number)
    start_offset = ledger.open_transactions(TopicPartition("transactions", 0))[name]
    flags = ["abort", "--topic", "transactions", "--partition", "0", "--start-offset", str(start_offset)]
    tool = "org.apache.kafka.tools.TransactionsCommand"
    tools.run(tool, "--bootstrap-server", broker.bootstrap_servers, *flags).check()
    ledger.ended(name, False)


def wait_for_cleaner(broker: KafkaBroker, ledger: Ledger) -> None:
    place = TopicPartition("compacted", 0)
    whole = len(ledger.expected(place, READ_COMMITTED))

    def is_compacted() -> bool:
        with LogDirectory(broker.log_dir) as logs:
            return len(list(logs[place].read())) < whole / 4

    wait_for(is_compacted, 30, "Kafka's cleaner", interval_s=0.2)


# -- our side, to be killed


def write_and_be_killed(log_dir: Path, ledger: Ledger, number: int, source: random.Random) -> None:
    """Let a process of its own write a round, and kill it while it goes on appending."""
    command = [sys.executable, str(Path(log_writer.__file__)), str(log_dir), str(number)]
    environment = {"PYTHONPATH": ":".join(str(Path(path).absolute()) for path in sys.path if path)}
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert writer.stdout is not None
        lines: list[str] = []
        deadline = time.monotonic() + 60 * PATIENCE
        while sum("'noise'" in line[:30] for line in lines[-20:]) < 10 + source.randrange(10):
            readable, _, _ = select.select([writer.stdout], [], [], deadline - time.monotonic())
            assert readable, "the writer says nothing"
            line = writer.stdout.readline()
            assert line, "the writer has ended by itself"
            lines.append(line)
        writer.kill()
        lines += writer.stdout.readlines()
    finally:
        writer.kill()
        writer.wait()
        if writer.stdout is not None:
            writer.stdout.close()
    for name, *arguments in log_writer.shown(lines):
        getattr(ledger, name)(*arguments)


def check_indexes(tools: KafkaTools, log_dir: Path) -> None:
    """Let Kafka's dump tool judge the indexes, which are trimmed now."""
    found = sorted(
        path
        for topic in TOPICS
        for path in log_dir.glob(f"{topic}-*/*index")
        if path.suffix in {".index", ".timeindex"}
    )
    filled = [path for path in found if path.stat().st_size]
    assert len(filled) > 15
    result = tools.dump_log(found, "--index-sanity-check").check()
    assert result.stderr == ""
    passed = {line.split()[0] for line in result.stdout.splitlines() if line.endswith("passed sanity check.")}
    assert {str(path) for path in filled} <= passed
    result = tools.dump_log(filled, "--verify-index-only").check()
    # The tool asks the records for the greatest timestamp, of which a batch that compaction emptied has none.
    lines = result.stderr.splitlines()
    assert all("/compacted-0/" in line for line in lines[::2]), result.stderr
    assert all(line.endswith(", log timestamp: -1") for line in lines[1::2]), result.stderr
    assert all(line.startswith("Dumping ") for line in result.stdout.splitlines())
    assert len(result.stdout.splitlines()) == len(filled)


def check_verified(log_dir: Path) -> None:
    """Whoever wrote, and whether it was closed, killed or is at work: nothing is wrong with the files."""
    assert list(verify(log_dir, decode=True)) == []


# -- the tests


@pytest.fixture
def broker(every_kafka: KafkaTools, tmp_path: Path) -> Iterator[KafkaBroker]:
    """A broker that is not started yet, on a folder that is not there yet."""
    broker = KafkaBroker(every_kafka, tmp_path / "log-dir", FREQUENT)
    yield broker
    broker.kill()


# A minute; the other tests of this file take the folder over once each.
@pytest.mark.laboratory
def test_five_rounds_on_one_folder(every_kafka: KafkaTools, broker: KafkaBroker, tmp_path: Path) -> None:
    log_dir = broker.log_dir
    ledger = Ledger(compacted=["compacted"])
    source = random.Random(1)
    with odradek.open(log_dir) as logs:
        for topic, (partitions, config) in TOPICS.items():
            logs.create_topic(topic, partitions, config)
        ids = {topic: format_uuid(found) for topic in TOPICS if (found := logs.topic_id(topic)) is not None}

    for number in range(ROUNDS):
        if number % 2:
            write_and_be_killed(log_dir, ledger, number, source)
        else:
            with odradek.open(log_dir) as logs:
                write_by_us(logs, ledger, number)
            check_indexes(every_kafka, log_dir)
        check_verified(log_dir)

        broker.start()
        consumed = {isolation: by_java(every_kafka, broker, isolation) for isolation in ISOLATIONS}
        for partition in range(TOPICS["noise"][0]):
            place = TopicPartition("noise", partition)
            ledger.adopt_tail(place, consumed[READ_COMMITTED][place], b"noise-%d-" % number)
        for isolation in ISOLATIONS:
            check_reader(ledger, isolation, consumed[isolation])
            check_reader(ledger, isolation, by_librdkafka(broker, isolation))
        check_topics(every_kafka, broker, ids)
        check_group(broker, number)
        append_by_kafka(broker, ledger, number, source)
        if number % 2:
            delete_by_kafka(every_kafka, broker, ledger, tmp_path)
        if number == 3:
            abort_by_kafka(every_kafka, broker, ledger, number)
        wait_for_cleaner(broker, ledger)
        check_verified(log_dir)
        if number in {2, 3}:
            broker.kill()
        else:
            broker.stop()
        check_verified(log_dir)

        with LogDirectory(log_dir) as reader:
            check_ours(ledger, reader)
        assert not list(log_dir.glob("*-stray"))

    with odradek.open(log_dir) as logs:
        check_ours(ledger, logs)


def write_by_us(logs: WritableLogDirectory, ledger: Ledger, number: int) -> None:
    if number:
        check_ours(ledger, logs)
    write_round(logs, number, lambda name, *arguments: getattr(ledger, name)(*arguments))
    for partition in range(TOPICS["noise"][0]):
        records = [Record(b"noise", b"quiet", (), now_ms())]
        ledger.acknowledged("noise", partition, with_offsets(records, logs["noise", partition].append(records)))
    check_ours(ledger, logs)


def test_topics_come_grow_and_go_on_either_side(every_kafka: KafkaTools, tmp_path: Path) -> None:
    paths = [tmp_path / "first", tmp_path / "second"]
    broker = KafkaBroker(every_kafka, paths[0], FREQUENT, more_log_dirs=paths[1:])
    ledger = Ledger()

    def append(logs: WritableLogDirectory) -> None:
        for place in logs.topic_partitions():
            if not place.topic.startswith("__"):
                records = [Record(b"k", b"%d" % number, (), now_ms()) for number in range(5)]
                ledger.acknowledged(*place, with_offsets(records, logs[place].append(records)))

    def check(logs: WritableLogDirectory, partitions: dict[str, int]) -> None:
        topics = {topic: len(logs.topic_partitions(topic)) for topic in logs.topics() if not topic.startswith("__")}
        assert topics == partitions
        for topic, count in partitions.items():
            for number in range(count):
                place = TopicPartition(topic, number)
                ledger.check(place, READ_COMMITTED, list(logs[place].read()))

    def check_kafka(partitions: dict[str, int]) -> None:
        consumed = every_kafka.consume(broker.bootstrap_servers, partitions)
        for topic, count in partitions.items():
            for number in range(count):
                rows = consumed[f"{topic}-{number}"]["records"]
                ledger.check(TopicPartition(topic, number), READ_COMMITTED, [consumed_record(row) for row in rows])

    def ask_kafka(*flags: str) -> None:
        every_kafka.topics(broker.bootstrap_servers, *flags).check()

    with odradek.open(paths) as logs:
        for topic, count in {"grows": 2, "goes": 2, "goes-there": 2, "stays": 3}.items():
            logs.create_topic(topic, count, {"segment.ms": "100000"})
        append(logs)
    assert all(len(list(path.glob("*-[0-9]"))) > 3 for path in paths)
    with odradek.open(paths) as logs:
        # What comes after this is behind what was there when it was closed.
        logs.delete_topic("goes")
        logs.create_partitions("grows", 3)
        logs.alter_topic_config("stays", {"segment.ms": None, "retention.ms": "-1"})
        append(logs)
    left = {"grows": 3, "goes-there": 2, "stays": 3}
    try:
        broker.start()
        check_kafka(left)
        ask_kafka("--delete", "--topic", "goes-there")
        ask_kafka("--alter", "--topic", "grows", "--partitions", "5")
        ask_kafka("--create", "--topic", "comes", "--partitions", "2", "--config", "compression.type=gzip")
        left = {"grows": 5, "comes": 2, "stays": 3}
        wait_for(lambda: all(list(path.glob("comes-*")) for path in paths), 30, "the new topic's folders")
        broker.kill()
        with odradek.open(paths) as logs:
            check(logs, left)
            assert logs.topic_config("comes").compression_type == "gzip"
            assert logs.topic_config("stays").overrides == {"retention.ms": "-1"}
            append(logs)
            # The name is free, and what was under it before does not come back.
            ledger.forget("goes-there")
            logs.create_topic("goes-there", 1)
            logs.delete_topic("comes")
            append(logs)
        left = {"grows": 5, "goes-there": 1, "stays": 3}
        broker.start()
        check_kafka(left)
        broker.stop()
    finally:
        broker.kill()
    assert not [path for folder in paths for path in folder.glob("*-stray")]
    with odradek.open(paths) as logs:
        assert not logs.report
        check(logs, left)


@pytest.mark.laboratory  # a lock; unit/storage has it
def test_only_one_of_us_writes_at_a_time(every_kafka: KafkaTools, broker: KafkaBroker) -> None:
    def values(logs: LogDirectory, topic: str) -> list[bytes | None]:
        return [record.value for record in logs[topic, 0].read()]

    with odradek.open(broker.log_dir) as logs:
        logs.create_topic("held", 1)
        logs["held", 0].append([Record(b"k", b"v", (), now_ms())])
        with pytest.raises(RuntimeError, match="did not start"):
            broker.start()
        assert "Failed to acquire lock on file .lock" in broker.tail(10_000)
        # Its controller has written metadata nevertheless, behind which our change goes.
        logs["held", 0].append([Record(b"k", b"w", (), now_ms())])
        logs.create_topic("later", 1)
        logs["later", 0].append([Record(b"k", b"x", (), now_ms())])
    broker.start()
    with pytest.raises(LogDirectoryLockedError, match="has it open for writing"):
        odradek.open(broker.log_dir)
    assert every_kafka.topics(broker.bootstrap_servers, "--list").check().stdout.split() == ["held", "later"]
    # Reading is always allowed, and whoever was refused has changed nothing.
    with LogDirectory(broker.log_dir) as reader:
        assert (values(reader, "held"), values(reader, "later")) == ([b"v", b"w"], [b"x"])
    consumed = every_kafka.consume(broker.bootstrap_servers, ["held", "later"])
    assert {name: len(partition["records"]) for name, partition in consumed.items()} == {"held-0": 2, "later-0": 1}
    broker.stop()
    with odradek.open(broker.log_dir) as logs:
        assert not logs.report
        assert (values(logs, "held"), values(logs, "later")) == ([b"v", b"w"], [b"x"])
