"""A topic as DuckDB scans it: without the column that names it, and with its errors kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pds

from odradek.columnar.dataset import LogDataset
from odradek.errors import OdradekError


class TopicTable(pds.UnionDataset):  # type: ignore[misc]  # pyarrow has no types
    """The rows of one topic, for DuckDB to scan.

    To count rows DuckDB reads the first column, and strings take it ten times as long as numbers. A view adds the
    topic's name again.

    Args:
        rows: What the topic holds.
        failed: Is called with the error of a scan that failed, because DuckDB passes on its text only.
    """

    def __init__(self, rows: LogDataset, failed: Callable[[OdradekError], None]) -> None:
        schema = rows.schema.remove(rows.schema.get_field_index("topic"))
        super().__init__(schema, [pds.InMemoryDataset(schema.empty_table())])
        self._rows = rows
        self._failed = failed

    def scanner(self, columns: Sequence[str] | None = None, **options: Any) -> Scan:
        """Return what reads some columns, or all; the options are those of `LogDataset.scanner`."""
        return Scan(self._rows.scanner(self.schema.names if columns is None else columns, **options), self._failed)


class Scan:
    """A scanner that tells why it failed.

    Args:
        scanner: The scanner.
        failed: Is called with the error.
    """

    def __init__(self, scanner: pds.Scanner, failed: Callable[[OdradekError], None]) -> None:
        self._scanner = scanner
        self._failed = failed

    def to_reader(self) -> pa.RecordBatchReader:
        """Read it as record batches."""
        return pa.RecordBatchReader.from_batches(self._scanner.projected_schema, self._batches())

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._scanner.to_reader()
        except OdradekError as error:
            self._failed(error)
            raise
