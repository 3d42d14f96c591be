"""Requests of members of both protocols to a group that moves between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odradek.broker.turns import whole
from odradek.messages.coordinators.consumer_protocol import (
    SUBSCRIPTION,
    ConsumerSubscription,
    TopicPartitions,
    encode_assignment,
    read_assignment,
)
from odradek.testing.wire import WireClient
from peers.group_requests import join_message, sync_message
from peers.requests import ask

VERSION = 3


def subscription(topics: Sequence[str], *partitions: int, version: int = VERSION) -> bytes:
    """Returns what a classic member says: the topics that it reads, and what it has of the first one."""
    owned = (TopicPartitions(topics[0], partitions),) if partitions else ()
    content = SUBSCRIPTION.encode(ConsumerSubscription(tuple(topics), None, owned), version)
    return version.to_bytes(2, "big") + content


def assignment(topic: str, *partitions: int) -> bytes:
    """Returns an assignment as a leader makes it."""
    return encode_assignment((TopicPartitions(topic, partitions),), VERSION)


def assigned(data: bytes) -> list[int]:
    """Returns the partitions of an assignment."""
    return sorted(number for topic in whole(read_assignment(data)).assigned_partitions for number in topic.partitions)


class ClassicMember:
    """A classic member on a connection of its own.

    Attributes:
        member_id: Its id; empty until it has one.
        generation: What JoinGroup answered last.
        has: The partitions that SyncGroup answered last.
    """

    def __init__(self, client: WireClient, group: str, member_id: str = "", instance: str | None = None) -> None:
        self.client = client
        self.group = group
        self.member_id = member_id
        self.instance = instance
        self.generation = -1
        self.has: list[int] = []

    def join_message(self, *owned: int, topics: Sequence[str] = ("events",), **fields: Any) -> dict[str, Any]:
        """Returns its JoinGroup, in which it has partitions."""
        protocols = {"range": subscription(topics, *owned)}
        return join_message(self.group, self.member_id, self.instance, protocols, **fields)

    def join(self, *owned: int, version: int = 9, **fields: Any) -> Any:
        """Joins, with the id that it is given if it has none."""
        answer = ask(self.client, "JoinGroup", version, **self.join_message(*owned, **fields))
        if int(answer.error_code) == 79:
            self.member_id = answer.member_id
            return self.join(*owned, version=version, **fields)
        if not int(answer.error_code):
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, data: bytes | None = None) -> Any:
        """Asks for its assignment; as a leader, with one for itself."""
        given = {} if data is None else {self.member_id: data}
        message = sync_message(self.group, self.member_id, self.generation, given, self.instance)
        answer = ask(self.client, "SyncGroup", 5, **message)
        if not int(answer.error_code):
            self.has = assigned(answer.assignment)
        return answer

    def beat(self) -> int:
        """Sends a heartbeat; returns its error."""
        asked = {"group_id": self.group, "generation_id": self.generation, "member_id": self.member_id}
        return int(ask(self.client, "Heartbeat", 4, **asked, group_instance_id=self.instance).error_code)

    def leave(self) -> int:
        """Leaves; returns the error."""
        one = {"member_id": self.member_id, "group_instance_id": self.instance, "reason": None}
        return int(ask(self.client, "LeaveGroup", 5, group_id=self.group, members=[one]).members[0].error_code)
