"""Measures Spark over a log directory beside Spark reading the same rows from Parquet.

    python benchmarks/spark_source.py [--records 2000000] [--rounds 3] [--value-bytes 200]

One session, `local[2]`, one run; the log is made here. Every timing plans a new DataFrame (Spark reuses what an old one
has shuffled), the sources take turns, and the best round counts: what else the machine does can only slow one down. A
ratio is the time in relation to Parquet's in the same run. `narrowed` is the same source with a `.schema(...)` of the
columns that the job needs, as Parquet prunes them by itself.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from odradek.records import Record
from odradek.records.builder import build_batch

BATCH_RECORDS = 80
TEMPLATES = 256
SEGMENT_BYTES = 128 << 20
BASE_TIMESTAMP = 1_700_000_000_000


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
    folder = path / "bench-0"
    folder.mkdir(parents=True)
    size_bytes, offset, file = 0, 0, None
    while offset < records:
        if file is None or file.tell() >= SEGMENT_BYTES:
            if file is not None:
                file.close()
            file = (folder / f"{offset:020d}.log").open("wb")
        # The checksum does not cover the base offset.
        batch = offset.to_bytes(8, "big") + templates[offset // BATCH_RECORDS % TEMPLATES][8:]
        size_bytes += file.write(batch)
        offset += BATCH_RECORDS
    if file is not None:
        file.close()
    return size_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--value-bytes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), arguments.records, arguments.value_bytes, arguments.rounds)


def measure(folder: Path, records: int, value_bytes: int, rounds: int) -> None:
    log_dir, parquet = folder / "log-dir", folder / "parquet"
    size_bytes = make_log(log_dir, records, value_bytes)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    def log(schema: str | None = None) -> DataFrame:
        reader = spark.read.format("odradek").option("subscribe", "bench")
        return (reader.schema(schema) if schema else reader).load(str(log_dir))

    log().write.parquet(str(parquet))
    count = log().count()

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
            "parquet": lambda: spark.read.parquet(str(parquet)),
            "odradek": log,
            "parquet, narrowed": lambda columns=columns: spark.read.parquet(str(parquet)).select(*columns),
            "odradek, narrowed": lambda schema=schema: log(schema),
        }
        best: dict[str, float] = {}
        for _ in range(rounds):
            for name, source in sources.items():
                started = time.perf_counter()
                run(source())
                seconds = time.perf_counter() - started
                best[name] = min(seconds, best.get(name, seconds))
        for name, seconds in best.items():
            yardstick = best["parquet, narrowed" if "narrowed" in name else "parquet"]
            print(
                f"{job:20} {name:22} {count / seconds:12,.0f} {count * value_bytes / seconds / 1e6:8,.0f} "
                f"{seconds / yardstick:15.2f}"
            )
    spark.stop()


if __name__ == "__main__":
    main()
