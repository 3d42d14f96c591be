"""The topic-partitions that a log directory has, as they were when they were listed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from odradek.storage.names import TopicPartition


class Listing:
    """Topic-partitions, sorted; it never changes. A look-up does not depend on how many topics there are.

    Args:
        by_topic: The partitions of each topic, sorted.
    """

    def __init__(self, by_topic: Mapping[str, Sequence[TopicPartition]]) -> None:
        self._by_topic = {name: of for name, of in sorted(by_topic.items()) if of}

    @classmethod
    def of_partitions(cls, partitions: Iterable[TopicPartition]) -> Listing:
        """Return a listing of topic-partitions that come in any order."""
        by_topic: dict[str, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            by_topic.setdefault(partition.topic, []).append(partition)
        return cls(by_topic)

    def __contains__(self, partition: TopicPartition) -> bool:
        known = self.of(partition.topic)
        place = bisect_left(known, partition)
        return place < len(known) and known[place] == partition

    def __iter__(self) -> Iterator[TopicPartition]:
        return chain.from_iterable(self._by_topic.values())

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    @property
    def topics(self) -> list[str]:
        """The names of the topics, sorted."""
        return list(self._by_topic)

    def of(self, topic: str) -> Sequence[TopicPartition]:
        """Return the partitions of a topic, sorted; empty if there is no such topic."""
        return self._by_topic.get(topic, ())
