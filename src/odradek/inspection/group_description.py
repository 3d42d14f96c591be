"""What a folder and a broker tell of a group, of any kind.

    classic     members with the partitions that their leader gave them
    consumer    KIP-848: members with epochs, what they have and what they are to get
    share       KIP-932: members that read the same partitions, and how far the group is in each (`SharedPartition`)
    streams     KIP-1071: members with tasks of a topology

Source in Kafka: `ClassicGroupDescription`, `ConsumerGroupDescription`, `ShareGroupDescription`,
`StreamsGroupDescription`, `SharePartitionOffsetInfo`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from odradek.storage.names import TopicPartition

Tasks: TypeAlias = Mapping[str, tuple[tuple[str, int], ...]]
"""The tasks of a member of a Streams group, as subtopology and partition: `active`, `standby` and `warmup`."""


class GroupMember(NamedTuple):
    """A member of a group.

    Attributes:
        member_id: Its id.
        group_instance_id: Its `group.instance.id`, if it is static.
        client_id: What its client calls itself.
        client_host: Where it is.
        partitions: The partitions that it was given; of a Streams group those that its active tasks read.
        protocol: The protocol that it uses; a group of KIP-848 may have members of the classic one.
        epoch: Its epoch; None in the classic protocol.
        target: The partitions that it is to get; None if the group has no targets.
        topics: The topics that it names; None if that is not known.
        topic_regex: The pattern of the topics that it reads; None if it has none.
        topology_epoch: The epoch of its topology, in a Streams group.
        process_id: The process that it belongs to, in a Streams group.
        tasks: The tasks that it has, in a Streams group.
        target_tasks: The tasks that it is to get, in a Streams group.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]
    protocol: str = "classic"
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None
    topics: tuple[str, ...] | None = None
    topic_regex: str | None = None
    topology_epoch: int | None = None
    process_id: str | None = None
    tasks: Tasks | None = None
    target_tasks: Tasks | None = None


class Subtopology(NamedTuple):
    """A part of a Streams group's topology, whose tasks are numbered as the partitions of its source topics.

    Attributes:
        subtopology_id: Its id.
        source_topics: The topics that it reads, repartition topics included.
        source_regexes: The patterns of topics that it reads; a broker gives the topics instead.
        changelog_topics: The topics that keep its state.
        repartition_sinks: The repartition topics that it writes to.
    """

    subtopology_id: str
    source_topics: tuple[str, ...]
    source_regexes: tuple[str, ...] = ()
    changelog_topics: tuple[str, ...] = ()
    repartition_sinks: tuple[str, ...] = ()


class Topology(NamedTuple):
    """The topology of a Streams group.

    Attributes:
        epoch: Its epoch.
        subtopologies: Its parts; None if a broker has not accepted it.
    """

    epoch: int
    subtopologies: tuple[Subtopology, ...] | None


@dataclass(slots=True)
class GroupDescription:
    """A group.

    Attributes:
        group_id: Its id.
        type: `classic`, `consumer`, `share` or `streams`.
        protocol_type: What its members agree on, such as `consumer`; empty if it never had a member.
        state: Its state by Kafka's name, such as `Empty` or `Stable`.
        protocol: How its partitions are assigned, such as `range`; empty if it has no members.
        members: Its members; None if they are not known.
        epoch: Its epoch; None in the classic protocol.
        assignment_epoch: The epoch of its assignment; None in the classic protocol.
        topology: The topology of a Streams group; None if it has none.
    """

    group_id: str
    type: str
    protocol_type: str
    state: str
    protocol: str = ""
    members: tuple[GroupMember, ...] | None = ()
    epoch: int | None = None
    assignment_epoch: int | None = None
    topology: Topology | None = None


class StateBatch(NamedTuple):
    """Records of a partition that a share group has had delivered, after its start offset.

    Attributes:
        first_offset: The first offset.
        last_offset: The last offset.
        delivery_state: 0 (available again), 2 (acknowledged) or 4 (archived): an acquisition is not kept.
        delivery_count: How often they were delivered.
    """

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int

    @property
    def offsets_count(self) -> int:
        """How many offsets it has."""
        return max(0, self.last_offset - self.first_offset + 1)


AVAILABLE = 0
"""The delivery state of records that are delivered again."""


class SharedPartition(NamedTuple):
    """How far a share group is in a partition.

    Attributes:
        start_offset: The first offset that is not done; None until the group's first fetch, or if nothing is known.
        lag: How many records are not done; None if that is not known.
        batches: What became of records after the start offset; None if that is not known: no broker tells it.
    """

    start_offset: int | None
    lag: int | None
    batches: tuple[StateBatch, ...] | None = None

    @property
    def in_flight(self) -> int | None:
        """How many records were delivered, and are neither acknowledged nor archived; acquired ones are not known."""
        return self._count(is_available=True)

    @property
    def done(self) -> int | None:
        """How many records after the start offset are acknowledged or archived."""
        return self._count(is_available=False)

    @property
    def deliveries(self) -> int | None:
        """How often the record in flight was delivered that was delivered most often; 0 if none is in flight."""
        if self.batches is None:
            return None
        return max((one.delivery_count for one in self.batches if one.delivery_state == AVAILABLE), default=0)

    def _count(self, *, is_available: bool) -> int | None:
        if self.batches is None:
            return None
        return sum(one.offsets_count for one in self.batches if (one.delivery_state == AVAILABLE) == is_available)
