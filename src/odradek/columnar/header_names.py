"""Names of headers as bytes, which is what they are in Kafka's format: other clients than Java's write any.

    list<struct<key: binary, value: binary>>   what copies records: replay, export, import
    list<struct<key: string, value: binary>>   what files hold: a name that is not UTF-8 is base64:wyg=

As in CSV, a name that begins with `base64:` is written as base64 too, so that each comes back as it was.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from odradek.columnar.record_schema import HEADERS_TYPE, SCHEMA
from odradek.records.byte_text import BASE64, bytes_of_text, text_or_base64

_NAMED_BY_BYTES = pa.list_(pa.struct([pa.field("key", pa.binary()), pa.field("value", pa.binary())]))

EXACT_SCHEMA = SCHEMA.set(SCHEMA.get_field_index("headers"), pa.field("headers", _NAMED_BY_BYTES))
"""`SCHEMA` with the names of headers as bytes."""


def _as_bytes(name: str | None) -> bytes | None:
    if name is None:
        return None
    try:
        return bytes_of_text(name)
    except ValueError:
        # Of a file that was not written here.
        return name.encode()


def names_as_text(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of `EXACT_SCHEMA` as those of `SCHEMA`."""
    names = _names(rows)
    try:
        is_text = not pc.any(pc.starts_with(names, BASE64)).as_py()
        text = names.cast(pa.string())
    except pa.ArrowInvalid:
        is_text = False
    if not is_text:
        text = pa.array([text_or_base64(name) for name in names.to_pylist()], pa.string())
    return _with_names(rows, text, HEADERS_TYPE, SCHEMA)


def names_as_bytes(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of `SCHEMA`, as a file has them, as those of `EXACT_SCHEMA`."""
    names = _names(rows)
    if pc.any(pc.starts_with(names, BASE64)).as_py():
        names = pa.array([_as_bytes(name) for name in names.to_pylist()], pa.binary())
    else:
        names = names.cast(pa.binary())
    return _with_names(rows, names, _NAMED_BY_BYTES, EXACT_SCHEMA)


def _names(rows: pa.RecordBatch) -> pa.Array:
    headers = rows.column("headers")
    return headers.values.field("key")


def _with_names(rows: pa.RecordBatch, names: pa.Array, kind: pa.DataType, schema: pa.Schema) -> pa.RecordBatch:
    headers = rows.column("headers")
    pairs = pa.StructArray.from_arrays([names, headers.values.field("value")], fields=list(kind.value_type))
    validity, ends = headers.buffers()[:2]
    renamed = pa.Array.from_buffers(
        kind, len(headers), [validity, ends], headers.null_count, headers.offset, children=[pairs]
    )
    return pa.RecordBatch.from_arrays([*rows.columns[:-1], renamed], schema=schema)
