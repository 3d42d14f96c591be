"""A program that appends to a log directory as fast as it can, until it is killed. It starts within milliseconds.

    python writer.py
    <- FOLDER TOLD SEED        a line for each start: a child is forked, which has everything loaded
    -> PID                     the child's
    -> STATUS                  how it ended, negative for a signal

Segments are long enough for their indexes to have several pages, and one topic has its files preallocated: all that
recovery makes shorter may be mapped by a reader then.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import odradek
from odradek.errors import UnknownTopicOrPartitionError
from odradek.records.builder import build_batch
from odradek.storage.log.writable_log import WritableLog
from peers.load_writer import numbered

LONG = {
    "internal.segment.bytes": "4000000",
    "index.interval.bytes": "1",
    "segment.index.bytes": "1000000",
    "file.delete.delay.ms": "5",
    "message.timestamp.after.max.ms": str(1 << 50),
}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "events": (2, LONG),
    "preallocated": (1, LONG | {"preallocate": "true"}),
    "short": (1, LONG | {"internal.segment.bytes": "200000", "retention.bytes": "500000"}),
    "transactions": (1, LONG),
}
PASSING = "passing"
"""A topic that is deleted and made again at every start."""
BROKER = {
    "log.initial.task.delay.ms": "0",
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "20",
    "log.flush.offset.checkpoint.interval.ms": "30",
    "log.flush.start.offset.checkpoint.interval.ms": "30",
    "replica.high.watermark.checkpoint.interval.ms": "30",
}
NUMBERS_A_LIFE = 1_000_000


def write(folder: Path, told: Path, seed: int) -> None:
    """Append for ever."""
    numbers = itertools.count(seed * NUMBERS_A_LIFE)
    descriptor = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def tell(*words: object) -> None:
        os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())

    with odradek.open(folder, config=BROKER, background=True) as logs:
        for topic in ("events", "preallocated", "short"):
            partitions = TOPICS[topic][0]
            logs_of = [logs[topic, partition] for partition in range(partitions)]
            threading.Thread(target=_append, args=(logs_of, seed, numbers, tell), daemon=True).start()
        with contextlib.suppress(UnknownTopicOrPartitionError):
            logs.delete_topic(PASSING)
        logs.create_topic(PASSING, config=LONG)
        logs[PASSING, 0].append([numbered(number) for number in range(40)])
        _write_transactions(logs["transactions", 0], seed, numbers, tell)


def _append(logs: list[WritableLog], seed: int, numbers: Iterator[int], tell: Callable[..., None]) -> None:
    try:
        source = random.Random(seed)
        while True:
            log = source.choice(logs)
            topic, partition = log.topic_partition
            # Others take numbers too: each record is told by itself.
            taken = [next(numbers) for _ in range(source.randint(1, 4))]
            offset = log.append(list(map(numbered, taken)), durable=source.random() < 0.02)
            for index, number in enumerate(taken):
                tell("append", topic, partition, offset + index, number, 1, -1)
    except BaseException:
        # The test must not take it for a killed one.
        sys.excepthook(*sys.exc_info())
        os._exit(3)


def _write_transactions(log: WritableLog, seed: int, numbers: Iterator[int], tell: Callable[..., None]) -> None:
    source = random.Random(seed)
    for state in list(log.producers.producers.values()):
        if state.current_transaction_first_offset is not None:
            log.end_transaction(state.producer_id, state.producer_epoch, commit=False)
    for transaction in itertools.count(seed * 1000):
        number = next(numbers)
        batch = build_batch(
            [numbered(number)], producer_id=transaction, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        offset = log.append_batches(batch).first_offset
        tell("append", "transactions", 0, offset, number, 1, transaction)
        log.end_transaction(transaction, 0, commit=source.random() < 0.7)


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
