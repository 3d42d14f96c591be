"""Measures decoding to Arrow and encoding from it, beside memcpy, the checksum, the codec, and Python's Kafka clients.

    python benchmarks/records.py [--megabytes 256] [--quick]

One run, one core. The segment is made here, in memory that the kernel calls a file (so the page cache is warm), and
mapped as the library maps it. `memcpy` copies the same bytes into fresh memory; `crc` verifies the checksums of the
same batches and does nothing else; `codec` decompresses them and does nothing else. GB/s count the bytes of the
segment before compression; a ratio is a throughput divided by the yardstick's in the same run. The best of several
rounds counts: what else the machine does can only slow a round down.
"""

from __future__ import annotations

import argparse
import gc
import logging
import mmap
import random
import string
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from odradek.columnar.decode import decode_slices
from odradek.columnar.encode import encode_batches
from odradek.columnar.schema import select
from odradek.records import Record
from odradek.records.builder import BatchOptions, build_batch
from odradek.records.compression import Codec, Decompressor, compress
from odradek.records.header import V2_HEADER_BYTES
from odradek.records.kernels.batches import walk_batches
from odradek.records.scan import scan_batches

SHARED_MEMORY = Path("/dev/shm")
BASE_TIMESTAMP = 1_700_000_000_000
ENCODE_BYTES = 64 << 20
TEMPLATES = 64
"""Different batches of a segment; they take turns, at offsets of their own."""


@dataclass
class Segment:
    """A segment in a mapped file."""

    path: Path
    data: mmap.mmap
    position: int
    end_position: int
    records_count: int
    uncompressed_bytes: int


def text(size: int, source: random.Random, words: list[bytes]) -> bytes:
    """Return text-like bytes with some that do not repeat."""
    value = bytearray()
    while len(value) < size:
        value += b"%s %s %08x " % (source.choice(words), source.choice(words), source.getrandbits(32))
    return bytes(value[:size])


def batches(value_bytes: int, batch_records: int, codec: int) -> list[tuple[bytes, int]]:
    """Return the batches that a segment is made of, each with its size when it is not compressed."""
    source = random.Random(value_bytes)
    words = ["".join(source.choices(string.ascii_lowercase, k=source.randint(2, 9))).encode() for _ in range(2000)]
    made = []
    for _ in range(TEMPLATES):
        records = [
            Record(b"key-%04d" % source.randrange(10_000), text(value_bytes, source, words), (), BASE_TIMESTAMP + index)
            for index in range(batch_records)
        ]
        plain = build_batch(records)
        made.append((plain if codec == Codec.NONE else build_batch(records, codec=codec), len(plain)))
    return made


def make_segment(path: Path, value_bytes: int, batch_records: int, codec: int, size_bytes: int) -> Segment:
    """Write a segment whose records take `size_bytes` before they are compressed."""
    templates = batches(value_bytes, batch_records, codec)
    count = uncompressed = offset = 0
    with path.open("wb+") as file:
        while uncompressed < size_bytes:
            batch, plain_bytes = templates[count % TEMPLATES]
            # The base offset lies outside of what the checksum covers.
            file.write(offset.to_bytes(8, "big") + batch[8:])
            offset += batch_records
            uncompressed += plain_bytes
            count += 1
        file.flush()
        end = file.tell()
        mapped = mmap.mmap(file.fileno(), end, prot=mmap.PROT_READ)
    return Segment(path, mapped, 0, end, offset, uncompressed)


def best(rounds: int, function: Callable[[], object]) -> float:
    """Return the shortest time of several rounds, in seconds."""
    times = []
    for _ in range(rounds):
        gc.collect()
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def decode(segment: Segment, columns: list[str] | None, *, views: bool = False) -> None:
    """Decode a segment to Arrow and let go of each record batch."""
    rows = sum(
        batch.num_rows for batch in decode_slices([segment], select(columns, views=views), topic="bench", partition=0)
    )
    if rows != segment.records_count:
        raise RuntimeError(f"decoded {rows} records of {segment.records_count}")


def checksums(segment: Segment) -> None:
    """Walk over the batches and verify their checksums."""
    position = 0
    while position < segment.end_position:
        position = walk_batches(segment.data, position, segment.end_position, 4096, True).stop_position


def codec_alone(segment: Segment) -> Callable[[], None]:
    """Return a function that decompresses every batch of a segment."""
    decompressor = Decompressor()
    view = memoryview(segment.data)
    parts = [
        (header.codec, view[header.position + V2_HEADER_BYTES : header.end_position])
        for header in scan_batches(segment.data)
    ]

    def run() -> None:
        for codec, payload in parts:
            decompressor.decompress(codec, payload)

    return run


def clients(segment: Segment, size_bytes: int) -> dict[str, float]:
    """Return the records per second at which Python's clients decode the head of a segment."""
    end = 0
    records = 0
    for header in scan_batches(segment.data):
        if header.end_position > size_bytes and end:
            break
        end, records = header.end_position, header.next_offset
    data = segment.data[:end]
    found = {}
    for name, module in (("kafka-python", "kafka.record"), ("aiokafka", "aiokafka.record.memory_records")):
        try:
            memory_records = __import__(module, fromlist=["MemoryRecords"]).MemoryRecords
        except ImportError:
            continue

        def run(memory_records: type = memory_records) -> None:
            reader = memory_records(data)
            count = 0
            while reader.has_next():
                batch = reader.next_batch()
                batch.validate_crc()
                for record in batch:
                    _ = record.offset, record.timestamp, record.key, record.value, record.headers
                    count += 1
            if count != records:
                raise RuntimeError(f"decoded {count} records of {records}")

        try:
            found[name] = records / best(2, run)
        except Exception as error:
            # Such as a codec that it needs one more package for.
            print(f"{name} cannot read this segment: {error}", file=sys.stderr)
    return found


def encode(batches: list[pa.RecordBatch], batch_records: int, codec: Codec) -> None:
    """Encode Arrow record batches and let go of what comes out."""
    options = BatchOptions(codec=codec)
    for batch in batches:
        for _ in encode_batches(batch, options, max_batch_records=batch_records):
            pass


def compression_alone(segment: Segment, codec: Codec, size_bytes: int) -> tuple[Callable[[], None], int]:
    """Return a function that compresses the records of every batch at the head of a segment, and their bytes."""
    decompressor = Decompressor()
    view = memoryview(segment.data)
    parts: list[bytes] = []
    total = 0
    for header in scan_batches(segment.data):
        payload = view[header.position + V2_HEADER_BYTES : header.end_position]
        parts.append(bytes(decompressor.decompress(header.codec, payload)))
        total += len(parts[-1]) + V2_HEADER_BYTES
        if total >= size_bytes:
            break

    def run() -> None:
        for part in parts:
            compress(codec, part)

    return run, total


def builders(records: list[tuple[int, bytes, bytes]], batch_records: int, codec: Codec) -> dict[str, float]:
    """Return the records per second at which Python's clients build batches."""
    found = {}
    for name, module in (
        ("kafka-python", "kafka.record.default_records"),
        ("aiokafka", "aiokafka.record.default_records"),
    ):
        try:
            builder = __import__(module, fromlist=["DefaultRecordBatchBuilder"]).DefaultRecordBatchBuilder
        except ImportError:
            continue

        def run(builder: type = builder) -> None:
            for start in range(0, len(records), batch_records):
                batch = builder(2, int(codec), 0, -1, -1, -1, 1 << 30)
                for offset, (timestamp, key, value) in enumerate(records[start : start + batch_records]):
                    batch.append(offset, timestamp, key, value, [])
                batch.build()

        try:
            found[name] = len(records) / best(2, run)
        except Exception as error:
            # Such as a codec that it needs one more package for.
            print(f"{name} cannot build this: {error}", file=sys.stderr)
    return found


def report_encoding(segment: Segment, batch_records: int, codec: Codec, rounds: int) -> str:
    """Measure encoding the records of a segment again and return its cell."""
    columns = ["timestamp", "key", "value"]
    batches: list[pa.RecordBatch] = []
    rows = 0
    for batch in decode_slices([segment], select(columns), topic="bench", partition=0):
        batches.append(batch)
        rows += batch.num_rows
        if rows * segment.uncompressed_bytes // segment.records_count >= ENCODE_BYTES:
            break
    size = rows * segment.uncompressed_bytes // segment.records_count
    seconds = best(rounds, lambda: encode(batches, batch_records, codec))
    cell = f"{size / seconds / 1e9:>6.2f} GB/s {rows / seconds / 1e6:>7.2f} M/s"
    if codec != Codec.NONE:
        alone, alone_bytes = compression_alone(segment, codec, size)
        cell += f", {(size / seconds) / (alone_bytes / best(rounds, alone)):.2f} of the codec alone"
    head = batches[0].slice(0, 4000).to_pylist()
    records = [(int(row["timestamp"].timestamp() * 1000), row["key"], row["value"]) for row in head]
    peers = builders(records, batch_records, codec)
    if peers:
        name, speed = max(peers.items(), key=lambda item: item[1])
        cell += f", {rows / seconds / speed:.0f} x {name}"
    return cell


def report(value_bytes: int, batch_records: int, codec: Codec, megabytes: int, rounds: int) -> None:
    """Measure one kind of segment and print its row."""
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as folder:
        segment = make_segment(Path(folder) / "00.log", value_bytes, batch_records, codec, megabytes << 20)
        size = segment.uncompressed_bytes
        columns = ["offset", "timestamp", "key", "value"]
        copied = best(rounds, lambda: decode(segment, columns))
        viewed = best(rounds, lambda: decode(segment, columns, views=True))
        if codec == Codec.NONE:
            yardsticks = {
                "memcpy": best(rounds, lambda: bytes(memoryview(segment.data))),
                "crc": best(rounds, lambda: checksums(segment)),
            }
        else:
            yardsticks = {"codec": best(rounds, codec_alone(segment))}
        peers = clients(segment, 2 << 20)
        cells = [
            f"{value_bytes:>5} B x {batch_records:<5}",
            f"{codec.name.lower():<6}",
            f"{size / copied / 1e9:>6.2f} GB/s {segment.records_count / copied / 1e6:>7.2f} M/s",
            f"{size / viewed / 1e9:>6.2f} GB/s {segment.records_count / viewed / 1e6:>7.2f} M/s",
        ]
        for name, seconds in yardsticks.items():
            cells.append(
                f"{name} {size / seconds / 1e9:.2f} GB/s: {seconds / copied:.2f}, views {seconds / viewed:.2f}"
            )
        if peers:
            name, speed = max(peers.items(), key=lambda item: item[1])
            cells.append(f"{segment.records_count / copied / speed:.0f} x {name} ({speed / 1e6:.2f} M/s)")
        cells.append(report_encoding(segment, batch_records, codec, rounds))
        print(" | ".join(cells), flush=True)
        segment.data.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=256, help="size of a segment before compression")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="only values of 200 bytes without compression")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    print("value x batch | codec | decode, copied | decode, views | throughput / yardstick | beside clients | encode")
    for codec in [Codec.NONE] if arguments.quick else list(Codec):
        for value_bytes in [200] if arguments.quick else [20, 200, 2000]:
            for batch_records in [70] if arguments.quick else [1, 10, 1000]:
                compressed = codec != Codec.NONE
                megabytes = min(arguments.megabytes, 8) if compressed else arguments.megabytes
                report(value_bytes, batch_records, codec, megabytes, 3 if compressed else arguments.rounds)


if __name__ == "__main__":
    main()
