"""The partitions of a share group of which there is a share state: only these are assigned.

    initializing   the share state is being made; what takes too long is tried again
    initialized    it is there
    deleting       it is being removed, as an administrator wants

Each change makes new ones, which are written to the log first.

Source in Kafka: `ShareGroup.ShareGroupStatePartitionMetadataInfo`, `GroupMetadataManager` (`subscribedTopicsChangeMap`,
`combineInitMaps`, `initializeShareGroupState`, `maybeCleanupShareGroupState`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Set
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from uuid import UUID

from odradek.coordination.groups.assignors.subscribers import TopicPartitions
from odradek.coordination.groups.topics import KnownTopics
from odradek.coordination.placement import int_map_order, uuid_map_order
from odradek.messages.coordinators.share_group_records import (
    ShareGroupStatePartitionMetadataValue,
    StatePartitions,
    StateTopicName,
)

_AT_ONCE = 100
_NONE: Mapping[UUID, TopicState] = MappingProxyType({})
_NO_NAMES: Mapping[UUID, str] = MappingProxyType({})


class TopicState(NamedTuple):
    """Some partitions of a topic.

    Attributes:
        name: The topic's name.
        partitions: The partitions.
        since_ms: When that was said; not written.
    """

    name: str
    partitions: Set[int]
    since_ms: int


TopicStates: TypeAlias = Mapping[UUID, TopicState]


class ShareTopics(NamedTuple):
    """The topics of a group, by their ids; see above."""

    initializing: TopicStates = _NONE
    initialized: TopicStates = _NONE
    deleting: Mapping[UUID, str] = _NO_NAMES

    @classmethod
    def of(cls, value: ShareGroupStatePartitionMetadataValue, now_ms: int) -> ShareTopics:
        """Return what a record says, as if it had just been said."""

        def states(topics: Iterable[StatePartitions]) -> TopicStates:
            return {one.topic_id: TopicState(one.topic_name, frozenset(one.partitions), now_ms) for one in topics}

        deleting = {one.topic_id: one.topic_name for one in value.deleting_topics}
        return cls(states(value.initializing_topics), states(value.initialized_topics), deleting)

    def value(self) -> ShareGroupStatePartitionMetadataValue:
        """Return the record."""

        def states(topics: TopicStates) -> tuple[StatePartitions, ...]:
            return tuple(
                StatePartitions(topic_id, topics[topic_id].name, tuple(int_map_order(topics[topic_id].partitions)))
                for topic_id in uuid_map_order(topics)
            )

        deleting = tuple(StateTopicName(one, self.deleting[one]) for one in uuid_map_order(self.deleting))
        return ShareGroupStatePartitionMetadataValue(states(self.initializing), states(self.initialized), deleting)

    # -- changes

    def begun(self, more: TopicStates) -> ShareTopics:
        """Return them when the share states of more partitions are being made."""
        deleting = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in more}
        return self._replace(initializing=_joined(self.initializing, more), deleting=deleting)

    def done(self, partitions: TopicPartitions) -> ShareTopics:
        """Return them when share states were made; a topic that is not waited for any more was deleted meanwhile."""
        made = {
            topic_id: known._replace(partitions=frozenset(partitions[topic_id]))
            for topic_id, known in self.initializing.items()
            if topic_id in partitions
        }
        return self.failed(partitions)._replace(initialized=_joined(self.initialized, made))

    def failed(self, partitions: TopicPartitions) -> ShareTopics:
        """Return them when share states could not be made."""
        left = {
            topic_id: known._replace(partitions=known.partitions - partitions.get(topic_id, frozenset()))
            for topic_id, known in self.initializing.items()
        }
        return self._replace(initializing={topic_id: known for topic_id, known in left.items() if known.partitions})

    def going(self, topics: Mapping[UUID, str]) -> ShareTopics:
        """Return them when the share states of topics are being removed, as far as they were there."""
        return self._replace(
            initialized=_without(self.initialized, topics.keys()), deleting={**self.deleting, **topics}
        )

    def gone(self, topics: Set[UUID]) -> ShareTopics:
        """Return them when the share states of topics were removed."""
        return self._replace(deleting={one: name for one, name in self.deleting.items() if one not in topics})

    def without(self, topics: Set[UUID]) -> ShareTopics:
        """Return them without topics that were deleted."""
        return ShareTopics(
            _without(self.initializing, topics), _without(self.initialized, topics), self.gone(topics).deleting
        )

    # -- questions

    def holds(self, topics: Set[UUID]) -> bool:
        """Whether any of these topics is among them."""
        return any(not topics.isdisjoint(own) for own in self)

    def missing(
        self, topics: KnownTopics, names: Iterable[str], now_ms: int, retry_ms: int
    ) -> Generator[None, None, dict[UUID, TopicState]]:
        """Return the partitions of topics whose share state has to be made; pauses now and then.

        Args:
            topics: The topics that exist.
            names: The topics that the group reads.
            now_ms: The time of day.
            retry_ms: How long the making of a share state may take until it is tried again.
        """
        found: dict[UUID, TopicState] = {}
        for number, name in enumerate(names, 1):
            topic = topics.named(name)
            if topic is not None:
                known: Set[int] = frozenset()
                if topic.topic_id in self.initialized:
                    known = self.initialized[topic.topic_id].partitions
                waiting = self.initializing.get(topic.topic_id)
                if waiting is not None and now_ms - waiting.since_ms < retry_ms:
                    known = known | waiting.partitions
                if len(known) < topic.partition_count:
                    lacking = frozenset(range(topic.partition_count)) - known
                    found[topic.topic_id] = TopicState(name, lacking, now_ms)
            if number % _AT_ONCE == 0:
                yield
        return found


def _joined(some: TopicStates, more: TopicStates) -> TopicStates:
    found = dict(some)
    for topic_id, state in more.items():
        known = found.get(topic_id)
        found[topic_id] = state if known is None else state._replace(partitions=known.partitions | state.partitions)
    return found


def _without(topics: TopicStates, ids: Set[UUID]) -> TopicStates:
    return {topic_id: state for topic_id, state in topics.items() if topic_id not in ids}
