"""Members of consumer groups (KIP-848) as checks use them: heartbeats, what they have, what a group tells of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from odradek.testing.conformance.administration import delete_group, set_group
from odradek.testing.conformance.target import Target, Topic, UnexpectedError, expect, expect_error

_T = TypeVar("_T")


def beat(target: Target, group: str, member: str, epoch: int = 0, **fields: Any) -> Any:
    """Send a heartbeat: a full one to join, otherwise only what is given."""
    full = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [], "topic_partitions": []} if not epoch else {}
    return target.call(
        "ConsumerGroupHeartbeat", 1, group_id=group, member_id=member, member_epoch=epoch, **{**full, **fields}
    )


def owned(topic: Topic, *partitions: int) -> list[dict[str, Any]]:
    """Return partitions as a heartbeat reports them."""
    return [{"topic_id": topic.id, "partitions": list(partitions)}] if partitions else []


def assigned(answer: Any) -> dict[UUID, list[int]] | None:
    """Return what an answer assigns, by topic."""
    if answer.assignment is None:
        return None
    return {one.topic_id: sorted(one.partitions) for one in answer.assignment.topic_partitions}


def ready(target: Target, partitions: int = 1) -> tuple[str, Topic]:
    """Return a new group and a new topic, when the group's coordinator has heard of the topic."""
    group, topic = target.group(), target.topic(partitions)

    def knows() -> bool:
        answer = beat(target, group, "m", subscribed_topic_names=[topic.name])
        beat(target, group, "m", -1)
        delete_group(target, group)
        return bool(assigned(answer))

    target.until("the coordinator knows the topic", knows)
    return group, topic


def joined(target: Target, group: str, topic: Topic, member: str = "m", **fields: Any) -> Any:
    """Let a member join that reads a topic; the answer."""
    answer = beat(target, group, member, **{"subscribed_topic_names": [topic.name], **fields})
    expect_error("join", answer.error_code, "NONE")
    return answer


def alone(target: Target, partitions: int = 1) -> tuple[str, Topic, Any]:
    """Return a group of one member m, the topic that it reads, and its epoch."""
    group, topic = ready(target, partitions)
    return group, topic, joined(target, group, topic).member_epoch


def described(target: Target, group: str) -> Any:
    """Return what ConsumerGroupDescribe tells of a group."""
    return target.call("ConsumerGroupDescribe", 1, group_ids=[group]).groups[0]


def member_of(target: Target, group: str, member: str) -> Any:
    """Return what ConsumerGroupDescribe tells of a member."""
    return next(one for one in described(target, group).members if one.member_id == member)


def partitions_of(assignment: Any) -> dict[UUID, list[int]]:
    """Return the partitions that ConsumerGroupDescribe tells, by topic."""
    return {one.topic_id: sorted(one.partitions) for one in assignment.topic_partitions}


class Members:
    """The members of a new group, each of which knows its epoch and what it has; assignments are made at once.

    Args:
        target: The broker.
        partitions: How many partitions the group's topic has.

    Attributes:
        group: The group.
        topic: The topic.
        epochs: The epoch of each member.
        held: What each member has.
    """

    def __init__(self, target: Target, partitions: int = 1) -> None:
        self._target = target
        self.group, self.topic = ready(target, partitions)
        set_group(target, self.group, consumer_assignment_interval_ms="0")
        self.epochs: dict[str, int] = {}
        self.held: dict[str, dict[UUID, list[int]]] = {}

    def join(self, member: str, **fields: Any) -> Any:
        """Let a member join that reads the topic, unless the fields say otherwise."""
        return self._took(member, joined(self._target, self.group, self.topic, member, **fields))

    def join_all(self, *members: str, **fields: Any) -> None:
        """Let members join, one after the other, and settle."""
        for member in members:
            self.join(member, **fields)
        self.settle()

    def beat(self, member: str, **fields: Any) -> Any:
        """Send a heartbeat that says only what is given."""
        answer = beat(self._target, self.group, member, self.epochs[member], **fields)
        expect_error(f"heartbeat of {member}", answer.error_code, "NONE")
        return self._took(member, answer)

    def report(self, member: str) -> Any:
        """Send a heartbeat that says what the member has."""
        topics = [{"topic_id": topic, "partitions": numbers} for topic, numbers in self.held[member].items()]
        return self.beat(member, topic_partitions=topics)

    def read_also(self, member: str, topic: Topic) -> None:
        """Let a member read another topic, too, until the coordinator knows it and has assigned it."""

        def has_it() -> bool:
            self.beat(member, subscribed_topic_names=[self.topic.name, topic.name])
            self.report(member)
            return bool(self.numbers(member, topic))

        self._target.until("the other topic is assigned", has_it)

    def leave(self, member: str, epoch: int = -1, **fields: Any) -> None:
        """Let a member leave."""
        answer = beat(self._target, self.group, member, epoch, **fields)
        expect_error(f"{member} leaves", answer.error_code, "NONE")
        del self.epochs[member], self.held[member]

    def settle(self) -> None:
        """Let all members report what they have until the group is stable."""
        self.until("the group is stable", lambda: self.described().group_state == "Stable")

    def until(self, what: str, look: Callable[[], _T | None], *members: str) -> _T:
        """Let members report what they have, all if none is named, until a look gives something."""

        def reported() -> _T | None:
            for member in members or self.epochs:
                self.report(member)
            return look()

        return self._target.until(what, reported)

    def described(self) -> Any:
        """Return what ConsumerGroupDescribe tells of the group."""
        return described(self._target, self.group)

    def told(self, member: str) -> Any:
        """Return what ConsumerGroupDescribe tells of a member."""
        return member_of(self._target, self.group, member)

    def numbers(self, member: str, topic: Topic | None = None) -> list[int]:
        """Return the partitions of a topic that a member has."""
        return self.held[member].get((topic or self.topic).id, [])

    def expect_each_once(self, count: int) -> None:
        """Expect that each partition of the topic is with one member.

        Raises:
            UnexpectedError: That is not so.
        """
        found = sorted(number for member in self.held for number in self.numbers(member))
        if found != list(range(count)):
            raise UnexpectedError(f"partitions: {self.held}")
        expect("state", self.described().group_state, "Stable")

    def _took(self, member: str, answer: Any) -> Any:
        self.epochs[member] = answer.member_epoch
        found = assigned(answer)
        self.held[member] = self.held.get(member, {}) if found is None else found
        return answer
