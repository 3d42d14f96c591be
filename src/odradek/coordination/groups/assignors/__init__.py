"""The assignors of consumer groups (KIP-848): which member is to get which partitions.

    uniform_same    all members read the same topics: each keeps what it has, up to its share
    uniform_mixed   they read different topics
    ranges          each gets a range of each topic's partitions, the same range of all that it reads

The same members, topics and earlier assignments give the same assignment as in Kafka, so that a coordinator of either
kind can take over from the other. Kafka's order follows from Java's hashes (`coordination.placement`).

Source in Kafka: `ConsumerGroupPartitionAssignor`, `UniformAssignor`, `RangeAssignor`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from uuid import UUID

from odradek.coordination.groups.assignors.ranges import ranges
from odradek.coordination.groups.assignors.subscribers import Assignment, Subscriber
from odradek.coordination.groups.assignors.uniform_mixed import uniform_mixed
from odradek.coordination.groups.assignors.uniform_same import uniform_same
from odradek.coordination.placement import in_hash_order

ASSIGNORS = ("uniform", "range")
"""The names of the assignors; the default is the first one. This is the order of Kafka's hash table, too."""


def assign(
    assignor: str, members: Mapping[str, Subscriber], counts: Mapping[UUID, int], *, is_same: bool
) -> Generator[None, None, Assignment]:
    """Assign the partitions of topics; pauses now and then.

    Args:
        assignor: One of `ASSIGNORS`.
        members: The members by their ids.
        counts: How many partitions each topic has.
        is_same: Whether all members read the same topics.

    Returns:
        The partitions by topic, of each member that has any.
    """
    ordered = {member_id: members[member_id] for member_id in in_hash_order(members)}
    if not ordered:
        return {}
    if assignor == "range":
        return (yield from ranges(ordered, counts))
    return (yield from (uniform_same if is_same else uniform_mixed)(ordered, counts))
