"""`df.write.format("odradek")` and `df.writeStream`, to a folder and to brokers."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import odradek
import odradek.spark
import odradek.testing
from odradek.records.partitioner import partition_for_key
from peers.fixtures import BrokerFactory
from peers.kafka_fixture import consumed_record
from peers.kafka_tools import KafkaTools
from peers.ledger import require_same

ROW = "key binary, value binary, headers array<struct<key: string, value: binary>>, partition int, topic string"
Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int | None, str]
LARGEST = 5 << 20
TOPICS = ("t", "u")


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    with odradek.open(tmp_path / "data") as logs:
        for topic in TOPICS:
            logs.create_topic(topic, partitions=3, config={"max.message.bytes": str(LARGEST + (1 << 20))})
    return tmp_path / "data"


@pytest.fixture
def broker() -> Iterator[odradek.testing.Broker]:
    with odradek.testing.Broker() as broker:
        for topic in TOPICS:
            broker.create_topic(topic, 3, {"max.message.bytes": str(LARGEST + (1 << 20))})
        yield broker


def some_rows() -> list[Row]:
    """Rows of 0 bytes to 5 MB, with everything null that may be."""
    rng = random.Random(3)
    sizes = [rng.choice((0, 1, 100, 20_000)) for _ in range(400)] + [899_000, LARGEST]
    rows: list[Row] = [
        (b"empty", b"", None, None, "t"),
        (b"null", None, None, None, "u"),
        (None, b"no key", [], 2, "t"),
    ]
    for number, size in enumerate(sizes):
        key = None if number % 5 == 0 else b"key-%d" % (number % 11)
        headers = [("number", b"%d" % number), ("null", None), ("", b"")] if number % 3 == 0 else None
        value = b"%d " % number + rng.randbytes(size)
        rows.append((key, value, headers, number % 3 if number % 4 == 0 else None, "tu"[number % 2]))
    return rows


def read_logs(logs: odradek.LogDirectory) -> list[Row]:
    return [
        (record.key, record.value, list(record.headers) or None, partition, topic)
        for topic in TOPICS
        for partition in range(3)
        for record in logs[topic, partition].read(isolation="read_committed")
    ]


def check_placed(found: list[Row], rows: list[Row]) -> None:
    """Check that all rows were written, each in a partition where Kafka's producer would have put it."""

    def order(row: Row) -> Any:
        return row[4], repr(row[0]), repr(row[1])

    assert len(found) == len(rows)
    for there, given in zip(sorted(found, key=order), sorted(rows, key=order), strict=True):
        # Not `==` of all: what pytest would print of a difference has megabytes.
        assert (there[0], there[2], there[4]) == (given[0], given[2] or None, given[4])
        assert there[1] is given[1] or there[1] == given[1], "values differ"
        if given[3] is not None:
            assert there[3] == given[3]
        elif given[0] is not None:
            assert there[3] == partition_for_key(given[0], 3)


@dataclass
class Place:
    """A folder or a broker.

    Attributes:
        options: Where it is.
        rows: Reads what is there.
    """

    options: dict[str, str]
    rows: Callable[[], list[Row]]


@pytest.fixture(params=["folder", "broker"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "broker":
        broker = request.getfixturevalue("broker")
        return Place({"kafka.bootstrap.servers": broker.bootstrap_servers}, lambda: read_logs(broker.logs))
    log_dir = request.getfixturevalue("log_dir")

    def rows() -> list[Row]:
        with odradek.open(log_dir, "r") as logs:
            return read_logs(logs)

    return Place({"path": str(log_dir)}, rows)


@pytest.mark.parametrize("transactional", ["false", "true"])
@pytest.mark.laboratory  # a table of types; unit/spark has each
def test_rows_of_any_kind(spark: SparkSession, place: Place, transactional: str, tmp_path: Path) -> None:
    rows = some_rows()
    frame = spark.createDataFrame(rows, ROW).repartition(4)
    before = sorted(tmp_path.iterdir())
    save(frame, **place.options, transactional=transactional, **{"kafka.compression.type": "zstd"})
    check_placed(place.rows(), rows)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.interop
def test_kafkas_own_consumer_reads_what_spark_wrote(
    spark: SparkSession, any_broker: BrokerFactory, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    broker = any_broker()
    for topic in TOPICS:
        kafka_tools.topics(
            broker.bootstrap_servers, "--create", "--topic", topic, "--partitions", "3",
            "--replication-factor", "1", "--config", f"max.message.bytes={LARGEST + (1 << 20)}",
        ).check()  # fmt: skip
    rows = some_rows()
    target = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.compression.type": "lz4"}
    frame = spark.createDataFrame(rows, ROW).repartition(4)
    frame.write.format("odradek").mode("append").options(**target, transactional="true").save()
    found = kafka_tools.consume(broker.bootstrap_servers, TOPICS, isolation="read_committed")
    check_placed(consumed(found), rows)

    # Streams, whose batches are repeated.
    values = write_stream_twice(spark, tmp_path, {**target, "topic": "t"})
    found = kafka_tools.consume(broker.bootstrap_servers, TOPICS, isolation="read_committed")
    written = [value for _, value, _, _, topic in consumed(found) if topic == "t" and (value or b"").startswith(b"s-")]
    require_same(sorted(value or b"" for value in written), values, "the records")


def consumed(partitions: dict[str, Any]) -> list[Row]:
    found: list[Row] = []
    for name, partition in partitions.items():
        topic, _, number = name.rpartition("-")
        if topic in TOPICS:
            records = map(consumed_record, partition["records"])
            found += [(one.key, one.value, list(one.headers) or None, int(number), topic) for one in records]
    return found


def write_stream_twice(spark: SparkSession, tmp_path: Path, options: dict[str, str]) -> list[bytes]:
    """Write a stream, and again its last batch, as after a crash before Spark noted its end; return the values."""
    # Not our own source: Spark gives the process of a source in Python ten seconds to start, too few on a busy machine.
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()

    def append(start: int, end: int) -> list[bytes]:
        lines = [f"s-{number:04}" for number in range(start, end)]
        for part in (0, 1):
            (tmp_path / "new").write_text("\n".join(lines[part::2]))
            (tmp_path / "new").rename(source / f"{start}-{part}")
        return [line.encode() for line in lines]

    def run() -> int:
        query = (
            spark.readStream.text(str(source))
            .writeStream.format("odradek")
            .options(**options)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(240)
        finally:
            query.stop()
        return len([progress for progress in query.recentProgress if progress.numInputRows])

    values = append(0, 50)
    assert run() == 1
    values += append(50, 80)
    assert run() == 1
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    (checkpoint / "commits" / f"{last}").unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    assert run() == 1
    values += append(80, 90)
    assert run() == 1
    return values


def test_a_stream_writes_a_repeated_batch_once(spark: SparkSession, place: Place, tmp_path: Path) -> None:
    values = write_stream_twice(spark, tmp_path, {**place.options, "topic": "t"})
    assert sorted(row[1] or b"" for row in place.rows()) == values


def test_without_transactions_a_repeated_batch_is_there_twice(
    spark: SparkSession, broker: odradek.testing.Broker, tmp_path: Path
) -> None:
    target = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t", "transactional": "false"}
    values = write_stream_twice(spark, tmp_path, target)
    assert sorted(row[1] or b"" for row in read_logs(broker.logs)) == sorted(values + values[50:80])


def save(frame: DataFrame, mode: str = "append", **options: str) -> None:
    frame.write.format("odradek").mode(mode).options(**options).save()


def test_a_plain_thread_that_asks_for_the_session_writes(spark: SparkSession, log_dir: Path) -> None:
    frame = spark.newSession().sql("SELECT 'x' AS value")

    def write() -> None:
        odradek.spark.session()
        save(frame, path=str(log_dir), topic="t")

    with ThreadPoolExecutor() as threads:
        threads.submit(write).result()
    with odradek.open(log_dir, "r") as logs:
        assert len(read_logs(logs)) == 1


@pytest.mark.laboratory  # unit/spark/test_write_options.py has each
def test_mistakes_are_told_before_anything_is_written(spark: SparkSession, log_dir: Path) -> None:
    path = str(log_dir)
    no_value = spark.sql("SELECT 'x' AS key")
    with pytest.raises(AnalysisException, match="Required attribute 'value' not found"):
        save(no_value, path=path, topic="t")
    with pytest.raises(AnalysisException, match="more than one column is called 'value': select one of them"):
        save(spark.sql("SELECT 'a' AS value, 'b' AS value"), path=path, topic="t")
    with pytest.raises(AnalysisException, match=r"ERROR\].*Error: \S+: there is no topic nowhere"):
        save(no_value.selectExpr("key AS value"), path=path, topic="nowhere")
    frame = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(AnalysisException, match="Save mode Overwrite not allowed for Kafka"):
        save(frame, "overwrite", path=path, topic="t")
    # Spark's default mode is refused by Spark itself, before it asks a source in Python.
    with pytest.raises(AnalysisException, match=r'in the "ErrorIfExists" mode\. .* either the "Append"'):
        frame.write.format("odradek").options(path=path, topic="t").save()
    away = {"kafka.bootstrap.servers": "127.0.0.1:9", "kafka.default.api.timeout.ms": "500", "topic": "t"}
    with pytest.raises(AnalysisException, match=r"127\.0\.0\.1:9"):
        save(frame, **away)
    with odradek.open(log_dir) as logs:
        with pytest.raises(AnalysisException, match="data is locked: process"):
            save(frame, path=path, topic="t")
        assert read_logs(logs) == []


def test_rows_that_cannot_be_written_fail_the_job(spark: SparkSession, broker: odradek.testing.Broker) -> None:
    target = {"kafka.bootstrap.servers": broker.bootstrap_servers, "transactional": "true"}
    broker.create_topic("small", 1, {"max.message.bytes": "1000"})
    for columns, told in (
        ("IF(id = 7, NULL, 't') AS topic, 'x' AS value", "null topic present in the data. Use the topic option"),
        ("'t' AS topic, CAST(id AS INT) AS partition, 'x' AS value", r"is not in the range \[0...3\) of topic t"),
        ("IF(id = 7, 'small', 't') AS topic, repeat('x', 5000) AS value", "small-0 of .*max.message.bytes"),
        (
            "'x' AS value, 't' AS topic, array(named_struct('key', CAST(NULL AS STRING), 'value', X'00')) AS headers",
            "t-[012] ",
        ),
    ):
        with pytest.raises(PySparkException, match=told):
            save(spark.sql(f"SELECT {columns} FROM range(10)"), **target)
    assert read_logs(broker.logs) == []
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    query = stream.selectExpr("'x' AS value").writeStream.format("odradek").options(**target, topic="nowhere")
    with pytest.raises(StreamingQueryException, match="there is no topic nowhere"):
        query.option("checkpointLocation", str(Path(broker.path) / "c")).start().awaitTermination(120)
    shutil.rmtree(Path(broker.path) / "c")


def test_text_is_written_as_utf_8_and_other_columns_are_left_out(spark: SparkSession, log_dir: Path) -> None:
    frame = spark.sql("SELECT 'ключ' AS key, '' AS value, 1 AS offset, 'u' AS topic, CAST(NULL AS INT) AS partition")
    save(frame, path=str(log_dir), topic="t")
    with odradek.open(log_dir, "r") as logs:
        assert [row[:3] + row[4:] for row in read_logs(logs)] == [("ключ".encode(), b"", None, "t")]
