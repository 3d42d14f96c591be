"""The groups of a log directory, as `__consumer_offsets` has them: offsets, members, state.

    __consumer_offsets-17    words: 2 members, Stable    events-0 at 1200, events-1 at 900

The state is the one that a broker comes to when it loads the records. So a group whose members were there when the
broker stopped has them still: they have their session timeout to come back.

Source in Kafka: `GroupCoordinatorShard.replay`, `ClassicGroup`, `ConsumerGroup`, `OffsetMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from uuid import UUID

from odradek.coordination.groups.assignors import ASSIGNORS
from odradek.coordination.groups.assignors.simple import SIMPLE
from odradek.coordination.groups.classic import ClassicGroup
from odradek.coordination.groups.consumer import ConsumerGroup
from odradek.coordination.groups.offsets import Offsets
from odradek.coordination.groups.reconciliation import ConsumerMember
from odradek.coordination.groups.replay import Group, GroupState
from odradek.coordination.groups.share import ShareGroup
from odradek.coordination.placement import partition_for
from odradek.coordination.state_log import KeyValue
from odradek.errors import FormatError
from odradek.inspection.group_description import GroupDescription, GroupMember
from odradek.inspection.share_state import ShareStates
from odradek.inspection.streams_groups import describe_streams
from odradek.messages.coordinators.consumer_protocol import ASSIGNMENT
from odradek.messages.coordinators.coordinator_records import UnknownCoordinatorRecordError
from odradek.messages.coordinators.group_records import CONSUMER_PROTOCOL, OffsetCommitValue
from odradek.messages.coordinators.share_records import ShareKey, ShareSnapshot
from odradek.records.header import BatchHeader
from odradek.records.kernels.objects import Record
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.log.log import Log
from odradek.storage.log.replay import replay
from odradek.storage.metadata.metadata_image import MetadataImage
from odradek.storage.metadata.metadata_log import load_metadata
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TopicPartition
from odradek.storage.system_errors import unreadable

_VERSION_BYTES = 2


class GroupStates:
    """The groups of partitions of `__consumer_offsets`, by their records.

    Args:
        image: The topics by their ids.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._groups: dict[str, Group] = {}
        self._offsets: list[Offsets] = []

    def load(self, log: Log) -> None:
        """Take over the records of a partition.

        Raises:
            FormatError: A batch or a record is damaged.
        """
        # A marker ends a producer's transaction in its own partition only: in another one the next may be open.
        state = GroupState()

        def each(record: Record, batch: BatchHeader) -> None:
            with suppress(UnknownCoordinatorRecordError):
                state.replay(record, batch)

        replay(log, each)
        self._groups.update(state.groups)
        self._offsets.append(state.offsets)

    def group_ids(self) -> list[str]:
        """Return the ids of the groups, sorted."""
        return sorted(self._groups)

    def describe(self, group_id: str) -> GroupDescription | None:
        """Return a group by its id, or None.

        Raises:
            FormatError: A record of it is damaged.
        """
        group = self._groups.get(group_id)
        if group is None:
            return None
        if isinstance(group, ConsumerGroup):
            members = tuple(self._consumer_member(group, member) for _, member in sorted(group.members.items()))
            assignor = group.assignor(ASSIGNORS[0]) if members else ""
            state, epochs = group.state.value, (group.epoch, group.target_epoch)
            return GroupDescription(group_id, group.kind, group.kind, state, assignor, members, *epochs)
        if isinstance(group, ShareGroup):
            return self._share_group(group)
        if not isinstance(group, ClassicGroup):
            return describe_streams(group)
        found = tuple(
            GroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                assigned_partitions(group.protocol_type, member.assignment),
            )
            for member in group.members.values()
        )
        protocol = (group.protocol or "") if found else ""
        return GroupDescription(group_id, "classic", group.protocol_type or "", group.state.value, protocol, found)

    def _consumer_member(self, group: ConsumerGroup, member: ConsumerMember) -> GroupMember:
        return GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            self._partitions(member.assigned),
            protocol="consumer" if member.classic is None else "classic",
            epoch=member.member_epoch,
            target=self._partitions(group.targets.get(member.member_id, {})),
            topics=tuple(sorted(member.topic_names)),
            topic_regex=member.topic_regex or None,
        )

    def _share_group(self, group: ShareGroup) -> GroupDescription:
        members = tuple(
            GroupMember(
                member_id,
                None,
                member.client_id,
                member.client_host,
                self._partitions(member.assigned),
                protocol=group.kind,
                epoch=member.member_epoch,
                topics=tuple(sorted(member.topic_names)),
            )
            for member_id, member in sorted(group.members.items())
        )
        assignor = SIMPLE if members else ""
        epochs = group.epoch, group.target_epoch
        return GroupDescription(group.group_id, group.kind, group.kind, group.state.value, assignor, members, *epochs)

    def _partitions(self, topics: Mapping[UUID, Iterable[int]]) -> tuple[TopicPartition, ...]:
        named = ((self._topic_name(topic_id), numbers) for topic_id, numbers in topics.items())
        return tuple(sorted(TopicPartition(name, number) for name, numbers in named if name for number in numbers))

    def _topic_name(self, topic_id: UUID) -> str | None:
        topic = self._image.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def is_shared(self, group_id: str) -> bool:
        """Whether a group is a share group."""
        return self.share_group(group_id) is not None

    def share_group(self, group_id: str) -> ShareGroup | None:
        """Return a share group; None if there is none of that id."""
        group = self._groups.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def shared(self, group_id: str, states: ShareStates) -> dict[TopicPartition, ShareSnapshot | None]:
        """Return how far a share group is in each partition that it has read, by what `__share_group_state` has."""
        group = self._groups.get(group_id)
        if not isinstance(group, ShareGroup) or group.topics is None:
            return {}
        found = {
            TopicPartition(topic, number): states.of_partition(ShareKey(group_id, topic_id, number))
            for topic_id, read in group.topics.initialized.items()
            for topic in [self._topic_name(topic_id)]
            if topic is not None
            for number in read.partitions
        }
        return dict(sorted(found.items()))

    def committed(self, group_id: str) -> dict[TopicPartition, OffsetCommitValue]:
        """Return the committed offsets of a group."""
        found = [one for offsets in self._offsets for one in offsets.of(group_id).items()]
        return {partition: offset.value for partition, offset in sorted(found)}

    def last_committed(self, group_id: str) -> TopicPartition | None:
        """Return the partition whose offset a group committed last, by the log; None without any."""
        found = {name: one.record_offset for offsets in self._offsets for name, one in offsets.of(group_id).items()}
        return max(found, key=found.__getitem__, default=None)

    def offsets_of_topics(self, topics: Iterable[str]) -> Iterator[tuple[str, TopicPartition]]:
        """Yield groups and partitions of some topics that they have an offset of, pending ones too."""
        for offsets in self._offsets:
            yield from offsets.of_topics(topics)

    def partitions_with_offsets(self, group_id: str) -> Iterator[TopicPartition]:
        """Yield the partitions that a group has an offset of, pending ones too."""
        for offsets in self._offsets:
            yield from offsets.removable(group_id)

    def tombstones(self, group_id: str) -> list[KeyValue]:
        """Return the records that remove a group itself, in the order that Apache Kafka can replay them in."""
        group = self._groups.get(group_id)
        return [] if group is None else group.tombstones()


def assigned_partitions(protocol_type: str | None, assignment: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions that a member of a classic group was given; none if that is of another kind."""
    try:
        decoded = ASSIGNMENT.decode(assignment, 0, position=_VERSION_BYTES)[0]
    except FormatError:
        return ()
    given = decoded.assigned_partitions if protocol_type == CONSUMER_PROTOCOL else ()
    return tuple(TopicPartition(topic, number) for topic, numbers in sorted(given) for number in sorted(numbers))


def load_groups(logs: LogDirectory, groups: Collection[str] | None = None) -> GroupStates:
    """Read the groups of a log directory; there are none if it has no `__consumer_offsets`.

    Args:
        logs: The log directory.
        groups: The groups that are wanted, all if None. Partitions that cannot hold one of them are not read.

    Raises:
        FormatError: A batch or a record is damaged.
        LogError: A log cannot be read.
    """
    try:
        image = load_metadata(logs.path).image
    except OSError as error:
        raise unreadable(error, logs.path) from error
    states = GroupStates(image)
    if CONSUMER_OFFSETS_TOPIC not in logs.topics():
        return states
    partitions = logs.topic_partitions(CONSUMER_OFFSETS_TOPIC)
    known = image.topics.get(CONSUMER_OFFSETS_TOPIC)
    # Another broker of the cluster may have the others.
    count = len(partitions) if known is None else len(known.partitions)
    wanted = None if groups is None else {partition_for(group, count) for group in groups}
    for partition in partitions:
        if wanted is None or partition.partition in wanted:
            states.load(logs[partition])
    return states
