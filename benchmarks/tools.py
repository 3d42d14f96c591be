"""Measures the commands beside the tools of Apache Kafka 4.3.1, in the same run, on the same segment.

    python benchmarks/tools.py [--megabytes 440] [--rounds 3] [--only dump]

Prints a Markdown table for each command: the seconds of the shortest round, with the start of the program; the speed;
the most memory of the process; and how many times as long Kafka's tool took. Every program writes to a file in memory
(/dev/shm), whose bytes are compared where they must be the same. The rounds of all programs take turns, so that others
disturb all of them alike.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from scans import (  # type: ignore[import-not-found]  # the folder of this file is no package
    BATCH_RECORDS,
    VALUE_BYTES,
    make_log,
)

import odradek
from odradek.kafka_version import KAFKA_VERSION

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from peers.jars import classpath

ODRADEK = [sys.executable, "-m", "odradek"]

# A process has at least the peak memory of the one that it was forked from. So a small one starts the program.
_STARTER = """
import json, os, sys, time
started = time.perf_counter()
process = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(process, 0)
seconds = time.perf_counter() - started
json.dump([os.waitstatus_to_exitcode(status), seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss], sys.stderr)
"""


@dataclass
class Program:
    """A program and what its rounds took.

    Attributes:
        name: What the table calls it.
        command: Its command line.
        peer: The program that it is compared with.
        allows: The exit codes that are no failure.
        output: Its output of the last round.
    """

    name: str
    command: list[str]
    peer: Program | None = None
    allows: tuple[int, ...] = (0,)
    output: Path = field(init=False)
    seconds: float = float("inf")
    cpu: float = 0.0
    peak_bytes: int = 0

    def run(self, folder: Path) -> None:
        """Run it once."""
        self.output = folder / f"{self.name.replace(' ', '_')}.out"
        starter = [sys.executable, "-I", "-S", "-c", _STARTER, *self.command]
        with self.output.open("wb") as out:
            ended = subprocess.run(starter, stdout=out, stderr=subprocess.PIPE, check=True)
        # Before the last line stands what the program itself wrote.
        code, seconds, cpu, peak_kib = json.loads(ended.stderr[ended.stderr.rindex(b"[") :])
        assert code in self.allows, f"{self.command} ended with {code}"
        if seconds < self.seconds:
            self.seconds, self.cpu = seconds, cpu
        self.peak_bytes = max(self.peak_bytes, peak_kib << 10)


def kafka_dump(*flags: str) -> list[str]:
    """Return the command line of Kafka's dump tool, with the JVM's settings of kafka-run-class.sh."""
    java = [
        "java",
        "-Xmx256M",
        "-server",
        "-XX:+UseG1GC",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    ]
    return [
        *java,
        "-cp",
        classpath("kafka", KAFKA_VERSION),
        "org.apache.kafka.tools.DumpLogSegments",
        *flags,
    ]


def measure(
    title: str,
    programs: list[Program],
    size_bytes: int,
    rounds: int,
    folder: Path,
    *,
    before: Callable[[], None] = lambda: None,
) -> None:
    """Run the programs, each time after something else, and print the table."""
    for _ in range(rounds):
        for program in programs:
            before()
            program.run(folder)
    print(f"\n{title}\n")
    print("| | s | CPU s | MB of log/s | MB of output/s | peak MB | times as fast |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for program in programs:
        ratio = f"{program.peer.seconds / program.seconds:.1f}" if program.peer else ""
        written = program.output.stat().st_size
        print(
            f"| {program.name} | {program.seconds:.2f} | {program.cpu:.2f} | {size_bytes / program.seconds / 1e6:,.0f} "
            f"| {written / program.seconds / 1e6:,.0f} | {program.peak_bytes / 1e6:,.0f} | {ratio} |",
            flush=True,
        )


def measure_dump(segment: Path, rounds: int, folder: Path) -> None:
    theirs = Program(
        "Kafka's dump",
        kafka_dump("--files", str(segment), "--deep-iteration", "--print-data-log"),
    )
    compat = ["--kafka-compat", "--deep-iteration", "--print-data-log"]
    ours = Program("dump --kafka-compat", [*ODRADEK, "dump", *compat, str(segment)], theirs)
    forms = [
        Program(
            f"dump --format {form}",
            [*ODRADEK, "dump", "--format", form, str(segment)],
            theirs,
        )
        for form in ("text", "jsonl", "csv")
    ]
    measure("dump", [theirs, ours, *forms], segment.stat().st_size, rounds, folder)
    same = filecmp.cmp(theirs.output, ours.output, shallow=False)
    print(f"\nThe output of `--kafka-compat` is {'' if same else 'NOT '}that of Kafka's tool, byte for byte.")


def measure_verify(segment: Path, rounds: int, folder: Path) -> None:
    # Kafka's tool has no other way to look at every record.
    theirs = Program("Kafka's dump, deep", kafka_dump("--files", str(segment), "--deep-iteration"))
    ours = [
        Program("verify", [*ODRADEK, "verify", str(segment)], theirs),
        Program("verify --records", [*ODRADEK, "verify", "--records", str(segment)], theirs),
    ]
    measure("verify", [theirs, *ours], segment.stat().st_size, rounds, folder)


def measure_grep(segment: Path, rounds: int, folder: Path) -> None:
    lines = folder / "records.jsonl"
    with lines.open("wb") as out:
        subprocess.run(
            [*ODRADEK, "dump", "--format", "jsonl", str(segment)],
            stdout=out,
            check=True,
        )
    # Of half a gigabyte of hexadecimal digits: no record, a few thousand, a third of them.
    wanted = {"none": "timeout|refused", "few": "00ff00", "many": "aa[0-9]"}
    programs = []
    for amount, pattern in wanted.items():
        peer = Program(
            f"grep of exported lines, {amount}",
            ["grep", "-cE", pattern, str(lines)],
            allows=(0, 1),
        )
        programs += [
            peer,
            Program(
                f"odradek grep -c, {amount}",
                [*ODRADEK, "grep", "-c", pattern, str(segment)],
                peer,
            ),
            Program(
                f"odradek grep, {amount}",
                [*ODRADEK, "grep", pattern, str(segment)],
                peer,
            ),
        ]
    measure("grep", programs, segment.stat().st_size, rounds, folder)
    print(f"\nmemchr of the segment, by one thread: {_memchr(segment):,.0f} MB/s.")
    lines.unlink()


def _memchr(segment: Path) -> float:
    """Return how fast the bytes are searched for one that they do not have, in MB/s."""
    data = segment.read_bytes()
    rare = next(byte for byte in range(256) if byte not in data[: 1 << 20])
    taken = []
    for _ in range(5):
        started = time.thread_time()
        position = 0
        while (position := data.find(rare, position)) >= 0:
            position += 1
        taken.append(time.thread_time() - started)
    return len(data) / min(taken) / 1e6


def measure_tail(segment: Path, rounds: int, folder: Path) -> None:
    # 100 segments of 1 GB, of which only the last is not sparse.
    data = segment.parents[2] / "tail"
    source = random.Random(2)
    with odradek.open(data) as logs:
        logs.create_topic("events", config={"segment.bytes": "2147483647"})
        log = logs["events", 0]
        for _ in range(99):
            log.append(value=b"first")
            log.roll()
        while log.size_bytes < segment.stat().st_size // 4:
            log.append([odradek.Record(b"key", source.randbytes(VALUE_BYTES)) for _ in range(BATCH_RECORDS)])
    files = sorted(log.path.glob("*.log"))
    for file in files[:-1]:
        os.truncate(file, 1 << 30)
    os.sync()

    def forget() -> None:
        for file in log.path.iterdir():
            with file.open("rb") as opened:
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    total = sum(file.stat().st_size for file in files)
    start = Program("the interpreter and the command's modules", [*ODRADEK, "tail", "--help"])
    measure(
        f"tail of {total / 1e9:,.0f} GB that are not in the page cache",
        [start, Program("tail", [*ODRADEK, "tail", str(data)])],
        total,
        rounds,
        folder,
        before=forget,
    )


_PYARROW = """
import sys
import pyarrow.csv, pyarrow.ipc, pyarrow.parquet
form, source, target = sys.argv[1:]
table = pyarrow.ipc.open_file(pyarrow.memory_map(source)).read_all()
if form == "parquet":
    pyarrow.parquet.write_table(table, target, compression="zstd", use_dictionary=["topic", "timestamp_type"])
elif form == "csv":
    pyarrow.csv.write_csv(table.drop(["headers"]), target)
else:
    options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
    with pyarrow.ipc.new_file(target, table.schema, options=options) as writer:
        writer.write_table(table)
"""


def measure_export(segment: Path, rounds: int, folder: Path) -> None:
    # pyarrow writes the same rows from memory: it reads no log, and its CSV has no headers.
    rows = folder / "rows.arrow"
    table = odradek.scan(segment.parent.parent).read_all()
    with pa.ipc.new_file(rows, table.schema) as writer:
        writer.write_table(table)
    del table
    programs = []
    for form in ("parquet", "arrow", "csv", "jsonl"):
        peer = None
        if form != "jsonl":
            target = str(folder / f"pyarrow.{form}")
            peer = Program(f"pyarrow, {form}", [sys.executable, "-c", _PYARROW, form, str(rows), target])
            programs.append(peer)
        target = str(folder / f"exported.{form}")
        programs.append(Program(f"odradek export, {form}", [*ODRADEK, "export", str(segment), "--to", target], peer))
    measure("export", programs, segment.stat().st_size, rounds, folder)
    for file in (rows, *folder.glob("pyarrow.*"), *folder.glob("exported.*")):
        file.unlink()


SECTIONS: dict[str, Callable[[Path, int, Path], None]] = {
    "dump": measure_dump,
    "verify": measure_verify,
    "grep": measure_grep,
    "tail": measure_tail,
    "export": measure_export,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=440)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=SECTIONS)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as log,
        tempfile.TemporaryDirectory(dir="/dev/shm") as folder,
    ):
        segment = make_log(Path(log) / "log", given.megabytes * 1_000_000)
        for name, section in SECTIONS.items():
            if given.only in (None, name):
                section(segment, given.rounds, Path(folder))


if __name__ == "__main__":
    main()
