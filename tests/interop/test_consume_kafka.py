"""`odradek.consume` with its place in Kafka: it reads a broker's own folder, and the group is the broker's."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaProducer

import odradek
from odradek.errors import CommitConflictError
from peers.fixtures import BrokerFactory
from peers.kafka_fixture import KafkaFixture
from peers.kafka_tools import KafkaTools

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")]


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect()


def test_the_group_of_a_reader_of_a_brokers_folder(
    kafka_broker: BrokerFactory, kafka_tools: KafkaTools, writable_log_dir: Path, fixture_4_3_1: KafkaFixture
) -> None:
    broker = kafka_broker(writable_log_dir)
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
