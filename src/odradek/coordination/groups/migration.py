"""A group moves from the classic to the consumer protocol and back while it runs.

    upgrade     a member of the consumer protocol joins a classic group of consumers     generation -> epochs
    downgrade   the last member of the consumer protocol goes, or a static classic       group epoch -> generation
                member takes its place

Between the two the group is a consumer group with members of both protocols; see `classic_members`.

Source in Kafka: `GroupMetadataManager` (`convertToConsumerGroup`, `convertToClassicGroup` and what checks them),
`ConsumerGroup.fromClassicGroup`, `ClassicGroup.fromConsumerGroup`.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from contextlib import suppress
from typing import NamedTuple
from uuid import UUID

from odradek.coordination.errors import GroupErrorCode, RefusedError
from odradek.coordination.groups.assignors.subscribers import TopicPartitions as PartitionsById
from odradek.coordination.groups.classic import ClassicGroup, Member
from odradek.coordination.groups.consumer import (
    ConsumerGroup,
    epoch_record,
    holdings_record,
    member_record,
    target_epoch_record,
    target_record,
)
from odradek.coordination.groups.migration_policy import MigrationPolicy
from odradek.coordination.groups.modern import GroupRecord, Target
from odradek.coordination.groups.reconciliation import ConsumerMember
from odradek.coordination.groups.topics import KnownTopics, group_hash
from odradek.coordination.placement import in_hash_order, int_set_order, timeline_order, uuid_map_order
from odradek.errors import FormatError
from odradek.messages.coordinators.consumer_protocol import (
    TopicPartitions,
    encode_assignment,
    protocol_version,
    read_assignment,
    read_subscription,
)
from odradek.messages.coordinators.group_records import CONSUMER_PROTOCOL, ClassicMemberMetadata, ClassicProtocol

# -- classic -> consumer


def check_upgrade(group: ClassicGroup, policy: MigrationPolicy, max_size: int) -> None:
    """Check whether a classic group may become a consumer group.

    Args:
        group: The group.
        policy: The policy.
        max_size: `group.consumer.max.size`.

    Raises:
        RefusedError: It may not.
    """
    if not policy.upgrades:
        reason = "online upgrade is disabled"
    elif group.protocol_type != CONSUMER_PROTOCOL:
        reason = "the group does not use the consumer embedded protocol"
    elif len(group.members) > max_size:
        reason = "the group size exceeds the consumer group maximum size"
    else:
        return
    raise _not_upgraded(group, reason)


def _not_upgraded(group: ClassicGroup, reason: str) -> RefusedError:
    text = f"Cannot upgrade classic group {group.group_id} to consumer group because {reason}."
    return RefusedError(GroupErrorCode.GROUP_ID_NOT_FOUND, text)


class Upgrade(NamedTuple):
    """What makes a consumer group of a classic one.

    Attributes:
        records: The records, which follow the tombstone of the classic group.
        group: The consumer group that they make.
    """

    records: list[GroupRecord]
    group: ConsumerGroup


def upgrade(group: ClassicGroup, topics: KnownTopics) -> Generator[None, None, Upgrade]:
    """Return what makes a consumer group of a classic one.

    The members have what the leader assigned to them, in the epoch of their generation. The group may change while
    this pauses, so the caller compares its `revision`.

    Raises:
        RefusedError: What the members say of themselves cannot be read, or would be lost.
    """
    group_id, generation = group.group_id, group.generation_id
    members: dict[str, ConsumerMember] = {}
    owned: set[tuple[UUID, int]] = set()
    names: set[str] = set()
    for member_id in in_hash_order(group.members):
        member = group.members.get(member_id)
        supported = () if member is None else member.protocols
        metadata = next((data for name, data in supported if name == group.protocol), None)
        if member is None or metadata is None:
            # The first rebalance is not over, and so it is at Apache Kafka.
            raise RefusedError(GroupErrorCode.UNKNOWN_SERVER_ERROR, f"group {group_id} has no protocol yet")
        try:
            assigned = yield from _assigned(group, member, topics)
            subscription = yield from read_subscription(metadata)
        except FormatError:
            raise _not_upgraded(group, "the embedded consumer protocol is malformed") from None
        taken = {(topic, number) for topic, numbers in assigned.items() for number in numbers}
        if not owned.isdisjoint(taken):
            raise RefusedError(GroupErrorCode.UNKNOWN_SERVER_ERROR, f"group {group_id} assigned a partition twice")
        owned |= taken
        names.update(subscription.topics)
        members[member_id] = ConsumerMember(
            member_id,
            generation,
            generation,
            instance_id=member.instance_id,
            rack_id=subscription.rack_id or None,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=frozenset(subscription.topics),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            assigned={topic: dict.fromkeys(int_set_order(assigned[topic]), generation) for topic in assigned},
            classic=ClassicMemberMetadata(
                member.session_timeout_ms, tuple(ClassicProtocol(*one) for one in member.protocols)
            ),
        )
        yield
    found = yield from group_hash(topics, names)
    ordered = [members[member_id] for member_id in timeline_order(members)]
    made = Upgrade([], ConsumerGroup(group_id))
    for record in _records(group_id, generation, found, ordered):
        made.records.append(record)
        made.group.apply(record)
        yield
    return made


def _records(
    group_id: str, generation: int, metadata_hash: int, members: Collection[ConsumerMember]
) -> Iterator[GroupRecord]:
    yield from (member_record(group_id, member) for member in members)
    yield epoch_record(group_id, generation, metadata_hash)
    yield from (target_record(group_id, member.member_id, _target(member)) for member in members)
    yield target_epoch_record(group_id, generation, 0)
    yield from (holdings_record(group_id, member) for member in members)


def _target(member: ConsumerMember) -> Target:
    return {topic: frozenset(numbers) for topic, numbers in member.assigned.items()}


def _assigned(group: ClassicGroup, member: Member, topics: KnownTopics) -> Generator[None, None, PartitionsById]:
    """Return what a member was assigned, as far as it exists, in the order of Kafka's map."""
    if not member.assignment:
        return {}
    assignment = yield from read_assignment(member.assignment)
    if assignment.user_data:
        raise _not_upgraded(
            group,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default "
            "assignor before re-attempting the upgrade",
        )
    found: dict[UUID, frozenset[int]] = {}
    for name, numbers in assignment.assigned_partitions:
        topic = topics.named(name)
        if topic is not None:
            found[topic.topic_id] = frozenset(one for one in numbers if 0 <= one < topic.partition_count)
    return {topic_id: found[topic_id] for topic_id in uuid_map_order(found)}


# -- consumer -> classic


def downgrades(
    group: ConsumerGroup,
    policy: MigrationPolicy,
    max_size: int,
    *,
    leaving: Collection[ConsumerMember] = (),
    replaced: ConsumerMember | None = None,
) -> bool:
    """Return whether a group becomes a classic one.

    Args:
        group: The group.
        policy: The policy.
        max_size: `group.max.size`.
        leaving: The members that go.
        replaced: The static member whose place a classic member takes.
    """
    if replaced is not None:
        remaining = len(group.members)
        is_last = replaced.classic is None and group.is_only_classic_without([replaced])
    else:
        remaining = len(group.members) - len(leaving)
        is_last = group.is_only_classic_without(leaving)
    return is_last and policy.downgrades and 0 < remaining <= max_size


def downgrade(
    group: ConsumerGroup,
    topics: KnownTopics,
    now_ms: int,
    *,
    leaving: Collection[ConsumerMember] = (),
    joining: ConsumerMember | None = None,
) -> Generator[None, None, ClassicGroup]:
    """Return the classic group that a consumer group becomes: its members have what they were to get.

    Args:
        group: The group, which is not changed.
        topics: The topics that exist.
        now_ms: The time of day.
        leaving: The members that go.
        joining: The classic member that replaces a static one.
    """
    replaced = None if joining is None else group.static_member(joining.instance_id)
    gone = {member.member_id for member in (*leaving, *filter(None, [replaced]))}
    found = [group.members[one] for one in timeline_order(group.members, room=1) if one not in gone]
    found += filter(None, [joining])
    made = ClassicGroup(group.group_id, now_ms)
    for one in found:
        made.add(_classic(one))
        yield
    made.has_assignments(group.epoch)
    yield
    for member in made.members.values():
        is_new = joining is not None and replaced is not None and member.member_id == joining.member_id
        target = group.targets.get(replaced.member_id if is_new and replaced is not None else member.member_id, {})
        member.assignment = assignment_of(target, member.metadata(made.protocol or ""), topics)
        yield
    return made


def _classic(member: ConsumerMember) -> Member:
    assert member.classic is not None
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        CONSUMER_PROTOCOL,
        tuple((name, metadata) for name, metadata in member.classic.supported_protocols),
    )


def assignment_of(partitions: PartitionsById, subscription: bytes, topics: KnownTopics) -> bytes:
    """Return partitions as a classic member with a subscription is told of them, without topics that were deleted."""
    assigned = []
    for topic_id in uuid_map_order(partitions):
        topic = topics.identified(topic_id)
        if topic is not None:
            assigned.append(TopicPartitions(topic.name, tuple(int_set_order(partitions[topic_id]))))
    version = 0
    with suppress(FormatError):
        version = protocol_version(subscription)
    return encode_assignment(tuple(assigned), version)
