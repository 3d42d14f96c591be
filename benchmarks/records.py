"""Measures decoding to Arrow and encoding from it, beside memcpy, the checksum, the codec, and Python's Kafka clients.

    python benchmarks/records.py [--megabytes 128] [--quick] [--kafka]

Prints Markdown tables of one run on one core. The segment is made here, as a file in memory (so the page cache is
warm), and mapped as the library maps it. GB/s count the bytes of the segment before compression, M/s are millions of
records a second. The best of several rounds counts: other work of the machine can only slow a round down.

* *copied* and *views* are ours, with every checksum verified: into binary columns, and into view columns.
* `memcpy` copies the same bytes into fresh memory, `crc` verifies the checksums of the same batches and does nothing
  else, *codec* decompresses (or compresses) them one after the other into one buffer and does nothing else.
* A ratio is our throughput divided by the yardstick's. For compressed data the second yardstick is codec and checksum
  together, the limit of any reader that verifies checksums.
* "Most that could be" is the limit of any decoder, relative to the fastest of Python's clients on the same bytes in
  memory: the checksum (and the codec), and a copy within the cache of as many bytes as the columns have.

The third table is of damaged bytes that hold no batch: how fast they are searched for the next batch, beside a copy
into fresh memory.

confluent-kafka decodes only what it fetches. With `--kafka`, Apache Kafka 4.3.1 serves such segments (it needs java and
mvn, as the interop tests do), and the last table compares it with aiokafka and Odradek, each with socket and broker.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import logging
import mmap
import random
import string
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import odradek
from odradek.columnar.decode import decode_slices
from odradek.columnar.encode import encode_batches
from odradek.columnar.record_schema import select
from odradek.records import Record
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import BatchOptions, build_batch
from odradek.records.compression import Codec, Decompressor, compress
from odradek.records.header import V2_HEADER_BYTES
from odradek.records.kernels.batches import walk_batches
from odradek.records.resync import find_batch
from odradek.records.scan import scan_batches

SHARED_MEMORY = Path("/dev/shm")
BASE_TIMESTAMP = 1_700_000_000_000
ENCODE_BYTES = 64 << 20
TEMPLATES = 64
TEMPLATE_BYTES = 8 << 20
"""Different batches of a segment, and their size at most; they take turns, at offsets of their own."""
CLIENT_BYTES = 1 << 20
MOVE_BYTES = 1 << 20
COLUMNS = ["offset", "timestamp", "key", "value"]

DECODE_HEAD = (
    "| value x batch | codec | copied GB/s | M/s | views GB/s | M/s | memcpy or codec GB/s | crc GB/s "
    "| copied, views / memcpy or codec | / crc or codec + crc | fastest client M/s | copied, views / client "
    "| most that could be |"
)
ENCODE_HEAD = (
    "| value x batch | codec | encode GB/s | M/s | codec alone GB/s | / codec | fastest client M/s | / client |"
)
DAMAGE_HEAD = "| damage | passed over, GB/s | memcpy GB/s | / memcpy |"
BROKER_HEAD = (
    "| value x batch | codec | confluent-kafka M/s | aiokafka M/s | ours M/s | ours / the fastest "
    "| ours in memory / the fastest |"
)


@dataclass
class Segment:
    """A segment in a mapped file."""

    path: Path
    data: mmap.mmap
    position: int
    end_position: int
    records_count: int
    uncompressed_bytes: int
    origin: int = 0
    next_offset: int | None = None


def text(size: int, source: random.Random, words: list[bytes]) -> bytes:
    """Return text-like bytes with some that do not repeat."""
    value = bytearray()
    while len(value) < size:
        value += b"%s %s %08x " % (source.choice(words), source.choice(words), source.getrandbits(32))
    return bytes(value[:size])


@functools.lru_cache(maxsize=1)
def records_of(value_bytes: int, batch_records: int) -> list[list[Record]]:
    """Return the records of a segment's different batches."""
    source = random.Random(value_bytes)
    words = ["".join(source.choices(string.ascii_lowercase, k=source.randint(2, 9))).encode() for _ in range(2000)]
    count = max(4, min(TEMPLATES, TEMPLATE_BYTES // (value_bytes * batch_records)))
    return [
        [
            Record(b"key-%04d" % source.randrange(10_000), text(value_bytes, source, words), (), BASE_TIMESTAMP + index)
            for index in range(batch_records)
        ]
        for _ in range(count)
    ]


def make_segment(path: Path, value_bytes: int, batch_records: int, codec: int, size_bytes: int) -> Segment:
    """Write a segment whose records take `size_bytes` before they are compressed."""
    templates = [
        (build_batch(records, codec=codec), len(build_batch(records)))
        for records in records_of(value_bytes, batch_records)
    ]
    count = uncompressed = offset = 0
    with path.open("wb+") as file:
        while uncompressed < size_bytes:
            batch, plain_bytes = templates[count % len(templates)]
            # The checksum does not cover the base offset.
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
    """Decode a segment to Arrow and drop each record batch."""
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


def copying(segment: Segment) -> Callable[[], None]:
    """Return a function that copies as many bytes as the columns of a segment have, within the processor's cache."""
    first = next(decode_slices([segment], select(COLUMNS), topic="bench", partition=0))
    pieces = first.nbytes * segment.records_count // first.num_rows // MOVE_BYTES
    source, target = memoryview(bytes(MOVE_BYTES)), memoryview(bytearray(MOVE_BYTES))

    def run() -> None:
        for _ in range(pieces):
            target[:] = source

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
    """Encode Arrow record batches and drop the output."""
    options = BatchOptions(codec=codec)
    for batch in batches:
        for _ in encode_batches(batch, options, max_batch_records=batch_records):
            pass


def compression_alone(segment: Segment, codec: Codec, size_bytes: int) -> tuple[Callable[[], None], int]:
    """Return a function that compresses the records of the first batches of a segment, and their size in bytes."""
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


def fastest(peers: dict[str, float]) -> tuple[str, float]:
    """Return the fastest client and its records per second; no client is no speed."""
    return max(peers.items(), key=lambda item: item[1], default=("-", 0.0))


def times(speed: float, other: float) -> str:
    """Return a ratio of speeds as text."""
    if not other:
        return "-"
    return f"{speed / other:.2f}" if speed < 10 * other else f"{speed / other:.0f}"


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def table(head: str) -> None:
    """Print a table's head."""
    print(f"\n{head}\n" + "|---" * (head.count("|") - 1) + "|", flush=True)


def encoding(segment: Segment, batch_records: int, codec: Codec, rounds: int) -> list[str]:
    """Measure encoding the records of a segment and return its cells."""
    batches: list[pa.RecordBatch] = []
    rows = 0
    for batch in decode_slices([segment], select(COLUMNS[1:]), topic="bench", partition=0):
        batches.append(batch)
        rows += batch.num_rows
        if rows * segment.uncompressed_bytes // segment.records_count >= ENCODE_BYTES:
            break
    size = rows * segment.uncompressed_bytes // segment.records_count
    seconds = best(rounds, lambda: encode(batches, batch_records, codec))
    cells = [f"{size / seconds / 1e9:.2f}", f"{rows / seconds / 1e6:.2f}", "-", "-"]
    if codec != Codec.NONE:
        run, alone_bytes = compression_alone(segment, codec, size)
        alone = alone_bytes / best(rounds, run)
        cells[2:] = [f"{alone / 1e9:.2f}", times(size / seconds, alone)]
    head = batches[0].slice(0, 4000).to_pylist()
    records = [(int(line["timestamp"].timestamp() * 1000), line["key"], line["value"]) for line in head]
    name, speed = fastest(builders(records, batch_records, codec))
    return [*cells, f"{name} {speed / 1e6:.2f}", times(rows / seconds, speed)]


def decoding(segment: Segment, codec: Codec, rounds: int) -> list[str]:
    """Measure decoding a segment and return its cells."""
    size, records = segment.uncompressed_bytes, segment.records_count
    copied = best(rounds, lambda: decode(segment, COLUMNS))
    viewed = best(rounds, lambda: decode(segment, COLUMNS, views=True))
    crc = best(rounds, lambda: checksums(segment))
    if codec == Codec.NONE:
        yardstick = best(rounds, lambda: bytes(memoryview(segment.data)))
        bound = crc
    else:
        yardstick = best(rounds, codec_alone(segment))
        bound = crc + yardstick
    most = records / (bound + best(rounds, copying(segment)))
    name, speed = fastest(clients(segment, CLIENT_BYTES))
    return [
        *(f"{amount / seconds:.2f}" for seconds in (copied, viewed) for amount in (size / 1e9, records / 1e6)),
        *(f"{size / seconds / 1e9:.2f}" for seconds in (yardstick, crc)),
        *(f"{seconds / copied:.2f}, {seconds / viewed:.2f}" for seconds in (yardstick, bound)),
        f"{name} {speed / 1e6:.2f}",
        f"{times(records / copied, speed)}, {times(records / viewed, speed)}",
        times(most, speed),
    ]


def segment_bytes(value_bytes: int, batch_records: int, codec: Codec, megabytes: int) -> int:
    """Return the size of a segment in bytes, so that a round takes at least some hundredths of a second."""
    if codec == Codec.NONE:
        return megabytes << 20
    # Small batches cost one call each.
    most = 4 if value_bytes * batch_records < 1000 else 16 if codec in (Codec.GZIP, Codec.ZSTD) else 64
    return min(megabytes, most) << 20


@contextmanager
def segment_of(value_bytes: int, batch_records: int, codec: Codec, size_bytes: int) -> Iterator[Segment]:
    """Make a segment and remove it again."""
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as folder:
        yield make_segment(Path(folder) / "00.log", value_bytes, batch_records, codec, size_bytes)


def report_damage(rounds: int, size_bytes: int) -> None:
    """Print how fast bytes that hold no batch are skipped."""
    source = random.Random(1)
    words = ["".join(source.choices(string.ascii_lowercase, k=source.randint(2, 9))).encode() for _ in range(2000)]
    table(DAMAGE_HEAD)
    for name, piece in {
        "zeros": bytes(1 << 20),
        "random bytes": source.randbytes(1 << 20),
        "text": text(1 << 20, source, words),
        "bytes of 1": b"\1" * (1 << 20),
    }.items():
        data = piece * max(1, size_bytes >> 20)
        if find_batch(data) is not None:
            raise RuntimeError(f"there is no batch in {name}")
        ours = len(data) / best(rounds, functools.partial(find_batch, data))
        copied = len(data) / best(rounds, functools.partial(bytearray, data))
        print(row(name, f"{ours / 1e9:.2f}", f"{copied / 1e9:.2f}", times(ours, copied)), flush=True)


def by_confluent(servers: str, topic: str, count: int) -> None:
    """Consume a partition with confluent-kafka, many messages a call."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    seen = 0
    while seen < count:
        # It waits until it has as many as it was asked for.
        for message in consumer.consume(num_messages=min(10_000, count - seen), timeout=10):
            if message.error():
                raise RuntimeError(message.error())
            _ = message.offset(), message.timestamp(), message.key(), message.value(), message.headers()
            seen += 1
    consumer.close()


def by_aiokafka(servers: str, topic: str, count: int) -> None:
    """Consume a partition with aiokafka."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def run() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
        await consumer.start()
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        seen = 0
        while seen < count:
            for messages in (await consumer.getmany(timeout_ms=10_000, max_records=10_000)).values():
                for message in messages:
                    _ = message.offset, message.timestamp, message.key, message.value, message.headers
                    seen += 1
        await consumer.stop()

    asyncio.run(run())


def by_ours(servers: str, topic: str, count: int) -> None:
    """Fetch a partition as Spark's source does, and decode it to Arrow."""
    from odradek.kafka.settings import BrokerSettings
    from odradek.spark.broker_split import BrokerSplit
    from odradek.spark.ranges import OffsetRange
    from odradek.storage.names import TopicPartition

    settings = BrokerSettings.parse({"bootstrap.servers": servers})
    wanted = OffsetRange(TopicPartition(topic, 0), 0, count)
    split = BrokerSplit(wanted, settings, "read_uncommitted", fail_on_data_loss=True)
    if sum(batch.num_rows for batch in split.read(select(COLUMNS))) != count:
        raise RuntimeError("records are missing")


def report_brokers(rounds: int) -> None:
    """Let Apache Kafka serve segments and print how fast clients get their records."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from peers.kafka import KafkaBroker
    from peers.kafka_tools import KafkaTools

    cases = [(size, codec) for codec in (Codec.NONE, Codec.LZ4) for size in (20, 200, 2000)]
    counts: dict[str, int] = {}
    ours: dict[str, float] = {}
    table(BROKER_HEAD)
    with tempfile.TemporaryDirectory() as folder:
        log_dir = Path(folder) / "log-dir"
        with odradek.open(log_dir) as logs:
            for size, codec in cases:
                topic = f"bench-{size}-{codec.name.lower()}"
                logs.create_topic(topic, config={"retention.ms": "-1"})
                with segment_of(size, 1000, codec, min(64, 8 + size // 4) << 20) as segment:
                    for header in scan_batches(segment.data):
                        batch = segment.data[header.position : header.end_position]
                        logs[topic, 0].append_batches(batch, origin=AppendOrigin.REPLICATION)
                    counts[topic] = segment.records_count
                    ours[topic] = segment.records_count / best(rounds, functools.partial(decode, segment, COLUMNS))
        with KafkaTools() as tools, KafkaBroker(tools, log_dir, heap="1g", jvm_options=()) as broker:
            for (size, codec), (topic, count) in zip(cases, counts.items(), strict=True):
                confluent, aio, mine = (
                    count / best(rounds, functools.partial(read, broker.bootstrap_servers, topic, count))
                    for read in (by_confluent, by_aiokafka, by_ours)
                )
                speeds = [f"{speed / 1e6:.3f}" for speed in (confluent, aio, mine)]
                most = max(confluent, aio)
                cells = [f"{size} B x 1000", codec.name.lower(), *speeds, times(mine, most), times(ours[topic], most)]
                print(row(*cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=128, help="size of a segment before compression")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="only values of 200 bytes without compression")
    parser.add_argument("--kafka", action="store_true", help="measure clients that fetch from Apache Kafka, too")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    encodings = []
    table(DECODE_HEAD)
    for value_bytes in [200] if arguments.quick else [20, 200, 2000]:
        for batch_records in [70] if arguments.quick else [1, 10, 1000]:
            for codec in [Codec.NONE] if arguments.quick else list(Codec):
                rounds = 3 if value_bytes * batch_records < 1000 and codec else arguments.rounds
                size = segment_bytes(value_bytes, batch_records, codec, arguments.megabytes)
                with segment_of(value_bytes, batch_records, codec, size) as segment:
                    name = [f"{value_bytes} B x {batch_records}", codec.name.lower()]
                    print(row(*name, *decoding(segment, codec, rounds)), flush=True)
                    encodings.append(row(*name, *encoding(segment, batch_records, codec, rounds)))
    table(ENCODE_HEAD)
    print("\n".join(encodings), flush=True)
    report_damage(arguments.rounds, arguments.megabytes << 20)
    if arguments.kafka:
        report_brokers(min(3, arguments.rounds))
    else:
        print("\nconfluent-kafka decodes only what a broker gave it: --kafka measures it beside an Apache Kafka.")


if __name__ == "__main__":
    main()
