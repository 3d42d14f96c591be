"""Measures the log cleaner: one round over a log that is all dirty, and one over a log that is mostly clean.

    python benchmarks/compaction.py [--megabytes 256] [--directory DIR] [--kafka]

Prints one Markdown table: MB/s of log cleaned, of the part that builds the offset map and of the part that copies,
beside a memcpy of the same bytes and a plain write of them to a file, all in one run. Each key occurs about eight
times, as in a table of the latest states of users. With `--kafka` Apache Kafka cleans the same segments, with an offset
map of the same size, three times in a row; the last column is the best speed that its cleaner reports, because its code
is not yet compiled the first time. It needs java and mvn, as the interop tests do.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.records.kernels.objects import Record
from odradek.storage.cleaning.cleanable import CleaningRange
from odradek.storage.cleaning.cleaner import Cleaner
from odradek.storage.formats.transaction_index import AbortedTransaction
from odradek.storage.log.cleaning_turn import CleaningTurn
from odradek.storage.names import TopicPartition, segment_file_name
from odradek.storage.producers.producer_state_manager import LastRecord
from odradek.storage.segment.open_segments import OpenSegments
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.segment_swap import SegmentSwap
from odradek.storage.topic_config import TopicConfig

SEGMENT_BYTES = 64 << 20
KAFKA_ROUNDS = 3


class Folder:
    """A partition's folder to which nothing is appended."""

    def __init__(self, path: Path, end_offset: int) -> None:
        self.topic_partition = TopicPartition("benchmark", 0)
        self.path = path
        self.config = TopicConfig(cleanup_policy=("compact",))
        self.log_start_offset = 0
        self.log_end_offset = self.last_stable_offset = end_offset
        self.cleaning = CleaningTurn()
        self._opened = OpenSegments()

    @property
    def segments(self) -> Sequence[Segment]:
        """All segments; the last one is active and empty."""
        return [Segment(self.path, int(path.stem), self._opened) for path in sorted(self.path.glob("*.log"))]

    def last_records(self) -> Mapping[int, LastRecord]:
        """No producers."""
        return {}

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """No transactions."""
        return []

    def replace_segments(self, new_base_offset: int, old: Sequence[Segment]) -> None:
        """Swap a cleaned segment in and unlink what it replaces."""
        swap = SegmentSwap(self.path, [new_base_offset], [segment.base_offset for segment in old])
        swap.run()
        for path in swap.deleted:
            path.unlink()


def write_log(path: Path, megabytes: int, value_bytes: int, batch_records: int, codec: int) -> tuple[Folder, int]:
    """Write segments, each of batches from one template, so that writing does not take longer than cleaning."""
    source = random.Random(7)
    keys = max(1, megabytes * (1 << 20) // (value_bytes + 30) // 8)
    offset = written = 0
    while written < megabytes << 20:
        base, blocks, size = offset, [], 0
        while size < min(SEGMENT_BYTES, megabytes << 20):
            records = [
                Record(b"user-%011d" % source.randrange(keys), source.randbytes(value_bytes), (), 1_700_000_000_000 + n)
                for n in range(offset, offset + batch_records)
            ]
            block = build_batch(records, base_offset=offset, codec=codec)
            blocks.append(block)
            size += len(block)
            offset += batch_records
        (path / segment_file_name(base, ".log")).write_bytes(b"".join(blocks))
        written += size
    (path / segment_file_name(offset, ".log")).touch()
    return Folder(path, offset), written


def yardsticks(path: Path) -> tuple[float, float]:
    """Return the seconds of a memcpy of a folder's segments, and of a plain write of them to a file."""
    data = b"".join(segment.read_bytes() for segment in sorted(path.glob("*.log")))
    started = time.perf_counter()
    bytearray(data)
    copied = time.perf_counter()
    (path.parent / "plain").write_bytes(data)
    stored = time.perf_counter()
    (path.parent / "plain").unlink()
    return copied - started, stored - copied


def kafka_speed(tools: Any, log: Folder, log_dir: Path) -> float:
    """Return the MB/s that Apache Kafka's cleaner reports for the same segments."""
    from peers.kafka import KafkaBroker
    from peers.process import wait_for

    config = {
        "log.cleaner.backoff.ms": "200",
        "log.cleaner.dedupe.buffer.size": "134217728",
        "log.initial.task.delay.ms": "0",
    }
    broker = KafkaBroker(tools, log_dir, config, heap="1g", jvm_options=())
    topics = [f"benchmark{number}" for number in range(KAFKA_ROUNDS)]
    with broker:
        flags = ("--config", "cleanup.policy=compact", "--config", "min.cleanable.dirty.ratio=0.01")
        for topic in topics:
            tools.topics(broker.bootstrap_servers, "--create", "--topic", topic, *flags).check()
    for topic in topics:
        folder = log_dir / f"{topic}-0"
        for path in folder.iterdir():
            if path.name != "partition.metadata":
                path.unlink()
        for segment in log.segments:
            shutil.copyfile(segment.path, folder / segment.path.name)
    # Without the marker Kafka scans the segments and makes their indexes.
    (log_dir / ".kafka_cleanshutdown").unlink()
    report = re.compile(
        r"cleaned log (benchmark\d)-0 .*?log processed in [\d.,]+ seconds \(([\d.,]+) MB/sec\)", re.DOTALL
    )

    def speeds() -> list[float]:
        found = dict(report.findall(broker.output.read_text(errors="replace")))
        return [float(speed.replace(",", "")) for speed in found.values()] if len(found) == KAFKA_ROUNDS else []

    with broker:
        return max(wait_for(speeds, 600, "Kafka's cleaner")) * (1 << 20) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--directory", type=Path, default=None)
    parser.add_argument("--kafka", action="store_true")
    arguments = parser.parse_args()
    tools = None
    if arguments.kafka:
        sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
        from peers.kafka_tools import KafkaTools

        tools = KafkaTools()
    columns = ["values, records a batch, codec", "log MB", "kept", "cleaned MB/s", "map MB/s", "copy MB/s"]
    print("|", " | ".join([*columns, "memcpy", "write", "Kafka"]), "|")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for value_bytes, batch_records, codec in ((200, 100, 0), (20, 100, 0), (200, 1, 0), (2000, 10, 0), (200, 100, 4)):
        with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
            path = Path(folder) / "benchmark-0"
            path.mkdir()
            log, written = write_log(path, arguments.megabytes, value_bytes, batch_records, codec)
            copied, stored = yardsticks(path)
            kafka = f"{kafka_speed(tools, log, Path(folder) / 'kafka'):.0f}" if tools else "-"
            stats = Cleaner().clean(log, CleaningRange(0, log.log_end_offset), int(time.time() * 1000))
            megabytes = written / 1e6
            print(
                f"| {value_bytes}, {batch_records}, {Codec(codec).name.lower()} | {megabytes:.0f} "
                f"| {stats.records_kept / stats.records_read:.0%} | {megabytes / stats.seconds:.0f} "
                f"| {megabytes / stats.index_seconds:.0f} | {megabytes / (stats.seconds - stats.index_seconds):.0f} "
                f"| {megabytes / copied:.0f} | {megabytes / stored:.0f} | {kafka} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
