"""Writes a segment and its indexes by Kafka's rules."""

from __future__ import annotations

from pathlib import Path

from odradek.records import BatchHeader
from odradek.storage.files import Buffer, FileSystem
from odradek.storage.formats.offset_index import WritableOffsetIndex
from odradek.storage.formats.time_index import WritableTimeIndex
from odradek.storage.formats.transaction_index import AbortedTransaction, WritableTransactionIndex
from odradek.storage.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)

INDEX_INTERVAL_BYTES = 4096
"""Kafka's default of `index.interval.bytes`."""


class SegmentWriter:
    """A segment that is made again.

    Args:
        directory: The folder of the partition.
        base_offset: The segment's.
        size_bytes: About how many bytes it will have.
        files: The way to the disk.
    """

    def __init__(self, directory: Path, base_offset: int, size_bytes: int, files: FileSystem) -> None:
        def name(suffix: str) -> Path:
            return directory / segment_file_name(base_offset, suffix)

        entries = size_bytes // INDEX_INTERVAL_BYTES + 3
        self._log = files.open(name(LOG_SUFFIX))
        self._index = WritableOffsetIndex(name(INDEX_SUFFIX), base_offset, entries * 8, files)
        self._time_index = WritableTimeIndex(name(TIME_INDEX_SUFFIX), base_offset, entries * 12, files)
        self._transactions = WritableTransactionIndex(name(TRANSACTION_INDEX_SUFFIX), base_offset, files)
        self._since_entry = 0
        self._greatest = (-1, base_offset)

    def append(self, batch: Buffer, header: BatchHeader) -> None:
        """Add a batch, whose bytes say what its header does."""
        if header.max_timestamp > self._greatest[0]:
            self._greatest = (header.max_timestamp, header.last_offset)
        if self._since_entry > INDEX_INTERVAL_BYTES:
            self._index.append(header.last_offset, self._log.size)
            self._time_index.maybe_append(*self._greatest)
            self._since_entry = 0
        self._log.write(batch)
        self._since_entry += header.size_bytes

    def aborted(self, transaction: AbortedTransaction) -> None:
        """Add a transaction that the last batch aborted."""
        self._transactions.append(transaction)

    def finish(self) -> None:
        """Bring all of it to the disk, and close the files."""
        if self._greatest[0] >= 0:
            self._time_index.maybe_append(*self._greatest, at_roll=True)
        for file in (self._log, self._index, self._time_index, self._transactions):
            file.sync()
        self.close()

    def close(self) -> None:
        """Close the files as they are."""
        for file in (self._log, self._index, self._time_index, self._transactions):
            file.close()
