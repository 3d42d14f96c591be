"""Committed offsets, and those of transactions that have not ended.

    committed   group -> partition -> offset
    pending     producer -> group, partition -> offset          until the transaction's marker

Source in Kafka: `OffsetMetadataManager`, `OffsetExpirationConditionImpl`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from odradek.coordination.groups.classic import ClassicGroup, State
from odradek.coordination.groups.consumer import ConsumerGroup
from odradek.coordination.groups.share import ShareGroup
from odradek.coordination.groups.streams import StreamsGroup
from odradek.messages.coordinators.group_records import CONSUMER_PROTOCOL, NO_EXPIRY, OffsetCommitKey, OffsetCommitValue
from odradek.messages.topics import TopicPartition


class OffsetRecord(NamedTuple):
    """An offset, and where in the log of `__consumer_offsets` its record is."""

    value: OffsetCommitValue
    record_offset: int


def expires_from(
    group: ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup, value: OffsetCommitValue
) -> int | None:
    """Return the time from which the retention of an offset is counted; None while its group keeps it.

        a group of a newer protocol                     the commit; None in a share group
        that has never had members                      the commit
        Empty                                           when the last member left; the commit if that is not known
        Stable, of consumers whose topics are known     the commit: what they do not read expires

    Args:
        group: The group, which does not read the offset's topic.
        value: The offset.
    """
    if isinstance(group, ShareGroup):
        return None
    if not isinstance(group, ClassicGroup):
        return value.commit_timestamp
    if group.protocol_type is None:
        return value.commit_timestamp
    if group.state is State.EMPTY:
        return value.commit_timestamp if group.state_timestamp_ms is None else group.state_timestamp_ms
    knows_topics = group.protocol_type == CONSUMER_PROTOCOL and group.subscribed_topics is not None
    return value.commit_timestamp if group.state is State.STABLE and knows_topics else None


def is_expired(value: OffsetCommitValue, since_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    """Return whether the retention of an offset is over.

    Args:
        value: The offset.
        since_ms: The time from which its retention is counted; None while its group keeps it.
        now_ms: The time.
        retention_ms: `offsets.retention.minutes`.
    """
    if since_ms is None:
        return False
    if value.expire_timestamp != NO_EXPIRY:
        # The client of an old version said how long the offset is kept.
        return now_ms >= value.expire_timestamp
    return now_ms - since_ms >= retention_ms


class Offsets:
    """The offsets of the groups of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, OffsetRecord]] = {}
        self._pending: dict[int, dict[tuple[str, TopicPartition], OffsetRecord]] = {}
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}

    def of(self, group_id: str) -> dict[TopicPartition, OffsetRecord]:
        """Return the committed offsets of a group."""
        return self._committed.get(group_id, {})

    def all(self) -> Iterator[tuple[str, TopicPartition, int]]:
        """Yield each group's committed offsets. Any thread may ask; what changes meanwhile may be missing."""
        for group_id, committed in list(self._committed.items()):
            for partition, found in list(committed.items()):
                yield group_id, partition, found.value.offset

    def is_pending(self, group_id: str, partition: TopicPartition | None = None) -> bool:
        """Whether a transaction that has not ended holds an offset of a group, or of one of its partitions."""
        found = self._open.get(group_id)
        return found is not None and (partition is None or partition in found)

    def has(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether a group has an offset of a partition, pending ones too."""
        return partition in self.of(group_id) or self.is_pending(group_id, partition)

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
            self._committed.setdefault(group_id, {})[partition] = OffsetRecord(value, record_offset)
        else:
            pending = self._pending.setdefault(producer_id, {})
            pending[group_id, partition] = OffsetRecord(value, record_offset)
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

    def expired(
        self, group: ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup, now_ms: int, retention_ms: int
    ) -> Iterator[TopicPartition]:
        """Yield the partitions for which a group's committed offset is to be forgotten; see `is_expired`."""
        for partition, (value, _) in self.of(group.group_id).items():
            is_in_use = group.is_subscribed_to(partition.topic) or self.is_pending(group.group_id, partition)
            if not is_in_use and is_expired(value, expires_from(group, value), now_ms, retention_ms):
                yield partition

    def removable(self, group_id: str) -> Iterator[TopicPartition]:
        """Yield the partitions that a group has an offset of, pending ones too."""
        yield from dict.fromkeys([*self.of(group_id), *self._open.get(group_id, {})])

    def last_record_offset(self, group_id: str, partition: TopicPartition) -> int:
        """Return the offset of the last record about a group's offset of a partition, pending ones too."""
        place = group_id, partition
        pending = (self._pending[producer][place] for producer in self._open.get(group_id, {}).get(partition, ()))
        found = [*pending, self.of(group_id).get(partition)]
        return max((one.record_offset for one in found if one is not None), default=-1)

    def of_topics(self, topics: Iterable[str]) -> Iterator[tuple[str, TopicPartition]]:
        """Yield groups and partitions of some topics that they have an offset of, pending ones too."""
        wanted = set(topics)
        for group_id in dict.fromkeys([*self._committed, *self._open]):
            for partition in self.removable(group_id):
                if partition.topic in wanted:
                    yield group_id, partition
