"""Measures Spark over a log directory beside Spark reading the same rows from Parquet.

    python benchmarks/spark_source.py [--records 2000000] [--rounds 3] [--value-bytes 200] [--kafka]

One session, `local[2]`, one run; the log is made here. Every timing plans a new DataFrame (Spark reuses the shuffle
output of an old one), the sources take turns, and the best round counts: other work of the machine can only slow a
round down. A ratio is the time divided by Parquet's in the same run. `narrowed` is the same source with a
`.schema(...)` of the columns that the job needs; Parquet prunes columns by itself. With `--kafka`, Apache Kafka 4.3.1
serves the same folder (it needs Maven), and the source reads from there too.

`floor` is a Python data source that reads nothing: it gives Spark the same ready batch again and again, for as many
rows in as many tasks. Its time is what Spark needs to move rows out of any Python source.

The last figures are the cost of the smallest micro-batches: an empty one of a pipeline, and one row from the streaming
source and from Spark's `rate` source.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StructType

import odradek
from odradek.records import Record
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import build_batch
from odradek.spark.folder_split import FolderSplit
from odradek.spark.pipeline import Job, Pipeline
from odradek.spark.pipeline.sink_specs import ConsoleSinkSpec
from odradek.spark.source import OdradekDataSource
from odradek.spark.spark_schema import source_schema

BATCH_RECORDS = 80
TEMPLATES = 256
SEGMENT_BYTES = 128 << 20
EMPTY_BATCHES = 50
STREAM_BATCHES = 20
BASE_TIMESTAMP = 1_700_000_000_000


class _FloorSource(DataSource):
    """As many rows in as many tasks as the log has, all of them repeats of the log's first batch."""

    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> StructType:
        return source_schema(include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _FloorReader(self.options["path"], schema)


class _FloorReader(DataSourceReader):
    def __init__(self, path: str, schema: StructType) -> None:
        self._source = OdradekDataSource({"path": path, "subscribe": "bench"}).reader(schema)

    def partitions(self) -> list[InputPartition]:
        return list(self._source.partitions())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FolderSplit)
        first = next(iter(self._source.read(partition)))
        left = partition.end_offset - partition.start_offset
        while left > 0:
            yield first.slice(0, left)
            left -= first.num_rows


def make_log(path: Path, records: int, value_bytes: int) -> int:
    """Write a partition of uncompressed batches, and return its size."""
    source = random.Random(7)
    words = [b"commit", b"log", b"offset", b"segment", b"record", b"batch", b"index", b"leader"]

    def value() -> bytes:
        text = b"".join(b"%s %08x " % (source.choice(words), source.getrandbits(32)) for _ in range(value_bytes // 12))
        return text[:value_bytes].ljust(value_bytes, b".")

    templates = [
        build_batch(
            [
                Record(key=b"k%06d" % source.randrange(10**6), value=value(), timestamp=BASE_TIMESTAMP + number)
                for number in range(BATCH_RECORDS)
            ],
            base_offset=0,
        )
        for _ in range(TEMPLATES)
    ]
    size_bytes = 0
    with odradek.open(path) as logs:
        logs.create_topic("bench", config={"segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1"})
        log = logs["bench", 0]
        for first in range(0, records, BATCH_RECORDS * TEMPLATES):
            # The checksum covers neither the base offset nor the leader epoch.
            data = b"".join(
                offset.to_bytes(8, "big") + template[8:]
                for offset, template in zip(range(first, records, BATCH_RECORDS), templates, strict=False)
            )
            log.append_batches(data, origin=AppendOrigin.REPLICATION)
            size_bytes += len(data)
    return size_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--value-bytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--kafka", action="store_true")
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        log_dir = Path(folder) / "log-dir"
        size_bytes = make_log(log_dir, arguments.records, arguments.value_bytes)
        with serving(log_dir) if arguments.kafka else nullcontext() as servers:
            measure(Path(folder), size_bytes, arguments.value_bytes, arguments.rounds, servers)


@contextmanager
def serving(log_dir: Path) -> Iterator[str]:
    """Let Apache Kafka serve a log directory."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from peers.kafka import KafkaBroker
    from peers.kafka_tools import KafkaTools

    with KafkaTools() as tools, KafkaBroker(tools, log_dir, heap="1g", jvm_options=()) as broker:
        yield broker.bootstrap_servers


def measure(folder: Path, size_bytes: int, value_bytes: int, rounds: int, servers: str | None) -> None:
    log_dir, parquet = folder / "log-dir", folder / "parquet"
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")

    def log(schema: str | None = None) -> DataFrame:
        reader = spark.read.format("odradek").option("subscribe", "bench")
        return (reader.schema(schema) if schema else reader).load(str(log_dir))

    def broker(schema: str | None = None) -> DataFrame:
        reader = spark.read.format("odradek").option("subscribe", "bench").option("minPartitions", "2")
        return (reader.schema(schema) if schema else reader).option("kafka.bootstrap.servers", servers).load()

    def parquet_rows(*columns: str) -> DataFrame:
        frame = spark.read.parquet(str(parquet))
        return frame.select(*columns) if columns else frame

    def floor(schema: str | None = None) -> DataFrame:
        reader = spark.read.format("floor")
        return (reader.schema(schema) if schema else reader).load(str(log_dir))

    spark.dataSource.register(_FloorSource)
    log().write.parquet(str(parquet))
    count = log().count()
    assert floor().count() == count

    def write(frame: DataFrame) -> None:
        frame.write.mode("overwrite").parquet(str(folder / "out"))

    jobs: dict[str, tuple[str, Callable[[DataFrame], object]]] = {
        "count": ("offset bigint", lambda frame: frame.count()),
        "sum(length(value))": ("value binary", lambda frame: frame.selectExpr("sum(length(value))").collect()),
        "write to Parquet": ("key binary, value binary, offset bigint, timestamp timestamp", write),
    }
    print(f"{count:,} records of {value_bytes} bytes, {size_bytes / 1e6:,.0f} MB of segments, best of {rounds} rounds")
    print(f"{'job':20} {'source':22} {'rows/s':>12} {'MB/s':>8} {'time / Parquet':>15}")
    for job, (schema, run) in jobs.items():
        columns = [part.split()[0] for part in schema.split(", ")]
        sources: dict[str, Callable[[], DataFrame]] = {
            "parquet": parquet_rows,
            "odradek": log,
            "floor": floor,
            "odradek, narrowed": partial(log, schema),
            "floor, narrowed": partial(floor, schema),
        }
        if job == "write to Parquet":
            # The other jobs are narrowed by Spark itself.
            sources["parquet, narrowed"] = partial(parquet_rows, *columns)
        if servers is not None:
            sources["kafka"] = broker
            sources["kafka, narrowed"] = partial(broker, schema)
        best: dict[str, float] = {}
        for _ in range(rounds):
            for name, source in sources.items():
                started = time.perf_counter()
                run(source())
                seconds = time.perf_counter() - started
                best[name] = min(seconds, best.get(name, seconds))
        for name, seconds in best.items():
            yardstick = best.get("parquet, narrowed", best["parquet"]) if "narrowed" in name else best["parquet"]
            print(
                f"{job:20} {name:22} {count / seconds:12,.0f} {count * value_bytes / seconds / 1e6:8,.0f} "
                f"{seconds / yardstick:15.2f}"
            )
    print(f"an empty batch of a pipeline: {1000 * empty_pipeline_batch(spark, folder):.1f} ms")
    rows = {
        "the streaming source": spark.readStream.format("odradek").options(
            path=str(log_dir), subscribe="bench", startingOffsets="earliest", maxOffsetsPerTrigger="1"
        ),
        "Spark's rate source": spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1),
    }
    for name, reader in rows.items():
        print(f"a batch of one row of {name}: {1000 * smallest_batch(reader, folder / name):.0f} ms")
    spark.stop()


def empty_pipeline_batch(spark: SparkSession, folder: Path) -> float:
    """Return the seconds that a pipeline takes to find that there is nothing new."""
    job = Job(
        source={"path": str(folder / "log-dir"), "subscribe": "bench"},
        offset_store=(folder / "offsets.json").as_uri(),
        sinks=(ConsoleSinkSpec("SELECT 1"),),
        reset="latest",
    )
    Pipeline(job, spark).run()
    started = time.perf_counter()
    for _ in range(EMPTY_BATCHES):
        Pipeline(job, spark).run()
    return (time.perf_counter() - started) / EMPTY_BATCHES


def smallest_batch(reader: DataStreamReader, checkpoint: Path) -> float:
    """Return the seconds of the shortest micro-batch of a stream into nothing."""
    query = reader.load().writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        deadline = time.monotonic() + 60
        while len(query.recentProgress) < STREAM_BATCHES and time.monotonic() < deadline:
            time.sleep(0.2)
        # The first one starts workers.
        return min(progress.batchDuration for progress in query.recentProgress[1:]) / 1000
    finally:
        query.stop()


if __name__ == "__main__":
    main()
