"""Which requests are allowed in which state of a transactional id, and with which error the others are refused.

Source in Kafka: `TransactionCoordinator`, KIP-360, KIP-890.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.coordination.errors import RefusedError, TransactionErrorCode
from odradek.coordination.transactions.metadata import (
    EPOCH_BUMPS,
    MAX_PRODUCER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSITIONS,
    Event,
    Transaction,
    TransactionMetadata,
    end_event,
    is_last_epoch,
)
from odradek.messages.coordinators.transaction_records import TransactionState


class ProducerIdAndEpoch(NamedTuple):
    """What a producer writes with."""

    producer_id: int
    producer_epoch: int


NO_PRODUCER = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
"""Sent by a producer that has no id yet; the answer to one that keeps its id and epoch."""


def checked(transaction: Transaction, producer: ProducerIdAndEpoch) -> TransactionMetadata:
    """Return the state of a transactional id, if the producer may add partitions to its transaction now.

    Raises:
        RefusedError: It may not.
    """
    metadata = transaction.metadata
    _check_is_current(metadata, producer)
    if metadata.state not in TRANSITIONS[Event.ADD]:
        raise RefusedError(TransactionErrorCode.CONCURRENT_TRANSACTIONS)
    return metadata


def is_own(metadata: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Whether a producer that continues after an error is the last one of its transactional id, judging by its id."""
    return (
        metadata.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == metadata.producer_id
        or (expected.producer_id == metadata.previous_producer_id and is_last_epoch(expected.producer_epoch))
    )


def is_to_be_ended(
    transaction: Transaction, producer: ProducerIdAndEpoch, *, commit: bool, client_version: int
) -> bool:
    """Return whether an end that a client asks for is to be decided; False if it is complete.

    From `transaction.version` 2 on each end has a new epoch, and a client that has the one before asks again:

        state            abort: epoch before   epoch now        commit: epoch before   epoch now
        Empty            PRODUCER_FENCED       decide           PRODUCER_FENCED        INVALID_TXN_STATE
        Ongoing          PRODUCER_FENCED       decide           PRODUCER_FENCED        decide
        CompleteAbort    complete              decide           INVALID_TXN_STATE      INVALID_TXN_STATE
        CompleteCommit   INVALID_TXN_STATE     decide           complete               INVALID_TXN_STATE

    Before, it asks again with the same epoch:

        state            abort                 commit
        Empty            INVALID_TXN_STATE     INVALID_TXN_STATE
        Ongoing          decide                decide
        CompleteAbort    complete              INVALID_TXN_STATE
        CompleteCommit   INVALID_TXN_STATE     complete

    Raises:
        RefusedError: It cannot be ended so.
    """
    metadata = transaction.metadata
    if client_version < EPOCH_BUMPS:
        _check_is_current(metadata, producer)
        transaction.check_not_pending()
        may_decide = may_be_complete = True
    else:
        transaction.check_not_pending()
        may_be_complete = _is_before(metadata, producer)
        may_decide = not may_be_complete
        if may_decide:
            _check_is_current(metadata, producer)
        elif metadata.state not in TRANSITIONS[Event.MARKED].values():
            raise RefusedError(TransactionErrorCode.PRODUCER_FENCED)
    event = end_event(commit=commit, client_version=client_version)
    if may_decide and metadata.state in TRANSITIONS[event]:
        return True
    if may_be_complete and metadata.state is TRANSITIONS[Event.MARKED][TRANSITIONS[event][TransactionState.ONGOING]]:
        return False
    reason = f"a transaction in state {metadata.state.name} cannot be {'committed' if commit else 'aborted'}"
    raise RefusedError(TransactionErrorCode.INVALID_TXN_STATE, reason)


def _is_before(metadata: TransactionMetadata, producer: ProducerIdAndEpoch) -> bool:
    """Return whether a producer has the id and epoch before those of now, as one that has not got an answer."""
    if producer == (metadata.producer_id, metadata.producer_epoch - 1):
        return True
    # When the epochs of an id are used up, another id follows.
    return metadata.producer_epoch == 0 and producer == (metadata.previous_producer_id, MAX_PRODUCER_EPOCH - 1)


def _check_is_current(metadata: TransactionMetadata, producer: ProducerIdAndEpoch) -> None:
    if metadata.producer_id != producer.producer_id:
        raise RefusedError(TransactionErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if metadata.producer_epoch != producer.producer_epoch:
        raise RefusedError(TransactionErrorCode.PRODUCER_FENCED)
