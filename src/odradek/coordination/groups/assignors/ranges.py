"""The assignor `range`: of each topic, the members that read it get ranges of partitions, in the order of their ids.

    7 partitions, 3 members   0 1 2 | 3 4 | 5 6

Source in Kafka: `RangeAssignor`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from uuid import UUID

from odradek.coordination.groups.assignors.subscribers import Assignment, Subscriber
from odradek.coordination.placement import java_order


def _rank(item: tuple[str, Subscriber]) -> tuple[bool, bytes]:
    member_id, member = item
    # Static members first: they get the same ranges after a restart, with other ids.
    return member.instance_id is None, java_order(member_id if member.instance_id is None else member.instance_id)


def ranges(members: Mapping[str, Subscriber], counts: Mapping[UUID, int]) -> Generator[None, None, Assignment]:
    """Assign partitions; see `assign`."""
    readers: dict[UUID, list[str]] = {}
    for member_id, member in sorted(members.items(), key=_rank):
        for topic in member.topics:
            readers.setdefault(topic, []).append(member_id)
        yield
    found: Assignment = {member_id: {} for member_id in members}
    for topic, member_ids in readers.items():
        quota, extra = divmod(counts[topic], len(member_ids))
        start = 0
        for place, member_id in enumerate(member_ids):
            end = start + quota + (place < extra)
            if end > start:
                found[member_id][topic] = set(range(start, end))
            start = end
            yield
    return found
