"""Puts a compacted segment in the place of those that it was made from, so that a crash leaves the one or the other.

    0.log.cleaned ->  0.log.swap  ->  0.log                  written and synced before; see `SegmentWriter`
    0.log 7.log                   ->  0.log.deleted 7.log.deleted, unlinked later
                  ^ until here a restart throws the new segment away, from here on it completes the swap

The new segments are renamed to `.swap` from the last to the first: whoever finds a `.cleaned` takes every `.swap` at or
above its offset for unfinished.

Source in Kafka: `LocalLog.replaceSegments`, `LogSegment.changeFileSuffixes`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from odradek.records.kernels.batch_filter import BatchFilter
from odradek.storage.files import FILES, Buffer, FileSystem, WritableFile
from odradek.storage.index.transaction_index import AbortedTransaction, format_transaction
from odradek.storage.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)


def rename_segment_files(
    directory: Path, base_offset: int, old_suffix: str, new_suffix: str, files: FileSystem = FILES
) -> list[Path]:
    """Give the files of a segment another suffix; those that are missing are passed over.

    Returns:
        The files under their new names.
    """
    renamed = []
    for suffix in SEGMENT_SUFFIXES:
        source = directory / segment_file_name(base_offset, suffix + old_suffix)
        target = directory / segment_file_name(base_offset, suffix + new_suffix)
        if source.exists():
            files.rename(source, target)
            renamed.append(target)
    return renamed


def delete_cleaned_files(directory: Path, base_offset: int, files: FileSystem = FILES) -> None:
    """Delete the `.cleaned` files of a segment, finished or not."""
    for suffix in SEGMENT_SUFFIXES:
        files.unlink(directory / segment_file_name(base_offset, suffix + CLEANED_SUFFIX))


def swap_segments(
    directory: Path, new_base_offsets: Sequence[int], old_base_offsets: Collection[int], files: FileSystem = FILES
) -> list[Path]:
    """Replace segments by those whose `.cleaned` files are complete and synced.

    The caller holds the lock under which the log's list of segments changes. Producer snapshots at old base offsets
    that are not among the new ones are the caller's to delete.

    Args:
        directory: The partition's folder.
        new_base_offsets: The new segments.
        old_base_offsets: The old ones, those of the same base offsets among them.
        files: The way to the disk.

    Returns:
        The files that are to be unlinked after `file.delete.delay.ms`.
    """
    for base_offset in sorted(new_base_offsets, reverse=True):
        rename_segment_files(directory, base_offset, CLEANED_SUFFIX, SWAP_SUFFIX, files)
        # Were a later rename to reach the disk before these, a crash would lose both the old segments and a new one.
        files.sync_directory(directory)
    deleted = []
    for base_offset in sorted(old_base_offsets):
        deleted += rename_segment_files(directory, base_offset, "", DELETED_SUFFIX, files)
    files.sync_directory(directory)
    for base_offset in sorted(new_base_offsets):
        rename_segment_files(directory, base_offset, SWAP_SUFFIX, "", files)
        # One after the other: whoever finds a `.swap` removes what lies between it and the last one.
        files.sync_directory(directory)
    return deleted


class SegmentWriter:
    """Writes the `.cleaned` files of a new segment.

    Args:
        directory: The partition's folder.
        base_offset: The segment's base offset; leftovers under its name are deleted.
        files: The way to the disk.
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
        """Write the indexes and bring all to the disk.

        Args:
            batches: The filter that the batches came from; it knows the entries of the indexes.
            aborted: The entries of the transaction index; without any there is no file.
            modified_ms: The time that the files are to carry: retention falls back on it.
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
