"""The clients of a group that wait for its other members, and the timers that remove silent members.

    joining, syncing   requests that are answered when all have joined, or when the leader has assigned
    timers             by member: removes it, or forgets an id that was given to a new member and never used

Source in Kafka: `ClassicGroupMember`, `CoordinatorTimer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TypeAlias

from odradek.broker.clock import Timer
from odradek.broker.protocol import Message

Answer: TypeAlias = asyncio.Future[Message]
"""An answer that a client waits for; cancelled if its connection was closed."""


class GroupClients:
    """The clients of a group, by the ids of its members.

    Attributes:
        joining: The JoinGroup requests that are not answered yet; also of clients that have disconnected.
        syncing: The SyncGroup requests that are not answered yet.
        timers: Check the deadlines, and forget ids that are not used.
        deadlines_ms: When a member is removed if nothing is heard of it, by the clock's `elapsed_ms`.
        join_timer: Ends the wait for members to join.
        sync_timer: Ends the wait for members to ask for their assignment.
    """

    def __init__(self) -> None:
        self.joining: dict[str, Answer] = {}
        self.syncing: dict[str, Answer] = {}
        self.timers: dict[str, Timer] = {}
        self.deadlines_ms: dict[str, float] = {}
        self.join_timer = self.sync_timer = Timer(0.0, lambda: None)

    def await_join(self, member_id: str) -> Answer:
        """Return the answer that a member waits for until all have joined."""
        answer = self.joining[member_id] = asyncio.get_running_loop().create_future()
        return answer

    def await_sync(self, member_id: str) -> Answer:
        """Return the answer that a member waits for until the leader has assigned."""
        answer = self.syncing[member_id] = asyncio.get_running_loop().create_future()
        return answer

    def answer_join(self, member_id: str, message: Message) -> None:
        """Answer the JoinGroup request of a member, if there is one."""
        _answer(self.joining, member_id, message)

    def answer_sync(self, member_id: str, message: Message) -> bool:
        """Answer the SyncGroup request of a member; return whether there was one."""
        return _answer(self.syncing, member_id, message)

    def answer_all(self, member_ids: Iterable[str], code: int) -> None:
        """Answer all that wait an error."""
        for member_id in member_ids:
            self.answer_join(member_id, join_answer(code, member_id))
            self.answer_sync(member_id, sync_answer(code))

    def set_join_timer(self, timer: Timer) -> None:
        """Set the timer that ends the wait for members to join; it replaces the one before."""
        self.join_timer.cancel()
        self.join_timer = timer

    def is_waiting(self, member_id: str) -> bool:
        """Whether a member waits for an answer, and so need not send heartbeats."""
        return member_id in self.joining or member_id in self.syncing

    def stop_timer(self, member_id: str) -> None:
        """Forget the deadline of a member, which may be silent."""
        timer = self.timers.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def forget(self, member_id: str) -> None:
        """Forget a member: its requests, timers and deadline."""
        self.stop_timer(member_id)
        self.joining.pop(member_id, None)
        self.syncing.pop(member_id, None)
        self.deadlines_ms.pop(member_id, None)

    def stop(self) -> None:
        """Cancel all timers of the group."""
        for timer in (self.join_timer, self.sync_timer, *self.timers.values()):
            timer.cancel()


def _answer(waiting: dict[str, Answer], member_id: str, message: Message) -> bool:
    answer = waiting.pop(member_id, None)
    if answer is not None and not answer.done():
        answer.set_result(message)
    return answer is not None


def join_answer(code: int, member_id: str = "") -> Message:
    """Return an answer to JoinGroup with an error."""
    return {"error_code": code, "member_id": member_id}


def sync_answer(
    code: int, assignment: bytes = b"", protocol_type: str | None = None, protocol: str | None = None
) -> Message:
    """Return an answer to SyncGroup."""
    return {"error_code": code, "assignment": assignment, "protocol_type": protocol_type, "protocol_name": protocol}
