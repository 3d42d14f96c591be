"""Measures what a pipeline costs beside Spark reading the same rows from Parquet, and what each batch costs.

    python benchmarks/pipeline.py [--records 1000000] [--rounds 2] [--kafka] [--only words | batches] [--batches 100]

All times are CPU seconds of the processes that are at work (this one, Spark's JVM and its Python workers; not the
broker), so that other work of the machine disturbs them little. One session, `local[2]`.

`words` is a word count of records of 200 bytes in four partitions, written to a Parquet folder: by a pipeline from a
folder and from a broker, and by Spark from Parquet. Where the time goes is measured by queries that do less: `reading`
ends with the sum of the lengths of the values, and `floor` is a Python source that gives Spark the same ready batch
again and again. The broker is `odradek serve`, with `--kafka` Apache Kafka 4.3.1 (it needs Maven).

`batches` is a backlog of small batches, 10 records of each partition, written to a Parquet folder as they are, and
counted: with 1, 100 and 1,000 partitions. The first third of the batches is not measured: Java compiles its code then.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

import odradek
import odradek.spark
from odradek.offsets.store import open_store
from odradek.records import Record
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import build_batch
from odradek.spark.options import SourceOptions
from odradek.spark.pipeline import Job, Pipeline
from odradek.spark.pipeline.batch_report import BatchReport
from odradek.spark.pipeline.functions import Transform
from odradek.spark.pipeline.sink_specs import ParquetSinkSpec
from odradek.spark.ranges import plan_batch
from odradek.spark.source_topics import open_topics
from odradek.spark.spark_schema import arrow_schema, source_schema
from peers.spark_processes import cpu_seconds

PARTITIONS = 4
VALUE_BYTES = 200
BATCH_RECORDS = 80
TEMPLATES = 256
SMALL_RECORDS = 10
WORDS = "SELECT topic, partition, offset, explode(split(CAST(value AS STRING), ' ')) AS word FROM records"
COUNTS = "SELECT word, count(*) AS count FROM words GROUP BY word"
LENGTHS = "sum(length(value))"
_VALUE = StructType([StructField("value", BinaryType())])


class _FloorSource(DataSource):
    """As many values as there are records, all of them repeats of the first ones, from a source that reads nothing."""

    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> StructType:
        return _VALUE

    def reader(self, schema: StructType) -> DataSourceReader:
        return _FloorReader(int(self.options["records"]))


class _FloorReader(DataSourceReader):
    def __init__(self, records: int) -> None:
        self._records = records

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = pa.record_batch([pa.array([bytes(VALUE_BYTES)] * 16_384, pa.binary())], names=["value"])
        left = self._records // PARTITIONS
        while left > 0:
            yield rows.slice(0, left)
            left -= rows.num_rows


def spent(work: Callable[[], object]) -> float:
    """Return the processor seconds of a piece of work, in all processes."""
    before = cpu_seconds()
    work()
    return sum(cpu_seconds().values()) - sum(before.values())


def make_log(path: Path, records: int) -> None:
    """Write records of words to a topic."""
    words = [f"{word}{number}" for word in ("commit", "log", "offset", "segment", "batch") for number in range(200)]

    def value(number: int) -> bytes:
        text = " ".join(words[(number * 7919 + place * place * 31) % len(words)] for place in range(40))
        return text.encode()[:VALUE_BYTES]

    templates = [
        build_batch([Record(b"key", value(first + number)) for number in range(BATCH_RECORDS)], base_offset=0)
        for first in range(0, TEMPLATES * BATCH_RECORDS, BATCH_RECORDS)
    ]
    with odradek.open(path) as logs:
        logs.create_topic("bench", PARTITIONS, config={"segment.bytes": str(128 << 20), "retention.ms": "-1"})
        for partition in range(PARTITIONS):
            for first in range(0, records // PARTITIONS, BATCH_RECORDS * TEMPLATES):
                # The checksum covers neither the base offset nor the leader epoch.
                offsets = range(first, records // PARTITIONS, BATCH_RECORDS)
                data = b"".join(
                    offset.to_bytes(8, "big") + template[8:]
                    for offset, template in zip(offsets, templates, strict=False)
                )
                logs["bench", partition].append_batches(data, origin=AppendOrigin.REPLICATION)


@contextmanager
def serving(log_dir: Path, *, kafka: bool) -> Iterator[str]:
    """Let a broker serve a log directory."""
    if kafka:
        from peers.kafka import KafkaBroker
        from peers.kafka_tools import KafkaTools

        with KafkaTools() as tools, KafkaBroker(tools, log_dir, heap="1g", jvm_options=()) as apache:
            yield apache.bootstrap_servers
    else:
        from peers.odradek_broker import OdradekBroker

        with OdradekBroker(log_dir) as ours:
            yield ours.bootstrap_servers


def decoding(source: dict[str, str], schema: StructType) -> Callable[[], None]:
    """Return what reads and decodes all records in this process, without Spark."""

    def run() -> None:
        options = SourceOptions.parse(source)
        topics = open_topics(options)
        for split in topics.splits(plan_batch(topics, options), options):
            for _ in split.read(arrow_schema(schema)):
                pass
        topics.close()

    return run


def word_count(spark: SparkSession, folder: Path, records: int, rounds: int, *, kafka: bool) -> None:
    """Print where the time of a word count goes."""
    log_dir, parquet = folder / "log-dir", folder / "rows"
    make_log(log_dir, records)
    from_folder = {"path": str(log_dir), "subscribe": "bench"}
    everything = source_schema(include_headers=False)
    spark.read.format("odradek").options(**from_folder).load().write.parquet(str(parquet))
    count = spark.read.parquet(str(parquet)).count()
    runs = iter(range(1_000_000))

    def pipeline(source: dict[str, str]) -> Callable[[], object]:
        def run() -> None:
            # A new store and a new folder: the job starts from the beginning.
            place = folder / f"run-{next(runs)}"
            job = Job(
                source,
                (place.with_suffix(".json")).as_uri(),
                (ParquetSinkSpec(place, "counts"),),
                transforms=(Transform("words", WORDS), Transform("counts", COUNTS)),
                reset="earliest",
            )
            assert Pipeline(job, spark).run() == 1

        return run

    def spark_alone() -> None:
        spark.read.parquet(str(parquet)).createOrReplaceTempView("records")
        spark.sql(WORDS).createOrReplaceTempView("words")
        spark.sql(COUNTS).write.mode("overwrite").parquet(str(folder / "counts"))

    def lengths(source: dict[str, str], schema: str | None = None) -> Callable[[], object]:
        def run() -> object:
            reader = spark.read.format("odradek").options(**source)
            return (reader.schema(schema) if schema else reader).load().selectExpr(LENGTHS).collect()

        return run

    with serving(log_dir, kafka=kafka) as servers:
        from_broker = {"kafka.bootstrap.servers": servers, "subscribe": "bench"}
        steps: dict[str, Callable[[], object]] = {
            "total, Parquet": spark_alone,
            "total, folder": pipeline(from_folder),
            "total, broker": pipeline(from_broker),
            "reading, Parquet": lambda: spark.read.parquet(str(parquet)).selectExpr(LENGTHS).collect(),
            "reading, folder": lengths(from_folder),
            "reading, folder, values alone": lengths(from_folder, "value binary"),
            "reading, broker": lengths(from_broker),
            "reading, broker, values alone": lengths(from_broker, "value binary"),
            "floor: handing over values alone": lambda: (
                spark.read.format("floor").option("records", records).load().selectExpr(LENGTHS).collect()
            ),
            "decoding alone, folder": decoding(from_folder, everything),
            "decoding alone, broker": decoding(from_broker, everything),
        }
        best: dict[str, float] = {}
        for number in range(rounds + 1):
            for name, step in steps.items():
                seconds = spent(step)
                # Java compiles its code in the first round.
                if number:
                    best[name] = min(seconds, best.get(name, seconds))
    print(f"{count:,} records of {VALUE_BYTES} bytes, best of {rounds} rounds, CPU s")
    print("| step | CPU s | of Parquet's |\n| --- | ---: | ---: |")
    for name, seconds in best.items():
        yardstick = best.get(f"{name.partition(',')[0]}, Parquet")
        ratio = "" if yardstick is None else f"{seconds / max(yardstick, 0.01):.2f}"
        print(f"| {name} | {seconds:.2f} | {ratio} |")
    # What both do: the SQL and the writing of its result.
    work = best["total, Parquet"] - best["reading, Parquet"]
    print(f"| SQL and writing (the total of Parquet without its reading) | {work:.2f} | |")


def batches(spark: SparkSession, folder: Path, partitions: int, number: int, view: str) -> None:
    """Print what a batch of few records costs."""
    log_dir = folder / f"small-{partitions}"
    if not log_dir.exists():
        with odradek.open(log_dir) as logs:
            logs.create_topic("bench", partitions)
            for _ in range(number):
                for partition in range(partitions):
                    logs["bench", partition].append([Record(None, b"a few words of a record")] * SMALL_RECORDS)
    place = folder / f"small-{partitions}-{view}"
    address = place.with_suffix(".json").as_uri()
    job = Job(
        {"path": str(log_dir), "subscribe": "bench"},
        address,
        (ParquetSinkSpec(place, view),),
        transforms=(Transform("words", WORDS), Transform("counts", COUNTS)),
        reset="earliest",
        max_offsets_per_batch=partitions * SMALL_RECORDS,
    )
    marks: list[tuple[dict[str, float], float]] = []

    def mark(report: BatchReport) -> None:
        marks.append((cpu_seconds(), report.seconds))

    assert Pipeline(job, spark).run(mark) == number
    measured = marks[number // 3 :]
    first, last = measured[0][0], measured[-1][0]
    cpu_ms = {name: 1000 * (last[name] - first[name]) / (len(measured) - 1) for name in last}
    store = open_store(address)
    positions = store.claim()
    started = time.process_time()
    for _ in range(10):
        positions = store.commit(dict(positions), expected=positions)
    commit_ms = 100 * (time.process_time() - started)
    store.close()
    print(
        f"| {partitions:,} | {view} | {number} | {sum(cpu_ms.values()):.0f} | {cpu_ms['driver']:.0f} | "
        f"{cpu_ms['JVM']:.0f} | {cpu_ms['workers']:.0f} | {commit_ms:.1f} | "
        f"{1000 * min(seconds for _, seconds in measured):.0f} |",
        flush=True,
    )
    shutil.rmtree(place)


def smallest_query(spark: SparkSession, number: int) -> float:
    """Return the CPU milliseconds of a query over a Python source of one row in each of two tasks, handed to Python."""

    def query() -> None:
        rows = spark.read.format("floor").option("records", PARTITIONS).load().coalesce(2)
        rows.mapInArrow(lambda batches: batches, _VALUE).collect()

    def queries(times: int) -> None:
        for _ in range(times):
            query()

    queries(number // 3)
    return 1000 * spent(lambda: queries(number)) / number


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--only", choices=("words", "batches"))
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 100, 1000])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = odradek.spark.session(
            master="local[2]",
            conf={"spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.sql.shuffle.partitions": "2"},
        )
        spark.dataSource.register(_FloorSource)
        if arguments.only != "batches":
            word_count(spark, folder, arguments.records, arguments.rounds, kafka=arguments.kafka)
        if arguments.only != "words":
            print("| partitions | view | batches | CPU ms a batch | driver | JVM | workers | store's commit | wall |")
            print("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
            for partitions in arguments.partitions:
                number = arguments.batches if partitions < 1000 else max(6, arguments.batches // 10)
                for view in ("words", "counts"):
                    batches(spark, folder, partitions, number, view)
            print(f"a query of two tasks with a row each: {smallest_query(spark, arguments.batches):.0f} ms of CPU")
        spark.stop()


if __name__ == "__main__":
    main()
