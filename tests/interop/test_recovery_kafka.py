"""The same crashed folders, recovered by Apache Kafka and by us: the files that come out are to be the same."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import odradek
from odradek.errors import MissingRecordsError
from odradek.records import BatchHeader, Record, scan_batches
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.formats.checkpoints import read_offset_checkpoint
from odradek.storage.log.log import Log
from odradek.storage.log.recovery_report import RecoveryKind
from odradek.storage.names import TopicPartition
from peers.kafka import KafkaBroker
from peers.kafka_fixture import KafkaFixture
from peers.kafka_tools import KafkaTools

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
# Kafka writes to them while it starts.
INTERNAL = ("__cluster_metadata", "__consumer_offsets", "__transaction_state")

Damage = Callable[[Path, random.Random], None]


def last_log(folder: Path) -> Path:
    return max(path for path in folder.glob("*.log") if path.stat().st_size)


def cut(folder: Path, source: random.Random) -> None:
    """The last segment ends within a batch."""
    path = last_log(folder)
    with path.open("r+b") as file:
        file.truncate(source.randrange(path.stat().st_size))


def add_zeros(folder: Path, source: random.Random) -> None:
    """The file had grown, and its bytes had not reached the disk."""
    with last_log(folder).open("ab") as file:
        file.write(bytes(source.randrange(1, 5000)))


def add_junk(folder: Path, source: random.Random) -> None:
    with last_log(folder).open("ab") as file:
        file.write(source.randbytes(source.randrange(1, 200)))


def flip(folder: Path, source: random.Random) -> None:
    """A bit of a batch of any segment; what follows is gone."""
    path = source.choice([path for path in folder.glob("*.log") if path.stat().st_size])
    data = bytearray(path.read_bytes())
    data[source.randrange(17, len(data))] ^= 1 << source.randrange(8)
    path.write_bytes(data)


def drop_indexes(folder: Path, source: random.Random) -> None:
    for path in folder.glob("*index"):
        if source.random() < 0.5:
            path.unlink()


def drop_snapshots(folder: Path, source: random.Random) -> None:
    for path in folder.glob("*.snapshot"):
        if source.random() < 0.7:
            path.unlink()


def break_snapshot(folder: Path, source: random.Random) -> None:
    paths = sorted(folder.glob("*.snapshot"))
    if paths:
        data = bytearray(paths[-1].read_bytes())
        data[source.randrange(2, len(data))] ^= 0xFF
        paths[-1].write_bytes(data)


def overflow(folder: Path, source: random.Random) -> None:
    """Offsets of the last segment are out of its indexes' reach, as old brokers' cleaner left them."""
    path = last_log(folder)
    data = bytearray(path.read_bytes())
    headers = list(scan_batches(bytes(data)))
    # A batch's base offset is not under its checksum.
    for header in headers[source.randrange(1, len(headers)) :] if len(headers) > 1 else []:
        offset = int.from_bytes(data[header.position : header.position + 8], "big") + (1 << 31)
        data[header.position : header.position + 8] = offset.to_bytes(8, "big")
    path.write_bytes(data)


def leave_alone(folder: Path, source: random.Random) -> None:
    """As the crash left it."""


DAMAGES: list[Damage] = [
    *(leave_alone, cut, add_zeros, add_junk, flip, drop_indexes, drop_snapshots, break_snapshot, overflow)
]


def files(folder: Path) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in SUFFIXES}
    # Kafka drops the snapshot where the log begins; we keep it, for the first segment may be recovered once more.
    found.pop(f"{min(folder.glob('*.log')).stem}.snapshot", None)
    return found


def batches_of(log: Log) -> list[BatchHeader]:
    return [header for segment in log.segments for header in segment.scan()]


def records_of(log: Log) -> list[Record]:
    """Read a log, also where offsets are out of reach of those before them and Kafka split the segment."""
    records: list[Record] = []
    start_offset = log.log_start_offset
    while True:
        try:
            records.extend(log.read(start_offset))
            return records
        except MissingRecordsError as error:
            start_offset = error.end_offset


@pytest.mark.parametrize("seed", range(3))
def test_kafka_and_we_recover_the_same(
    kafka_tools: KafkaTools, fixture_4_3_1: KafkaFixture, tmp_path: Path, seed: int
) -> None:
    kafkas = Path(shutil.copytree(fixture_4_3_1.log_dir_unclean, tmp_path / "kafkas"))
    source = random.Random(seed)
    done = {}
    for number, folder in enumerate(sorted(kafkas.iterdir())):
        if folder.is_dir() and not folder.name.startswith(INTERNAL):
            damage = DAMAGES[(number + seed) % len(DAMAGES)]
            if any(path.stat().st_size for path in folder.glob("*.log")):
                damage(folder, source)
                done[folder.name] = damage.__name__
    if seed:
        # Nothing was flushed: all is recovered, not the last segments alone.
        (kafkas / "recovery-point-offset-checkpoint").write_text("0\n0\n", encoding="utf-8")
    ours = Path(shutil.copytree(kafkas, tmp_path / "ours"))

    with KafkaBroker(kafka_tools, kafkas):
        pass
    with odradek.open(ours) as logs:
        report = logs.report
    assert report
    assert any(action.kind is RecoveryKind.SPLIT for action in report.actions)
    different = []
    for name, damage_name in done.items():
        written, expected = files(ours / name), files(kafkas / name)
        different += [
            f"{damage_name}: {name}/{file} {len(written.get(file, b'')) if file in written else None} bytes, not "
            f"{len(expected[file]) if file in expected else None}"
            for file in sorted({*written, *expected})
            if written.get(file) != expected.get(file)
        ]
    assert different == []
    points = read_offset_checkpoint(kafkas / "recovery-point-offset-checkpoint")
    with LogDirectory(ours) as logs, LogDirectory(kafkas) as theirs:
        for name in done:
            place = TopicPartition(name.rpartition("-")[0], int(name.rpartition("-")[2]))
            contents = [[*batches_of(log), *records_of(log)] for log in (logs[place], theirs[place])]
            assert contents[0] == contents[1]
            assert points[place] == logs[place].log_end_offset
