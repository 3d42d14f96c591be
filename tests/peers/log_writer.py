"""A program that writes a log directory with our library and tells what was acknowledged, until it is killed.

    python log_writer.py FOLDER ROUND
    -> one line an acknowledgement:  acknowledged('t', 0, [record...], None)    as a Python tuple, name first

`write_round` is the same for who calls it within the test.
"""

from __future__ import annotations

import ast
import itertools
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import odradek
from odradek.errors import OutOfOrderSequenceNumberError
from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from peers.batches import transactional

Tell = Callable[..., None]
"""Called as `tell(name, *arguments)`: a method of `Ledger` and what it is given."""

SMALL_SEGMENTS = {"internal.segment.bytes": "16384", "index.interval.bytes": "512"}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "codecs": (len(Codec), {}),
    "compacted": (1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", **SMALL_SEGMENTS}),
    "headless": (1, dict(SMALL_SEGMENTS)),
    "noise": (2, dict(SMALL_SEGMENTS)),
    "preallocated": (1, {"preallocate": "true", **SMALL_SEGMENTS}),
    "rewritten": (1, {"compression.type": "zstd", **SMALL_SEGMENTS}),
    "sequences": (1, dict(SMALL_SEGMENTS)),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime", **SMALL_SEGMENTS}),
    "transactions": (1, dict(SMALL_SEGMENTS)),
}
SEQUENCES_PRODUCER_ID = 700_000
TRANSACTIONS_PRODUCER_ID = 800_000
"""Above those that Kafka gives away, from 0 on."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def some_records(source: random.Random, count: int, *, keys: int = 10, size: int = 100) -> list[Record]:
    """Return records with headers, nulls, empty and incompressible values among them."""
    made = []
    for _ in range(count):
        key = b"key-%d" % source.randrange(keys)
        value = source.choice([None, b"", b"word " * source.randint(1, size // 4), source.randbytes(size)])
        headers = [("h", b"x"), ("null", None), ("é", b"")] if source.random() < 0.2 else []
        made.append(Record(key, value, headers, now_ms() - source.randrange(1000)))
    return made


def with_offsets(records: Sequence[Record], first_offset: int, append_time_ms: int | None = None) -> list[Record]:
    kind = "CreateTime" if append_time_ms is None else "LogAppendTime"
    return [
        Record(
            record.key,
            record.value,
            record.headers,
            record.timestamp if append_time_ms is None else append_time_ms,
            first_offset + number,
            kind,
        )
        for number, record in enumerate(records)
    ]


def write_round(logs: WritableLogDirectory, number: int, tell: Tell) -> None:
    """Write to every topic, and tell of it."""
    source = random.Random(number)

    def append(topic: str, records: list[Record], *, durable: bool = False) -> None:
        tell("acknowledged", topic, 0, with_offsets(records, logs[topic, 0].append(records, durable=durable)))

    for codec in Codec:
        records = some_records(source, 50)
        result = logs["codecs", codec].append_batches(build_batch(records, codec=codec), durable=number % 2 == 0)
        tell("acknowledged", "codecs", int(codec), with_offsets(records, result.first_offset))
    records = some_records(source, 100)
    result = logs["stamped", 0].append_batches(build_batch(records, codec=Codec.LZ4))
    tell("acknowledged", "stamped", 0, with_offsets(records, result.first_offset, result.append_time_ms))
    for _ in range(20):
        append("rewritten", some_records(source, 40))
        append("compacted", some_records(source, 30), durable=True)
        append("headless", some_records(source, 20))
        append("preallocated", some_records(source, 10))
    if number % 2 == 0:
        log = logs["headless", 0]
        tell("started", "headless", 0, log.delete_records(log.log_end_offset - 50))
    _write_sequences(logs, source, tell)
    _write_transactions(logs, source, number, tell)
    logs.maintain()


def sequence_batch(records: list[Record], sequence: int) -> bytes:
    """Return a batch of the producer that both sides go on with."""
    return build_batch(records, producer_id=SEQUENCES_PRODUCER_ID, producer_epoch=0, base_sequence=sequence)


def _write_sequences(logs: WritableLogDirectory, source: random.Random, tell: Tell) -> None:
    log = logs["sequences", 0]
    for _ in range(10):
        # There is nothing else in it, so its sequences are the offsets.
        sequence = log.log_end_offset
        records = some_records(source, source.randint(1, 9))
        result = log.append_batches(sequence_batch(records, sequence))
        assert (result.first_offset, result.is_duplicate) == (sequence, False)
        tell("acknowledged", "sequences", 0, with_offsets(records, sequence))
        again = log.append_batches(sequence_batch(records, sequence))
        assert (again.first_offset, again.is_duplicate) == (sequence, True)
        try:
            log.append_batches(sequence_batch(records, log.log_end_offset + 1))
        except OutOfOrderSequenceNumberError:
            continue
        raise AssertionError("a gap in the sequence was taken")


def _write_transactions(logs: WritableLogDirectory, source: random.Random, number: int, tell: Tell) -> None:
    log = logs["transactions", 0]
    sequences: dict[int, int] = {}

    def write(name: str, producer_id: int) -> None:
        records = some_records(source, 12)
        sequence = sequences.get(producer_id, 0)
        sequences[producer_id] = sequence + len(records)
        result = log.append_batches(transactional(records, producer_id, sequence))
        tell("acknowledged", "transactions", 0, with_offsets(records, result.first_offset), name)

    def end(name: str, producer_id: int, *, commit: bool) -> None:
        log.end_transaction(producer_id, 0, commit=commit, durable=True)
        tell("ended", name, commit)

    first = TRANSACTIONS_PRODUCER_ID + 10 * number
    before = TRANSACTIONS_PRODUCER_ID + 10 * (number - 1) + 9
    for part in range(8):
        name, producer_id = f"ours-{number}-{part}", first + part
        write(name, producer_id)
        if part == 3 and any(state.producer_id == before for state in open_producers(log)):
            end(open_transaction(number - 1), before, commit=number % 2 == 0)
        if part == 5:
            write(open_transaction(number), first + 9)
        write(name, producer_id)
        end(name, producer_id, commit=part % 3 != 1)


def open_producers(log: Any) -> list[Any]:
    """Return the producers that are within a transaction."""
    return [state for state in log.producers.producers.values() if state.current_transaction_first_offset is not None]


def open_transaction(number: int) -> str:
    """Return what the transaction is called that a round leaves undecided."""
    return f"ours-{number}-open"


def write_noise(logs: WritableLogDirectory, number: int, tell: Tell) -> None:
    """Append to two partitions, one of them durably, for ever."""
    for count in itertools.count():
        partition = count % 2
        value = b"noise-%d-%d " % (number, count) + b"." * (count % 500)
        records = [Record(b"noise", value, (), now_ms())]
        first_offset = logs["noise", partition].append(records, durable=partition == 1)
        tell("acknowledged", "noise", partition, with_offsets(records, first_offset))


def show(name: str, *arguments: Any) -> None:
    """Print what was acknowledged."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [
                (one.key, one.value, tuple(one.headers), one.timestamp, one.offset, one.timestamp_type) for one in value
            ]
        return value

    # In one write, so that a kill leaves no half of a line among the whole ones.
    sys.stdout.write(repr((name, *map(plain, arguments))) + "\n")
    sys.stdout.flush()


def shown(lines: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Read what a killed program printed; a last line that is cut is left out."""
    for line in lines:
        if not line.endswith("\n"):
            continue
        name, *arguments = ast.literal_eval(line)
        yield (
            name,
            *(
                [Record(*fields) for fields in argument] if isinstance(argument, list) else argument
                for argument in arguments
            ),
        )


def main(folder: Path, number: int) -> None:
    with odradek.open(folder) as logs:
        write_round(logs, number, show)
        write_noise(logs, number, show)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
