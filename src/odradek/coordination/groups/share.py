"""A share group (KIP-932): its members share partitions; a record is delivered to one of them at a time.

    group epoch        counts what changes the assignment: members, subscriptions, topics, initialized partitions
    assignment epoch   the group epoch that the target assignment was made for
    member epoch       the assignment epoch of what the member has: nobody has to give up anything first

    Empty    no members
    Stable   all others

All changes are records: they are written to the log, then `apply` takes them over, as it does when the log is loaded.

    10  a member   11  group epoch   12  assignment epoch   13  what it is to get   14  what it has
    15  the partitions that are initialized; see `share_topics`

Source in Kafka: `ShareGroup`, `ShareGroupMember`, `GroupMetadataManager` (`replay`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any
from uuid import UUID

from odradek.coordination.errors import GroupErrorCode, RefusedError
from odradek.coordination.groups.assignors.simple import SIMPLE
from odradek.coordination.groups.modern import GroupRecord, GroupRecordKey, ModernGroup, State, Target, take
from odradek.coordination.groups.reconciliation import LEAVING_EPOCH, MemberState
from odradek.coordination.groups.share_topics import ShareTopics
from odradek.coordination.groups.topics import KnownTopics
from odradek.coordination.placement import int_map_order, java_sorted, uuid_map_order
from odradek.coordination.state_log import KeyValue
from odradek.messages.coordinators.group_records import (
    SHARE_PROTOCOL,
    GroupKey,
    MemberKey,
    TargetAssignmentMemberValue,
    TargetAssignmentMetadataValue,
    TargetPartitions,
    encode_group_record,
)
from odradek.messages.coordinators.share_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    SharePartitions,
)


class ShareKind(IntEnum):
    """The types of a group's records."""

    MEMBER = 10
    EPOCH = 11
    TARGET_EPOCH = 12
    TARGET = 13
    HOLDINGS = 14
    TOPICS = 15


@dataclass(frozen=True, slots=True)
class ShareMember:
    """A member.

    Attributes:
        member_id: The id that the client chose.
        member_epoch: The epoch of the assignment that it has.
        previous_member_epoch: The epoch before; its client may not know the last one yet.
        state: Always stable, unless a later Kafka has written something else.
        rack_id: Its rack.
        client_id: What the client calls itself.
        client_host: The client's address, as Kafka shows it: `/127.0.0.1`.
        topic_names: The topics that it names.
        assigned: What it has.
    """

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    assigned: Target = field(default_factory=dict)

    def check_epoch(self, epoch: int) -> None:
        """Check the epoch that its client knows.

        Raises:
            RefusedError: The client has to join again, without partitions.
        """
        # The answer with the last epoch may have been lost.
        if epoch in (0, self.member_epoch) or self.previous_member_epoch == epoch < self.member_epoch:
            return
        known, is_greater = f"the one known by the group coordinator ({self.member_epoch})", epoch > self.member_epoch
        previous = f", and it does not match the previous member epoch ({self.previous_member_epoch})"
        reason = (
            f"The share group member has a {'greater' if is_greater else 'smaller'} member epoch ({epoch}) than "
            f"{known}{'' if is_greater else previous}. The member must abandon all its partitions and rejoin."
        )
        raise RefusedError(GroupErrorCode.FENCED_MEMBER_EPOCH, reason)

    def stepped(self, epoch: int, assigned: Target) -> ShareMember:
        """Return it with what it has from now on; in the same epoch, only that changes."""
        if epoch == self.member_epoch:
            return replace(self, assigned=assigned)
        return replace(
            self,
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            state=MemberState.STABLE,
            assigned=assigned,
        )


def _partitions(target: Mapping[UUID, frozenset[int]]) -> list[tuple[UUID, tuple[int, ...]]]:
    """Return partitions in the order that Kafka writes them in."""
    return [(topic_id, tuple(int_map_order(target[topic_id]))) for topic_id in uuid_map_order(target)]


def share_member_record(group_id: str, member: ShareMember) -> GroupRecord:
    """Return the record that describes a member."""
    names = tuple(java_sorted(member.topic_names))
    value = ShareGroupMemberMetadataValue(member.rack_id, member.client_id, member.client_host, names)
    return GroupRecord(ShareKind.MEMBER, MemberKey(group_id, member.member_id), value)


def share_epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    """Return the record of a group's epoch."""
    return GroupRecord(ShareKind.EPOCH, GroupKey(group_id), ShareGroupMetadataValue(epoch, metadata_hash))


def share_target_record(group_id: str, member_id: str, target: Target) -> GroupRecord:
    """Return the record of what a member is to get."""
    topics = tuple(TargetPartitions(*one) for one in _partitions(target))
    return GroupRecord(ShareKind.TARGET, MemberKey(group_id, member_id), TargetAssignmentMemberValue(topics))


def share_target_epoch_record(group_id: str, epoch: int, now_ms: int) -> GroupRecord:
    """Return the record of the epoch of a target assignment."""
    return GroupRecord(ShareKind.TARGET_EPOCH, GroupKey(group_id), TargetAssignmentMetadataValue(epoch, now_ms))


def share_holdings_record(group_id: str, member: ShareMember) -> GroupRecord:
    """Return the record of what a member has."""
    topics = tuple(SharePartitions(*one) for one in _partitions(member.assigned))
    epochs = member.member_epoch, member.previous_member_epoch
    value = ShareGroupCurrentMemberAssignmentValue(*epochs, member.state, topics)
    return GroupRecord(ShareKind.HOLDINGS, MemberKey(group_id, member.member_id), value)


def share_topics_record(group_id: str, topics: ShareTopics) -> GroupRecord:
    """Return the record of the partitions that are initialized."""
    return GroupRecord(ShareKind.TOPICS, GroupKey(group_id), topics.value())


def share_removal(group_id: str, member_id: str) -> list[GroupRecord]:
    """Return the records that remove a member, in the order that Apache Kafka can replay them in."""
    kinds = (ShareKind.HOLDINGS, ShareKind.TARGET, ShareKind.MEMBER)
    return [GroupRecord(number, MemberKey(group_id, member_id), None) for number in kinds]


class ShareGroup(ModernGroup[ShareMember]):
    """A group; see `ModernGroup`.

    Attributes:
        topics: The partitions that are initialized; None without a record of them.
        complete_at: The version of the metadata in which all partitions that it reads were initialized; not written.
    """

    kind = SHARE_PROTOCOL
    can_become_classic = False
    assignor = SIMPLE

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.topics: ShareTopics | None = None
        self.complete_at: int | None = None
        # How many members are to get a partition.
        self._shared: dict[UUID, Counter[int]] = {}
        # As of a version of the metadata.
        self._has_unassigned: tuple[int, bool] | None = None

    @property
    def state(self) -> State:
        """Its state."""
        return State.STABLE if self.members else State.EMPTY

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads a topic."""
        return topic in self.names

    def has_unassigned(self, topics: KnownTopics) -> Generator[None, None, bool]:
        """Return whether the target differs from the partitions that are initialized; pauses now and then."""
        if self._has_unassigned is None or self._has_unassigned[0] != topics.version:
            version, found = topics.version, False
            for topic_id, known in list(self.topics.initialized.items()) if self.topics is not None else ():
                # Kafka would make an assignment with each heartbeat for a topic that was deleted while it was down.
                topic = topics.identified(topic_id) if known.name in self.names else None
                if topic is not None and self._shared.get(topic_id, {}).keys() != topic.having(known.partitions):
                    found = True
                    break
                yield
            self._has_unassigned = version, found
        return self._has_unassigned[1]

    # -- what clients may do

    def refuse_offsets(self) -> RefusedError:
        """Return why it has no committed offsets."""
        return RefusedError(GroupErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    def check_offset_delete(self) -> None:
        """Refuse to delete committed offsets.

        Raises:
            RefusedError: It has none.
        """
        raise self.refuse_offsets()

    def tombstones(self) -> list[KeyValue]:
        """Return the records that remove it, in the order that Apache Kafka can replay them in."""
        group, member_ids = GroupKey(self.group_id), dict.fromkeys((*self.members, *self.targets))
        keys: list[tuple[int, GroupRecordKey]] = [
            *((ShareKind.HOLDINGS, MemberKey(self.group_id, member_id)) for member_id in member_ids),
            *((ShareKind.TARGET, MemberKey(self.group_id, member_id)) for member_id in member_ids),
            (ShareKind.TARGET_EPOCH, group),
            *((ShareKind.MEMBER, MemberKey(self.group_id, member_id)) for member_id in member_ids),
            (ShareKind.TOPICS, group),
            (ShareKind.EPOCH, group),
        ]
        return [encode_group_record(number, key, None) for number, key in keys]

    # -- records

    def apply(self, record: GroupRecord, now_ms: int) -> None:
        """Take over a record, but for the one that removes the group."""
        number, key, value = record
        self._has_unassigned = None
        match number, key:
            case (ShareKind.EPOCH, _):
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case (ShareKind.TARGET_EPOCH, _):
                self._apply_target_epoch(value)
            case (ShareKind.TOPICS, _):
                self.topics = None if value is None else ShareTopics.of(value, now_ms)
                self.complete_at = None
            case (ShareKind.TARGET, MemberKey(_, member_id)):
                self._put_target(member_id, value)
            case (ShareKind.MEMBER, MemberKey(_, member_id)):
                self._apply_member(member_id, value)
            case (ShareKind.HOLDINGS, MemberKey(_, member_id)):
                self._apply_holdings(member_id, value)

    def _apply_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
        if value is None:
            self._put(member_id, None)
            return
        rack_id, client_id, client_host, names = value
        known = self.members.get(member_id) or ShareMember(member_id)
        # There may be thousands of names, which few records change.
        found = known.topic_names if known.topic_names == frozenset(names) else frozenset(names)
        self._put(
            member_id,
            replace(known, rack_id=rack_id, client_id=client_id, client_host=client_host, topic_names=found),
        )

    def _apply_holdings(self, member_id: str, value: Any) -> None:
        known = self.members.get(member_id)
        if value is not None:
            self._put(
                member_id,
                replace(
                    known or ShareMember(member_id),
                    member_epoch=value.member_epoch,
                    previous_member_epoch=value.previous_member_epoch,
                    state=MemberState(value.state),
                    assigned={one: frozenset(numbers) for one, numbers in value.assigned_partitions},
                ),
            )
        elif known is not None:
            gone = replace(known, member_epoch=LEAVING_EPOCH, previous_member_epoch=LEAVING_EPOCH, assigned={})
            self._put(member_id, gone)

    def _put_target(self, member_id: str, value: TargetAssignmentMemberValue | None) -> None:
        for topic_id, numbers in self.targets.pop(member_id, {}).items():
            counts = self._shared.get(topic_id)
            # What it was to get once may be left as an empty set.
            if counts is None:
                continue
            counts.subtract(numbers)
            for number in numbers:
                if not counts[number]:
                    del counts[number]
            if not counts:
                del self._shared[topic_id]
        if value is None:
            return
        target = self.targets[member_id] = {one: frozenset(numbers) for one, numbers in value.topic_partitions}
        for topic_id, numbers in target.items():
            if numbers:
                self._shared.setdefault(topic_id, Counter()).update(numbers)

    def _put(self, member_id: str, after: ShareMember | None) -> None:
        before = self.members.pop(member_id, None)
        old = before.topic_names if before is not None else frozenset()
        new = after.topic_names if after is not None else frozenset()
        if after is not None:
            self.members[member_id] = after
        if old is not new:
            self.complete_at = None
            self.names.update(new)
            take(self.names, old)
