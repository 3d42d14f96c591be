"""A program that appends to a log directory as fast as it can, until it is killed. It starts within milliseconds.

    python writer.py
    <- FOLDER TOLD SEED        a line for each start: a child is forked, which has everything loaded
    -> PID                     the child's
    -> STATUS                  how it ended, negative for a signal

What was acknowledged is noted in the file TOLD, that of one append in one write: `told` says how.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import odradek
from odradek.errors import UnknownTopicOrPartitionError
from odradek.records.compression import Codec
from odradek.storage.log.writable_log import WritableLog
from peers.batches import transactional
from restarts.told import numbered

PASSING = "passing"
"""A topic that is deleted and made again at every start."""
TRANSACTIONS = "transactions"
"""The topic to which transactions are written; to all others, plain records."""
LONG = {
    "internal.segment.bytes": "4000000",
    "index.interval.bytes": "1",
    "segment.index.bytes": "1000000",
    "file.delete.delay.ms": "5",
    "message.timestamp.after.max.ms": str(1 << 50),
}
"""Segments long enough for their indexes to have several pages: what recovery makes shorter may be mapped then."""
BROKER = {
    "log.initial.task.delay.ms": "0",
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "20",
    "log.cleaner.backoff.ms": "10",
    "log.cleaner.dedupe.buffer.size": "100000",
    "log.flush.offset.checkpoint.interval.ms": "30",
    "log.flush.start.offset.checkpoint.interval.ms": "30",
    "replica.high.watermark.checkpoint.interval.ms": "30",
}
NUMBERS_A_LIFE = 1_000_000
MOST_AT_ONCE = 12
"""How many records are appended at once, at the most."""

Tell = Callable[..., None]


def write(folder: Path, told: Path, seed: int) -> None:
    """Append for ever."""
    numbers = itertools.count(seed * NUMBERS_A_LIFE)
    descriptor = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def tell(*lines: str) -> None:
        os.write(descriptor, "".join(f"{line}\n" for line in lines).encode())

    with odradek.open(folder, config=BROKER, background=True) as logs:
        for topic in set(logs.topics()) - {PASSING, TRANSACTIONS}:
            logs_of = [logs[name] for name in logs.topic_partitions(topic)]
            threading.Thread(target=_append, args=(logs_of, seed, numbers, tell), daemon=True).start()
        with contextlib.suppress(UnknownTopicOrPartitionError):
            logs.delete_topic(PASSING)
        logs.create_topic(PASSING, config=LONG)
        logs[PASSING, 0].append([numbered(number) for number in range(40)])
        _write_transactions(logs[TRANSACTIONS, 0], seed, numbers, tell)


def _lines(log: WritableLog, first_offset: int, numbers: Sequence[int], transaction: int = -1) -> Iterator[str]:
    topic, partition = log.topic_partition
    for offset, number in enumerate(numbers, first_offset):
        yield f"append {topic} {partition} {offset} {number} {transaction}"


def _append(logs: list[WritableLog], seed: int, numbers: Iterator[int], tell: Tell) -> None:
    try:
        source = random.Random(seed)
        while True:
            log = source.choice(logs)
            taken = [next(numbers) for _ in range(source.randint(1, MOST_AT_ONCE))]
            tell(*_lines(log, log.append(list(map(numbered, taken)), durable=source.random() < 0.05), taken))
    except BaseException:
        # The test must not take it for a killed one.
        sys.excepthook(*sys.exc_info())
        os._exit(3)


def _write_transactions(log: WritableLog, seed: int, numbers: Iterator[int], tell: Tell) -> None:
    source = random.Random(seed)
    for state in list(log.producers.producers.values()):
        if state.current_transaction_first_offset is not None:
            log.end_transaction(state.producer_id, state.producer_epoch, commit=False)
    for transaction in itertools.count(seed * 1000):
        sequence = 0
        for _ in range(source.randint(1, 3)):
            taken = [next(numbers) for _ in range(4)]
            batch = transactional(list(map(numbered, taken)), transaction, sequence, codec=source.choice(list(Codec)))
            sequence += len(taken)
            result = log.append_batches(batch, durable=source.random() < 0.1)
            tell(*_lines(log, result.first_offset, taken, transaction))
        commit = source.random() < 0.7
        log.end_transaction(transaction, 0, commit=commit)
        tell(f"end {transaction} {'commit' if commit else 'abort'}")


def main() -> None:
    for line in sys.stdin:
        folder, told, seed = line.split()
        child = os.fork()
        if child == 0:
            try:
                write(Path(folder), Path(told), int(seed))
            except BaseException:
                sys.excepthook(*sys.exc_info())
            os._exit(2)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
