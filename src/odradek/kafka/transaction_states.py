"""What a broker tells of transactions (KIP-664), which Kafka does from 3.0 on.

Source in Kafka: `TransactionCoordinator.handleDescribeTransactions`, `TransactionState`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from kafka import errors
from kafka.protocol.admin.transactions import DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.metadata import CoordinatorType

from odradek.errors import BrokerUnavailableError
from odradek.kafka.client import BrokerClient
from odradek.kafka.cluster import check
from odradek.kafka.producer_identity import ProducerIdentity

_ENDING = ("PrepareCommit", "PrepareAbort")
_FIRST_WAIT_S = 0.001
_LONGEST_WAIT_S = 0.1


def producers_of(client: BrokerClient, transactional_ids: Iterable[str]) -> dict[str, ProducerIdentity] | None:
    """Return the producers that transactional ids belong to now; those that nobody has are left out.

    Returns:
        None if the broker does not tell.

    Raises:
        BrokerUnavailableError: The broker did not answer in time, or refuses it.
    """
    states = _states(client, transactional_ids)
    if states is None:
        return None
    return {one.transactional_id: ProducerIdentity(one.producer_id, one.producer_epoch) for one in states}


def transactional_ids(client: BrokerClient, producer_ids: Iterable[int]) -> dict[int, str]:
    """Return the transactional ids of producers; those that the brokers do not tell are left out."""
    asked_for = list(producer_ids)

    def ask() -> dict[int, str]:
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=asked_for, max_version=0)
        answers = [client.ask(request, node) for node in client.nodes()] if asked_for else []
        return {one.producer_id: one.transactional_id for answer in answers for one in answer.transaction_states}

    try:
        return client.attempt("listing transactions", ask)
    except (BrokerUnavailableError, errors.IncompatibleBrokerVersion):
        return {}


def wait_until_visible(client: BrokerClient, transactional_ids: Iterable[str]) -> None:
    """Wait until readers see what transactions have committed.

    A coordinator answers as soon as it has decided, and writes the markers then. Until they are written, which takes
    some milliseconds, or as long as the leader of a partition is away, readers of transactions do not see the records.

    Returns without an error if the time-out of the client is over first, or if the broker does not tell: the
    transactions are committed all the same.
    """
    asked_for = list(transactional_ids)
    deadline = time.monotonic() + client.settings.timeout_ms / 1000
    wait_s = _FIRST_WAIT_S
    with suppress(BrokerUnavailableError):
        while asked_for and time.monotonic() < deadline:
            states = _states(client, asked_for)
            asked_for = [one.transactional_id for one in states or () if one.transaction_state in _ENDING]
            if asked_for:
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def _states(client: BrokerClient, transactional_ids: Iterable[str]) -> list[Any] | None:
    """Return the states of transactional ids that somebody has; None if the broker does not tell."""
    asked_for = list(transactional_ids)

    def ask() -> Iterator[Any]:
        for node, ids in client.by_coordinator(asked_for, CoordinatorType.TRANSACTION).items():
            answer = client.ask(DescribeTransactionsRequest(transactional_ids=ids, max_version=0), node)
            for state in answer.transaction_states:
                if state.error_code != errors.TransactionalIdNotFoundError.errno:
                    check(state.error_code, f"looking for the transaction of {state.transactional_id}")
                    yield state

    def ask_all() -> list[Any] | None:
        try:
            return list(ask())
        except errors.IncompatibleBrokerVersion:
            return None

    return client.attempt("looking for transactions", ask_all)
