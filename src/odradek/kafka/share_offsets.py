"""How far share groups are, as a broker has it (KIP-932).

    DescribeShareGroupOffsets 90    start offsets, and from version 1 on lags
    AlterShareGroupOffsets 91       sets start offsets of a group without members

Source in Kafka: `ListShareGroupOffsetsHandler`, `AlterShareGroupOffsetsHandler`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kafka import errors
from kafka.protocol.metadata import CoordinatorType

from odradek.inspection.group_description import SharedPartition
from odradek.kafka.client import BrokerClient
from odradek.kafka.cluster import check
from odradek.kafka.kio_request import KioRequest
from odradek.storage.names import TopicPartition


def share_offsets(client: BrokerClient, groups: Collection[str]) -> dict[str, dict[TopicPartition, SharedPartition]]:
    """Return how far share groups are in each partition that they have read; nothing if the broker cannot tell that.

    Raises:
        BrokerUnavailableError: The broker did not answer in time, or refuses it.
    """

    def request(ids: list[str]) -> KioRequest:
        def build(kio: Any) -> Any:
            asked = (kio.DescribeShareGroupOffsetsRequestGroup(group_id=one, topics=None) for one in ids)
            return kio.DescribeShareGroupOffsetsRequest(groups=tuple(asked))

        return KioRequest("DescribeShareGroupOffsets", 90, (0, 1), build)

    def ask() -> dict[str, dict[TopicPartition, SharedPartition]]:
        found = {}
        for node_id, ids in client.by_coordinator(groups, CoordinatorType.GROUP).items():
            for group in client.ask(request(ids), node_id).groups:
                check(group.error_code, f"offsets of {group.group_id}")
                found[str(group.group_id)] = dict(sorted(_partitions(group)))
        return found

    if not client.supports(request([])):
        return {group: {} for group in groups}
    return client.attempt("offsets of share groups", ask)


def _partitions(group: Any) -> list[tuple[TopicPartition, SharedPartition]]:
    found = []
    for topic in group.topics:
        for part in topic.partitions:
            name = TopicPartition(str(topic.topic_name), int(part.partition_index))
            check(part.error_code, f"offset of {name}")
            # Version 0 has no lag.
            start, lag = int(part.start_offset), int(getattr(part, "lag", -1))
            found.append((name, SharedPartition(None if start < 0 else start, None if lag < 0 else lag)))
    return found


def set_share_offsets(client: BrokerClient, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set the start offsets of a share group that has no members; its records from there on are delivered again.

    Raises:
        BrokerUnavailableError: The coordinator refuses it: the group has members, or a partition does not exist.
    """
    by_topic: dict[str, list[tuple[int, int]]] = {}
    for name, offset in sorted(offsets.items()):
        by_topic.setdefault(name.topic, []).append((name.partition, offset))

    def build(kio: Any) -> Any:
        part = kio.AlterShareGroupOffsetsRequestPartition
        topics = (
            kio.AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=tuple(part(partition_index=number, start_offset=offset) for number, offset in parts),
            )
            for topic, parts in by_topic.items()
        )
        return kio.AlterShareGroupOffsetsRequest(group_id=group, topics=tuple(topics))

    def ask() -> None:
        node_id = client.coordinator(group, CoordinatorType.GROUP)
        answer = client.ask(KioRequest("AlterShareGroupOffsets", 91, (0, 0), build), node_id)
        _check(answer, f"offsets of {group}")
        for topic in answer.responses:
            for part in topic.partitions:
                _check(part, f"offset of {topic.topic_name}-{part.partition_index}")

    client.attempt(f"group {group}", ask)


def _check(answer: Any, what: str) -> None:
    if answer.error_code:
        told = f": {answer.error_message}" if answer.error_message else ""
        raise errors.for_code(int(answer.error_code))(f"{what}{told}")
