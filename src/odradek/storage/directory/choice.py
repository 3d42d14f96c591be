"""Which partitions a reader means by names, patterns and numbers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from odradek.arguments import checked_index, checked_topics
from odradek.errors import UnknownTopicOrPartitionError
from odradek.storage.names import TopicPartition, is_internal, is_topic_name, matches_topic


def choose(
    existing: Iterable[TopicPartition],
    topics: str | re.Pattern[str] | Iterable[str | re.Pattern[str]] | None,
    partitions: int | Iterable[int] | None,
    *,
    path: str | os.PathLike[str] | None = None,
) -> list[TopicPartition]:
    """Return the partitions that match, sorted.

    Args:
        existing: The partitions that there are.
        topics: A name, a pattern (`events-*`, or a compiled regular expression), or a list of them; None for every
            topic that is not internal to Kafka.
        partitions: A number or several; all if None.
        path: Where they are, for the error.

    Raises:
        UnknownTopicOrPartitionError: A topic that was named, or a partition of it, does not exist.
    """
    there = sorted(existing)
    wanted = None if partitions is None else _numbers(partitions)
    if topics is None:
        chosen = [found for found in there if not is_internal(found.topic)]
    else:
        patterns = checked_topics(topics)
        names = {found.topic for found in there}
        # There may be thousands.
        named = dict.fromkeys(pattern for pattern in patterns if is_topic_name(pattern))
        for name in named:
            if name not in names:
                raise UnknownTopicOrPartitionError(name, path=path)
        others = [pattern for pattern in patterns if pattern not in named]
        chosen = [
            found
            for found in there
            if found.topic in named or any(matches_topic(pattern, found.topic) for pattern in others)
        ]
    if wanted is None:
        return chosen
    for topic in sorted({found.topic for found in chosen}):
        for partition in sorted(wanted - {found.partition for found in chosen if found.topic == topic}):
            raise UnknownTopicOrPartitionError(topic, partition, path=path)
    return [found for found in chosen if found.partition in wanted]


def _numbers(partitions: int | Iterable[int]) -> set[int]:
    several = partitions if isinstance(partitions, Iterable) and not isinstance(partitions, str) else [partitions]
    return {checked_index("a partition", partition) for partition in several}
