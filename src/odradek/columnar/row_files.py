"""Writers of rows into files, and the writer of Parquet, which exports and the console share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from odradek.columnar.record_schema import SCHEMA

_GROUP_BYTES = 32 << 20
_GROUP_ROWS = 1 << 18


class RowWriter(ABC):
    """Writes rows into a file, which the caller closes after `finish`.

    Args:
        out: The file.
    """

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    @property
    def size_bytes(self) -> int:
        """About how many bytes were written."""
        return self._out.tell()

    @abstractmethod
    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows."""

    @abstractmethod
    def finish(self) -> None:
        """Write the remaining rows."""

    def drop(self) -> None:  # noqa: B027 - most have nothing to do
        """Discard the rows that are not written yet."""


class ParquetWriter(RowWriter):
    """Writes Parquet, compressed with zstd, row group by row group.

    Args:
        out: The file.
        group_bytes: The size of a row group, which is held in memory until it is written.
    """

    def __init__(self, out: BinaryIO, group_bytes: int = _GROUP_BYTES) -> None:
        super().__init__(out)
        # Not for keys and values: their dictionary would usually become too large, and be dropped.
        self._writer = pq.ParquetWriter(
            out, SCHEMA, compression="zstd", use_dictionary=["topic", "timestamp_type"], write_page_index=False
        )
        self._group_bytes = group_bytes
        self._rows: list[pa.RecordBatch] = []
        self._bytes = self._count = 0

    @property
    def size_bytes(self) -> int:
        """About how many bytes were written."""
        # Rows in memory count too: with a file for each date there are many.
        return super().size_bytes + self._bytes

    def write(self, rows: pa.RecordBatch) -> None:
        """Write rows."""
        self._rows.append(rows)
        self._bytes += rows.nbytes
        self._count += rows.num_rows
        if self._bytes >= self._group_bytes or self._count >= _GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._rows), row_group_size=self._count)
            self._rows, self._bytes, self._count = [], 0, 0

    def finish(self) -> None:
        """Write the remaining rows, and the end of the file."""
        self._flush()
        self._writer.close()

    def drop(self) -> None:
        """Discard what was not written."""
        # Otherwise pyarrow would write to the closed file when the writer is collected, and print an error.
        self._writer.is_open = False
