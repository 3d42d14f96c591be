"""What a broker knows a producer by.

Source in Kafka: `ProducerIdAndEpoch`, `TransactionManager`.
"""

from __future__ import annotations

from typing import NamedTuple

from kafka.errors import InvalidTransactionTimeoutError
from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer import InitProducerIdRequest

from odradek.errors import OptionError
from odradek.kafka.client import BrokerClient
from odradek.kafka.cluster import check


class ProducerIdentity(NamedTuple):
    """What a broker knows a producer by; a later one of the same transactional id has a higher epoch."""

    producer_id: int
    producer_epoch: int


def take_producer_id(client: BrokerClient, transactional_id: str | None = None) -> ProducerIdentity:
    """Return a producer id and its epoch.

    Args:
        client: The cluster.
        transactional_id: The transactional id to take over: its former owner is fenced, and the transaction that it
            left open is aborted. None for a producer that is only idempotent.

    Raises:
        BrokerUnavailableError: The broker did not answer in time, or refuses it.
        OptionError: The broker allows no transaction to be open for as long as the settings ask for.
    """
    what = "getting a producer id" + ("" if transactional_id is None else f" for {transactional_id}")
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=client.settings.transaction_timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
        max_version=4,
    )

    def ask() -> ProducerIdentity:
        # Any broker gives an id to a producer without transactions.
        node = None if transactional_id is None else client.coordinator(transactional_id, CoordinatorType.TRANSACTION)
        response = client.ask(request, node)
        if response.error_code == InvalidTransactionTimeoutError.errno:
            raise OptionError(
                f"transaction.timeout.ms = {client.settings.transaction_timeout_ms}: the broker's "
                f"transaction.max.timeout.ms allows less (INVALID_TRANSACTION_TIMEOUT, {what})"
            )
        check(response.error_code, what)
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    return client.attempt(what, ask)
