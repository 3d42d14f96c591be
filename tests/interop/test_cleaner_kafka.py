"""The same segments, cleaned by Apache Kafka and by us: the files that come out are to be the same."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.records import read_records, scan_batches
from odradek.records.builder import build_batch, build_control_batch
from odradek.records.compression import Codec
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.records.header import BatchHeader
from odradek.records.kernels.objects import Record
from odradek.storage.cleaning.cleanable import CleaningRange
from odradek.storage.cleaning.cleaner import Cleaner
from odradek.storage.formats.checkpoints import read_offset_checkpoint
from odradek.storage.names import TopicPartition
from peers.folder_log import FolderLog
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.ledger import require
from peers.process import wait_for

pytestmark = pytest.mark.interop

RETENTION_MS = 86_400_000
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


def random_batches(seed: int, codecs: list[Codec], count: int) -> Iterator[bytes]:
    """Build the batches of a log that several producers wrote, with transactions of every outcome."""
    source = random.Random(seed)
    start_ms = time.time_ns() // 1_000_000
    offset = 0
    sequences: dict[int, int] = {}
    undecided: set[int] = set()
    for number in range(count):
        now_ms = start_ms + number
        pid = source.choice([-1, -1, 1, 2, 11, 12, 13])
        if pid in undecided and source.random() < 0.4:
            kind = source.choice([ControlRecordType.ABORT, ControlRecordType.COMMIT])
            undecided.discard(pid)
            yield build_control_batch(
                EndTransactionMarker(kind, 0),
                producer_id=pid,
                producer_epoch=0,
                timestamp=now_ms,
                base_offset=offset,
                partition_leader_epoch=0,
            )
            offset += 1
            continue
        records = []
        for _ in range(source.randint(1, 12)):
            value = None if source.random() < 0.15 else source.randbytes(source.randint(0, 120))
            headers = [("h", b"x")] if source.random() < 0.1 else []
            records.append(Record(b"key-%d" % source.randrange(150), value, headers, now_ms - source.randrange(50)))
        transactional = pid > 10
        if transactional:
            undecided.add(pid)
        producer: dict[str, Any] = (
            {"producer_id": pid, "producer_epoch": 0, "base_sequence": sequences.get(pid, 0)} if pid > 0 else {}
        )
        sequences[pid] = sequences.get(pid, 0) + len(records)
        yield build_batch(
            records,
            base_offset=offset,
            codec=source.choice(codecs),
            is_transactional=transactional,
            partition_leader_epoch=0,
            **producer,
        )
        offset += len(records)
    for pid in sorted(undecided):
        marker = EndTransactionMarker(ControlRecordType.COMMIT, 0)
        yield build_control_batch(
            marker,
            producer_id=pid,
            producer_epoch=0,
            timestamp=start_ms + count,
            base_offset=offset,
            partition_leader_epoch=0,
        )
        offset += 1
    last = [Record(b"last", b"one", (), start_ms + count)]
    yield build_batch(last, base_offset=offset, partition_leader_epoch=0)


def write_log(directory: Path, batches: list[bytes]) -> FolderLog:
    """Write the batches as four segments and an active one, which holds the last batch."""
    log = FolderLog(directory)
    quarter = len(batches) // 4
    for first in (0, quarter, 2 * quarter, 3 * quarter):
        last = len(batches) - 1 if first == 3 * quarter else first + quarter
        part = batches[first:last]
        log.write(int.from_bytes(part[0][:8], "big"), *part)
    log.write(int.from_bytes(batches[-1][:8], "big"), batches[-1])
    return log


def fields(header: BatchHeader) -> dict[str, int]:
    """Return what of a header does not depend on the version of a codec."""
    drop = {"position", "size_bytes", "crc"} if header.codec else {"position"}
    return {name: value for name, value in header._asdict().items() if name not in drop}


def records_of(data: bytes) -> list[Record]:
    return [record for header in scan_batches(data) for record in read_records(data, header)]


CODECS = {
    "plain-1": [Codec.NONE],
    "plain-2": [Codec.NONE],
    "mixed-3": list(Codec),
}


def test_kafka_and_we_leave_the_same(kafka_tools: KafkaTools, tmp_path: Path) -> None:
    log_dir = tmp_path / "log-dir"
    config = {"log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "0"}
    logs: dict[str, FolderLog] = {}
    broker = KafkaBroker(kafka_tools, log_dir, config)
    with broker:
        for topic in CODECS:
            kafka_tools.topics(
                broker.bootstrap_servers,
                *("--create", "--topic", topic, "--partitions", "1"),
                *("--config", "cleanup.policy=compact", "--config", "min.cleanable.dirty.ratio=0.01"),
                *("--config", f"delete.retention.ms={RETENTION_MS}"),
            ).check()
    for topic, codecs in CODECS.items():
        batches = list(random_batches(int(topic[-1]), codecs, 1500))
        logs[topic] = write_log(tmp_path / "ours" / f"{topic}-0", batches)
        folder = log_dir / f"{topic}-0"
        for path in folder.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for segment in logs[topic].segments:
            shutil.copy2(segment.path, folder / segment.path.name)
    # Without the marker Kafka scans the segments and makes their indexes.
    (log_dir / ".kafka_cleanshutdown").unlink()

    def all_clean() -> bool:
        found = read_offset_checkpoint(log_dir / "cleaner-offset-checkpoint")
        return all(found.get(TopicPartition(topic, 0)) == log.segments[-1].base_offset for topic, log in logs.items())

    with broker:
        wait_for(all_clean, 120, "every topic to be cleaned")
    for topic, log in logs.items():
        theirs = {path.name: path.read_bytes() for path in (log_dir / f"{topic}-0").iterdir()}
        base = f"{0:020d}"
        horizons = {header.delete_horizon_ms for header in scan_batches(theirs[base + ".log"])} - {None}
        (horizon_ms,) = horizons
        assert horizon_ms is not None
        work = CleaningRange(0, log.segments[-1].base_offset)
        stats = Cleaner().clean(log, work, horizon_ms - RETENTION_MS)
        assert 0 < stats.records_kept < stats.records_read / 10
        ours = {path.name: path.read_bytes() for path in log.path.iterdir()}
        theirs_log, ours_log = theirs[base + ".log"], ours[base + ".log"]
        assert [fields(header) for header in scan_batches(ours_log)] == [
            fields(header) for header in scan_batches(theirs_log)
        ]
        require(records_of(ours_log) == records_of(theirs_log), "the records")
        if CODECS[topic] == [Codec.NONE]:
            for suffix in SUFFIXES:
                assert ours.get(base + suffix) == theirs.get(base + suffix), suffix
        else:
            assert ours.get(base + ".txnindex") == theirs.get(base + ".txnindex")
        assert base + ".txnindex" in ours
