"""A log directory as a target: records keep their offsets, so the end of each log says how far it has come.

    source    | 0 1 2 | 5 6 | 9           3, 4, 7 and 8 were compacted away, aborted, or markers
    target    | 0 1 2 | 3 4: empty batch | 5 6 | 7 8: empty batch | 9

Batches without records, which compaction leaves too, cover the offsets between those that have records: to a reader
nothing is missing.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from odradek.columnar.encode import encode_batches
from odradek.errors import LogError
from odradek.kafka.committed_offset import CommittedOffset
from odradek.messages.coordinators.group_records import OffsetCommitKey, encode_offset_commit
from odradek.places.group_log import append_group_records
from odradek.places.path import PathPlace
from odradek.records import Record
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import MAX_INT32, BatchOptions, build_empty_batch
from odradek.records.compression import Codec
from odradek.records.header import NO_TIMESTAMP
from odradek.records.scan import scan_batches
from odradek.records.timestamps import now_ms
from odradek.storage.directory.opening import open_log_directory
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TopicPartition
from odradek.transfer.target import PartitionWriter, Target, lasting_config, positions_of

_MOST_GAP_BATCHES = 1024
"""An empty batch covers two billion offsets; a gap that needs more batches can only be a mistake."""

_MOST_BATCH_BYTES = 900_000
"""Before compression: below the default `max.message.bytes` of a topic, so that a broker would take the batch, too."""

_LOG_APPEND_TIME = "LogAppendTime"


class FolderTarget(Target):
    """The topics of a log directory, which this target locks.

    Args:
        path: The folder; created if it is missing.
        codec: How batches are compressed.

    Raises:
        LogError: It cannot be opened, or another program has it open.
    """

    keeps_offsets = True

    def __init__(self, path: str | os.PathLike[str], *, codec: Codec = Codec.NONE) -> None:
        self.address = os.fspath(path)
        self._codec = codec
        self._lock = threading.Lock()
        self.logs = open_log_directory(path)

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has; 0 if it does not exist."""
        return sum(name.topic == topic for name in self.logs.topic_partitions())

    def ensure_topic(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Create a topic, or add the partitions that it lacks."""
        with self._lock:
            there = self.partitions(topic)
            if not there:
                self.logs.create_topic(topic, partitions, lasting_config(config))
            elif there < partitions:
                self.logs.create_partitions(topic, partitions)

    def writer(self, topic_partition: TopicPartition, stream: str) -> PartitionWriter:
        """Return what writes a partition; the log itself is the stream."""
        return FolderWriter(self.logs[topic_partition], self._codec)

    def known_positions(self) -> set[tuple[str, TopicPartition]]:
        """Return the groups and partitions that have a position in `__consumer_offsets`."""
        if not self.partitions(CONSUMER_OFFSETS_TOPIC):
            return set()
        with PathPlace(self.address) as place:
            return positions_of(place)

    def place_groups(self, topic_partition: TopicPartition, positions: Mapping[str, CommittedOffset]) -> dict[str, str]:
        """Write the positions as they are."""
        for group, committed in positions.items():
            record = encode_offset_commit(OffsetCommitKey(group, *topic_partition), committed.to_value(now_ms()))
            append_group_records(self.logs, group, [record])
        return {}

    def close(self) -> None:
        """Bring everything to the disk, and close the folder."""
        self.logs.close()


class FolderWriter(PartitionWriter):
    """Writes one log.

    Args:
        log: The log.
        codec: How batches are compressed.
    """

    def __init__(self, log: WritableLog, codec: Codec) -> None:
        self._log = log
        self._codec = codec
        self._batch_bytes = min(_MOST_BATCH_BYTES, log.config.max_segment_bytes // 2, log.config.max_message_bytes)

    def position(self) -> int | None:
        """Return the end of the log; None if nothing was ever written to it."""
        return self._log.log_end_offset or None

    def last_record(self) -> Record | None:
        """Return the log's last record."""
        return next(iter(self._log.tail(1)), None)

    def begin(self, start_offset: int) -> None:
        """Let the log begin at an offset, if it is empty."""
        if not self._log.log_end_offset and start_offset:
            self._append_gap(start_offset)
            self._log.delete_records(start_offset)

    def write(self, rows: pa.RecordBatch, next_offset: int | None = None) -> None:
        """Append records at their own offsets; those below the end of the log are there already."""
        rows = rows.slice(pc.sum(pc.less(rows.column("offset"), self._log.log_end_offset)).as_py() or 0)
        for run, options in self._runs(rows):
            for block in encode_batches(run, options, keep_offsets=True, max_batch_bytes=self._batch_bytes):
                self._append_block(block)
        if next_offset is not None:
            self._append_gap(next_offset)

    def append(self, rows: pa.RecordBatch) -> None:
        """Append records after those that are there."""
        for run, options in self._runs(rows):
            blocks = encode_batches(
                run, options, base_offset=self._log.log_end_offset, max_batch_bytes=self._batch_bytes
            )
            for block in blocks:
                self._append_block(block)

    def commit(self) -> None:
        """Do nothing: each append is complete, and closing the folder brings all of them to the disk."""

    def close(self) -> None:
        """Do nothing: the folder closes the log."""

    def _append_block(self, block: bytes) -> None:
        view = memoryview(block)
        headers = list(scan_batches(view, 0, len(view), check_crc=False))
        is_gapless = all(before.next_offset == after.base_offset for before, after in itertools.pairwise(headers))
        if is_gapless and len(view) <= self._log.config.max_segment_bytes:
            self._append_gap(headers[0].base_offset)
            self._replicate(view)
            return
        for header in headers:
            self._append_gap(header.base_offset)
            self._replicate(view[header.position : header.end_position])

    def _append_gap(self, end_offset: int) -> None:
        """Append batches without records up to an offset."""
        if end_offset - self._log.log_end_offset > _MOST_GAP_BATCHES * MAX_INT32:
            raise LogError(
                f"{self._log.path}: offset {end_offset} is too far after its end, {self._log.log_end_offset}"
            )
        while (start := self._log.log_end_offset) < end_offset:
            last = min(end_offset - 1, start + MAX_INT32)
            self._replicate(build_empty_batch(start, last, partition_leader_epoch=self._log.leader_epoch))

    def _replicate(self, batches: bytes | memoryview) -> None:
        self._log.append_batches(batches, origin=AppendOrigin.REPLICATION)

    def _runs(self, rows: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, BatchOptions]]:
        """Cut rows where a batch has to end: the records of a batch share the time of an append."""
        create = BatchOptions(codec=self._codec, partition_leader_epoch=self._log.leader_epoch)
        if not rows.num_rows:
            return
        kinds = rows.column("timestamp_type") if "timestamp_type" in rows.schema.names else None
        stamped = None if kinds is None else pc.fill_null(pc.equal(kinds, _LOG_APPEND_TIME), False)
        if stamped is None or not pc.any(stamped).as_py():
            yield rows, create
            return
        times = pc.fill_null(rows.column("timestamp").cast(pa.timestamp("ms", tz="UTC")).view(pa.int64()), NO_TIMESTAMP)
        # Records without an append time need not be cut: they count as one run, whatever their times are.
        runs = pc.run_end_encode(pc.if_else(stamped, times, NO_TIMESTAMP))
        start = 0
        for end, time in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            options = create
            if time != NO_TIMESTAMP:
                options = BatchOptions(
                    codec=self._codec,
                    partition_leader_epoch=self._log.leader_epoch,
                    timestamp_type=_LOG_APPEND_TIME,
                    append_time_ms=time,
                )
            yield rows.slice(start, end - start), options
            start = end
