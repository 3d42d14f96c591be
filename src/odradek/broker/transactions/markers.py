"""Markers: the batches in the partitions that end a producer's transaction.

The broker appends them itself: there is no other broker. A partition whose topic was deleted needs none; one
that cannot be written now gets its marker later, so a transaction may be between decided and complete for long.

Source in Kafka: `KafkaApis.handleWriteTxnMarkersRequest`, `TransactionMarkerChannelManager`,
`TransactionMarkerRequestCompletionHandler`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from odradek.broker.clock import Clock
from odradek.broker.partitions import Partitions
from odradek.broker.turns import rest
from odradek.records.append.validator import AppendOrigin
from odradek.records.builder import build_control_batch
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TopicPartition


class Marker(NamedTuple):
    """The end of a transaction, as it is written into each of its partitions.

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


class Markers:
    """Writes markers.

    Args:
        partitions: The partitions of the broker.
        clock: The time.
        offsets_ended: Called with the number of a partition of `__consumer_offsets`, a producer id, and whether its
            transaction was committed.
    """

    def __init__(self, partitions: Partitions, clock: Clock, offsets_ended: Callable[[int, int, bool], None]) -> None:
        self._partitions = partitions
        self._clock = clock
        self._offsets_ended = offsets_ended

    async def _write(self, topic_partition: TopicPartition, marker: Marker) -> None:
        partition = await self._partitions.opened(*topic_partition)
        partition.lowest_sequences.forget(marker.producer_id)
        batch = build_control_batch(
            EndTransactionMarker(
                ControlRecordType.COMMIT if marker.is_commit else ControlRecordType.ABORT, marker.coordinator_epoch
            ),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp=self._clock.now_ms(),
        )
        await partition.append_acknowledged(
            bytearray(batch), origin=AppendOrigin.COORDINATOR, transaction_version=marker.transaction_version
        )
        if topic_partition.topic == CONSUMER_OFFSETS_TOPIC:
            self._offsets_ended(topic_partition.partition, marker.producer_id, marker.is_commit)

    async def write(
        self, partitions: Iterable[TopicPartition], marker: Marker
    ) -> dict[TopicPartition, Exception | None]:
        """Append a marker to several partitions at the same time; return when all may be acknowledged.

        Returns:
            For each partition the error, whatever it was, or None. A `BrokerError`: there is no such partition, or the
            producer or the coordinator has been replaced. A `LogError`: it cannot be written.
        """
        named = list(dict.fromkeys(partitions))
        used = [self._partitions.in_use(*one) for one in named]
        if any(one is not None and one.flushes for one in used):
            errors = await asyncio.gather(*(_error_of(self._write(one, marker)) for one in named))
            return dict(zip(named, errors, strict=True))
        # Usually none of them waits for anything.
        found: dict[TopicPartition, Exception | None] = {}
        for number, one in enumerate(named):
            await rest(number)
            found[one] = await _error_of(self._write(one, marker))
        return found


async def _error_of(write: Awaitable[None]) -> Exception | None:
    try:
        await write
    except Exception as error:
        # Its frames would be kept, too, and looked at by each collection of garbage.
        return error.with_traceback(None)
    return None
