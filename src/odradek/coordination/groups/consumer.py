"""A group of the consumer protocol (KIP-848): the coordinator decides who gets which partitions.

    group epoch        counts what changes the assignment: members, subscriptions, topics
    assignment epoch   the group epoch that the target assignment was made for
    member epoch       the assignment epoch that a member has got to; see `reconciliation`

    Empty         no members
    Assigning     group epoch > assignment epoch: a target assignment is to be made
    Reconciling   some members have not got to the target yet
    Stable        all members have what they are to get
    Dead          there is no such group

All changes are records: they are written to the log, then `apply` takes them over, as it does when the log is loaded.

    3  group epoch   5  a member   6  assignment epoch   7  what it is to get   8  what it has   16  a pattern's topics

Source in Kafka: `ConsumerGroup`, `GroupMetadataManager` (`replay`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Any
from uuid import UUID

from odradek.coordination.groups.assignors import ASSIGNORS
from odradek.coordination.groups.modern import NO_EPOCH, GroupRecord, GroupRecordKey, ModernGroup, State, Target, take
from odradek.coordination.groups.reconciliation import LEAVING_EPOCH, ConsumerMember
from odradek.coordination.placement import timeline_order
from odradek.coordination.state_log import KeyValue
from odradek.messages.coordinators.group_records import (
    CONSUMER_PROTOCOL,
    ClassicMemberMetadata,
    ConsumerGroupMetadataValue,
    GroupKey,
    MemberKey,
    RegularExpressionKey,
    RegularExpressionValue,
    TargetAssignmentMemberValue,
    TargetAssignmentMetadataValue,
    TargetPartitions,
)


class Kind(IntEnum):
    """The types of a group's records."""

    EPOCH = 3
    OLD_TOPICS = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    HOLDINGS = 8
    REGEX = 16


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    """Return the record of a group's epoch."""
    return GroupRecord(Kind.EPOCH, GroupKey(group_id), ConsumerGroupMetadataValue(epoch, metadata_hash))


def target_record(group_id: str, member_id: str, target: Target) -> GroupRecord:
    """Return the record of what a member is to get."""
    topics = tuple(TargetPartitions(topic, tuple(sorted(numbers))) for topic, numbers in target.items())
    return GroupRecord(Kind.TARGET, MemberKey(group_id, member_id), TargetAssignmentMemberValue(topics))


def target_epoch_record(group_id: str, epoch: int, now_ms: int) -> GroupRecord:
    """Return the record of the epoch of a target assignment."""
    return GroupRecord(Kind.TARGET_EPOCH, GroupKey(group_id), TargetAssignmentMetadataValue(epoch, now_ms))


def member_record(group_id: str, member: ConsumerMember) -> GroupRecord:
    """Return the record that describes a member."""
    return GroupRecord(Kind.MEMBER, MemberKey(group_id, member.member_id), member.description())


def holdings_record(group_id: str, member: ConsumerMember) -> GroupRecord:
    """Return the record of what a member has."""
    return GroupRecord(Kind.HOLDINGS, MemberKey(group_id, member.member_id), member.holdings())


def regex_record(group_id: str, regex: str, value: RegularExpressionValue | None) -> GroupRecord:
    """Return the record of a pattern's topics; None removes it."""
    return GroupRecord(Kind.REGEX, RegularExpressionKey(group_id, regex), value)


def removal(group_id: str, member_id: str) -> list[GroupRecord]:
    """Return the records that remove a member, in the order that Apache Kafka can replay them in."""
    return [
        GroupRecord(number, MemberKey(group_id, member_id), None)
        for number in (Kind.HOLDINGS, Kind.TARGET, Kind.MEMBER)
    ]


class ConsumerGroup(ModernGroup[ConsumerMember]):
    """A group; see `ModernGroup`.

    Attributes:
        static_members: The ids of static members by `group.instance.id`.
        regexes: The topics of patterns.
        regex_readers: How many members read the topics of a pattern.
        classic_count: How many members use the classic protocol.
        classic_protocols: How many of them support a protocol.
        has_old_topics: Whether it has a record of its topics of before Kafka 4.1, which the next change removes.
    """

    kind = CONSUMER_PROTOCOL

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.static_members: dict[str, str] = {}
        self.regexes: dict[str, RegularExpressionValue] = {}
        self.regex_readers: Counter[str] = Counter()
        self.regex_names: Counter[str] = Counter()
        self.classic_count = 0
        self.classic_protocols: Counter[str] = Counter()
        self.has_old_topics = False
        self._assignors: Counter[str] = Counter()
        self._owners: dict[UUID, dict[int, str]] = {}

    # -- state

    @property
    def state(self) -> State:
        """Its state."""
        if not self.members:
            return State.EMPTY
        if self.epoch > self.target_epoch:
            return State.ASSIGNING
        is_stable = all(member.is_reconciled_to(self.target_epoch) for member in self.members.values())
        return State.STABLE if is_stable else State.RECONCILING

    def assignor(self, default: str, *, instead: tuple[ConsumerMember | None, ConsumerMember] | None = None) -> str:
        """Return the assignor that most members want.

        Args:
            default: The assignor if no member wants one.
            instead: A member and what takes its place.
        """
        # Among equals, Kafka takes the first one in the order of its hash table, where new ones come last.
        wanted = Counter({name: self._assignors[name] for name in sorted(self._assignors, key=_hash_rank)})
        if instead is not None:
            before, after = instead
            if before is not None and before.server_assignor is not None:
                take(wanted, [before.server_assignor])
            if after.server_assignor is not None:
                wanted[after.server_assignor] += 1
        return max(wanted, key=lambda name: wanted[name], default=default)

    def is_taken(self, topic_id: UUID, partition: int) -> bool:
        """Whether a member has a partition, which it may have to give up."""
        return partition in self._owners.get(topic_id, ())

    def is_only_classic_without(self, members: Collection[ConsumerMember]) -> bool:
        """Whether all members but these use the classic protocol, and have a protocol in common."""
        classic_count = self.classic_count - sum(member.classic is not None for member in members)
        is_common = any(count == self.classic_count for count in self.classic_protocols.values())
        return (is_common or not self.classic_count) and classic_count == len(self.members) - len(members)

    def supports_classic(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether a member of the classic protocol with these protocols can be in the group."""
        if protocol_type != CONSUMER_PROTOCOL:
            return False
        return any(self.classic_protocols[name] == self.classic_count for name in names)

    def subscribed_names(self) -> set[str]:
        """Return the topics that members name, and those that their patterns matched."""
        return self.names.keys() | self.regex_names.keys()

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads a topic."""
        return topic in self.names or topic in self.regex_names

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the member with a `group.instance.id`, if there is one."""
        member_id = self.static_members.get(instance_id or "")
        return None if member_id is None else self.members.get(member_id)

    # -- what clients may do

    @property
    def can_become_classic(self) -> bool:
        """Whether a member of the classic protocol may join as in a classic group: the first one may."""
        return self.is_empty

    def committing_member(
        self, member_id: str, instance_id: str | None, epoch: int, *, is_transactional: bool
    ) -> ConsumerMember | None:
        """Return the member that commits offsets, whose epoch is still to be checked; None if it needs no check.

        Raises:
            RefusedError: It is not in the group.
        """
        if epoch < 0 and self.is_empty:
            # A consumer that assigns itself, or an admin client.
            return None
        if is_transactional and epoch == NO_EPOCH and not member_id and instance_id is None:
            return None
        return self.member(member_id)

    def check_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check whether a client may fetch offsets.

        Raises:
            RefusedError: It is not in the group, or in another epoch.
        """
        if member_id is not None or epoch >= 0:
            self.member(member_id or "").check_fetch_epoch(epoch)

    def check_offset_delete(self) -> None:
        """Let offsets be deleted, of topics that no member reads."""

    def tombstones(self) -> list[KeyValue]:
        """Return the records that remove it, in the order that Apache Kafka can replay them in."""
        return [record.encoded() for record in self.removal_records({})]

    def removal_records(self, renamed: Mapping[str, str]) -> list[GroupRecord]:
        """Return the records that remove it, in the order that Apache Kafka can replay them in.

        Args:
            renamed: The new ids of members whose old records were removed already.
        """
        group = GroupKey(self.group_id)
        ordered = dict.fromkeys((*timeline_order(self.members, room=1), *self.targets))
        member_ids = [renamed.get(member_id, member_id) for member_id in ordered]
        keys: list[tuple[int, GroupRecordKey]] = [
            *((Kind.HOLDINGS, MemberKey(self.group_id, member_id)) for member_id in member_ids),
            *((Kind.TARGET, MemberKey(self.group_id, member_id)) for member_id in member_ids),
            (Kind.TARGET_EPOCH, group),
            *((Kind.MEMBER, MemberKey(self.group_id, member_id)) for member_id in member_ids),
            *((Kind.REGEX, RegularExpressionKey(self.group_id, regex)) for regex in self.regexes),
            (Kind.OLD_TOPICS, group),
            (Kind.EPOCH, group),
        ]
        return [GroupRecord(number, key, None) for number, key in keys]

    # -- records

    def apply(self, record: GroupRecord) -> None:
        """Take over a record, but for the one that removes the group."""
        number, key, value = record
        match number, key:
            case (Kind.EPOCH, _):
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case (Kind.OLD_TOPICS, _):
                self.has_old_topics = value is not None
            case (Kind.TARGET_EPOCH, _):
                self._apply_target_epoch(value)
            case (Kind.MEMBER, MemberKey(_, member_id)):
                known = self.members.get(member_id)
                self._put(member_id, None if value is None else (known or ConsumerMember(member_id)).described(value))
            case (Kind.TARGET, MemberKey(_, member_id)) if value is None:
                self.targets.pop(member_id, None)
            case (Kind.TARGET, MemberKey(_, member_id)):
                self.targets[member_id] = {topic: frozenset(numbers) for topic, numbers in value.topic_partitions}
            case (Kind.HOLDINGS, MemberKey(_, member_id)):
                self._apply_holdings(member_id, value)
            case (Kind.REGEX, RegularExpressionKey(_, regex)):
                self._apply_regex(regex, value)

    def _apply_holdings(self, member_id: str, value: Any) -> None:
        known = self.members.get(member_id)
        if value is not None:
            self._put(member_id, (known or ConsumerMember(member_id)).holding(value))
        elif known is not None:
            gone = replace(
                known, member_epoch=LEAVING_EPOCH, previous_member_epoch=LEAVING_EPOCH, assigned={}, revoked={}
            )
            self._put(member_id, gone)

    def _apply_regex(self, regex: str, value: RegularExpressionValue | None) -> None:
        before = self.regexes.pop(regex, None)
        if before is not None:
            take(self.regex_names, before.topics)
        if value is not None:
            self.regexes[regex] = value
            self.regex_names.update(value.topics)

    def _put(self, member_id: str, after: ConsumerMember | None) -> None:
        before = self.members.pop(member_id, None)
        # There may be thousands of names, which few records change.
        has_same_names = before is not None and after is not None and before.topic_names is after.topic_names
        # Nor do they change the protocols of a classic member, of which a client may name as many.
        has_same_classic = before is not None and after is not None and before.classic is after.classic
        if before is not None:
            if before.classic is not None and not has_same_classic:
                self.classic_count -= 1
                take(self.classic_protocols, _protocols(before.classic))
            if not has_same_names:
                take(self.names, before.topic_names)
            take(self._assignors, filter(None, [before.server_assignor]))
            take(self.regex_readers, filter(None, [before.topic_regex]))
            for topic, number in _held(before):
                if self._owners.get(topic, {}).get(number) == member_id:
                    del self._owners[topic][number]
                    if not self._owners[topic]:
                        del self._owners[topic]
            if before.instance_id is not None and self.static_members.get(before.instance_id) == member_id:
                del self.static_members[before.instance_id]
        if after is None:
            return
        self.members[member_id] = after
        if after.classic is not None and not has_same_classic:
            self.classic_count += 1
            self.classic_protocols.update(_protocols(after.classic))
        if not has_same_names:
            self.names.update(after.topic_names)
        self._assignors.update(filter(None, [after.server_assignor]))
        self.regex_readers.update(filter(None, [after.topic_regex]))
        for topic, number in _held(after):
            self._owners.setdefault(topic, {})[number] = member_id
        if after.instance_id is not None:
            self.static_members[after.instance_id] = member_id


def _protocols(classic: ClassicMemberMetadata) -> set[str]:
    """Return the names of a member's protocols, each once."""
    return {protocol.name for protocol in classic.supported_protocols}


def _hash_rank(name: str) -> int:
    return ASSIGNORS.index(name) if name in ASSIGNORS else len(ASSIGNORS)


def _held(member: ConsumerMember) -> Iterator[tuple[UUID, int]]:
    for partitions in (member.assigned, member.revoked):
        for topic, numbers in partitions.items():
            for number in numbers:
                yield topic, number
