"""Measures a log directory of many partitions, segments and producers: does what it costs grow in proportion?

    python benchmarks/many.py [--quick | --many 1000 10000] [--directory DIR]

Each step is done with few and with many. Its CPU time, its time, how often it waits for the disk (fsync), and what one
partition (or segment, or producer) costs among many as a multiple of what it costs among few: 1.0 means that the cost
is in proportion. Beside it what the same folders and files cost without any log: `mkdir`, and an `open` and a `write`
of each file that a partition has.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import odradek
from odradek.records.builder import build_batch
from odradek.storage.files import FileSystem, WritableFile

FILES_OF_A_PARTITION = ("partition.metadata", "0.log", "0.index", "0.timeindex", "leader-epoch-checkpoint")
SINGLE_CHANGES = 100


class _CountedFile(WritableFile):
    def sync(self) -> None:
        CountedFileSystem.syncs += 1
        super().sync()


class CountedFileSystem(FileSystem):
    """The real disk, with a count of the syncs."""

    syncs = 0
    _file_type = _CountedFile

    def sync_directory(self, path: Path) -> None:
        """Count, and do it."""
        CountedFileSystem.syncs += 1
        super().sync_directory(path)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


class Cost(NamedTuple):
    """What a step cost."""

    cpu_s: float
    wall_s: float
    syncs: int


class Steps:
    """The steps of a run with so many: what each cost, and descriptors and memory at the worst."""

    def __init__(self) -> None:
        self.costs: dict[str, Cost] = {}
        self.descriptors = 0
        self.memory_bytes = 0
        self._memory_before = _resident_bytes()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure what is done within."""
        cpu, wall, syncs = time.process_time(), time.perf_counter(), CountedFileSystem.syncs
        yield
        cost = Cost(time.process_time() - cpu, time.perf_counter() - wall, CountedFileSystem.syncs - syncs)
        self.costs[name] = cost
        # Whoever ends it early has what was measured until then.
        print(f"{name}: {cost.cpu_s:.3f} s of CPU, {cost.wall_s:.3f} s, {cost.syncs:,} syncs", flush=True)
        self.descriptors = max(self.descriptors, sum(1 for _ in Path("/proc/self/fd").iterdir()))
        self.memory_bytes = max(self.memory_bytes, _resident_bytes() - self._memory_before)


def _open(directory: Path) -> odradek.WritableLogDirectory:
    return odradek.open(directory, files=CountedFileSystem())


def files_alone(directory: Path, count: int, steps: Steps) -> None:
    """Make the folders and files of partitions."""
    directory.mkdir()
    with steps.step("the same folders and files, without a log"):
        for number in range(count):
            folder = directory / f"events-{number}"
            folder.mkdir()
            for name in FILES_OF_A_PARTITION:
                descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT)
                os.write(descriptor, b"first")
                os.close(descriptor)


def partitions(directory: Path, count: int, steps: Steps) -> None:
    """A topic of many partitions."""
    with steps.step("open an empty directory"):
        logs = _open(directory)
    with steps.step("create a topic of all partitions"):
        logs.create_topic("events", partitions=count)
    with steps.step("append a record to each"):
        for number in range(count):
            logs["events", number].append(value=b"first")
    with steps.step("append a second record to each"):
        for number in range(count):
            logs["events", number].append(value=b"second")
    with steps.step("maintain"):
        logs.maintain()
    with steps.step("maintain again"):
        logs.maintain()
    with steps.step("close"):
        logs.close()
    with steps.step("open again, and append to one"):
        logs = _open(directory)
        logs["events", count - 1].append(value=b"third")
    with steps.step("open each log"):
        for _ in logs:
            pass
    with steps.step("close, one changed"):
        logs.close()
    with steps.step("open to read, and a record of each"), odradek.open(directory, mode="r") as reader:
        for log in reader:
            next(iter(log))


def topics(directory: Path, count: int, steps: Steps) -> None:
    """Many topics of one partition."""
    with _open(directory) as logs:
        with steps.step("create topics of one partition, in one call"):
            config = {"cleanup.policy": "compact"}
            logs.create_topics(odradek.NewTopic(f"topic-{number}", config=config) for number in range(count))
        with steps.step("append a record to each topic"):
            for number in range(count):
                logs[f"topic-{number}", 0].append(key=b"k", value=b"first")
        with steps.step("compacted_logs"):
            logs._maintenance.compacted_logs()
        with steps.step("maintain topics"):
            logs.maintain()
        changes: dict[str, Callable[[str], object]] = {
            "create": logs.create_topic,
            "append to": lambda name: logs[name, 0].append(value=b"first"),
            "alter": lambda name: logs.alter_topic_config(name, {"retention.ms": 1}),
            "add a partition to": lambda name: logs.create_partitions(name, 2),
            "delete": logs.delete_topic,
        }
        for verb, change in changes.items():
            started = time.process_time()
            for number in range(SINGLE_CHANGES):
                change(f"more-{number}")
            each_ms = (time.process_time() - started) / SINGLE_CHANGES * 1e3
            print(f"{verb} one more topic beside {count:,}: {each_ms:.2f} ms of CPU", flush=True)


def segments(directory: Path, count: int, steps: Steps) -> None:
    """A log of many segments."""
    with _open(directory) as logs:
        logs.create_topic("events")
        log = logs["events", 0]
        with steps.step("append a record and roll, a segment each"):
            for _ in range(count):
                log.append(value=b"first")
                log.roll()
        with odradek.open(directory, mode="r") as reader:
            other = reader["events", 0]
            next(iter(other))
            with steps.step("refresh a reader"):
                other.refresh()
        with steps.step("maintain segments"):
            logs.maintain()
    with _open(directory) as logs, steps.step("open a log of all segments"):
        _ = logs["events", 0]


def producers(directory: Path, count: int, steps: Steps) -> None:
    """A log of many idempotent producers."""
    batches = [
        build_batch([odradek.Record(value=b"first")], producer_id=number, producer_epoch=0, base_sequence=0)
        for number in range(count)
    ]
    with _open(directory) as logs:
        logs.create_topic("events")
        log = logs["events", 0]
        with steps.step("append a batch of each producer"):
            for batch in batches:
                log.append_batches(batch)
        with steps.step("roll with a snapshot of all producers"):
            log.roll()
    with _open(directory) as logs, steps.step("open a log of all producers"):
        _ = logs["events", 0]


RUNS: tuple[Callable[[Path, int, Steps], None], ...] = (files_alone, partitions, topics, segments, producers)


def run(root: Path, count: int) -> Steps:
    """Do every step with so many."""
    steps = Steps()
    for way in RUNS:
        directory = root / way.__name__
        way(directory, count, steps)
        shutil.rmtree(directory)
        # What is left to be written would be waited for by whoever comes next.
        os.sync()
    return steps


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--many", type=int, nargs=2, default=[1_000, 10_000])
    parser.add_argument("--quick", dest="many", action="store_const", const=[100, 1_000], help="--many 100 1000")
    parser.add_argument("--directory", help="where the files are made")
    arguments = parser.parse_args()
    few, many = sorted(arguments.many)
    found: dict[int, Steps] = {}
    for count in (few, many):
        print(f"# with {count:,}", flush=True)
        with tempfile.TemporaryDirectory(dir=arguments.directory) as made:
            found[count] = run(Path(made), count)
    print(
        f"| step | {few:,}: CPU s | time s | syncs | {many:,}: CPU s | time s | syncs | CPU us each | cost of one, "
        f"{many:,} : {few:,} |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, less in found[few].costs.items():
        more = found[many].costs[name]
        growth = (more.cpu_s / many) / (less.cpu_s / few)
        print(
            f"| {name} | {less.cpu_s:.3f} | {less.wall_s:.3f} | {less.syncs:,} | {more.cpu_s:.3f} | {more.wall_s:.3f} "
            f"| {more.syncs:,} | {more.cpu_s / many * 1e6:,.0f} | {growth:.2f} |"
        )
    for count, steps in found.items():
        print(
            f"{count:,}: at most {steps.descriptors:,} descriptors, "
            f"{steps.memory_bytes / count / 1024:.1f} KB of memory a partition"
        )


if __name__ == "__main__":
    main()
