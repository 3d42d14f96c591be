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
from odradek.storage.segment.index_builder import IndexBuilder
from odradek.storage.topic_config import TopicConfig

_INDEX_INTERVAL_BYTES = TopicConfig().index_interval_bytes


class SalvagedSegment:
    """A new segment with the batches of a damaged one.

    Args:
        directory: The folder of the partition.
        base_offset: The segment's base offset.
        size_bytes: About how many bytes it will have.
        files: The file system to write through.
    """

    def __init__(self, directory: Path, base_offset: int, size_bytes: int, files: FileSystem) -> None:
        def name(suffix: str) -> Path:
            return directory / segment_file_name(base_offset, suffix)

        entries = size_bytes // _INDEX_INTERVAL_BYTES + 3
        self._log = files.open(name(LOG_SUFFIX))
        self._index = WritableOffsetIndex(name(INDEX_SUFFIX), base_offset, entries * 8, files)
        self._time_index = WritableTimeIndex(name(TIME_INDEX_SUFFIX), base_offset, entries * 12, files)
        self._transactions = WritableTransactionIndex(name(TRANSACTION_INDEX_SUFFIX), base_offset, files)
        self._builder = IndexBuilder(self._index, self._time_index, _INDEX_INTERVAL_BYTES)

    def append(self, batch: Buffer, header: BatchHeader) -> None:
        """Add a batch, whose bytes say what its header does."""
        self._builder.add((header,))
        self._log.write(batch)

    def aborted(self, transaction: AbortedTransaction) -> None:
        """Add a transaction that was aborted by the last batch."""
        self._transactions.append(transaction)

    def finish(self) -> None:
        """Bring all files to the disk, and close them."""
        self._builder.finish()
        for file in (self._log, self._index, self._time_index, self._transactions):
            file.sync()
        self.close()

    def close(self) -> None:
        """Close the files as they are."""
        for file in (self._log, self._index, self._time_index, self._transactions):
            file.close()
