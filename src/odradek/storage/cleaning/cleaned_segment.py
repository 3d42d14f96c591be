"""Writes a compacted segment, under names that mark it as not yet part of the log.

    0.log.cleaned 0.index.cleaned 0.timeindex.cleaned 0.txnindex.cleaned      synced; then see `SegmentSwap`

Source in Kafka: `Cleaner.cleanSegments`, `LogSegment`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from odradek.records.kernels.batch_filter import BatchFilter
from odradek.storage.files import FILES, Buffer, FileSystem, WritableFile
from odradek.storage.formats.transaction_index import AbortedTransaction, format_transaction
from odradek.storage.names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)


def delete_cleaned_files(directory: Path, base_offset: int, files: FileSystem = FILES) -> None:
    """Delete the `.cleaned` files of a segment, finished or not."""
    for suffix in SEGMENT_SUFFIXES:
        files.unlink(directory / segment_file_name(base_offset, suffix + CLEANED_SUFFIX))


class CleanedSegment:
    """The `.cleaned` files of a segment that compaction makes.

    Args:
        directory: The partition's folder.
        base_offset: The segment's base offset; leftovers under its name are deleted.
        files: The file system to write through.
    """

    def __init__(self, directory: Path, base_offset: int, files: FileSystem = FILES) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self._files = files
        delete_cleaned_files(directory, base_offset, files)
        self._log: WritableFile = files.open(self._path(LOG_SUFFIX))

    @property
    def size_bytes(self) -> int:
        """How many bytes of batches were written."""
        return self._log.size

    def _path(self, suffix: str) -> Path:
        return self.directory / segment_file_name(self.base_offset, suffix + CLEANED_SUFFIX)

    def write(self, batches: Buffer) -> None:
        """Append whole batches."""
        self._log.write(batches)

    def finish(self, batches: BatchFilter, aborted: Sequence[AbortedTransaction], modified_ms: int) -> None:
        """Write the indexes and bring all files to the disk.

        Args:
            batches: The filter that the batches came from; it has the entries of the indexes.
            aborted: The entries of the transaction index; if there are none, no file is made.
            modified_ms: The modification time of the files, in ms: retention uses it if there are no timestamps.
        """
        offset_index, time_index = batches.finish()
        self._log.sync()
        self._log.close()
        self._write_file(INDEX_SUFFIX, offset_index)
        self._write_file(TIME_INDEX_SUFFIX, time_index)
        if aborted:
            self._write_file(TRANSACTION_INDEX_SUFFIX, b"".join(map(format_transaction, aborted)))
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self._files.set_modified_ms(self._path(suffix), modified_ms)

    def _write_file(self, suffix: str, data: bytes) -> None:
        file = self._files.open(self._path(suffix))
        try:
            file.write(data)
            file.sync()
        finally:
            file.close()

    def abandon(self) -> None:
        """Delete what was written."""
        self._log.close()
        delete_cleaned_files(self.directory, self.base_offset, self._files)
