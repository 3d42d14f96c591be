"""Follows which transactions of a log are open, batch by batch, by their headers and markers.

    | data of 7 | data of 9 | ABORT of 7 | ...        open: 7, 9, then 9; the last stable offset is where 9 begins

All code that reads logs (readers, salvage, verify) finds out here how a transaction begins and ends. The log's own
writer checks more (`producer_state_manager`), and asks here for the last stable offset.

Source in Kafka: `ProducerStateManager`, `ProducerAppendInfo`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.records.header import BatchHeader
from odradek.storage.formats.transaction_index import AbortedTransaction


def stable_offset_after(last_offset: int, open_since: Iterable[int]) -> int:
    """Return the last stable offset after a marker.

    Args:
        last_offset: The offset of the marker.
        open_since: Where the transactions begin that are open after it.
    """
    return min(open_since, default=last_offset + 1)


class OpenTransactions:
    """The open transactions, batch by batch.

    Attributes:
        first_offsets: Where each begins, by its producer's id.
    """

    def __init__(self, first_offsets: Mapping[int, int] | None = None) -> None:
        self.first_offsets = dict(first_offsets or {})

    @property
    def since(self) -> int | None:
        """Where the oldest one begins; None if none is open."""
        return min(self.first_offsets.values(), default=None)

    def data(self, header: BatchHeader) -> bool:
        """Add a batch of data of a transaction; return True if the transaction begins with it."""
        begins = header.producer_id not in self.first_offsets
        if begins:
            self.first_offsets[header.producer_id] = header.base_offset
        return begins

    def left_by(self, header: BatchHeader) -> int | None:
        """Return where a transaction begins that is open while its producer writes a batch outside of it; else None.

        No broker recovers a log with such a batch.
        """
        if header.is_transactional or header.is_control or not header.has_producer_id:
            return None
        return self.first_offsets.get(header.producer_id)

    def end(self, header: BatchHeader) -> int | None:
        """Add a marker; return where the transaction that it ends begins; None if none is open."""
        return self.first_offsets.pop(header.producer_id, None)

    def abort(self, header: BatchHeader) -> AbortedTransaction | None:
        """Add an ABORT marker; return its entry of the transaction index; None if no transaction is open."""
        first_offset = self.end(header)
        if first_offset is None:
            return None
        stable = stable_offset_after(header.last_offset, self.first_offsets.values())
        return AbortedTransaction(header.producer_id, first_offset, header.last_offset, stable)
