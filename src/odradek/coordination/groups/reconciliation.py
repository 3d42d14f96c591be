"""How a member of a consumer group (KIP-848) gets from what it has to what it is to get.

    STABLE                  has what it is to get
    UNREVOKED_PARTITIONS    has to give up partitions first, and stays in its epoch until it no longer owns them
    UNRELEASED_PARTITIONS   is in the epoch of the target, and waits for partitions that others have not given up

    has and is to get         keeps
    has and is not to get     gives up
    is to get, is free        gets, with the epoch of the target
    is to get, others have    waits for

Source in Kafka: `CurrentAssignmentBuilder`, `MemberState`, `ConsumerGroupMember`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TypeAlias
from uuid import UUID

from odradek.coordination.errors import GroupErrorCode, RefusedError
from odradek.coordination.groups.assignors.subscribers import TopicPartitions
from odradek.coordination.placement import java_sorted
from odradek.messages.coordinators.group_records import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
    CurrentMemberAssignmentValue,
    TopicIdPartitions,
)

JOINING_EPOCH, LEAVING_EPOCH, LEAVING_STATIC_EPOCH = 0, -1, -2
"""The epochs that clients send to join, to leave, and to leave as a static member that comes back."""

EpochPartitions: TypeAlias = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic, each with the epoch in which the member got it."""


class MemberState(IntEnum):
    """The states of a member, as records have them."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        """Take a state that a later Kafka wrote for an unknown one, as Kafka does."""
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member.

    Attributes:
        member_id: The id that the client chose.
        member_epoch: The epoch of the assignment that it has.
        previous_member_epoch: The epoch before; its client may not know the last one yet.
        state: How far it is.
        instance_id: `group.instance.id` of a static member.
        rack_id: Its rack.
        client_id: What the client calls itself.
        client_host: The client's address, as Kafka shows it: `/127.0.0.1`.
        topic_names: The topics that it names.
        topic_regex: The pattern of the topics that it reads, besides.
        rebalance_timeout_ms: How long it may take to give up partitions.
        server_assignor: The assignor that it wants; None if any.
        assigned: What it has.
        revoked: What it has to give up.
        classic: What is known of a member that uses the classic protocol; None for all others.
    """

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    assigned: EpochPartitions = field(default_factory=dict)
    revoked: EpochPartitions = field(default_factory=dict)
    classic: ClassicMemberMetadata | None = None

    def described(self, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
        """Return it as a record describes it."""
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def holding(self, value: CurrentMemberAssignmentValue) -> ConsumerMember:
        """Return it with what a record says that it has."""
        return replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=_from_record(value.assigned_partitions, value.member_epoch),
            revoked=_from_record(value.partitions_pending_revocation, value.member_epoch),
        )

    def description(self) -> ConsumerGroupMemberMetadataValue:
        """Return the record that describes it."""
        return ConsumerGroupMemberMetadataValue(
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            tuple(java_sorted(self.topic_names)),
            self.topic_regex,
            self.rebalance_timeout_ms,
            self.server_assignor,
            self.classic,
        )

    def holdings(self) -> CurrentMemberAssignmentValue:
        """Return the record of what it has."""
        return CurrentMemberAssignmentValue(
            self.member_epoch,
            self.previous_member_epoch,
            self.state,
            _to_record(self.assigned),
            _to_record(self.revoked),
        )

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has what it is to get since an epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def check_epoch(self, epoch: int, owned: TopicPartitions | None) -> None:
        """Check the epoch that its client knows.

        Args:
            epoch: The epoch.
            owned: What the client says that it has; None if it does not say.

        Raises:
            RefusedError: The client has to join again, without partitions.
        """
        if epoch in (JOINING_EPOCH, self.member_epoch):
            return
        # The answer with the last epoch may have been lost.
        is_behind = epoch == self.previous_member_epoch and epoch < self.member_epoch
        if not is_behind or owned is None or not _is_subset(owned, self.assigned):
            size = "greater" if epoch > self.member_epoch else "smaller"
            raise RefusedError(
                GroupErrorCode.FENCED_MEMBER_EPOCH,
                f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group "
                f"coordinator ({self.member_epoch}). The member must abandon all its partitions and rejoin.",
            )

    def check_fetch_epoch(self, epoch: int) -> None:
        """Check the epoch of a client that fetches offsets.

        Raises:
            RefusedError: It is not the member's.
        """
        if epoch != self.member_epoch:
            raise RefusedError(self._stale)

    def check_commit_epoch(self, epoch: int, topic_id: UUID, partition: int) -> None:
        """Check the epoch of a client that commits an offset.

        Raises:
            RefusedError: It is neither the member's nor one since the member got the partition.
        """
        if epoch == self.member_epoch:
            return
        since = self.assigned.get(topic_id, {}).get(partition, self.revoked.get(topic_id, {}).get(partition))
        if epoch > self.member_epoch or since is None or epoch < since:
            raise RefusedError(self._stale)

    @property
    def _stale(self) -> GroupErrorCode:
        return GroupErrorCode.STALE_MEMBER_EPOCH if self.classic is None else GroupErrorCode.ILLEGAL_GENERATION

    def left_for_a_while(self) -> ConsumerMember:
        """Return it as a static member that has left, and may come back with another id."""
        assigned = {topic: dict.fromkeys(numbers, 0) for topic, numbers in self.assigned.items()}
        return replace(self, member_epoch=LEAVING_STATIC_EPOCH, assigned=assigned, revoked={})


def _from_record(topics: tuple[TopicIdPartitions, ...], epoch: int) -> EpochPartitions:
    found = {}
    for topic_id, numbers, epochs in topics:
        # Before 4.3, records had no epochs of partitions.
        known = epochs if epochs is not None and len(epochs) == len(numbers) else [max(epoch, 0)] * len(numbers)
        found[topic_id] = dict(zip(numbers, known, strict=True))
    return found


def _to_record(partitions: EpochPartitions) -> tuple[TopicIdPartitions, ...]:
    return tuple(
        TopicIdPartitions(topic_id, tuple(numbers), tuple(numbers.values())) for topic_id, numbers in partitions.items()
    )


def _is_subset(owned: TopicPartitions, assigned: EpochPartitions) -> bool:
    return all(topic in assigned and numbers <= assigned[topic].keys() for topic, numbers in owned.items())


def _owns(owned: TopicPartitions | None, revoked: EpochPartitions) -> bool:
    """Whether a client still has what it is to give up; one that does not say has it."""
    if owned is None:
        return True
    return any(not numbers.isdisjoint(revoked.get(topic, ())) for topic, numbers in owned.items())


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What a member is to get, and what is known when its heartbeat comes.

    Attributes:
        epoch: The epoch of the target.
        target: What the member is to get.
        topics: The topics that it reads, those that exist.
        has_new_topics: Whether it has just changed what it reads.
        owned: What its client says that it has; None if it does not say.
        is_taken: Whether a member has a partition, this one too.
    """

    epoch: int
    target: TopicPartitions
    topics: Set[UUID]
    has_new_topics: bool
    owned: TopicPartitions | None
    is_taken: Callable[[UUID, int], bool]

    def next_step(self, member: ConsumerMember) -> ConsumerMember:
        """Return the member after its next step, or as it is if there is none.

        Raises:
            RefusedError: It is in a state of a later Kafka, and has to join again.
        """
        match member.state:
            case MemberState.STABLE if member.member_epoch == self.epoch:
                return self._without_other_topics(member) if self.has_new_topics else member
            case MemberState.UNREVOKED_PARTITIONS if _owns(self.owned, member.revoked):
                return self._without_other_topics(member) if self.has_new_topics else member
            case MemberState.UNKNOWN if self.owned is None or self.owned:
                reason = "The consumer group member is in a unknown state. The member must abandon all its partitions"
                raise RefusedError(GroupErrorCode.FENCED_MEMBER_EPOCH, f"{reason} and rejoin.")
            case MemberState.UNKNOWN:
                return self._towards_target(member, self.epoch)
            case _:
                return self._towards_target(member, member.member_epoch)

    def _without_other_topics(self, member: ConsumerMember) -> ConsumerMember:
        """Return it without the partitions of topics that it no longer reads."""
        dropped = {topic: numbers for topic, numbers in member.assigned.items() if topic not in self.topics}
        if not dropped:
            return member
        kept = {topic: numbers for topic, numbers in member.assigned.items() if topic in self.topics}
        revoked = {**member.revoked, **{one: {**member.revoked.get(one, {}), **dropped[one]} for one in dropped}}
        made = replace(member, previous_member_epoch=member.member_epoch, assigned=kept)
        if not _owns(self.owned, revoked):
            return made
        return replace(made, state=MemberState.UNREVOKED_PARTITIONS, revoked=revoked)

    def _towards_target(self, member: ConsumerMember, epoch: int) -> ConsumerMember:
        kept: dict[UUID, dict[int, int]] = {}
        revoked: dict[UUID, dict[int, int]] = {}
        given: dict[UUID, list[int]] = {}
        is_waiting = False
        for topic in dict.fromkeys((*self.target, *member.assigned)):
            target = self.target.get(topic, frozenset()) if topic in self.topics else frozenset()
            held = member.assigned.get(topic, {})
            own = member.revoked.get(topic, ())
            for number, since in held.items():
                (kept if number in target else revoked).setdefault(topic, {})[number] = since
            for number in target - held.keys():
                if number not in own and self.is_taken(topic, number):
                    is_waiting = True
                else:
                    given.setdefault(topic, []).append(number)
        if revoked and _owns(self.owned, revoked):
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                member_epoch=epoch,
                previous_member_epoch=member.member_epoch,
                assigned=kept,
                revoked=revoked,
            )
        for topic, numbers in given.items():
            kept.setdefault(topic, {}).update(dict.fromkeys(numbers, self.epoch))
        return replace(
            member,
            state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
            member_epoch=self.epoch,
            previous_member_epoch=member.member_epoch,
            assigned=kept,
            revoked={},
        )
