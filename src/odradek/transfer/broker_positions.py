"""Groups' positions in a broker; `positions` says how they are found."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from kafka import errors
from kafka.protocol.consumer import OffsetCommitRequest
from kafka.protocol.metadata import CoordinatorType

from odradek.errors import BrokerUnavailableError
from odradek.kafka.client import BrokerClient
from odradek.kafka.cluster import check
from odradek.kafka.committed_offset import CommittedOffset
from odradek.sources.broker import BrokerSource
from odradek.storage.names import TopicPartition
from odradek.transfer.positions import GroupPositions, known_positions

_NO_GENERATION = -1
_MARKER_S = 5.0
_RETRY_S = 0.01
_NO_LEADER_EPOCH = -1


class BrokerPositions(GroupPositions):
    """Positions of groups that have no members in the target.

    Args:
        broker: The broker.
    """

    def __init__(self, broker: BrokerSource) -> None:
        self._broker = broker

    def known(self) -> set[tuple[str, TopicPartition]]:
        """Return the groups and partitions that have a position."""
        return known_positions(self._broker)

    def place(self, topic_partition: TopicPartition, positions: Mapping[str, CommittedOffset]) -> dict[str, str]:
        """Commit the end of the partition for each group."""
        end_offset = self._end_offset(topic_partition)
        refused = {}
        with self._broker.client() as client:
            for group, committed in positions.items():
                ask = _commit(client, group, topic_partition, end_offset, committed.metadata)
                try:
                    client.attempt(f"position of {group}", ask)
                except BrokerUnavailableError as error:
                    if not isinstance(error.__cause__, errors.KafkaError):
                        raise
                    refused[group] = str(error)
        return refused

    def _end_offset(self, topic_partition: TopicPartition) -> int:
        """Return the end of a partition, after the marker of the transaction that was committed last."""
        deadline = time.monotonic() + _MARKER_S
        while True:
            stable = self._broker.bounds(topic_partition, "read_committed").end_offset
            end_offset = self._broker.bounds(topic_partition).end_offset
            # Do not wait for ever: a transaction of another producer may stay open for long.
            if stable == end_offset or time.monotonic() > deadline:
                return end_offset
            time.sleep(_RETRY_S)


def _commit(
    client: BrokerClient, group: str, topic_partition: TopicPartition, offset: int, metadata: str
) -> Callable[[], Any]:
    kind = OffsetCommitRequest.OffsetCommitRequestTopic
    part = kind.OffsetCommitRequestPartition(
        partition_index=topic_partition.partition,
        committed_offset=offset,
        committed_leader_epoch=_NO_LEADER_EPOCH,
        committed_metadata=metadata,
    )

    def ask() -> None:
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=_NO_GENERATION,
            member_id="",
            group_instance_id=None,
            topics=[kind(name=topic_partition.topic, partitions=[part])],
            min_version=7,
            max_version=8,
        )
        response = client.ask(request, client.coordinator(group, CoordinatorType.GROUP))
        check(response.topics[0].partitions[0].error_code, f"position of {group}")

    return ask
