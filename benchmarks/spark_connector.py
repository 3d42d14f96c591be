"""Measures Spark reading a broker's topic with Odradek's source beside Spark's own Kafka connector.

    python benchmarks/spark_connector.py [--records 1000000] [--rounds 4] [--value-bytes 200] [--seconds 20]

Apache Kafka 4.3.1 serves the topic; one session, `local[2]`; the sources take turns, and the best round counts. It
needs Maven. There is no connector for Spark 4.3: the one measured is 4.2.0, with the token provider 4.1.0-preview1 and
kafka-clients 3.9.2. CPU is the processor time of Spark's processes: this one, Java, and the Python workers.

`stream to its end` reads all records by `availableNow`; `latency` is the time from producing a record until it is in
`foreachBatch`, one record every quarter of a second, with the processor cores used meanwhile; `idle` is the cores that
a stream uses while nothing arrives. These two have no trigger interval.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

import odradek
from odradek.records import Record
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import build_batch
from peers.jars import classpath
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.spark_processes import cpu_seconds

PARTITIONS = 2
BATCH_RECORDS = 80
SOURCES = ("odradek", "kafka")
OFFSETS_A_TRIGGER = 200_000
LATENCY_RECORDS = 40
PAUSE_S = 0.25
SETTLE_S = 8


class Cost(NamedTuple):
    """What a job took."""

    seconds: float
    cpu_s: float


def make_log(path: Path, records: int, value_bytes: int) -> None:
    """Write the topic that is read, and an empty one."""
    template = build_batch(
        [Record(key=b"k%06d" % number, value=os.urandom(value_bytes)) for number in range(BATCH_RECORDS)]
    )
    with odradek.open(path) as logs:
        logs.create_topic("live")
        logs.create_topic("bench", PARTITIONS, config={"retention.ms": "-1"})
        for partition in range(PARTITIONS):
            for offset in range(0, records // PARTITIONS, BATCH_RECORDS):
                # The checksum does not cover the base offset.
                data = offset.to_bytes(8, "big") + template[8:]
                logs["bench", partition].append_batches(data, origin=AppendOrigin.REPLICATION)


def measured(job: Callable[[], object]) -> Cost:
    """Run a job."""
    cpu_s, started = sum(cpu_seconds().values()), time.perf_counter()
    job()
    return Cost(time.perf_counter() - started, sum(cpu_seconds().values()) - cpu_s)


class Bench:
    """One session and one broker.

    Args:
        spark: The session.
        servers: The broker's address.
        folder: Where jobs write.
    """

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._servers = servers
        self._runs = 0

    def _options(self, topic: str, starts: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._servers, "subscribe": topic, "startingOffsets": starts}

    def read(self, source: str) -> DataFrame:
        """Return all records of the topic."""
        return self._spark.read.format(source).options(**self._options("bench", "earliest")).load()

    def _stream(self, source: str, topic: str, starts: str, **more: str) -> DataFrame:
        return self._spark.readStream.format(source).options(**self._options(topic, starts), **more).load()

    def _checkpoint(self) -> str:
        self._runs += 1
        return str(self._folder / f"checkpoint-{self._runs}")

    def count(self, source: str) -> None:
        """Count the records."""
        self.read(source).count()

    def sum_lengths(self, source: str) -> None:
        """Add up the lengths of the values."""
        self.read(source).selectExpr("sum(length(value))").collect()

    def write(self, source: str) -> None:
        """Write all columns to Parquet."""
        self.read(source).write.mode("overwrite").parquet(str(self._folder / "out"))

    def stream_all(self, source: str) -> None:
        """Read all records by a stream that ends."""
        rows = self._stream(source, "bench", "earliest", maxOffsetsPerTrigger=str(OFFSETS_A_TRIGGER))
        writer = rows.writeStream.format("noop").option("checkpointLocation", self._checkpoint())
        writer.trigger(availableNow=True).start().awaitTermination()

    def live(self, source: str, idle_s: float) -> tuple[float, float, float]:
        """Return a record's median latency in seconds, the cores used meanwhile, and those used without records."""
        latencies: list[float] = []

        def take(batch: DataFrame, _: int) -> None:
            latencies.extend(time.time() - float(row.value) for row in batch.select("value").collect())

        rows = self._stream(source, "live", "latest")
        query = rows.writeStream.foreachBatch(take).option("checkpointLocation", self._checkpoint()).start()
        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 0})
        try:
            time.sleep(SETTLE_S)
            # The first ones are not measured: Java compiles its code then.
            self._produce(producer)
            latencies.clear()
            busy = measured(partial(self._produce, producer))
            time.sleep(SETTLE_S)
            assert latencies, query.exception()
            idle = measured(partial(time.sleep, idle_s))
        finally:
            query.stop()
        return statistics.median(latencies), busy.cpu_s / busy.seconds, idle.cpu_s / idle.seconds

    def _produce(self, producer: Producer) -> None:
        for _ in range(LATENCY_RECORDS):
            producer.produce("live", str(time.time()))
            producer.flush(10)
            time.sleep(PAUSE_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=20)
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    jars = classpath("spark-kafka").split(os.pathsep)[1:]
    with tempfile.TemporaryDirectory() as name, KafkaTools() as tools:
        folder = Path(name)
        make_log(folder / "log-dir", arguments.records, arguments.value_bytes)
        with KafkaBroker(tools, folder / "log-dir", heap="1g", jvm_options=()) as broker:
            spark = (
                SparkSession.builder.master("local[2]")
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .config("spark.jars", ",".join(jars))
                .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
                .getOrCreate()
            )
            spark.sparkContext.setLogLevel("OFF")
            measure(Bench(spark, broker.bootstrap_servers, folder), arguments.rounds, arguments.seconds)
            spark.stop()


def measure(bench: Bench, rounds: int, idle_s: float) -> None:
    """Print what each job costs with each source, and the ratios."""
    jobs = {
        "count": bench.count,
        "sum(length(value))": bench.sum_lengths,
        "write to Parquet": bench.write,
        "stream to its end": bench.stream_all,
    }
    print(f"{'':22} {'odradek':>18} {'Spark connector':>18} {'ratio':>14}")
    for job, run in jobs.items():
        costs: dict[str, list[Cost]] = {source: [] for source in SOURCES}
        for _ in range(rounds):
            for source in SOURCES:
                costs[source].append(measured(partial(run, source)))
        ours, theirs = (Cost(*map(min, zip(*costs[source], strict=True))) for source in SOURCES)
        print(
            f"{job:22} {ours.seconds:7.2f} s {ours.cpu_s:5.2f} CPU {theirs.seconds:7.2f} s {theirs.cpu_s:5.2f} CPU "
            f"{ours.seconds / theirs.seconds:5.2f} {ours.cpu_s / theirs.cpu_s:4.2f} CPU"
        )
    # Twice in turn, and the better one: whatever else runs here disturbs both.
    lives: dict[str, list[tuple[float, float, float]]] = {source: [] for source in SOURCES}
    for _ in range(2):
        for source in SOURCES:
            lives[source].append(bench.live(source, idle_s))
    best = {source: [min(values) for values in zip(*lives[source], strict=True)] for source in SOURCES}
    for place, (row, unit, scale) in enumerate(
        (("latency", "ms", 1000), ("... cores meanwhile", "", 1), ("idle, cores", "", 1))
    ):
        ours_value, theirs_value = (best[source][place] * scale for source in SOURCES)
        digits = 0 if unit else 2
        print(
            f"{row:22} {ours_value:12.{digits}f} {unit:5} {theirs_value:12.{digits}f} {unit:5} "
            f"{ours_value / theirs_value:14.2f}"
        )


if __name__ == "__main__":
    main()
