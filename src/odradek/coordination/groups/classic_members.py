"""What members of the classic protocol do in a consumer group: the coordinator assigns, and epochs are generations.

    JoinGroup    a heartbeat that says all; answered at once, without a leader; see `heartbeat`
    SyncGroup    what the member has, as `ConsumerProtocol` writes it
    Heartbeat    REBALANCE_IN_PROGRESS: join again, to give up partitions, or to get them

    the member                 Heartbeat                   SyncGroup
    is behind the target       rebalance                   rebalance, unless it is to give up partitions
    is to give up partitions   rebalance                   what it keeps
    waits for partitions       rebalance if all are free   what it has
    has all                    -                           what it has

Source in Kafka: `GroupMetadataManager` (`classicGroupJoinToConsumerGroup`, `classicGroupSyncToConsumerGroup`,
`classicGroupHeartbeatToConsumerGroup`).
"""

from __future__ import annotations

from collections.abc import Generator
from uuid import UUID

from odradek.coordination.errors import GroupErrorCode, RefusedError
from odradek.coordination.groups.classic import Protocols
from odradek.coordination.groups.consumer import ConsumerGroup
from odradek.coordination.groups.heartbeat import HeartbeatRequest, Settings, check_static
from odradek.coordination.groups.migration import assignment_of
from odradek.coordination.groups.reconciliation import JOINING_EPOCH, ConsumerMember, MemberState
from odradek.coordination.groups.topics import KnownTopics
from odradek.errors import FormatError
from odradek.messages.coordinators.consumer_protocol import read_subscription
from odradek.messages.coordinators.group_records import CONSUMER_PROTOCOL, ClassicMemberMetadata, ClassicProtocol

_NO_EPOCH = -1


def check_join(
    group: ConsumerGroup, member_id: str, protocol_type: str, protocols: Protocols, settings: Settings
) -> None:
    """Check whether a member of the classic protocol may join a consumer group.

    Raises:
        RefusedError: It may not.
    """
    if not settings.policy.mixes:
        raise RefusedError(GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the group migration is disabled")
    if len(group.members) >= settings.max_size and member_id not in group.members:
        raise RefusedError(GroupErrorCode.GROUP_MAX_SIZE_REACHED)
    if not group.supports_classic(protocol_type, [name for name, _ in protocols]):
        raise RefusedError(GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def join_request(
    member_id: str,
    instance_id: str | None,
    protocols: Protocols,
    topics: KnownTopics,
    *,
    is_new: bool,
    session_timeout_ms: int,
    rebalance_timeout_ms: int,
    client_id: str,
    client_host: str,
) -> Generator[None, None, HeartbeatRequest]:
    """Return the heartbeat that a JoinGroup stands for: all protocols have the same subscription, so the first counts.

    Raises:
        RefusedError: The subscription cannot be read.
    """
    try:
        subscription = yield from read_subscription(protocols[0][1])
    except FormatError as error:
        reason = f"a subscription cannot be read: {error}"
        raise RefusedError(GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL, reason) from error
    owned: dict[UUID, frozenset[int]] = {}
    for name, numbers in subscription.owned_partitions:
        topic = topics.named(name)
        if topic is not None:
            owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()) | frozenset(numbers)
        yield
    kept: list[ClassicProtocol] = []
    for protocol in protocols:
        kept.append(ClassicProtocol(*protocol))
        yield
    # A static member that says its id must be in the group; a dynamic one comes again after its session, too.
    joins = is_new or instance_id is None
    return HeartbeatRequest(
        member_id,
        JOINING_EPOCH if joins else _NO_EPOCH,
        instance_id,
        subscription.rack_id or None,
        rebalance_timeout_ms,
        frozenset(subscription.topics),
        "",
        None,
        owned,
        client_id,
        client_host,
        classic=ClassicMemberMetadata(session_timeout_ms, tuple(kept)),
    )


def validate(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> tuple[ConsumerMember, ClassicMemberMetadata]:
    """Return a classic member that is in a generation, and what it said when it joined.

    Raises:
        RefusedError: It is not in the group, uses the consumer protocol, or is in another epoch.
    """
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = check_static(group.static_member(instance_id), member_id, instance_id)
    if member.classic is None:
        reason = f"Member {member.member_id} does not use the classic protocol."
        raise RefusedError(GroupErrorCode.UNKNOWN_MEMBER_ID, reason)
    if generation_id != member.member_epoch:
        raise RefusedError(GroupErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def joins_again(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a member learns from its heartbeat that it has to join again."""
    if member.member_epoch < group.target_epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not _waits(group, member)


def _waits(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a partition that it is to get is still another member's."""
    return any(
        number not in member.assigned.get(topic_id, ()) and group.is_taken(topic_id, number)
        for topic_id, numbers in group.targets.get(member.member_id, {}).items()
        for number in numbers
    )


def check_sync(classic: ClassicMemberMetadata, type_: str | None, name: str | None) -> None:
    """Check the protocol that a member names in SyncGroup: the one that JoinGroup was answered.

    Raises:
        RefusedError: It is another one.
    """
    if type_ not in (None, CONSUMER_PROTOCOL) or name not in (None, classic.supported_protocols[0].name):
        raise RefusedError(GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def syncs_in_vain(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a member has to join again before it can get its assignment."""
    return group.target_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS


def assignment(member: ConsumerMember, classic: ClassicMemberMetadata, topics: KnownTopics) -> bytes:
    """Return what a member has, as it reads it."""
    held = {topic: numbers.keys() for topic, numbers in member.assigned.items()}
    return assignment_of(held, classic.supported_protocols[0].metadata, topics)
