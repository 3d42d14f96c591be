"""`odradek.consume` with its place in Kafka: it reads a broker's own folder or the broker, whose group it is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer

import odradek
from odradek.errors import CommitConflictError
from peers.fixtures import BrokerFactory
from peers.kafka_fixture import KafkaFixture
from peers.kafka_tools import KafkaTools
from peers.ledger import require, require_same
from peers.process import PATIENCE

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.usefixtures("collected"),
]


@pytest.mark.laboratory  # as the group of a reader of a broker
def test_the_group_of_a_reader_of_a_brokers_folder(
    any_broker: BrokerFactory, kafka_tools: KafkaTools, writable_log_dir: Path, fixture_4_3_1: KafkaFixture
) -> None:
    broker = any_broker(writable_log_dir)
    address = f"kafka://{broker.bootstrap_servers}/embedded"

    def consumer() -> odradek.Consumer:
        return odradek.consume(
            writable_log_dir, "keyed", group=address, auto_commit=False, auto_offset_reset="earliest", follow=False
        )

    def described() -> dict[int, tuple[int, int, bool]]:
        rows = kafka_tools.consumer_group_describe(broker.bootstrap_servers, "embedded")
        return {
            int(row["PARTITION"]): (
                int(row["CURRENT-OFFSET"]),
                int(row["LAG"]),
                row["CONSUMER-ID"].startswith("odradek-"),
            )
            for row in rows
            # A kafka:// store remembers the topic's id beside an offset of Kafka's own topic.
            if row["TOPIC"] == "keyed"
        }

    there = {(number, record.offset) for number in range(3) for record in fixture_4_3_1.records(f"keyed-{number}")}
    ends = {number: fixture_4_3_1.consumed[f"keyed-{number}"]["highWatermark"] for number in range(3)}
    with consumer() as reader:
        first = [(name.partition, record.offset) for name, record in map(placed, reader.poll(max_records=500))]
        assert len(first) == 500
        reader.commit()
        shown = described()
        assert all(offset + lag == ends[number] for number, (offset, lag, _) in shown.items())
        assert {number: offset for number, (offset, _, _) in shown.items() if offset} == {
            number: max(offset or 0 for partition, offset in first if partition == number) + 1
            for number in {partition for partition, _ in first}
        }
        assert all(ours for _, _, ours in shown.values())
        reader.poll(max_records=100)  # neither committed nor done
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all")
    producer.send("keyed", value=b"one more", partition=1).get(30)
    producer.close()
    with consumer() as reader:
        rest = [(name.partition, record.offset) for name, record in map(placed, reader)]
        reader.commit()
        assert not set(first) & set(rest)
        assert set(first) | set(rest) == there | {(1, ends[1])}
        assert {number: lag for number, (_, lag, _) in described().items()} == {0: 0, 1: 0, 2: 0}
        with consumer() as later:
            later.seek_to_beginning()
            later.poll(max_records=10)
            later.commit()
            reader.seek_to_end()
            reader.seek_to_beginning()
            reader.poll(max_records=20)
            with pytest.raises(CommitConflictError):
                reader.commit()


def placed(consumed: odradek.ConsumedRecord) -> tuple[odradek.TopicPartition, odradek.Record]:
    return consumed.topic_partition, consumed.record


def test_the_records_of_a_broker_and_their_group(
    any_broker: BrokerFactory, kafka_tools: KafkaTools, writable_log_dir: Path, fixture_4_3_1: KafkaFixture
) -> None:
    """What consumers were given, with transactions; and a group that Kafka shows, and its consumers go on with."""
    broker = any_broker(writable_log_dir)
    address = f"kafka://{broker.bootstrap_servers}"
    topics = ["keyed", "compacted", "transactional", "truncated-head", "v2-*"]
    for isolation in ("read_uncommitted", "read_committed"):
        seen: dict[str, list[odradek.Record]] = {}
        with odradek.consume(
            address, topics, group=isolation, auto_offset_reset="earliest", isolation=isolation, follow=False
        ) as consumer:
            for placed_record in consumer:
                seen.setdefault(str(placed_record.topic_partition), []).append(placed_record.record)
        expected = {str(name): fixture_4_3_1.records(str(name), isolation) for name in consumer.assignment}
        require(seen == {name: records for name, records in expected.items() if records}, f"{isolation}: other records")
        rows = kafka_tools.consumer_group_describe(broker.bootstrap_servers, isolation)
        lags = {f"{row['TOPIC']}-{row['PARTITION']}": row["LAG"] for row in rows}
        assert lags == {str(name): "0" for name in consumer.assignment}

    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all")
    for number in range(10):
        producer.send("keyed", value=b"%d" % number, partition=1).get(30)
    producer.close()
    with odradek.consume(address, "keyed", group="read_committed", follow=False) as consumer:
        assert [record.value for _, _, record in consumer.poll(max_records=4)] == [b"0", b"1", b"2", b"3"]
    kafkas = KafkaConsumer(
        "keyed",
        bootstrap_servers=broker.bootstrap_servers,
        group_id="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    left: list[bytes] = []
    while len(left) < 6:
        for records in kafkas.poll(timeout_ms=1000, max_records=3).values():
            left += [record.value for record in records]
            if len(left) <= 3:
                kafkas.commit()
    kafkas.close()
    assert left == [b"4", b"5", b"6", b"7", b"8", b"9"]
    with odradek.consume(address, "keyed", group="read_committed", follow=False) as consumer:
        assert [record.value for _, _, record in consumer] == [b"7", b"8", b"9"]


_CONSUMER = """
import json, signal, sys
import odradek

signal.signal(signal.SIGINT, signal.default_int_handler)
given = []
consumer = odradek.consume(sys.argv[1], "t", group="g", auto_offset_reset="earliest", auto_commit_interval_ms=20)
try:
    with consumer:
        print("ready", flush=True)
        for topic, partition, record in consumer:
            given.append([partition, record.offset])
except KeyboardInterrupt:
    pass
committed = [[name.partition, position.offset] for name, position in consumer.committed.items()]
print(json.dumps([given, committed]))
"""


@pytest.mark.laboratory  # the moments are the clock's; unit/consumer/test_interrupts.py takes each in turn
def test_ctrl_c_at_any_moment(any_broker: BrokerFactory, kafka_tools: KafkaTools) -> None:
    """Each consumer goes on exactly where the one before it had committed, and that is what it was done with."""
    broker = any_broker()
    kafka_tools.topics(broker.bootstrap_servers, "--create", "--topic", "t", "--partitions", "2").check()
    stop = threading.Event()

    def produce() -> None:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, acks="all")
        while not stop.is_set():
            for _ in range(20):
                producer.send("t", value=b"x" * 100)
            producer.flush()
        producer.close()

    thread = threading.Thread(target=produce)
    thread.start()
    places, total = {0: 0, 1: 0}, 0
    try:
        for turn in range(6):
            command = [sys.executable, "-W", "ignore", "-c", _CONSUMER, f"kafka://{broker.bootstrap_servers}"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                # Not a wait for something: the moment of the interrupt.
                time.sleep(0.05 + turn * 0.31)
                process.send_signal(signal.SIGINT)
                given, committed = json.loads(process.communicate(timeout=60 * PATIENCE)[0])
            assert process.returncode == 0
            total += len(given)
            for partition, place in places.items():
                offsets = [offset for number, offset in given if number == partition]
                require_same(offsets, list(range(place, place + len(offsets))), f"offsets of partition {partition}")
                now = dict(committed).get(partition, place)
                # The last record of all may be one that the interrupt came in the middle of.
                is_right = place + len(offsets) - 1 <= now <= place + len(offsets)
                require(is_right, f"{now} was committed after {len(offsets)} records from {place} on")
                places[partition] = now
    finally:
        stop.set()
        thread.join()
    assert total
