"""What assignors know of the members of a group, and what they give back."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import NamedTuple, TypeAlias
from uuid import UUID

TopicPartitions: TypeAlias = Mapping[UUID, Set[int]]
"""Partitions by the ids of their topics."""

Assignment: TypeAlias = dict[str, dict[UUID, set[int]]]
"""The partitions of each member."""


class Subscriber(NamedTuple):
    """A member of a group.

    Attributes:
        instance_id: Its `group.instance.id`.
        topics: The topics that it reads, those that exist.
        target: What it was to get so far.
    """

    instance_id: str | None
    topics: Set[UUID]
    target: TopicPartitions


def copied(target: TopicPartitions, topics: Set[UUID], counts: Mapping[UUID, int]) -> dict[UUID, set[int]]:
    """Return the partitions of some topics, for changes; none that do not exist, as a damaged log may have them."""
    return {
        topic: {number for number in numbers if 0 <= number < counts[topic]}
        for topic, numbers in target.items()
        if topic in topics
    }
