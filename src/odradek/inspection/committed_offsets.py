"""Committed offsets, and those of transactions that have not ended.

    committed   group -> partition -> offset
    pending     producer -> group, partition -> offset          until the transaction's marker

Source in Kafka: `OffsetMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from odradek.messages.coordinators.group_records import OffsetCommitKey, OffsetCommitValue
from odradek.storage.names import TopicPartition


class CommittedOffset(NamedTuple):
    """An offset, and where in the log of `__consumer_offsets` its record is."""

    value: OffsetCommitValue
    record_offset: int


class Offsets:
    """The offsets of the groups of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._pending: dict[int, dict[tuple[str, TopicPartition], CommittedOffset]] = {}
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}

    def of(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group."""
        return self._committed.get(group_id, {})

    def is_pending(self, group_id: str, partition: TopicPartition | None = None) -> bool:
        """Whether a transaction that has not ended holds an offset of a group, or of one of its partitions."""
        found = self._open.get(group_id)
        return found is not None and (partition is None or partition in found)

    def replay(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, record_offset: int, producer_id: int
    ) -> None:
        """Take over what a record says.

        Args:
            key: Its key.
            value: Its value; None for a tombstone.
            record_offset: Its offset.
            producer_id: The producer if it belongs to a transaction, else -1.
        """
        group_id, partition = key.group, TopicPartition(key.topic, key.partition)
        if value is None:
            self._remove(group_id, partition)
            for open_producer in self._open.get(group_id, {}).pop(partition, ()):
                self._pending.get(open_producer, {}).pop((group_id, partition), None)
            if not self._open.get(group_id, True):
                del self._open[group_id]
        elif producer_id < 0:
            self._committed.setdefault(group_id, {})[partition] = CommittedOffset(value, record_offset)
        else:
            pending = self._pending.setdefault(producer_id, {})
            pending[group_id, partition] = CommittedOffset(value, record_offset)
            self._open.setdefault(group_id, {}).setdefault(partition, set()).add(producer_id)

    def _remove(self, group_id: str, partition: TopicPartition) -> None:
        found = self._committed.get(group_id)
        if found is not None:
            found.pop(partition, None)
            if not found:
                del self._committed[group_id]

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        """Commit or drop the offsets of a transaction."""
        for (group_id, partition), offset in self._pending.pop(producer_id, {}).items():
            producers = self._open[group_id][partition]
            producers.discard(producer_id)
            if not producers:
                del self._open[group_id][partition]
                if not self._open[group_id]:
                    del self._open[group_id]
            if not is_committed:
                continue
            # The later record counts, as if the log had been compacted.
            committed = self._committed.setdefault(group_id, {})
            if partition not in committed or committed[partition].record_offset < offset.record_offset:
                committed[partition] = offset

    def removable(self, group_id: str) -> Iterator[TopicPartition]:
        """Yield the partitions that a group has an offset of, pending ones too."""
        yield from dict.fromkeys([*self.of(group_id), *self._open.get(group_id, {})])

    def of_topics(self, topics: Iterable[str]) -> Iterator[tuple[str, TopicPartition]]:
        """Yield groups and partitions of some topics that they have an offset of, pending ones too."""
        wanted = set(topics)
        for group_id in dict.fromkeys([*self._committed, *self._open]):
            for partition in self.removable(group_id):
                if partition.topic in wanted:
                    yield group_id, partition
