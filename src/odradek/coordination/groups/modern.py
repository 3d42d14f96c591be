"""What consumer groups (KIP-848) and share groups (KIP-932) have in common: epochs, members, a target assignment.

    group epoch        counts what changes the assignment: members, subscriptions, topics
    assignment epoch   the group epoch that the target assignment was made for

All changes are records: they are written to the log, then the group takes them over, as it does when the log is loaded.

Source in Kafka: `ModernGroup`, `TargetAssignmentBuilder`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from odradek.coordination.errors import GroupErrorCode, RefusedError
from odradek.coordination.placement import in_hash_order
from odradek.coordination.state_log import KeyValue
from odradek.messages.coordinators.group_records import (
    GroupKey,
    MemberKey,
    RegularExpressionKey,
    TargetAssignmentMetadataValue,
    encode_group_record,
)

_Member = TypeVar("_Member")

_FIRST_EPOCH = 1
NO_EPOCH = -1

Target: TypeAlias = dict[UUID, frozenset[int]]
"""What a member is to get: partitions by topic."""

GroupRecordKey: TypeAlias = GroupKey | MemberKey | RegularExpressionKey


class State(Enum):
    """The states of a group, by the names that clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupRecord(NamedTuple):
    """A record of a group; a value of None is a tombstone."""

    type: int
    key: GroupRecordKey
    value: Any

    def encoded(self) -> KeyValue:
        """Return it as bytes."""
        return encode_group_record(*self)


class ModernGroup(Generic[_Member]):
    """A group.

    Args:
        group_id: Its id.

    Attributes:
        group_id: Its id.
        kind: Its protocol.
        epoch: The group epoch.
        metadata_hash: What the topics of its members looked like when the epoch was set; see `topics`.
        target_epoch: The assignment epoch.
        target_ms: When the target assignment was made; 0 if that is not known.
        members: The members by their ids.
        targets: What each member is to get.
        names: How many members name a topic.
        known_topics: The version of the metadata that `metadata_hash` was compared with; not written.
    """

    kind: str

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = _FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = _FIRST_EPOCH
        self.target_ms = 0
        self.members: dict[str, _Member] = {}
        self.targets: dict[str, Target] = {}
        self.names: Counter[str] = Counter()
        self.known_topics: int | None = None

    @property
    def state(self) -> State:
        """Its state."""
        raise NotImplementedError

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    def member(self, member_id: str) -> _Member:
        """Return a member.

        Raises:
            RefusedError: It is not in the group.
        """
        found = self.members.get(member_id)
        if found is None:
            reason = f"Member {member_id} is not a member of group {self.group_id}."
            raise RefusedError(GroupErrorCode.UNKNOWN_MEMBER_ID, reason)
        return found

    def listed(self) -> dict[str, str]:
        """Return how ListGroups shows it."""
        return {
            "group_id": self.group_id,
            "protocol_type": self.kind,
            "group_state": self.state.value,
            "group_type": self.kind,
        }

    def check_size(self, member_id: str, max_size: int) -> None:
        """Check whether there is room for a member, which may be in the group already.

        Raises:
            RefusedError: There is no room.
        """
        if len(self.members) >= max_size and member_id not in self.members:
            reason = f"The {self.kind} group has reached its maximum capacity of {max_size} members."
            raise RefusedError(GroupErrorCode.GROUP_MAX_SIZE_REACHED, reason)

    def check_delete(self) -> None:
        """Check whether the group may be deleted.

        Raises:
            RefusedError: It has members.
        """
        if self.members:
            raise RefusedError(GroupErrorCode.NON_EMPTY_GROUP)

    def keeps_target(self, epoch: int, interval_ms: int, now_ms: int) -> bool:
        """Whether the target assignment still counts: it is of this epoch, or made less than the interval ago.

        If the clock was set back, it does not: Apache Kafka makes no assignment then until that time has come again.
        """
        is_early = self.target_ms != 0 and 0 <= now_ms - self.target_ms < interval_ms
        return self.target_epoch >= epoch or is_early

    def new_targets(
        self,
        member_ids: Collection[str],
        found: Mapping[str, Mapping[UUID, Iterable[int]]],
        record: Callable[[str, str, Target], GroupRecord],
    ) -> Generator[None, None, list[GroupRecord]]:
        """Return the records of what members are to get, where that has changed; pauses now and then.

        Args:
            member_ids: The members.
            found: What they are to get.
            record: Makes a record of that, of the ids of the group and of the member.
        """
        records = []
        for member_id in in_hash_order(member_ids):
            target = target_of(found, member_id)
            if target != self.targets.get(member_id):
                records.append(record(self.group_id, member_id, target))
            yield
        return records

    def _apply_target_epoch(self, value: TargetAssignmentMetadataValue | None) -> None:
        self.target_epoch = NO_EPOCH if value is None else value.assignment_epoch
        self.target_ms = 0 if value is None else value.assignment_timestamp


def target_of(found: Mapping[str, Mapping[UUID, Iterable[int]]], member_id: str) -> Target:
    """Return what a member is to get."""
    return {topic_id: frozenset(numbers) for topic_id, numbers in found.get(member_id, {}).items()}


def take(counts: Counter[str], names: Iterable[str]) -> None:
    """Count names no more; those that are not there any longer go."""
    for name in names:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]
