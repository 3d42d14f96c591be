"""Streams groups, as their records in `__consumer_offsets` describe them.

    17 group epoch   19 member   20 assignment epoch   21 what a member is to get   22 what it has   23 topology

A Streams group is `NotReady` until a broker has accepted its topology.

Source in Kafka: `StreamsGroup`, `StreamsGroupMember`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from odradek.coordination.groups.streams import StreamsGroup
from odradek.inspection.group_description import GroupDescription, GroupMember, Subtopology, Tasks, Topology
from odradek.messages.coordinators.coordinator_records import decode
from odradek.messages.coordinators.group_records import SHOWN_GROUP_TYPES
from odradek.storage.names import TopicPartition

_STREAMS_EPOCH, _STREAMS_MEMBER, _STREAMS_TARGET_EPOCH, _STREAMS_TARGET, _STREAMS_HOLDINGS, _STREAMS_TOPOLOGY = (
    *(17, 19, 20, 21, 22, 23),
)
_NO_EPOCH = -1
_STABLE = 1
_TASK_KINDS = ("active", "standby", "warmup")


class _Records:
    """The decoded records of a group: by type those about the group, and by type and member those about members."""

    def __init__(self, group: StreamsGroup) -> None:
        self.of_group: dict[int, Any] = {}
        self.of_members: dict[int, dict[str, Any]] = {}
        for key, value in group.records.items():
            number, about, _, says = decode(SHOWN_GROUP_TYPES, key, value)
            member_id = getattr(about, "member_id", None)
            if member_id is None:
                self.of_group[number] = says
            else:
                self.of_members.setdefault(number, {})[member_id] = says

    def members(self, number: int) -> dict[str, Any]:
        """Return the records of a type about members, by their ids."""
        return dict(sorted(self.of_members.get(number, {}).items()))

    def epoch(self, number: int, field: str) -> int:
        """Return an epoch of the group; -1 if it has none."""
        found = self.of_group.get(number)
        return _NO_EPOCH if found is None else int(getattr(found, field))


def describe_streams(group: StreamsGroup) -> GroupDescription:
    """Return what the records of a Streams group say.

    Raises:
        FormatError: One of them is damaged.
    """
    group_id, records = group.group_id, _Records(group)
    topology = topology_of(records.of_group.get(_STREAMS_TOPOLOGY))
    holdings, targets = records.members(_STREAMS_HOLDINGS), records.members(_STREAMS_TARGET)
    members = []
    for member_id, says in records.members(_STREAMS_MEMBER).items():
        held = holdings.get(member_id)
        tasks = tasks_of(held)
        members.append(
            GroupMember(
                member_id,
                says.instance_id,
                says.client_id,
                says.client_host,
                tuple(partitions_of_tasks(tasks["active"], topology)),
                protocol="streams",
                epoch=_NO_EPOCH if held is None else held.member_epoch,
                topology_epoch=says.topology_epoch,
                process_id=says.process_id,
                tasks=tasks,
                target_tasks=tasks_of(targets.get(member_id)),
            )
        )
    epoch = records.epoch(_STREAMS_EPOCH, "epoch")
    assignment_epoch = records.epoch(_STREAMS_TARGET_EPOCH, "assignment_epoch")
    validated = records.epoch(_STREAMS_EPOCH, "validated_topology_epoch")
    if not members:
        state = "Empty"
    elif topology is None or topology.epoch != validated:
        state = "NotReady"
    elif epoch > assignment_epoch:
        state = "Assigning"
    else:
        reached = (
            held is not None and held.state == _STABLE and held.member_epoch == assignment_epoch
            for held in (holdings.get(member.member_id) for member in members)
        )
        state = "Stable" if all(reached) else "Reconciling"
    return GroupDescription(
        group_id, "streams", "streams", state, "", tuple(members), epoch, assignment_epoch, topology
    )


def topology_of(says: Any) -> Topology | None:
    """Return the topology that a record or an answer of a broker describes."""
    if says is None:
        return None
    epoch, parts = int(says.epoch), says.subtopologies
    if parts is None:
        return Topology(epoch, None)
    return Topology(epoch, tuple(map(_subtopology, sorted(parts, key=lambda part: str(part.subtopology_id)))))


def _subtopology(part: Any) -> Subtopology:
    return Subtopology(
        str(part.subtopology_id),
        tuple(sorted(map(str, (*part.source_topics, *(topic.name for topic in part.repartition_source_topics))))),
        # A broker has resolved the patterns.
        tuple(getattr(part, "source_topic_regex", ())),
        tuple(sorted(str(topic.name) for topic in part.state_changelog_topics)),
        tuple(sorted(map(str, part.repartition_sink_topics))),
    )


def tasks_of(says: Any) -> Tasks:
    """Return the tasks that a record or an answer of a broker lists; none of any kind if it is None."""
    return {kind: () if says is None else _task_list(getattr(says, f"{kind}_tasks")) for kind in _TASK_KINDS}


def _task_list(tasks: Iterable[Any]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((str(one.subtopology_id), int(number)) for one in tasks for number in one.partitions))


def partitions_of_tasks(tasks: Iterable[tuple[str, int]], topology: Topology | None) -> Iterator[TopicPartition]:
    """Yield the partitions that tasks read: of each source topic the one with the task's number."""
    parts = () if topology is None or topology.subtopologies is None else topology.subtopologies
    topics = {part.subtopology_id: part.source_topics for part in parts}
    yield from sorted({TopicPartition(topic, number) for part, number in tasks for topic in topics.get(part, ())})
