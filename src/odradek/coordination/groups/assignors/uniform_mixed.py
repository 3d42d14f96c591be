"""The assignor `uniform` if members read different topics.

    1   each member keeps what it was to get of the topics that it reads
    2   each free partition goes to the reader of its topic that has the fewest
    3   partitions of a topic move from the readers that have the most to those that have the fewest, until the numbers
        differ by one; topic after topic, until no move helps

Source in Kafka: `UniformHeterogeneousAssignmentBuilder`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from uuid import UUID

from odradek.coordination.groups.assignors.subscribers import Assignment, Subscriber, copied
from odradek.coordination.placement import uuid_order

_MOST_ROUNDS = 16
_NOBODY = -1


def uniform_mixed(members: Mapping[str, Subscriber], counts: Mapping[UUID, int]) -> Generator[None, None, Assignment]:
    """Assign partitions; see `assign`."""
    builder = _Builder(list(members.values()), counts)
    if not builder.readers:
        return {}
    yield from builder.give_free()
    yield from builder.balance()
    return dict(zip(members, builder.found, strict=True))


class _Builder:
    """An assignment in the making. Members are known by their places."""

    def __init__(self, members: Sequence[Subscriber], counts: Mapping[UUID, int]) -> None:
        self._counts = counts
        self.found = [copied(member.target, member.topics, counts) for member in members]
        self.sizes = [sum(map(len, one.values())) for one in self.found]
        self.readers: dict[UUID, list[int]] = {}
        for place, member in enumerate(members):
            for topic in member.topics:
                self.readers.setdefault(topic, []).append(place)
        self._owners = {topic: [_NOBODY] * counts[topic] for topic in self.readers}
        for place, kept in enumerate(self.found):
            for topic, numbers in kept.items():
                for number in numbers:
                    self._owners[topic][number] = place
        self._sorted = sorted(self.readers, key=self._rank)

    def _rank(self, topic: UUID) -> tuple[float, int, tuple[int, int]]:
        """Sort the topics with the most partitions for a reader first, as they leave the least choice."""
        readers = len(self.readers[topic])
        return -self._counts[topic] / readers, readers, uuid_order(topic)

    def _give(self, topic: UUID, number: int, place: int) -> None:
        before = self._owners[topic][number]
        if before != _NOBODY:
            self.sizes[before] -= 1
            held = self.found[before][topic]
            held.discard(number)
            if not held:
                del self.found[before][topic]
        self._owners[topic][number] = place
        self.sizes[place] += 1
        self.found[place].setdefault(topic, set()).add(number)

    def give_free(self) -> Generator[None, None, None]:
        """Give the partitions that nobody has to the readers with the fewest."""
        for topic in self._sorted:
            free = [number for number, owner in enumerate(self._owners[topic]) if owner == _NOBODY]
            if free:
                levels = _Levels(self.sizes, self.readers[topic])
                for number in free:
                    self._give(topic, number, levels.fewest())
            yield

    def balance(self) -> Generator[None, None, None]:
        """Move partitions until no move helps, or it takes too long."""
        topics = [topic for topic in self._sorted if len(self.readers[topic]) > 1]
        last_moved: UUID | None = None
        for _ in range(_MOST_ROUNDS):
            for topic in topics:
                if topic == last_moved:
                    return
                if self._balance(topic) or last_moved is None:
                    last_moved = topic
                yield

    def _balance(self, topic: UUID) -> int:
        levels = _Levels(self.sizes, self.readers[topic])
        if levels.imbalance <= 1:
            return 0
        held: dict[int, list[int]] = {}
        for number, owner in enumerate(self._owners[topic]):
            held.setdefault(owner, []).append(number)
        moves = 0
        while not levels.is_balanced:
            giver = levels.most(held)
            if giver == _NOBODY:
                break
            number = held[giver].pop()
            taker = levels.fewest()
            if levels.is_balanced:
                break
            self._give(topic, number, taker)
            moves += 1
        return moves


class _Levels:
    """The readers of a topic, sorted by how many partitions they have: those with the fewest and with the most.

        partitions            [<-#]##
                          ####[###]##
                 [..->]#######[###]##
                 fewest       most   have none of this topic to give

    Both ranges level out: each member of a range gets or gives one, then the range grows by the next members.
    """

    def __init__(self, sizes: list[int], readers: Sequence[int]) -> None:
        self._sizes = sizes
        self._places = sorted(readers, key=lambda place: (sizes[place], place))
        lowest, highest = sizes[self._places[0]], sizes[self._places[-1]]
        self.imbalance = highest - lowest
        self._low, self._low_end, self._next_low = lowest - 1, 0, 0
        self._high, self._high_start, self._high_end = highest + 1, len(readers), len(readers)
        self._next_high = len(readers) - 1

    @property
    def is_balanced(self) -> bool:
        """Whether no move helps."""
        return self._high - self._low <= 1

    def fewest(self) -> int:
        """Return the member that gets the next partition."""
        if self._next_low >= self._low_end:
            self._low += 1
            while self._low_end < len(self._places) and self._sizes[self._places[self._low_end]] == self._low:
                self._low_end += 1
            self._next_low = 0
        self._next_low += 1
        return self._places[self._next_low - 1]

    def most(self, held: Mapping[int, Sequence[int]]) -> int:
        """Return the member that gives the next partition, or -1 if none has any."""
        while True:
            if self._next_high < self._high_start:
                self._lower()
            if self._next_high < 0:
                return _NOBODY
            place = self._places[self._next_high]
            self._next_high -= 1
            if held.get(place):
                return place
            self._exclude(self._next_high + 1)

    def _lower(self) -> None:
        start = self._high_start
        is_used_up = self._high_end <= start and start > 0
        self._high = self._sizes[self._places[start - 1]] if is_used_up else self._high - 1
        while self._high_start > 0 and self._sizes[self._places[self._high_start - 1]] == self._high:
            self._high_start -= 1
        self._next_high = self._high_end - 1

    def _exclude(self, at: int) -> None:
        places, end = self._places, self._high_end - 1
        places[at], places[end] = places[end], places[at]
        self._high_end = end
