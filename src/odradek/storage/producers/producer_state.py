"""The state of one producer in a partition, and the rules for accepting or refusing its next batches.

    batches of one append -> ProducerAppend (a draft of the state after them) -> ProducerState

A producer's batches carry its id, its epoch and a sequence number; a transaction begins with the first transactional
batch and ends with a marker. The checks use only batch headers; of the records, only markers are read. If a batch of an
append is refused, the draft is dropped, so a refusal changes nothing.

Source in Kafka: `ProducerStateEntry`, `ProducerAppendInfo`, KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from odradek.buffers import Buffer
from odradek.errors import (
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from odradek.printable import logger
from odradek.records.append.validator import AppendOrigin
from odradek.records.batch import read_records
from odradek.records.control import ControlRecordType, EndTransactionMarker, parse_end_transaction_marker
from odradek.records.header import MAX_SEQUENCE, NO_SEQUENCE, NO_TIMESTAMP, BatchHeader
from odradek.storage.formats.producer_snapshot import NONE, ProducerSnapshotEntry

BATCHES_RETAINED = 5
"""How many batches of a producer are remembered: as many as an idempotent producer may have in flight."""

NO_PRODUCER_EPOCH = -1
MAX_PRODUCER_EPOCH = 0x7FFF

_logger = logger(__name__)


class BatchMetadata(NamedTuple):
    """What is remembered of a batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence number of the first record; sequences wrap after 2^31 - 1."""
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        """The offset of the first record."""
        return self.last_offset - self.offset_delta


class CompletedTransaction(NamedTuple):
    """A transaction that its marker has just ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


def read_marker(data: Buffer, header: BatchHeader) -> EndTransactionMarker | None:
    """Return the marker in a transaction's control batch; None if the cleaner has emptied the batch.

    Args:
        data: The bytes that hold the batch.
        header: The header of a control batch with a producer id.

    Raises:
        CorruptRecordError: The record is not a transaction marker.
    """
    records = read_records(data, header)
    return parse_end_transaction_marker(records[0].key, records[0].value) if records else None


@dataclass(slots=True)
class ProducerState:
    """The state of one producer.

    Attributes:
        producer_id: The producer's id.
        producer_epoch: Its current epoch, -1 if none is known.
        coordinator_epoch: The epoch of the coordinator that wrote its last marker, or -1.
        last_timestamp: The timestamp of its last batch or marker, or -1; its expiry counts from it, in ms.
        current_transaction_first_offset: Where its open transaction begins, or None.
        batches: Its last batches of this epoch, the oldest first.
    """

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = NONE
    last_timestamp: int = NO_TIMESTAMP
    current_transaction_first_offset: int | None = None
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=BATCHES_RETAINED))

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, or -1."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """The offset of the last record, or -1."""
        return self.batches[-1].last_offset if self.batches else NONE

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the remembered batch with the same epoch and exactly the same sequences."""
        if header.producer_epoch != self.producer_epoch:
            return None
        wanted = (header.base_sequence, header.last_sequence)
        return next((batch for batch in self.batches if (batch.first_sequence, batch.last_sequence) == wanted), None)

    def add_batch(self, producer_epoch: int, batch: BatchMetadata) -> None:
        """Remember a batch; if its epoch is new, forget those before it."""
        self._enter(producer_epoch)
        self.batches.append(batch)
        self.last_timestamp = batch.timestamp

    def followed_by(self, batch: BatchMetadata) -> ProducerState:
        """Return the state after another batch of the same epoch; this one stays as it is."""
        batches = self.batches.copy()
        batches.append(batch)
        return ProducerState(
            self.producer_id,
            self.producer_epoch,
            self.coordinator_epoch,
            batch.timestamp,
            self.current_transaction_first_offset,
            batches,
        )

    def copy(self) -> ProducerState:
        """Return an independent copy."""
        return replace(self, batches=self.batches.copy())

    def merge(self, later: ProducerState) -> None:
        """Take over the state after an append."""
        self._enter(later.producer_epoch)
        self.batches.extend(later.batches)
        self.coordinator_epoch = later.coordinator_epoch
        self.current_transaction_first_offset = later.current_transaction_first_offset
        self.last_timestamp = later.last_timestamp

    def end_transaction(self, producer_epoch: int, coordinator_epoch: int, timestamp: int) -> None:
        """Take over the state after a marker."""
        self._enter(producer_epoch)
        self.coordinator_epoch = coordinator_epoch
        self.current_transaction_first_offset = None
        self.last_timestamp = timestamp

    def _enter(self, producer_epoch: int) -> None:
        if producer_epoch != self.producer_epoch:
            self.batches.clear()
            self.producer_epoch = producer_epoch

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether the producer has been silent for so long that it is to be forgotten; never within a transaction."""
        return self.current_transaction_first_offset is None and now_ms - self.last_timestamp >= expiration_ms

    def to_snapshot(self) -> ProducerSnapshotEntry:
        """Return the snapshot entry of this state."""
        first_offset = self.current_transaction_first_offset
        return ProducerSnapshotEntry(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            last_sequence=self.last_sequence,
            last_offset=self.last_data_offset,
            offset_delta=self.batches[-1].offset_delta if self.batches else 0,
            last_timestamp=self.last_timestamp,
            coordinator_epoch=self.coordinator_epoch,
            current_transaction_first_offset=NONE if first_offset is None else first_offset,
        )

    @classmethod
    def from_snapshot(cls, entry: ProducerSnapshotEntry) -> ProducerState:
        """Return the state in a snapshot entry."""
        first_offset = entry.current_transaction_first_offset
        state = cls(
            entry.producer_id,
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.last_timestamp,
            first_offset if first_offset >= 0 else None,
        )
        if entry.last_offset >= 0:
            batch = BatchMetadata(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.last_timestamp)
            state.batches.append(batch)
        return state


class ProducerAppend:
    """A draft of one producer's state, updated by the batches of one append.

    Attributes:
        state: The state after the batches so far; its `batches` are those of this append only.
        started: The first offsets of the transactions that began.
    """

    def __init__(
        self, current: ProducerState, origin: AppendOrigin, *, supports_epoch_bump: bool = False, log: str = "the log"
    ) -> None:
        self._current = current
        self._origin = origin
        self._supports_epoch_bump = supports_epoch_bump
        self._log = log
        self.state = ProducerState(
            current.producer_id,
            current.producer_epoch,
            current.coordinator_epoch,
            current.last_timestamp,
            current.current_transaction_first_offset,
        )
        self.started: list[int] = []

    def append(
        self, header: BatchHeader, marker: EndTransactionMarker | None = None, *, transaction_version: int = 0
    ) -> CompletedTransaction | None:
        """Add a batch.

        Args:
            header: Its header, with its final offsets.
            marker: Its marker if it is a control batch; None for an emptied one, which has no effect.
            transaction_version: `transaction.version` of the coordinator that writes the marker: from 2 on each marker
                has a new epoch.

        Returns:
            The transaction that it ends, if that had data here.

        Raises:
            BrokerError: The batch is refused; the draft must not be used any more.
        """
        if header.is_control:
            return None if marker is None else self._end_transaction(header, marker, transaction_version)
        self._add_data(header)
        return None

    def _place(self, header: BatchHeader) -> str:
        return f"producer {header.producer_id} at offset {header.base_offset} of {self._log}"

    def _add_data(self, header: BatchHeader) -> None:
        if header.producer_epoch < self.state.producer_epoch:
            self._refuse_epoch(header)
        if self._origin is AppendOrigin.CLIENT:
            self._check_sequence(header)
        first_offset = header.base_offset
        self.state.add_batch(
            header.producer_epoch,
            BatchMetadata(
                header.last_sequence, header.last_offset, header.last_offset - first_offset, header.max_timestamp
            ),
        )
        if header.is_transactional:
            if self.state.current_transaction_first_offset is None:
                self.state.current_transaction_first_offset = first_offset
                self.started.append(first_offset)
        elif self.state.current_transaction_first_offset is not None:
            raise InvalidTransactionStateError(
                f"{self._place(header)}: a batch outside of the transaction that is open since offset "
                f"{self.state.current_transaction_first_offset}"
            )

    def _refuse_epoch(self, header: BatchHeader) -> None:
        reason = f"{self._place(header)}: epoch {header.producer_epoch}, while {self.state.producer_epoch} is known"
        if self._origin is not AppendOrigin.REPLICATION:
            raise InvalidProducerEpochError(reason)
        _logger.warning("%s", reason)

    def _check_sequence(self, header: BatchHeader) -> None:
        sequence, current = header.base_sequence, self._current
        if self._supports_epoch_bump and sequence != 0 and not current.batches:
            raise OutOfOrderSequenceNumberError(f"{self._place(header)}: the first batch has sequence {sequence}")
        if header.producer_epoch != self.state.producer_epoch:
            # The records of a producer that is unknown may all have been deleted: then any sequence will do.
            if sequence != 0 and self.state.producer_epoch != NO_PRODUCER_EPOCH:
                raise OutOfOrderSequenceNumberError(
                    f"{self._place(header)}: epoch {header.producer_epoch} begins with sequence {sequence}"
                )
            return
        if self.state.batches:
            last = self.state.last_sequence
        elif header.producer_epoch == current.producer_epoch:
            last = current.last_sequence
        else:
            last = NO_SEQUENCE
        in_sequence = sequence == last + 1 or (sequence == 0 and last == MAX_SEQUENCE)
        if not in_sequence and current.producer_epoch != NO_PRODUCER_EPOCH:
            raise OutOfOrderSequenceNumberError(f"{self._place(header)}: sequence {sequence} follows {last}")

    def _end_transaction(
        self, header: BatchHeader, marker: EndTransactionMarker, transaction_version: int
    ) -> CompletedTransaction | None:
        first_offset = self.state.current_transaction_first_offset
        known_epoch = self.state.producer_epoch
        if transaction_version < 2:
            is_stale = header.producer_epoch < known_epoch
        else:
            # The epoch increases with every marker, so a marker of the known epoch was seen before: it is refused while
            # a transaction of that epoch is open, and written again while none is.
            is_retry = header.producer_epoch == known_epoch and (
                first_offset is None or known_epoch == MAX_PRODUCER_EPOCH
            )
            is_stale = header.producer_epoch <= known_epoch and not is_retry
        if is_stale:
            self._refuse_epoch(header)
        if marker.coordinator_epoch < self.state.coordinator_epoch:
            reason = (
                f"{self._place(header)}: a marker of coordinator epoch {marker.coordinator_epoch}, "
                f"while {self.state.coordinator_epoch} is known"
            )
            if self._origin is not AppendOrigin.REPLICATION:
                raise TransactionCoordinatorFencedError(reason)
            _logger.info("%s", reason)
        self.state.end_transaction(header.producer_epoch, marker.coordinator_epoch, header.max_timestamp)
        if first_offset is None:
            return None
        is_aborted = marker.type == ControlRecordType.ABORT
        return CompletedTransaction(header.producer_id, first_offset, header.base_offset, is_aborted)
