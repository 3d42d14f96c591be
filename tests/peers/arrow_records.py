"""Rows of Arrow as records again, so that the two readers can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from odradek.columnar import decode_slices, select
from odradek.records import Record


@dataclass(frozen=True)
class MemorySlice:
    """A segment in memory: what `decode_slices` takes."""

    data: bytes
    path: Path = Path("a.log")
    position: int = 0
    origin: int = 0

    @property
    def end_position(self) -> int:
        """Where the last batch ends."""
        return len(self.data)


def as_records(batches: Iterable[pa.RecordBatch]) -> Iterable[Record]:
    """Yield each row as a record, after a full validation of its batch."""
    for batch in batches:
        batch.validate(full=True)
        # As numbers: Python's own dates end with the year 9999.
        timestamps = batch["timestamp"].cast(pa.int64()).to_pylist()
        for row, timestamp in zip(batch.drop_columns(["timestamp"]).to_pylist(), timestamps, strict=True):
            headers = [(header["key"], header["value"]) for header in row["headers"]]
            yield Record(row["key"], row["value"], headers, timestamp, row["offset"], row["timestamp_type"])


def decode(slices: Iterable[Any], *, views: bool = False, **options: Any) -> Iterable[Record]:
    """Yield the records of segments by way of columns, control records among them."""
    options = {"topic": "t", "partition": 0, "include_control": True, **options}
    return as_records(decode_slices(slices, select(views=views), **options))
