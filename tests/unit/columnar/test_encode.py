"""Arrow columns to record batches: what the kernel writes is what the builder writes from the same records."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from odradek.columnar.encode import encode_batches
from odradek.columnar.record_schema import HEADERS_TYPE
from odradek.records import Record, read_records, scan_batches
from odradek.records.builder import BatchOptions, build_batch
from odradek.records.compression import Codec
from odradek.records.header import BatchHeader

KEYS = [None, b"", b"k", b"a key of more than twelve bytes", "é".encode(), None, b"last"]
VALUES = [b"v" * 300, None, b"", b"short", b"x" * 13, b"y" * 12, None]
HEADERS = [[], [("a", b"1"), ("é", None)], None, [("", b"")], [], [("long name of a header", b"z" * 40)], []]
TIMESTAMPS = [1000, None, 3000, 500, 1 << 40, 0, 7]
OFFSETS = [10, 11, 15, 16, 1000, 1001, 5000]

BINARY_TYPES = [pa.binary(), pa.large_binary(), pa.binary_view()]


def _columns(kind: pa.DataType | None = None) -> dict[str, pa.Array]:
    kind = kind or pa.binary()
    headers = [None if row is None else [{"key": name, "value": value} for name, value in row] for row in HEADERS]
    return {
        "key": pa.array(KEYS, kind),
        "value": pa.array(VALUES, kind),
        "headers": pa.array(headers, HEADERS_TYPE),
        "timestamp": pa.array(TIMESTAMPS, pa.timestamp("ms", tz="UTC")),
        "offset": pa.array(OFFSETS, pa.int64()),
    }


def _expected(start: int = 0, stop: int = 7) -> list[Record]:
    return [
        Record(KEYS[row], VALUES[row], HEADERS[row] or (), TIMESTAMPS[row], OFFSETS[row]) for row in range(start, stop)
    ]


def _batches(blocks: Any) -> tuple[bytes, list[BatchHeader]]:
    data = b"".join(blocks)
    scan = scan_batches(data)
    headers = list(scan)
    assert scan.damage is None
    return data, headers


@pytest.mark.parametrize("kind", BINARY_TYPES, ids=str)
@pytest.mark.parametrize("codec", Codec)
def test_columns_and_records_give_the_same_bytes(kind: pa.DataType, codec: Codec) -> None:
    rows = pa.record_batch(_columns(kind))
    options = BatchOptions(codec=codec, producer_id=9, producer_epoch=2, base_sequence=4, partition_leader_epoch=1)
    fields: dict[str, Any] = {
        "codec": codec,
        "producer_id": 9,
        "producer_epoch": 2,
        "base_sequence": 4,
        "partition_leader_epoch": 1,
    }
    assert list(encode_batches(rows, options, base_offset=77)) == [build_batch(_expected(), base_offset=77, **fields)]
    assert list(encode_batches(rows, options, keep_offsets=True)) == [
        build_batch(_expected(), keep_offsets=True, **fields)
    ]


@pytest.mark.parametrize("kind", BINARY_TYPES, ids=str)
@pytest.mark.parametrize("start", range(7))
def test_slices_of_columns(kind: pa.DataType, start: int) -> None:
    for stop in range(start + 1, 8):
        rows = pa.record_batch(_columns(kind)).slice(start, stop - start)
        assert b"".join(encode_batches(rows, keep_offsets=True)) == build_batch(
            _expected(start, stop), keep_offsets=True
        )


def test_a_slice_of_nested_slices() -> None:
    padded = {name: pa.concat_arrays([column[5:], column, column[:3]]) for name, column in _columns().items()}
    rows = pa.record_batch(padded).slice(1, 9).slice(1, 7)
    assert b"".join(encode_batches(rows)) == build_batch(_expected())


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("records", [1, 2, 3, 7])
def test_batches_end_after_so_many_records(codec: Codec, records: int) -> None:
    rows = pa.record_batch(_columns())
    options = BatchOptions(codec=codec, producer_id=9, producer_epoch=2, base_sequence=2**31 - 3)
    data, headers = _batches(encode_batches(rows, options, base_offset=50, max_batch_records=records))
    starts = list(range(0, 7, records))
    assert [header.base_offset for header in headers] == [50 + start for start in starts]
    assert [header.base_sequence for header in headers] == [(2**31 - 3 + start) % 2**31 for start in starts]
    read = [record for header in headers for record in read_records(data, header)]
    assert [(record.key, record.value, record.headers) for record in read] == [
        (record.key, record.value, record.headers) for record in _expected()
    ]


def test_batches_end_before_so_many_bytes_but_one_record_always_fits() -> None:
    rows = pa.record_batch({"value": pa.array([b"x" * 100] * 5 + [b"y" * 5000] + [b"x" * 100] * 5)})
    _, headers = _batches(encode_batches(rows, max_batch_bytes=300))
    assert [header.records_count for header in headers] == [2, 2, 1, 1, 2, 2, 1]
    assert max(header.size_bytes for header in headers if header.records_count == 2) <= 300


def test_a_batch_ends_before_an_offset_delta_past_32_bits() -> None:
    rows = pa.record_batch({"offset": pa.array([0, 2**31 - 1, 2**31, 2**33])})
    data, headers = _batches(encode_batches(rows, keep_offsets=True))
    assert [(header.base_offset, header.records_count) for header in headers] == [(0, 2), (2**31, 1), (2**33, 1)]
    assert [record.offset for header in headers for record in read_records(data, header)] == [
        0,
        2**31 - 1,
        2**31,
        2**33,
    ]


def test_many_blocks_are_one_run() -> None:
    rows = pa.record_batch({"value": pa.array([b"v" * 1000] * 5000)})
    blocks = list(encode_batches(rows, max_batch_records=3))
    assert len(blocks) > 2
    _, headers = _batches(blocks)
    assert [header.base_offset for header in headers] == list(range(0, 5000, 3))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"value": pa.array(["é", None])}, [Record(value="é".encode()), Record()]),
        ({"value": pa.array(["é", None], pa.large_string())}, [Record(value="é".encode()), Record()]),
        ({"value": pa.array(["é", None], pa.string_view())}, [Record(value="é".encode()), Record()]),
        ({"key": pa.array([b"ab", None], pa.binary(2))}, [Record(b"ab"), Record()]),
        ({"key": pa.array(["a", "b", "a"]).dictionary_encode()}, [Record(b"a"), Record(b"b"), Record(b"a")]),
        ({"key": pa.nulls(2), "value": pa.nulls(2), "headers": pa.nulls(2), "timestamp": pa.nulls(2)}, [Record()] * 2),
        ({"timestamp": pa.array([5, None])}, [Record(timestamp=5), Record()]),
        ({"timestamp": pa.array([5999], pa.timestamp("us"))}, [Record(timestamp=5)]),
        ({"timestamp": pa.array([5], pa.timestamp("s", tz="UTC"))}, [Record(timestamp=5000)]),
        (
            {"headers": pa.array([[("a", b"1")], []], pa.map_(pa.string(), pa.binary()))},
            [Record(headers=[("a", b"1")]), Record()],
        ),
        ({"headers": pa.array([[], []], HEADERS_TYPE)}, [Record(), Record()]),
        ({"topic": pa.array(["t"]), "value": pa.array([b"1"])}, [Record(value=b"1")]),
    ],
)
def test_other_types_of_columns(columns: dict[str, pa.Array], expected: list[Record]) -> None:
    assert b"".join(encode_batches(pa.record_batch(columns))) == build_batch(expected)


def test_no_rows_are_no_batch() -> None:
    assert list(encode_batches(pa.record_batch(_columns()).slice(0, 0))) == []


@pytest.mark.parametrize(
    ("columns", "options", "error", "reason"),
    [
        ({"value": pa.array([1])}, {}, TypeError, "'value' is int64"),
        ({"timestamp": pa.array([1.5])}, {}, TypeError, "'timestamp' is double"),
        ({"headers": pa.array([["a"]])}, {}, TypeError, "'headers' is list"),
        ({"headers": pa.array([[None]], HEADERS_TYPE)}, {}, TypeError, "header that is null"),
        (
            {"headers": pa.array([[{"key": None, "value": b""}]], HEADERS_TYPE)},
            {},
            ValueError,
            "row 0: its headers .* no name",
        ),
        ({"value": pa.array([b""])}, {"keep_offsets": True}, TypeError, "needs a column 'offset'"),
        ({"offset": pa.array([1, None])}, {"keep_offsets": True}, TypeError, "without nulls"),
        ({"offset": pa.array([5, 5])}, {"keep_offsets": True}, ValueError, "record 1 .* not above"),
        ({"offset": pa.array([5])}, {"keep_offsets": True, "base_offset": 6}, ValueError, "record 0 .* not above"),
        ({"timestamp": pa.array([1, -2])}, {}, ValueError, "record 1 .* timestamp is negative"),
    ],
)
def test_refusals(columns: dict[str, pa.Array], options: dict[str, Any], error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        list(encode_batches(pa.record_batch(columns), **options))


def test_ends_outside_of_the_data_are_refused() -> None:
    ends = struct.pack("<3i", 0, 9, 4)
    array = pa.Array.from_buffers(pa.binary(), 2, [None, pa.py_buffer(ends), pa.py_buffer(b"four")])
    with pytest.raises(ValueError, match=r"record 0 .* outside of its column"):
        list(encode_batches(pa.record_batch({"value": array})))


def test_a_negative_offset_is_no_offset() -> None:
    batch = pa.record_batch({"offset": pa.array([-1, 4], pa.int64()), "value": [b"a", b"b"]})
    with pytest.raises(ValueError, match="negative"):
        list(encode_batches(batch, BatchOptions(), keep_offsets=True))
    with pytest.raises(ValueError, match="the offset -1"):
        build_batch([Record(value=b"a", offset=-1)], keep_offsets=True)
