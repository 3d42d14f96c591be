"""What `read_committed` needs to know of a log: which transactions were aborted, and which are still open.

    snapshot at 100    producer 7 has a transaction open since 90
    segment [100, 200) | data of 7 | data of 9 | ABORT of 7 at 150 | ...      -> 7 was aborted: [90, 150]
                                    ^ 9 is open: the last stable offset

All of it comes from the headers of the batches. Each segment is read once, and the result is kept; a segment that grows
is read on from where it ended. A `.txnindex` says the same about its segment, but not whether it is complete: so no
answer relies on it, and the process that owns the log checks it against the segment. A snapshot, which has a checksum,
saves reading the segments before it. A snapshot without a transaction does not prove that there was none: producers
that are silent for long are forgotten.

Source in Kafka: `ProducerStateManager`, `UnifiedLog.collectAbortedTransactions`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from weakref import WeakKeyDictionary

from odradek.errors import CorruptRecordError, FormatError
from odradek.records.control import is_abort
from odradek.records.header import BatchHeader
from odradek.storage.formats.producer_snapshot import NONE, read_snapshot
from odradek.storage.formats.transaction_index import AbortedTransaction, TransactionIndex
from odradek.storage.names import SNAPSHOT_SUFFIX, segment_file_name
from odradek.storage.producers.open_transactions import OpenTransactions
from odradek.storage.segment.batch_reader import BatchReader, mapped
from odradek.storage.segment.segment import Segment

_BASE_OFFSET, _LAST_OFFSET = attrgetter("base_offset"), attrgetter("last_offset")


class AbortedRanges:
    """Aborted transactions, to look up whether a batch belongs to one."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for transaction in sorted(transactions, key=lambda transaction: transaction.first_offset):
            ranges = self._ranges.setdefault(transaction.producer_id, [])
            ranges.append((transaction.first_offset, transaction.last_offset))

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return not self._ranges

    def __contains__(self, header: BatchHeader) -> bool:
        ranges = self._ranges.get(header.producer_id)
        if ranges is None or not header.is_transactional or header.is_control:
            return False
        number = bisect_right(ranges, header.base_offset, key=lambda span: span[0]) - 1
        # The last offset is that of the marker.
        return number >= 0 and header.base_offset < ranges[number][1]


@dataclass(frozen=True, slots=True)
class SegmentTransactions:
    """The transactions of one segment, up to a position of it.

    Attributes:
        contents: The identity of what was read (`Segment.identity`).
        open: The first offset of each producer's open transaction, at `position`.
        position: Up to where the segment was read.
        aborted: The transactions whose ABORT marker it holds and that have data in the log, in the order of their
            markers.
        other_aborts: Producer id and offset of the ABORT markers whose data is gone: compacted, or deleted.
    """

    contents: tuple[int, int, int]
    open: Mapping[int, int]
    position: int = 0
    aborted: tuple[AbortedTransaction, ...] = ()
    other_aborts: tuple[tuple[int, int], ...] = ()


class Transactions:
    """The transactions of one log. Any thread may use it: threads that compute the same at once get the same result.

    Args:
        path: The partition's folder, where the snapshots are.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: WeakKeyDictionary[Segment, SegmentTransactions] = WeakKeyDictionary()

    def last_stable_offset(self, segments: Sequence[Segment], log_end_offset: int) -> int:
        """Return the first offset of the oldest open transaction, or the log end offset.

        Args:
            segments: All segments of the log, in order.
            log_end_offset: The offset after the last one.
        """
        if not segments:
            return log_end_offset
        return min(self.of_segment(segments, len(segments) - 1).open.values(), default=log_end_offset)

    def aborted(self, segments: Sequence[Segment], start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that have a record in a range, by the offsets of their markers.

        Args:
            segments: All segments of the log, in order.
            start_offset: The first offset of the range.
            end_offset: After the last offset of the range.

        Raises:
            FormatError: A marker is damaged.
        """
        found: list[AbortedTransaction] = []
        first = max(0, bisect_right(segments, start_offset, key=_BASE_OFFSET) - 1)
        for number in range(first, len(segments)):
            known = self.of_segment(segments, number)
            # By the offsets of their markers.
            from_start = bisect_left(known.aborted, start_offset, key=_LAST_OFFSET)
            found += [
                transaction for transaction in known.aborted[from_start:] if transaction.first_offset < end_offset
            ]
            following = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
            if following >= end_offset and all(offset >= end_offset for offset in known.open.values()):
                break
        return found

    def unread_bytes(self, segments: Sequence[Segment], start_offset: int, end_offset: int) -> int:
        """Return how many bytes of batches `aborted` has to go through that were not looked at before."""
        first = max(0, bisect_right(segments, start_offset, key=_BASE_OFFSET) - 1)
        unread = 0
        for number, segment in enumerate(segments[first:]):
            if number and segment.base_offset >= end_offset:
                break
            end = _end(segments, first + number)
            known = self._of(segment, end)
            unread += end - (0 if known is None else known.position)
        return unread

    def of_segment(self, segments: Sequence[Segment], number: int) -> SegmentTransactions:
        """Return what the batches of a segment say.

        Args:
            segments: All segments of the log, in order.
            number: Which of them.

        Raises:
            FormatError: A marker is damaged.
        """
        # Start at the nearest segment before which everything is known: the first one, or one with a snapshot.
        start, known = number, self._of(segments[number], _end(segments, number))
        while known is None:
            opened = self._open_by_snapshot(segments[start].base_offset)
            if opened is not None or start == 0:
                known = SegmentTransactions(segments[start].identity, opened or {})
            else:
                start -= 1
                known = self._of(segments[start], _end(segments, start))
        known = self._read_on(segments[start], known, _end(segments, start))
        for current in range(start + 1, number + 1):
            end = _end(segments, current)
            following = self._of(segments[current], end)
            if following is None:
                following = SegmentTransactions(segments[current].identity, known.open)
            known = self._read_on(segments[current], following, end)
        return known

    def _of(self, segment: Segment, end: int) -> SegmentTransactions | None:
        known = self._known.get(segment)
        if known is None or known.contents != segment.identity or known.position > end:
            return None
        return known

    def _open_by_snapshot(self, offset: int) -> dict[int, int] | None:
        """Return the open transactions of the snapshot at an offset; `None` if there is none that can be trusted."""
        try:
            producers = read_snapshot(self._path / segment_file_name(offset, SNAPSHOT_SUFFIX))
        except (FormatError, FileNotFoundError):
            return None
        return {
            producer.producer_id: producer.current_transaction_first_offset
            for producer in producers
            if producer.current_transaction_first_offset != NONE
        }

    def _read_on(self, segment: Segment, known: SegmentTransactions, end: int) -> SegmentTransactions:
        if known.position >= end:
            return known
        opened, aborted, other_aborts = OpenTransactions(known.open), list(known.aborted), list(known.other_aborts)
        scan = segment.scan(known.position, end, transactional=True)
        for header in scan:
            if not header.is_control:
                opened.data(header)
            elif not header.is_marker:
                continue
            elif not _aborts(segment, header):
                opened.end(header)
            elif (transaction := opened.abort(header)) is not None:
                aborted.append(transaction)
            else:
                other_aborts.append((header.producer_id, header.last_offset))
        if scan.damage is not None and (scan.position < segment.end().position or _goes_on(segment, scan.position)):
            # Later batches may decide the transactions before them.
            raise scan.damage
        read = SegmentTransactions(known.contents, opened.first_offsets, end, tuple(aborted), tuple(other_aborts))
        self._known[segment] = read
        return read


def _end(segments: Sequence[Segment], number: int) -> int:
    return segments[number].readable_bytes(is_last=number + 1 == len(segments))


def _goes_on(segment: Segment, position: int) -> bool:
    with mapped(segment.path) as data:
        return next(iter(BatchReader(segment.path, data, lambda _: None, position)), None) is not None


def rebuilt_index(
    segment: Segment, known: SegmentTransactions, *, was_compacted: bool
) -> tuple[list[AbortedTransaction], str] | None:
    """Check a segment's transaction index against its batches.

    Args:
        segment: The segment.
        known: What all of its batches say.
        was_compacted: Whether the first data of a transaction may be gone, which the index may still have.

    Returns:
        The right entries, and what is wrong with the present ones; None if they are right.
    """
    reason = None
    try:
        index = segment.transaction_index()
    except FormatError as error:
        index, reason = TransactionIndex.of(segment.transaction_index_path, segment.base_offset, []), error.reason
    present = index.transactions
    noted = {entry[:3:2]: entry for entry in present}
    wanted = []
    for transaction in known.aborted:
        entry = noted.get(transaction[:3:2])
        is_credible = entry is not None and was_compacted and entry.first_offset <= transaction.first_offset
        wanted.append(entry if entry is not None and is_credible else transaction)
    if was_compacted:
        wanted += [noted[marker] for marker in known.other_aborts if marker in noted]
        wanted.sort(key=lambda entry: entry.last_offset)
    if present == wanted and reason is None and index.is_as_written:
        return None
    return wanted, reason or "its entries do not match the batches"


def _aborts(segment: Segment, header: BatchHeader) -> bool:
    # Verify the checksum: one flipped bit turns a COMMIT into an ABORT.
    if segment.batch_at(header.position) is None:
        raise CorruptRecordError("this transaction marker is corrupt", path=segment.path, position=header.position)
    return is_abort(segment.read(header))
