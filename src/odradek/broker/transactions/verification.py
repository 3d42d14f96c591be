"""Whether a batch that a client sends belongs to its transaction, so that none is left hanging (KIP-890).

The first batch of a transaction in a partition is verified: the coordinator must know the partition. A client of
`transaction.version` 2 does not add partitions before it writes to them: its first batch adds them. Later batches
need nothing, since the log has the open transaction.

Source in Kafka: `ReplicaManager.handleProduceAppend`, `AddPartitionsToTxnManager`,
`CoordinatorPartitionWriter.maybeStartTransactionVerification`, `UnifiedLog.maybeStartTransactionVerification`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from enum import Enum

from kio.schema.errors import ErrorCode

from odradek.broker.clock import Clock
from odradek.broker.config import BrokerConfig
from odradek.broker.errors import ApiError
from odradek.broker.partitions import Partition
from odradek.broker.transactions.coordinator import TransactionCoordinator
from odradek.coordination.transactions.metadata import EPOCH_BUMPS
from odradek.coordination.transactions.rules import ProducerIdAndEpoch
from odradek.errors import BrokerError
from odradek.storage.names import TopicPartition

_RETRY_MS = 20
_LONGEST_RETRY_MS = 100

_TRIED_AGAIN = (
    ErrorCode.network_exception,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)


class ClientLevel(Enum):
    """What a client expects of the broker, by the version of its Produce or TxnOffsetCommit requests.

    Attributes:
        OLD: It adds its partitions first, and does not know TRANSACTION_ABORTABLE.
        KNOWS_ABORTABLE: It adds its partitions first.
        ADDS_PARTITIONS: A Produce or TxnOffsetCommit adds the partition.
    """

    OLD = 0
    KNOWS_ABORTABLE = 1
    ADDS_PARTITIONS = 2

    @classmethod
    def of_produce(cls, version: int) -> ClientLevel:
        """Return the level of a version of Produce."""
        return cls.ADDS_PARTITIONS if version > 11 else cls.KNOWS_ABORTABLE if version > 10 else cls.OLD

    @classmethod
    def of_offset_commit(cls, version: int) -> ClientLevel:
        """Return the level of a version of TxnOffsetCommit."""
        return cls.ADDS_PARTITIONS if version > 4 else cls.KNOWS_ABORTABLE if version > 3 else cls.OLD


def is_verified(partition: Partition, producer: ProducerIdAndEpoch) -> bool:
    """Whether the producer's transaction is open in the partition already."""
    state = partition.log.producers.producers.get(producer.producer_id)
    return (
        state is not None
        and state.current_transaction_first_offset is not None
        and state.producer_epoch == producer.producer_epoch
    )


class Verification:
    """Asks the coordinator of transactions about the partitions that a producer writes to.

    Args:
        coordinator: The coordinator.
        clock: The time.
        config: The broker's settings.
    """

    def __init__(self, coordinator: TransactionCoordinator, clock: Clock, config: BrokerConfig) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._config = config

    async def verify_batches(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        sequences: Mapping[Partition, int],
        level: ClientLevel,
    ) -> Mapping[TopicPartition, ApiError]:
        """Let the coordinator verify the partitions of produced batches, or add them to the transaction.

        Args:
            transactional_id: The transactional id.
            producer: What the batches are written with.
            sequences: Where they are to be written, with their first sequence numbers; the producer has no open
                transaction there.
            level: What the client expects.

        Returns:
            The partitions that nothing may be appended to, and why.
        """
        refused: dict[TopicPartition, ApiError] = {}
        unknown = []
        is_asked = self._is_asked(level)
        for partition, sequence in sequences.items():
            try:
                _check_epoch(partition, producer)
                unknown.append(partition.topic_partition)
                if is_asked:
                    partition.lowest_sequences.note(producer, sequence)
            except ApiError as error:
                refused[partition.topic_partition] = error
        if not unknown or not is_asked:
            return refused
        started_ms = self._clock.elapsed_ms()
        while True:
            codes = await self._ask(transactional_id, producer, unknown, level)
            if level is not ClientLevel.ADDS_PARTITIONS or ErrorCode.concurrent_transactions not in codes.values():
                break
            # Try again here: that is faster than letting the client send its batches again.
            if self._clock.elapsed_ms() - started_ms >= _LONGEST_RETRY_MS:
                break
            await self._clock.sleep(_RETRY_MS)
        for topic_partition, code in codes.items():
            if code is not ErrorCode.none:
                refused[topic_partition] = _as_producers_know_it(code, level)
        return refused

    def verify_offset_commit(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: Partition, level: ClientLevel
    ) -> Awaitable[None] | None:
        """Return what to wait for before offsets of a transaction may be appended; it raises if they may not.

        Args:
            transactional_id: The transactional id.
            producer: What the offsets are written with.
            partition: The partition of `__consumer_offsets` that holds their group.
            level: What the client expects.

        Raises:
            ApiError: The producer has been replaced.
        """
        _check_epoch(partition, producer)
        if is_verified(partition, producer) or not self._is_asked(level):
            return None
        return self._verify_offset_commit(transactional_id, producer, partition.topic_partition, level)

    async def _verify_offset_commit(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition, level: ClientLevel
    ) -> None:
        code = (await self._ask(transactional_id, producer, [partition], level))[partition]
        if code is not ErrorCode.none:
            raise ApiError(_as_old_clients_know_it(code, level))

    def _is_asked(self, level: ClientLevel) -> bool:
        return level is ClientLevel.ADDS_PARTITIONS or bool(self._config["transaction.partition.verification.enable"])

    async def _ask(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        level: ClientLevel,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Ask the coordinator. After an answer without an error, the caller must append without another `await`."""
        coordinator = self._coordinator
        # Wait instead of answering COORDINATOR_LOAD_IN_PROGRESS: later batches would overtake the first one.
        await coordinator.states.wait_until_loaded()
        try:
            if level is not ClientLevel.ADDS_PARTITIONS:
                return coordinator.verify_partitions(transactional_id, producer, partitions)
            await coordinator.add_partitions(transactional_id, producer, partitions, EPOCH_BUMPS)
        except BrokerError as error:
            return dict.fromkeys(partitions, ErrorCode(error.error_code))
        return dict.fromkeys(partitions, ErrorCode.none)


def _check_epoch(partition: Partition, producer: ProducerIdAndEpoch) -> None:
    state = partition.log.producers.producers.get(producer.producer_id)
    if state is not None and producer.producer_epoch < state.producer_epoch:
        raise ApiError(
            ErrorCode.invalid_producer_epoch,
            f"Epoch of producer {producer.producer_id} is {producer.producer_epoch}, "
            f"which is smaller than the last seen epoch {state.producer_epoch}",
        )


def _as_old_clients_know_it(code: ErrorCode, level: ClientLevel) -> ErrorCode:
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and level is ClientLevel.OLD:
        return ErrorCode.invalid_txn_state
    return code


def _as_producers_know_it(code: ErrorCode, level: ClientLevel) -> ApiError:
    code = _as_old_clients_know_it(code, level)
    if code is ErrorCode.invalid_txn_state:
        return ApiError(code, "Partition was not added to the transaction")
    if code in _TRIED_AGAIN or (code is ErrorCode.concurrent_transactions and level is not ClientLevel.ADDS_PARTITIONS):
        # Old clients try again only after this error.
        reason = "Unable to verify the partition has been added to the transaction. Underlying error: "
        return ApiError(ErrorCode.not_enough_replicas, reason + code.name.upper())
    return ApiError(code)
