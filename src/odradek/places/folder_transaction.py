"""A transaction in a log directory, as a broker on it would make one.

    __transaction_state     Ongoing, with the partitions     before anything is written
    the partitions          transactional batches
    __transaction_state     PrepareCommit                    decides: from here on the transaction is committed
    the partitions          a commit marker each
    __transaction_state     CompleteCommit

Each step is on the disk before the next one begins. After a crash, the next transaction of the same id, or a broker
that opens the folder, finishes it: with markers that abort it before the decision, and commit it after.

Source in Kafka: `TransactionCoordinator`, `TransactionStateManager`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.coordination.state_log import state_batch
from odradek.coordination.transactions.metadata import ENDING, TransactionMetadata, decode_state, is_last_epoch
from odradek.messages.coordinators.transaction_records import TransactionState, encode_transaction_record
from odradek.places.group_log import state_partition
from odradek.places.writing import RefusedRow, RowWriter, WritableFolder
from odradek.records.append.validator import AppendOrigin
from odradek.records.compression import Codec
from odradek.records.header import BatchHeader
from odradek.records.kernels.objects import Record
from odradek.records.timestamps import now_ms
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.log.replay import replay
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.names import TRANSACTION_STATE_TOPIC, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_STATE_VERSION = 0
"""The version of a state's record that every broker reads."""
_TIMEOUT_MS = 60_000
"""After this, a broker that starts on the folder aborts a transaction that a crash left open."""


class FolderTransaction:
    """A transaction of one transactional id. Only the program that has the folder open for writing uses the id.

    Args:
        logs: The log directory.
        transactional_id: The transactional id.
        codec: How batches are compressed.

    Attributes:
        producer: The producer id and epoch that its batches carry.
        is_decided: Whether its outcome is on the disk: if `end` fails after that, the next program to open the folder
            finishes it. None if writing the outcome failed, so that it may be there or not.

    Raises:
        FormatError: The state of the transactional id is damaged.
        LogError: The disk failed.
    """

    def __init__(self, logs: WritableLogDirectory, transactional_id: str, codec: int = Codec.NONE) -> None:
        self._logs = logs
        self._id = transactional_id
        self._log = logs[state_partition(logs, TRANSACTION_STATE_TOPIC, transactional_id)]
        state = self._load()
        if state is not None and state.state is TransactionState.ONGOING:
            # Nothing is decided: it is aborted.
            state = state.ending(commit=False, now_ms=now_ms())
        if state is not None and state.state in ENDING:
            state = self._finish(state)
        if state is None or is_last_epoch(state.producer_epoch):
            self.producer = (logs.take_producer_ids()[0], 0)
        else:
            self.producer = (state.producer_id, state.producer_epoch + 1)
        self._state = TransactionMetadata(*self.producer, _TIMEOUT_MS, TransactionState.EMPTY, now_ms())
        self._writer = RowWriter(WritableFolder(logs), codec, self.producer, is_transactional=True)
        self.is_decided: bool | None = False

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin to write to partitions."""
        self._state = self._state.with_partitions(partitions, 0, now_ms())
        self._append(self._state)

    def write(self, partition: TopicPartition, rows: pa.RecordBatch) -> list[RefusedRow]:
        """Write rows (`key`, `value`, `headers`, `timestamp`) to a partition that `begin` named.

        Returns:
            The rows that the topic does not take. All others are in the transaction, in their order.
        """
        return self._writer.write(partition, rows)

    def end(self, *, committed: bool) -> None:
        """Make everything that was written visible at once, or drop it."""
        for partition in sorted(self._state.partitions):
            self._logs[partition].flush()
        self.is_decided = None
        self._state = self._state.ending(commit=committed, now_ms=now_ms())
        self._append(self._state)
        self.is_decided = True
        self._state = self._finish(self._state)

    def _finish(self, state: TransactionMetadata) -> TransactionMetadata:
        """Write the missing markers and records of a transaction whose end is decided; return the state after it."""
        for partition in sorted(state.partitions):
            # A topic that was deleted needs no marker.
            if partition in self._logs:
                self._mark(self._logs[partition], state)
        after = state.ended(now_ms())
        self._append(after)
        return after

    def _mark(self, log: WritableLog, state: TransactionMetadata) -> None:
        log.end_transaction(
            state.producer_id,
            state.producer_epoch,
            commit=state.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch=self._log.leader_epoch,
            durable=True,
        )

    def _append(self, state: TransactionMetadata) -> None:
        record = encode_transaction_record(self._id, state.to_value(_STATE_VERSION), _STATE_VERSION)
        self._log.append_batches(state_batch([record], now_ms()), origin=AppendOrigin.COORDINATOR, durable=True)

    def _load(self) -> TransactionMetadata | None:
        found: TransactionMetadata | None = None
        # No record of others is decoded: it may be damaged, or of a type that a later Kafka keeps there.
        key, _ = encode_transaction_record(self._id, None)

        def each(record: Record, batch: BatchHeader) -> None:
            nonlocal found
            if record.key == key and not batch.is_control:
                _, found = decode_state(record.key, record.value)

        replay(self._log, each)
        return found
