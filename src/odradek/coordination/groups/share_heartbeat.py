"""What a heartbeat of a share group's member (KIP-932) changes in its group: records, which are not applied yet.

    1  the member       joins, or has changed what it reads        record 10
    2  the group        its members, topics, or the partitions
                        that are initialized have changed          record 11: the group epoch + 1
    3  the target       is of an older epoch than the group        records 13 and 12
    4  the member       gets what it is to get                     record 14
    5  the share state  is lacking for partitions that are read    record 15; they are initialized afterwards

A member leaves, or is removed, by tombstones of its records and the next group epoch.

Source in Kafka: `GroupMetadataManager` (`shareGroupHeartbeat`, `shareGroupLeave`, `shareGroupFenceMember`),
`ShareGroupAssignmentBuilder`, `TargetAssignmentBuilder`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Set
from dataclasses import replace
from typing import NamedTuple, TypeAlias
from uuid import UUID

from odradek.coordination.groups.assignors.simple import simple
from odradek.coordination.groups.assignors.subscribers import Subscriber
from odradek.coordination.groups.modern import GroupRecord, Target, target_of
from odradek.coordination.groups.reconciliation import JOINING_EPOCH, MemberState
from odradek.coordination.groups.share import (
    ShareGroup,
    ShareMember,
    share_epoch_record,
    share_holdings_record,
    share_member_record,
    share_removal,
    share_target_epoch_record,
    share_target_record,
    share_topics_record,
)
from odradek.coordination.groups.share_topics import ShareTopics, TopicState
from odradek.coordination.groups.topics import KnownTopics, group_hash, ids_of


class ShareHeartbeatRequest(NamedTuple):
    """A ShareGroupHeartbeat request; None stands for what has not changed since the last one."""

    member_id: str
    member_epoch: int
    rack_id: str | None
    topic_names: frozenset[str] | None
    client_id: str
    client_host: str


class ShareSettings(NamedTuple):
    """The settings of a group.

    Attributes:
        assignment_interval_ms: How long a target assignment counts at least.
        max_size: How many members it may have.
        retry_ms: How long the making of a share state may take until it is tried again.
    """

    assignment_interval_ms: int
    max_size: int
    retry_ms: int


class ShareOutcome(NamedTuple):
    """What a heartbeat changes.

    Attributes:
        records: The records to be written and then applied.
        member: The member afterwards; None if it was removed.
        shows_assignment: Whether the answer has its assignment.
        epoch: The group epoch afterwards.
        lacking: The partitions that are to be initialized.
        known_topics: The version of the topics that the group has looked at.
        complete_at: The version of the topics in which nothing is to be initialized; None if something is.
    """

    records: list[GroupRecord]
    member: ShareMember | None = None
    shows_assignment: bool = False
    epoch: int = 0
    lacking: Mapping[UUID, TopicState] = {}
    known_topics: int | None = None
    complete_at: int | None = None


ShareSteps: TypeAlias = Generator[None, None, ShareOutcome]
"""Work that pauses now and then, and returns what changes."""


class ShareHeartbeat:
    """The heartbeat of a member.

    Args:
        group: The group, which is not changed.
        request: The request.
        topics: The topics that exist.
        settings: The group's settings.
        now_ms: The time of day.
    """

    def __init__(
        self,
        group: ShareGroup,
        request: ShareHeartbeatRequest,
        topics: KnownTopics,
        settings: ShareSettings,
        now_ms: int,
    ) -> None:
        self._group = group
        self._request = request
        self._topics = topics
        self._settings = settings
        self._now_ms = now_ms
        self._records: list[GroupRecord] = []
        self._epoch = group.epoch

    def run(self) -> ShareSteps:
        """Return what it changes.

        Raises:
            RefusedError: The client may not be in the group like this.
        """
        group, request = self._group, self._request
        group.check_size(request.member_id, self._settings.max_size)
        before = self._member()
        after = self._updated(before)
        has_new_names = after.topic_names is not before.topic_names and after.topic_names != before.topic_names
        if after != before:
            self._records.append(share_member_record(group.group_id, after))
            # Its topics were sorted, which takes a while if there are many.
            yield
        names = group.names
        if has_new_names:
            names = names - Counter(before.topic_names) if before.member_id in group.members else Counter(names)
            names.update(after.topic_names)
        is_new_epoch = yield from self._look_at_topics(names, has_changed=has_new_names)
        target_epoch, target = yield from self._target(after, names)
        moved = after
        is_there = after.state is MemberState.STABLE and after.member_epoch == target_epoch
        if is_new_epoch or not is_there:
            reads = yield from ids_of(self._topics, after.topic_names)
            moved = after.stepped(target_epoch, {one: target[one] for one in target if one in reads})
            if moved != after:
                self._records.append(share_holdings_record(group.group_id, moved))
        shows = (
            request.member_epoch == JOINING_EPOCH
            or request.topic_names is not None
            or moved.assigned != before.assigned
        )
        lacking = yield from self._lacking(names)
        complete_at = None if lacking or self._is_initializing else self._topics.version
        return ShareOutcome(self._records, moved, shows, self._epoch, lacking, self._topics.version, complete_at)

    # -- 1: the member

    def _member(self) -> ShareMember:
        """Return the member as it was, or a new one."""
        group, request = self._group, self._request
        if request.member_epoch == JOINING_EPOCH and request.member_id not in group.members:
            return ShareMember(request.member_id)
        known = group.member(request.member_id)
        known.check_epoch(request.member_epoch)
        return known

    def _updated(self, member: ShareMember) -> ShareMember:
        request = self._request
        return replace(
            member,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            topic_names=member.topic_names if request.topic_names is None else request.topic_names,
            client_id=request.client_id,
            client_host=request.client_host,
        )

    # -- 2: the group

    def _look_at_topics(self, names: Mapping[str, int], *, has_changed: bool) -> Generator[None, None, bool]:
        """Return whether the group gets a new epoch."""
        group = self._group
        if group.target_epoch >= group.epoch and (yield from group.has_unassigned(self._topics)):
            has_changed = True
        if not has_changed and group.known_topics == self._topics.version:
            return False
        found = yield from group_hash(self._topics, names)
        if not has_changed and found == group.metadata_hash:
            return False
        self._epoch += 1
        self._records.append(share_epoch_record(group.group_id, self._epoch, found))
        return True

    # -- 3: the target

    def _target(self, after: ShareMember, names: Mapping[str, int]) -> Generator[None, None, tuple[int, Target]]:
        """Return the assignment epoch and what the member is to get, after a new assignment if one is due."""
        group = self._group
        if group.keeps_target(self._epoch, self._settings.assignment_interval_ms, self._now_ms):
            return group.target_epoch, group.targets.get(after.member_id, {})
        members = {**group.members, after.member_id: after}
        reads: dict[frozenset[str], frozenset[UUID]] = {}
        subscribers: dict[str, Subscriber] = {}
        for member_id, member in members.items():
            if member.topic_names not in reads:
                reads[member.topic_names] = yield from ids_of(self._topics, member.topic_names)
            target = group.targets.get(member_id, {})
            subscribers[member_id] = Subscriber(None, reads[member.topic_names], target)
            yield
        initialized = group.topics.initialized if group.topics is not None else {}
        assignable: dict[UUID, Set[int]] = {}
        for topic_id in frozenset().union(*reads.values()) & initialized.keys():
            topic = self._topics.identified(topic_id)
            if topic is not None:
                assignable[topic_id] = topic.having(initialized[topic_id].partitions)
            yield
        is_same = all(count == len(members) for count in names.values())
        found = yield from simple(subscribers, assignable, is_same=is_same)
        self._records += yield from group.new_targets(members, found, share_target_record)
        self._records.append(share_target_epoch_record(group.group_id, self._epoch, self._now_ms))
        return self._epoch, target_of(found, after.member_id)

    # -- 5: the share state

    @property
    def _is_initializing(self) -> bool:
        return self._group.topics is not None and bool(self._group.topics.initializing)

    def _lacking(self, names: Mapping[str, int]) -> Generator[None, None, dict[UUID, TopicState]]:
        group = self._group
        if names is group.names and group.complete_at == self._topics.version:
            return {}
        topics = group.topics or ShareTopics()
        lacking = yield from topics.missing(self._topics, names, self._now_ms, self._settings.retry_ms)
        if lacking:
            self._records.append(share_topics_record(group.group_id, topics.begun(lacking)))
        return lacking


def share_remove(group: ShareGroup, member_id: str, topics: KnownTopics) -> ShareSteps:
    """Return what changes when a member leaves, or is removed.

    Raises:
        RefusedError: It is not in the group.
    """
    member = group.member(member_id)
    yield
    found = yield from group_hash(topics, group.names - Counter(member.topic_names))
    epoch = group.epoch + 1
    records = [*share_removal(group.group_id, member_id), share_epoch_record(group.group_id, epoch, found)]
    if len(group.members) == 1:
        records.append(share_target_epoch_record(group.group_id, epoch, 0))
    return ShareOutcome(records, epoch=epoch, known_topics=group.known_topics, complete_at=group.complete_at)
