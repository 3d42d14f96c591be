"""Markers: the batches in the partitions that end a producer's transaction.

They are appended by the broker itself, as there is no other one. A partition whose topic was deleted needs none; one
that cannot be written now gets its marker later, so a transaction may be between decided and complete for long.

Source in Kafka: `KafkaApis.handleWriteTxnMarkersRequest`, `TransactionMarkerChannelManager`,
`TransactionMarkerRequestCompletionHandler`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TopicPartition

if TYPE_CHECKING:
    from odradek.broker.broker import Broker


class Marker(NamedTuple):
    """What is written into each partition of a transaction.

    Attributes:
        producer_id: The producer.
        producer_epoch: Its epoch.
        is_commit: Whether the transaction is committed.
        coordinator_epoch: The leader epoch of the coordinator's partition.
        transaction_version: The `transaction.version` that the transaction was ended by.
    """

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


def write_marker(broker: Broker, topic_partition: TopicPartition, marker: Marker) -> asyncio.Future[None] | None:
    """Append a marker to a partition; the group coordinator is told of one among its offsets.

    Returns:
        What to wait for, if it takes longer than a request may keep the others waiting.

    Raises:
        BrokerError: There is no such partition, or the marker is refused: the producer or the coordinator has been
            replaced. What is waited for may raise it as well.
        LogError: The partition cannot be written, likewise.
    """
    partition = broker.partitions.get(*topic_partition)

    def append() -> None:
        partition.log.end_transaction(
            marker.producer_id,
            marker.producer_epoch,
            commit=marker.is_commit,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )

    async def tell_after(appended: Awaitable[None]) -> None:
        await appended
        _tell_groups(broker, topic_partition, marker)

    if not partition.is_prompt:
        return asyncio.ensure_future(tell_after(partition.in_order(append)))
    append()
    partition.changed()
    _tell_groups(broker, topic_partition, marker)
    return None


def _tell_groups(broker: Broker, topic_partition: TopicPartition, marker: Marker) -> None:
    if topic_partition.topic == CONSUMER_OFFSETS_TOPIC:
        broker.groups.transaction_ended(topic_partition.partition, marker.producer_id, marker.is_commit)


async def write_markers(
    broker: Broker, partitions: Iterable[TopicPartition], marker: Marker
) -> dict[TopicPartition, Exception | None]:
    """Append a marker to several partitions, at the same time if they take long.

    Returns:
        For each partition the error, whatever it was, or None.
    """
    found: dict[TopicPartition, Exception | None] = {}
    later: dict[TopicPartition, asyncio.Future[None]] = {}
    for one in partitions:
        found[one] = None
        try:
            written = write_marker(broker, one, marker)
        except Exception as error:
            found[one] = error
            continue
        if written is not None:
            later[one] = written
    for one, written in later.items():
        try:
            await written
        except Exception as error:
            found[one] = error
    return found
