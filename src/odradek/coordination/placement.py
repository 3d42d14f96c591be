"""Which partition of an internal topic holds a key's state: by Java's hash, which some orders of Kafka follow, too.

    partition = abs(hash of the group's id, or of the transactional id) % number of partitions

Source in Kafka: `GroupCoordinatorService.partitionFor`, `TransactionStateManager.partitionFor`, `Utils.abs`, `Uuid`,
`TopicIdPartition`, `AssignorHelpers`; in Java: `String.hashCode`, `String.compareTo`, `HashMap`, `HashSet`;
`TimelineHashMap`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeAlias, TypeVar
from uuid import UUID

_T = TypeVar("_T")
_SIGN = 1 << 63
_FIBONACCI, _FIBONACCI_MASK = -7046029254386353131, (1 << 64) - 1

TopicIdPartition: TypeAlias = tuple[UUID, int]
"""A partition by the id of its topic."""


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode`."""
    units = memoryview(text.encode("utf-16-be", "surrogatepass"))
    found = 0
    for at in range(0, len(units), 2):
        found = (31 * found + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return found - (1 << 32) if found >= 1 << 31 else found


def partition_for(key: str, count: int) -> int:
    """Return the partition of an internal topic that holds the state of a key.

    Args:
        key: The id of a group, or a transactional id.
        count: How many partitions the topic has.
    """
    found = java_hash(key)
    # `Math.abs` of the smallest int is negative in Java; Kafka takes 0 instead.
    return (0 if found == -(1 << 31) else abs(found)) % count


def bucket(text: str, size: int) -> int:
    """Return where a `HashMap` of a number of buckets, a power of two, has a text."""
    return _bucket(java_hash(text), size)


def _bucket(found: int, size: int) -> int:
    found &= 0xFFFFFFFF
    return (found ^ found >> 16) & (size - 1)


def _uuid_hash(value: UUID) -> int:
    both = value.int >> 64 ^ value.int & (1 << 64) - 1
    return both >> 32 ^ both & 0xFFFFFFFF


def _partition_hash(partition: TopicIdPartition) -> int:
    topic_id, number = partition
    return 31 * _uuid_hash(topic_id) + number


def _grown(items: Collection[_T], hash_of: Callable[[_T], int], room: int | None = None) -> list[_T]:
    """Return items in the order of a `HashMap` that grew with them, or was created with room for all of them."""
    size = 16
    if room is not None:
        size, needed = 1, int((room + 1) / 0.75 + 1)
        while size < needed:
            size *= 2
    while len(items) > size * 3 // 4:
        size *= 2
    return sorted(items, key=lambda item: _bucket(hash_of(item), size))


def _copied(items: Collection[_T], hash_of: Callable[[_T], int]) -> list[_T]:
    """Return items in the order of a `HashSet` that is a copy of them: it has its buckets from the start."""
    size, needed = 16, int(len(items) / 0.75 + 1)
    while size < needed:
        size *= 2
    return sorted(items, key=lambda item: _bucket(hash_of(item), size))


def in_hash_order(texts: Collection[str]) -> list[str]:
    """Return texts in the order of a `HashMap` that was filled with them, in the given order, one after another."""
    return _grown(texts, java_hash)


def timeline_order(texts: Collection[str], *, room: int = 0) -> list[str]:
    """Return texts in the order of a `TimelineHashMap` that was filled with them, in the given order.

    Args:
        texts: The texts.
        room: How many more there was room for: 1 if one was replaced later, which lets the map grow early.
    """
    bits = 1
    while (len(texts) + room) * 3 > 4 << bits:
        bits += 1
    slots = [((java_hash(text) * _FIBONACCI & _FIBONACCI_MASK) >> 64 - bits, text) for text in texts]
    # What shares a slot comes out in the reverse order.
    slots.reverse()
    return [text for _, text in sorted(slots, key=lambda slot: slot[0])]


def uuid_map_order(ids: Collection[UUID]) -> list[UUID]:
    """Return ids in the order of a `HashMap` that was filled with them, in the given order, one after another."""
    return _grown(ids, _uuid_hash)


def uuid_set_order(ids: Collection[UUID]) -> list[UUID]:
    """Return ids in the order of a `HashSet` that is a copy of them."""
    return _copied(ids, _uuid_hash)


def int_set_order(numbers: Collection[int]) -> list[int]:
    """Return numbers in the order of a `HashSet` that is a copy of them."""
    return _copied(numbers, int)


def int_map_order(numbers: Collection[int], room: int | None = None) -> list[int]:
    """Return numbers in the order of a `HashMap` that was filled with them; one of an assignor was made for `room`."""
    return _grown(numbers, int, room)


def partition_map_order(partitions: Collection[TopicIdPartition], room: int | None = None) -> list[TopicIdPartition]:
    """Return partitions in the order of a `HashMap` that was filled with them; see `int_map_order`."""
    return _grown(partitions, _partition_hash, room)


def java_sorted(texts: Iterable[str]) -> list[str]:
    """Return texts as Java sorts them."""
    found = sorted(texts)
    # Only characters beyond the first 65,536 are sorted in another way.
    return found if all(map(str.isascii, found)) else sorted(found, key=java_order)


def java_order(text: str) -> bytes:
    """Return what sorts as Java's `String.compareTo` does: by units of UTF-16."""
    return text.encode("utf-16-be", "surrogatepass")


def uuid_order(value: UUID) -> tuple[int, int]:
    """Return what sorts as Kafka's `Uuid.compareTo` does: by two signed numbers."""
    return value.int >> 64 ^ _SIGN, value.int & (1 << 64) - 1 ^ _SIGN
