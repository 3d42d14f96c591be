"""Measures `odradek.dataset`: counting, the first row of many segments, SQL beside the same rows in Parquet.

    python benchmarks/datasets.py [--millions 100] [--segments 10000] [--rows 2000000]

The rows to be counted are small and in large compressed batches: as many as there are, they take little place.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.compute as pc
import pyarrow.dataset as pds

import odradek
from odradek.cli.topic_table import TopicTable
from odradek.records.builder import build_batch
from odradek.records.compression import Codec

ROUNDS = 3
COUNTED = 100_000
SQL = {
    "sum of lengths": "SELECT sum(octet_length(value)) FROM rows",
    "a column": 'SELECT max("offset") FROM rows',
    "a range of offsets": 'SELECT count(key) FROM rows WHERE "offset" BETWEEN 500000 AND 510000',
    "a key": "SELECT count(*) FROM rows WHERE key = 'key-77'::BLOB",
    "groups": "SELECT key, count(*) FROM rows GROUP BY key ORDER BY 2 DESC LIMIT 3",
    "all columns": "SELECT * FROM rows ORDER BY octet_length(value) DESC LIMIT 1",
}


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def seconds(action: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - started)
    return best


def made(path: Path, batches: int, batch: bytes, *, roll: bool = False) -> Path:
    with odradek.open(path) as logs:
        logs.create_topic("rows", partitions=1, config={"max.message.bytes": str(1 << 30), "retention.ms": "-1"})
        log = logs["rows", 0]
        for _ in range(batches):
            log.append_batches(batch)
            if roll:
                log.roll()
    return path


def count_by_duckdb(rows: pds.Dataset, counted: str = "*") -> Any:
    with duckdb.connect() as connection:
        return connection.register("rows", rows).execute(f"SELECT count({counted}) FROM rows").fetchall()


def measure_counts(directory: Path, millions: int) -> None:
    batch = build_batch([odradek.Record(timestamp=0) for _ in range(COUNTED)], codec=Codec.ZSTD)
    rows = odradek.dataset(made(directory / "count", millions * 1_000_000 // COUNTED, batch))
    assert rows.count_rows() == millions * 1_000_000
    row(f"count of {millions} million records", "s")
    row("---", "---")
    row("`count_rows`", f"{seconds(rows.count_rows):.3f}")
    row("`count_rows` of a filter on offsets", f"{seconds(lambda: rows.count_rows(pc.field('offset') >= 12345)):.3f}")
    row("DuckDB, `count(*)`", f"{seconds(lambda: count_by_duckdb(rows)):.3f}")
    row("DuckDB, `count(partition)`", f"{seconds(lambda: count_by_duckdb(rows, 'partition')):.3f}")
    failures: list[odradek.OdradekError] = []
    sql = TopicTable(rows, failures.append)
    row("DuckDB, `count(*)` by `odradek sql`", f"{seconds(lambda: count_by_duckdb(sql)):.3f}")
    row("Polars", f"{seconds(lambda: pl.scan_pyarrow_dataset(rows).select(pl.len()).collect()):.3f}")


def measure_first_row(directory: Path, segments: int) -> None:
    path = made(directory / "segments", segments, build_batch([odradek.Record(value=b"v" * 100)] * 10), roll=True)
    row(f"of {segments} segments", "s")
    row("---", "---")
    row("the first row", f"{seconds(lambda: odradek.dataset(path).head(1)):.3f}")
    middle = pc.field("offset") == segments * 5
    row("one offset", f"{seconds(lambda: odradek.dataset(path).to_table(filter=middle)):.3f}")
    rows = odradek.dataset(path)
    row("one offset, again", f"{seconds(lambda: rows.to_table(filter=middle)):.3f}")


def measure_sql(directory: Path, count: int) -> None:
    with odradek.open(directory / "sql") as logs:
        logs.create_topic("rows", partitions=1, config={"segment.bytes": str(64 << 20)})
        for start in range(0, count, 10_000):
            logs["rows", 0].append(
                odradek.Record(b"key-%d" % (n % 1000), b"value %d " % n * 10, timestamp=1_767_225_600_000 + n)
                for n in range(start, start + 10_000)
            )
    ours = odradek.dataset(directory / "sql")
    pds.write_dataset(ours, directory / "parquet", format="parquet")
    theirs = pds.dataset(directory / "parquet")
    row(f"{count:,} records", "log, s", "Parquet, s", "ratio")
    row(*["---"] * 4)
    for name, sql in SQL.items():
        times = []
        for rows in (ours, theirs):
            with duckdb.connect() as connection:
                connection.register("rows", rows)
                times.append(seconds(lambda: connection.execute(sql).fetchall()))  # noqa: B023 - it is called here
        row(name, *(f"{one:.3f}" for one in times), f"{times[0] / times[1]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millions", type=int, default=100)
    parser.add_argument("--segments", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=2_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        measure_counts(directory, arguments.millions)
        print()
        measure_sql(directory, arguments.rows)
        print()
        measure_first_row(directory, arguments.segments)


if __name__ == "__main__":
    main()
