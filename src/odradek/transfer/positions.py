"""Groups' positions on their way to a target.

    source    | 3 | 4 | 7 | 9 |             a group's position is 7: it comes next
    target    | 0 | 1 | C |                 all before 7 is committed: what comes next will get 3, whatever is between

A folder keeps the offsets, so positions stay as they are. A broker gives offsets of its own. There a transaction ends
before each record that is some group's position; the end of the partition is then the group's position in the target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from odradek.coordination.placement import partition_for
from odradek.kafka.committed_offset import CommittedOffset
from odradek.messages.coordinators.group_records import (
    NO_LEADER_EPOCH,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_offset_commit,
)
from odradek.records import Record
from odradek.records.timestamps import now_ms
from odradek.sources.path import PathSource
from odradek.sources.source import Source
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TopicPartition
from odradek.transfer.folder_target import FolderTarget

_OFFSETS_PARTITIONS = 50
_OFFSETS_CONFIG = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}


class GroupPositions(ABC):
    """Where the positions of groups are written. Any thread may use it."""

    @abstractmethod
    def known(self) -> set[tuple[str, TopicPartition]]:
        """Return the groups and partitions that have a position in the target."""

    @abstractmethod
    def place(self, topic_partition: TopicPartition, positions: Mapping[str, CommittedOffset]) -> dict[str, str]:
        """Set positions of groups to where the next record of the source will be in the target.

        Args:
            topic_partition: The partition of the target.
            positions: The position in the source of each group.

        Returns:
            The groups that the target refused, each with the reason.
        """


def known_positions(source: Source) -> set[tuple[str, TopicPartition]]:
    """Return the groups and partitions that have a position."""
    return {(group, partition) for group, offsets in source.group_offsets().items() for partition in offsets}


class FolderPositions(GroupPositions):
    """Positions in `__consumer_offsets` of a log directory.

    Args:
        target: The log directory.
    """

    def __init__(self, target: FolderTarget) -> None:
        self._target = target

    def known(self) -> set[tuple[str, TopicPartition]]:
        """Return the groups and partitions that have a position."""
        if not self._target.partitions(CONSUMER_OFFSETS_TOPIC):
            return set()
        with PathSource(self._target.address) as source:
            return known_positions(source)

    def place(self, topic_partition: TopicPartition, positions: Mapping[str, CommittedOffset]) -> dict[str, str]:
        """Write the positions as they are."""
        if not self._target.partitions(CONSUMER_OFFSETS_TOPIC):
            self._target.ensure_topic(CONSUMER_OFFSETS_TOPIC, _OFFSETS_PARTITIONS, _OFFSETS_CONFIG)
        partitions = self._target.partitions(CONSUMER_OFFSETS_TOPIC)
        for group, committed in positions.items():
            epoch = NO_LEADER_EPOCH if committed.leader_epoch is None else committed.leader_epoch
            value = OffsetCommitValue(committed.offset, committed.metadata, now_ms(), epoch)
            key, encoded = encode_offset_commit(OffsetCommitKey(group, *topic_partition), value)
            log = self._target.logs[CONSUMER_OFFSETS_TOPIC, partition_for(group, partitions)]
            log.append([Record(key=key, value=encoded)])
        return {}
