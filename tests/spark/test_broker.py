"""`format("odradek")` with `kafka.bootstrap.servers`, against Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from peers.fixtures import BrokerFactory
from peers.kafka import KafkaBroker
from peers.kafka_fixture import KafkaFixture
from peers.ledger import require_same
from peers.process import PATIENCE, wait_for

from .test_source import expected_rows, rows_read

pytestmark = pytest.mark.interop


def read(spark: SparkSession, broker: KafkaBroker, **options: str) -> DataFrame:
    servers = broker.bootstrap_servers
    return spark.read.format("odradek").option("kafka.bootstrap.servers", servers).options(**options).load()


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_gives_what_consumers_were_given(
    spark: SparkSession, fixture_broker: KafkaBroker, fixture_4_3_1: KafkaFixture, isolation: str
) -> None:
    consumed = fixture_4_3_1.consumed if isolation == "read_uncommitted" else fixture_4_3_1.consumed_committed
    options = {"isolation.level": isolation, "subscribePattern": "(?!__).*", "includeHeaders": "true"}
    found = rows_read(read(spark, fixture_broker, **options))
    for name, rows in expected_rows(consumed).items():
        require_same(found.get(name, []), rows, name)


def test_offsets_and_times(spark: SparkSession, fixture_broker: KafkaBroker, fixture_4_3_1: KafkaFixture) -> None:
    options = {"startingOffsets": '{"v2-zstd": {"0": 100}}', "endingOffsets": '{"v2-zstd": {"0": 150}}'}
    rows = read(spark, fixture_broker, subscribe="v2-zstd", minPartitions="3", **options).select("offset").collect()
    assert sorted(row.offset for row in rows) == list(range(100, 150))
    asked = next(
        asked
        for asked in fixture_4_3_1.offsets_for_times
        if asked["topic"] == "v2-none" and asked["offset"] not in (-1, 0)
    )
    since = read(spark, fixture_broker, subscribe="v2-none", startingTimestamp=str(asked["timestamp"]))
    assert since.agg({"offset": "min"}).collect()[0][0] == asked["offset"]


def test_topic_that_does_not_exist(spark: SparkSession, fixture_broker: KafkaBroker) -> None:
    with pytest.raises(PySparkException, match="no-such-topic does not exist"):
        read(spark, fixture_broker, subscribe="no-such-topic").count()


@pytest.mark.laboratory  # it kills
def test_broker_killed_and_started_again_while_a_task_reads(
    spark: SparkSession, any_broker: BrokerFactory, writable_log_dir: Path, tmp_path: Path
) -> None:
    broker = any_broker(writable_log_dir)
    begun, restarted = tmp_path / "begun", tmp_path / "restarted"

    # Runs in a worker, which does not have the modules of the tests.
    def wait_in_the_middle(batches: Iterator[object]) -> Iterator[object]:
        for batch in batches:
            begun.touch()
            deadline = time.monotonic() + 120 * PATIENCE
            while not restarted.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            yield batch

    frame = read(spark, broker, subscribe="keyed,v2-none", **{"kafka.max.partition.fetch.bytes": "1"})
    slowed = frame.mapInArrow(wait_in_the_middle, frame.schema)
    with ThreadPoolExecutor() as jobs:
        counted = jobs.submit(slowed.count)
        try:
            wait_for(lambda: begun.exists() or counted.done(), 120, "the first task to read")
            broker.kill()
            broker.start()
        finally:
            restarted.touch()
        assert counted.result(180 * PATIENCE) == 2400
