"""What the cleaner knows about transactions while it reads a log: which data is aborted, which markers are needed.

    data of an aborted transaction    is removed at once
    ABORT, COMMIT                     is kept if data of its transaction was met before it, else it may be removed

Source in Kafka: `CleanedTransactionMetadata`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from odradek.buffers import Buffer
from odradek.records.batch import read_records
from odradek.records.control import ControlRecordType, parse_control_key
from odradek.records.header import BatchHeader
from odradek.storage.formats.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The transactions of the batches that were met so far.

    Attributes:
        retained: The aborted transactions whose markers were met after their data: the entries for the transaction
            index of the new segment. The caller takes and clears them for each segment.
    """

    def __init__(self) -> None:
        self.retained: list[AbortedTransaction] = []
        self._committed: set[int] = set()
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_data: set[int] = set()
        self._upcoming: list[tuple[int, AbortedTransaction]] = []

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Add aborted transactions that later batches may belong to; adding one again has no effect."""
        for transaction in transactions:
            heapq.heappush(self._upcoming, (transaction.first_offset, transaction))

    def _advance(self, offset: int) -> None:
        while self._upcoming and self._upcoming[0][0] <= offset:
            transaction = heapq.heappop(self._upcoming)[1]
            self._aborted.setdefault(transaction.producer_id, transaction)

    def on_data_batch(self, header: BatchHeader) -> bool:
        """Note a batch of data; return True if it belongs to an aborted transaction, so that it can be removed."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._with_data.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def on_control_batch(self, data: Buffer, header: BatchHeader) -> bool:
        """Note a control batch; return True if no data of its transaction was met, so that it can be removed.

        Raises:
            CorruptRecordError: Its record cannot be read.
        """
        self._advance(header.last_offset)
        records = read_records(data, header)
        if not records:
            # An earlier round emptied it.
            return True
        kind = parse_control_key(records[0].key)
        if kind == ControlRecordType.ABORT:
            transaction = self._aborted.pop(header.producer_id, None)
            if transaction is None or header.producer_id not in self._with_data:
                return True
            self._with_data.discard(header.producer_id)
            self.retained.append(transaction)
            return False
        if kind == ControlRecordType.COMMIT:
            if header.producer_id not in self._committed:
                return True
            self._committed.discard(header.producer_id)
            return False
        return False
