"""What the batches of a log say of its producers: their last batches, and which of their transactions are open.

    | data of 7 | data of 9 | ABORT of 7 | ...        7: closed    9: open since its first batch

Only headers and markers are looked at. What is known begins where the batches do without a gap: before it a producer
may have written what retention, compaction or damage has taken away, and whoever compares must allow for that.

Source in Kafka: `ProducerStateManager`, `ProducerAppendInfo`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from odradek.records import BatchHeader
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.storage.producers.open_transactions import OpenTransactions


class DataBatch(NamedTuple):
    """The last batch of a producer that is no marker."""

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
        open_since: The first batch of its open transaction, of what was seen; None where none is open.
        has_records: Whether a batch of the open transaction holds records; the cleaner empties batches.
    """

    data: DataBatch | None = None
    marker: Marker | None = None
    open_since: int | None = None
    has_records: bool = False

    @property
    def last_offset(self) -> int:
        """The offset of the last thing that was seen of it."""
        return max(
            -1 if self.data is None else self.data.last_offset, -1 if self.marker is None else self.marker.offset
        )


class EndedTransaction(NamedTuple):
    """A marker, and what it ends.

    Attributes:
        producer_id: Whose.
        marker_offset: The marker's.
        is_abort: Whether it aborts.
        first_offset: The first batch that was seen of it; None where none was.
        has_records: Whether a batch of it holds records.
        open_since: Where the oldest open transaction of another producer begins; None where there is none.
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
        producers: By id.
        known_from: From here on every batch was seen, up to the last one.
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
        """Take note that batches may have been lost."""
        self.is_after_loss = True

    def reach(self, offset: int, *, is_exact: bool = True) -> None:
        """Take note of where the next batch begins.

        Args:
            offset: Its base offset.
            is_exact: Whether that is its first offset; that of a wrapper (v0, v1) is known only to its content.
        """
        if self.is_after_loss or (is_exact and offset > self.next_offset):
            self.known_from = max(offset, self.next_offset)
            # The markers of transactions that were open may be among what is missing.
            for producer_id in self._open.first_offsets:
                self.producers[producer_id].open_since = None
            self._open = OpenTransactions()
        self.is_after_loss = False

    def batch(self, header: BatchHeader, marker: EndTransactionMarker | None) -> EndedTransaction | None:
        """Take the next batch, which `reach` was told of.

        Args:
            header: Its header.
            marker: What it holds if it is a transaction's control batch; None for one that the cleaner has emptied.

        Returns:
            What it ends, if it is a marker.
        """
        self.next_offset = header.next_offset
        if not header.has_producer_id:
            return None
        if header.is_control:
            return None if marker is None else self._end(header, marker)
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
