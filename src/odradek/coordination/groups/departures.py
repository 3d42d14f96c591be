"""How members leave a consumer group: records, which are not applied yet.

    leaves, is removed      tombstones of its records, and the next group epoch
    leaves for a while      record 8 with the epoch -2: a static member that comes back
    was the last member     the group becomes a classic one, if all others are classic members
    of its protocol         and the policy lets it; see `migration`

Source in Kafka: `GroupMetadataManager` (`consumerGroupLeave`, `consumerGroupFenceMembers`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from odradek.coordination.groups.consumer import (
    ConsumerGroup,
    epoch_record,
    holdings_record,
    regex_record,
    removal,
    target_epoch_record,
)
from odradek.coordination.groups.heartbeat import HeartbeatRequest, Outcome, Settings, Steps, check_static
from odradek.coordination.groups.migration import downgrade, downgrades
from odradek.coordination.groups.modern import GroupRecord
from odradek.coordination.groups.reconciliation import LEAVING_STATIC_EPOCH, ConsumerMember
from odradek.coordination.groups.topics import KnownTopics, group_hash


def leaving_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return the member that leaves; an administrator may name a static one by its `group.instance.id` only.

    Raises:
        RefusedError: It is not in the group.
    """
    if instance_id is None:
        return group.member(member_id)
    static = group.static_member(instance_id)
    return static if static is not None and not member_id else check_static(static, member_id, instance_id)


def leave(
    group: ConsumerGroup, request: HeartbeatRequest, topics: KnownTopics, settings: Settings, now_ms: int
) -> Steps:
    """Return what changes when a member leaves.

    Raises:
        RefusedError: It is not in the group.
    """
    member = leaving_member(group, request.member_id, request.instance_id)
    if request.instance_id is None or request.member_epoch != LEAVING_STATIC_EPOCH:
        return (yield from remove(group, [member], topics, settings, now_ms))
    gone = member.left_for_a_while()
    return Outcome([holdings_record(group.group_id, gone)], gone, known_topics=group.known_topics)


def remove(
    group: ConsumerGroup,
    members: Collection[ConsumerMember],
    topics: KnownTopics,
    settings: Settings,
    now_ms: int,
) -> Steps:
    """Return what changes when members are removed."""
    if not members:
        return Outcome([], known_topics=group.known_topics)
    if downgrades(group, settings.policy, settings.classic_max_size, leaving=members):
        classic = yield from downgrade(group, topics, now_ms, leaving=members)
        return Outcome(group.removal_records({}), classic=classic, rebalances=True)
    records: list[GroupRecord] = []
    names, matched = Counter(group.names), Counter(group.regex_names)
    for member in members:
        records += removal(group.group_id, member.member_id)
        names.subtract(member.topic_names)
        yield
    for regex, readers in Counter(member.topic_regex for member in members).items():
        if regex and group.regex_readers[regex] == readers:
            records.append(regex_record(group.group_id, regex, None))
            if regex in group.regexes:
                matched.subtract(group.regexes[regex].topics)
    found = yield from group_hash(topics, (+names).keys() | (+matched).keys())
    records.append(epoch_record(group.group_id, group.epoch + 1, found))
    if len(members) == len(group.members):
        # Nobody is to get anything, which needs no assignor.
        records.append(target_epoch_record(group.group_id, group.epoch + 1, 0))
    return Outcome(records, known_topics=group.known_topics)
