"""What the cleaner knows of transactions while it goes through a log: which data is aborted, which markers are of use.

    data of an aborted transaction    goes at once
    ABORT, COMMIT                     stays while data of its transaction was met before it; without any it may go

Source in Kafka: `CleanedTransactionMetadata`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from typing_extensions import Buffer

from odradek.records.batch import read_records
from odradek.records.control import ControlRecordType, parse_control_key
from odradek.records.header import BatchHeader
from odradek.storage.formats.transaction_index import AbortedTransaction


class CleanedTransactions:
    """The transactions that the batches met so far belong to.

    Attributes:
        retained: The aborted transactions whose markers were met after data of theirs: what the transaction index of
            the new segment holds. The caller takes and clears it segment by segment.
    """

    def __init__(self) -> None:
        self.retained: list[AbortedTransaction] = []
        self._committed: set[int] = set()
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_data: set[int] = set()
        self._upcoming: list[tuple[int, AbortedTransaction]] = []

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Note aborted transactions that the batches to come may belong to; known ones do no harm."""
        for transaction in transactions:
            heapq.heappush(self._upcoming, (transaction.first_offset, transaction))

    def _advance(self, offset: int) -> None:
        while self._upcoming and self._upcoming[0][0] <= offset:
            transaction = heapq.heappop(self._upcoming)[1]
            self._aborted.setdefault(transaction.producer_id, transaction)

    def on_data_batch(self, header: BatchHeader) -> bool:
        """Note a batch of data; True where it belongs to an aborted transaction and so may go."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._with_data.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def on_control_batch(self, data: Buffer, header: BatchHeader) -> bool:
        """Note a control batch; True where no data of its transaction was met, so that it may go.

        Raises:
            CorruptRecordError: Its record cannot be read.
        """
        self._advance(header.last_offset)
        records = read_records(data, header)
        if not records:
            # Emptied by an earlier round.
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
