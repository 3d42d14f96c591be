"""Measures the log: appends beside plain writes, look-ups, opening a large directory, memory of each partition.

    python benchmarks/storage.py [--megabytes 256] [--partitions 1000] [--segments 10000] [--directory DIR]

All figures are of one run on one machine. An append of ready batches is compared with a plain `write` of the same
bytes, with the same number of calls. The look-ups are by offset and by time, at random, in a log of 1,000 segments.
The directory was closed cleanly, as after any normal stop.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import odradek
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import build_batch
from odradek.records.kernels.objects import Record
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.log.writable_log import WritableLog

SETTINGS = {"retention.ms": "-1"}
VALUE_BYTES = 200
LOOKUPS = 20_000
ROUNDS = 3


class Times:
    """The seconds of a part of the run."""

    seconds = 0.0


@contextmanager
def timed() -> Iterator[Times]:
    times = Times()
    started = time.perf_counter()
    yield times
    times.seconds = time.perf_counter() - started


def batch_of(base_offset: int, records: int, timestamp: int = 0) -> bytes:
    rows = [Record(b"key", b"v" * VALUE_BYTES, timestamp=timestamp) for _ in range(records)]
    return build_batch(rows, base_offset=base_offset, partition_leader_epoch=0)


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


# -- appends


def measure_appends(directory: Path, megabytes: int) -> None:
    row("append of ready batches", "calls", "MB/s", "plain write, MB/s", "ratio")
    row(*["---"] * 5)
    for records in (1, 70, 1000, 4000):
        size = len(batch_of(0, records))
        calls = max(1, min(20_000, (megabytes << 20) // size))
        batches = [batch_of(number * records, records, timestamp=number) for number in range(calls)]
        ways = {"plain": write_plainly, **APPENDS}
        seconds = dict.fromkeys(ways, float("inf"))
        for _ in range(ROUNDS):
            for name, way in ways.items():
                # Writeback of the case before would slow this one down.
                os.sync()
                seconds[name] = min(seconds[name], way(directory, batches))
        speeds = {name: calls * size / best / 1e6 for name, best in seconds.items()}
        for name in APPENDS:
            ratio = speeds[name] / speeds["plain"]
            cells = (f"{speeds[name]:,.0f}", f"{speeds['plain']:,.0f}", f"{ratio:.2f}")
            row(f"{name}, batches of {size:,} bytes", calls, *cells)


def write_plainly(directory: Path, batches: list[bytes]) -> float:
    """Return the seconds of one write for each batch."""
    path = directory / "plain"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    with timed() as times:
        for batch in batches:
            os.write(descriptor, batch)
    os.close(descriptor)
    path.unlink()
    return times.seconds


@contextmanager
def new_log(directory: Path) -> Iterator[WritableLog]:
    with WritableLogDirectory(directory / "log") as logs:
        logs.create_topic("t", config=SETTINGS)
        yield logs["t", 0]
    shutil.rmtree(directory / "log")


def as_leader(directory: Path, batches: list[bytes]) -> float:
    # A producer's batches begin with offset 0; each has its own memory, as from a socket.
    given = [bytearray(8) + batch[8:] for batch in batches]
    with new_log(directory) as log, timed() as times:
        for batch in given:
            log.append_batches(batch)
    return times.seconds


def as_they_are(directory: Path, batches: list[bytes]) -> float:
    with new_log(directory) as log, timed() as times:
        for batch in batches:
            log.append_batches(batch, origin=AppendOrigin.REPLICATION)
    return times.seconds


def many_at_a_time(directory: Path, batches: list[bytes]) -> float:
    fetched, size = [], 0
    group: list[bytes] = []
    for batch in batches:
        group.append(batch)
        size += len(batch)
        if size >= 1 << 20:
            fetched.append(b"".join(group))
            group, size = [], 0
    fetched.append(b"".join(group))
    with new_log(directory) as log, timed() as times:
        for data in filter(None, fetched):
            log.append_batches(data, origin=AppendOrigin.REPLICATION)
    return times.seconds


APPENDS: dict[str, Callable[[Path, list[bytes]], float]] = {
    "as a leader, checked": as_leader,
    "as they are": as_they_are,
    "as they are, 1 MB at a time": many_at_a_time,
}


def measure_durable(directory: Path) -> None:
    """A durable append beside a write and an fsync."""
    batch = batch_of(0, 1)
    path = directory / "plain"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    plain = []
    for _ in range(100):
        with timed() as times:
            os.write(descriptor, batch)
            os.fsync(descriptor)
        plain.append(times.seconds)
    os.close(descriptor)
    path.unlink()
    ours = []
    with WritableLogDirectory(directory / "log") as logs:
        logs.create_topic("t", config=SETTINGS)
        log = logs["t", 0]
        for _ in range(100):
            with timed() as times:
                log.append([Record(b"key", b"v" * VALUE_BYTES)], durable=True)
            ours.append(times.seconds)
    shutil.rmtree(directory / "log")
    before, after = statistics.median(plain) * 1e6, statistics.median(ours) * 1e6
    print(
        f"\nA durable append of one record: {after:,.0f} us; a write and an fsync of its bytes: {before:,.0f} us; "
        f"ratio {after / before:.2f}.\n"
    )


# -- look-ups


def measure_lookups(directory: Path, segments: int = 1000) -> None:
    per_batch = 10
    with WritableLogDirectory(directory / "log") as logs:
        logs.create_topic("t", config=SETTINGS | {"internal.segment.bytes": "100000"})
        log = logs["t", 0]
        offset = 0
        while len(log.segments) < segments:
            log.append_batches(batch_of(offset, per_batch, timestamp=offset), origin=AppendOrigin.REPLICATION)
            offset += per_batch
        rng = random.Random(1)
        wanted = [rng.randrange(offset) for _ in range(LOOKUPS)]
        row("look-up in a log of 1,000 segments", "first time, us", "later, us (median)", "99th of 100, us")
        row(*["---"] * 4)
        for name, look_up in {
            "offset to position": lambda target: next(iter(log.slices(target, target + 1))).position,
            "record at an offset": lambda target: next(log.read(target, target + 1)).offset,
            "time to offset": log.offset_for_time,
        }.items():
            for segment in log.segments:
                segment.close()
            first = microseconds(look_up, wanted[: len(log.segments)])
            later = microseconds(look_up, wanted)
            row(
                name,
                f"{statistics.median(first):,.1f}",
                f"{statistics.median(later):,.1f}",
                f"{sorted(later)[len(later) * 99 // 100]:,.1f}",
            )
    shutil.rmtree(directory / "log")
    print()


def microseconds(look_up: Callable[[int], object], wanted: list[int]) -> list[float]:
    taken = []
    for target in wanted:
        with timed() as times:
            look_up(target)
        taken.append(times.seconds * 1e6)
    return taken


# -- opening


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def measure_opening(directory: Path, partitions: int, segments: int) -> None:
    folder = directory / "log"
    each = segments // partitions
    with WritableLogDirectory(folder) as logs:
        logs.create_topic("t", partitions=partitions, config=SETTINGS)
        for log in logs:
            for number in range(each):
                log.append_batches(batch_of(number, 1, timestamp=number), origin=AppendOrigin.REPLICATION)
                if number + 1 < each:
                    log.roll()
    found = len(list(folder.glob("t-*/*.log")))
    for _ in range(2):
        with timed() as opening:
            logs = odradek.open(folder)
        with timed() as one:
            assert logs["t", partitions // 2].log_end_offset == each
        before = resident_bytes()
        with timed() as every:
            ends = sum(log.log_end_offset for log in logs)
        memory = (resident_bytes() - before) / partitions
        with timed() as closing:
            logs.close()
    assert ends == each * partitions
    with timed() as reading, LogDirectory(folder) as readers:
        assert sum(log.log_end_offset for log in readers) == ends
    row(f"a clean folder of {partitions:,} partitions, {found:,} segments", "seconds")
    row("---", "---")
    row("open, ready to append", f"{opening.seconds:.3f}")
    row("... and the first log of it", f"{one.seconds:.4f}")
    row("... and every one of its logs, to its end", f"{every.seconds:.3f}")
    row("close, nothing written", f"{closing.seconds:.3f}")
    row("open for reading, every log to its end", f"{reading.seconds:.3f}")
    print(f"\nMemory of an open partition: {memory / 1024:,.1f} KB.")
    shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--segments", type=int, default=10_000)
    parser.add_argument("--directory", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        directory = Path(name)
        measure_appends(directory, options.megabytes)
        measure_durable(directory)
        measure_lookups(directory)
        measure_opening(directory, options.partitions, options.segments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
