"""The topics as a group sees them: which a pattern matches, and whether they are as they were when it last looked.

    hash of a topic   its name, id and partitions, with the racks of their replicas
    hash of a group   the hashes of its topics that exist, in the order of their names; 0 without any

A group stores its hash. If it differs later, a topic was made, deleted, or has more partitions.

Source in Kafka: `Utils.computeTopicHash`, `Utils.computeGroupHash`, `TopicRegexResolver`.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Generator, Iterable, Mapping, Set
from typing import NamedTuple, Protocol
from uuid import UUID

import re2
import xxhash

from odradek.coordination.patterns import compiled as compiled_pattern
from odradek.coordination.placement import java_sorted

_INT32, _INT64 = struct.Struct("<i"), struct.Struct("<q")
_MAGIC = b"\0"
_HALF = (1 << 64) - 1
_AT_ONCE = 100


class KnownTopic(NamedTuple):
    """A topic that exists.

    Attributes:
        topic_id: Its id.
        name: Its name.
        racks: The racks of each partition's replicas.
    """

    topic_id: UUID
    name: str
    racks: tuple[tuple[str, ...], ...]

    @property
    def partition_count(self) -> int:
        """How many partitions it has."""
        return len(self.racks)

    def having(self, numbers: Set[int]) -> Set[int]:
        """Return those of some partitions that it has; a damaged log may have others."""
        return {number for number in numbers if 0 <= number < self.partition_count}


class KnownTopics(Protocol):
    """The topics that exist, as they are at a time.

    Attributes:
        version: Grows with each change of topics.
        created_version: The version at which the last topic was made.
        hashes: The hashes of topics that were needed so far.
    """

    version: int
    created_version: int
    hashes: dict[UUID, int]

    def named(self, name: str) -> KnownTopic | None:
        """Return the topic of a name."""

    def identified(self, topic_id: UUID) -> KnownTopic | None:
        """Return the topic of an id."""


def _text(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    return units + _INT32.pack(len(units) // 2)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def topic_hash(topic: KnownTopic) -> int:
    """Return the hash of a topic."""
    hasher = xxhash.xxh3_64(_MAGIC)
    for half in (topic.topic_id.int >> 64, topic.topic_id.int & _HALF):
        hasher.update(half.to_bytes(8, "little"))
    hasher.update(_text(topic.name) + _INT32.pack(topic.partition_count))
    for number, racks in enumerate(topic.racks):
        hasher.update(_INT32.pack(number))
        for rack in java_sorted(racks):
            hasher.update(_INT32.pack(len(rack)) + _text(rack))
    return _signed(hasher.intdigest())


def group_hash(topics: KnownTopics, names: Iterable[str]) -> Generator[None, None, int]:
    """Return the hash of a group that reads topics; pauses now and then."""
    found = {}
    # Clients may name many topics that do not exist, and to sort names takes a while.
    for number, name in enumerate(names, 1):
        topic = topics.named(name)
        if topic is not None:
            found[name] = topic
        if number % _AT_ONCE == 0:
            yield
    hasher = xxhash.xxh3_64()
    for number, name in enumerate(java_sorted(found), 1):
        topic = found[name]
        if topic.topic_id not in topics.hashes:
            topics.hashes[topic.topic_id] = topic_hash(topic)
        hasher.update(_INT64.pack(topics.hashes[topic.topic_id]))
        if number % _AT_ONCE == 0:
            yield
    return _signed(hasher.intdigest()) if found else 0


def ids_of(topics: KnownTopics, names: Iterable[str]) -> Generator[None, None, frozenset[UUID]]:
    """Return the ids of the topics of these names that exist; pauses now and then."""
    found = set()
    for number, name in enumerate(names, 1):
        topic = topics.named(name)
        if topic is not None:
            found.add(topic.topic_id)
        if number % _AT_ONCE == 0:
            yield
    return frozenset(found)


def regex_error(regex: str) -> str | None:
    """Return what is wrong with a pattern in RE2's syntax, or None."""
    try:
        compiled_pattern(regex)
    except re2.error as error:
        reason = error.args[0]
        return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    return None


def matches(
    regexes: Iterable[str], names: Collection[str], before: Mapping[str, Iterable[str]]
) -> Generator[None, None, dict[str, tuple[str, ...]]]:
    """Return the topics that each pattern matches as a whole, sorted. Pauses after each name.

    A pattern that is not taken keeps its topics: it may come from a log that Apache Kafka has written, which has no
    limits for patterns. One of nested repetitions takes milliseconds for a long name.

    Args:
        regexes: The patterns.
        names: The topics that exist.
        before: What each pattern matched the last time.
    """
    found: dict[str, tuple[str, ...]] = {}
    for regex in regexes:
        matched = []
        try:
            compiled = compiled_pattern(regex)
        except re2.error:
            kept = set(before.get(regex, ()))
            found[regex] = tuple(java_sorted([name for name in names if name in kept]))
            yield
            continue
        for name in names:
            if compiled.fullmatch(name):
                matched.append(name)
            yield
        found[regex] = tuple(java_sorted(matched))
    return found
