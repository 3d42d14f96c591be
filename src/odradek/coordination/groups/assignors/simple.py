"""The assignor `simple` of share groups (KIP-932): members share partitions, each with as many others as need be.

    sharing   members / partitions, rounded up: how many members a partition is to have
    quota     sharing * partitions / members: how many partitions a member is to have, rounded so that all are given
    1         each member keeps what it was to get of the topics that it reads
    2         members above their quota give up the first ones; a partition with too many members loses the first ones
    3         partitions with too few members go to those below their quota, one after another

If members read different topics, that is done for each topic with its readers. Only partitions that are initialized are
given. What was given up leaves an empty set behind, which Kafka writes, too.

Source in Kafka: `SimpleAssignor`, `SimpleHomogeneousAssignmentBuilder`, `SimpleHeterogeneousAssignmentBuilder`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence, Set
from math import ceil
from typing import Generic, TypeVar
from uuid import UUID

from odradek.coordination.groups.assignors.subscribers import Assignment, Subscriber, TopicPartitions
from odradek.coordination.placement import (
    TopicIdPartition,
    in_hash_order,
    int_map_order,
    partition_map_order,
    uuid_map_order,
    uuid_set_order,
)

SIMPLE = "simple"
"""The name of the assignor, the only one for share groups."""

_P = TypeVar("_P")
_AT_ONCE = 100


def simple(
    members: Mapping[str, Subscriber], assignable: TopicPartitions, *, is_same: bool
) -> Generator[None, None, Assignment]:
    """Assign the partitions of topics; pauses now and then.

    Args:
        members: The members by their ids.
        assignable: The partitions that may be given.
        is_same: Whether all members read the same topics.

    Returns:
        The partitions by topic, of each member; nothing if no topic is read that exists.
    """
    ordered = [members[member_id] for member_id in in_hash_order(members)]
    topics: dict[UUID, list[int]] = {}
    for place, member in enumerate(ordered):
        for topic in member.topics:
            topics.setdefault(topic, []).append(place)
        yield
    if not topics:
        return {}
    found = [{topic: set(numbers) for topic, numbers in member.target.items()} for member in ordered]
    # A damaged log may have partitions that may not be given; a topic that nobody reads any more stays as it is.
    for kept in found:
        for topic in kept.keys() & topics.keys():
            kept[topic] &= assignable.get(topic, frozenset())
        yield
    if is_same:
        yield from _give_all(found, topics.keys(), assignable)
    else:
        for topic, readers in topics.items():
            yield from _give_topic(found, topic, readers, assignable.get(topic, ()))
    return dict(zip(in_hash_order(members), found, strict=True))


def _give_all(
    found: Sequence[dict[UUID, set[int]]], topics: Set[UUID], assignable: TopicPartitions
) -> Generator[None, None, None]:
    for kept in found:
        for topic in kept.keys() - topics:
            del kept[topic]
    targets = [(topic, number) for topic in uuid_set_order(topics) for number in sorted(assignable.get(topic, ()))]
    shares: _Shares[TopicIdPartition] = _Shares(range(len(found)), targets, partition_map_order)
    for place, kept in enumerate(found):
        shares.keep(place, ((topic, number) for topic in uuid_map_order(kept) for number in int_map_order(kept[topic])))
        yield
    yield from shares.level()
    for place, (taken, given) in enumerate(zip(shares.taken, shares.given, strict=True)):
        for topic, number in taken:
            found[place][topic].discard(number)
        for topic, number in given:
            found[place].setdefault(topic, set()).add(number)
        yield


def _give_topic(
    found: Sequence[dict[UUID, set[int]]], topic: UUID, readers: Sequence[int], assignable: Collection[int]
) -> Generator[None, None, None]:
    shares: _Shares[int] = _Shares(readers, sorted(assignable), int_map_order, len(found))
    for place, kept in enumerate(found):
        if topic in kept:
            shares.keep(place, int_map_order(kept[topic]))
    yield
    yield from shares.level()
    for place, (taken, given) in enumerate(zip(shares.taken, shares.given, strict=True)):
        if taken:
            found[place][topic].difference_update(taken)
        if given:
            found[place].setdefault(topic, set()).update(given)


class _Shares(Generic[_P]):
    """An assignment that is being made. Members are known by their places.

    Args:
        readers: The members that may get partitions.
        targets: The partitions.
        order: Sorts partitions as a hash table of Kafka's does that has grown, or was made for a number of them.
        size: How many members there are; as many as readers by default.

    Attributes:
        taken: What each member gives up.
        given: What it gets.
    """

    def __init__(
        self,
        readers: Sequence[int],
        targets: Sequence[_P],
        order: Callable[[Collection[_P], int | None], list[_P]],
        size: int | None = None,
    ) -> None:
        self._readers = readers
        self._targets = targets
        self._order = order
        count = len(readers) if size is None else size
        self._sharing = -(-len(readers) // len(targets)) if targets else 0
        quota = self._sharing * len(targets) / len(readers)
        self._quotas = [0] * count
        for number, place in enumerate(readers):
            self._quotas[place] = ceil(quota * (number + 1)) - ceil(quota * number)
        # Without values: they keep the order in which items came, which Kafka's hash tables follow in part.
        self._members: dict[_P, dict[int, None]] = {}
        self._held: list[dict[_P, None]] = [{} for _ in range(count)]
        self.taken: list[list[_P]] = [[] for _ in range(count)]
        self.given: list[list[_P]] = [[] for _ in range(count)]

    def keep(self, place: int, partitions: Iterable[_P]) -> None:
        """Let a member keep partitions for now."""
        for partition in partitions:
            self._members.setdefault(partition, {})[place] = None
            self._held[place][partition] = None

    def level(self) -> Generator[None, None, None]:
        """Take from those that have too much, and give to those that have too little; pauses now and then."""
        for place, held in enumerate(self._held):
            surplus = len(held) - self._quotas[place]
            if surplus > 0:
                for partition in self._order(held, None)[:surplus]:
                    self._take(place, partition)
            yield
        for number, partition in enumerate(self._ordered(), 1):
            surplus = len(self._members[partition]) - self._sharing
            if surplus > 0:
                for place in int_map_order(self._members[partition])[:surplus]:
                    self._take(place, partition)
            if number % _AT_ONCE == 0:
                yield
        for partition in self._targets:
            self._members.setdefault(partition, {})
        yield from self._give()

    def _ordered(self) -> list[_P]:
        # What comes last is first among its like: Java's `computeIfAbsent` puts it in front.
        return self._order([*reversed(self._members)], len(self._targets))

    def _take(self, place: int, partition: _P) -> None:
        del self._members[partition][place], self._held[place][partition]
        self.taken[place].append(partition)

    def _give(self) -> Generator[None, None, None]:
        waiting = sorted(place for place in self._readers if len(self._held[place]) < self._quotas[place])
        at, has_given = 0, False
        for partition in self._ordered():
            members = self._members[partition]
            missing = self._sharing - len(members)
            while missing > 0:
                if at == len(waiting):
                    # A round in which nobody could take anything is the last one, also for all other partitions.
                    if not has_given or not waiting:
                        break
                    at, has_given = 0, False
                place = waiting[at]
                at += 1
                if place in members:
                    continue
                self._held[place][partition] = None
                self.given[place].append(partition)
                missing -= 1
                has_given = True
                if len(self._held[place]) >= self._quotas[place]:
                    at -= 1
                    del waiting[at]
            if not waiting:
                return
            yield
