"""The assignor `uniform` if all members read the same topics.

    quota   partitions / members; the remainder is one more each for as many members
    1       each member keeps what it was to get, up to its quota
    2       what is left over goes to members below their quota, one after another

Source in Kafka: `UniformHomogeneousAssignmentBuilder`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Set
from itertools import islice
from uuid import UUID

from odradek.coordination.groups.assignors.subscribers import Assignment, Subscriber, copied
from odradek.coordination.placement import int_set_order, uuid_map_order, uuid_set_order


def uniform_same(members: Mapping[str, Subscriber], counts: Mapping[UUID, int]) -> Generator[None, None, Assignment]:
    """Assign partitions; see `assign`."""
    topics = next(iter(members.values())).topics
    if not topics:
        return {}
    owned: dict[UUID, set[int]] = {}
    for member in members.values():
        for topic, numbers in member.target.items():
            owned.setdefault(topic, set()).update(numbers)
        yield
    free: list[tuple[UUID, int]] = []
    for topic in uuid_set_order(topics):
        taken = owned.get(topic, ())
        free.extend((topic, number) for number in range(counts[topic]) if number not in taken)
        yield
    quota, extra = divmod(sum(counts[topic] for topic in topics), len(members))
    found: Assignment = {}
    wanting: list[tuple[str, int]] = []
    for place, (member_id, member) in enumerate(members.items()):
        found[member_id], room, surplus = _keep(member, topics, counts, quota + (extra > 0))
        free += surplus
        takes_extra = extra > 0
        # The last members have to take the remainder; the others leave it, unless they have it already.
        if room and takes_extra and len(members) - place > extra:
            room -= 1
            takes_extra = False
        if room:
            wanting.append((member_id, room))
        extra -= takes_extra
        yield
    rest = iter(free)
    for member_id, room in wanting:
        for topic, number in islice(rest, room):
            found[member_id].setdefault(topic, set()).add(number)
        yield
    return found


def _keep(
    member: Subscriber, topics: Set[UUID], counts: Mapping[UUID, int], room: int
) -> tuple[dict[UUID, set[int]], int, list[tuple[UUID, int]]]:
    """Return what a member keeps, the room that is left, and what is above its quota."""
    kept = copied(member.target, topics, counts)
    surplus: list[tuple[UUID, int]] = []
    for topic in uuid_map_order(member.target):
        if topic not in kept:
            continue
        if len(kept[topic]) > room:
            above = int_set_order(kept[topic])[room:]
            surplus.extend((topic, number) for number in above)
            kept[topic].difference_update(above)
        room -= len(kept[topic])
        if not kept[topic]:
            del kept[topic]
    return kept, room, surplus
