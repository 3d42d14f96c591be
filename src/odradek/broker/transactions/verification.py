"""Whether a batch that a client sends belongs to its transaction, so that none is left hanging (KIP-890).

The first batch of a transaction in a partition is verified: the coordinator must know the partition. A client of
`transaction.version` 2 does not tell its partitions before it writes to them: its first batch adds them. Later batches
need nothing, since the log has the open transaction.

Source in Kafka: `ReplicaManager.handleProduceAppend`, `AddPartitionsToTxnManager`,
`CoordinatorPartitionWriter.maybeStartTransactionVerification`, `UnifiedLog.maybeStartTransactionVerification`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError
from odradek.broker.partitions import Partition
from odradek.broker.transactions.metadata import EPOCH_BUMPS
from odradek.broker.transactions.rules import ProducerIdAndEpoch
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.api import Request
    from odradek.broker.broker import Broker

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
        OLD: It tells its partitions first, and knows no TRANSACTION_ABORTABLE.
        KNOWS_ABORTABLE: It tells its partitions first.
        ADDS_PARTITIONS: It adds them by writing to them.
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


async def verify_batches(
    broker: Broker,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Sequence[Partition],
    level: ClientLevel,
) -> Mapping[TopicPartition, ApiError]:
    """Have the partitions of produced batches verified, or added to the transaction.

    Args:
        broker: The broker.
        transactional_id: The transactional id.
        producer: What the batches are written with.
        partitions: Where they are to be written; the producer has no open transaction there.
        level: What the client expects.

    Returns:
        The partitions that nothing may be appended to, and why.
    """
    refused: dict[TopicPartition, ApiError] = {}
    unknown = []
    for partition in partitions:
        try:
            _check_epoch(partition, producer)
            unknown.append(partition.topic_partition)
        except ApiError as error:
            refused[partition.topic_partition] = error
    if not unknown or not _is_asked(broker, level):
        return refused
    started_ms = broker.clock.elapsed_ms()
    while True:
        codes = await _ask(broker, transactional_id, producer, unknown, level)
        if level is not ClientLevel.ADDS_PARTITIONS or ErrorCode.concurrent_transactions not in codes.values():
            break
        # Try again here: that is faster than letting the client send its batches again.
        if broker.clock.elapsed_ms() - started_ms >= _LONGEST_RETRY_MS:
            break
        await broker.clock.sleep(_RETRY_MS)
    for topic_partition, code in codes.items():
        if code is not ErrorCode.none:
            refused[topic_partition] = _as_producers_know_it(code, level)
    return refused


def verify_offset_commit(request: Request, partition: Partition) -> Awaitable[None] | None:
    """Return what to wait for before offsets of a transaction may be appended; it raises if they may not.

    Args:
        request: A TxnOffsetCommit request.
        partition: The partition of `__consumer_offsets` that holds its group.

    Raises:
        ApiError: The producer has been replaced.
    """
    producer = ProducerIdAndEpoch(request.body.producer_id, request.body.producer_epoch)
    level = ClientLevel.of_offset_commit(request.version)
    _check_epoch(partition, producer)
    if is_verified(partition, producer) or not _is_asked(request.broker, level):
        return None
    return _verify_offset_commit(request, partition, producer, level)


async def _verify_offset_commit(
    request: Request, partition: Partition, producer: ProducerIdAndEpoch, level: ClientLevel
) -> None:
    name = partition.topic_partition
    code = (await _ask(request.broker, request.body.transactional_id, producer, [name], level))[name]
    if code is not ErrorCode.none:
        raise ApiError(_as_old_clients_know_it(code, level))


def _is_asked(broker: Broker, level: ClientLevel) -> bool:
    return level is ClientLevel.ADDS_PARTITIONS or bool(broker.config["transaction.partition.verification.enable"])


def _check_epoch(partition: Partition, producer: ProducerIdAndEpoch) -> None:
    state = partition.log.producers.producers.get(producer.producer_id)
    if state is not None and producer.producer_epoch < state.producer_epoch:
        raise ApiError(
            ErrorCode.invalid_producer_epoch,
            f"Epoch of producer {producer.producer_id} is {producer.producer_epoch}, "
            f"which is smaller than the last seen epoch {state.producer_epoch}",
        )


async def _ask(
    broker: Broker,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Sequence[TopicPartition],
    level: ClientLevel,
) -> Mapping[TopicPartition, ErrorCode]:
    """Ask the coordinator. After an answer without an error, the caller must append without another `await`."""
    coordinator = broker.transactions
    # Wait instead of answering COORDINATOR_LOAD_IN_PROGRESS: later batches would overtake the first one.
    await coordinator.states.wait_until_loaded()
    try:
        if level is not ClientLevel.ADDS_PARTITIONS:
            return coordinator.verify_partitions(transactional_id, producer, partitions)
        await coordinator.add_partitions(transactional_id, producer, partitions, EPOCH_BUMPS)
    except ApiError as error:
        return dict.fromkeys(partitions, ErrorCode(error.error_code))
    return dict.fromkeys(partitions, ErrorCode.none)


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
