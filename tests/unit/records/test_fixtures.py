"""Every segment that real brokers wrote, built again as they wrote it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.records import BatchHeader, read_records, scan_batches
from odradek.records.builder import build_batch, build_empty_batch
from odradek.records.compression import Codec, Decompressor, compress
from odradek.records.payload import records_section
from odradek.testing.message_builder import build_message_set
from peers.kafka_fixture import KafkaFixture


def _batches(folder: Path) -> Iterator[tuple[bytes, BatchHeader]]:
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        scan = scan_batches(data, path=path)
        for header in scan:
            yield data, header
        # A crash leaves the room that was reserved for the active segment.
        assert scan.damage is None or not any(data[scan.position :]), scan.damage


def _rebuilt(data: bytes, header: BatchHeader) -> bytes:
    """Build a v2 batch from its records and the fields of its header, uncompressed."""
    if not header.records_count:
        return build_empty_batch(
            header.base_offset,
            header.last_offset,
            max_timestamp=header.max_timestamp,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
            partition_leader_epoch=header.partition_leader_epoch,
        )
    return build_batch(
        read_records(data, header),
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        keep_offsets=True,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        partition_leader_epoch=header.partition_leader_epoch,
        delete_horizon_ms=header.delete_horizon_ms,
    )


@pytest.mark.slow
def test_batches_are_built_as_kafka_wrote_them(kafka_fixture: KafkaFixture) -> None:
    """Uncompressed ones byte for byte; of compressed ones the records, for no two compressors write the same bytes."""
    decompressor = Decompressor()
    found: Counter[str] = Counter()
    for folder in sorted(path for path in kafka_fixture.log_dir.iterdir() if path.is_dir()):
        for data, header in _batches(folder):
            # The timestamps that a producer sent are not to be had from records that show the append's.
            if header.magic < 2 or header.timestamp_type == "LogAppendTime":
                continue
            batch = _rebuilt(data, header)
            if header.codec:
                assert batch[61:] == bytes(memoryview(records_section(data, header, decompressor)))
                found["compressed"] += 1
            else:
                assert batch == data[header.position : header.end_position]
                found["plain"] += 1
                found["control"] += header.is_control
                found["transactional"] += header.is_transactional
                found["delete horizon"] += header.delete_horizon_ms is not None
    kinds = {"plain", "compressed", "control", "transactional"}
    if kafka_fixture.version == "4.3.1":  # 2.8.2 did not know the delete horizon
        kinds.add("delete horizon")
    assert {kind for kind, count in found.items() if count} == kinds


def test_the_framings_of_real_brokers(kafka_fixture: KafkaFixture) -> None:
    """All snappy in these v2 batches is one bare block, without the xerial header; lz4 starts as our frames do."""
    starts: dict[int, set[bytes]] = defaultdict(set)
    for folder in sorted(path for path in kafka_fixture.log_dir.iterdir() if path.is_dir()):
        for data, header in _batches(folder):
            if header.magic == 2:
                starts[header.codec].add(bytes(data[header.position + 61 : header.position + 65]))
    assert set(starts) == set(Codec)
    assert b"\x82SNA" not in starts[Codec.SNAPPY]
    assert starts[Codec.LZ4] == {compress(Codec.LZ4, b"")[:4]}


@pytest.mark.slow
def test_messages_are_built_as_kafka_wrote_them(fixture_2_8_2: KafkaFixture) -> None:
    decompressor = Decompressor()
    found: Counter[tuple[int, int]] = Counter()
    for folder in sorted(fixture_2_8_2.log_dir.glob("v[01]-*")):
        for data, header in _batches(folder):
            append_time = header.timestamp_type == "LogAppendTime"
            records = read_records(data, header)
            built = build_message_set(
                records,
                magic=header.magic,
                keep_offsets=True,
                codec=header.codec,
                timestamp_type="LogAppendTime" if append_time else "CreateTime",
                append_time_ms=header.max_timestamp if append_time else None,
            )
            found[header.magic, header.codec] += 1
            if not header.codec:
                assert built == data[header.position : header.end_position]
                continue
            (wrapper,) = scan_batches(built)
            assert (wrapper.last_offset, wrapper.max_timestamp, wrapper.attributes) == (
                header.last_offset,
                header.max_timestamp,
                header.attributes,
            )
            if not append_time:
                inner = bytes(memoryview(records_section(built, wrapper, decompressor)))
                assert inner == bytes(memoryview(records_section(data, header, decompressor)))
    assert set(found) == {(magic, codec) for magic in (0, 1) for codec in range(4)}
