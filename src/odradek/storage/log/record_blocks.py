"""Decodes the slices of a log into records, some hundred at a time.

    slice   | batch | batch | batch | batch | batch |
            [ record, record, record ]                 small batches of v2, in one call
                                    [ record, ... ]    one that needs more: compressed, v0, v1, transactional

On the way the offsets of the batches are checked, and the records of aborted transactions are left out.

Source in Kafka: `CompletedFetch`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from odradek.errors import CorruptRecordError, FormatError, MissingRecordsError
from odradek.records.batch import each_record
from odradek.records.header import BatchHeader
from odradek.records.isolation import Isolation
from odradek.records.kernels.objects import Record, decode_run
from odradek.records.scan import scan_batches
from odradek.storage.log.aborted_part import AbortedPart
from odradek.storage.log.log_slices import SLICE_BYTES, log_slices
from odradek.storage.log.readable_log import ReadableLog
from odradek.storage.log.segment_search import SegmentSearch
from odradek.storage.segment.copies import CopySearch
from odradek.storage.segment.log_slice import LogSlice

_FIRST_SLICE_BYTES = 1 << 16
"""About how much the first slice holds that is read record by record; the next ones grow up to `SLICE_BYTES`."""

_BLOCK_RECORDS = 512
"""About how many records are decoded at a time if the batches are small."""


class BatchOrder:
    """Checks the offsets of batches against those of the batches before them, which no checksum does.

    Attributes:
        next_offset: The offset that the next batch begins with.
        path: The file of the last slice; the log's folder before the first one.
    """

    def __init__(self, start_offset: int, log: ReadableLog) -> None:
        self.next_offset = start_offset
        self.path = log.path
        self._is_first = True
        self._log = log
        self._copies = CopySearch()

    def _check_gap(self, end_offset: int, path: Path, position: int | None = None) -> None:
        # Records that were deleted meanwhile are not missing.
        missing = max(self.next_offset, self._log.log_start_offset)
        if missing < end_offset and not self._log.may_have_gaps():
            raise MissingRecordsError(missing, end_offset, path=path, position=position)

    def check(self, part: LogSlice, header: BatchHeader) -> None:
        """Pass a batch of a slice, if it follows those before it.

        Raises:
            CorruptRecordError: It begins before the end of the one before it.
            MissingRecordsError: Offsets are missing before it, though the log was never compacted.
        """
        if header.base_offset < self.next_offset and not self._is_first:
            reason = f"offset {header.base_offset} follows {self.next_offset - 1}"
            raise CorruptRecordError(reason, path=part.path, position=header.position)
        # The first offset of a wrapper (v0, v1) is only in its content.
        if header.base_offset > self.next_offset and not header.is_wrapper:
            self._check_gap(header.base_offset, part.path, header.position)
        self.pass_to(header.next_offset)

    def pass_to(self, next_offset: int) -> None:
        """Go on after batches that are known to be in order."""
        self.next_offset, self._is_first = next_offset, False

    def is_copy(self, part: LogSlice, header: BatchHeader) -> bool:
        """Whether a batch is a copy of one that was passed."""
        if self._is_first or header.base_offset >= self.next_offset:
            return False
        return self._copies.end_of_copy(part.path, header.position) is not None

    def is_at(self, offset: int | None) -> bool:
        """Whether the batches so far go up to an offset, so that none can be missing before it."""
        return self.next_offset == offset and not self._is_first

    def end(self, end_offset: int) -> None:
        """Note that there are no more batches before an offset.

        Raises:
            MissingRecordsError: Offsets are missing there, though the log was never compacted.
        """
        if self.next_offset < end_offset:
            self._check_gap(end_offset, self.path)


def record_blocks(
    log: ReadableLog,
    search: SegmentSearch,
    start: int,
    end: int,
    isolation: Isolation,
    *,
    may_start_later: bool,
    include_control: bool,
) -> Iterator[Iterable[Record]]:
    """Yield the records of a range, block by block; the first and the last block may hold records outside of the range.

    Args:
        log: The log.
        search: Looks up its segments.
        start: The first offset of the range.
        end: The offset after its last one.
        isolation: Whether records of aborted transactions are wanted.
        may_start_later: Whether to continue at the log start offset if that moves above the first offset.
        include_control: Whether control records are wanted.

    Raises:
        FormatError: A batch is corrupt; the records before it were given.
        MissingRecordsError: Offsets are missing, though the log was never compacted.
    """
    aborted = AbortedPart() if isolation == "read_committed" else None
    order = BatchOrder(start, log)
    parts = log_slices(
        log,
        search,
        start,
        end,
        SLICE_BYTES,
        may_start_later=may_start_later,
        first_bytes=_FIRST_SLICE_BYTES,
        aborted=aborted,
    )
    for part in parts:
        order.path = part.path
        scan = scan_batches(part.data, part.position, part.end_position, path=part.path, origin=part.origin)
        takes_transactions = aborted is None or aborted.is_empty
        for table in scan.tables():
            number = 0
            while number < len(table):
                records: Iterable[Record]
                records, decoded, next_offset = decode_run(
                    table, number, part.data, part.origin, order.next_offset, takes_transactions, _BLOCK_RECORDS
                )
                if decoded > number:
                    number = decoded
                    order.pass_to(next_offset)
                else:
                    header = table.header(number)
                    number += 1
                    if order.is_copy(part, header):
                        continue
                    order.check(part, header)
                    if (aborted is not None and header in aborted) or (header.is_control and not include_control):
                        continue
                    try:
                        records = each_record(part.data, header, origin=part.origin)
                    except FormatError as error:
                        raise error.at(part.path, header.position) from None
                yield records
        if scan.damage is not None and not order.is_at(part.next_offset):
            raise scan.damage
    order.end(end)
