"""What the batches of a log say about its producers: their last batches, and which of their transactions are open.

    | data of 7 | data of 9 | ABORT of 7 | ...        7: closed    9: open since its first batch

Only headers and markers are looked at. The knowledge starts at the last gap: before it, producers may have written
batches that retention, compaction or damage has removed, and a comparison must allow for that.

Source in Kafka: `ProducerStateManager`, `ProducerAppendInfo`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from odradek.records import BatchHeader
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.storage.producers.open_transactions import OpenTransactions


class DataBatch(NamedTuple):
    """The last batch of a producer that is not a marker."""

    last_offset: int
    last_sequence: int
    offset_delta: int
    timestamp: int
    epoch: int


class Marker(NamedTuple):
    """The last marker of a producer."""

    offset: int
    timestamp: int
    coordinator_epoch: int
    epoch: int


@dataclass(slots=True)
class Producer:
    """What was seen of a producer.

    Attributes:
        data: Its last batch.
        marker: Its last marker.
        open_since: The first batch that was seen of its open transaction; None if none is open.
        has_records: Whether a batch of the open transaction holds records; the cleaner empties batches.
    """

    data: DataBatch | None = None
    marker: Marker | None = None
    open_since: int | None = None
    has_records: bool = False

    @property
    def last_offset(self) -> int:
        """The offset of the last batch or marker that was seen of it."""
        return max(
            -1 if self.data is None else self.data.last_offset, -1 if self.marker is None else self.marker.offset
        )


class EndedTransaction(NamedTuple):
    """A marker, and the transaction that it ends.

    Attributes:
        producer_id: The producer.
        marker_offset: The offset of the marker.
        is_abort: Whether it aborts.
        first_offset: The first batch that was seen of the transaction; None if none was.
        has_records: Whether a batch of it holds records.
        open_since: Where the oldest open transaction of another producer begins, or None.
    """

    producer_id: int
    marker_offset: int
    is_abort: bool
    first_offset: int | None
    has_records: bool
    open_since: int | None


class ProducerLedger:
    """Follows the producers of a log, batch by batch.

    Attributes:
        producers: The producers by id.
        known_from: From this offset on every batch was seen, up to the last one.
        next_offset: The offset after the last batch.
        is_after_loss: Whether batches after it may have been lost.
    """

    def __init__(self, start_offset: int) -> None:
        self.producers: dict[int, Producer] = {}
        self.known_from = start_offset
        self.next_offset = start_offset
        self._open = OpenTransactions()
        self.is_after_loss = False

    def lost(self) -> None:
        """Note that batches may have been lost."""
        self.is_after_loss = True

    def reach(self, offset: int, *, is_exact: bool = True) -> None:
        """Note where the next batch begins.

        Args:
            offset: Its base offset.
            is_exact: Whether that is its first offset; the header of a wrapper (v0, v1) does not have it.
        """
        if self.is_after_loss or (is_exact and offset > self.next_offset):
            self.known_from = max(offset, self.next_offset)
            # The missing batches may have held the markers of open transactions.
            for producer_id in self._open.first_offsets:
                self.producers[producer_id].open_since = None
            self._open = OpenTransactions()
        self.is_after_loss = False

    def contradiction(self, header: BatchHeader) -> str | None:
        """Return why no broker recovers the log with the next batch; None if it does."""
        since = self._open.left_by(header)
        if since is None:
            return None
        reason = f"a batch of producer {header.producer_id} outside of its transaction, which is open since {since}"
        return f"{reason}: no broker starts on it"

    def batch(self, header: BatchHeader, marker: EndTransactionMarker | None) -> EndedTransaction | None:
        """Add the next batch; call `reach` with its offset first.

        Args:
            header: Its header.
            marker: The marker of a transaction's control batch; None for one that the cleaner has emptied.

        Returns:
            The transaction that it ends, if it is a marker.
        """
        self.next_offset = header.next_offset
        if not header.has_producer_id:
            return None
        if header.is_control:
            if marker is None:
                # Kafka notes its producer, and nothing else.
                self.producers.setdefault(header.producer_id, Producer())
                return None
            return self._end(header, marker)
        producer = self.producers.setdefault(header.producer_id, Producer())
        producer.data = DataBatch(
            header.last_offset,
            header.last_sequence,
            header.last_offset_delta,
            header.max_timestamp,
            header.producer_epoch,
        )
        if header.is_transactional:
            if self._open.data(header):
                producer.open_since, producer.has_records = header.base_offset, False
            producer.has_records = producer.has_records or header.records_count > 0
        return None

    def _end(self, header: BatchHeader, marker: EndTransactionMarker) -> EndedTransaction:
        producer = self.producers.setdefault(header.producer_id, Producer())
        first_offset, has_records = self._open.end(header), producer.has_records
        producer.open_since, producer.has_records = None, False
        producer.marker = Marker(
            header.base_offset, header.max_timestamp, marker.coordinator_epoch, header.producer_epoch
        )
        is_abort = marker.type is ControlRecordType.ABORT
        return EndedTransaction(
            header.producer_id, header.base_offset, is_abort, first_offset, has_records, self._open.since
        )
