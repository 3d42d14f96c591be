"""Measures what a program does that reads little at a time: one record by its offset, and a poll that finds nothing.

    python benchmarks/point_reads.py [--megabytes 1000] [--rounds 5] [--directory DIR]

Each figure is CPU time, the least of several rounds, beside SQLite in the same run: a table with an integer key, in WAL
mode, in one file. The offsets, and the keys, are at random, and the same. `owner` is the log of the program that
writes; `reader` is one that was opened with mode="r" beside it. A poll is `refresh`, and a read from the end on with
`read_committed`; of SQLite it is a query for the rows above the last key.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import odradek
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import build_batch
from odradek.storage.log.log import Log
from odradek.storage.log.writable_log import WritableLog

VALUE_BYTES = 200
BATCH_RECORDS = 70
RECORD_BYTES = VALUE_BYTES + 12
CHUNK_BYTES = 4 << 20
LOOKUPS = 1_000
NOW_MS = int(time.time() * 1000)
POLLS = 500

SETTINGS = {"retention.ms": "-1"}


def row(*cells: object) -> None:
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def least(actions: dict[str, Callable[[], object]], times: int, rounds: int) -> dict[str, float]:
    """Return the CPU time of each action in us: the least of some rounds, in each of which all have their turn."""
    seconds = dict.fromkeys(actions, float("inf"))
    for action in actions.values():
        action()
    for _ in range(rounds):
        for name, action in actions.items():
            started = time.thread_time()
            for _ in range(times):
                action()
            seconds[name] = min(seconds[name], (time.thread_time() - started) / times)
    return {name: best * 1e6 for name, best in seconds.items()}


def fill(log: WritableLog, batches: int, records: int, a_time: int | None) -> None:
    """Append one batch again and again, each time with the offsets that follow; so many at a time."""
    rows = [odradek.Record(b"key", b"v" * VALUE_BYTES, timestamp=NOW_MS) for _ in range(records)]
    tail = build_batch(rows, partition_leader_epoch=0)[8:]
    a_time = max(1, CHUNK_BYTES // len(tail)) if a_time is None else a_time
    for first in range(0, batches, a_time):
        numbers = range(first, min(batches, first + a_time))
        data = b"".join((number * records).to_bytes(8, "big") + tail for number in numbers)
        log.append_batches(data, origin=AppendOrigin.REPLICATION)


def in_sqlite(directory: Path, records: int) -> sqlite3.Connection:
    table = sqlite3.connect(directory / "table.sqlite")
    table.execute("PRAGMA journal_mode=WAL")
    table.execute("PRAGMA synchronous=OFF")
    table.execute("CREATE TABLE records (offset INTEGER PRIMARY KEY, timestamp INTEGER, key BLOB, value BLOB)")
    value = b"v" * VALUE_BYTES
    rows = ((offset, NOW_MS, b"key", value) for offset in range(records))
    table.executemany("INSERT INTO records VALUES (?, ?, ?, ?)", rows)
    table.commit()
    return table


class Offsets:
    """Offsets at random, the same for whoever asks for the same number of them."""

    def __init__(self, end: int) -> None:
        rng = random.Random(1)
        self._chosen = [rng.randrange(end) for _ in range(LOOKUPS)]
        self._turn = iter(self._endless())

    def _endless(self) -> Iterator[int]:
        while True:
            yield from self._chosen

    def __call__(self) -> int:
        """Return the next one."""
        return next(self._turn)


def measure_lookups(logs: dict[str, Log], table: sqlite3.Connection, rounds: int) -> None:
    # Of the table's rows, so that it has no advantage of being smaller.
    end = table.execute("SELECT count(*) FROM records").fetchone()[0]
    keys = Offsets(end)
    select = "SELECT offset, timestamp, key, value FROM records WHERE offset = ?"
    actions: dict[str, Callable[[], object]] = {"SQLite": lambda: table.execute(select, (keys(),)).fetchone()}
    for name, log in logs.items():
        offsets = Offsets(log.log_end_offset)
        actions[f"{name}: get"] = lambda log=log, offsets=offsets: log.get(offsets())  # type: ignore[misc]
        actions[f"{name}: first of read"] = lambda log=log, offsets=offsets: next(log.read(offsets()))  # type: ignore[misc]
    found = least(actions, LOOKUPS, rounds)
    row("a record at a random offset", "us", f"SQLite by key ({end:,} rows), us", "ratio")
    row(*["---"] * 4)
    beside = found.pop("SQLite")
    for name, best in found.items():
        row(name, f"{best:,.1f}", f"{beside:,.1f}", f"{best / beside:.2f}")
    print()


def poll(log: Log, end: int) -> None:
    log.refresh()
    for _ in log.read(end, isolation="read_committed"):
        raise AssertionError("there is something to read")


def measure_polls(logs: dict[str, Log], table: sqlite3.Connection, rounds: int) -> None:
    last = table.execute("SELECT max(offset) FROM records").fetchone()[0]
    select = "SELECT offset, timestamp, key, value FROM records WHERE offset > ?"
    actions: dict[str, Callable[[], object]] = {"SQLite": lambda: table.execute(select, (last,)).fetchall()}
    for name, log in logs.items():
        actions[name] = lambda log=log, end=log.log_end_offset: poll(log, end)  # type: ignore[misc]
    found = least(actions, POLLS, rounds)
    row("a poll that finds nothing", "us", "SQLite, us", "ratio")
    row(*["---"] * 4)
    beside = found.pop("SQLite")
    for name, best in found.items():
        row(name, f"{best:,.1f}", f"{beside:,.1f}", f"{best / beside:.2f}")
    print()


def make_logs(folder: Path, size_bytes: int) -> None:
    # How many batches of how many records; and how many of them there are in a segment, where that is not left open.
    wanted: dict[str, tuple[int, int, int | None]] = {
        "one": (size_bytes // (BATCH_RECORDS * RECORD_BYTES), BATCH_RECORDS, None),
        "thousand": (18_000, BATCH_RECORDS, 18),
        "small": (5_000, 1, None),
        "large": (40_000, 1, None),
        "segments": (3_000, 1, 1),
    }
    with odradek.open(folder) as logs:
        for topic, (batches, records, of_segment) in wanted.items():
            limit = {} if of_segment is None else {"internal.segment.bytes": str(of_segment * records * 300)}
            logs.create_topic(topic, config=SETTINGS | limit)
            fill(logs[topic, 0], batches, records, of_segment)


def measure(directory: Path, size_bytes: int, rounds: int) -> None:
    folder = directory / "logs"
    make_logs(folder, size_bytes)
    with closing(in_sqlite(directory, size_bytes // RECORD_BYTES)) as table, odradek.open(folder) as logs:
        for log in logs:
            log.append(value=b"the writer is at work")
        # A folder that was changed just now is listed again: its clock is not fine enough to tell.
        time.sleep(0.5)
        with odradek.open(folder, mode="r") as readers:

            def sides(topics: Sequence[str]) -> dict[str, Log]:
                both: dict[str, Log] = {}
                for topic in topics:
                    log = logs[topic, 0]
                    text = f"{len(log.segments):,} segments of {log.log_end_offset:,} records"
                    both |= {f"{text}, owner": log, f"{text}, reader": readers[topic, 0]}
                return both

            measure_lookups(sides(["one", "thousand"]), table, rounds)
            measure_polls(sides(["small", "large", "segments"]), table, rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1000, help="of the log of one segment, and of the table")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--directory", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        measure(Path(name), options.megabytes << 20, options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
