"""The states of the transactional ids: in memory, and in `__transaction_state`, which is written first.

A state changes in one record, which is appended, and then counts. While it is being written, `pending` holds other
changes back. In memory alone are an id that has no state yet, an epoch that was raised to fence, and which partitions
have their markers already.

Source in Kafka: `TransactionStateManager`, `TransactionLog`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from kio.schema.errors import ErrorCode

from odradek.broker.clock import Clock
from odradek.broker.errors import ApiError
from odradek.broker.partitions import Partition
from odradek.broker.state_topic import StateTopic, check_storable
from odradek.broker.turns import rest
from odradek.coordination.state_log import state_batch
from odradek.coordination.transactions.metadata import Transaction, TransactionMetadata, decode_state
from odradek.errors import FormatError
from odradek.messages.coordinators.transaction_records import (
    TransactionState,
    TransactionValue,
    encode_transaction_record,
)
from odradek.printable import logger
from odradek.records.append.validator import AppendOrigin
from odradek.records.header import BatchHeader
from odradek.records.kernels.objects import Record

_logger = logger(__name__)

_TRANSACTION_VERSION = "transaction.version"


class TransactionStates:
    """The states of all transactional ids.

    Args:
        topic: `__transaction_state`.
        clock: The time.

    Attributes:
        matching: Held by the request whose pattern transactional ids are matched with.
    """

    def __init__(self, topic: StateTopic, clock: Clock) -> None:
        self._topic = topic
        self._clock = clock
        self.matching = asyncio.Lock()
        self._loading: set[int] = set()
        self._loaded = asyncio.Event()
        self._loaded.set()
        self._transactions: dict[str, Transaction] = {}

    @property
    def transaction_version(self) -> int:
        """`transaction.version` of the cluster."""
        return self._topic.logs.metadata_image.features.get(_TRANSACTION_VERSION, 0)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(list(self._transactions.values()))

    # -- loading

    def begin_loading(self) -> None:
        """Answer no request about the partitions in the log directory until they are loaded."""
        self._loading = set(range(self._topic.count))
        self._loaded.clear()

    async def load(self, loaded: Callable[[Iterable[Transaction]], None]) -> None:
        """Load the partitions one by one, in another thread; a damaged one up to the damage, as Kafka does.

        Args:
            loaded: Called with the transactional ids of each partition.
        """
        try:
            for number in sorted(self._loading):
                found: dict[str, Transaction] = {}
                try:
                    partition = await self._topic.open(number)
                    await self._topic.replay(partition, partial(_replay, partition, found))
                except Exception as error:
                    _logger.error("%s-%s cannot be loaded: %s", self._topic.name, number, error)
                self._transactions.update(found)
                self._loading.discard(number)
                loaded(found.values())
        finally:
            self._loaded.set()

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
        if not self._topic.count:
            raise ApiError(ErrorCode.not_coordinator)
        if self._loading and self._topic.number_for(transactional_id) in self._loading:
            raise ApiError(ErrorCode.coordinator_load_in_progress)
        return self._transactions.get(transactional_id)

    def add(self, transactional_id: str, metadata: TransactionMetadata) -> Transaction:
        """Return a transactional id; one that is not known is created in memory, and not written."""
        return self._transactions.setdefault(transactional_id, Transaction(transactional_id, metadata))

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
        for number, transaction in enumerate(transactions):
            # Where no disk is waited for, an append gives nobody a turn.
            await rest(number)
            # A round before this one, which takes long on a slow disk, may have removed it.
            is_known = self._transactions.get(transaction.transactional_id) is transaction
            is_expired = transaction.metadata.has_expired(self._clock.now_ms(), expiration_ms)
            if transaction.pending is not None or not is_known or not is_expired:
                continue
            transaction.pending = TransactionState.DEAD
            try:
                await self._append(transaction.transactional_id, None)
                del self._transactions[transaction.transactional_id]
            finally:
                transaction.pending = None

    async def _append(self, transactional_id: str, value: TransactionValue | None, version: int = 0) -> None:
        record = encode_transaction_record(transactional_id, value, version)
        data = state_batch([record], self._clock.now_ms())
        with self._topic.errors():
            partition = await self._topic.partition_of(transactional_id)
            await partition.append_acknowledged(data, origin=AppendOrigin.COORDINATOR)


def _replay(partition: Partition, found: dict[str, Transaction], record: Record, _: BatchHeader) -> None:
    """Take over a record; the last one of each transactional id counts."""
    try:
        transactional_id, state = decode_state(record.key, record.value)
    except FormatError as error:
        # Kafka leaves out what a later version of it wrote.
        _logger.warning("%s at offset %s is left out: %s", partition.topic_partition, record.offset, error)
        return
    if state is None:
        found.pop(transactional_id, None)
    else:
        found[transactional_id] = Transaction(transactional_id, state)
