"""What `read_committed` needs to know of a log: which transactions were aborted, and which are still open.

    snapshot at 100    producer 7 has a transaction open since 90
    segment [100, 200) | data of 7 | data of 9 | ABORT of 7 at 150 | ...      -> .txnindex: 7, 90, 150
                                    ^ 9 is open: the last stable offset

A transaction index tells the aborted transactions of its segment; where there is none, that there were none is believed
only of a segment whose producers were not transactional, and else the segment's batch headers are read.

Source in Kafka: `ProducerStateManager`, `UnifiedLog.collectAbortedTransactions`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from odradek.errors import FormatError
from odradek.records.batch import read_records
from odradek.records.control import ControlRecordType, parse_control_key
from odradek.records.header import BatchHeader
from odradek.storage.index.transaction_index import AbortedTransaction
from odradek.storage.log_files import LogFiles
from odradek.storage.names import SNAPSHOT_SUFFIX, segment_file_name
from odradek.storage.producers.producer_snapshot import NONE, ProducerSnapshotEntry, read_snapshot
from odradek.storage.segment import Segment

OpenTransactions = dict[int, int]
"""The first offset of the open transaction of each producer that has one."""


class _Scanned(NamedTuple):
    aborted: list[AbortedTransaction]
    open_at_end: OpenTransactions


class AbortedRanges:
    """Aborted transactions, to be asked whether a batch is of one."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for transaction in sorted(transactions, key=lambda transaction: transaction.first_offset):
            ranges = self._ranges.setdefault(transaction.producer_id, [])
            ranges.append((transaction.first_offset, transaction.last_offset))

    def __contains__(self, header: BatchHeader) -> bool:
        ranges = self._ranges.get(header.producer_id)
        if ranges is None or not header.is_transactional or header.is_control:
            return False
        number = bisect_right(ranges, header.base_offset, key=lambda span: span[0]) - 1
        return number >= 0 and header.base_offset <= ranges[number][1]


class Transactions:
    """The transactions of one log, as its files were when they were listed."""

    def __init__(self, files: LogFiles) -> None:
        self._files = files
        self._scanned: dict[int, _Scanned] = {}
        self._snapshots: dict[int, list[ProducerSnapshotEntry] | None] = {}

    def last_stable_offset(self, log_end_offset: int) -> int:
        """Return the first offset of the oldest open transaction, or the log end offset."""
        segments = self._files.segments
        if not segments:
            return log_end_offset
        producers = self._snapshot(log_end_offset)
        still_open = self._scan(len(segments) - 1).open_at_end if producers is None else _open_of(producers)
        return min(still_open.values(), default=log_end_offset)

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have a record in a range, by the offsets of their markers."""
        found: list[AbortedTransaction] = []
        segments = self._files.segments
        first = max(0, bisect_right(segments, start_offset, key=lambda segment: segment.base_offset) - 1)
        for number in range(first, len(segments)):
            segment = segments[number]
            if segment.base_offset >= end_offset:
                producers = self._snapshot(segment.base_offset)
                if producers is not None and min(_open_of(producers).values(), default=end_offset) >= end_offset:
                    break
            transactions, is_complete = self._of_segment(number, segment, start_offset, end_offset)
            found += transactions
            if is_complete:
                break
        return found

    def _of_segment(
        self, number: int, segment: Segment, start_offset: int, end_offset: int
    ) -> tuple[list[AbortedTransaction], bool]:
        if segment.base_offset in self._files.transaction_indexes:
            try:
                index = segment.transaction_index()
                index.check()
                return index.collect(start_offset, end_offset)
            except FormatError:
                # What the index cannot tell, the segment does.
                pass
        elif not self._may_hold_transactions(number):
            return [], False
        return [
            transaction
            for transaction in self._scan(number).aborted
            if transaction.last_offset >= start_offset and transaction.first_offset < end_offset
        ], False

    def _may_hold_transactions(self, number: int) -> bool:
        if number + 1 == len(self._files.segments):
            return True
        producers = self._snapshot(self._files.segments[number + 1].base_offset)
        return producers is None or any(
            producer.coordinator_epoch != NONE or producer.current_transaction_first_offset != NONE
            for producer in producers
        )

    def _snapshot(self, offset: int) -> list[ProducerSnapshotEntry] | None:
        """Return what the snapshot at an offset holds; `None` where there is none that can be believed."""
        if offset not in self._snapshots:
            producers = None
            if offset in self._files.snapshots:
                try:
                    producers = read_snapshot(self._files.path / segment_file_name(offset, SNAPSHOT_SUFFIX))
                except (FormatError, FileNotFoundError):
                    producers = None
            self._snapshots[offset] = producers
        return self._snapshots[offset]

    def _scan(self, number: int) -> _Scanned:
        # From the nearest segment before which everything is known: the first one, or one with a snapshot.
        start = number
        while start > 0 and start not in self._scanned and self._snapshot(self._base(start)) is None:
            start -= 1
        for current in range(start, number + 1):
            if current not in self._scanned:
                self._scanned[current] = self._scan_segment(current)
        return self._scanned[number]

    def _base(self, number: int) -> int:
        return self._files.segments[number].base_offset

    def _scan_segment(self, number: int) -> _Scanned:
        segment = self._files.segments[number]
        producers = self._snapshot(segment.base_offset)
        if producers is not None:
            still_open = _open_of(producers)
        else:
            still_open = dict(self._scanned[number - 1].open_at_end) if number else {}
        aborted = []
        for header in segment.scan(0, segment.end().position):
            if not header.is_transactional:
                continue
            if not header.is_control:
                still_open.setdefault(header.producer_id, header.base_offset)
                continue
            first_offset = still_open.pop(header.producer_id, None)
            if first_offset is not None and _is_abort(segment, header):
                stable = min(still_open.values(), default=header.next_offset)
                aborted.append(AbortedTransaction(header.producer_id, first_offset, header.last_offset, stable))
        return _Scanned(aborted, still_open)


def _open_of(producers: list[ProducerSnapshotEntry]) -> OpenTransactions:
    return {
        producer.producer_id: producer.current_transaction_first_offset
        for producer in producers
        if producer.current_transaction_first_offset != NONE
    }


def _is_abort(segment: Segment, header: BatchHeader) -> bool:
    records = read_records(segment.data, header)
    return bool(records) and parse_control_key(records[0].key) is ControlRecordType.ABORT
