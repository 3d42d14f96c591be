"""Whatever records are written, in every format and by every codec, are read again; whatever bytes are read agree.

Three decoders (objects, columns, the leader's check) are asked about the same bytes, good and damaged ones.
"""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.columnar.encode import encode_batches
from odradek.columnar.record_schema import HEADERS_TYPE
from odradek.errors import BrokerError, FormatError, InvalidRecordError
from odradek.records import Record, read_records, scan_batches
from odradek.records.append.validator import AppendOrigin, AppendRules, validate_append
from odradek.records.builder import BatchOptions, build_batch
from odradek.records.compression import Codec, compress
from odradek.records.kernels.encode import seal
from odradek.testing.message_builder import build_message_set
from peers.arrow_records import MemorySlice, decode
from peers.batches import records_of

MAX_OFFSET = (1 << 62) - 1

byte_strings = st.none() | st.binary(max_size=40) | st.integers(0, 3000).map(lambda size: b"\xa5" * size)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=20)), max_size=3)
timestamps = st.none() | st.integers(0, 1 << 62) | st.integers(1_600_000_000_000, 1_600_000_100_000)
records = st.builds(Record, byte_strings, byte_strings, headers, timestamps)
bare_records = st.builds(Record, byte_strings, byte_strings, st.just(()), timestamps)
base_offsets = st.integers(0, MAX_OFFSET)
codecs = st.sampled_from(list(Codec))
old_codecs = st.sampled_from(list(Codec)[:4])


def _numbered(table: list[Record], base_offset: int, gaps: list[int]) -> list[Record]:
    offset = base_offset
    numbered = []
    for record, gap in zip(table, gaps, strict=True):
        offset += gap
        numbered.append(Record(record.key, record.value, record.headers, record.timestamp, offset))
        offset += 1
    return numbered


def _contents(table: list[Record]) -> list[tuple[object, ...]]:
    return [(r.key, r.value, r.headers, r.timestamp, r.offset) for r in table]


def _decode(data: bytes, views: bool) -> list[Record]:
    return list(decode([MemorySlice(data)], views=views))


@st.composite
def numbered(draw: st.DrawFn, content: st.SearchStrategy[Record] = records) -> list[Record]:
    table = draw(st.lists(content, min_size=1, max_size=8))
    gaps = draw(st.lists(st.integers(0, 1 << 20), min_size=len(table), max_size=len(table)))
    return _numbered(table, draw(base_offsets), gaps)


@pytest.mark.slow
@given(numbered(), codecs)
def test_v2(table: list[Record], codec: Codec) -> None:
    data = build_batch(table, codec=codec, keep_offsets=True)
    found = records_of(data)
    assert _contents(found) == _contents(table)
    assert _decode(data, False) == found
    assert _decode(data, True) == found
    assert {record.timestamp_type for record in found} == {"CreateTime"}


@pytest.mark.slow
@given(numbered(bare_records), old_codecs, st.sampled_from([0, 1]), st.booleans())
def test_v0_and_v1(table: list[Record], codec: Codec, magic: int, bare_snappy: bool) -> None:
    data = build_message_set(table, magic=magic, codec=codec, keep_offsets=True, bare_snappy=bare_snappy)
    found = records_of(data)
    if not magic:
        table = [Record(r.key, r.value, (), None, r.offset) for r in table]
    assert _contents(found) == _contents(table)
    assert _decode(data, False) == found
    assert _decode(data, True) == found


@pytest.mark.slow
@given(numbered(), codecs, st.integers(1, 9), st.integers(70, 4000))
def test_columns_are_encoded_as_objects_are(table: list[Record], codec: Codec, count: int, size: int) -> None:
    rows = pa.record_batch(
        {
            "key": pa.array([r.key for r in table], pa.binary_view()),
            "value": pa.array([r.value for r in table], pa.large_binary()),
            "headers": pa.array([[{"key": n, "value": v} for n, v in r.headers] for r in table], HEADERS_TYPE),
            "timestamp": pa.array([r.timestamp for r in table], pa.int64()),
            "offset": pa.array([r.offset for r in table], pa.int64()),
        }
    )
    options = BatchOptions(codec=codec)
    assert b"".join(encode_batches(rows, options, keep_offsets=True, max_batch_bytes=1 << 30)) == build_batch(
        table, codec=codec, keep_offsets=True
    )
    data = b"".join(encode_batches(rows, options, keep_offsets=True, max_batch_records=count, max_batch_bytes=size))
    assert _contents(records_of(data)) == _contents(table)
    for header in scan_batches(data):
        assert header.records_count <= count
        assert codec or header.size_bytes <= size or header.records_count == 1


@pytest.mark.slow
@given(st.lists(records, min_size=1, max_size=6), codecs, st.none() | codecs, base_offsets, st.booleans())
def test_a_leader_takes_what_producers_build(
    table: list[Record], source: Codec, target: Codec | None, base_offset: int, stamps: bool
) -> None:
    now = 1_700_000_000_000
    rules = AppendRules(
        codec=target,
        timestamp_type="LogAppendTime" if stamps else "CreateTime",
        timestamp_after_max_ms=(1 << 63) - 1,
        max_message_bytes=1 << 30,
    )
    data = build_batch(table, codec=source)
    validated = validate_append(data, rules, base_offset=base_offset, partition_leader_epoch=3, now_ms=now)
    found = read_records(validated.data, validated.header)
    assert _contents(found) == [
        (r.key, r.value, r.headers, now if stamps else r.timestamp, base_offset + n) for n, r in enumerate(table)
    ]
    assert validated.header.codec == (source if target is None else target)
    assert validated.header.max_timestamp == (
        now if stamps else max(-1 if r.timestamp is None else r.timestamp for r in table)
    )


@given(st.lists(bare_records, min_size=1, max_size=6), old_codecs, st.sampled_from([0, 1]))
def test_a_leader_takes_old_formats_too(table: list[Record], codec: Codec, magic: int) -> None:
    old = build_message_set(table, magic=magic, codec=codec)
    rules = AppendRules(timestamp_after_max_ms=(1 << 63) - 1, max_message_bytes=1 << 30)
    validated = validate_append(old, rules, base_offset=0, partition_leader_epoch=0, now_ms=0)
    found = read_records(validated.data, validated.header)
    assert [(r.key, r.value) for r in found] == [(r.key, r.value) for r in table]
    if magic:
        assert [r.timestamp for r in found] == [r.timestamp for r in table]


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes with a few of them changed, cut, or doubled."""
    damage = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        if not damage:
            break
        at = draw(st.integers(0, len(damage) - 1))
        kind = draw(st.sampled_from(["change", "insert", "delete", "varint"]))
        if kind == "change":
            damage[at] = draw(st.integers(0, 255))
        elif kind == "insert":
            damage[at:at] = draw(st.binary(min_size=1, max_size=4))
        elif kind == "delete":
            del damage[at : at + draw(st.integers(1, 4))]
        else:
            damage[at:at] = draw(
                st.sampled_from([b"\xff" * 10 + b"\1", b"\xfe\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0f"])
            )
    return bytes(damage)


def _verdict(read: Any, data: bytes) -> Any:
    try:
        return read(data)
    except FormatError as error:
        return error.reason


@pytest.mark.slow
@settings(max_examples=settings().max_examples * 2)
@given(st.data(), st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]))
def test_decoders_agree_about_damaged_records(data: st.DataObject, codec: Codec) -> None:
    table = data.draw(st.lists(records, min_size=1, max_size=4))
    batch = build_batch(table, codec=codec)
    section = data.draw(damaged(build_batch(table)[61:]))
    sealed = seal(batch[:61], compress(codec, section))
    objects = _verdict(records_of, sealed)
    columns = _verdict(lambda piece: _decode(piece, False), sealed)
    views = _verdict(lambda piece: _decode(piece, True), sealed)
    assert columns == views
    if isinstance(objects, str):
        assert columns == objects
    else:
        # A name that is no UTF-8 keeps its bytes in an object, and shows a replacement mark in a column.
        assert [(r.key, r.value, r.timestamp, r.offset) for r in columns] == [
            (r.key, r.value, r.timestamp, r.offset) for r in objects
        ]
    rules = AppendRules(timestamp_before_max_ms=1 << 62, timestamp_type="LogAppendTime", max_message_bytes=1 << 30)
    refusal = None
    try:
        validate_append(
            sealed, rules, base_offset=0, partition_leader_epoch=0, now_ms=5, origin=AppendOrigin.COORDINATOR
        )
    except InvalidRecordError as error:
        refusal = error.reason
    # What the check lets pass can be read; what can be read may still have a timestamp that cannot be written again.
    assert refusal is None or isinstance(objects, str) or "negative" in refusal
    assert refusal is not None or not isinstance(objects, str)


@pytest.mark.slow
@settings(max_examples=settings().max_examples * 2)
@given(st.data(), codecs)
def test_damaged_bytes_never_do_more_than_raise(data: st.DataObject, codec: Codec) -> None:
    table = data.draw(st.lists(records, min_size=1, max_size=3))
    batch = data.draw(damaged(build_batch(table, codec=codec) * 2))
    for header in scan_batches(batch, check_crc=False):
        _verdict(lambda piece, header=header: read_records(piece, header), batch)
    for views in (False, True):
        with contextlib.suppress(FormatError):
            list(decode([MemorySlice(batch)], views=views, check_crc=False))
    with contextlib.suppress(BrokerError):
        validate_append(batch, AppendRules(), base_offset=0, partition_leader_epoch=0, now_ms=0)
