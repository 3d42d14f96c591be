"""What the fuzzers start from: batches and files of real brokers, and batches that no broker wrote."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from odradek.records import Record, scan_batches
from odradek.records.builder import build_batch, build_control_batch, build_empty_batch
from odradek.records.compression import Codec
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.records.header import BatchHeader
from odradek.testing.message_builder import build_message_set

VECTORS = Path(__file__).parent.parent / "tests" / "vectors"
CORRUPT = VECTORS / "corrupt"
MAX_BATCH = 1500


@cache
def broker_files() -> dict[str, bytes]:
    """Return the files of the fixtures' unclean log directories, by version and path; large ones are cut."""
    files = {}
    for version in ("2.8.2", "4.3.1"):
        with tarfile.open(VECTORS / f"kafka-{version}.tar.xz") as archive:
            for member in archive:
                if member.isfile() and "log-dir-unclean/" in member.name:
                    content = archive.extractfile(member)
                    if content is not None:
                        files[f"{version}/{member.name.split('log-dir-unclean/')[1]}"] = content.read(48 << 10)
    return files


def _kind(header: BatchHeader) -> tuple[int, ...]:
    few = min(header.records_count, 3)
    return header.magic, header.attributes, few, header.has_producer_id, header.base_sequence < 0


def _broker_batches() -> Iterator[tuple[int, bytes]]:
    seen: dict[tuple[int, ...], int] = {}
    for name, data in broker_files().items():
        if name.endswith((".log", ".checkpoint")):
            for header in scan_batches(data):
                kind = _kind(header)
                if header.size_bytes <= MAX_BATCH and seen.get(kind, 0) < 3:
                    seen[kind] = seen.get(kind, 0) + 1
                    yield header.magic, data[header.position : header.end_position]


def corrupt_vectors(target: str) -> list[bytes]:
    """Return what was found before, or is known to be wrong, for one target: `tests/vectors/corrupt`."""
    found = []
    for folder in sorted(CORRUPT.iterdir()):
        if f"Target: {target}\n" in (folder / "README.md").read_text(encoding="utf-8"):
            found.append((folder / "data.bin").read_bytes())
    return found


RECORDS = (
    Record(b"key", b"value", [("name", b"1"), ("name", None), ("", b"")], 1_600_000_000_000, 10),
    Record(None, None, (), None, 11),
    Record(b"", b"", (), 1_600_000_000_007, 15),
    Record(b"k" * 40, b"v" * 300, [("Träger", b"\0" * 20)], 1_600_000_000_003, 16),
)
BARE = tuple(Record(r.key, r.value, (), r.timestamp, r.offset) for r in RECORDS)


def v2_batches() -> list[bytes]:
    """Return v2 batches: brokers', and what the builder can do beside."""
    found = [data for magic, data in _broker_batches() if magic == 2]
    for codec in Codec:
        found.append(build_batch(RECORDS, codec=codec, keep_offsets=True))
        found.append(build_batch(RECORDS[:1], codec=codec))
        found.append(
            build_batch(RECORDS, codec=codec, timestamp_type="LogAppendTime", append_time_ms=1_700_000_000_000)
        )
    found.append(build_batch(RECORDS, producer_id=7, producer_epoch=1, base_sequence=3, is_transactional=True))
    found.append(build_batch(RECORDS, delete_horizon_ms=1_700_000_000_000))
    found.append(build_empty_batch(5, 9))
    marker = EndTransactionMarker(ControlRecordType.ABORT, 3)
    found.append(build_control_batch(marker, base_offset=20, producer_id=7, producer_epoch=1, timestamp=1))
    found.append(found[-2] + found[-1] + found[-3])
    return found


def messages() -> list[bytes]:
    """Return messages and message sets of v0 and v1: brokers', and what the builder can do beside."""
    found = [data for magic, data in _broker_batches() if magic < 2]
    for magic in (0, 1):
        for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            found.append(build_message_set(BARE, magic=magic, codec=codec, keep_offsets=True))
        found.append(build_message_set(BARE, magic=magic, codec=Codec.SNAPPY, bare_snappy=True))
    found.append(
        build_message_set(BARE, magic=1, codec=Codec.GZIP, timestamp_type="LogAppendTime", append_time_ms=1 << 40)
    )
    found.append(found[-1] + found[0])
    return found
