"""Messages of the formats v0 and v1, built and read back; Kafka's own bytes among them."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.records import Record, scan_batches
from odradek.records.compression import Codec, decompress
from odradek.records.payload import message_payload
from odradek.testing.message_builder import build_message_set
from peers.batches import records_of

# As Kafka wrote them.
V0_PLAIN = bytes.fromhex("0000000000000000 00000012 8697724c 00 00 00000002 6b30 00000002 7630")
V1_NULL_VALUE = bytes.fromhex("0000000000000007 00000018 4c322210 01 00 0000018bcfe56807 00000002 6b37 ffffffff")
V1_TIMESTAMP = 0x18BCFE56807

RECORDS = [
    Record(None if number == 3 else b"k" * number, None if number == 2 else b"v" * number * 9, (), 1000 - number)
    for number in range(5)
]
LEGAL_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


def test_kafka_s_v0_message_both_ways() -> None:
    assert records_of(V0_PLAIN) == [Record(b"k0", b"v0", (), None, 0, None)]
    assert build_message_set([Record(b"k0", b"v0", (), 5)], magic=0) == V0_PLAIN


def test_kafka_s_v1_message_both_ways() -> None:
    record = Record(b"k7", None, (), V1_TIMESTAMP, 7, "CreateTime")
    assert records_of(V1_NULL_VALUE) == [record]
    assert build_message_set([record], magic=1, keep_offsets=True) == V1_NULL_VALUE
    assert build_message_set([record], magic=1, base_offset=7) == V1_NULL_VALUE


@pytest.mark.parametrize(("magic", "size"), [(0, 14), (1, 22)])
def test_the_smallest_message(magic: int, size: int) -> None:
    message = build_message_set([Record()], magic=magic)
    assert int.from_bytes(message[8:12], "big") == size
    assert len(message) == size + 12
    assert [(record.key, record.value, record.timestamp) for record in records_of(message)] == [(None, None, None)]


@pytest.mark.parametrize("codec", LEGAL_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_set_is_read_as_it_was_built(magic: int, codec: Codec) -> None:
    data = build_message_set(RECORDS, magic=magic, codec=codec, base_offset=40)
    assert records_of(data) == [
        Record(
            record.key,
            record.value,
            (),
            record.timestamp if magic else None,
            40 + number,
            "CreateTime" if magic else None,
        )
        for number, record in enumerate(RECORDS)
    ]


@pytest.mark.parametrize("codec", LEGAL_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_gaps_are_kept(magic: int, codec: Codec) -> None:
    records = [Record(value=b"x", offset=offset) for offset in (11, 14, 15)]
    data = build_message_set(records, magic=magic, codec=codec, keep_offsets=True)
    assert [record.offset for record in records_of(data)] == [11, 14, 15]


@pytest.mark.parametrize(("magic", "offsets"), [(0, [40, 41, 42, 43, 44]), (1, [0, 1, 2, 3, 4])])
def test_the_inner_offsets_of_a_wrapper(magic: int, offsets: list[int]) -> None:
    data = build_message_set(RECORDS, magic=magic, codec=Codec.GZIP, base_offset=40)
    (wrapper,) = scan_batches(data)
    assert wrapper.last_offset == 44
    key, value = message_payload(data, wrapper)
    assert key is None
    assert value is not None
    inner = decompress(Codec.GZIP, value, magic=magic)
    assert [header.base_offset for header in scan_batches(inner)] == offsets


def test_a_wrapper_s_timestamp_is_the_inner_maximum() -> None:
    (wrapper,) = scan_batches(build_message_set(RECORDS, magic=1, codec=Codec.LZ4))
    assert (wrapper.max_timestamp, wrapper.timestamp_type) == (1000, "CreateTime")


@pytest.mark.parametrize("codec", LEGAL_CODECS)
def test_a_wrapper_s_append_time_overrides_the_inner_ones(codec: Codec) -> None:
    data = build_message_set(RECORDS, magic=1, codec=codec, timestamp_type="LogAppendTime", append_time_ms=123456)
    assert {(record.timestamp, record.timestamp_type) for record in records_of(data)} == {(123456, "LogAppendTime")}


def test_lz4_s_header_checksum_in_v0_is_the_wrong_one() -> None:
    checksums = []
    for magic in (0, 1):
        data = build_message_set(RECORDS, magic=magic, codec=Codec.LZ4)
        (wrapper,) = scan_batches(data)
        value = message_payload(data, wrapper)[1]
        assert value is not None
        checksums.append(value[6])
    assert checksums == [0x1A, 0x82]


@pytest.mark.parametrize("magic", [0, 1])
def test_snappy_as_one_bare_block(magic: int) -> None:
    framed = build_message_set(RECORDS, magic=magic, codec=Codec.SNAPPY)
    bare = build_message_set(RECORDS, magic=magic, codec=Codec.SNAPPY, bare_snappy=True)
    assert b"\x82SNAPPY\x00" in framed
    assert b"\x82SNAPPY\x00" not in bare
    assert records_of(bare) == records_of(framed)


@pytest.mark.parametrize(
    ("records", "options", "reason"),
    [
        ([Record(headers=[("a", b"")])], {"magic": 1}, "no headers"),
        ([Record()], {"magic": 1, "codec": Codec.ZSTD}, "zstd"),
        ([Record()], {"magic": 2}, "not 2"),
        ([], {"magic": 1}, "without messages"),
        ([Record(timestamp=-2)], {"magic": 1}, "negative"),
        ([Record(offset=4), Record(offset=4)], {"magic": 1, "keep_offsets": True}, "record 1 .* not above"),
        ([Record()], {"magic": 1, "keep_offsets": True}, "no offset"),
        ([Record()], {"magic": 0, "timestamp_type": "LogAppendTime", "append_time_ms": 1}, "LogAppendTime"),
    ],
)
def test_what_is_refused(records: list[Record], options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        build_message_set(records, **options)
