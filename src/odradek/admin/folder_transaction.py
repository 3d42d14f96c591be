"""A transaction in a log directory, as a broker on it would make one.

    __transaction_state     Ongoing, with the partitions     before anything is written
    the partitions          transactional batches
    __transaction_state     PrepareCommit                    decides: from here on the transaction is committed
    the partitions          a commit marker each
    __transaction_state     CompleteCommit

Each step is on the disk before the next one begins. So whoever opens the folder after a crash, the next transaction of
the same id or a broker, finishes it: by markers that abort it before the decision, that commit it after.

Source in Kafka: `TransactionCoordinator`, `TransactionStateManager`.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.coordination.placement import partition_for
from odradek.messages.coordinators.transaction_records import (
    TransactionState,
    TransactionTopic,
    TransactionValue,
    decode_transaction_record,
    encode_transaction_record,
)
from odradek.records import Record
from odradek.records.append.validator import AppendOrigin
from odradek.records.batch import read_records
from odradek.records.builder import build_batch
from odradek.records.scan import scan_batches
from odradek.records.timestamps import now_ms
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.log.writable_log import WritableLog
from odradek.storage.names import TRANSACTION_STATE_TOPIC, TopicPartition

_PARTITIONS = 50
_CONFIG = {
    "unclean.leader.election.enable": "false",
    "compression.type": "uncompressed",
    "cleanup.policy": "compact",
    "min.insync.replicas": "1",
    "segment.bytes": "104857600",
}
_STATE_VERSION = 0
"""The version of a state's record that every broker reads."""
_TIMEOUT_MS = 60_000
"""After this, a broker that starts on the folder aborts a transaction that a crash left open."""
_LAST_EPOCH = 0x7FFE
_COMMITTED = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
_COMPLETE = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class FolderTransaction:
    """A transaction of one transactional id. Whoever has the folder open to write is the only one to use the id.

    Args:
        logs: The log directory.
        transactional_id: The transactional id.

    Attributes:
        producer: The producer id and epoch that its batches carry.
        is_decided: Whether its outcome is on the disk: if `end` fails after that, the next one to open the folder
            finishes it. None if writing it failed, so that it may be there or not.

    Raises:
        FormatError: The state of the transactional id is damaged.
        LogError: The disk failed.
    """

    def __init__(self, logs: WritableLogDirectory, transactional_id: str) -> None:
        self._logs = logs
        self._id = transactional_id
        image = logs.metadata_image.topics.get(TRANSACTION_STATE_TOPIC)
        topic = image or logs.create_topic(TRANSACTION_STATE_TOPIC, _PARTITIONS, _CONFIG)
        self._log = logs[TRANSACTION_STATE_TOPIC, partition_for(transactional_id, len(topic.partitions))]
        self._partitions: set[TopicPartition] = set()
        state = self._load()
        if state is not None and state.transaction_status not in _COMPLETE:
            self._finish(state)
        if state is None or state.producer_epoch >= _LAST_EPOCH:
            self.producer = (logs.take_producer_ids()[0], 0)
        else:
            self.producer = (state.producer_id, state.producer_epoch + 1)
        self._started_ms = -1
        self.is_decided: bool | None = False

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin to write to partitions."""
        self._partitions = set(partitions)
        self._started_ms = now_ms()
        self._write(TransactionState.ONGOING)

    def end(self, *, committed: bool) -> None:
        """Make everything that was written visible at once, or drop it."""
        for partition in sorted(self._partitions):
            self._logs[partition].flush()
        self.is_decided = None
        state = self._write(TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT)
        self.is_decided = True
        self._finish(state)

    def _finish(self, state: TransactionValue) -> None:
        """Write what is missing of a transaction's end; one without a decision is aborted."""
        is_commit = state.transaction_status in _COMMITTED
        for topic in state.transaction_partitions or ():
            for number in topic.partition_ids:
                partition = TopicPartition(topic.topic, number)
                # A topic that was deleted needs no marker.
                if partition in self._logs:
                    self._mark(self._logs[partition], state, commit=is_commit)
        complete = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        self._append(state._replace(transaction_status=complete, transaction_partitions=()))

    def _mark(self, log: WritableLog, state: TransactionValue, *, commit: bool) -> None:
        log.end_transaction(
            state.producer_id,
            state.producer_epoch,
            commit=commit,
            coordinator_epoch=self._log.leader_epoch,
            durable=True,
        )

    def _write(self, status: TransactionState) -> TransactionValue:
        by_topic: dict[str, list[int]] = {}
        for topic, number in sorted(self._partitions):
            by_topic.setdefault(topic, []).append(number)
        producer_id, producer_epoch = self.producer
        state = TransactionValue(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_timeout_ms=_TIMEOUT_MS,
            transaction_status=status,
            transaction_partitions=tuple(TransactionTopic(topic, tuple(found)) for topic, found in by_topic.items()),
            transaction_last_update_timestamp_ms=now_ms(),
            transaction_start_timestamp_ms=self._started_ms,
        )
        self._append(state)
        return state

    def _append(self, state: TransactionValue) -> None:
        key, value = encode_transaction_record(self._id, state, _STATE_VERSION)
        batch = build_batch([Record(offset=0, timestamp=now_ms(), key=key, value=value)])
        self._log.append_batches(batch, origin=AppendOrigin.COORDINATOR, durable=True)

    def _load(self) -> TransactionValue | None:
        found: TransactionValue | None = None
        for part in self._log.slices():
            for header in scan_batches(part.data, part.position, part.end_position, origin=part.origin):
                if header.is_control:
                    continue
                for record in read_records(part.data, header, origin=part.origin):
                    read = decode_transaction_record(record.key, record.value)
                    if read.key.transactional_id == self._id:
                        found = read.value
        return found
