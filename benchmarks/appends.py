"""Measures appending and reading records as objects, beside SQLite, LMDB and a JSON-lines file.

    python benchmarks/appends.py [--records 20000] [--rounds 7] [--directory DIR]

All in one run on one machine. The times are CPU time (`time.process_time`, user and system), the least of several
rounds; each round appends, or reads, all records. Nothing waits for the disk: SQLite runs with `journal_mode=WAL` and
`synchronous=OFF`, LMDB without sync. A ratio is the time of Odradek divided by that of the other: below 1 is faster.

* *one at a time*: a call and, for a database, a transaction for each record.
* *100 at a time*: lists of 100 that were made before; SQLite by `executemany` in a transaction.
* *read*: every record as a Python object, in a loop; *as a list*: all of them kept, as `fetchall` returns them.
"""

from __future__ import annotations

import argparse
import gc
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import odradek

VALUE = b"v" * 100
BATCH = 100
INSERT = "insert into log (timestamp, key, value) values (?, ?, ?)"
SELECT = "select * from log"


def measured(function: Callable[[], object], count: int) -> float:
    """Return the CPU time of a record, in microseconds."""
    gc.collect()
    started = time.process_time()
    function()
    return (time.process_time() - started) / count * 1e6


def each(items: Iterator[Any]) -> None:
    for _ in items:
        pass


@contextmanager
def logs_of(directory: Path) -> Iterator[dict[str, Callable[[int], object]]]:
    """Give what is measured of Odradek."""
    records = [odradek.Record(b"key", VALUE) for _ in range(BATCH)]
    with odradek.open(directory / "logs") as logs:
        for name in ("one", "parts", "many"):
            logs.create_topic(name, config={"retention.ms": "-1"})
        one, parts, many = logs["one", 0], logs["parts", 0], logs["many", 0]

        def append_one(count: int) -> None:
            for _ in range(count):
                one.append(odradek.Record(b"key", VALUE))

        def append_parts(count: int) -> None:
            for _ in range(count):
                parts.append(key=b"key", value=VALUE)

        def append_many(count: int) -> None:
            for _ in range(count // BATCH):
                many.append(records)

        yield {
            "append, one at a time": append_one,
            "append, one at a time, as key= and value=": append_parts,
            "append, 100 at a time": append_many,
            "read, batches of 100": lambda count: each(many.read(0, count)),
            "read, batches of 100, as a list": lambda count: list(many.read(0, count)),
            "read, batches of 1": lambda count: each(one.read(0, count)),
            "read, batches of 1, as a list": lambda count: list(one.read(0, count)),
        }


@contextmanager
def sqlite_of(directory: Path) -> Iterator[dict[str, Callable[[int], object]]]:
    """Give the same of SQLite."""
    rows = [(1_700_000_000_000, b"key", VALUE)] * BATCH
    with closing(sqlite3.connect(directory / "log.sqlite", isolation_level=None)) as database:
        database.execute("pragma journal_mode=wal")
        database.execute("pragma synchronous=off")
        database.execute("create table log (offset integer primary key, timestamp integer, key blob, value blob)")

        def append_one(count: int) -> None:
            for _ in range(count):
                database.execute(INSERT, (1_700_000_000_000, b"key", VALUE))

        def append_many(count: int) -> None:
            for _ in range(count // BATCH):
                database.execute("begin")
                database.executemany(INSERT, rows)
                database.execute("commit")

        def read(count: int) -> None:
            each(database.execute(f"{SELECT} limit {count}"))

        def read_list(count: int) -> list[Any]:
            return database.execute(f"{SELECT} limit {count}").fetchall()

        yield {"one": append_one, "many": append_many, "read": read, "list": read_list}


@contextmanager
def lmdb_of(directory: Path) -> Iterator[dict[str, Callable[[int], object]]]:
    """Give the same of LMDB, where its package is installed."""
    try:
        lmdb = import_module("lmdb")
    except ImportError:
        yield {}
        return
    with lmdb.open(str(directory / "lmdb"), map_size=1 << 32, sync=False, metasync=False) as environment:
        offset = 0

        def append(count: int, size: int) -> None:
            nonlocal offset
            for _ in range(count // size):
                with environment.begin(write=True) as transaction:
                    for _ in range(size):
                        transaction.put(offset.to_bytes(8, "big"), VALUE, append=True)
                        offset += 1

        def read(count: int) -> None:
            with environment.begin() as transaction:
                each(zip(range(count), transaction.cursor(), strict=False))

        yield {"one": partial(append, size=1), "many": partial(append, size=BATCH), "read": read}


@contextmanager
def json_lines_of(directory: Path) -> Iterator[dict[str, Callable[[int], object]]]:
    """Give the same of a file of JSON lines, each append written at once."""
    value = VALUE.decode()
    path = directory / "log.jsonl"
    with path.open("ab", buffering=0) as file:

        def line() -> bytes:
            return json.dumps({"timestamp": 1_700_000_000_000, "key": "key", "value": value}).encode() + b"\n"

        def append(count: int, size: int) -> None:
            for _ in range(count // size):
                file.write(b"".join([line() for _ in range(size)]))

        def read(count: int) -> None:
            with path.open("rb") as lines:
                each(json.loads(text) for _, text in zip(range(count), lines, strict=False))

        yield {"one": partial(append, size=1), "many": partial(append, size=BATCH), "read": read}


PEERS = {"SQLite": sqlite_of, "LMDB": lmdb_of, "JSON lines": json_lines_of}
ROWS = {
    "append, one at a time": "one",
    "append, one at a time, as key= and value=": "one",
    "append, 100 at a time": "many",
    "read, batches of 100": "read",
    "read, batches of 100, as a list": "list",
    "read, batches of 1": "read",
    "read, batches of 1, as a list": "list",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=20_000, help="how many records a round has")
    parser.add_argument("--rounds", type=int, default=7, help="how many rounds, of which the fastest counts")
    parser.add_argument("--directory", type=Path, default=None, help="where the files are made")
    arguments = parser.parse_args()
    count, rounds = arguments.records - arguments.records % BATCH, arguments.rounds
    least: dict[tuple[str, str], float] = {}
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name, ExitStack() as stack:
        ours = stack.enter_context(logs_of(Path(name)))
        peers = {peer: stack.enter_context(ways_of(Path(name))) for peer, ways_of in PEERS.items()}
        for row, way in ours.items():
            same = {"Odradek": way} | {peer: ways[ROWS[row]] for peer, ways in peers.items() if ROWS[row] in ways}
            # In turns: the machine may be slower at one time than at another.
            for _ in range(rounds):
                for who, function in same.items():
                    found = measured(partial(function, count), count)
                    least[row, who] = min(found, least.get((row, who), found))
    print("| CPU time of a record, us | Odradek | " + " | ".join(f"{peer} | ratio" for peer in peers) + " |")
    print("|---" * (2 + 2 * len(peers)) + "|")
    for row in ROWS:
        cells = [f"{least[row, 'Odradek']:.2f}"]
        for peer in peers:
            other = least.get((row, peer))
            cells += ["-", "-"] if other is None else [f"{other:.2f}", f"{least[row, 'Odradek'] / other:.2f}"]
        print(f"| {row} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
