"""`scan`: a log directory, or a part of it, as one stream of Arrow record batches.

    log directory -> partitions -> slices of segments -> decode -> pyarrow.RecordBatchReader

It returns what a consumer would get: records from the log start offset on, without control records, and with
`isolation="read_committed"` also without those of aborted and undecided transactions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

import pyarrow as pa

from odradek import system
from odradek.arguments import checked_flag, checked_int
from odradek.columnar.aborted_spans import aborted_spans
from odradek.columnar.decode import DEFAULT_ROWS, MAX_TIMESTAMP, MIN_TIMESTAMP, Wanted, decode
from odradek.columnar.far_timestamps import FarTimestamps
from odradek.columnar.read_ahead import PIECE_BYTES, ReadAhead
from odradek.columnar.record_schema import select
from odradek.errors import OffsetOutOfRangeError
from odradek.records.isolation import Isolation, check_isolation
from odradek.records.timestamps import OnFarTimestamps, Time, TimeRange, time_range_ms
from odradek.storage.directory.choice import choose
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.log.log import Log
from odradek.storage.log.log_slices import SLICE_BYTES
from odradek.storage.names import TopicPartition
from odradek.storage.segment.log_slice import LogSlice


class _Scan:
    """The arguments of one scan, and the generator over its partitions."""

    def __init__(
        self,
        schema: pa.Schema,
        isolation: Isolation,
        start_offset: int | None,
        end_offset: int | None,
        times: TimeRange,
        check_crc: bool,
        rows: int,
        threads: int,
        far_timestamps: FarTimestamps,
    ) -> None:
        self.schema = schema
        self._isolation = isolation
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._times = times
        self._check_crc = check_crc
        self._rows = rows
        self._threads = threads
        self.far_timestamps = far_timestamps

    def _partition(self, log: Log, start: int, end: int) -> tuple[Wanted, Iterator[LogSlice]] | None:
        """Return what is wanted of a partition and where it is; None if that is nothing."""
        since_ms, until_ms = self._times
        if since_ms is not None:
            found = log.find_timestamp(since_ms)
            if found is None:
                return None
            start = max(start, found.offset)
        if start >= end:
            return None
        wanted = Wanted(
            self.schema,
            topic=log.topic_partition.topic,
            partition=log.topic_partition.partition,
            start_offset=start,
            end_offset=end,
            start_timestamp=MIN_TIMESTAMP if since_ms is None else since_ms,
            end_timestamp=MAX_TIMESTAMP if until_ms is None else until_ms,
            aborted=aborted_spans(log, start, end, self._isolation),
            check_crc=self._check_crc,
            rows=self._rows,
            may_have_gaps=log.may_have_gaps,
            path=log.path,
            far_timestamps=self.far_timestamps,
        )
        return wanted, log.slices(start, end, slice_bytes=SLICE_BYTES if self._threads == 1 else PIECE_BYTES)

    def _partitions(
        self, logs: LogDirectory, chosen: list[TopicPartition]
    ) -> Iterator[tuple[Wanted, Iterator[LogSlice]]]:
        beyond: OffsetOutOfRangeError | None = None
        is_reached = False
        for topic_partition in chosen:
            log = logs[topic_partition]
            try:
                start, end = log.bounds(self._start_offset, self._end_offset, self._isolation)
            except OffsetOutOfRangeError as error:
                if error.offset < error.log_start_offset:
                    raise
                beyond = error
            else:
                is_reached = True
                partition = self._partition(log, start, end)
                if partition is not None:
                    yield partition
        if beyond is not None and not is_reached:
            raise beyond

    def batches(self, logs: LogDirectory, chosen: list[TopicPartition]) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of each partition in turn, and close the directory at the end."""
        with logs:
            if self._threads > 1:
                yield from ReadAhead(self._threads).read(self._partitions(logs, chosen))
            else:
                for wanted, slices in self._partitions(logs, chosen):
                    yield from decode(slices, wanted)


def scan(
    path: str | os.PathLike[str],
    topics: str | re.Pattern[str] | Iterable[str] | None = None,
    *,
    partitions: int | Iterable[int] | None = None,
    columns: Iterable[str] | None = None,
    start_offset: int | None = None,
    end_offset: int | None = None,
    since: Time | None = None,
    until: Time | None = None,
    isolation: Isolation = "read_uncommitted",
    views: bool = False,
    check_crc: bool = True,
    rows: int = DEFAULT_ROWS,
    threads: int | None = None,
    far_timestamps: OnFarTimestamps = "error",
) -> pa.RecordBatchReader:
    """Read a log directory as Arrow record batches.

    The directory is only read: it may belong to a broker that is running, or that died. Partitions follow one another
    by topic and number; within one, rows come in the order of their offsets.

    Args:
        path: The log directory.
        topics: A name, a pattern (`events-*`, or a compiled regular expression), or a list of them; every topic that
            is not internal to Kafka if None.
        partitions: A partition's number or several; all if None.
        columns: Names from `odradek.columnar.COLUMNS`, in the order wanted; all if None. Other columns are not
            decoded.
        start_offset: The first offset wanted, in each partition; by default the log start offset. A partition that
            ends before it gives no rows.
        end_offset: The offset after the last one wanted; by default the end of the log.
        since: The first point in time wanted (`odradek.Time`); found through the time index.
        until: The point in time after the last one wanted.
        isolation: `read_uncommitted` or `read_committed`.
        views: Give `key` and `value` as `binary_view`, which point into the mapped segments instead of copying them.
            The segments stay mapped as long as a record batch lives.
        check_crc: Whether each batch's checksum is verified.
        rows: The most rows of one record batch; none has many more than a million.
        threads: How many threads decode; as many as the process may use cores if None. More than one read ahead of who
            takes the rows: parts of about 16 MB, two more than there are threads. With 1, the caller decodes.
        far_timestamps: What is done about a timestamp outside of the years 1 to 9999, as microseconds taken for
            milliseconds are: `error`, or `null`, with a `TimestampWarning` at the end that counts them.

    Returns:
        A reader over record batches with the columns asked for: see `odradek.columnar.SCHEMA`.

    Raises:
        LogError: There is no such folder, or it cannot be read.
        UnknownTopicOrPartitionError: A topic or partition that was named does not exist.
        TypeError: A topic is neither a name nor a pattern, or a number is no int.
        OptionError: A column or the isolation level does not exist, a time has no time zone, `rows` or `threads` is
            below 1, or `far_timestamps` is something else.
        OffsetOutOfRangeError: While reading: `start_offset` is below the log start offset of a partition, or above the
            end of every partition.
        FormatError: While reading: a corrupt batch before the end of the log. The rows before it were given.
        TimestampOutOfRangeError: While reading: a timestamp outside of the years 1 to 9999. The rows before it were
            given.
    """
    check_isolation(isolation)
    job = _Scan(
        select(columns, views=checked_flag("views", views)),
        isolation,
        start_offset,
        end_offset,
        time_range_ms(since, until),
        check_crc=checked_flag("check_crc", check_crc),
        rows=checked_int("rows", rows, 1),
        threads=system.processors() if threads is None else checked_int("threads", threads, 1),
        far_timestamps=FarTimestamps(far_timestamps),
    )
    logs = LogDirectory(path, mode="r")
    try:
        chosen = choose(logs.topic_partitions(), topics, partitions, path=logs.path)
    except BaseException:
        logs.close()
        raise
    return pa.RecordBatchReader.from_batches(job.schema, job.far_timestamps.counted(job.batches(logs, chosen)))
