"""Records as lines of JSON and as CSV, made of Arrow rows, and read back into them.

    {"topic":"t","partition":0,"offset":7,"timestamp":1,"timestamp_type":"CreateTime","key":"k","value":null,"headers":[]}
    t,0,7,1,CreateTime,"k",,[]

A byte string is text if it is UTF-8; else `{"base64": "..."}` in JSON, and in CSV base64 after `base64:`. In CSV a
field with nothing in it is null, and `""` is empty; headers are JSON.
"""

from __future__ import annotations

import binascii
import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from odradek.buffers import Buffer
from odradek.columnar.encode import column_rows
from odradek.columnar.header_names import EXACT_SCHEMA
from odradek.columnar.record_schema import COLUMNS
from odradek.errors import FormatError
from odradek.inspection.record_json import head
from odradek.records.byte_text import bytes_of_text
from odradek.records.kernels.lines import LineFormatter
from odradek.records.large_section import open_section
from odradek.storage.names import TopicPartition

_BLOCK_BYTES = 1 << 20
_TIMESTAMP_TYPES = (None, "CreateTime", "LogAppendTime")
# CreateTime, LogAppendTime and null, from buffers: to convert Python's values, pyarrow imports pandas.
_KINDS = pa.Array.from_buffers(
    pa.string(),
    3,
    [pa.py_buffer(b"\3"), pa.py_buffer(array("i", [0, 10, 23, 23])), pa.py_buffer(b"CreateTimeLogAppendTime")],
)
_MAX_INT32 = (1 << 31) - 1
_MAX_INT64 = (1 << 63) - 1


class RowLines:
    """Arrow rows as lines, as `odradek.inspection.record_lines` writes records.

    Args:
        form: `jsonl` or `csv` (without `CSV_HEADING`).
    """

    def __init__(self, form: str) -> None:
        self._form = form
        self._owner: TopicPartition | None = None
        self._formatter: LineFormatter | None = None

    def lines(self, batch: pa.RecordBatch) -> Iterator[Buffer]:
        """Yield the lines of rows of one partition, block by block."""
        if not batch.num_rows:
            return
        owner = TopicPartition(batch.column("topic")[0].as_py(), batch.column("partition")[0].as_py())
        if self._formatter is None or owner != self._owner:
            start = head(self._form, owner).encode()
            self._owner = owner
            self._formatter = LineFormatter(open_section, self._form, start, max_bytes=_BLOCK_BYTES)
        kinds = pc.index_in(batch.column("timestamp_type"), _KINDS).cast(pa.uint8())
        rows, kinds_bytes, position = column_rows(batch, keep_offsets=True), kinds.buffers()[1], 0
        while position < batch.num_rows:
            position = self._formatter.format_rows(rows, memoryview(kinds_bytes).cast("B"), position)
            yield self._formatter.take()


class TextReader:
    """Parses lines of JSON, or CSV, into rows.

    A field that is missing, or null, has no value: no key, no headers, no timestamp. `topic`, `partition` and `offset`
    are null then, and the importer gives them.

    Args:
        name: The file, for errors.
        key_field: The field of a JSON object that is the key; the whole line is then the value, and the object's other
            fields have no meaning.
    """

    def __init__(self, name: str, key_field: str | None = None) -> None:
        self._name = name
        self._key_field = key_field
        self._line = 0

    def json_rows(self, lines: Sequence[bytes]) -> pa.RecordBatch:
        """Return the rows of lines of JSON; empty lines have none.

        Raises:
            FormatError: A line is not JSON, or no record.
        """
        rows = []
        for line in lines:
            self._line += 1
            if line.strip():
                rows.append(self._checked(self._json_row, line))
        return _batch(rows)

    def csv_rows(self, fields: Iterable[Sequence[str | None]]) -> pa.RecordBatch:
        """Return the rows of parsed CSV, whose columns are `COLUMNS`.

        Raises:
            FormatError: A field does not hold what it should.
        """
        rows = []
        for row in fields:
            self._line += 1
            rows.append(self._checked(self._csv_row, row))
        return _batch(rows)

    def _checked(self, parse: Any, given: Any) -> tuple[Any, ...]:
        try:
            row: tuple[Any, ...] = parse(given)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise FormatError(f"record {self._line}: {error}", path=self._name) from error
        return row

    def _json_row(self, line: bytes) -> tuple[Any, ...]:
        record = json.loads(line)
        if not isinstance(record, dict):
            raise ValueError("no JSON object")
        if self._key_field is not None:
            key = record.get(self._key_field)
            return None, None, None, None, None, _bytes_of(key), line.rstrip(b"\r\n"), []
        if "key" not in record and "value" not in record:
            raise ValueError("it has neither a key nor a value")
        headers = record.get("headers") or []
        pairs = headers.items() if isinstance(headers, dict) else headers
        return (
            _text(record, "topic"),
            _number(record.get("partition"), _MAX_INT32),
            _number(record.get("offset")),
            _number(record.get("timestamp")),
            _kind(record.get("timestamp_type")),
            _bytes_of(record.get("key")),
            _bytes_of(record.get("value")),
            [_header(pair) for pair in pairs],
        )

    def _csv_row(self, row: Sequence[str | None]) -> tuple[Any, ...]:
        topic, partition, offset, timestamp, kind, key, value, headers = row
        return (
            topic,
            None if partition is None else _number(int(partition), _MAX_INT32),
            None if offset is None else _number(int(offset)),
            None if timestamp is None else _number(int(timestamp)),
            _kind(kind),
            _csv_content(key),
            _csv_content(value),
            [_header(pair) for pair in json.loads(headers or "[]")],
        )


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
    arrays = []
    for field, column in zip(EXACT_SCHEMA, columns, strict=True):
        if pa.types.is_timestamp(field.type):
            arrays.append(pa.array(column, pa.int64()).cast(field.type))
        else:
            arrays.append(pa.array(column, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=EXACT_SCHEMA)


def _text(record: dict[str, Any], name: str) -> str | None:
    value = record.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is not text")
    if value is not None:
        # JSON may hold halves of surrogate pairs, which are no characters.
        value.encode()
    return value


def _number(value: Any, most: int = _MAX_INT64) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError(f"{value!r:.40} is not a number from 0 to {most}")
    return value


def _kind(value: Any) -> str | None:
    if value not in _TIMESTAMP_TYPES:
        raise ValueError(f"{value!r:.40} is no type of timestamp")
    kind: str | None = value
    return kind


def _bytes_of(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        return binascii.a2b_base64(value["base64"], strict_mode=True)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _csv_content(text: str | None) -> bytes | None:
    return None if text is None else bytes_of_text(text)


def _header(pair: Any) -> dict[str, Any]:
    if not isinstance(pair, (list, tuple)):
        raise ValueError(f"a header is {pair!r:.40}, not a name and a value")
    name, value = pair
    if isinstance(name, str):
        return {"key": name.encode(), "value": _bytes_of(value)}
    if not isinstance(name, dict) or list(name) != ["base64"] or not isinstance(name["base64"], str):
        raise ValueError(f"a header's name is {name!r:.40}, not text")
    return {"key": _bytes_of(name), "value": _bytes_of(value)}
