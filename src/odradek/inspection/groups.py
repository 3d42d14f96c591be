"""The groups of a log directory, as `__consumer_offsets` has them: offsets, members, state.

    __consumer_offsets-17    words: 2 members, Stable    events-0 at 1200, events-1 at 900

The state is the one that a broker comes to when it loads the records. So a group whose members were there when the
broker stopped has them still: they have their session timeout to come back.

Source in Kafka: `GroupCoordinatorShard.replay`, `ClassicGroup`, `ConsumerGroup`, `OffsetMetadataManager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek.coordination.placement import partition_for
from odradek.errors import FormatError
from odradek.inspection.committed_offsets import Offsets
from odradek.messages.coordinators.consumer_protocol import ASSIGNMENT
from odradek.messages.coordinators.coordinator_records import UnknownCoordinatorRecordError
from odradek.messages.coordinators.group_records import (
    CONSUMER_PROTOCOL,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    CurrentMemberAssignmentValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberKey,
    OffsetCommitKey,
    OffsetCommitValue,
    TargetAssignmentMetadataValue,
    decode_group_record,
    encode_group_metadata,
    modern_key,
)
from odradek.records.batch import read_records
from odradek.records.control import ControlRecordType, parse_control_key
from odradek.records.scan import scan_batches
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.log.log import Log
from odradek.storage.metadata.metadata_image import MetadataImage
from odradek.storage.metadata.metadata_log import load_metadata
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TopicPartition
from odradek.storage.system_errors import unreadable

_VERSION_BYTES = 2
_MEMBER_METADATA_TYPE = 5
_CURRENT_ASSIGNMENT_TYPE = 8
_STABLE_MEMBER = 0
_DEFAULT_ASSIGNOR = "uniform"


class GroupMember(NamedTuple):
    """A member of a group.

    Attributes:
        member_id: Its id.
        group_instance_id: Its `group.instance.id`, if it is static.
        client_id: What its client calls itself.
        client_host: Where it is.
        partitions: The partitions that it was given.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(slots=True)
class GroupDescription:
    """A group.

    Attributes:
        group_id: Its id.
        type: `classic`, `consumer` (KIP-848), `share` or `streams`.
        protocol_type: What its members agree on, such as `consumer`; empty if it never had a member.
        state: Its state by Kafka's name, such as `Empty` or `Stable`.
        protocol: How its partitions are assigned, such as `range`; empty if it has no members.
        members: Its members; None if they are not known.
    """

    group_id: str
    type: str
    protocol_type: str
    state: str
    protocol: str = ""
    members: tuple[GroupMember, ...] | None = ()


@dataclass(slots=True)
class _Modern:
    """What the records of a group of KIP-848 say, or of a share or Streams group."""

    kind: str
    keys: dict[bytes, None] = field(default_factory=dict)
    epoch: int = 0
    assignment_epoch: int = 0
    members: dict[str, ConsumerGroupMemberMetadataValue] = field(default_factory=dict)
    current: dict[str, CurrentMemberAssignmentValue] = field(default_factory=dict)

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Take over a record."""
        if value is None:
            self.keys.pop(key, None)
        else:
            self.keys[key] = None
        if self.kind != CONSUMER_PROTOCOL:
            return
        try:
            about, says = decode_group_record(key, value)[1::2]
        except UnknownCoordinatorRecordError:
            return
        if isinstance(about, MemberKey):
            self._replay_member(key, about.member_id, says)
        elif isinstance(says, ConsumerGroupMetadataValue):
            self.epoch = says.epoch
        elif isinstance(says, TargetAssignmentMetadataValue):
            self.assignment_epoch = says.assignment_epoch

    def _replay_member(self, key: bytes, member_id: str, says: Any) -> None:
        number = int.from_bytes(key[:_VERSION_BYTES], "big")
        known: dict[str, Any]
        if number == _MEMBER_METADATA_TYPE:
            known = self.members
        elif number == _CURRENT_ASSIGNMENT_TYPE:
            known = self.current
        else:
            return
        if says is None:
            known.pop(member_id, None)
        else:
            known[member_id] = says

    @property
    def state(self) -> str:
        """Its state, as `ConsumerGroup.maybeUpdateGroupState` has it."""
        if self.kind != CONSUMER_PROTOCOL:
            return "Unknown"
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        is_stable = all(self._is_reconciled(member_id) for member_id in self.members)
        return "Stable" if is_stable else "Reconciling"

    def _is_reconciled(self, member_id: str) -> bool:
        current = self.current.get(member_id)
        return current is not None and current.state == _STABLE_MEMBER and current.member_epoch == self.assignment_epoch

    @property
    def assignor(self) -> str:
        """The assignor that most members name."""
        if not self.members:
            return ""
        named = Counter(member.server_assignor for member in self.members.values() if member.server_assignor)
        return named.most_common(1)[0][0] if named else _DEFAULT_ASSIGNOR


class GroupStates:
    """The groups of partitions of `__consumer_offsets`, by their records.

    Args:
        image: The topics by their ids.

    Attributes:
        offsets: Their offsets.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.offsets = Offsets()
        self._image = image
        self._classic: dict[str, GroupMetadataValue | None] = {}
        self._modern: dict[str, _Modern] = {}

    def load(self, log: Log) -> None:
        """Take over the records of a partition.

        Raises:
            FormatError: A batch or a record is damaged.
        """
        for part in log.slices():
            for header in scan_batches(part.data, part.position, part.end_position, origin=part.origin):
                producer_id = header.producer_id if header.is_transactional else -1
                for record in read_records(part.data, header, origin=part.origin):
                    if header.is_control:
                        kind = parse_control_key(record.key)
                        if kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                            self.offsets.end_transaction(
                                header.producer_id, is_committed=kind is ControlRecordType.COMMIT
                            )
                        continue
                    try:
                        self._replay(record.key or b"", record.value, record.offset or 0, producer_id)
                    except FormatError as error:
                        raise error.at(part.path, header.position) from None

    def _replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        modern = modern_key(key)
        if modern is not None:
            self._replay_modern(key, value, *modern)
            return
        try:
            decoded = decode_group_record(key, value)
        except UnknownCoordinatorRecordError:
            return
        about = decoded.key
        if isinstance(about, OffsetCommitKey):
            self.offsets.replay(about, decoded.value, offset, producer_id)
            if decoded.value is not None and about.group not in self._modern:
                self._classic.setdefault(about.group, None)
        elif isinstance(about, GroupMetadataKey):
            if decoded.value is None:
                self._classic.pop(about.group, None)
            else:
                self._classic[about.group] = decoded.value

    def _replay_modern(self, key: bytes, value: bytes | None, group_id: str, kind: str) -> None:
        group = self._modern.get(group_id)
        if group is None:
            # A classic group with records of its own was replaced by these only once they are removed.
            if value is None or self._classic.get(group_id) is not None:
                return
            self._classic.pop(group_id, None)
            group = self._modern[group_id] = _Modern(kind)
        group.replay(key, value)
        if not group.keys:
            del self._modern[group_id]

    def group_ids(self) -> list[str]:
        """Return the ids of the groups, sorted."""
        return sorted({*self._classic, *self._modern})

    def describe(self, group_id: str) -> GroupDescription | None:
        """Return a group, or None if there is none of that id."""
        modern = self._modern.get(group_id)
        if modern is not None:
            members = (
                tuple(self._modern_member(modern, member_id) for member_id in sorted(modern.members))
                if modern.kind == CONSUMER_PROTOCOL
                else None
            )
            return GroupDescription(group_id, modern.kind, modern.kind, modern.state, modern.assignor, members)
        if group_id not in self._classic:
            return None
        value = self._classic[group_id]
        if value is None:
            return GroupDescription(group_id, "classic", "", "Empty")
        members = tuple(
            GroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                tuple(_assigned(member.assignment)) if value.protocol_type == CONSUMER_PROTOCOL else (),
            )
            for member in value.members
        )
        state = "Stable" if members else "Empty"
        protocol = (value.protocol or "") if members else ""
        return GroupDescription(group_id, "classic", value.protocol_type, state, protocol, members)

    def _modern_member(self, group: _Modern, member_id: str) -> GroupMember:
        known = group.members[member_id]
        current = group.current.get(member_id)
        found = [
            TopicPartition(topic.name, number)
            for assigned in (current.assigned_partitions if current is not None else ())
            if (topic := self._image.topic_by_id(assigned.topic_id)) is not None
            for number in assigned.partitions
        ]
        return GroupMember(member_id, known.instance_id, known.client_id, known.client_host, tuple(sorted(found)))

    def committed(self, group_id: str) -> dict[TopicPartition, OffsetCommitValue]:
        """Return the committed offsets of a group."""
        return {partition: offset.value for partition, offset in sorted(self.offsets.of(group_id).items())}

    def tombstones(self, group_id: str) -> list[tuple[bytes, bytes | None]]:
        """Return the records that remove a group itself, in the order that Apache Kafka can replay them in."""
        modern = self._modern.get(group_id)
        if modern is not None:
            return [(key, None) for key in sorted(modern.keys, key=lambda key: key[:_VERSION_BYTES], reverse=True)]
        return [encode_group_metadata(group_id, None)] if group_id in self._classic else []


def _assigned(assignment: bytes) -> Iterator[TopicPartition]:
    try:
        decoded = ASSIGNMENT.decode(assignment, 0, position=_VERSION_BYTES)[0]
    except FormatError:
        return
    for topic, numbers in sorted(decoded.assigned_partitions):
        for number in sorted(numbers):
            yield TopicPartition(topic, number)


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
