"""Small folders that hold everything: what they are made of, and what is in them.

plain          several segments
headless       its head was deleted, up to the middle of a segment
keyed          compacted
transactions   committed, aborted over several segments, and one that is open
v0, v1         messages and wrappers of old formats, as Apache Kafka 2.8.2 wrote them

`bootstrap` has its topics in `bootstrap.checkpoint`, `kraft` in a metadata log that Apache Kafka 4.3.1 began. `clean`
was closed in order; `crashed` is what was on the disk before that, with a torn batch at the end of `plain`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import odradek
from odradek.records import Record, read_records, scan_batches
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import build_batch
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.names import CLUSTER_METADATA_TOPIC, TopicPartition
from peers.batches import transactional
from peers.kafka_fixture import KafkaFixture

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
SMALL = {"internal.segment.bytes": "700", "index.interval.bytes": "1"}
KEYED = SMALL | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
BROKER = {"log.index.size.max.bytes": "120", "log.segment.delete.delay.ms": "0", "log.retention.ms": "-1"}
"""What is not noted in the metadata, which every bit of is flipped."""
NAMES = ("bootstrap", "kraft")
STATES = ("clean", "crashed")

Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@dataclass
class Truth:
    """What is in one partition.

    Attributes:
        start: The log start offset.
        end: The log end offset.
        stable: The last stable offset.
        rows: All records in its files, also those below the start, but for control records.
        times: The timestamp of each record, control records included.
        hidden: The offsets of aborted records.
        first: The first base offset.
    """

    start: int
    end: int
    stable: int
    rows: list[Row] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    hidden: set[int] = field(default_factory=set)
    first: int = 0


@dataclass
class Folder:
    """A folder, in memory.

    Attributes:
        name: Which one.
        state: `clean` or `crashed`.
        tree: Its files by their path, with their bytes; None for a folder.
        truths: What is in its partitions.
    """

    name: str
    state: str
    tree: dict[str, bytes | None]
    truths: dict[TopicPartition, Truth]

    def write(self, path: Path, changed: dict[str, bytes | None] | None = None) -> None:
        """Write it to the disk.

        Args:
            path: Where.
            changed: Files that have other bytes, or are not there.
        """
        path.mkdir(parents=True)
        for name, data in sorted(self.tree.items()):
            if data is None:
                (path / name).mkdir()
            elif changed is None or name not in changed:
                (path / name).write_bytes(data)
            else:
                other = changed[name]
                if other is not None:
                    (path / name).write_bytes(other)


def row_of(record: Record) -> Row:
    offset = -1 if record.offset is None else record.offset
    timestamp = -1 if record.timestamp is None else record.timestamp
    return offset, timestamp, record.key, record.value, tuple(record.headers)


def make(name: str, path: Path, fixture_4_3_1: KafkaFixture, fixture_2_8_2: KafkaFixture) -> list[Folder]:
    """Make a folder, and return it as it is after a crash and after it was closed."""
    root = path / name
    if name == "kraft":
        root.mkdir(parents=True)
        shutil.copytree(fixture_4_3_1.log_dir / f"{CLUSTER_METADATA_TOPIC}-0", root / f"{CLUSTER_METADATA_TOPIC}-0")
        for file in ("meta.properties", "bootstrap.checkpoint"):
            shutil.copy(fixture_4_3_1.log_dir / file, root)
    clock = _Clock()
    logs = odradek.open(root, clock=clock, config=BROKER)
    for topic in logs.topics():
        logs.delete_topic(topic)
    hidden = _fill(logs, clock, name, fixture_2_8_2)
    logs.flush()
    logs.maintain()
    _append(logs["plain", 0], 13)
    crashed = path / f"{name}-crashed"
    shutil.copytree(root, crashed)
    (crashed / ".lock").unlink()
    truths = _truths(logs, hidden)
    logs.close()
    with max((crashed / "plain-0").glob("*.log")).open("ab") as segment:
        segment.write(build_batch([Record(b"torn", b"torn" * 20, timestamp=START_MS)], base_offset=26)[:90])
    return [Folder(name, state, tree_of(folder), truths) for state, folder in (("clean", root), ("crashed", crashed))]


class _Clock:
    def __init__(self) -> None:
        self.now_ms = START_MS

    def __call__(self) -> int:
        return self.now_ms


def tree_of(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in sorted(root.rglob("*"))
    }


def _records(number: int, count: int = 2, keys: int = 5) -> list[Record]:
    return [
        Record(
            b"key-%d" % ((number + index) % keys),
            b"value %d" % number * (1 + number % 3),
            [("h", b"%d" % index)],
            # Times go back here and there.
            START_MS + number * 1000 + index * 100 - (2500 if number % 4 == 3 else 0),
        )
        for index in range(count)
    ]


def _append(log: WritableLog, number: int) -> None:
    log.append(_records(number))


def _fill(
    logs: WritableLogDirectory, clock: _Clock, name: str, old: KafkaFixture
) -> dict[str, tuple[set[int], int | None]]:
    """Make the topics; return of each that has some the aborted offsets, and where the open transaction begins."""
    topics: dict[str, Callable[[WritableLog], tuple[set[int], int | None] | None]] = {
        "plain": _fill_plain,
        "headless": _fill_headless,
        "keyed": _fill_keyed,
        "transactions": _fill_transactions,
    }
    if name == "bootstrap":
        topics["v0"] = lambda log: _fill_old(log, old, "v0-none-0", 10)
        topics["v1"] = lambda log: _fill_old(log, old, "v1-lz4-0", 3)
    found = {}
    for number, (topic, fill) in enumerate(topics.items()):
        config = KEYED if topic == "keyed" else SMALL
        if topic == "v1":
            config = config | {"internal.segment.bytes": "6000"}
        logs.create_topic(topic, config=config, topic_id=UUID(int=number + 1000))
        found[topic] = fill(logs[topic, 0]) or (set(), None)
    clock.now_ms += 24 * HOUR_MS
    logs.maintain()
    return found


def _fill_plain(log: WritableLog) -> None:
    for number in range(12):
        _append(log, number)


def _fill_headless(log: WritableLog) -> None:
    for number in range(14):
        _append(log, number)
    log.delete_records(13)


def _fill_keyed(log: WritableLog) -> None:
    for number in range(22):
        _append(log, number)


def _fill_transactions(log: WritableLog) -> tuple[set[int], int | None]:
    sequences: dict[int, int] = {}
    opened: dict[int, list[int]] = {}
    hidden: set[int] = set()

    def send(producer_id: int, number: int) -> None:
        result = log.append_batches(transactional(_records(number), producer_id, sequences.get(producer_id, 0)))
        sequences[producer_id] = sequences.get(producer_id, 0) + 2
        opened.setdefault(producer_id, []).extend(range(result.first_offset, result.last_offset + 1))

    def end(producer_id: int, *, commit: bool) -> None:
        log.end_transaction(producer_id, 0, commit=commit)
        offsets = opened.pop(producer_id)
        if not commit:
            hidden.update(offsets)

    send(1, 0)
    send(2, 1)
    end(1, commit=False)
    send(1, 2)
    _append(log, 3)
    send(2, 4)
    end(2, commit=True)
    send(3, 5)
    end(1, commit=False)
    send(1, 6)
    send(2, 7)
    end(2, commit=False)
    end(1, commit=True)
    send(3, 8)
    end(3, commit=False)
    send(2, 9)
    _append(log, 10)
    send(3, 11)
    end(3, commit=False)
    return hidden, min(opened[2])


def _fill_old(log: WritableLog, fixture: KafkaFixture, partition: str, count: int) -> None:
    path = min((fixture.log_dir / partition).glob("*.log"))
    data = path.read_bytes()
    for number, header in enumerate(scan_batches(data, path=path)):
        if number == count:
            break
        log.append_batches(data[header.position : header.end_position], origin=AppendOrigin.REPLICATION)


def _truths(logs: WritableLogDirectory, hidden: dict[str, tuple[set[int], int | None]]) -> dict[TopicPartition, Truth]:
    truths = {}
    for log in logs:
        aborted, unstable = hidden[log.topic_partition.topic]
        end = log.log_end_offset
        truth = Truth(log.log_start_offset, end, end if unstable is None else unstable, hidden=aborted)
        paths = sorted(log.path.glob("*.log"))
        truth.first = int(paths[0].stem)
        for path in paths:
            data = path.read_bytes()
            for header in scan_batches(data, path=path):
                for record in read_records(data, header):
                    row = row_of(record)
                    truth.times.append(row[:2])
                    if not header.is_control:
                        truth.rows.append(row)
        truths[log.topic_partition] = truth
    return truths
