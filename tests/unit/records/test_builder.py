"""Batches of the format v2, built and read back; the seed example and Kafka's own bytes among them."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.records import Record, read_records, scan_batches
from odradek.records.builder import build_batch, build_control_batch, build_empty_batch
from odradek.records.compression import Codec
from odradek.records.control import ControlRecordType, EndTransactionMarker, parse_end_transaction_marker
from odradek.records.header import BatchHeader
from odradek.records.kernels.objects import unchecked_record

SEED_DELTAS = (0, 391, 1158, 1964, 3523)
SEED = bytes.fromhex(
    "0000000000000000 00000094 00000000 02 c10d4bb7 0000 00000004 0000017a558b999c 0000017a558ba75f"
    "ffffffffffffffff ffff 00000000 00000005"
    "24 00 00 00 08 74656368 10 666f7220676f6f64 00"
    "26 00 8e06 02 08 74656368 10 666f7220676f6f64 00"
    "26 00 8c12 04 08 74656368 10 666f7220676f6f64 00"
    "26 00 d81e 06 08 74656368 10 666f7220676f6f64 00"
    "26 00 8637 08 08 74656368 10 666f7220676f6f64 00"
)
SEED_TIMESTAMP = 0x17A558B999C

# As Kafka 4.3.1 wrote it: null key, null value, a later timestamp in between, headers.
PLAIN = bytes.fromhex(
    "0000000000000000 00000065 00000000 02 9786171b 0000 00000003 0000018bcfe56800 0000018bcfe56805"
    "ffffffffffffffff ffff ffffffff 00000004"
    "14 00 00 00 04 6b31 04 7631 00 16 00 0a 02 01 0a 6e6f6b6579 00"
    "10 00 06 04 04 6b32 01 00 26 00 02 06 04 6b33 04 7633 04 04 6831 02 78 04 6832 01"
)
PLAIN_TIMESTAMP = 0x18BCFE56800


def _only(batch: bytes) -> BatchHeader:
    scan = scan_batches(batch)
    (header,) = scan
    assert scan.damage is None
    assert header.size_bytes == len(batch)
    return header


def _content(record: Record) -> tuple[object, ...]:
    return (record.key, record.value, record.headers, record.timestamp, record.offset)


def test_the_seed_example_is_read() -> None:
    header = _only(SEED)
    assert (header.base_sequence, header.records_count, header.last_offset_delta) == (0, 5, 4)
    assert (header.base_timestamp, header.max_timestamp) == (SEED_TIMESTAMP, SEED_TIMESTAMP + 3523)
    assert [_content(record) for record in read_records(SEED, header)] == [
        (b"tech", b"for good", (), SEED_TIMESTAMP + delta, offset) for offset, delta in enumerate(SEED_DELTAS)
    ]


def test_the_seed_example_is_built() -> None:
    records = [Record(b"tech", b"for good", (), SEED_TIMESTAMP + delta) for delta in SEED_DELTAS]
    assert build_batch(records, base_sequence=0, partition_leader_epoch=0) == SEED


def test_a_batch_of_kafka_is_built_again() -> None:
    records = read_records(PLAIN, _only(PLAIN))
    assert [record.headers for record in records][-1] == (("h1", b"x"), ("h2", None))
    assert build_batch(records, partition_leader_epoch=0) == PLAIN


RECORDS = [
    Record(
        None if number % 5 == 0 else b"k" * number,
        None if number % 3 == 0 else b"v" * (number * 7),
        [("é", None), ("", b""), ("x", b"1" * number)] if number % 2 else (),
        1_600_000_000_000 - number,
        10 + 3 * number,
    )
    for number in range(40)
]


@pytest.mark.parametrize("codec", Codec)
def test_records_keep_their_offsets_and_gaps(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec, keep_offsets=True, base_offset=7, last_offset=500)
    header = _only(batch)
    assert (header.base_offset, header.last_offset, header.codec) == (7, 500, codec)
    assert header.max_timestamp == RECORDS[0].timestamp
    assert [_content(record) for record in read_records(batch, header)] == [_content(record) for record in RECORDS]


@pytest.mark.parametrize("codec", Codec)
def test_records_are_numbered_from_the_base_offset(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec, base_offset=1 << 40)
    read = read_records(batch, _only(batch))
    assert [record.offset for record in read] == [(1 << 40) + number for number in range(len(RECORDS))]


def test_log_append_time_overrides_the_records() -> None:
    batch = build_batch(RECORDS, timestamp_type="LogAppendTime", append_time_ms=77)
    header = _only(batch)
    assert (header.base_timestamp, header.max_timestamp) == (RECORDS[0].timestamp, 77)
    assert {(record.timestamp, record.timestamp_type) for record in read_records(batch, header)} == {
        (77, "LogAppendTime")
    }


def test_the_fields_of_a_producer() -> None:
    batch = build_batch(
        [Record(value=b"1")],
        producer_id=1 << 40,
        producer_epoch=7,
        base_sequence=2**31 - 1,
        is_transactional=True,
        partition_leader_epoch=3,
    )
    header = _only(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1 << 40, 7, 2**31 - 1)
    assert header.is_transactional
    assert not header.is_control
    assert header.partition_leader_epoch == 3
    assert read_records(batch, header)[0].timestamp is None


def test_a_commit_marker_as_kafka_writes_it() -> None:
    timestamp = 0x18BCFE56800
    batch = build_control_batch(
        EndTransactionMarker(ControlRecordType.COMMIT, 0),
        producer_id=1,
        producer_epoch=1,
        timestamp=timestamp,
        base_offset=2,
        partition_leader_epoch=0,
    )
    stamp = timestamp.to_bytes(8, "big").hex()
    assert batch.hex() == (
        f"0000000000000002 00000042 00000000 02 {batch[17:21].hex()} 0030 00000000 {stamp} {stamp} 0000000000000001 "
        "0001 ffffffff 00000001 20 00 00 00 08 00000001 0c 000000000000 00"
    ).replace(" ", "")
    header = _only(batch)
    (record,) = read_records(batch, header)
    assert parse_end_transaction_marker(record.key, record.value) == (ControlRecordType.COMMIT, 0)
    assert header.is_control


def test_an_empty_batch_is_a_header() -> None:
    batch = build_empty_batch(4, 9, max_timestamp=12, producer_id=5, producer_epoch=1, base_sequence=3)
    header = _only(batch)
    assert (len(batch), header.records_count, header.base_offset, header.last_offset) == (61, 0, 4, 9)
    assert (header.base_timestamp, header.max_timestamp, header.last_sequence) == (-1, 12, 8)
    assert read_records(batch, header) == []


def test_a_delete_horizon_leaves_the_timestamps() -> None:
    # As Kafka 4.3.1 wrote it: k3 = null, the horizon in the place of the base timestamp.
    horizon, timestamp = 0x1A1FB4C326B, 0x1A1FB4C0146
    batch = build_batch([Record(b"k3", None, (), timestamp)], delete_horizon_ms=horizon)
    header = _only(batch)
    assert (header.attributes, header.delete_horizon_ms, header.max_timestamp) == (0x40, horizon, timestamp)
    assert batch[61:] == bytes.fromhex("14 00 c9c401 00 04 6b33 01 00")
    assert read_records(batch, header)[0].timestamp == timestamp


def test_the_largest_offset_delta() -> None:
    batch = build_batch([Record(offset=0), Record(offset=2**31 - 1)], keep_offsets=True)
    assert [record.offset for record in read_records(batch, _only(batch))] == [0, 2**31 - 1]


@pytest.mark.parametrize(
    ("records", "options", "reason"),
    [
        ([Record(offset=0), Record(offset=2**31)], {"keep_offsets": True}, "record 1 .* offset delta .* 32 bits"),
        ([Record(offset=2**31)], {"keep_offsets": True, "base_offset": 0}, "record 0 .* offset delta .* 32 bits"),
        ([Record(offset=5), Record(offset=5)], {"keep_offsets": True}, "record 1 .* not above"),
        ([Record(offset=5)], {"keep_offsets": True, "base_offset": 6}, "record 0 .* not above"),
        ([Record()], {"keep_offsets": True}, "no offset"),
        ([Record(timestamp=-2)], {}, "timestamp is negative"),
        ([Record(), Record()], {"last_offset": 0}, "last_offset 0"),
        ([Record()], {"last_offset": 2**31}, "last_offset"),
        ([Record()], {"base_offset": -1}, "negative"),
        ([Record()], {"timestamp_type": "LogAppendTime"}, "append_time_ms"),
        ([Record()], {"timestamp_type": "EventTime"}, "EventTime"),
        ([Record()], {"is_transactional": True}, "producer_id"),
        ([Record()], {"producer_id": 4}, "producer_epoch"),
        ([Record()], {"codec": 5}, "5"),
        ([], {}, "without records"),
    ],
)
def test_what_is_refused(records: list[Record], options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        build_batch(records, **options)


@pytest.mark.parametrize(
    "fields", [("text", None, ()), (None, "text", ()), (None, None, ((b"name", b""),)), (None, 1, ())]
)
def test_wrong_types_are_refused(fields: tuple[Any, Any, Any]) -> None:
    # What was not checked where the record was made is checked here.
    with pytest.raises(TypeError):
        build_batch([unchecked_record(*fields, None)])


def test_a_pair_is_no_record() -> None:
    with pytest.raises(TypeError):
        build_batch([(b"", b"")])  # type: ignore[list-item]
