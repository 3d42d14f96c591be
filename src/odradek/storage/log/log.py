"""A log: one partition's records, in a folder of segments.

    orders-0/  00000000000000000000.log   [0, 42)      closed
               00000000000000000042.log   [42, 99)     active: appended to
               leader-epoch-checkpoint    and the log start offset in the root's log-start-offset-checkpoint

`Log` is the common interface for reading: a `ReadOnlyLog` reads a folder that any program wrote, a `WritableLog` is one
that this process appends to. Offsets are in `[log_start_offset, log_end_offset)`. `damage` says what is wrong at the
end of the log; corruption before the end is raised when a reader reaches it.

Source in Kafka: `UnifiedLog`, `LocalLog`, `LogSegments`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Self

from odradek.arguments import checked_flag, checked_index, checked_int, checked_path, given_text
from odradek.closing import Closing
from odradek.errors import FormatError, LogError, OffsetOutOfRangeError
from odradek.html_table import html_or_reason, html_table
from odradek.records.header import NO_TIMESTAMP
from odradek.records.isolation import Isolation, check_isolation
from odradek.records.kernels.objects import Record
from odradek.records.timestamps import Time, TimeRange, bound_ms, time_range_ms
from odradek.storage.formats.checkpoints import EpochEntry
from odradek.storage.formats.transaction_index import AbortedTransaction
from odradek.storage.log.follow import Wakeup, followed
from odradek.storage.log.log_slices import SLICE_BYTES, log_slices, near_record, out_of_range, overlaps
from odradek.storage.log.log_state import LogState
from odradek.storage.log.record_blocks import record_blocks
from odradek.storage.log.replaced_files import retried
from odradek.storage.log.segment_search import SegmentSearch, newest_timestamp
from odradek.storage.log.tail import last_records, within
from odradek.storage.names import TopicPartition, parse_partition_directory
from odradek.storage.segment.log_slice import LogSlice
from odradek.storage.segment.segment import Segment
from odradek.storage.segment.timestamp_lookup import TimestampedOffset
from odradek.storage.uncopied import Uncopied

_SHOWN_DAMAGE = 5


class Log(Uncopied, Closing, ABC):
    """One topic-partition, open for reading; a context manager. Any thread may read it.

    Offsets count records, from 0 on; ranges leave out their end; timestamps are ms since the epoch.

    Args:
        path: Its folder.
        topic_partition: Whose log it is; None if the folder is named after it.

    Attributes:
        path: Its folder.
        topic_partition: Whose log it is.

    Raises:
        LogError: The folder is not named after a topic and a partition.
    """

    _is_only_writer = False
    """Whether only this object changes the log, so that it knows of each change."""

    def __init__(self, path: str | os.PathLike[str], topic_partition: TopicPartition | None = None) -> None:
        self.path = checked_path("path", path)
        if topic_partition is None:
            named = parse_partition_directory(self.path.resolve().name)
            if named is None:
                raise LogError(f"{self.path} is not named after a topic and a partition")
            topic_partition = named.topic_partition
        self.topic_partition = topic_partition
        self._state = LogState(self.path, topic_partition)
        self._wakeup = Wakeup()
        self._search = SegmentSearch()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path}{', closed' if self._state.is_closed else ''}>"

    def _repr_html_(self) -> str:
        return html_table(repr(self), (), ()) if self._state.is_closed else html_or_reason(repr(self), self._html)

    def _html(self) -> str:
        # Few programs draw.
        from odradek.storage.segment.timeline import segments_timeline

        plot, newest = segments_timeline(str(self.topic_partition), self.segments)
        rows = [
            ("log_start_offset", self.log_start_offset),
            ("log_end_offset", self.log_end_offset),
            ("segments", len(self.segments)),
            ("size_bytes", self.size_bytes),
            ("newest", newest),
            *(("damage", damage) for damage in self.damage[:_SHOWN_DAMAGE]),
        ]
        return f"{plot}{html_table(f'{type(self).__name__} {self.topic_partition}', (), rows)}"

    # -- what there is

    @property
    @abstractmethod
    def segments(self) -> Sequence[Segment]:
        """The segments, by base offset. When they change, a new sequence replaces this one."""

    @property
    @abstractmethod
    def leader_epochs(self) -> list[EpochEntry]:
        """The leader epochs and where they begin; empty if Kafka did not record them."""

    @property
    @abstractmethod
    def log_start_offset(self) -> int:
        """The first offset that readers are given: the head before it was deleted."""

    @property
    @abstractmethod
    def log_end_offset(self) -> int:
        """The offset after the last record."""

    @property
    @abstractmethod
    def last_stable_offset(self) -> int:
        """The end of what `read_committed` gives: where the oldest open transaction begins, or the log end offset."""

    @property
    @abstractmethod
    def damage(self) -> list[FormatError]:
        """What is wrong with the log, as far as it was looked at: path, position and reason of each."""

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have a record in a range.

        Raises:
            FormatError: The marker of a transaction is corrupt.
        """
        return self._aborted(checked_index("start_offset", start_offset), checked_index("end_offset", end_offset))

    @abstractmethod
    def _aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]: ...

    @abstractmethod
    def may_have_gaps(self) -> bool:
        """Whether offsets may be missing without a loss: the log was compacted, or that is not known."""

    @abstractmethod
    def refresh(self) -> None:
        """Look again at what a writer appended, rolled, compacted or deleted."""

    @abstractmethod
    def close(self) -> None:
        """Close the files. Records that were handed out stay valid; nothing more can be read."""

    @property
    def changes(self) -> int:
        """A number that is another one after each change of what this process knows of the log."""
        return self._wakeup.changes

    def tail_identity(self) -> tuple[Segment, int] | None:
        """Return what changes once the log's end was cut, or the log continues in another segment.

        A writer that was killed cuts the end when it starts again, and a replica when its leader has other records:
        after that, offsets that were read may have other records.
        """
        segments = self.segments
        return (segments[-1], segments[-1].rewritten) if segments else None

    @property
    def size_bytes(self) -> int:
        """How many bytes the `.log` files have."""
        return retried(self, lambda: sum(segment.path.stat().st_size for segment in self.segments))

    def end_offset(self, isolation: Isolation = "read_uncommitted") -> int:
        """Return the end of what a reader is given: the log end offset, or the last stable offset.

        Raises:
            OptionError: There is no such isolation level.
        """
        self._state.check_open()
        check_isolation(isolation)
        return self.last_stable_offset if isolation == "read_committed" else self.log_end_offset

    # -- beside a writer

    def bounds(
        self, start_offset: int | None, end_offset: int | None, isolation: Isolation = "read_uncommitted"
    ) -> tuple[int, int]:
        """Return the range of offsets to read: half-open, and within what the isolation level returns.

        Args:
            start_offset: The first offset to read; the log start offset if None.
            end_offset: The offset after the last one to read; the end for this isolation level if None, or if it is
                above that.
            isolation: `read_committed` ends at the last stable offset.

        Raises:
            OffsetOutOfRangeError: The start is below the log start offset, or above the log end offset.
            OptionError: There is no such isolation level.
            TypeError: An offset is no int.
        """
        limit, start = self.end_offset(isolation), self.log_start_offset
        if start_offset is not None:
            first, start = start, checked_index("start_offset", start_offset)
            if start < first or (start > limit and start > self.log_end_offset):
                raise out_of_range(self, start)
        return start, limit if end_offset is None else min(checked_index("end_offset", end_offset), limit)

    # -- reading

    def slices(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
        slice_bytes: int = SLICE_BYTES,
    ) -> Iterator[LogSlice]:
        """Yield the batches that hold a range of offsets, as slices of the segments, one after the other.

        The first batch may begin before the range, and the last may end after it; the caller leaves out those records,
        and those of `aborted_transactions`. Neither checksums nor the order of offsets are checked here.

        Args:
            start_offset: The first offset to read; the log start offset if None.
            end_offset: The offset after the last one to read; the end for this isolation level if None.
            isolation: `read_committed` ends at the last stable offset.
            slice_bytes: About how many bytes a slice has at most; at least 1.

        Raises:
            OffsetOutOfRangeError: The range is not within the log.
            OptionError: There is no such isolation level, or `slice_bytes` is below 1.
            FormatError: Bytes within the range are no batches.
            UnknownTopicOrPartitionError: The topic was deleted meanwhile.
            TypeError: An offset or `slice_bytes` is no int.
        """
        most_bytes = checked_int("slice_bytes", slice_bytes, 1)
        offset, end = self.bounds(start_offset, end_offset, isolation)
        yield from log_slices(self, self._search, offset, end, most_bytes, may_start_later=start_offset is None)

    def overlaps(self) -> dict[int, int]:
        """Return by base offset the first offset that is read of each segment that begins with copies.

        Copies of records that an earlier segment has, too, are given once.

        Raises:
            FileNotFoundError: A segment was deleted meanwhile.
        """
        return overlaps(self, self._search)

    def get(self, offset: int, *, isolation: Isolation = "read_uncommitted") -> Record | None:
        """Return the record at an offset. Only its batch is read.

        Args:
            offset: The offset.
            isolation: `read_committed` takes what is aborted for nothing, and what is undecided for out of range.

        Returns:
            The record; None where consumers are given none at this offset: it was compacted away, or aborted, or is a
            control record.

        Raises:
            OffsetOutOfRangeError: The offset is below the log start offset, or not below the end for this isolation.
            OptionError: There is no such isolation level.
            FormatError: The batch is corrupt.
            MissingRecordsError: The offset is left out, though the log was never compacted.
            UnknownTopicOrPartitionError: The topic was deleted.
            LogError: The log was closed.
        """
        wanted = checked_index("offset", offset)
        end, start = self.end_offset(isolation), self.log_start_offset
        if not start <= wanted < end:
            raise OffsetOutOfRangeError(wanted, start, end, log=str(self.path))
        record = near_record(self, self._search, wanted, isolation)
        return next(self.read(wanted, wanted + 1, isolation=isolation), None) if record is None else record

    def read(
        self,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        since: Time | None = None,
        until: Time | None = None,
        isolation: Isolation = "read_uncommitted",
        include_control: bool = False,
    ) -> Iterator[Record]:
        """Yield the records of a range of offsets or of times, as a consumer is given them.

        Args:
            start_offset: The first offset to read; the log start offset if None.
            end_offset: The offset after the last one to read; the end of the log if None. If it is not above the start,
                there are no records.
            since: The first point in time to read (`odradek.Time`); found through the time index.
            until: The point in time to stop before.
            isolation: `read_committed` leaves out the records of aborted and open transactions.
            include_control: Whether to yield control records too.

        Raises:
            OffsetOutOfRangeError: The range is not within the log.
            OptionError: There is no such isolation level, or a time has no time zone.
            FormatError: A batch is corrupt; the records before it have been yielded.
            MissingRecordsError: Offsets are missing, though the log was never compacted.
            UnknownTopicOrPartitionError: The topic was deleted meanwhile.
            LogError: The log was closed, possibly while reading.
            TypeError: An offset is no int, or a time is of no type of `odradek.Time`.
        """
        self._state.check_open()
        check_isolation(isolation)
        checked_flag("include_control", include_control)
        if since is None and until is None:
            return self._records(start_offset, end_offset, None, isolation, include_control)
        times = time_range_ms(since, until)
        return self.read_within(times, start_offset, end_offset, isolation=isolation, include_control=include_control)

    def read_within(
        self,
        times: TimeRange,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
        include_control: bool = False,
    ) -> Iterator[Record]:
        """Do what `read` does, for a range of times that was converted already (`time_range_ms`).

        Raises:
            TypeError: The times are none that `time_range_ms` returned.
        """
        if not isinstance(times, TimeRange):
            raise TypeError(f"times must be a range that time_range_ms returned, not {given_text(times)}")
        records = self._records(start_offset, end_offset, times.since_ms, isolation, include_control)
        if times == TimeRange():
            return records
        return within(records, *times)

    def _records(
        self,
        start_offset: int | None,
        end_offset: int | None,
        since_ms: int | None,
        isolation: Isolation,
        include_control: bool,
    ) -> Iterator[Record]:
        start, end = self.bounds(start_offset, end_offset, isolation)
        if since_ms is not None:
            found = self.find_timestamp(since_ms, end)
            if found is None:
                return
            start = max(start, found.offset)
        if start >= end:
            return
        # Who reads but one record needs no more than this.
        first = near_record(self, self._search, start, isolation)
        if first is not None:
            yield first
            start += 1
            if start >= end:
                return
        state, may_start_later = self._state, start_offset is None
        for records in record_blocks(
            self, self._search, start, end, isolation, may_start_later=may_start_later, include_control=include_control
        ):
            for record in records:
                if state.is_closed:
                    state.check_open()
                offset = record.offset
                if offset is not None and start <= offset < end:
                    yield record

    def __iter__(self) -> Iterator[Record]:
        return self.read()

    def follow(
        self, start_offset: int, *, isolation: Isolation = "read_uncommitted", timeout_ms: int | None = None
    ) -> Iterator[Record]:
        """Give the records from an offset on, and wait for more where the log ends.

        What this process appends is given at once; what another one appends, 50 ms later at most. It continues over new
        segments, and through compaction and retention. The iteration ends where its time is over and nowhere else: the
        log's end is no end, and if the log is closed or deleted that is an error.

        Args:
            start_offset: The first offset wanted; `log_end_offset` for what comes from now on.
            isolation: `read_committed` gives the records of a transaction when it is committed.
            timeout_ms: How long to wait for the next record, from when it is asked for; for ever if None.

        Raises:
            OffsetOutOfRangeError: The next offset is not in the log: it was deleted before it was read, say.
            OptionError: There is no such isolation level, or the time is negative.
            FormatError: A batch is corrupt; the records before it were given.
            UnknownTopicOrPartitionError: The topic was deleted.
            LogError: The log was closed.
        """
        self.refresh()
        start, _ = self.bounds(checked_index("start_offset", start_offset), None, isolation)
        timeout_s = None if timeout_ms is None else checked_int("timeout_ms", timeout_ms, 0) / 1000
        return followed(self, start, isolation, timeout_s, self._wakeup, is_woken=self._is_only_writer)

    def tail(self, count: int = 10, *, isolation: Isolation = "read_uncommitted") -> list[Record]:
        """Return the last records, up to a number, in the order of their offsets; only the log's end is read.

        Args:
            count: How many.
            isolation: `read_committed` leaves out what is aborted or undecided.

        Raises:
            OptionError: The count is negative, or there is no such isolation level.
            FormatError: A batch is corrupt.
            TypeError: The count is no int.
        """
        return last_records(self, count, isolation)

    # -- looking up by time

    def find_timestamp(self, timestamp: int, end_offset: int | None = None) -> TimestampedOffset | None:
        """Return the first record whose timestamp is at or above `timestamp`, as ListOffsets answers.

        Args:
            timestamp: In ms.
            end_offset: Only offsets below it are returned; the log end offset if None.

        Raises:
            FormatError: A batch that has to be read is corrupt.
            OptionError: The timestamp has more than 64 bits.
            TypeError: The timestamp or the offset is no int.
        """
        wanted_ms = checked_int("timestamp", timestamp)
        end = self.log_end_offset if end_offset is None else checked_index("end_offset", end_offset)
        return retried(self, lambda: self._search.find_timestamp(self.segments, wanted_ms, self.log_start_offset, end))

    def find_max_timestamp(self) -> TimestampedOffset | None:
        """Return the first record that has the greatest timestamp of the log; `None` if none has one.

        Raises:
            FormatError: A batch that has to be read is corrupt.
        """
        largest = retried(self, lambda: newest_timestamp(self.segments, self.log_start_offset))
        return None if largest == NO_TIMESTAMP else self.find_timestamp(largest)

    def offset_for_time(self, timestamp: Time, *, isolation: Isolation = "read_uncommitted") -> int | None:
        """Return the offset of the first record whose timestamp is at or above `timestamp`, or None.

        Args:
            timestamp: In ms, or as a datetime that has a time zone (`odradek.Time`).
            isolation: `read_committed` answers offsets below the last stable offset only.

        Raises:
            FormatError: A batch that has to be read is corrupt.
            OptionError: The time has no time zone, or there is no such isolation level.
        """
        found = self.find_timestamp(bound_ms(timestamp), self.end_offset(isolation))
        return None if found is None else found.offset

    def __enter__(self) -> Self:
        self._state.check_open()
        return self
