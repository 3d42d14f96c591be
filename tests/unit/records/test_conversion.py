"""Batches rewritten for readers of older formats."""

from __future__ import annotations

import pytest

from odradek.errors import CorruptRecordError, UnsupportedCompressionTypeError
from odradek.records import Record, read_records, scan_batches
from odradek.records.builder import build_batch, build_control_batch
from odradek.records.compression import Codec
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.records.conversion import down_convert
from odradek.records.kernels.encode import seal
from odradek.records.message_builder import build_message_set

RECORDS = [Record(b"k%d" % number, b"v%d" % number, [("h", b"")], 1000 + number) for number in range(4)]


def _read(data: bytes) -> list[tuple[object, ...]]:
    scan = scan_batches(data)
    rows = [
        (header.magic, header.codec, record.offset, record.timestamp, record.key, record.value, record.headers)
        for header in scan
        for record in read_records(data, header)
    ]
    assert scan.damage is None
    return rows


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_v2_for_old_readers(magic: int, codec: Codec) -> None:
    data = build_batch(RECORDS, codec=codec, base_offset=20)
    assert _read(down_convert(data, magic)) == [
        (magic, codec, 20 + number, 1000 + number if magic else None, record.key, record.value, ())
        for number, record in enumerate(RECORDS)
    ]


def test_older_batches_stay_as_they_are() -> None:
    data = build_message_set(RECORDS_PLAIN, magic=0) + build_message_set(RECORDS_PLAIN, magic=1, base_offset=4)
    assert down_convert(data, 1) == data
    assert [row[0] for row in _read(down_convert(data, 0))] == [0] * 8


RECORDS_PLAIN = [Record(record.key, record.value, (), record.timestamp) for record in RECORDS]


def test_what_lies_before_the_first_offset_is_dropped_where_messages_are_plain() -> None:
    plain = build_batch(RECORDS, base_offset=20)
    packed = build_batch(RECORDS, base_offset=20, codec=Codec.GZIP)
    assert [row[2] for row in _read(down_convert(plain, 1, first_offset=22))] == [22, 23]
    assert [row[2] for row in _read(down_convert(packed, 1, first_offset=22))] == [20, 21, 22, 23]
    assert down_convert(plain, 1, first_offset=30) == b""


def test_append_time_stays() -> None:
    data = build_batch(RECORDS, timestamp_type="LogAppendTime", append_time_ms=77)
    (header, *_) = scan_batches(down_convert(data, 1))
    assert (header.timestamp_type, header.max_timestamp) == ("LogAppendTime", 77)


def test_control_batches_are_left_out() -> None:
    marker = EndTransactionMarker(ControlRecordType.ABORT, 0)
    data = build_control_batch(marker, producer_id=1, producer_epoch=0, timestamp=5)
    assert down_convert(data, 1) == b""


def test_zstd_is_refused() -> None:
    with pytest.raises(UnsupportedCompressionTypeError, match=r"UNSUPPORTED_COMPRESSION_TYPE \(76\)"):
        down_convert(build_batch(RECORDS, codec=Codec.ZSTD), 1)


def test_a_batch_cut_short_is_left_out_and_a_corrupt_one_is_an_error() -> None:
    data = build_batch(RECORDS)
    assert down_convert(data + data[:-1], 1) == down_convert(data, 1)
    with pytest.raises(CorruptRecordError):
        down_convert(data[:-1] + b"?", 1)


def test_records_that_no_older_format_can_hold_are_an_error() -> None:
    data = build_batch(RECORDS, delete_horizon_ms=0)
    early = seal(data[:27] + (-10_000).to_bytes(8, "big", signed=True) + data[35:61], data[61:])
    with pytest.raises(CorruptRecordError, match=r"record 0 .* timestamp is negative"):
        down_convert(early, 1)
