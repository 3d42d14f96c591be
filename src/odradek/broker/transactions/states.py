"""The states of the transactional ids: in memory, and in `__transaction_state`, which is written first.

A state changes in one record, which is appended, and then counts. While it is being written, `pending` holds other
changes back.

Source in Kafka: `TransactionStateManager`, `TransactionLog`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.clock import Clock
from odradek.broker.errors import ApiError, code_of
from odradek.broker.partitions import Partition, Partitions
from odradek.broker.state_log import check_storable, load_state
from odradek.broker.topics import Topics
from odradek.broker.transactions.metadata import Transaction, TransactionMetadata
from odradek.coordination.placement import partition_for
from odradek.errors import BrokerError, FormatError, OdradekError
from odradek.messages.coordinators.transaction_records import (
    TransactionKey,
    TransactionState,
    TransactionValue,
    decode_transaction_record,
    encode_transaction_record,
)
from odradek.printable import logger
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import build_batch
from odradek.records.kernels.objects import Record
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.names import TRANSACTION_STATE_TOPIC

_logger = logger(__name__)

_TRANSACTION_VERSION = "transaction.version"

_COORDINATOR_ERRORS = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
}
"""What a client is told if a state cannot be written."""


class TransactionStates:
    """The states of all transactional ids.

    Args:
        logs: The log directory.
        topics: Creates the topic.
        partitions: The partitions.
        clock: The time.
        run: Does something in another thread.
    """

    def __init__(
        self,
        logs: WritableLogDirectory,
        topics: Topics,
        partitions: Partitions,
        clock: Clock,
        run: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self._logs = logs
        self._topics = topics
        self._partitions = partitions
        self._clock = clock
        self._run = run
        self._loading: set[int] = set()
        self._loaded = asyncio.Event()
        self._loaded.set()
        self._transactions: dict[str, Transaction] = {}

    @property
    def transaction_version(self) -> int:
        """`transaction.version` of the cluster."""
        return self._logs.metadata_image.features.get(_TRANSACTION_VERSION, 0)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(list(self._transactions.values()))

    # -- loading

    def begin_loading(self) -> None:
        """Answer nothing about the partitions that are in the log directory, until they are loaded."""
        self._loading = set(self._logs.metadata_image.topic(TRANSACTION_STATE_TOPIC).partitions)
        self._loaded.clear()

    async def load(self, loaded: Callable[[Iterable[Transaction]], None]) -> None:
        """Load all partitions one by one, in another thread; of one that is damaged, what comes before, as Kafka does.

        Args:
            loaded: Is called with the transactional ids of each partition.
        """
        try:
            for number in sorted(self._loading):
                found = await self._load(number)
                self._transactions.update(found)
                self._loading.discard(number)
                loaded(found.values())
        finally:
            self._loaded.set()

    async def _load(self, number: int) -> dict[str, Transaction]:
        found: dict[str, Transaction] = {}
        try:
            # Opening a log may take long as well.
            await self._run(partial(self._logs.__getitem__, (TRANSACTION_STATE_TOPIC, number)))
            partition = self._partitions.get(TRANSACTION_STATE_TOPIC, number)
            if partition.log.log_end_offset > partition.log.log_start_offset:
                await self._run(partial(_read, partition, found))
        except Exception as error:
            _logger.error("%s-%s cannot be loaded: %s", TRANSACTION_STATE_TOPIC, number, error)
        return found

    async def wait_until_loaded(self) -> None:
        """Return when all partitions have been loaded."""
        await self._loaded.wait()

    @property
    def is_loading(self) -> bool:
        """Whether a partition has not been loaded yet."""
        return bool(self._loading)

    # -- states

    def get(self, transactional_id: str) -> Transaction | None:
        """Return a transactional id, if it is known.

        Raises:
            ApiError: It cannot be told yet, or the topic is missing; or it is too long to be stored.
        """
        check_storable(transactional_id)
        topic = self._logs.metadata_image.topics.get(TRANSACTION_STATE_TOPIC)
        if topic is None:
            raise ApiError(ErrorCode.not_coordinator)
        if self._loading and partition_for(transactional_id, len(topic.partitions)) in self._loading:
            raise ApiError(ErrorCode.coordinator_load_in_progress)
        return self._transactions.get(transactional_id)

    def add(self, transactional_id: str, metadata: TransactionMetadata) -> Transaction:
        """Return a transactional id, which is new if it is not known; nothing is written."""
        return self._transactions.setdefault(transactional_id, Transaction(transactional_id, metadata))

    def create_topic(self) -> None:
        """Create the topic if it is missing.

        Raises:
            LogError: The disk failed.
        """
        self._topics.internal(TRANSACTION_STATE_TOPIC)

    def partition_of(self, transactional_id: str) -> Partition:
        """Return the partition that has the state of a transactional id.

        Raises:
            ApiError: It is missing or offline.
        """
        count = len(self._topics.internal(TRANSACTION_STATE_TOPIC).partitions)
        return self._partitions.get(TRANSACTION_STATE_TOPIC, partition_for(transactional_id, count))

    # -- changing

    async def change(self, transaction: Transaction, metadata: TransactionMetadata) -> None:
        """Bring a transactional id into another state: in the log, then in memory.

        Raises:
            ApiError: It cannot be written; the state is as before.
        """
        transaction.pending = metadata.state
        try:
            version = min(self.transaction_version, 1)
            value = metadata.to_value(version)
            await self._append(transaction.transactional_id, value, version)
            transaction.metadata = metadata
        finally:
            transaction.pending = None

    async def forget(self, transactions: Iterable[Transaction], expiration_ms: int) -> None:
        """Remove the transactional ids that are still unused.

        Raises:
            ApiError: One cannot be written; it and those after it are as before.
        """
        for transaction in transactions:
            is_expired = transaction.metadata.has_expired(self._clock.now_ms(), expiration_ms)
            if transaction.pending is not None or not is_expired:
                continue
            transaction.pending = TransactionState.DEAD
            try:
                await self._append(transaction.transactional_id, None)
                del self._transactions[transaction.transactional_id]
            finally:
                transaction.pending = None

    async def _append(self, transactional_id: str, value: TransactionValue | None, version: int = 0) -> None:
        key, content = encode_transaction_record(transactional_id, value, version)
        record = Record(offset=0, timestamp=self._clock.now_ms(), key=key, value=content)
        data = bytearray(build_batch([record]))
        try:
            partition = self.partition_of(transactional_id)
            if partition.is_quick(data):
                partition.append(data, origin=AppendOrigin.COORDINATOR)
            else:
                await partition.in_order(
                    lambda: partition.log.append_batches(data, origin=AppendOrigin.COORDINATOR),
                )
        except (OdradekError, OSError) as error:
            code = ErrorCode(code_of(error))
            _logger.warning("the state of %r cannot be written: %s", transactional_id, error)
            reason = error.reason if isinstance(error, BrokerError) else ""
            raise ApiError(_COORDINATOR_ERRORS.get(code, code), reason) from error


def _read(partition: Partition, found: dict[str, Transaction]) -> None:
    """Add the transactional ids of a partition; the last record of each counts."""
    for record, _ in load_state(partition):
        try:
            read = decode_transaction_record(record.key, record.value)
            key: TransactionKey = read.key
            if read.value is None:
                found.pop(key.transactional_id, None)
            else:
                metadata = TransactionMetadata.from_value(read.value)
                found[key.transactional_id] = Transaction(key.transactional_id, metadata)
        except (FormatError, ValueError) as error:
            # Kafka leaves out what a later version of it wrote.
            _logger.warning("%s at offset %s is left out: %s", partition.topic_partition, record.offset, error)
