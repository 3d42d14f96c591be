"""Which requests are allowed in which state of a transactional id, and with which error the others are refused.

Source in Kafka: `TransactionCoordinator`, KIP-360, KIP-890.
"""

from __future__ import annotations

from typing import NamedTuple

from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError
from odradek.broker.transactions.metadata import (
    ENDING,
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
    TransactionMetadata,
    is_last_epoch,
)
from odradek.messages.coordinators.transaction_records import TransactionState


class ProducerIdAndEpoch(NamedTuple):
    """What a producer writes with."""

    producer_id: int
    producer_epoch: int


NOT_TOLD = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
"""Sent by a producer that has no id yet, and answered to one that keeps its id and epoch."""


def checked(transaction: Transaction, producer: ProducerIdAndEpoch) -> TransactionMetadata:
    """Return the state of a transactional id, if the producer may add partitions to its transaction now.

    Raises:
        ApiError: It may not.
    """
    metadata = transaction.metadata
    _check_is_current(metadata, producer)
    if metadata.state in ENDING:
        raise ApiError(ErrorCode.concurrent_transactions)
    return metadata


def is_own(metadata: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Whether a producer that goes on is the last one of its transactional id, as far as the id tells."""
    return (
        metadata.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == metadata.producer_id
        or (expected.producer_id == metadata.previous_producer_id and is_last_epoch(expected.producer_epoch))
    )


def is_to_be_ended(transaction: Transaction, producer: ProducerIdAndEpoch, *, commit: bool) -> bool:
    """Return whether an end that a client asks for is to be decided; False if it is complete.

    Raises:
        ApiError: It cannot be.
    """
    metadata = transaction.metadata
    _check_is_current(metadata, producer)
    transaction.check_not_pending()
    if metadata.state is TransactionState.ONGOING:
        return True
    if metadata.state is _ended_by(commit):
        return False
    raise _wrong_state(metadata, commit=commit)


def is_to_be_ended_with_new_epoch(transaction: Transaction, producer: ProducerIdAndEpoch, *, commit: bool) -> bool:
    """Return whether an end that a client asks for is to be decided; False if it asks again for one that is complete.

    It asks again if it has the epoch before: each end has a new one.

        state            abort: epoch before   epoch now        commit: epoch before   epoch now
        Empty            PRODUCER_FENCED       decide           PRODUCER_FENCED        INVALID_TXN_STATE
        Ongoing          PRODUCER_FENCED       decide           PRODUCER_FENCED        decide
        CompleteAbort    complete              decide           INVALID_TXN_STATE      INVALID_TXN_STATE
        CompleteCommit   INVALID_TXN_STATE     decide           complete               INVALID_TXN_STATE

    Raises:
        ApiError: It cannot be.
    """
    transaction.check_not_pending()
    metadata = transaction.metadata
    has_new_id = (
        metadata.previous_producer_id == producer.producer_id
        and producer.producer_epoch == MAX_PRODUCER_EPOCH - 1
        and metadata.producer_epoch == 0
    )
    if metadata.producer_id != producer.producer_id and not has_new_id:
        raise ApiError(ErrorCode.invalid_producer_id_mapping)
    asks_again = has_new_id or metadata.producer_epoch == producer.producer_epoch + 1
    is_complete = metadata.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    if metadata.producer_epoch != producer.producer_epoch and not (is_complete and asks_again):
        raise ApiError(ErrorCode.producer_fenced)
    if is_complete and asks_again:
        if metadata.state is _ended_by(commit):
            return False
        raise _wrong_state(metadata, commit=commit)
    if metadata.state is TransactionState.ONGOING or not commit:
        return True
    raise _wrong_state(metadata, commit=commit)


def _check_is_current(metadata: TransactionMetadata, producer: ProducerIdAndEpoch) -> None:
    if metadata.producer_id != producer.producer_id:
        raise ApiError(ErrorCode.invalid_producer_id_mapping)
    if metadata.producer_epoch != producer.producer_epoch:
        raise ApiError(ErrorCode.producer_fenced)


def _ended_by(commit: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT


def _wrong_state(metadata: TransactionMetadata, *, commit: bool) -> ApiError:
    wanted = "committed" if commit else "aborted"
    return ApiError(ErrorCode.invalid_txn_state, f"a transaction in state {metadata.state.name} cannot be {wanted}")
