"""A program that appends to a log directory as fast as it can, until it is killed. It starts within milliseconds.

    python load_writer.py
    <- FOLDER ACKNOWLEDGEMENTS SEED         a line for each start: a child is forked, which has everything loaded
    -> PID                                  the child's
    -> STATUS                               how it ended, negative for a signal

The child appends a line to the file ACKNOWLEDGEMENTS for each thing that is acknowledged, in one write:

    append TOPIC PARTITION FIRST_OFFSET FIRST_NUMBER COUNT TRANSACTION       the records are `numbered(number)`
    end TRANSACTION commit|abort
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import odradek
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.log.writable_log import WritableLog

KEYS = 20
SMALL = {"internal.segment.bytes": "8192", "index.interval.bytes": "256", "file.delete.delay.ms": "5"}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "events": (2, SMALL),
    "keyed": (1, {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}),
    "short": (1, {**SMALL, "retention.bytes": "30000"}),
    "transactions": (1, SMALL),
}
BROKER = {
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "20",
    "log.cleaner.backoff.ms": "10",
    "log.cleaner.dedupe.buffer.size": "100000",
    "log.flush.offset.checkpoint.interval.ms": "30",
    "log.flush.start.offset.checkpoint.interval.ms": "30",
    "replica.high.watermark.checkpoint.interval.ms": "30",
}
FIRST_TIMESTAMP = 1_700_000_000_000


def numbered(number: int) -> Record:
    """Return the record of a number, without its offset."""
    value = b"%d " % number + b"." * (number * 7919 % 200)
    return Record(b"k%d" % (number % KEYS), value, [("n", b"%d" % number)], FIRST_TIMESTAMP + number)


def load(folder: Path, acknowledgements: Path, seed: int) -> None:
    """Append for ever."""
    # A seed is a range of numbers of its own.
    numbers = itertools.count(seed * 1_000_000)
    descriptor = os.open(acknowledgements, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def tell(*words: object) -> None:
        os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())

    with odradek.open(folder, config={**BROKER, "log.retention.ms": "-1"}, background=True) as logs:
        threads = [
            threading.Thread(target=_append, args=(logs, topic, seed, numbers, tell), daemon=True)
            for topic in ("events", "keyed", "short")
        ]
        for thread in threads:
            thread.start()
        _write_transactions(logs["transactions", 0], seed, numbers, tell)


def _append(
    logs: WritableLogDirectory, topic: str, seed: int, numbers: itertools.count[int], tell: Callable[..., None]
) -> None:
    try:
        source = random.Random(seed)
        partitions = TOPICS[topic][0]
        while True:
            partition = source.randrange(partitions)
            taken = [next(numbers) for _ in range(source.randint(1, 12))]
            for first, *more in _runs(taken):
                records = [numbered(number) for number in (first, *more)]
                offset = logs[topic, partition].append(records, durable=source.random() < 0.1)
                tell("append", topic, partition, offset, first, len(records), -1)
    except BaseException:
        # The test must not take it for a killed one.
        sys.excepthook(*sys.exc_info())
        os._exit(3)


def _runs(numbers: list[int]) -> list[list[int]]:
    """Cut numbers, of which other threads may have taken some, into runs without gaps."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] + 1 == number:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def _write_transactions(log: WritableLog, seed: int, numbers: itertools.count[int], tell: Callable[..., None]) -> None:
    source = random.Random(seed)
    left = [state for state in log.producers.producers.values() if state.current_transaction_first_offset is not None]
    for state in left:
        log.end_transaction(state.producer_id, state.producer_epoch, commit=False)
    for transaction in itertools.count(seed * 1000):
        sequence = 0
        for _ in range(source.randint(1, 3)):
            (first, *more), *_ = _runs([next(numbers) for _ in range(4)])
            records = [numbered(number) for number in (first, *more)]
            batch = build_batch(
                records,
                codec=source.choice(list(Codec)),
                producer_id=transaction,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
            sequence += len(records)
            result = log.append_batches(batch, durable=source.random() < 0.1)
            tell("append", "transactions", 0, result.first_offset, first, len(records), transaction)
        commit = source.random() < 0.7
        log.end_transaction(transaction, 0, commit=commit)
        tell("end", transaction, "commit" if commit else "abort")


def main() -> None:
    for line in sys.stdin:
        folder, acknowledgements, seed = line.split()
        child = os.fork()
        if child == 0:
            try:
                load(Path(folder), Path(acknowledgements), int(seed))
            except BaseException:
                sys.excepthook(*sys.exc_info())
            os._exit(2)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
