"""One table of cases for all formats: read and built, whole, cut at every byte, and with bytes behind them.

Three decoders know the formats: the one of `Record` objects, the one of columns (plain and views), and the one that
checks what is appended. They must agree about every case, and about what is no case.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from odradek.errors import (
    BrokerError,
    CorruptRecordError,
    FormatError,
    InvalidRecordError,
    TruncatedBatchError,
    UnsupportedMagicError,
)
from odradek.records import Record, read_records, scan_batches
from odradek.records.append.validator import AppendOrigin, AppendRules, validate_append
from odradek.records.builder import build_batch, build_control_batch, build_empty_batch
from odradek.records.compression import Codec, Decompressor, compress
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.records.kernels.encode import seal
from odradek.records.payload import records_section
from odradek.testing.message_builder import build_message_set
from peers.arrow_records import MemorySlice, decode

TIME = 1_600_000_000_000
PATH = Path("a.log")


@dataclass(frozen=True)
class Case:
    """Bytes, what they hold, and how to make them."""

    data: bytes
    records: list[Record]
    build: Callable[[], bytes]
    is_batch: bool = True  # one batch; else several plain messages


def test_a_wrapper_is_a_compressed_message_of_the_old_formats() -> None:
    records = [Record(b"key", b"value", timestamp=TIME, offset=offset) for offset in range(3)]
    built = [
        (magic, codec, build_message_set(records, magic=magic, codec=codec)) for magic in (0, 1) for codec in (0, 1)
    ]
    built += [(2, codec, build_batch(records, codec=codec)) for codec in (0, 1)]
    for magic, codec, data in built:
        header = next(iter(scan_batches(data)))
        assert header.is_wrapper is (magic < 2 and codec == 1), (magic, codec)
        assert header.is_wrapper is (header.records_count < 0)


def _typed(records: list[Record], timestamp_type: str | None = "CreateTime", first: int = 0) -> list[Record]:
    return [
        Record(
            record.key,
            record.value,
            record.headers,
            record.timestamp if timestamp_type else None,
            first + number if record.offset is None else record.offset,
            timestamp_type,
        )
        for number, record in enumerate(records)
    ]


PLAIN = [
    Record(b"k1", b"v1", (), TIME),
    Record(None, b"nokey", (), TIME + 5),
    Record(b"k2", None, (), TIME - 70_000),
    Record(b"", b"", [("h1", b"x"), ("h2", None), ("h1", b"")], None),
]
BARE = [Record(record.key, record.value, (), record.timestamp) for record in PLAIN]
GAPS = [Record(b"a", b"1", (), TIME, 3), Record(b"b", b"2", (), TIME, 5), Record(b"c", None, (), TIME, 900)]
MARKER = EndTransactionMarker(ControlRecordType.ABORT, 9)


LATEST = [Record(b"k", b"v", (), 2**63 - 1, 2**63 - 1)]


def _case(records: list[Record], build: Callable[[], bytes], *, is_batch: bool = True) -> Case:
    return Case(build(), records, build, is_batch)


CASES: dict[str, Case] = {}
for _codec in Codec:
    CASES[f"v2-{_codec.name}"] = _case(
        _typed(PLAIN, first=40),
        partial(build_batch, PLAIN, codec=_codec, base_offset=40, partition_leader_epoch=2),
    )
for _magic in (0, 1):
    for _codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        CASES[f"v{_magic}-{_codec.name}"] = _case(
            _typed(BARE, "CreateTime" if _magic else None, first=40),
            partial(build_message_set, BARE, magic=_magic, codec=_codec, base_offset=40),
            is_batch=bool(_codec),
        )
    CASES[f"v{_magic}-bare-snappy"] = _case(
        _typed(BARE, "CreateTime" if _magic else None),
        partial(build_message_set, BARE, magic=_magic, codec=Codec.SNAPPY, bare_snappy=True),
    )
CASES |= {
    "v2-latest": _case(_typed(LATEST), lambda: build_batch(LATEST, keep_offsets=True)),
    "v1-latest": _case(_typed(LATEST), lambda: build_message_set(LATEST, magic=1, keep_offsets=True)),
    "v1-latest-wrapped": _case(
        _typed(LATEST), lambda: build_message_set(LATEST, magic=1, keep_offsets=True, codec=Codec.GZIP)
    ),
    "v2-gaps": _case(
        _typed(GAPS),
        lambda: build_batch(GAPS, keep_offsets=True, base_offset=1, last_offset=1000, partition_leader_epoch=0),
    ),
    "v2-append-time": _case(
        [Record(r.key, r.value, r.headers, TIME + 99, 7 + n, "LogAppendTime") for n, r in enumerate(PLAIN)],
        lambda: build_batch(PLAIN, base_offset=7, timestamp_type="LogAppendTime", append_time_ms=TIME + 99),
    ),
    "v1-append-time": _case(
        [Record(r.key, r.value, (), TIME + 99, 7 + n, "LogAppendTime") for n, r in enumerate(BARE)],
        lambda: build_message_set(
            BARE, magic=1, codec=Codec.LZ4, base_offset=7, timestamp_type="LogAppendTime", append_time_ms=TIME + 99
        ),
    ),
    "v2-delete-horizon": _case(
        _typed(GAPS), lambda: build_batch(GAPS, keep_offsets=True, delete_horizon_ms=TIME + 86_400_000)
    ),
    "v2-marker": _case(
        [Record(MARKER.key_bytes(), MARKER.value_bytes(), (), TIME, 77, "CreateTime")],
        lambda: build_control_batch(MARKER, producer_id=4, producer_epoch=1, timestamp=TIME, base_offset=77),
    ),
    "v2-empty": _case([], lambda: build_empty_batch(5, 9, max_timestamp=TIME, producer_id=4, producer_epoch=1)),
}

both_ways = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def _read(data: bytes) -> tuple[list[Record], FormatError | None, int]:
    """Read as objects what can be read; return also what was wrong, and where the good batches end."""
    records: list[Record] = []
    position = 0
    scan = scan_batches(data, path=PATH)
    for header in scan:
        try:
            records += read_records(data, header)
        except FormatError as error:
            return records, error, position
        position = header.end_position
    return records, scan.damage, position


def _decode(data: bytes, views: bool = False) -> tuple[list[Record], FormatError | None]:
    """The same by way of columns."""
    records: list[Record] = []
    try:
        records.extend(decode([MemorySlice(data)], views=views))
    except FormatError as error:
        return records, error
    return records, None


def _agreed(data: bytes) -> tuple[list[Record], FormatError | None]:
    """What all decoders say of these bytes, which must be the same."""
    records, error, _ = _read(data)
    for views in (False, True):
        decoded, decode_error = _decode(data, views)
        assert decoded == records
        assert (decode_error is None) == (error is None)
        if error is not None and decode_error is not None:
            assert (decode_error.reason, decode_error.position) == (error.reason, error.position)
            assert decode_error.path == str(PATH)
    return records, error


@pytest.mark.sampled(4)
@both_ways
def test_read(case: Case) -> None:
    assert _agreed(case.data) == (case.records, None)


@pytest.mark.sampled(4)
@both_ways
def test_built(case: Case) -> None:
    assert case.build() == case.data


@pytest.mark.sampled(4)
@both_ways
def test_one_behind_the_other(case: Case) -> None:
    assert _agreed(case.data + case.data) == (case.records * 2, None)


@pytest.mark.slow
@both_ways
def test_cut_at_every_byte(case: Case) -> None:
    for cut in range(len(case.data)):
        data = case.data + case.data[:cut]
        records, error = _agreed(data)
        whole = _read(case.data[:cut])
        assert records == case.records + whole[0]
        position = len(case.data) + whole[2]
        if position == len(data):
            assert error is None
            continue
        assert isinstance(error, TruncatedBatchError)
        assert error.position == position
        assert str(len(data) - position) in error.reason


@pytest.mark.sampled(4)
@both_ways
@pytest.mark.parametrize("trailing", [b"\0", b"\0" * 11, b"\0" * 100, b"\xff" * 40, bytes(range(200))], ids=len)
def test_bytes_behind_it(case: Case, trailing: bytes) -> None:
    records, error = _agreed(case.data + trailing)
    assert records == case.records
    assert error is not None
    assert error.position == len(case.data)


@pytest.mark.sampled
@both_ways
def test_every_byte_changed(case: Case) -> None:
    """A changed byte is found by the checksum, save where it does not cover: offset, size, magic, leader epoch."""
    for position in range(len(case.data)):
        data = bytearray(case.data)
        data[position] ^= 0xFF
        records, error = _agreed(bytes(data))
        if error is None:
            assert position < 16 or not case.is_batch
            assert [record.value for record in records] == [record.value for record in case.records]
        else:
            assert isinstance(error, CorruptRecordError | UnsupportedMagicError)


# -- records that contradict their batch, behind a checksum that holds ---------------------------------------------

V2 = CASES["v2-NONE"].data


def _checked(data: bytes) -> str | None:
    """What the decoder that checks appends says; the rest of the batch is made to fit a leader."""
    rules = AppendRules(timestamp_after_max_ms=1 << 62)
    try:
        validate_append(
            data, rules, base_offset=0, partition_leader_epoch=0, now_ms=TIME, origin=AppendOrigin.COORDINATOR
        )
    except InvalidRecordError as error:
        return error.reason
    return None


def _sealed(section: bytes, *, count: int = 4, codec: Codec = Codec.NONE) -> bytes:
    header = bytearray(V2[:61])
    header[22] = codec
    struct.pack_into(">i", header, 57, count)
    struct.pack_into(">i", header, 23, count - 1)
    return seal(bytes(header), compress(codec, section))


@pytest.mark.sampled
@pytest.mark.parametrize("codec", Codec)
def test_records_cut_at_every_byte(codec: Codec) -> None:
    section = V2[61:]
    for cut in range(len(section)):
        data = _sealed(section[:cut], codec=codec)
        records, error = _agreed(data)
        assert records == []
        assert error is not None
        assert error.position == 0
        assert _checked(data) is not None


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("trailing", [b"\0", V2[61:]], ids=len)
def test_bytes_behind_the_records(codec: Codec, trailing: bytes) -> None:
    data = _sealed(V2[61:] + trailing, codec=codec)
    records, error = _agreed(data)
    assert records == []
    assert error is not None
    assert f"{len(trailing)} bytes after the last of 4 records" in error.reason
    assert "bytes after the last" in (_checked(data) or "")


@pytest.mark.parametrize("codec", Codec)
def test_records_behind_a_header_that_counts_none(codec: Codec) -> None:
    data = bytearray(_sealed(V2[61:], count=1, codec=codec))
    struct.pack_into(">i", data, 57, 0)
    records, error = _agreed(seal(bytes(data[:61]), data[61:]))
    assert records == []
    assert error is not None
    assert error.reason == "59 bytes after the last of 0 records"


def _one(body: bytes) -> bytes:
    """One record of any content."""
    return bytes([len(body) * 2]) + body


ENDLESS = b"\xff" * 10 + b"\x01"  # a varint of eleven bytes
BILLION = bytes.fromhex("80a8d6b907")  # 1,000,000,000
HUGE = bytes.fromhex("feffffff0f")  # 2,147,483,647

BROKEN = {
    "a record length of eleven bytes": (ENDLESS + b"\0" * 20, "the length of record 0 does not end"),
    "a record length of 2 GB": (HUGE + b"\0" * 9, "claims 2147483647 bytes, 9 are left"),
    "a negative record length": (b"\x01" + b"\0" * 9, "claims -1 bytes"),
    "a record too short": (b"\x0a" + b"\0" * 6, "claims 5 bytes"),
    "a timestamp delta of eleven bytes": (_one(b"\0" + ENDLESS + b"\0" * 6), "timestamp delta of record 0 does not"),
    "an offset delta of eleven bytes": (_one(b"\0\0" + ENDLESS + b"\0" * 6), "offset delta of record 0 does not end"),
    "a key length of eleven bytes": (_one(b"\0\0\0" + ENDLESS + b"\0" * 6), "key length of record 0 does not end"),
    "a key of 2 GB": (_one(b"\0\0\0" + HUGE + b"\0" * 6), "the key of record 0 claims 2147483647 bytes, 6 are left"),
    "a value length of eleven bytes": (_one(b"\0\0\0\1" + ENDLESS + b"\0"), "value length of record 0 does not end"),
    "a value of 2 GB": (_one(b"\0\0\0\1" + HUGE + b"\0"), "the value of record 0 claims 2147483647 bytes, 1 are left"),
    "a header count of eleven bytes": (_one(b"\0\0\0\1\1" + ENDLESS), "header count of record 0 does not end"),
    "a billion headers": (_one(b"\0\0\0\1\1" + BILLION + b"\0" * 8), "claims 1000000000 headers, 8 bytes are left"),
    "a negative header count": (_one(b"\0\0\0\1\1\1"), "claims -1 headers"),
    "more headers than fit": (_one(b"\0\0\0\1\1\4\0\1\0"), "claims 2 headers, 3 bytes are left"),
    "a header name of 2 GB": (_one(b"\0\0\0\1\1\2" + HUGE + b"\0"), "name of header 0 of record 0 goes past"),
    "a header without a name": (_one(b"\0\0\0\1\1\2\1\0"), "name of header 0 of record 0 goes past"),
    "a header value of 2 GB": (_one(b"\0\0\0\1\1\2\0" + HUGE), "value of header 0 of record 0 goes past"),
    "bytes left in a record": (_one(b"\0\0\0\1\1\0\0"), "1 bytes too many"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize(("section", "reason"), BROKEN.values(), ids=BROKEN)
def test_broken_records(section: bytes, reason: str, codec: Codec) -> None:
    data = _sealed(section, count=1, codec=codec)
    records, error = _agreed(V2 + data)
    assert records == CASES["v2-NONE"].records
    assert isinstance(error, CorruptRecordError)
    assert error.position == len(V2)
    assert reason in error.reason
    assert reason in (_checked(data) or "")


@pytest.mark.parametrize(
    ("field", "layout", "position", "reason"),
    [
        (2**31 - 1, ">i", 57, "2147483647 records in 59 bytes"),
        (-1, ">i", 57, "-1 records in 59 bytes"),
        (-1, ">i", 23, "last offset delta -1 after offset 40"),
        (5, ">h", 21, "codec 5"),
        (-1, ">q", 0, "offset -1"),
        (2**63 - 2, ">q", 0, "last offset delta 3 after offset 9223372036854775806"),
    ],
)
def test_headers_that_contradict_themselves(field: int, layout: str, position: int, reason: str) -> None:
    header = bytearray(V2[:61])
    struct.pack_into(layout, header, position, field)
    data = seal(bytes(header), V2[61:])
    _, error = _agreed(data)
    assert error is not None
    assert f"contradicts itself: {reason}" in str(error)
    assert str(error).startswith("a.log, position 0: ")


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_record_count_of_two_billion_behind_a_codec(codec: Codec) -> None:
    data = _sealed(V2[61:], count=2**31 - 1, codec=codec)
    _, error = _agreed(data)
    assert error is not None
    assert "2147483647 records in 59 bytes" in error.reason
    assert "2147483647 records in 59 bytes" in (_checked(data) or "")


@pytest.mark.parametrize("size", [2**31 - 1, 1_000_000])
@pytest.mark.parametrize("name", ["v2-NONE", "v1-NONE", "v0-NONE"])
def test_a_batch_that_claims_two_gigabytes(name: str, size: int) -> None:
    data = bytearray(CASES[name].data)
    struct.pack_into(">i", data, 8, size)
    _, error = _agreed(bytes(data))
    assert isinstance(error, TruncatedBatchError)
    assert str(error) == f"a.log, position 0: the batch claims {size + 12} bytes, {len(data)} are left"


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 13])
def test_sizes_below_the_smallest_batch(size: int) -> None:
    data = bytearray(V2)
    struct.pack_into(">i", data, 8, size)
    _, error = _agreed(bytes(data))
    assert f"size field {size}" in str(error)


def _message(key_length: int, value_length: int, magic: int = 1) -> bytes:
    """A message with any lengths and a checksum that holds."""
    body = struct.pack(">bb", magic, 0) + (b"\0" * 8 if magic else b"")
    body += struct.pack(">i", key_length) + struct.pack(">i", value_length) + b"four"
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("key_length", "value_length"), [(2**31 - 1, -1), (-1, 2**31 - 1), (9, 4), (0, 5), (0, 3), (-1, -1), (8, 0)]
)
def test_messages_with_wrong_lengths(magic: int, key_length: int, value_length: int) -> None:
    data = _message(key_length, value_length, magic)
    records, error = _agreed(data)
    assert records == []
    assert isinstance(error, CorruptRecordError)


@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_with_wrong_contents(magic: int) -> None:
    inner = build_message_set(BARE, magic=magic)
    other = build_message_set(BARE, magic=1 - magic)
    for content in (b"", inner[:-1], inner + b"\0", inner[:-1] + b"?", other, inner + V2):
        payload = compress(Codec.GZIP, content, magic=magic)
        data = bytearray(build_message_set([Record(None, payload)], magic=magic, base_offset=3))
        data[17] = Codec.GZIP
        struct.pack_into(">I", data, 12, zlib.crc32(data[16:]))
        records, error = _agreed(bytes(data))
        assert records == []
        assert isinstance(error, CorruptRecordError)
        with pytest.raises(BrokerError):
            validate_append(bytes(data), AppendRules(), base_offset=0, partition_leader_epoch=0, now_ms=TIME)


def test_a_header_name_that_is_not_utf_8() -> None:
    """Objects keep the bytes, so that they can be written again; columns show what Kafka's consumer shows."""
    section = _one(b"\0\0\0\1\1\2\4\xffa\1")
    data = _sealed(section, count=1)
    (record,), error, _ = _read(data)
    assert error is None
    (header,) = scan_batches(data)
    assert build_batch([record], keep_offsets=True, partition_leader_epoch=2)[61:] == bytes(
        memoryview(records_section(data, header, Decompressor()))
    )
    (decoded,), error = _decode(data)
    assert error is None
    assert decoded.headers == (("�a", None),)
