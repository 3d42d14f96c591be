"""A log directory as a source: what it holds, and splits that point into its segments.

    driver   lists the folder, asks the indexes, and cuts [start, end) into slices on batch boundaries
    task     opens the files of its split and decodes them; it lists nothing

If a running Kafka replaced or deleted a file meanwhile, the task sees another inode and looks its offsets up again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from odradek.columnar.aborted_spans import aborted_spans
from odradek.columnar.decode import decode_slices
from odradek.errors import FormatError, UnknownTopicOrPartitionError
from odradek.messages.uuids import format_uuid
from odradek.records.batch import read_records
from odradek.records.header import BatchHeader
from odradek.records.isolation import Isolation
from odradek.records.scan import scan_batches
from odradek.spark.open_transactions import OpenTransaction
from odradek.spark.options import SourceOptions
from odradek.spark.ranges import Bounds, DataLossError, LossCause, OffsetRange, Split, pieces
from odradek.storage.directory.gaps import may_have_gaps
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.formats.partition_metadata import PARTITION_METADATA, read_partition_metadata
from odradek.storage.log.leader_epochs import end_offset_for
from odradek.storage.log.log import Log
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.names import TopicPartition
from odradek.storage.segment.contents import Contents
from odradek.storage.segment.log_slice import LogSlice

BATCH_ROWS = 32_768
_SMALLEST_SPLIT_BYTES = 64 << 10
_SLICES_A_SPLIT = 8


class Piece(NamedTuple):
    """Whole batches of one segment, by position.

    Attributes:
        path: The `.log` file.
        inode: Its inode when the split was planned.
        position: The position of the first batch.
        end_position: The position after the last batch.
        is_stable: Whether the file will never be cut.
        next_offset: The base offset of the next segment, if the piece reaches it.
    """

    path: str
    inode: int
    position: int
    end_position: int
    is_stable: bool
    next_offset: int | None


class FolderSplit(Split):
    """Consecutive batches of one partition of a log directory.

    Attributes:
        topic: Its topic.
        partition: Its partition.
        start_offset: The first offset wanted.
        end_offset: The offset after the last one wanted.
        pieces: Where the batches are.
        aborted: Transactions to leave out: producer id, first offset, last offset.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        start_offset: int,
        end_offset: int,
        pieces: tuple[Piece, ...],
        aborted: tuple[tuple[int, int, int], ...],
    ) -> None:
        super().__init__(str(topic_partition))
        self.topic, self.partition = topic_partition
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.pieces = pieces
        self.aborted = aborted

    @property
    def size_bytes(self) -> int:
        """How many bytes the batches have."""
        return sum(piece.end_position - piece.position for piece in self.pieces)

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Decode the records of the split into batches of a schema."""
        return decode_slices(
            self._slices(),
            schema,
            topic=self.topic,
            partition=self.partition,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            aborted=self.aborted,
            start_timestamp=self.start_timestamp,
            end_timestamp=self.end_timestamp,
            rows=BATCH_ROWS,
            may_have_gaps=self._may_have_gaps,
        )

    def _may_have_gaps(self) -> bool:
        return may_have_gaps(Path(self.pieces[0].path).parent.parent, TopicPartition(self.topic, self.partition))

    def _slices(self) -> Iterator[LogSlice]:
        for piece in self.pieces:
            part = _open(piece)
            if part is None:
                # Kafka compacted or deleted files since the split was planned: offsets are still valid, positions not.
                yield from self._looked_up(piece)
                return
            yield part

    def _looked_up(self, piece: Piece) -> Iterator[LogSlice]:
        log = ReadOnlyLog(Path(piece.path).parent)
        start = max(self.start_offset, int(Path(piece.path).stem), log.log_start_offset)
        yield from log.slices(start, self.end_offset)


def _open(piece: Piece) -> LogSlice | None:
    path = Path(piece.path)
    try:
        contents = Contents(path, is_stable=piece.is_stable)
    except FileNotFoundError:
        return None
    if contents.identity[1] != piece.inode or contents.size < piece.end_position:
        return None
    base_offset = int(path.name.partition(".")[0])
    return LogSlice(path, contents, piece.position, piece.end_position, base_offset, piece.next_offset)


class Folder:
    """The topics of a log directory, as the planner asks for them.

    Args:
        path: The log directory.
        isolation: Whether a partition ends at its high watermark or at its last stable offset.
        fail_on_data_loss: Whether a log that has lost its end, because it was damaged, is an error.
    """

    def __init__(self, path: str, isolation: Isolation, *, fail_on_data_loss: bool = False) -> None:
        self._logs = LogDirectory(path.removeprefix("file:"), mode="r")
        self._isolation = isolation
        self._fail_on_data_loss = fail_on_data_loss
        self._listed = self._logs.topic_partitions()
        self._looked_at: set[TopicPartition] = set()

    def partitions(self, wanted: Callable[[str], bool]) -> list[TopicPartition]:
        """Return the partitions of the topics that are wanted, in order."""
        return sorted(name for name in self._listed if wanted(name.topic))

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """Return the log start offset and the end of each partition; partitions that do not exist are left out.

        Raises:
            DataLossError: A log ends before the offset at which it was closed, and that is an error.
        """
        there = set(self._listed)
        return {name: self._bounds(self._log(name)) for name in partitions if name in there}

    def _bounds(self, log: Log) -> Bounds:
        epochs = log.leader_epochs
        latest = epochs[-1].epoch if epochs else None
        bounds = Bounds(log.log_start_offset, log.end_offset(self._isolation), _topic_id(log), latest)
        if self._fail_on_data_loss and isinstance(log, ReadOnlyLog) and (lost := log.lost_end()) is not None:
            # Else a reader would take what is left for all that there is.
            raise DataLossError(LossCause.DAMAGE, OffsetRange(log.topic_partition, *lost), bounds)
        return bounds

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where the records of a leader epoch end; partitions that do not know the epoch are left out."""
        ends = {}
        for name, epoch in epochs.items():
            log = self._log(name)
            end = end_offset_for(log.leader_epochs, epoch, log.log_end_offset)
            if end is not None:
                ends[name] = end.start_offset
        return ends

    def open_transactions(self, partitions: Collection[TopicPartition]) -> list[OpenTransaction]:
        """Return the transactions at which readers of committed records wait, for the partitions that have one."""
        found = []
        for name in partitions:
            log = self._log(name)
            stable_offset = log.last_stable_offset
            if stable_offset < log.log_end_offset:
                part = next(log.slices(stable_offset, stable_offset + 1))
                found.append(OpenTransaction.of(name, next(_headers(part))))
        return found

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Return the first offset whose timestamp is at or after a time; None if there is no such record."""
        return {name: self._log(name).offset_for_time(time, isolation=self._isolation) for name, time in times.items()}

    def splits(self, ranges: Sequence[OffsetRange], options: SourceOptions) -> list[Split]:
        """Return the tasks that read ranges: each of about `max_split_bytes`, or less if more tasks are asked for."""
        split_bytes = options.max_split_bytes
        cut_up = pieces(ranges, options.max_split_records)
        if options.min_partitions is not None:
            whole = [list(self._slices(wanted, split_bytes)) for wanted in cut_up]
            total_bytes = sum(part.size_bytes for parts in whole for part in parts)
            split_bytes = min(split_bytes, max(_SMALLEST_SPLIT_BYTES, total_bytes // options.min_partitions))
        return [split for wanted in cut_up for split in self._partition_splits(wanted, split_bytes)]

    def _slices(self, wanted: OffsetRange, slice_bytes: int) -> Iterator[LogSlice]:
        log = self._log(wanted.topic_partition)
        return log.slices(wanted.start_offset, wanted.end_offset, isolation=self._isolation, slice_bytes=slice_bytes)

    def _partition_splits(self, wanted: OffsetRange, split_bytes: int) -> Iterator[Split]:
        name, start, end = wanted
        aborted = tuple(aborted_spans(self._log(name), start, end, self._isolation))
        groups = _even_groups(list(self._slices(wanted, max(1, split_bytes // _SLICES_A_SPLIT))), split_bytes)
        if not groups:
            return
        starts = [start, *(_first_offset(parts[0]) for parts in groups[1:]), end]
        for parts, (first, after) in zip(groups, itertools.pairwise(starts), strict=True):
            yield FolderSplit(name, first, after, _joined(parts), aborted)

    def _log(self, name: TopicPartition) -> Log:
        log = self._logs[name.topic, name.partition]
        if name not in self._looked_at:
            try:
                # This takes a tenth of what opening the log again does.
                log.refresh()
            except UnknownTopicOrPartitionError:
                # The topic was made again: this is another log.
                self._logs.refresh()
                log = self._logs[name.topic, name.partition]
            self._looked_at.add(name)
        return log

    def refresh(self) -> None:
        """List the folder again; logs are looked at again when they are next asked about."""
        self._listed = LogDirectory(self._logs.path).topic_partitions()
        self._looked_at.clear()

    def close(self) -> None:
        """Close the files."""
        self._logs.close()


def _even_groups(parts: list[LogSlice], group_bytes: int) -> list[list[LogSlice]]:
    """Group consecutive slices so that no task has much less to do than the others."""
    total_bytes = sum(part.size_bytes for part in parts)
    count = max(1, -(-total_bytes // group_bytes))
    groups: list[list[LogSlice]] = []
    shared_bytes = 0
    for part in parts:
        # A slice goes to the group that its middle falls into.
        number = min(count - 1, (shared_bytes + part.size_bytes // 2) * count // max(1, total_bytes))
        if not groups or number >= len(groups):
            groups.append([])
        groups[-1].append(part)
        shared_bytes += part.size_bytes
    return groups


def _joined(parts: list[LogSlice]) -> tuple[Piece, ...]:
    joined: list[Piece] = []
    for part in parts:
        path = str(part.path)
        if joined and joined[-1].path == path and joined[-1].end_position == part.position:
            joined[-1] = joined[-1]._replace(end_position=part.end_position, next_offset=part.next_offset)
        else:
            joined.append(Piece(path, part.inode, part.position, part.end_position, part.is_stable, part.next_offset))
    return tuple(joined)


def _topic_id(log: Log) -> str | None:
    try:
        topic_id = read_partition_metadata(log.path / PARTITION_METADATA)
    except FormatError:
        # The id is damaged; only a broker that takes the folder over needs it.
        return None
    return None if topic_id is None else format_uuid(topic_id)


def _first_offset(part: LogSlice) -> int:
    """Return the first offset of a slice, so that splits of one partition have ranges of their own."""
    header = next(_headers(part), None)
    if header is None:
        return part.base_offset
    if header.is_wrapper:
        # A compressed message has the offset of its last inner one.
        return read_records(part.data, header, origin=part.origin)[0].offset or 0
    return header.base_offset


def _headers(part: LogSlice) -> Iterator[BatchHeader]:
    return iter(
        scan_batches(part.data, part.position, part.end_position, check_crc=False, path=part.path, origin=part.origin)
    )
