"""A log: one partition's records, in a folder of segments.

    orders-0/  00000000000000000000.log   [0, 42)      closed
               00000000000000000042.log   [42, 99)     active: appended to
               leader-epoch-checkpoint    and the log start offset in the root's log-start-offset-checkpoint

`Log` reads, whoever wrote the folder and whether that program runs, was closed or died. Offsets are of
`[log_start_offset, log_end_offset)`; what cannot be read at the end is in `damage`, while corruption before the end is
raised where a reader comes upon it. A running Kafka may delete and replace files at any time: a file that is gone when
it is to be opened makes the log list its folder again.

Source in Kafka: `UnifiedLog`, `LocalLog`, `LogSegments`.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from odradek.errors import FormatError, LogError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from odradek.records.batch import read_records
from odradek.records.header import NO_TIMESTAMP
from odradek.records.kernels.objects import Record
from odradek.records.scan import scan_batches
from odradek.storage.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    EpochEntry,
    read_leader_epochs,
    read_offset_checkpoint,
)
from odradek.storage.index.transaction_index import AbortedTransaction
from odradek.storage.log_files import LogFiles
from odradek.storage.names import TopicPartition, parse_partition_directory
from odradek.storage.producers.transactions import AbortedRanges, Transactions
from odradek.storage.segment import Mapped, OpenSegments, Segment, TimestampedOffset

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]

_T = TypeVar("_T")
_RETRIES = 20

SLICE_BYTES = 64 << 20
"""About how much a slice holds, unless one batch is larger."""


def behind_deleted_records(segments: Sequence[Segment], epochs: Sequence[EpochEntry], start_offset: int) -> int:
    """Return the log start offset, by what the leaders' terms say of deleted records that no checkpoint knows.

    Deleting records moves the first term's start at once, while the checkpoint follows within a minute and is lost in a
    crash. Records of that very term before its start are deleted ones; others tell nothing.

    Args:
        segments: The segments by base offset.
        epochs: The leaders' terms.
        start_offset: The log start offset as far as it is known.
    """
    if not segments or not epochs or epochs[0].start_offset <= start_offset:
        return start_offset
    first = epochs[0].start_offset
    number = max(0, bisect_right(segments, first - 1, key=lambda segment: segment.base_offset) - 1)
    before = segments[number].batch_for(first - 1)
    is_deleted = (
        before is not None
        and before.base_offset < first
        and before.magic == 2
        and before.partition_leader_epoch == epochs[0].epoch
    )
    return first if is_deleted else start_offset


class LogSlice(NamedTuple):
    """Consecutive whole batches of one segment, as memory.

    Attributes:
        path: The `.log` file.
        data: The whole file, mapped.
        position: Where the first batch starts.
        end_position: Where the last batch ends.
        base_offset: No batch of the slice begins below it.
    """

    path: Path
    data: Mapped
    position: int
    end_position: int
    base_offset: int

    @property
    def size_bytes(self) -> int:
        """How many bytes the batches have."""
        return self.end_position - self.position


class Log:
    """One topic-partition, open for reading; a context manager.

    What it says of the folder is how that was when it was opened, or at the last `refresh`. Offsets count records, from
    0 on; ranges leave out their end; timestamps are ms since the epoch.

    Args:
        path: Its folder.
        log_start_offset: The checkpointed log start offset; looked up in the folder above where it is not given.
        opened: The register of open segments, shared by the logs of a log directory.
        segments: The segments, where the caller keeps account of them.

    Attributes:
        path: Its folder.
        topic_partition: Whose log it is.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        log_start_offset: int | None = None,
        opened: OpenSegments | None = None,
        segments: list[Segment] | None = None,
    ) -> None:
        self.path = Path(path)
        named = parse_partition_directory(self.path.resolve().name)
        if named is None:
            raise LogError(f"{self.path} is not named after a topic and a partition")
        self.topic_partition: TopicPartition = named.topic_partition
        self._given_start_offset = log_start_offset
        self._opened = OpenSegments() if opened is None else opened
        self._files = LogFiles(self.path, self.topic_partition, self._opened, segments=segments)
        self._start_offset: int | None = None
        self._problems: list[FormatError] = []
        self._transactions = Transactions(self._files)
        self._largest_timestamps: tuple[list[Segment], list[int]] = ([], [])

    def __repr__(self) -> str:
        return f"<Log {self.path}>"

    @property
    def segments(self) -> list[Segment]:
        """The segments, by base offset."""
        return self._files.segments

    @property
    def leader_epochs(self) -> list[EpochEntry]:
        """The leaders' terms; empty where Kafka did not note them."""
        return read_leader_epochs(self.path / LEADER_EPOCH_CHECKPOINT)

    @property
    def log_start_offset(self) -> int:
        """The first offset that readers are given: the head before it was deleted."""
        if self._start_offset is None:
            self._start_offset = self._retried(self._find_start_offset)
        return self._start_offset

    def _retried(self, action: Callable[[], _T]) -> _T:
        for _ in range(_RETRIES):
            with suppress(FileNotFoundError):
                return action()
            self.refresh()
        try:
            return action()
        except FileNotFoundError as error:
            raise self._gone(error) from error

    def _gone(self, error: FileNotFoundError) -> Exception:
        # The folder of a topic that was deleted has another name, and a log that is written to does not list it again.
        if self.path.exists():
            return error
        return UnknownTopicOrPartitionError(*self.topic_partition, path=self.path.parent)

    def _find_start_offset(self) -> int:
        if not self.segments:
            return self._given_start_offset or 0
        start_offset = self.segments[0].base_offset
        try:
            checkpointed = self._given_start_offset
            if checkpointed is None:
                checkpoint = read_offset_checkpoint(self.path.parent / LOG_START_OFFSET_CHECKPOINT)
                checkpointed = checkpoint.get(self.topic_partition, 0)
            start_offset = max(start_offset, checkpointed)
        except FormatError as error:
            self._problems.append(error)
        try:
            epochs = self.leader_epochs
        except FormatError as error:
            self._problems.append(error)
            epochs = []
        return behind_deleted_records(self.segments, epochs, start_offset)

    @property
    def log_end_offset(self) -> int:
        """The offset behind the last record, found from the last index entry on."""
        return self._retried(self._find_end_offset)

    def _find_end_offset(self) -> int:
        start_offset = self.log_start_offset
        return max(self.segments[-1].end().next_offset, start_offset) if self.segments else start_offset

    @property
    def damage(self) -> list[FormatError]:
        """What is wrong at the ends of the segments and with the checkpoints: path, position and reason of each.

        A torn last batch is what a crash leaves. Corruption in the middle of a segment is found by reading it.
        """
        _ = self.log_start_offset
        ends = self._retried(lambda: [segment.end().damage for segment in self.segments])
        return [*self._problems, *(damage for damage in ends if damage is not None)]

    @property
    def size_bytes(self) -> int:
        """How many bytes the `.log` files have."""
        return self._retried(lambda: sum(segment.path.stat().st_size for segment in self.segments))

    @property
    def last_stable_offset(self) -> int:
        """The end of what `read_committed` gives: where the oldest open transaction begins, or the log end offset."""
        stable = self._retried(lambda: self._transactions.last_stable_offset(self.log_end_offset))
        # Records of an open transaction may have been deleted; Kafka goes up to the log start offset then.
        return max(stable, self.log_start_offset)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have a record in a range."""
        return self._retried(lambda: self._transactions.aborted(start_offset, end_offset))

    def end_offset(self, isolation: Isolation = "read_uncommitted") -> int:
        """Return the end of what a reader is given: the log end offset, or the last stable offset."""
        if isolation not in {"read_uncommitted", "read_committed"}:
            raise LogError(f"isolation is read_uncommitted or read_committed, not {isolation!r}")
        return self.last_stable_offset if isolation == "read_committed" else self.log_end_offset

    def slices(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
        slice_bytes: int = SLICE_BYTES,
    ) -> Iterator[LogSlice]:
        """Give the batches that hold a range of offsets, as slices of the mapped segments.

        The first batch may begin below the range and the last may end above it; whoever decodes them leaves those
        records out, and those of `aborted_transactions`. No checksum is verified here.

        Args:
            start_offset: The first offset wanted; the log start offset where not given.
            end_offset: Behind the last offset wanted; the end of the log for this isolation where not given.
            isolation: `read_committed` ends at the last stable offset.
            slice_bytes: About how many bytes a slice has at most.

        Raises:
            OffsetOutOfRangeError: The range is not within the log.
            FormatError: Bytes within the range are no batches.
            UnknownTopicOrPartitionError: The topic was deleted meanwhile.
        """
        failures = 0
        offset = self.log_start_offset if start_offset is None else start_offset
        limit = self.end_offset(isolation)
        if offset > self.log_end_offset:
            raise self._out_of_range(offset)
        end = limit if end_offset is None else min(end_offset, limit)
        while True:
            if offset < self.log_start_offset:
                if start_offset is not None:
                    raise self._out_of_range(offset)
                offset = self.log_start_offset
            if offset >= end:
                return
            try:
                # Once mapped, the segment may be deleted: its memory stays.
                parts, next_offset = self._segment_slices(offset, end, slice_bytes)
            except FileNotFoundError as error:
                failures += 1
                if failures > _RETRIES:
                    raise self._gone(error) from error
                self.refresh()
                continue
            failures = 0
            yield from parts
            offset = next_offset

    def _out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(offset, self.log_start_offset, self.log_end_offset, log=str(self.path))

    def _segment_slices(self, offset: int, end: int, slice_bytes: int) -> tuple[list[LogSlice], int]:
        # A writer in this process puts another list in the place of this one where it rolls or deletes.
        segments = self.segments
        number = max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)
        segment = segments[number]
        data = segment.data
        if number + 1 == len(segments):
            whole = segment.end()
            segment_end_offset, next_offset, end_position = whole.next_offset, end, whole.position
        else:
            segment_end_offset = next_offset = segments[number + 1].base_offset
            end_position = len(data)
        position = segment.position_for(offset) if offset > segment.base_offset else 0
        if end < segment_end_offset:
            last = segment.batch_for(end - 1)
            if last is not None:
                end_position = last.end_position if last.base_offset < end else last.position
        bounds = segment.boundaries(position, end_position, slice_bytes)
        parts = [LogSlice(segment.path, data, start, stop, segment.base_offset) for start, stop in pairwise(bounds)]
        return parts, next_offset

    def read(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
        include_control: bool = False,
    ) -> Iterator[Record]:
        """Give the records of a range of offsets, as a consumer is given them.

        Args:
            start_offset: The first offset wanted; the log start offset where not given.
            end_offset: Behind the last offset wanted; the end of the log where not given.
            isolation: `read_committed` leaves out what is aborted or undecided.
            include_control: Whether control records are given too.

        Raises:
            OffsetOutOfRangeError: The range is not within the log.
            FormatError: A batch is corrupt; the records before it were given.
            UnknownTopicOrPartitionError: The topic was deleted meanwhile.
        """
        start = self.log_start_offset if start_offset is None else start_offset
        limit = self.end_offset(isolation)
        end = limit if end_offset is None else min(end_offset, limit)
        aborted = AbortedRanges(self.aborted_transactions(start, end) if isolation == "read_committed" else ())
        for part in self.slices(start_offset, end):
            scan = scan_batches(part.data, part.position, part.end_position, path=part.path)
            for header in scan:
                if header in aborted or (header.is_control and not include_control):
                    continue
                try:
                    records = read_records(part.data, header)
                except FormatError as error:
                    raise error.at(part.path, header.position) from None
                for record in records:
                    if record.offset is not None and start <= record.offset < end:
                        yield record
            if scan.damage is not None:
                raise scan.damage

    def find_timestamp(self, timestamp: int, end_offset: int | None = None) -> TimestampedOffset | None:
        """Return the first record whose timestamp is at or above `timestamp`, as ListOffsets answers.

        Args:
            timestamp: In ms.
            end_offset: Offsets from it on are not answered; the log end offset where not given.

        Raises:
            FormatError: A batch that has to be read is corrupt.
        """
        end = self.log_end_offset if end_offset is None else end_offset
        return self._retried(lambda: self._find_timestamp(timestamp, end))

    def _find_timestamp(self, timestamp: int, end: int) -> TimestampedOffset | None:
        start = self.log_start_offset
        segments = self.segments
        for number in range(self._first_segment_at(timestamp, segments), len(segments)):
            segment = segments[number]
            if segment.base_offset >= end:
                break
            if segment.largest_timestamp() >= timestamp:
                found = segment.find_timestamp(timestamp, start)
                if found is not None:
                    return found if found.offset < end else None
        return None

    def _first_segment_at(self, timestamp: int, segments: list[Segment]) -> int:
        """Return the number of the first segment with a timestamp at or above `timestamp`."""
        # The greatest timestamp up to each closed segment never falls, so it can be searched.
        known_of, largest = self._largest_timestamps
        if known_of is not segments:
            closed = (segment.largest_timestamp() for segment in segments[:-1])
            largest = list(accumulate(closed, max))
            self._largest_timestamps = segments, largest
        return bisect_left(largest, timestamp)

    def find_max_timestamp(self) -> TimestampedOffset | None:
        """Return the first record that has the greatest timestamp of the log; `None` where none has one.

        Raises:
            FormatError: A batch that has to be read is corrupt.
        """
        largest = self._retried(self._largest_timestamp)
        return None if largest == NO_TIMESTAMP else self.find_timestamp(largest)

    def _largest_timestamp(self) -> int:
        start = self.log_start_offset
        return max(
            (
                segment.largest_timestamp() if segment.base_offset >= start else segment.largest_timestamp_from(start)
                for segment in self.segments
            ),
            default=NO_TIMESTAMP,
        )

    def offset_for_time(self, timestamp: int, *, isolation: Isolation = "read_uncommitted") -> int | None:
        """Return the offset of the first record whose timestamp is at or above `timestamp`; `None` where there is none.

        Args:
            timestamp: In ms.
            isolation: `read_committed` answers offsets below the last stable offset only.

        Raises:
            FormatError: A batch that has to be read is corrupt.
        """
        found = self.find_timestamp(timestamp, self.end_offset(isolation))
        return None if found is None else found.offset

    def refresh(self) -> None:
        """Look at the folder again: what a writer appended, rolled, compacted or deleted."""
        self._files.refresh()
        self._transactions = Transactions(self._files)
        self._given_start_offset = None
        self._start_offset = None
        self._problems = []
        self._largest_timestamps = ([], [])

    def close(self) -> None:
        """Let go of the files. What was handed out stays valid."""
        self._files.close()

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
