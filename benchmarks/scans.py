"""Measures `odradek.scan` beside numpy's copy of the same file, by one thread and by as many as there are cores.

    python benchmarks/scans.py [--megabytes 440] [--rounds 9]

Prints a Markdown table. The log is made here and closed; it has one segment, whose pages are in the page cache. numpy
copies the mapped file into memory of its own (`numpy.memmap(path).copy()`), as `read_all` does; the second copy is of
bytes that are in memory already, without the page faults of the file. Both kinds of numpy's memory are huge pages.

The rounds of all lines take turns, so that other programs disturb all of them alike, and each round follows one of
the same that is not measured. *Wall* and *CPU* are the
medians of the rounds, in ms; the ratios are those of wall times to numpy's copy of the file: of the medians, and of
the shortest rounds. *Faults* are the page faults of the median round. *Memory* is the most that the process had beyond
the mapped file, in a round of its own.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import odradek

VALUE_BYTES = 200
BATCH_RECORDS = 500
DISTINCT_BATCHES = 40


class Round(NamedTuple):
    """What one round took: seconds, seconds, faults."""

    wall: float
    cpu: float
    faults: int


def make_log(path: Path, size_bytes: int) -> Path:
    """Write a log of one segment and return its file."""
    source = random.Random(1)
    batches = [
        [
            odradek.Record(b"key-%05d" % source.randrange(10_000), source.randbytes(VALUE_BYTES // 2).hex().encode())
            for _ in range(BATCH_RECORDS)
        ]
        for _ in range(DISTINCT_BATCHES)
    ]
    with odradek.open(path) as logs:
        logs.create_topic("events", config={"segment.bytes": "2147483647"})
        log = logs["events", 0]
        while log.size_bytes < size_bytes:
            for batch in batches:
                log.append(batch)
    (segment,) = (path / "events-0").glob("*.log")
    return segment


def measured(function: Callable[[], object]) -> Round:
    """Run a function; what it returns is let go of outside of the time."""
    # Once before: memory that was free for long is given back by virtual machines, and to get it again takes seconds.
    function()
    gc.collect()
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    kept = function()
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    del kept
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Round(wall, cpu, after.ru_minflt - before.ru_minflt)


def own_bytes() -> int:
    """Return how much memory the process has, without mapped files."""
    with Path("/proc/self/status").open() as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))


def peak_bytes(function: Callable[[], object]) -> int:
    """Return the most memory that a function has at any time, more than there was before it."""
    gc.collect()
    most = before = own_bytes()
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.001):
            most = max(most, own_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    kept = function()
    most = max(most, own_bytes())
    done.set()
    watcher.join()
    del kept
    return most - before


def iterate(reader: pa.RecordBatchReader) -> None:
    """Take every record batch and let go of it."""
    for _ in reader:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures scans beside a copy.")
    parser.add_argument("--megabytes", type=int, default=440)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        segment = make_log(path, options.megabytes * 1_000_000)
        in_memory = np.fromfile(segment, dtype=np.uint8)
        copy = "numpy's copy of the file"
        functions: dict[str, Callable[[], object]] = {
            copy: lambda: np.memmap(segment, dtype=np.uint8, mode="r").copy(),
            "numpy's copy of bytes in memory": in_memory.copy,
        }
        for threads in sorted({1, 2, cores}):

            def scan(threads: int = threads, **arguments: Any) -> pa.RecordBatchReader:
                return odradek.scan(path, "events", threads=threads, **arguments)

            name = f"{threads} thread{'s' * (threads > 1)}"
            functions[f"read_all(), {name}"] = lambda scan=scan: scan().read_all()  # type: ignore[misc]
            functions[f"iterating, {name}"] = lambda scan=scan: iterate(scan())  # type: ignore[misc]
            functions[f"iterating views, {name}"] = lambda scan=scan: iterate(scan(views=True))  # type: ignore[misc]
            functions[f"offsets alone, {name}"] = lambda scan=scan: iterate(scan(columns=["offset"]))  # type: ignore[misc]
        rounds: dict[str, list[Round]] = {name: [] for name in functions}
        for _ in range(options.rounds):
            for name, function in functions.items():
                rounds[name].append(measured(function))
        medians = {name: statistics.median(each.wall for each in found) for name, found in rounds.items()}
        shortest = {name: min(each.wall for each in found) for name, found in rounds.items()}
        size = segment.stat().st_size
        print(f"\n{size / 1e6:,.0f} MB, {cores} cores; medians of {options.rounds} rounds\n")
        print("| | wall ms | CPU ms | GB/s | ratio | ratio of the shortest | faults | memory MB |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|")
        for name, found in rounds.items():
            cpu = statistics.median(each.cpu for each in found)
            faults = statistics.median_high(each.faults for each in found)
            print(
                f"| {name} | {medians[name] * 1e3:.0f} | {cpu * 1e3:.0f} | {size / medians[name] / 1e9:.2f} "
                f"| {medians[name] / medians[copy]:.2f} | {shortest[name] / shortest[copy]:.2f} "
                f"| {faults:,} | {peak_bytes(functions[name]) / 1e6:,.0f} |"
            )


if __name__ == "__main__":
    main()
