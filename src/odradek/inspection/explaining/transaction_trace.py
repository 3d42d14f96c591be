"""Which transaction a batch is in, how that ended, and which transactions are still open.

    | data of 7 | data of 9 | ABORT of 7 | ...        a record of 7: aborted at the marker; from 9 on: undecided

Only the headers of the batches of transactions are read, from the last producer snapshot before the batch on.

Source in Kafka: `ProducerStateManager`, `TransactionIndex`.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.errors import FormatError
from odradek.inspection.entry_listing import read_transaction_index
from odradek.inspection.live_segments import LiveSegment
from odradek.inspection.log_files import FileKind, LogFile
from odradek.records import BatchHeader, scan_batches
from odradek.records.control import ControlRecordType
from odradek.storage import names
from odradek.storage.formats.producer_snapshot import NONE, read_snapshot
from odradek.storage.formats.transaction_index import parse_transaction_index
from odradek.storage.producers.open_transactions import OpenTransactions
from odradek.storage.producers.producer_state import read_marker
from odradek.storage.segment.batch_reader import BatchReader, mapped


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An entry of an index.

    Attributes:
        path: The file.
        number: The entry, counted from 0.
        key: What is looked up in it: an offset, a timestamp, or of a transaction index a producer id.
        value: What it gives: a position, an offset, or of a transaction index the offset of the ABORT marker.
    """

    path: Path
    number: int
    key: int
    value: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction in one partition.

    Attributes:
        producer_id: Its producer.
        first_offset: Where it begins; None if that is not in the log any more.
        marker_offset: The offset of the marker that ends it; None if it is open.
        is_aborted: Whether that marker aborts it.
        index_entry: The entry of the transaction index that says so; None if there is none, or none is needed.
    """

    producer_id: int
    first_offset: int | None
    marker_offset: int | None = None
    is_aborted: bool = False
    index_entry: IndexEntry | None = None


@dataclass(frozen=True, slots=True)
class TransactionTrace:
    """What the batches of a log say about its transactions.

    Attributes:
        transaction: That of the batch; None if it is in none.
        open_since: Where the oldest open transaction begins; None if none is open.
        open_producer_id: The producer of that one.
        is_certain: Whether all bytes could be read in which a marker may be.
    """

    transaction: Transaction | None
    open_since: int | None
    open_producer_id: int | None
    is_certain: bool


def trace_transactions(segments: Sequence[LiveSegment], number: int, batch: BatchHeader | None) -> TransactionTrace:
    """Find out which transaction a batch is in, and which are open at the end of the log.

    Args:
        segments: All segments of the log, in order.
        number: Which of them holds the batch.
        batch: The batch; None if only the open transactions are asked for.
    """
    wanted = batch if batch is not None and batch.is_transactional and batch.has_producer_id else None
    last = len(segments) - 1
    start, opened = _start(segments, number if wanted is not None else last)
    found: Transaction | None = None
    is_certain = True
    for current in range(start, len(segments)):
        segment = segments[current]
        try:
            with mapped(segment.path) as data:
                for header in _transactional(segment.path, data):
                    if header is None:
                        is_certain = False
                        continue
                    is_wanted = wanted is not None and current == number and header.position == wanted.position
                    if not header.is_control:
                        opened.data(header)
                        if is_wanted:
                            found = Transaction(header.producer_id, opened.first_offsets[header.producer_id])
                        continue
                    if not header.is_marker:
                        continue
                    first_offset = opened.end(header)
                    if is_wanted:
                        found = Transaction(header.producer_id, first_offset)
                    if found is None or found.producer_id != header.producer_id or found.marker_offset is not None:
                        continue
                    is_aborted = _is_abort(data, header)
                    entry = _index_entry(segment, header) if is_aborted else None
                    found = Transaction(found.producer_id, found.first_offset, header.base_offset, is_aborted, entry)
        except (FormatError, OSError):
            is_certain = False
    since = opened.since
    producer_id = next((name for name, offset in opened.first_offsets.items() if offset == since), None)
    return TransactionTrace(found, since, producer_id, is_certain)


def _start(segments: Sequence[LiveSegment], number: int) -> tuple[int, OpenTransactions]:
    """Return the last segment up to one at whose base offset the open transactions are known, and these."""
    for current in range(number, 0, -1):
        segment = segments[current]
        path = segment.path.with_name(names.segment_file_name(segment.base_offset, names.SNAPSHOT_SUFFIX))
        try:
            producers = read_snapshot(path)
        except (FormatError, OSError):
            continue
        first_offsets = {
            producer.producer_id: producer.current_transaction_first_offset
            for producer in producers
            if producer.current_transaction_first_offset != NONE
        }
        return current, OpenTransactions(first_offsets)
    return 0, OpenTransactions()


def _transactional(path: Path, data: mmap.mmap | bytes) -> Iterator[BatchHeader | None]:
    """Yield the batches of transactions, and None where bytes cannot be read."""
    scan = scan_batches(data, check_crc=False, path=path, transactional=True)
    yield from scan
    if scan.damage is None:
        return
    yield None
    for header in BatchReader(path, data, lambda _: None, scan.position):
        if header.is_transactional:
            yield header


def _is_abort(data: mmap.mmap | bytes, header: BatchHeader) -> bool:
    try:
        marker = read_marker(data, header)
    except FormatError:
        return False
    return marker is not None and marker.type is ControlRecordType.ABORT


def _index_entry(segment: LiveSegment, marker: BatchHeader) -> IndexEntry | None:
    path = segment.path.with_name(names.segment_file_name(segment.base_offset, names.TRANSACTION_INDEX_SUFFIX))
    file = LogFile(path, FileKind.TRANSACTION_INDEX, segment.base_offset)
    try:
        entries = parse_transaction_index(read_transaction_index(file), path=path)
    except (FormatError, OSError):
        return None
    for number, entry in enumerate(entries):
        if (entry.producer_id, entry.last_offset) == (marker.producer_id, marker.base_offset):
            return IndexEntry(path, number, entry.producer_id, entry.last_offset)
    return None
