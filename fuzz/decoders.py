"""The readers of batches, asked about the same bytes: what one refuses all refuse, with the same words and place."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from odradek.columnar import decode_slices, select
from odradek.errors import FormatError
from odradek.records import Record, read_records, scan_batches
from odradek.records.header import BatchHeader
from odradek.records.kernels.checksums import crc32c

PATH = Path("fuzz.log")
LIMIT = 1 << 20
"""What a batch may decompress to, here."""

Row = tuple[Any, ...]
Verdict = tuple[list[Row], str | None]


@dataclass(frozen=True)
class Slice:
    """Memory as a slice of a segment."""

    data: memoryview
    path: Path = PATH
    position: int = 0
    origin: int = 0
    next_offset: int | None = None

    @property
    def end_position(self) -> int:
        return len(self.data)


def row_of(record: Record) -> Row:
    """Return a record as columns show it: names that are no UTF-8 with replacement marks, no -1."""
    headers = [(name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), v) for name, v in record.headers]
    timestamp = record.timestamp
    return record.offset, timestamp, record.timestamp_type, record.key, record.value, headers


def words(error: FormatError) -> str:
    """Return what an error says, its file aside."""
    place = "" if error.position is None else f" at {error.position}"
    return f"{type(error).__name__}{place}: {error.reason}"


def difference(found: list[Row], wanted: list[Row]) -> str:
    """Return the first rows that differ, for people."""
    for number, (one, other) in enumerate(zip(found, wanted, strict=False)):
        if one != other:
            return f"row {number} is {str(one)[:300]} instead of {str(other)[:300]}"
    return f"{len(found)} rows instead of {len(wanted)}"


def sums_hold(data: memoryview, header: BatchHeader) -> bool:
    """Compute the checksum of a batch by other means than its reader."""
    batch = bytes(data[header.position : header.end_position])
    return (crc32c(batch[21:]) if header.magic == 2 else zlib.crc32(batch[16:])) == header.crc


def by_objects(data: memoryview, *, check_crc: bool = True) -> tuple[list[Row], str | None, list[BatchHeader]]:
    """Read all records as objects, up to what cannot be read."""
    rows: list[Row] = []
    headers: list[BatchHeader] = []
    scan = scan_batches(data, check_crc=check_crc)
    position = 0
    for header in scan:
        assert header.position == position, "a gap between batches"
        assert header.end_position <= len(data), "a batch past the end"
        assert not check_crc or sums_hold(data, header), "a batch with a wrong checksum"
        position = header.end_position
        try:
            rows += map(row_of, read_records(data, header, check_crc=check_crc, limit=LIMIT))
        except FormatError as error:
            return rows, words(error), headers
        headers.append(header)
    return rows, None if scan.damage is None else words(scan.damage), headers


def by_columns(data: memoryview, *, views: bool = False, columns: Any = None, **options: Any) -> Verdict:
    """Read all records as columns, up to what cannot be read."""
    schema = select(columns, views=views)
    rows: list[Row] = []
    error = None
    try:
        for batch in decode_slices(
            [Slice(data)],
            schema,
            **{"topic": "t", "partition": 0, "include_control": True, "limit": LIMIT, **options},
        ):
            batch.validate(full=True)
            found = []
            for name in schema.names:
                array = batch.column(name)
                if name == "timestamp":
                    array = array.cast(pa.int64())
                values = array.to_pylist()
                if name == "headers":
                    values = [[(header["key"], header["value"]) for header in pairs] for pairs in values]
                if name not in ("topic", "partition"):
                    found.append(values)
            rows += zip(*found, strict=True)
    except FormatError as refusal:
        assert refusal.path == str(PATH), "an error without the file's name"
        error = words(refusal)
    return rows, error
