"""The topic-partitions that a log directory has, as they were when they were listed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from odradek.storage.metadata.metadata_image import TopicImage
from odradek.storage.names import LOG_SUFFIX, TopicPartition


def segments_bytes(folder: Path) -> int:
    """Return how many bytes the segments of a partition have; its log need not be opened for this.

    Raises:
        OSError: The folder, or a file in it, was deleted meanwhile, or cannot be read.
    """
    return sum(file.stat().st_size for file in folder.glob(f"*{LOG_SUFFIX}"))


class Listing:
    """Topic-partitions; it never changes. Neither making it nor a look-up depends on how many topics there are.

    Args:
        images: Topics, which do not change either.
        by_topic: The partitions of each further topic, sorted.
    """

    def __init__(
        self,
        images: Mapping[str, TopicImage] | None = None,
        by_topic: Mapping[str, Sequence[TopicPartition]] | None = None,
    ) -> None:
        self._images = images or {}
        self._by_topic = by_topic or {}

    @classmethod
    def of_partitions(cls, partitions: Iterable[TopicPartition]) -> Listing:
        """Return a listing of topic-partitions that come in any order."""
        by_topic: dict[str, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            by_topic.setdefault(partition.topic, []).append(partition)
        return cls(by_topic=by_topic)

    def __contains__(self, partition: TopicPartition) -> bool:
        known = self.of(partition.topic)
        place = bisect_left(known, partition)
        return place < len(known) and known[place] == partition

    def __iter__(self) -> Iterator[TopicPartition]:
        return chain.from_iterable(map(self.of, self.topics))

    def __len__(self) -> int:
        return sum(len(self.of(topic)) for topic in self.topics)

    @property
    def topics(self) -> list[str]:
        """The names of the topics, sorted."""
        return sorted(name for name in {*self._images, *self._by_topic} if self.of(name))

    def of(self, topic: str) -> Sequence[TopicPartition]:
        """Return the partitions of a topic, sorted; empty if there is no such topic."""
        image = self._images.get(topic)
        return self._by_topic.get(topic, ()) if image is None else image.topic_partitions

    def without(self, images: Mapping[str, TopicImage]) -> list[str]:
        """Return the names of the topics that are not among others."""
        return [name for names in (self._images, self._by_topic) for name in names if name not in images]
