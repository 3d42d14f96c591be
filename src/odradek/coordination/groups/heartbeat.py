"""What a heartbeat of the consumer protocol (KIP-848) changes in its group: records, which are not applied yet.

    1  the member      joins, or has changed what it reads    record 5; a tombstone of 16 for a pattern without readers
    2  the group       its members or topics have changed     record 3: the group epoch + 1
    3  the target      is of an older epoch than the group    records 7 and 6
    4  the member      makes a step towards the target        record 8

A member of the classic protocol does the same with JoinGroup (see `classic_members`). If it takes the place of the last
member of the consumer protocol, the group becomes a classic one instead of 3 (see `migration`). How members leave is in
`departures`.

Source in Kafka: `GroupMetadataManager` (`consumerGroupHeartbeat`, `classicGroupJoinToConsumerGroup`),
`TargetAssignmentBuilder`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias
from uuid import UUID

from odradek.coordination.errors import GroupErrorCode, RefusedError
from odradek.coordination.groups.assignors import assign
from odradek.coordination.groups.assignors.subscribers import Subscriber, TopicPartitions
from odradek.coordination.groups.classic import ClassicGroup
from odradek.coordination.groups.consumer import (
    ConsumerGroup,
    Kind,
    epoch_record,
    holdings_record,
    member_record,
    regex_record,
    removal,
    target_epoch_record,
    target_record,
)
from odradek.coordination.groups.migration import Upgrade, downgrade, downgrades
from odradek.coordination.groups.migration_policy import MigrationPolicy
from odradek.coordination.groups.modern import GroupRecord, Target, target_of
from odradek.coordination.groups.reconciliation import (
    JOINING_EPOCH,
    LEAVING_STATIC_EPOCH,
    ConsumerMember,
    Reconciliation,
)
from odradek.coordination.groups.topics import KnownTopics, group_hash, ids_of
from odradek.messages.coordinators.group_records import ClassicMemberMetadata, GroupKey, RegularExpressionValue

_REGEX_REST_MS = 10_000
_NOT_GIVEN = -1

Steps: TypeAlias = Generator[None, None, "Outcome"]
"""Work that pauses now and then, and returns what changes."""


class HeartbeatRequest(NamedTuple):
    """A ConsumerGroupHeartbeat request; None and -1 stand for what has not changed since the last one.

    Attributes:
        regex_error: What is wrong with `topic_regex`, if anything is.
        classic: What a member of the classic protocol says in JoinGroup; None for all others.
    """

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topic_names: frozenset[str] | None
    topic_regex: str | None
    server_assignor: str | None
    owned: TopicPartitions | None
    client_id: str
    client_host: str
    regex_error: str | None = None
    classic: ClassicMemberMetadata | None = None

    @property
    def is_full(self) -> bool:
        """Whether the client says all, as it does after an error."""
        has_topics = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != _NOT_GIVEN and has_topics and self.owned is not None


class Settings(NamedTuple):
    """The settings of a group.

    Attributes:
        assignor: The assignor that is used if no member wants one.
        assignment_interval_ms: How long a target assignment counts at least.
        max_size: How many members it may have.
        regex_refresh_ms: How often patterns are tried again at least.
        policy: Whether it moves between the protocols.
        classic_max_size: How many members it may have as a classic group.
    """

    assignor: str
    assignment_interval_ms: int
    max_size: int
    regex_refresh_ms: int
    policy: MigrationPolicy
    classic_max_size: int


class Outcome(NamedTuple):
    """What a heartbeat changes.

    Attributes:
        records: The records to be written and then applied; not applied if the group becomes a classic one.
        member: The member afterwards; None if others were removed.
        shows_assignment: Whether the answer has its assignment.
        has_moved: Whether it made a step, so that the time for giving up partitions begins or ends.
        known_topics: The version of the topics that the group has looked at.
        regexes: The patterns whose topics are to be found; empty if none.
        upgrade: What makes the group of a classic one before that; None if it is a consumer group.
        classic: The classic group that takes the group's place; None if it stays.
        rebalances: Whether the members of that join again at once.
    """

    records: list[GroupRecord]
    member: ConsumerMember | None = None
    shows_assignment: bool = False
    has_moved: bool = False
    known_topics: int | None = None
    regexes: frozenset[str] = frozenset()
    upgrade: Upgrade | None = None
    classic: ClassicGroup | None = None
    rebalances: bool = False


class Heartbeat:
    """The heartbeat of a member, or the JoinGroup of a classic one.

    Args:
        group: The group, which is not changed.
        request: The request.
        topics: The topics that exist.
        settings: The group's settings.
        now_ms: The time of day.
    """

    def __init__(
        self, group: ConsumerGroup, request: HeartbeatRequest, topics: KnownTopics, settings: Settings, now_ms: int
    ) -> None:
        self._group = group
        self._request = request
        self._topics = topics
        self._settings = settings
        self._now_ms = now_ms
        self._records: list[GroupRecord] = []
        self._epoch = group.epoch
        # The member as the group has it, perhaps with a new id; None for a new member.
        self._known: ConsumerMember | None = None
        # The static member whose place a classic one takes, so that the group becomes a classic one.
        self._last: ConsumerMember | None = None

    def run(self) -> Steps:
        """Return what it changes.

        Raises:
            RefusedError: The client may not be in the group like this.
        """
        group, request = self._group, self._request
        group.check_size(request.member_id, self._settings.max_size)
        before = self._member()
        static = group.static_member(request.instance_id)
        if request.classic is not None and static is not None:
            policy, max_size = self._settings.policy, self._settings.classic_max_size
            self._last = static if downgrades(group, policy, max_size, replaced=static) else None
        after = self._updated(before)
        has_new_names = after.topic_names != before.topic_names
        if after != before:
            self._records.append(member_record(group.group_id, after))
            # Its topics were sorted, which takes a while if there are many.
            yield
        has_new_regex, is_resolved = self._change_regex(before, after)
        has_known_topics = has_new_names or is_resolved or (request.classic is not None and has_new_regex)
        is_new_epoch = has_known_topics or (after != before and self._changes_assignor(after))
        known_topics = group.known_topics
        if is_new_epoch or known_topics != self._topics.version:
            known_topics = self._topics.version
            yield from self._look_at_topics(after, has_changed=is_new_epoch)
        is_changed = has_new_names or has_new_regex
        if self._last is not None:
            return (yield from self._as_classic(after, self._last, is_changed=is_changed))
        target_epoch, target = yield from self._target(after)
        moved = yield from self._reconciled(after, target_epoch, target, is_changed=is_changed)
        shows = request.member_epoch == JOINING_EPOCH or request.is_full or moved.assigned != before.assigned
        regexes = self._due_regexes(after)
        return Outcome(self._records, moved, shows, moved is not after, known_topics, regexes)

    def _reconciled(
        self, member: ConsumerMember, epoch: int, target: Target, *, is_changed: bool
    ) -> Generator[None, None, ConsumerMember]:
        """Return the member after its step towards the target."""
        if not is_changed and member.is_reconciled_to(epoch):
            return member
        group = self._group
        topics = yield from _topic_ids(group, member, self._topics)
        moved = Reconciliation(epoch, target, topics, is_changed, self._request.owned, group.is_taken).next_step(member)
        if moved != member:
            self._records.append(holdings_record(group.group_id, moved))
        return moved

    def _as_classic(self, member: ConsumerMember, last: ConsumerMember, *, is_changed: bool) -> Steps:
        """Return the change into a classic group; what the member has counts only if the target is up to date."""
        group = self._group
        rebalances = group.target_epoch < self._epoch
        if not rebalances:
            target = group.targets.get(last.member_id, {})
            member = yield from self._reconciled(member, group.target_epoch, target, is_changed=is_changed)
        classic = yield from downgrade(group, self._topics, self._now_ms, joining=member)
        self._records += group.removal_records({last.member_id: member.member_id})
        return Outcome(self._records, member, classic=classic, rebalances=rebalances)

    # -- 1: the member

    def _member(self) -> ConsumerMember:
        """Return the member as it was, or a new one."""
        group, request = self._group, self._request
        joins = request.member_epoch == JOINING_EPOCH
        static = group.static_member(request.instance_id)
        if joins and static is not None:
            self._known = self._replaced(static)
            return self._known
        if joins:
            self._known = group.members.get(request.member_id)
        elif request.instance_id is None:
            self._known = group.member(request.member_id)
        else:
            self._known = check_static(static, request.member_id, request.instance_id)
        if self._known is None:
            return ConsumerMember(request.member_id)
        if request.classic is None:
            self._known.check_epoch(request.member_epoch, request.owned)
        return self._known

    def _replaced(self, old: ConsumerMember) -> ConsumerMember:
        """Return a static member that comes back with another id.

        Raises:
            RefusedError: It has not left before, and neither of the two uses the classic protocol.
        """
        is_mixed = old.classic is not None or self._request.classic is not None
        if old.member_epoch != LEAVING_STATIC_EPOCH and not is_mixed:
            raise RefusedError(
                GroupErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {self._request.member_id} with instance id {old.instance_id} cannot join the group "
                f"because the instance id is owned by {old.member_id} member.",
            )
        group_id, member_id = self._group.group_id, self._request.member_id
        new = replace(old, member_id=member_id, member_epoch=JOINING_EPOCH, previous_member_epoch=JOINING_EPOCH)
        self._records += removal(group_id, old.member_id)
        self._records += [
            member_record(group_id, new),
            target_record(group_id, member_id, self._group.targets.get(old.member_id, {})),
            holdings_record(group_id, new),
        ]
        return new

    def _updated(self, member: ConsumerMember) -> ConsumerMember:
        request = self._request
        given = {
            "instance_id": request.instance_id,
            "rack_id": request.rack_id,
            "server_assignor": request.server_assignor,
            "topic_names": request.topic_names,
            "topic_regex": request.topic_regex,
            "rebalance_timeout_ms": None
            if request.rebalance_timeout_ms == _NOT_GIVEN
            else request.rebalance_timeout_ms,
        }
        changed = {name: value for name, value in given.items() if value is not None}
        client_id, client_host = request.client_id, request.client_host
        is_same_client = (member.client_id, member.client_host) == (client_id, client_host)
        if not changed and is_same_client and member.classic is None and request.classic is None:
            # As nearly all heartbeats are.
            return member
        return replace(member, **changed, client_id=client_id, client_host=client_host, classic=request.classic)  # type: ignore[arg-type]

    def _change_regex(self, before: ConsumerMember, after: ConsumerMember) -> tuple[bool, bool]:
        """Return whether the member has another pattern, and whether the topics of that are known."""
        group, old, new = self._group, before.topic_regex, after.topic_regex
        if old == new:
            return False, False
        if old and group.regex_readers[old] == 1:
            self._records.append(regex_record(group.group_id, old, None))
        if not new:
            return True, bool(old)
        if not group.regex_readers[new] and self._request.regex_error is not None:
            reason = f"SubscribedTopicRegex `{new}` is not a valid regular expression: {self._request.regex_error}."
            raise RefusedError(GroupErrorCode.INVALID_REGULAR_EXPRESSION, reason)
        return True, group.regex_readers[new] > 0 and new in group.regexes

    def _regex_readers(self, after: ConsumerMember) -> Counter[str]:
        readers = Counter(self._group.regex_readers)
        if self._known is not None:
            readers -= Counter(filter(None, [self._known.topic_regex]))
        readers.update(filter(None, [after.topic_regex]))
        return readers

    def _due_regexes(self, after: ConsumerMember) -> frozenset[str]:
        """Return the patterns of the group if it is time to find their topics."""
        group = self._group
        if not group.regex_readers and not after.topic_regex:
            return frozenset()
        readers = self._regex_readers(after)
        if not readers:
            return frozenset()
        known = next(iter(group.regexes.values()), None)
        if known is not None:
            age_ms = self._now_ms - known.timestamp
            is_due = (
                readers.keys() != group.regexes.keys()
                or known.version < self._topics.created_version
                or not 0 <= age_ms <= self._settings.regex_refresh_ms
            )
            if 0 <= age_ms <= _REGEX_REST_MS or not is_due:
                return frozenset()
        return frozenset(readers)

    # -- 2: the group

    def _names(self, after: ConsumerMember) -> tuple[Counter[str], Counter[str]]:
        """Return how many members name a topic, and how many patterns match it, after the change."""
        group = self._group
        names, matched = Counter(group.names), Counter(group.regex_names)
        if self._known is not None:
            names -= Counter(self._known.topic_names)
            old = self._known.topic_regex
            if old and old != after.topic_regex and group.regex_readers[old] == 1 and old in group.regexes:
                matched -= Counter(group.regexes[old].topics)
        names.update(after.topic_names)
        return names, matched

    def _changes_assignor(self, after: ConsumerMember) -> bool:
        """Whether most members want another assignor after the change."""
        changes = (None, (self._known, after))
        return len({self._group.assignor(self._settings.assignor, instead=one) for one in changes}) > 1

    def _look_at_topics(self, after: ConsumerMember, *, has_changed: bool) -> Generator[None, None, None]:
        group = self._group
        names, matched = self._names(after)
        found = yield from group_hash(self._topics, names.keys() | matched.keys())
        if has_changed or found != group.metadata_hash:
            self._epoch += 1
            self._records.append(epoch_record(group.group_id, self._epoch, found))
        if group.has_old_topics:
            self._records.append(GroupRecord(Kind.OLD_TOPICS, GroupKey(group.group_id), None))

    # -- 3: the target

    def _target(self, after: ConsumerMember) -> Generator[None, None, tuple[int, Target]]:
        """Return the assignment epoch and what the member is to get, after a new assignment if one is due."""
        group = self._group
        # A static member that came back gets what it was to get before.
        own = (group.static_member(after.instance_id) or after).member_id
        if group.keeps_target(self._epoch, self._settings.assignment_interval_ms, self._now_ms):
            return group.target_epoch, group.targets.get(own, {})
        members = {**group.members, after.member_id: after}
        if own != after.member_id:
            del members[own]
        subscribers, counts = yield from self._subscribers(members, {after.member_id: own})
        is_same = self._is_same(after, len(members))
        assignor = group.assignor(self._settings.assignor, instead=(self._known, after))
        found = yield from assign(assignor, subscribers, counts, is_same=is_same)
        self._records += yield from group.new_targets(members, found, target_record)
        self._records.append(target_epoch_record(group.group_id, self._epoch, self._now_ms))
        return self._epoch, target_of(found, after.member_id)

    def _subscribers(
        self, members: Mapping[str, ConsumerMember], own: Mapping[str, str]
    ) -> Generator[None, None, tuple[dict[str, Subscriber], dict[UUID, int]]]:
        group = self._group
        ids: dict[tuple[frozenset[str], str | None], frozenset[UUID]] = {}
        subscribers: dict[str, Subscriber] = {}
        counts: dict[UUID, int] = {}
        for member_id, member in members.items():
            reads = member.topic_names, member.topic_regex
            if reads not in ids:
                ids[reads] = yield from _topic_ids(group, member, self._topics)
                for topic_id in ids[reads]:
                    topic = self._topics.identified(topic_id)
                    if topic is not None:
                        counts[topic_id] = topic.partition_count
            target = group.targets.get(own.get(member_id, member_id), {})
            subscribers[member_id] = Subscriber(member.instance_id, ids[reads], target)
            yield
        return subscribers, counts

    def _is_same(self, after: ConsumerMember, members: int) -> bool:
        """Return whether all members read the same topics."""
        names, matched = self._names(after)
        readers = self._regex_readers(after)
        if not readers:
            return all(count == members for count in names.values())
        return next(iter(readers.values())) == members and not names and all(count == 1 for count in matched.values())


def _topic_ids(
    group: ConsumerGroup, member: ConsumerMember, topics: KnownTopics
) -> Generator[None, None, frozenset[UUID]]:
    """Return the topics that a member reads, those that exist; a pattern whose topics are not known yet has none."""
    known = group.regexes.get(member.topic_regex or "")
    return (yield from ids_of(topics, (*member.topic_names, *(known.topics if known is not None else ()))))


def check_static(member: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """Return the static member that a client says to be.

    Raises:
        RefusedError: The member does not exist, or another client has its `group.instance.id`.
    """
    if member is None:
        raise RefusedError(GroupErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        reason = f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
        raise RefusedError(GroupErrorCode.FENCED_INSTANCE_ID, reason)
    return member


def resolve(
    group: ConsumerGroup, found: Mapping[str, tuple[str, ...]], topics: KnownTopics, version: int, found_ms: int
) -> Steps:
    """Return what changes when the topics of patterns were found.

    Args:
        group: The group.
        found: The topics of each pattern.
        topics: The topics that exist.
        version: The version of the topics that the patterns were tried on.
        found_ms: When they were tried.
    """
    records: list[GroupRecord] = []
    matched = Counter(group.regex_names)
    has_changed = False
    for regex, names in found.items():
        if not group.regex_readers[regex]:
            continue
        known = group.regexes.get(regex)
        before = known.topics if known is not None else ()
        if set(before) != set(names):
            has_changed = True
            matched -= Counter(before)
            matched.update(names)
        records.append(regex_record(group.group_id, regex, RegularExpressionValue(names, version, found_ms)))
    metadata_hash = yield from group_hash(topics, group.names.keys() | matched.keys())
    known_topics = group.known_topics
    if has_changed or metadata_hash != group.metadata_hash:
        records.append(epoch_record(group.group_id, group.epoch + 1, metadata_hash))
        known_topics = topics.version
    return Outcome(records, known_topics=known_topics)
