"""What a task reads from a log directory: splits that point into its segments.

    driver   lists the folder, asks the indexes, and cuts [start, end) into slices on batch boundaries
    task     opens the files of its split and decodes them; it lists nothing

If a running Kafka replaced or deleted a file meanwhile, the task sees another inode and looks its offsets up again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from odradek.columnar.aborted_spans import aborted_spans
from odradek.columnar.decode import decode_slices
from odradek.columnar.far_timestamps import FarTimestamps
from odradek.records.batch import read_records
from odradek.records.isolation import Isolation
from odradek.records.scan import scan_batches
from odradek.spark.options import SourceOptions
from odradek.spark.ranges import OffsetRange, Split, pieces
from odradek.storage.directory.gaps import may_have_gaps
from odradek.storage.log.read_only_log import ReadOnlyLog
from odradek.storage.names import TopicPartition
from odradek.storage.segment.contents import Contents
from odradek.storage.segment.log_slice import LogSlice

if TYPE_CHECKING:
    from odradek.places.path import PathPlace

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
        far_timestamps = FarTimestamps(self.far_timestamps, "farTimestamps")
        batches = decode_slices(
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
            far_timestamps=far_timestamps,
        )
        return far_timestamps.counted(batches)

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


class FolderSplits:
    """Plans the tasks that read a log directory.

    Args:
        place: The log directory.
        isolation: Whether a partition ends at its high watermark or at its last stable offset.
    """

    def __init__(self, place: PathPlace, isolation: Isolation) -> None:
        self._place = place
        self._isolation = isolation

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
        log = self._place.log(wanted.topic_partition)
        return log.slices(wanted.start_offset, wanted.end_offset, isolation=self._isolation, slice_bytes=slice_bytes)

    def _partition_splits(self, wanted: OffsetRange, split_bytes: int) -> Iterator[Split]:
        name, start, end = wanted
        aborted = tuple(aborted_spans(self._place.log(name), start, end, self._isolation))
        groups = _even_groups(list(self._slices(wanted, max(1, split_bytes // _SLICES_A_SPLIT))), split_bytes)
        if not groups:
            return
        starts = [start, *(_first_offset(parts[0]) for parts in groups[1:]), end]
        for parts, (first, after) in zip(groups, itertools.pairwise(starts), strict=True):
            yield FolderSplit(name, first, after, _joined(parts), aborted)


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


def _first_offset(part: LogSlice) -> int:
    """Return the first offset of a slice, so that splits of one partition have ranges of their own."""
    batches = scan_batches(
        part.data, part.position, part.end_position, check_crc=False, path=part.path, origin=part.origin
    )
    header = next(iter(batches), None)
    if header is None:
        return part.base_offset
    if header.is_wrapper:
        # A compressed message has the offset of its last inner one.
        return read_records(part.data, header, origin=part.origin)[0].offset or 0
    return header.base_offset
