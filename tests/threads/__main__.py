"""Rounds of random work from eight threads, each on a folder of its own.

    python -m threads --seconds 600 --seed 7 [--round-seconds 5]

What went wrong is printed as JSON; where a thread gets on no more, all stacks go to stderr, and the program ends.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import shutil
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path

from click.testing import CliRunner

import odradek
from crash.checks import require
from crash.store import new_folder
from odradek.cli.app import main as command_line
from odradek.storage.log.log import Log
from odradek.storage.names import DELETED_SUFFIX, TopicPartition
from threads.ledger import Ledger, Place, Token, token_of
from threads.workers import TOPICS, WORKERS, Shared, Worker

LONGEST_WAIT_S = 20
STUCK = 3
"""The exit code where a thread gets on no more."""

Rows = dict[TopicPartition, list[tuple[int, Token]]]


def rows_of(log: Log) -> list[tuple[int, Token]]:
    return [(record.offset or 0, token_of(record.value)) for record in log.read()]


def read_all(logs: odradek.LogDirectory) -> Rows:
    return {place: rows_of(logs[place]) for place in logs.topic_partitions()}


def check(logs: odradek.WritableLogDirectory, ledger: Ledger) -> None:
    """Compare everything with what was acknowledged."""
    for log in logs:
        topic, partition = log.topic_partition
        rows, start, end = rows_of(log), log.log_start_offset, log.log_end_offset
        place = Place(topic, partition)
        if topic == "keyed":
            ledger.check_compacted(place, rows)
        elif topic == "transactions":
            check_transactions(log, ledger, rows)
        elif topic in TOPICS:
            require(topic == "short" or start == 0, place, "starts at", start)
            require(start >= ledger.starts[place], place, "starts at", start, "below", ledger.starts[place])
            ledger.check_all(place, rows, start, end)
        else:
            ledger.check_all(Place(topic, partition, str(logs.topic_id(topic))), rows, start, end)
        require(log.damage == [], log.damage)


def check_transactions(log: Log, ledger: Ledger, rows: list[tuple[int, Token]]) -> None:
    known = ledger.known(Place("transactions", 0))
    present = dict(rows)
    for offset, token in known.items():
        require(token.worker < 0 or present.get(offset) == token, "offset", offset, "has", present.get(offset), token)
    committed = {record.offset: token_of(record.value) for record in log.read(isolation="read_committed")}
    stable = log.last_stable_offset
    for offset, token in rows:
        state = ledger.transactions[token.tag]
        require(offset in known or token in ledger.unknown, "offset", offset, "holds what nobody had:", token)
        if offset < stable and offset in known:
            require((offset in committed) == (state == "commit"), "offset", offset, "of", token, "which is", state)
    require(len(set(present.values())) == len(present), "a record comes twice")


def round_of(seed: int, seconds: float, counts: Counter[str]) -> list[str]:
    """Do one round, and return what went wrong."""
    rng = random.Random(seed)
    sys.setswitchinterval(rng.choice((0.005, 0.0005, 0.00002)))
    path = new_folder()
    try:
        shared = Shared(path, seed, background=rng.random() < 0.5)
        workers = [Worker(shared, number) for number in range(WORKERS)]
        for worker in workers:
            worker.start()
        end = time.monotonic() + seconds
        while not shared.stopping.wait(0.1) and time.monotonic() < end:
            watch(workers, path)
        shared.stopping.set()
        while any(worker.is_alive() for worker in workers):
            watch(workers, path)
            time.sleep(0.01)
        counts.update(shared.counts)
        counts.update({f"met {name}": count for name, count in shared.errors.items()})
        if shared.failures:
            leave(shared)
        else:
            shared.failures += stopped(shared, path)
        return [f"seed {seed}, background={shared.background}: {failure}" for failure in shared.failures]
    finally:
        shutil.rmtree(path, ignore_errors=True)


def leave(shared: Shared) -> None:
    """End the threads of the maintenance, if that can still be done."""
    thread = threading.Thread(target=shared.logs.close, daemon=True)
    thread.start()
    thread.join(LONGEST_WAIT_S / 4)


def stopped(shared: Shared, path: Path) -> list[str]:
    """Compare what is left when all have stopped: now, when it is opened again, and on the disk."""
    faulthandler.dump_traceback_later(3 * LONGEST_WAIT_S, exit=True)
    try:
        shared.logs.maintain()
        check(shared.logs, shared.ledger)
        shared.logs.close()
        result = CliRunner().invoke(command_line, ["verify", str(path)])
        require(result.exit_code == 0, "it is not clean:", result.output[:2000])
        with odradek.open(path, mode="r") as reader:
            read = read_all(reader)
        with odradek.open(path) as logs:
            actions = [str(action) for action in logs.report.actions if action.path.suffix != DELETED_SUFFIX]
            require(not actions, "it was not closed in order:", actions)
            check(logs, shared.ledger)
            require(read_all(logs) == read, "who reads sees another log than who writes")
    except Exception:
        return [f"when all had stopped:\n{traceback.format_exc()}"]
    finally:
        faulthandler.cancel_dump_traceback_later()
    return []


def watch(workers: list[Worker], path: Path) -> None:
    """End the program where a thread gets on no more."""
    now = time.monotonic()
    stuck = [worker for worker in workers if worker.is_alive() and now - worker.since > LONGEST_WAIT_S]
    if stuck:
        for worker in workers:
            print(f"worker {worker.number}: {worker.doing} for {now - worker.since:.1f} s", file=sys.stderr)
        faulthandler.dump_traceback(all_threads=True)
        sys.stderr.flush()
        shutil.rmtree(path, ignore_errors=True)
        os._exit(STUCK)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--round-seconds", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--go-on", action="store_true", help="do not stop at the first round that goes wrong")
    options = parser.parse_args()
    faulthandler.enable()
    counts: Counter[str] = Counter()
    failures: list[str] = []
    rounds, begun = 0, time.monotonic()
    while (left := options.seconds - (time.monotonic() - begun)) > 0 and (options.go_on or not failures):
        seed = options.seed + rounds
        print(f"seed {seed}", file=sys.stderr, flush=True)
        failures += round_of(seed, min(left, options.round_seconds), counts)
        rounds += 1
    print(json.dumps({"rounds": rounds, "counts": counts, "failures": failures}, indent=1))


if __name__ == "__main__":
    main()
