"""Copies a group of segments into one, without the records that the offset map and the transactions make obsolete.

    batch -> plain v2 data            compiled code decides, record by record
             compressed               decompressed, filtered, compressed again if it changed
             transactional, control   the transactions decide first
             v0, v1                   rewritten as v2, as Apache Kafka 4 does

Source in Kafka: `Cleaner.cleanSegments`, `Cleaner.cleanInto`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from odradek.errors import LogError
from odradek.records.batch import read_records
from odradek.records.builder import build_batch, build_empty_batch
from odradek.records.compression import Decompressor, compress
from odradek.records.header import V2_HEADER_BYTES, BatchHeader
from odradek.records.kernels.batch_filter import BatchFilter
from odradek.records.kernels.encode import seal
from odradek.records.kernels.objects import Record
from odradek.records.kernels.offset_map import OffsetMap
from odradek.records.payload import records_section
from odradek.records.scan import Status, damage_at
from odradek.storage.cleaning.cleanable import CleanableLog, CleaningStats, Throttle
from odradek.storage.cleaning.cleaned_transactions import CleanedTransactions
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
from odradek.storage.producers.producer_state_manager import LastRecord
from odradek.storage.segment.segment import Segment

OUTPUT_BYTES = 1 << 20
"""The number of bytes of a new segment after which they are written."""


def delete_cleaned_files(directory: Path, base_offset: int, files: FileSystem = FILES) -> None:
    """Delete the `.cleaned` files of a segment, finished or not."""
    for suffix in SEGMENT_SUFFIXES:
        files.unlink(directory / segment_file_name(base_offset, suffix + CLEANED_SUFFIX))


class CleanedSegment:
    """The files of a segment that compaction makes, under names that mark it as not yet part of the log.

        0.log.cleaned 0.index.cleaned 0.timeindex.cleaned 0.txnindex.cleaned      synced; then see `SegmentSwap`

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
        with self._files.open(self._path(suffix)) as file:
            file.write(data)
            file.sync()

    def abandon(self) -> None:
        """Delete what was written."""
        self._log.close()
        delete_cleaned_files(self.directory, self.base_offset, self._files)


def modified_ms(segment: Segment) -> int:
    """Return when the segment's file was modified, in whole milliseconds."""
    return segment.path.stat().st_mtime_ns // 1_000_000


class SegmentCleaner:
    """Cleans the groups of segments of one round.

    Args:
        log: The log.
        offsets: The newest offset of each key.
        aborted: The aborted transactions of the log, up to the end of the round.
        now_ms: The time that delete horizons are compared with, in ms.
        legacy_horizon_ms: Tombstones of v0 and v1 are removed from segments that were not modified after it, in ms.
        end_of_round: The first uncleanable offset: of the batch before it, at least the header is kept.
        files: The file system to write through.
        throttle: Limits the rate of reading and writing.
        check_done: Called now and then; it raises to stop the work.
        stats: Counts what is done.
    """

    def __init__(
        self,
        log: CleanableLog,
        offsets: OffsetMap,
        aborted: Sequence[AbortedTransaction],
        *,
        now_ms: int,
        legacy_horizon_ms: int,
        end_of_round: int,
        files: FileSystem,
        throttle: Throttle,
        check_done: Callable[[], None],
        stats: CleaningStats,
    ) -> None:
        self._log = log
        self._offsets = offsets
        self._now_ms = now_ms
        self._legacy_horizon_ms = legacy_horizon_ms
        self._end_of_round = end_of_round
        self._files = files
        self._throttle = throttle
        self._check_done = check_done
        self._stats = stats
        self._transactions = CleanedTransactions()
        self._transactions.add_aborted(aborted)
        self._decompressor = Decompressor()

    def clean_group(self, group: Sequence[Segment]) -> None:
        """Write one segment that replaces a group, and swap it in.

        Args:
            group: The segments to replace.

        Raises:
            FormatError: A batch is damaged; the segments stay as they are.
        """
        log = self._log
        writer = CleanedSegment(log.path, group[0].base_offset, self._files)
        try:
            last_records = log.last_records()
            batches = BatchFilter(
                self._offsets,
                group[0].base_offset,
                self._now_ms,
                log.config.delete_retention_ms,
                self._end_of_round,
                [last.last_data_offset for last in last_records.values() if last.last_data_offset is not None],
                log.config.index_interval_bytes,
            )
            self._transactions.retained.clear()
            for segment in group:
                self._clean_segment(segment, batches, writer, last_records)
            writer.finish(batches, self._transactions.retained, modified_ms(group[-1]))
        except BaseException:
            writer.abandon()
            raise
        self._count(batches)
        log.replace_segments(group[0].base_offset, group)

    def _count(self, batches: BatchFilter) -> None:
        stats = self._stats
        stats.bytes_read += batches.bytes_read
        stats.records_read += batches.records_read
        stats.records_kept += batches.records_kept
        stats.records_without_key += batches.records_without_key

    def _clean_segment(
        self, segment: Segment, batches: BatchFilter, writer: CleanedSegment, last_records: Mapping[int, LastRecord]
    ) -> None:
        data, position, end = segment.data, 0, segment.size_bytes
        while True:
            self._check_done()
            before = position
            status, position = batches.run(data, position, end, OUTPUT_BYTES)
            if status == Status.COMPRESSED:
                header = batches.batch
                status = self._clean_batch(segment, header, batches, last_records)
                position = header.end_position
            if status not in (Status.OK, Status.FULL, Status.END):
                if batches.overflowed:
                    raise LogError(f"{segment.path}: the segments take more than 2^31 - 1 offsets or bytes together")
                raise damage_at(status, data, batches.batch.position, end, segment.path)
            self._throttle.wait(position - before, self._check_done)
            if batches.output_size and (status == Status.END or batches.output_size >= OUTPUT_BYTES):
                self._throttle.wait(batches.output_size, self._check_done)
                writer.write(memoryview(batches.take()))
            if status == Status.END:
                return

    def _clean_batch(
        self, segment: Segment, header: BatchHeader, batches: BatchFilter, last_records: Mapping[int, LastRecord]
    ) -> int:
        """Clean one batch that is not plain data, or whose header has to be kept; return a status."""
        data = segment.data
        if header.magic < 2:
            return self._clean_messages(segment, header, batches)
        if header.is_control:
            may_go = self._transactions.on_control_batch(data, header)
            horizon_ms = header.delete_horizon_ms
            discard = may_go and horizon_ms is not None and horizon_ms <= self._now_ms
        else:
            may_go = discard = self._transactions.on_data_batch(header)
        keep_empty = header.next_offset == self._end_of_round or (
            header.has_producer_id and _is_last_of_producer(header, last_records.get(header.producer_id))
        )
        records = None
        if header.codec and not discard:
            records = records_section(data, header, self._decompressor)
        status = batches.filter_batch(data, records, discard, keep_empty, may_go and header.is_control)
        if status == Status.COMPRESSED:
            batch = batches.rebuilt()
            status = batches.add(seal(batch, compress(header.codec, memoryview(batch)[V2_HEADER_BYTES:])))
        return status

    def _clean_messages(self, segment: Segment, header: BatchHeader, batches: BatchFilter) -> int:
        """Clean a v0 or v1 message, or a wrapper with all of its messages; return a status."""
        records = read_records(segment.data, header)
        keeps_tombstones = modified_ms(segment) > self._legacy_horizon_ms
        kept = [record for record in records if self._stays(record, keeps_tombstones)]
        without_key = sum(
            record.key is None and (record.offset or 0) <= self._offsets.latest_offset for record in records
        )
        batches.count(header.size_bytes, len(records), len(kept), without_key)
        append_time = header.timestamp_type == "LogAppendTime"
        if kept:
            horizon_ms = None
            if any(record.value is None for record in kept):
                horizon_ms = self._now_ms + self._log.config.delete_retention_ms
            batch = build_batch(
                kept,
                base_offset=kept[0].offset,
                keep_offsets=True,
                codec=header.codec,
                timestamp_type="LogAppendTime" if append_time else "CreateTime",
                append_time_ms=header.max_timestamp if append_time else None,
                delete_horizon_ms=horizon_ms,
            )
            return batches.add(batch)
        if header.next_offset == self._end_of_round:
            empty = build_empty_batch(header.last_offset, header.last_offset, max_timestamp=header.max_timestamp)
            return batches.add(empty)
        return Status.OK

    def _stays(self, record: Record, keeps_tombstones: bool) -> bool:
        offset = -1 if record.offset is None else record.offset
        if offset > self._offsets.latest_offset:
            return True
        if record.key is None or offset < self._offsets.get(record.key):
            return False
        return record.value is not None or keeps_tombstones


def _is_last_of_producer(header: BatchHeader, last: LastRecord | None) -> bool:
    """Whether the batch holds an active producer's state: its last sequence, or its epoch."""
    if last is None:
        return False
    if last.last_data_offset is not None:
        return header.last_offset == last.last_data_offset
    return header.is_control and header.producer_epoch == last.producer_epoch
