"""Encodes Arrow record batches into Kafka's record batches: the inverse of `decode`.

    key | value | headers | timestamp | offset    ->    | batch | batch | batch | ...

Only these columns are read, and none is required. A kernel reads Arrow's buffers in place: a value is copied once, into
its batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from odradek.records.builder import MAX_INT32, BatchOptions, encode_rows
from odradek.records.header import NO_TIMESTAMP
from odradek.records.kernels.rows import ColumnRows

if TYPE_CHECKING:
    from odradek.records.kernels.rows import BytesColumn, Headers, Integers

DEFAULT_BATCH_BYTES = 1 << 20
"""The most bytes of a batch, before compression."""
_INT32_ENDS = (pa.binary(), pa.string())
_INT64_ENDS = (pa.large_binary(), pa.large_string())
_VIEWS = (pa.binary_view(), pa.string_view())


def _bytes_column(array: pa.Array, name: str) -> BytesColumn | None:
    kind = array.type
    if pa.types.is_null(kind):
        return None
    if pa.types.is_dictionary(kind):
        return _bytes_column(array.dictionary_decode(), name)
    if pa.types.is_fixed_size_binary(kind):
        return _bytes_column(array.cast(pa.binary()), name)
    if kind in _INT32_ENDS:
        layout = "int32"
    elif kind in _INT64_ENDS:
        layout = "int64"
    elif kind in _VIEWS:
        layout = "view"
    else:
        raise TypeError(f"the column {name!r} is {kind}; it must be binary or string")
    validity, slots, *blocks = array.buffers()
    if slots is None:  # an empty array may have no offsets buffer
        slots = bytes(8)
    return layout, array.offset, validity if array.null_count else None, slots, blocks


def _integers(array: pa.Array) -> Integers:
    data = array.buffers()[1]
    return array.offset, b"" if data is None else data


def _timestamps(array: pa.Array) -> Integers | None:
    kind = array.type
    if pa.types.is_null(kind):
        return None
    if pa.types.is_timestamp(kind):
        if kind.unit != "ms":
            array = array.cast(pa.timestamp("ms", tz=kind.tz), safe=False)
        array = array.view(pa.int64())
    elif not pa.types.is_integer(kind):
        raise TypeError(f"the column 'timestamp' is {kind}; it must be a timestamp or an integer (ms)")
    if array.null_count:
        array = pc.fill_null(array, NO_TIMESTAMP)
    return _integers(array.cast(pa.int64()))


def _offsets(array: pa.Array) -> Integers:
    if not pa.types.is_integer(array.type) or array.null_count:
        raise TypeError("the column 'offset' must hold integers without nulls")
    array = array.cast(pa.int64())
    if len(array) and pc.min(array).as_py() < 0:
        raise ValueError("the column 'offset' has a negative number; the first offset of a log is 0")
    return _integers(array)


def _headers(array: pa.Array) -> Headers | None:
    kind = array.type
    if pa.types.is_null(kind):
        return None
    if pa.types.is_map(kind):
        names, values = array.keys, array.items
        layout = "int32"
    elif (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_struct(kind.value_type):
        pairs = array.values
        if pairs.null_count:
            raise TypeError("the column 'headers' has a header that is null")
        if {field.name for field in kind.value_type} != {"key", "value"}:
            raise TypeError(f"the column 'headers' is {kind}; its structs must have the fields key and value")
        names, values = pairs.field("key"), pairs.field("value")
        layout = "int32" if pa.types.is_list(kind) else "int64"
    else:
        raise TypeError(f"the column 'headers' is {kind}; it must be list<struct<key: string, value: binary>>")
    if pa.types.is_null(names.type) or pa.types.is_null(values.type):
        names, values = (names.cast(pa.string()), values.cast(pa.binary()))
    name_column, value_column = _bytes_column(names, "headers.key"), _bytes_column(values, "headers.value")
    if name_column is None or value_column is None:
        return None
    validity, ends = array.buffers()[:2]
    listing = (layout, array.offset, validity if array.null_count else None, ends or bytes(8))
    return len(names), name_column, value_column, listing


def column_rows(batch: pa.RecordBatch, *, keep_offsets: bool) -> ColumnRows:
    """Return rows for the kernels that read Arrow's buffers in place.

    Args:
        batch: The rows, with any of the columns of `encode_batches`.
        keep_offsets: Whether they have the offsets in the column `offset`.

    Raises:
        TypeError: A column has a type that it cannot have.
        ValueError: An offset is negative.
    """
    names = set(batch.schema.names)

    def column(name: str, convert: Any, wanted: bool = True) -> Any:
        return convert(batch.column(name)) if wanted and name in names else None

    if keep_offsets and "offset" not in names:
        raise TypeError("keep_offsets needs a column 'offset', and there is none")
    return ColumnRows(
        batch.num_rows,
        column("key", lambda array: _bytes_column(array, "key")),
        column("value", lambda array: _bytes_column(array, "value")),
        column("timestamp", _timestamps),
        column("offset", _offsets, keep_offsets),
        column("headers", _headers),
    )


def encode_batches(
    rows: pa.RecordBatch,
    options: BatchOptions | None = None,
    *,
    base_offset: int = 0,
    keep_offsets: bool = False,
    max_batch_records: int = MAX_INT32,
    max_batch_bytes: int = DEFAULT_BATCH_BYTES,
) -> Iterator[bytes]:
    """Encode rows as record batches (v2).

    Args:
        rows: Any of the columns `key` and `value` (binary or string), `headers` (list of struct `key`, `value`),
            `timestamp` (a timestamp, or integers in ms; null is no timestamp) and `offset`.
        options: What the batches share.
        base_offset: The offset of the first row; with `keep_offsets` the smallest allowed.
        keep_offsets: Whether rows keep the offsets in the column `offset`, which must increase but may have gaps.
        max_batch_records: The most records of a batch.
        max_batch_bytes: The most bytes of a batch, before compression; a larger record gets a batch of its own.

    Returns:
        Blocks of one or more whole batches.

    Raises:
        TypeError: A column has the wrong type, or `keep_offsets` is set and there is no column `offset`.
        ValueError: A row cannot be written: its offset does not increase, its timestamp is negative, or it is too long.
    """
    return encode_rows(
        column_rows(rows, keep_offsets=keep_offsets),
        BatchOptions() if options is None else options,
        base_offset=base_offset,
        max_batch_records=max_batch_records,
        max_batch_bytes=max_batch_bytes,
    )
