"""Consecutive batches that are decoded together: the same records as one by one, up to a batch that needs more."""

from __future__ import annotations

import pytest

from odradek.records import Record, read_records, scan_batches
from odradek.records.append.batching import BatchBuilder
from odradek.records.append.validator import AppendRules
from odradek.records.builder import build_batch, build_control_batch, build_empty_batch
from odradek.records.compression import Codec
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.records.kernels.batches import BatchTable, number_batches, walk_batches
from odradek.records.kernels.objects import decode_run
from odradek.testing.message_builder import build_message_set

RECORDS = [Record(b"k", b"v", [("h", b"1")], 5), Record(None, None, (), 7)]
PLAIN = build_batch(RECORDS, base_offset=40)
AFTER = {
    "compressed": build_batch(RECORDS, base_offset=42, codec=Codec.GZIP),
    "control": build_control_batch(
        EndTransactionMarker(ControlRecordType.COMMIT, 0), producer_id=1, producer_epoch=0, timestamp=1, base_offset=42
    ),
    "a gap": build_batch(RECORDS, base_offset=43),
    "an offset twice": build_batch(RECORDS, base_offset=41),
    "transactional": build_batch(
        RECORDS, base_offset=42, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    ),
    "v1": build_message_set(RECORDS[1:], magic=1, base_offset=42),
}


def table_of(data: bytes, origin: int = 0) -> BatchTable:
    return walk_batches(data, origin, origin + len(data), 100, True, origin)


@pytest.mark.parametrize("after", AFTER.values(), ids=list(AFTER))
def test_a_run_ends_before_a_batch_that_needs_more(after: bytes) -> None:
    data = PLAIN + after
    records, number, next_offset = decode_run(table_of(data), 0, data, 0, 40, False, 100)
    assert (number, next_offset) == (1, 42)
    assert records == read_records(data, next(iter(scan_batches(data))))
    assert decode_run(table_of(data), 1, data, 0, 42, False, 100) == ([], 1, 42)


def test_a_run_holds_what_the_batches_hold_one_by_one() -> None:
    data = b"".join(
        [
            PLAIN,
            build_batch(RECORDS, base_offset=42, timestamp_type="LogAppendTime", append_time_ms=99),
            build_empty_batch(44, 49),
            build_batch(RECORDS, base_offset=50, producer_id=1, producer_epoch=0, base_sequence=0),
        ]
    )
    expected = [record for header in scan_batches(data) for record in read_records(data, header)]
    assert len(expected) == 6
    assert decode_run(table_of(data), 0, data, 0, 40, True, 100) == (expected, 4, 52)
    assert decode_run(table_of(data, 1000), 0, data, 1000, 40, True, 3) == (expected[:4], 2, 44)
    taken = PLAIN + AFTER["transactional"]
    assert decode_run(table_of(taken), 0, taken, 0, 40, True, 100)[1:] == (2, 44)


def test_a_batch_whose_records_contradict_its_header_is_left() -> None:
    broken = bytearray(build_batch(RECORDS, base_offset=42))
    broken[-1] ^= 0xFF
    data = PLAIN + bytes(broken)
    table = walk_batches(data, 0, len(data), 100, False)
    records, number, next_offset = decode_run(table, 0, data, 0, 40, True, 100)
    assert (len(records), number, next_offset) == (2, 1, 42)


def test_a_table_of_other_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="not within"):
        decode_run(table_of(PLAIN), 0, PLAIN[:-1], 0, 40, True, 100)
    with pytest.raises(IndexError):
        decode_run(table_of(PLAIN), -1, PLAIN, 0, 40, True, 100)


def test_built_batches_get_their_offsets_in_place() -> None:
    built = BatchBuilder(AppendRules(max_message_bytes=80)).build(RECORDS, 9)
    table = number_batches(built, 1 << 40, 7)
    headers = table.headers()
    assert (table.size_bytes, table.last_offset) == (len(built), headers[-1].last_offset)
    assert headers == list(scan_batches(built))
    assert [(header.base_offset, header.partition_leader_epoch) for header in headers] == [
        (1 << 40, 7),
        ((1 << 40) + 1, 7),
    ]
    assert [record for header in headers for record in read_records(built, header)] == [
        Record(record.key, record.value, record.headers, record.timestamp, (1 << 40) + number, "CreateTime")
        for number, record in enumerate(RECORDS)
    ]
    with pytest.raises(ValueError, match="no v2 batch at byte 0"):
        number_batches(bytearray(b"\0" * 70), 0, 0)
    assert BatchBuilder(AppendRules()).build([Record(b"k")], 9)[27:35] == (9).to_bytes(8, "big")
