"""The consumer of a broker: the same as of a folder, with its place in the broker's group."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import odradek
from crash.interrupter import count, interrupted
from odradek.errors import (
    BrokerUnavailableError,
    FormatError,
    LogError,
    OffsetStoreError,
    OptionError,
    UnknownTopicOrPartitionError,
)
from odradek.records import Record
from odradek.storage.names import TopicPartition
from odradek.testing import Broker
from peers.kafka_fixture import KafkaFixture

# kafka-python leaves sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(scope="module")
def shared(fixture_4_3_1: KafkaFixture, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(shutil.copytree(fixture_4_3_1.log_dir, tmp_path_factory.mktemp("broker") / "data")) as broker:
        yield broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("t", partitions=2)
        yield running


def append(broker: Broker, *values: int, partition: int = 0) -> None:
    broker.logs["t", partition].append(
        [Record(b"k", b"%d" % value, timestamp=1_700_000_000_000 + value) for value in values]
    )


def consume(broker: Broker, topics: Any = "t", *, settings: str = "", **options: Any) -> odradek.Consumer:
    options = {"group": "g", "auto_offset_reset": "earliest", "follow": False, **options}
    return odradek.consume(f"kafka://{broker.bootstrap_servers}{settings}", topics, **options)


def values(records: Any) -> list[int]:
    return [int(consumed.record.value) for consumed in records]


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_all_that_real_consumers_saw(shared: Broker, fixture_4_3_1: KafkaFixture, isolation: Any) -> None:
    expected = fixture_4_3_1.consumed
    seen: dict[str, list[Record]] = {name: [] for name in expected}
    topics = {name.rpartition("-")[0] for name in expected}
    with consume(shared, topics, isolation=isolation, group=f"all-{isolation}") as consumer:
        for consumed in consumer:
            seen[str(consumed.topic_partition)].append(consumed.record)
    assert seen == {name: fixture_4_3_1.records(name, isolation) for name in expected}
    with consume(shared, topics, isolation=isolation, group=f"all-{isolation}") as consumer:
        assert list(consumer) == []


@pytest.mark.slow
def test_a_place_that_a_client_of_kafka_left(broker: Broker) -> None:
    append(broker, *range(10))
    broker.commit_offsets("g", {("t", 0): 7})
    with consume(broker, auto_offset_reset=None) as consumer:
        assert values(consumer) == [7, 8, 9]


@pytest.mark.slow
def test_what_is_deleted_while_it_reads(broker: Broker) -> None:
    append(broker, *range(5))
    with consume(broker) as consumer:
        assert values(consumer.poll(max_records=1)) == [0]
        append(broker, *range(5, 9))
        broker.logs["t", 0].roll()
        broker.logs["t", 0].delete_records(8)
        # Those of the first answer are in memory.
        assert values(consumer) == [1, 2, 3, 4, 8]


@pytest.mark.slow
def test_batches_larger_than_a_fetch(broker: Broker) -> None:
    broker.create_topic("large", config={"max.message.bytes": 8 << 20})
    sizes = [3 << 20, 10, 1 << 20, (1 << 20) + 1, 0, 5 << 20]
    for size in sizes:
        broker.logs["large", 0].append(value=b"x" * size)
    with consume(broker, "large") as consumer:
        assert [len(consumed.record.value or b"") for consumed in consumer] == sizes


@pytest.mark.slow
@pytest.mark.parametrize("api", ["Fetch", "ListOffsets", "Metadata", "OffsetFetch", "OffsetCommit"])
def test_connections_that_break(broker: Broker, api: str) -> None:
    append(broker, *range(1200))
    with consume(broker, auto_commit_interval_ms=0) as consumer:
        found = values([next(consumer)])
        for lost in (True, "answer"):
            fault = broker.fault(api, disconnect=lost, times=1)
            found += values(consumer.poll(max_records=300))
            found += values(consumer.poll(max_records=300))
            fault.remove()
        found += values(consumer)
    assert found == list(range(1200))
    with consume(broker) as consumer:
        assert values(consumer) == []


@pytest.mark.usefixtures("quick_failures")
def test_a_broker_that_is_away(broker: Broker) -> None:
    append(broker, 0, 1)
    with consume(broker, group=None) as consumer:
        with broker.fault("ListOffsets", error="LEADER_NOT_AVAILABLE"), pytest.raises(BrokerUnavailableError):
            consumer.seek_to_end()
        consumer.seek_to_beginning()
        assert values(consumer) == [0, 1]


@pytest.mark.slow
def test_damaged_bytes_are_an_error_after_the_records_before_them(broker: Broker) -> None:
    for value in range(3):
        append(broker, value)
    log = broker.logs["t", 0]
    segment = log.path / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    with consume(broker) as consumer:
        assert values(consumer.poll()) == [0, 1]
        with pytest.raises(FormatError, match="t-0 of 127"):
            consumer.poll()


@pytest.mark.slow
def test_a_fork_reads_on_by_connections_of_its_own_and_commits_nothing(broker: Broker) -> None:
    append(broker, *range(1000))
    with consume(broker, auto_commit=False) as consumer:
        found = values(consumer.poll(max_records=300))
        ours, childs = os.pipe()
        child = os.fork()
        if not child:
            status = 1
            try:
                rest = values(consumer.poll(max_records=1000)) + values(consumer.poll(max_records=1000))
                with pytest.raises(LogError):
                    consumer.commit()
                status = 0 if rest == list(range(300, 1000)) else 2
            finally:
                os.write(childs, b"%d" % status)
                os.kill(os.getpid(), signal.SIGKILL)
        found += values(consumer)
        consumer.commit()
        os.waitpid(child, 0)
        assert os.read(ours, 1) == b"0"
        os.close(ours)
        os.close(childs)
    assert found == list(range(1000))


@pytest.mark.slow
def test_asyncio(broker: Broker) -> None:
    append(broker, *range(5))

    async def read() -> list[int]:
        address = f"kafka://{broker.bootstrap_servers}"
        found: list[int] = []
        async with odradek.consume_async(address, "t", group="g", auto_offset_reset="earliest") as consumer:
            async for consumed in consumer:
                found.append(int(consumed.record.value or b""))
                if len(found) == 5:
                    await asyncio.to_thread(append, broker, 5)
                if len(found) == 6:
                    break
        return found

    assert asyncio.run(read()) == list(range(6))
    with consume(broker) as consumer:
        assert values(consumer) == []


@pytest.mark.costly
@pytest.mark.slow
@pytest.mark.usefixtures("real_locks")
@pytest.mark.parametrize("first", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 9))])
def test_polls_that_are_interrupted(broker: Broker, first: int) -> None:
    """Wherever Ctrl-C comes, a poll that is called again gives each record once, and so does the next consumer."""
    append(broker, *range(8))
    append(broker, *range(8, 16), partition=1)
    with consume(broker, group=None) as consumer:
        length = count(lambda: [consumer.poll(max_records=3) for _ in range(2)])
    for bytecode in range(first, length, 8 * max(1, length // 40)):
        given: list[Any] = []
        group = f"g-{bytecode}"
        consumer = consume(broker, group=group)

        def poll_twice(consumer: odradek.Consumer = consumer, given: list[Any] = given) -> None:
            for _ in range(2):
                given += consumer.poll(max_records=3)

        interrupted(poll_twice, bytecode)
        if bytecode % 2:
            while records := consumer.poll(max_records=3):
                given += records
        consumer.close()
        with consume(broker, group=group) as consumer:
            given += consumer
        assert sorted(values(given)) == list(range(16)), f"interrupted at bytecode {bytecode}"


@pytest.mark.slow
def test_what_is_refused(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match=f"nothing is not in kafka://{broker.bootstrap_servers}"):
        consume(broker, "nothing")
    with pytest.raises(OptionError, match="unknown option"):
        consume(broker, settings="?no.such=1")
    with pytest.raises(OptionError, match="where to start"):
        consume(broker, group=None, auto_offset_reset=None)
    with pytest.raises(OptionError, match="kafka://host:port"):
        odradek.consume("kafka://", "t", auto_offset_reset="earliest")
    # The group is the folder's, and the broker has the folder open.
    with pytest.raises(OffsetStoreError, match="is locked"):
        odradek.consume(broker.path, "t", group="g")
    with pytest.raises(OptionError, match="empty"):
        consume(broker, group="")
