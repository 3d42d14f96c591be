"""The coordinator of transactions.

    init_producer_id -> add_partitions, produce -> end -> markers -> complete
                                                 \\-> time-out, another producer -> abort -> markers -> complete

The end of a transaction is decided by its record; the client is answered then, and the markers follow. After a crash
the markers of all decided transactions are written again: in a partition that has its marker already, a second one ends
nothing.

Each change is a task of its own: a client that goes away does not leave it half done.

Source in Kafka: `TransactionCoordinator`, KIP-98, KIP-360, KIP-588, KIP-664, KIP-890.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from odradek.broker.clock import Clock, Timer
from odradek.broker.config import BrokerConfig
from odradek.broker.errors import ApiError, code_of
from odradek.broker.state_topic import StateTopic
from odradek.broker.tasks import Tasks
from odradek.broker.transactions.held_up import HeldUp
from odradek.broker.transactions.markers import Marker, Markers
from odradek.broker.transactions.producer_ids import ProducerIds
from odradek.broker.transactions.states import TransactionStates
from odradek.broker.turns import rest
from odradek.coordination.transactions.metadata import (
    ENDING,
    EPOCH_BUMPS,
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
    TransactionMetadata,
    is_last_epoch,
)
from odradek.coordination.transactions.rules import NO_PRODUCER, ProducerIdAndEpoch, checked, is_own, is_to_be_ended
from odradek.errors import OdradekError
from odradek.messages.coordinators.transaction_records import TransactionState
from odradek.printable import logger
from odradek.storage.names import TopicPartition

_T = TypeVar("_T")

_logger = logger(__name__)

_GIVEN_UP = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.transaction_coordinator_fenced,
    }
)
"""A marker with such an error is not tried again: the partition was deleted, or has a later transaction."""


def _log_failure(error: BaseException) -> None:
    if not isinstance(error, OdradekError):
        _logger.error("a change of a transaction failed", exc_info=error)


class TransactionCoordinator:
    """The transactions of a broker. It belongs to the event loop's thread.

    Args:
        topic: `__transaction_state`.
        markers: Writes the markers.
        producer_ids: Gives producer ids.
        clock: The time.
        config: The broker's settings.

    Attributes:
        states: The states of the transactional ids.
    """

    def __init__(
        self, topic: StateTopic, markers: Markers, producer_ids: ProducerIds, clock: Clock, config: BrokerConfig
    ) -> None:
        self._topic = topic
        self._markers = markers
        self._producer_ids = producer_ids
        self._clock = clock
        self._config = config
        self.states = TransactionStates(topic, clock)
        self._tasks = Tasks(_log_failure)
        self._aborting: set[str] = set()
        self._held_up = HeldUp(clock, self._tasks)
        self._abortion: Timer | None = None
        self._expiry: Timer | None = None

    # -- life

    def load(self) -> None:
        """Begin to load the states that the log directory has, and complete what was decided."""
        self.states.begin_loading()
        self._tasks.start(self.states.load(self._resume))

    def close(self) -> None:
        """Stop, and leave unfinished transactions as they are, as a crash would."""
        for timer in (self._abortion, self._expiry):
            if timer is not None:
                timer.cancel()
        self._tasks.cancel()

    def _as_a_whole(self, work: Coroutine[Any, Any, _T]) -> Awaitable[_T]:
        """Run an action to its end, even if nobody waits for it any more."""
        return asyncio.shield(self._tasks.start(work))

    @property
    def _now_ms(self) -> int:
        return self._clock.now_ms()

    # -- producers

    def init_producer_id(
        self, transactional_id: str | None, timeout_ms: int, expected: ProducerIdAndEpoch
    ) -> Awaitable[ProducerIdAndEpoch]:
        """Give a producer its id and epoch: for a transactional id the next epoch, which fences earlier producers.

        Args:
            transactional_id: The transactional id; None for a producer that is only idempotent.
            timeout_ms: How long its transactions may take.
            expected: What the producer had, if it continues after an error (KIP-360); otherwise `NO_PRODUCER`.

        Raises:
            ApiError: Another producer has been initialised since, a transaction is ending, or the time-out is not
                allowed.
        """
        return self._as_a_whole(self._init_producer_id(transactional_id, timeout_ms, expected))

    async def _init_producer_id(
        self, transactional_id: str | None, timeout_ms: int, expected: ProducerIdAndEpoch
    ) -> ProducerIdAndEpoch:
        if expected != NO_PRODUCER and (
            expected.producer_id == NO_PRODUCER_ID or expected.producer_epoch == NO_PRODUCER_EPOCH
        ):
            raise ApiError(ErrorCode.invalid_request)
        if transactional_id is None:
            return ProducerIdAndEpoch(await self._producer_ids.next(), 0)
        if not transactional_id:
            raise ApiError(ErrorCode.invalid_request)
        if not 0 < timeout_ms <= self._config["transaction.max.timeout.ms"]:
            raise ApiError(ErrorCode.invalid_transaction_timeout)
        transaction = await self._transaction(transactional_id, timeout_ms)
        transaction.check_not_pending()
        metadata = transaction.metadata
        sends_epoch = expected != NO_PRODUCER
        if sends_epoch and not is_own(metadata, expected):
            raise ApiError(ErrorCode.producer_fenced)
        if metadata.state in ENDING:
            raise ApiError(ErrorCode.concurrent_transactions)
        if metadata.state is TransactionState.ONGOING:
            await self._fence(transaction)
            # The client asks again, and gets the next epoch when the abort is complete.
            raise ApiError(ErrorCode.concurrent_transactions)
        if is_last_epoch(metadata.producer_epoch) and (
            not sends_epoch or expected.producer_epoch == metadata.producer_epoch
        ):
            producer_id = await self._next_producer_id(transaction)
            new = metadata.with_new_producer_id(producer_id, timeout_ms, sends_epoch=sends_epoch, now_ms=self._now_ms)
        elif is_last_epoch(metadata.producer_epoch):
            raise ApiError(ErrorCode.unknown_server_error)
        else:
            new = metadata.initialised(timeout_ms, expected.producer_epoch if sends_epoch else None, self._now_ms)
        await self.states.change(transaction, new)
        return ProducerIdAndEpoch(new.producer_id, new.producer_epoch)

    async def _transaction(self, transactional_id: str, timeout_ms: int) -> Transaction:
        await self._topic.create()
        found = self.states.get(transactional_id)
        if found is not None:
            return found
        producer_id = await self._producer_ids.next()
        self._forget_later()
        empty = TransactionMetadata(
            producer_id, NO_PRODUCER_EPOCH, timeout_ms, TransactionState.EMPTY, last_update_ms=self._now_ms
        )
        return self.states.add(transactional_id, empty)

    async def _next_producer_id(self, transaction: Transaction) -> int:
        """Return a new producer id for a transactional id; nothing else may change it meanwhile."""
        transaction.pending = transaction.metadata.state
        try:
            return await self._producer_ids.next()
        finally:
            transaction.pending = None

    # -- partitions

    def add_partitions(
        self,
        transactional_id: str | None,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
    ) -> Awaitable[None]:
        """Add partitions to a transaction, which may begin by it.

        Raises:
            ApiError: The producer is not that of the transactional id, or the transaction before is ending.
        """
        return self._as_a_whole(self._add_partitions(transactional_id, producer, partitions, client_version))

    async def _add_partitions(
        self,
        transactional_id: str | None,
        producer: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
    ) -> None:
        transaction = self._known(transactional_id)
        transaction.check_not_pending()
        metadata = checked(transaction, producer)
        if metadata.state is TransactionState.ONGOING and metadata.partitions.issuperset(partitions):
            return
        await self.states.change(transaction, metadata.with_partitions(partitions, client_version, self._now_ms))
        self._abort_later()

    def verify_partitions(
        self, transactional_id: str | None, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return for each partition whether the transaction has it: no error, or TRANSACTION_ABORTABLE.

        Raises:
            ApiError: The producer is not that of the transactional id, or the transaction is ending.
        """
        metadata = checked(self._known(transactional_id), producer)
        return {
            partition: ErrorCode.none if partition in metadata.partitions else ErrorCode.transaction_abortable
            for partition in partitions
        }

    def _known(self, transactional_id: str | None) -> Transaction:
        if not transactional_id:
            raise ApiError(ErrorCode.invalid_request)
        found = self.states.get(transactional_id)
        if found is None:
            raise ApiError(ErrorCode.invalid_producer_id_mapping)
        return found

    # -- ends

    def end(
        self, transactional_id: str | None, producer: ProducerIdAndEpoch, *, commit: bool, client_version: int
    ) -> Awaitable[ProducerIdAndEpoch]:
        """End a transaction. It is decided when this returns; the markers follow.

        Args:
            transactional_id: The transactional id.
            producer: What the producer writes with.
            commit: Whether to commit it.
            client_version: The `transaction.version` that the client works by.

        Returns:
            The id and epoch of the producer's next transaction; `NO_PRODUCER` for a client of an old version, which
            keeps what it has.

        Raises:
            ApiError: The producer is not that of the transactional id, the transaction is ending, or it is in a state
                that cannot be ended so.
        """
        return self._as_a_whole(self._end(transactional_id, producer, commit=commit, client_version=client_version))

    async def _end(
        self, transactional_id: str | None, producer: ProducerIdAndEpoch, *, commit: bool, client_version: int
    ) -> ProducerIdAndEpoch:
        transaction = self._known(transactional_id)
        metadata = transaction.metadata
        after = ProducerIdAndEpoch(metadata.producer_id, metadata.producer_epoch)
        if is_to_be_ended(transaction, producer, commit=commit, client_version=client_version):
            after = await self._decide(transaction, commit=commit, client_version=client_version)
        return after if client_version >= EPOCH_BUMPS else NO_PRODUCER

    async def _decide(
        self, transaction: Transaction, *, commit: bool, client_version: int, is_asked: bool = True
    ) -> ProducerIdAndEpoch:
        """Write the decision, and have the transaction completed."""
        next_producer_id = NO_PRODUCER_ID
        if client_version >= EPOCH_BUMPS and is_last_epoch(transaction.metadata.producer_epoch):
            next_producer_id = await self._next_producer_id(transaction)
        ending = transaction.metadata.ending(
            commit=commit, client_version=client_version, next_producer_id=next_producer_id, now_ms=self._now_ms
        )
        await self.states.change(transaction, ending)
        transaction.has_failed_fence = False
        self._complete(transaction, is_asked=is_asked)
        after = ending.ended(self._now_ms)
        return ProducerIdAndEpoch(after.producer_id, after.producer_epoch)

    async def _fence(self, transaction: Transaction, *, is_asked: bool = True) -> None:
        """Abort a transaction with a new epoch, so that its producer can write no more.

        Raises:
            ApiError: It cannot be written.
        """
        version = self.states.transaction_version
        if version >= EPOCH_BUMPS:
            await self._decide(transaction, commit=False, client_version=version, is_asked=is_asked)
            return
        metadata = transaction.metadata
        if not transaction.has_failed_fence:
            # No client gets this epoch, so it is not raised again if the record cannot be written.
            epoch = min(metadata.producer_epoch + 1, MAX_PRODUCER_EPOCH)
            transaction.metadata = metadata.fenced(epoch)
            transaction.has_failed_fence = True
        await self._decide(transaction, commit=False, client_version=0, is_asked=is_asked)

    def _resume(self, transactions: Iterable[Transaction]) -> None:
        """Continue the transactions that have been loaded."""
        self._abort_later()
        self._forget_later()
        for transaction in transactions:
            if transaction.metadata.state in ENDING:
                self._complete(transaction, is_asked=False)

    def _complete(self, transaction: Transaction, *, is_asked: bool) -> None:
        """Begin to write the markers of a transaction whose end is decided, and then that it is complete.

        Args:
            transaction: The transaction.
            is_asked: Whether a client has asked. Of the others thousands may have to end in one moment, so they line
                up at their partitions, of which some may hang.
        """
        metadata = transaction.metadata
        transaction.pending = metadata.ended(self._now_ms).state
        partitions = sorted(metadata.partitions)
        if is_asked:
            self._tasks.start(self._write_markers(transaction, partitions))
        else:
            attempt = partial(self._is_begun, transaction, partitions, iter([logging.WARNING]))
            self._held_up.add(self._own(transaction), attempt, is_tried=False)

    async def _write_markers(self, transaction: Transaction, partitions: Collection[TopicPartition]) -> None:
        """Write markers; what cannot be written now is tried again, each partition by itself.

        Args:
            transaction: The transaction.
            partitions: Which of its partitions lack the marker.
        """
        coordinator_epoch = await self._coordinator_epoch(transaction, logging.WARNING)
        if coordinator_epoch is None:
            self._held_up.add(self._own(transaction), partial(self._is_begun, transaction, partitions, iter(())))
            return
        for partition in await self._left(transaction, partitions, coordinator_epoch, logging.WARNING):
            self._held_up.add(partition, partial(self._is_marked, transaction, partition, coordinator_epoch, iter(())))
        if not transaction.metadata.partitions and not await self._is_complete(transaction):
            self._held_up.add(self._own(transaction), partial(self._is_complete, transaction))

    def _own(self, transaction: Transaction) -> TopicPartition:
        """Return the partition that has the state of a transaction."""
        return TopicPartition(self._topic.name, self._topic.number_for(transaction.transactional_id))

    async def _is_begun(
        self, transaction: Transaction, partitions: Collection[TopicPartition], levels: Iterator[int]
    ) -> bool:
        """Have markers written, if the state of the transaction can be used; return whether it can.

        Args:
            transaction: The transaction.
            partitions: Which of its partitions lack the marker.
            levels: How failures of this attempt and of the next ones are logged; after its end, as debugging.
        """
        level = next(levels, logging.DEBUG)
        coordinator_epoch = await self._coordinator_epoch(transaction, level)
        if coordinator_epoch is None:
            return False
        if not partitions:
            return await self._is_complete(transaction)
        # Not as a part of this: a partition of its own may hang.
        for partition in partitions:
            attempt = partial(self._is_marked, transaction, partition, coordinator_epoch, iter([level]))
            self._held_up.add(partition, attempt, is_tried=False)
        return True

    async def _is_marked(
        self, transaction: Transaction, partition: TopicPartition, coordinator_epoch: int, levels: Iterator[int]
    ) -> bool:
        """Try to write a marker; return whether it waits for its partition no more."""
        if await self._left(transaction, [partition], coordinator_epoch, next(levels, logging.DEBUG)):
            return False
        if not transaction.metadata.partitions:
            # Not as a part of this: the partition of the state may hang.
            self._held_up.add(self._own(transaction), partial(self._is_complete, transaction), is_tried=False)
        return True

    async def _coordinator_epoch(self, transaction: Transaction, level: int) -> int | None:
        try:
            return (await self._topic.partition_of(transaction.transactional_id)).leader_epoch
        except (OdradekError, OSError) as error:
            _logger.log(level, "the transaction of %r waits to be ended: %s", transaction.transactional_id, error)
            return None

    async def _left(
        self, transaction: Transaction, partitions: Collection[TopicPartition], coordinator_epoch: int, level: int
    ) -> list[TopicPartition]:
        """Write the markers of some of a transaction's partitions; return those that cannot be written now."""
        metadata = transaction.metadata
        marker = Marker(
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.state is TransactionState.PREPARE_COMMIT,
            coordinator_epoch,
            metadata.client_version,
        )
        written = await self._markers.write(partitions, marker)
        left = [partition for partition, error in written.items() if error is not None and not _is_given_up(error)]
        for partition in left:
            _logger.log(
                level, "%s waits for the marker of %r: %s", partition, transaction.transactional_id, written[partition]
            )
        marked = written.keys() - left
        if marked:
            # Others of its partitions may have been written meanwhile.
            transaction.metadata = transaction.metadata.without(marked)
        return left

    async def _is_complete(self, transaction: Transaction) -> bool:
        """Write that a transaction is complete; return whether it could be written."""
        ended = transaction.metadata.ended(self._now_ms)
        try:
            await self.states.change(transaction, ended)
        except Exception as error:
            _log_failure(error)
            # `change` has cleared `pending`; set it again, as the end is still to be written.
            transaction.pending = ended.state
            return False
        return True

    # -- time

    def _abort_later(self) -> None:
        """Look for transactions that have timed out, at intervals, as long as one is open."""
        if self._abortion is None or not self._abortion.is_pending:
            interval_ms = self._config["transaction.abort.timed.out.transaction.cleanup.interval.ms"]
            self._abortion = self._clock.after(interval_ms, self._abort_timed_out)

    def _abort_timed_out(self) -> None:
        self._tasks.start(self._abort_those_timed_out())

    async def _abort_those_timed_out(self) -> None:
        for number, transaction in enumerate(list(self.states)):
            await rest(number)
            if transaction.metadata.state is not TransactionState.ONGOING:
                continue
            self._abort_later()
            # On a slow disk the round before this one may take longer: one that is in it is not to be in two.
            if transaction.metadata.has_timed_out(self._now_ms) and transaction.transactional_id not in self._aborting:
                self._aborting.add(transaction.transactional_id)
                self._held_up.add(self._own(transaction), partial(self._is_aborted, transaction), is_tried=False)

    async def _is_aborted(self, transaction: Transaction) -> bool:
        """Decide to abort a transaction that takes too long; return True: what fails is tried in the next round."""
        try:
            # It may have ended before its turn.
            if transaction.pending is None and transaction.metadata.has_timed_out(self._now_ms):
                _logger.info("the transaction of %r has timed out", transaction.transactional_id)
                await self._fence(transaction, is_asked=False)
        except Exception as error:
            _log_failure(error)
        finally:
            self._aborting.remove(transaction.transactional_id)
        return True

    def _forget_later(self) -> None:
        """Look for transactional ids that were not used for long, at intervals, once there is one."""
        if self._expiry is None or not self._expiry.is_pending:
            interval_ms = self._config["transaction.remove.expired.transaction.cleanup.interval.ms"]
            self._expiry = self._clock.after(interval_ms, self._forget_expired)

    def _forget_expired(self) -> None:
        self._forget_later()
        expiration_ms = self._config["transactional.id.expiration.ms"]
        now = self._now_ms
        expired = [transaction for transaction in self.states if transaction.metadata.has_expired(now, expiration_ms)]
        if expired:
            self._tasks.start(self.states.forget(expired, expiration_ms))


def _is_given_up(error: Exception) -> bool:
    return ErrorCode(code_of(error)) in _GIVEN_UP
