"""The states of a transactional id: a table, without a broker and without a file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.coordination.errors import RefusedError, TransactionErrorCode
from odradek.coordination.transactions.metadata import (
    ENDING,
    EPOCH_BUMPS,
    MAX_PRODUCER_EPOCH,
    TRANSITIONS,
    Event,
    Transaction,
    TransactionMetadata,
    decode_state,
    end_event,
)
from odradek.coordination.transactions.rules import ProducerIdAndEpoch, checked, is_to_be_ended
from odradek.errors import FormatError
from odradek.messages.coordinators.transaction_records import TransactionState, encode_transaction_record
from odradek.storage.names import TopicPartition

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
COMMITTING, ABORTING = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMMITTED, ABORTED = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
FENCED, WRONG, BUSY = (
    TransactionErrorCode.PRODUCER_FENCED,
    TransactionErrorCode.INVALID_TXN_STATE,
    TransactionErrorCode.CONCURRENT_TRANSACTIONS,
)
DECIDE, DONE = True, False

NOW, BEFORE = ProducerIdAndEpoch(7, 5), ProducerIdAndEpoch(7, 4)


def state(status: TransactionState, producer: ProducerIdAndEpoch = NOW, previous_id: int = 7) -> Transaction:
    metadata = TransactionMetadata(*producer, 60_000, status, 0, start_ms=0, previous_producer_id=previous_id)
    return Transaction("t", metadata)


def end(
    transaction: Transaction, producer: ProducerIdAndEpoch, commit: bool, version: int
) -> bool | TransactionErrorCode:
    try:
        return is_to_be_ended(transaction, producer, commit=commit, client_version=version)
    except RefusedError as error:
        return TransactionErrorCode(error.error_code)


@pytest.mark.parametrize(
    ("status", "old_abort", "old_commit", "abort_before", "abort_now", "commit_before", "commit_now"),
    [
        (EMPTY, WRONG, WRONG, FENCED, DECIDE, FENCED, WRONG),
        (ONGOING, DECIDE, DECIDE, FENCED, DECIDE, FENCED, DECIDE),
        (ABORTED, DONE, WRONG, DONE, DECIDE, WRONG, WRONG),
        (COMMITTED, WRONG, DONE, WRONG, DECIDE, DONE, WRONG),
        (COMMITTING, WRONG, WRONG, FENCED, WRONG, FENCED, WRONG),
        (ABORTING, WRONG, WRONG, FENCED, WRONG, FENCED, WRONG),
    ],
)
def test_which_ends_are_decided(
    status: TransactionState,
    old_abort: bool | TransactionErrorCode,
    old_commit: bool | TransactionErrorCode,
    abort_before: bool | TransactionErrorCode,
    abort_now: bool | TransactionErrorCode,
    commit_before: bool | TransactionErrorCode,
    commit_now: bool | TransactionErrorCode,
) -> None:
    one = state(status)
    assert [end(one, NOW, commit, 1) for commit in (False, True)] == [old_abort, old_commit]
    assert [end(one, BEFORE, commit, 1) for commit in (False, True)] == [FENCED, FENCED]
    found = [end(one, producer, commit, EPOCH_BUMPS) for commit in (False, True) for producer in (BEFORE, NOW)]
    assert found == [abort_before, abort_now, commit_before, commit_now]
    other = ProducerIdAndEpoch(8, 5)
    assert {end(one, other, True, version) for version in (0, EPOCH_BUMPS)} == {
        TransactionErrorCode.INVALID_PRODUCER_ID_MAPPING
    }
    one.pending = status
    assert end(one, NOW, True, 1) == end(one, other, True, EPOCH_BUMPS) == BUSY


@pytest.mark.parametrize(
    ("status", "answer"), [(COMMITTED, DONE), (ABORTED, WRONG), (ONGOING, FENCED), (EMPTY, FENCED)]
)
def test_an_end_that_is_asked_for_again_with_the_id_before(
    status: TransactionState, answer: bool | TransactionErrorCode
) -> None:
    one = state(status, ProducerIdAndEpoch(8, 0), previous_id=7)
    assert end(one, ProducerIdAndEpoch(7, MAX_PRODUCER_EPOCH - 1), True, EPOCH_BUMPS) == answer
    # Kafka takes -1 for the epoch before 0, too.
    assert end(one, ProducerIdAndEpoch(8, -1), True, EPOCH_BUMPS) == answer


@pytest.mark.parametrize("status", TransactionState)
def test_partitions_are_added_where_no_end_is_decided(status: TransactionState) -> None:
    if status in TRANSITIONS[Event.ADD]:
        added = checked(state(status), NOW).with_partitions([TopicPartition("t", 0)], 0, 9)
        assert (added.state, added.start_ms) == (ONGOING, 0 if status is ONGOING else 9)
        return
    with pytest.raises(RefusedError) as found:
        checked(state(status), NOW)
    assert found.value.error_code == BUSY


def test_each_state_that_can_be_reached_can_be_left_but_the_last() -> None:
    reached, new = set[TransactionState](), {EMPTY}
    while new:
        reached |= new
        new = {
            after for follow in TRANSITIONS.values() for before, after in follow.items() if before in reached
        } - reached
    assert reached == set(TransactionState) - {TransactionState.PREPARE_EPOCH_FENCE}
    left = {before for follow in TRANSITIONS.values() for before in follow}
    assert reached - left == {TransactionState.DEAD}
    # What is decided is not undone: there is one way on.
    for status in ENDING:
        assert [event for event, follow in TRANSITIONS.items() if status in follow] == [Event.MARKED]


@pytest.mark.parametrize("version", [0, EPOCH_BUMPS])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_from_its_begin_to_its_end(commit: bool, version: int) -> None:
    began = state(EMPTY).metadata.with_partitions([TopicPartition("t", 1)], version, 1)
    ending = began.ending(commit=commit, client_version=version, now_ms=2)
    ended = ending.ended(3)
    assert [one.state for one in (began, ending, ended)] == [
        ONGOING,
        TRANSITIONS[end_event(commit=commit, client_version=version)][ONGOING],
        COMMITTED if commit else ABORTED,
    ]
    assert [one.producer_epoch for one in (began, ending, ended)] == ([5, 6, 6] if version else [5, 5, 5])
    assert (ending.partitions, ended.partitions) == (began.partitions, frozenset())
    for one in (began, ending, ended):
        record = encode_transaction_record("t", one.to_value(1))
        assert decode_state(*record) == ("t", replace(one, last_producer_epoch=-1))
    assert decode_state(*encode_transaction_record("t", None)) == ("t", None)


def test_a_state_of_a_later_kafka_is_told() -> None:
    value = state(EMPTY).metadata.to_value(1)._replace(transaction_status=99)
    with pytest.raises(FormatError, match="99"):
        decode_state(*encode_transaction_record("t", value))
