"""A member of a group of the classic protocol.

Source in Kafka: `ClassicGroupMember`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TypeAlias

from odradek.broker.clock import Timer
from odradek.broker.protocol import Message

Answer: TypeAlias = asyncio.Future[Message]
"""An answer that a client waits for; cancelled if its connection was closed."""

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""The protocols that a member supports, the one it likes best first, each with the member's subscription."""


def complete(answer: Answer, message: Message) -> None:
    """Answer, if the client still waits."""
    if not answer.done():
        answer.set_result(message)


class Member:
    """A member.

    Args:
        member_id: The id that the coordinator gave it.
        instance_id: `group.instance.id` of a static member.
        client_id: What the client calls itself.
        client_host: The client's address, as Kafka shows it: `/127.0.0.1`.
        rebalance_timeout_ms: How long it may take to join again.
        session_timeout_ms: How long it may be silent.
        protocol_type: `consumer`, or what else the members agree on.
        protocols: The protocols that it supports.
        assignment: What it was assigned.

    Attributes:
        is_new: Whether it has not yet been told its id; then it may be removed while it waits to join.
        awaiting_join: Its JoinGroup request, if it is not answered yet.
        awaiting_sync: Its SyncGroup request, if it is not answered yet.
        deadline_ms: When it is removed if nothing is heard of it, by the clock's `elapsed_ms`.
        timer: Looks at the deadline.
    """

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        self.awaiting_join: Answer | None = None
        self.awaiting_sync: Answer | None = None
        self.deadline_ms = 0.0
        self.timer: Timer | None = None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether it need not send heartbeats, for it waits for an answer."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol: str) -> bytes:
        """Return its subscription for a protocol that it supports."""
        return next(metadata for name, metadata in self.protocols if name == protocol)

    def vote(self, candidates: Collection[str]) -> str:
        """Return the protocol that it likes best."""
        return next(name for name, _ in self.protocols if name in candidates)

    def complete_join(self, message: Message) -> bool:
        """Answer its JoinGroup request; return whether there was one."""
        answer, self.awaiting_join = self.awaiting_join, None
        if answer is not None:
            complete(answer, message)
        return answer is not None

    def complete_sync(self, message: Message) -> bool:
        """Answer its SyncGroup request; return whether there was one."""
        answer, self.awaiting_sync = self.awaiting_sync, None
        if answer is not None:
            complete(answer, message)
        return answer is not None

    def stop_timer(self) -> None:
        """Do not look at the deadline any more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
