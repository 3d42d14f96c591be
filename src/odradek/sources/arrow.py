"""Records of a source as Arrow record batches, decoded as `odradek.scan` decodes them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import pyarrow as pa

from odradek.columnar.aborted_spans import aborted_spans
from odradek.columnar.decode import DEFAULT_ROWS, MAX_TIMESTAMP, MIN_TIMESTAMP, Wanted, decode
from odradek.columnar.far_timestamps import FarTimestamps
from odradek.columnar.record_schema import SCHEMA
from odradek.places.path import PathPlace
from odradek.places.place import SLICE_BYTES, Place
from odradek.records.isolation import Isolation
from odradek.records.timestamps import TimeRange
from odradek.storage.names import TopicPartition

_ANY_TIME = TimeRange()


def record_batches(
    source: Place,
    topic_partition: TopicPartition,
    start_offset: int | None = None,
    end_offset: int | None = None,
    *,
    schema: pa.Schema = SCHEMA,
    times: TimeRange = _ANY_TIME,
    isolation: Isolation = "read_uncommitted",
    check_crc: bool = True,
    rows: int = DEFAULT_ROWS,
    slice_bytes: int = SLICE_BYTES,
    far_timestamps: FarTimestamps | None = None,
) -> Generator[pa.RecordBatch]:
    """Yield the records of a range of offsets of one partition, as a consumer is given them.

    Args:
        source: Where the partition is.
        topic_partition: The partition.
        start_offset: The first offset; the first that there is if None.
        end_offset: The offset after the last one; the end as it is now if None.
        schema: The columns, by name and type: those of `odradek.columnar.SCHEMA` (`record_schema.select`).
        times: Only records within these times. Batches outside are decoded, so look up the start first.
        isolation: `read_committed` leaves out the records of aborted and open transactions.
        check_crc: Whether each batch's checksum is verified.
        rows: The most rows of one record batch.
        slice_bytes: About how many bytes are read at a time.
        far_timestamps: What is done about timestamps that no calendar has; if None, they are given as they are.

    Raises:
        OffsetOutOfRangeError: The partition does not hold the start.
        FormatError: A batch is corrupt; the rows before it were given.
        MissingRecordsError: Offsets are missing in a folder's log that was never compacted.
        TimestampOutOfRangeError: A timestamp is far, and that is an error; the rows before it were given.
    """
    bounds = source.bounds(topic_partition, isolation)
    start = bounds.start_offset if start_offset is None else start_offset
    end = bounds.end_offset if end_offset is None else min(end_offset, bounds.end_offset)
    since_ms, until_ms = times
    wanted = Wanted(
        schema,
        *topic_partition,
        start_offset=start,
        end_offset=end,
        start_timestamp=MIN_TIMESTAMP if since_ms is None else since_ms,
        end_timestamp=MAX_TIMESTAMP if until_ms is None else until_ms,
        check_crc=check_crc,
        rows=rows,
        far_timestamps=far_timestamps,
    )
    if start >= end:
        return
    if isinstance(source, PathPlace):
        log = source.log(topic_partition)
        wanted = replace(
            wanted,
            aborted=aborted_spans(log, start, end, isolation),
            may_have_gaps=log.may_have_gaps,
            path=log.path,
        )
        yield from decode(log.slices(start_offset, end, slice_bytes=slice_bytes), wanted)
        return
    # Each answer of a broker says for itself what was aborted.
    for part in source.slices(topic_partition, start_offset, end, isolation=isolation, slice_bytes=slice_bytes):
        yield from decode([part], replace(wanted, aborted=part.aborted))
