"""kafka-python's own record classes read what we write, and we read what they write: the same bytes, no broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.records import Record
from odradek.records.builder import build_batch
from odradek.records.compression import Codec
from odradek.testing.message_builder import build_message_set
from peers.batches import records_of

record_module = pytest.importorskip("kafka.record")
pytest.importorskip("snappy")
pytest.importorskip("xxhash")

byte_strings = st.none() | st.binary(max_size=60) | st.integers(0, 2000).map(lambda size: b"ab" * size)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=20)), max_size=3)
timestamps = st.integers(0, 1 << 50)
tables = st.lists(st.builds(Record, byte_strings, byte_strings, headers, timestamps), min_size=1, max_size=6)
bare_tables = st.lists(st.builds(Record, byte_strings, byte_strings, st.just(()), timestamps), min_size=1, max_size=6)
codecs = st.sampled_from(list(Codec))
old_codecs = st.sampled_from(list(Codec)[:4])


def _theirs(data: bytes) -> list[tuple[object, ...]]:
    batches = record_module.MemoryRecords(data)
    found: list[tuple[object, ...]] = []
    while (batch := batches.next_batch()) is not None:
        assert batch.validate_crc()
        found += [
            (record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in batch
        ]
    return found


def _ours(data: bytes) -> list[tuple[object, ...]]:
    return [(one.offset, one.timestamp, one.key, one.value, one.headers) for one in records_of(data)]


@pytest.mark.slow
@given(tables, codecs, st.integers(0, 1 << 40))
def test_they_read_our_batches(table: list[Record], codec: Codec, base_offset: int) -> None:
    data = build_batch(table, codec=codec, base_offset=base_offset)
    assert _theirs(data) == [
        (base_offset + number, record.timestamp, record.key, record.value, record.headers)
        for number, record in enumerate(table)
    ]


@given(bare_tables, old_codecs, st.sampled_from([0, 1]), st.integers(0, 1 << 40))
def test_they_read_our_messages(table: list[Record], codec: Codec, magic: int, base_offset: int) -> None:
    data = build_message_set(table, magic=magic, codec=codec, base_offset=base_offset)
    assert _theirs(data) == [
        (base_offset + number, record.timestamp if magic else None, record.key, record.value, ())
        for number, record in enumerate(table)
    ]


@pytest.mark.slow
@given(tables, codecs)
def test_we_read_their_batches(table: list[Record], codec: Codec) -> None:
    builder = record_module.MemoryRecordsBuilder(2, int(codec), 1 << 24)
    for record in table:
        builder.append(record.timestamp, record.key, record.value, list(record.headers))
    builder.close()
    data = bytes(builder.buffer())
    assert _ours(data) == [
        (number, record.timestamp, record.key, record.value, record.headers) for number, record in enumerate(table)
    ]
    if not codec:
        assert build_batch(table, partition_leader_epoch=0) == data


@given(bare_tables, old_codecs, st.sampled_from([0, 1]))
def test_we_read_their_messages(table: list[Record], codec: Codec, magic: int) -> None:
    builder = record_module.MemoryRecordsBuilder(magic, int(codec), 1 << 24)
    for record in table:
        builder.append(record.timestamp, record.key, record.value)
    builder.close()
    data = bytes(builder.buffer())
    assert _ours(data) == [
        (number, record.timestamp if magic else None, record.key, record.value, ())
        for number, record in enumerate(table)
    ]
    if not codec:
        assert build_message_set(table, magic=magic) == data
