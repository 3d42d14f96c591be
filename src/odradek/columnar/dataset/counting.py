"""Counts the records of a range of one log: by the headers of batches, wherever these tell.

Only a batch that lies across a bound of the range, and a compressed message of v0 or v1, is decoded. What a scan would
refuse by a header (a gap, a torn batch) is refused here too; checksums are not verified, as they cover the records.
"""

from __future__ import annotations

import pyarrow as pa

from odradek.columnar.decode import decode_slices
from odradek.errors import MissingRecordsError
from odradek.records.kernels.counts import RecordCounter
from odradek.records.scan import Status, damage_at
from odradek.storage.log.log import Log
from odradek.storage.segment.copies import CopySearch
from odradek.storage.segment.log_slice import LogSlice

_NO_COLUMNS = pa.schema([])


def count_records(log: Log, start_offset: int, end_offset: int, aborted: list[tuple[int, int, int]]) -> int:
    """Return how many records a scan of a range gives.

    Args:
        log: The log.
        start_offset: The first offset wanted.
        end_offset: The offset after the last one wanted.
        aborted: The transactions to leave out: producer id, first and last offset.

    Raises:
        FormatError: Bytes within the range are no batches.
        MissingRecordsError: Offsets are left out that must not be.
        OffsetOutOfRangeError: The range is not within the log.
    """
    counter = RecordCounter(start_offset, end_offset, aborted)
    decoded, path = 0, log.path
    for part in log.slices(start_offset, end_offset):
        path = part.path
        decoded += _count_slice(log, part, counter, start_offset, end_offset, aborted)
    if counter.expected_offset < end_offset and not log.may_have_gaps():
        raise MissingRecordsError(counter.expected_offset, end_offset, path=path)
    return counter.records + decoded


def _count_slice(
    log: Log,
    part: LogSlice,
    counter: RecordCounter,
    start_offset: int,
    end_offset: int,
    aborted: list[tuple[int, int, int]],
) -> int:
    """Count the batches of a slice; return how many records those have that had to be decoded."""
    data, decoded = memoryview(part.data), 0
    position, end = part.position - part.origin, part.end_position - part.origin
    copies = CopySearch()
    while True:
        status, position = counter.count(data, position, end)
        if status == Status.BAD_ORDER:
            end_of_copy = copies.end_of_copy(part.path, position + part.origin)
            if end_of_copy is not None:
                position = end_of_copy - part.origin
                continue
        if status == Status.COMPRESSED:
            batch = part.part(counter.batch_position + part.origin, position + part.origin)
            decoded += sum(
                rows.num_rows
                for rows in decode_slices(
                    [batch],
                    _NO_COLUMNS,
                    topic=log.topic_partition.topic,
                    partition=log.topic_partition.partition,
                    start_offset=start_offset,
                    end_offset=end_offset,
                    aborted=aborted,
                )
            )
        elif status == Status.GAP and log.may_have_gaps():
            counter.allow_gaps()
        elif status == Status.END or counter.expected_offset == part.next_offset:
            return decoded
        else:
            raise damage_at(
                status,
                part.data,
                position + part.origin,
                part.end_position,
                part.path,
                origin=part.origin,
                next_offset=counter.expected_offset,
            )
