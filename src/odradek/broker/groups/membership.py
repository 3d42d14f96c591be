"""The members of groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and the rebalances that they cause.

    JoinGroup   parked until all members have joined, or the time-out of the rebalance is over     -> generation + 1
    SyncGroup   parked until the leader has sent the assignment, which is written to the log first
    Heartbeat   keeps a member in; tells it to join again

What a group may do in which state is in `odradek.coordination.groups.classic`. Members that join again with other
partitions (cooperative rebalances, KIP-429) need nothing special here.

Source in Kafka: `GroupMetadataManager` (`classicGroupJoin` and what follows it).
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from odradek.broker.clock import Clock, Timer
from odradek.broker.config import BrokerConfig
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.groups.clients import Answer, GroupClients, join_answer, sync_answer
from odradek.broker.protocol import Message
from odradek.broker.state_topic import check_storable
from odradek.broker.turns import Work
from odradek.coordination.errors import GroupErrorCode, RefusedError
from odradek.coordination.groups.classic import Action, ClassicGroup, Event, Member, Protocols, State
from odradek.coordination.groups.replay import Group
from odradek.coordination.state_log import KeyValue
from odradek.errors import BrokerError
from odradek.messages.coordinators.group_records import GroupMetadataValue, encode_group_metadata
from odradek.printable import logger

_logger = logger(__name__)

_NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
_FIRST_THAT_REQUIRES_MEMBER_ID = 4
_FIRST_THAT_SKIPS_ASSIGNMENT = 9


class JoinRequest(NamedTuple):
    """A JoinGroup request.

    Attributes:
        version: The version of the API.
    """

    version: int
    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    reason: str

    def new_member(self, member_id: str) -> Member:
        """Return the member that joins for the first time."""
        return Member(
            member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocol_type,
            self.protocols,
            is_new=True,
        )


class LeavingMember(NamedTuple):
    """A member that leaves, or is removed by its `group.instance.id`."""

    member_id: str
    instance_id: str | None
    reason: str

    def answer(self, code: int) -> Message:
        """Return what its client is answered."""
        return {"member_id": self.member_id, "group_instance_id": self.instance_id, "error_code": code}


class Membership:
    """The members of the groups of one partition of `__consumer_offsets`.

    Args:
        groups: The groups by their ids.
        append: Appends records to the log; it raises an `ApiError` if they could not be written.
        after: Runs an action that appends records after a delay.
        clock: The time.
        config: The broker's settings.

    Attributes:
        clients: The clients of each group that wait for others.
    """

    def __init__(
        self,
        groups: dict[str, Group],
        append: Callable[[Iterable[KeyValue]], int],
        after: Callable[[float, Callable[[], None]], Timer],
        clock: Clock,
        config: BrokerConfig,
    ) -> None:
        self._groups = groups
        self._append = append
        self._after = after
        self._clock = clock
        self._config = config
        self.clients: defaultdict[str, GroupClients] = defaultdict(GroupClients)

    def _group(self, group_id: str) -> ClassicGroup:
        """Return a group of the classic protocol.

        Raises:
            RefusedError: The group does not exist, so the client is no member.
        """
        if isinstance(group := self._groups.get(group_id), ClassicGroup):
            return group
        raise RefusedError(GroupErrorCode.UNKNOWN_MEMBER_ID)

    def loaded(self) -> None:
        """Start the sessions of the members of groups that were loaded, as if each had just sent a request."""
        for group in self._groups.values():
            if isinstance(group, ClassicGroup):
                is_full = len(group.members) > self._config["group.max.size"]
                self.take_over(group, "it is over capacity" if is_full else "")

    def removed(self, group: ClassicGroup, code: int = NO_ERROR) -> None:
        """Forget a group; its members, if it has any, are answered the error."""
        clients = self.clients.pop(group.group_id, GroupClients())
        clients.stop()
        group.happens(Event.REMOVED, self._clock.now_ms())
        clients.answer_all(group.members, code)

    def take_over(self, group: ClassicGroup, reason: str) -> None:
        """Start the sessions of a group's members; if there is a reason, let them join again."""
        for member in group.members.values():
            self._heard_of(group, member)
        if reason:
            self._prepare_rebalance(group, reason)

    def _remove(self, group: ClassicGroup, member_id: str) -> None:
        self.clients[group.group_id].forget(member_id)
        group.remove(member_id)

    # -- JoinGroup

    def join(self, request: JoinRequest) -> Message | Answer:
        """Let a member join; the answer comes when all have joined.

        Raises:
            ApiError: It may not; the answer does not name it.
        """
        group = self._groups.get(request.group_id)
        if group is not None and not isinstance(group, ClassicGroup):
            if not group.can_become_classic:
                raise ApiError(ErrorCode.inconsistent_group_protocol)
            if not request.member_id:
                _logger.info("group %s: turned from the %s protocol into a classic group", group.group_id, group.kind)
                self._append(group.tombstones())
            group = None
        is_new = group is None
        if group is None:
            if request.member_id:
                return join_answer(int(ErrorCode.unknown_member_id), request.member_id)
            group = self._groups[request.group_id] = ClassicGroup(request.group_id, self._clock.now_ms())
        try:
            answer = self._join(group, request)
        except RefusedError as error:
            answer = join_answer(error.error_code, request.member_id)
        if is_new:
            value = GroupMetadataValue("", 0, None, None, (), group.state_timestamp_ms or -1)
            self._store_empty(group, encode_group_metadata(group.group_id, value))
        return answer

    def _store_empty(self, group: ClassicGroup, record: KeyValue) -> None:
        try:
            self._append([record])
        except BrokerError as error:
            _logger.warning("group %s: that it is empty cannot be written: %s", group.group_id, error)

    def _join(self, group: ClassicGroup, request: JoinRequest) -> Message | Answer:
        for text in (request.protocol_type, *(name for name, _ in request.protocols)):
            check_storable(text)
        member_id, clients = request.member_id, self.clients[group.group_id]
        if not group.has_room(member_id, clients.joining, self._config["group.max.size"]):
            self._remove(group, member_id)
            raise ApiError(ErrorCode.group_max_size_reached)
        if not group.supports(request.protocol_type, request.protocols):
            raise RefusedError(GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if member_id:
            return self._join_known(group, request)
        prefix = request.client_id if request.instance_id is None else request.instance_id
        new_id = f"{prefix}-{uuid.uuid4()}"
        check_storable(new_id)
        if request.instance_id in group.static_members:
            return self._replace_static(group, request, request.instance_id, new_id)
        if request.instance_id is not None or request.version < _FIRST_THAT_REQUIRES_MEMBER_ID:
            return self._add(group, request, new_id)
        group.pending_join.add(new_id)
        expire = partial(self._expire_pending, group, new_id)
        clients.timers[new_id] = self._after(request.session_timeout_ms, expire)
        return join_answer(int(ErrorCode.member_id_required), new_id)

    def _join_known(self, group: ClassicGroup, request: JoinRequest) -> Message | Answer:
        member_id = request.member_id
        if member_id in group.pending_join:
            if request.instance_id is not None:
                raise ApiError(ErrorCode.unknown_server_error, "a member that was given an id cannot be static")
            return self._add(group, request, member_id)
        member = group.validate(member_id, request.instance_id)
        if group.is_answered_again(member, request.protocols):
            return _joined(group, member_id)
        group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        answer = self.clients[group.group_id].await_join(member_id)
        self._rebalance_or_complete(group, f"member {member_id} joins again; client reason: {request.reason}")
        return answer

    def _add(self, group: ClassicGroup, request: JoinRequest, member_id: str) -> Answer:
        member = request.new_member(member_id)
        group.add(member)
        clients = self.clients[group.group_id]
        clients.stop_timer(member_id)
        answer = clients.await_join(member_id)
        # The client may have disconnected without leaving the group, so the wait for its next request has an end.
        self._heard_of(group, member, _NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance_or_complete(group, f"new member {member_id}; client reason: {request.reason}")
        return answer

    def _replace_static(
        self, group: ClassicGroup, request: JoinRequest, instance_id: str, new_id: str
    ) -> Message | Answer:
        old_id, old_leader = group.static_members[instance_id], group.leader
        clients = self.clients[group.group_id]
        clients.answer_join(old_id, join_answer(int(ErrorCode.fenced_instance_id), old_id))
        clients.answer_sync(old_id, sync_answer(int(ErrorCode.fenced_instance_id)))
        clients.forget(old_id)
        member = group.replace_static(instance_id, new_id)
        self._heard_of(group, member)
        before = member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
        group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        if group.state is not State.STABLE or group.select_protocol() != group.protocol:
            # While a rebalance completes, the leader may have sent an assignment for the old id already.
            answer = clients.await_join(new_id)
            reason = f"static member {instance_id} joins again; client reason: {request.reason}"
            self._rebalance_or_complete(group, reason)
            return answer
        try:
            self._append([group.record({one.member_id: one.assignment for one in group.members.values()})])
        except BrokerError as error:
            group.update(member, *before)
            clients.forget(new_id)
            self._heard_of(group, group.replace_static(instance_id, old_id))
            return {**_joined(group, ""), "leader": old_leader or "", "error_code": error.error_code}
        if request.version >= _FIRST_THAT_SKIPS_ASSIGNMENT:
            return _joined(group, new_id, skip_assignment=group.is_leader(new_id))
        # Old clients would assign partitions if they saw their own id as leader. With the old id they do not.
        return {**_joined(group, new_id), "leader": old_leader or "", "members": []}

    # -- rebalance

    def _rebalance_or_complete(self, group: ClassicGroup, reason: str) -> None:
        if group.can_rebalance:
            self._prepare_rebalance(group, reason)
        else:
            self._complete_if_joined(group)

    def _prepare_rebalance(self, group: ClassicGroup, reason: str) -> None:
        _logger.info("group %s: rebalance from generation %d: %s", group.group_id, group.generation_id, reason)
        clients = self.clients[group.group_id]
        if group.state is State.COMPLETING_REBALANCE:
            self._drop_assignment(group, int(ErrorCode.rebalance_in_progress))
        group.pending_sync.clear()
        clients.sync_timer.cancel()
        group.happens(Event.REBALANCE, self._clock.now_ms())
        if group.is_initial:
            delay_ms = self._config["group.initial.rebalance.delay.ms"]
            self._delay_initial(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        elif group.has_all_joined(clients.joining):
            self._complete_join(group)
        else:
            self._complete_later(group)

    def _delay_initial(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        def end() -> None:
            if group.new_member_added and remaining_ms:
                group.new_member_added = False
                more_ms = min(self._config["group.initial.rebalance.delay.ms"], remaining_ms)
                self._delay_initial(group, more_ms, max(remaining_ms - delay_ms, 0))
            else:
                self._complete_join(group)

        self.clients[group.group_id].set_join_timer(self._after(delay_ms, end))

    def _complete_later(self, group: ClassicGroup) -> None:
        timer = self._after(group.rebalance_timeout_ms, partial(self._complete_join, group))
        self.clients[group.group_id].set_join_timer(timer)

    def _complete_if_joined(self, group: ClassicGroup, *, even_initial: bool = False) -> None:
        """Complete a rebalance if no member is missing; an initial one waits for more of them."""
        if (even_initial or not group.is_initial) and group.has_all_joined(self.clients[group.group_id].joining):
            self._complete_join(group)

    def _complete_join(self, group: ClassicGroup) -> None:
        clients = self.clients[group.group_id]
        clients.join_timer.cancel()
        for member in list(group.members.values()):
            if member.member_id not in clients.joining and member.instance_id is None:
                _logger.info("group %s: member %s has not joined again", group.group_id, member.member_id)
                self._remove(group, member.member_id)
        if not group.elect_joined_leader(clients.joining) and group.members:
            # The remaining members are static: they stay until their sessions are over.
            self._complete_later(group)
            return
        group.next_generation(self._clock.now_ms())
        if group.is_empty:
            self._store_empty(group, group.record({}))
            return
        _logger.info("group %s: generation %d with %d members", group.group_id, group.generation_id, len(group.members))
        for member in group.members.values():
            clients.answer_join(member.member_id, _joined(group, member.member_id))
            self._heard_of(group, member)
            member.is_new = False
        expire = partial(self._expire_sync, group, group.generation_id)
        clients.sync_timer = self._after(group.rebalance_timeout_ms, expire)

    # -- SyncGroup

    def sync(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Iterable[tuple[str, bytes]],
    ) -> Message | Answer:
        """Return a member's assignment, when the leader has made it.

        Raises:
            RefusedError: It is not in this generation of the group.
        """
        group, clients = self._group(group_id), self.clients[group_id]
        member = group.validate(member_id, instance_id)
        group.check_generation(generation_id)
        group.check_protocol(protocol_type, protocol)
        group.check_state(Action.SYNC)
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            clients.sync_timer.cancel()
        if group.state is State.STABLE:
            return sync_answer(NO_ERROR, member.assignment, group.protocol_type, group.protocol)
        answer = clients.await_sync(member_id)
        if group.is_leader(member_id):
            self._assign(group, dict(assignments))
        return answer

    def _assign(self, group: ClassicGroup, assignment: dict[str, bytes]) -> None:
        try:
            self._append([group.record(assignment)])
        except BrokerError as error:
            self._drop_assignment(group, error.error_code)
            self._rebalance_or_complete(group, f"its assignment cannot be written: {error}")
            return
        for member in group.members.values():
            member.assignment = assignment.get(member.member_id, b"")
            self._answer_sync(group, member, NO_ERROR)
        group.happens(Event.ASSIGNED, self._clock.now_ms())

    def _drop_assignment(self, group: ClassicGroup, code: int) -> None:
        for member in group.members.values():
            member.assignment = b""
            self._answer_sync(group, member, code)

    def _answer_sync(self, group: ClassicGroup, member: Member, code: int) -> None:
        names = (group.protocol_type, group.protocol) if code == NO_ERROR else (None, None)
        answer = sync_answer(code, member.assignment, *names)
        if self.clients[group.group_id].answer_sync(member.member_id, answer):
            self._heard_of(group, member)

    def _expire_sync(self, group: ClassicGroup, generation_id: int) -> None:
        missing = sorted(group.pending_sync)
        # While the group rebalances again, no SyncGroup is awaited.
        if missing and group.generation_id == generation_id:
            for member_id in missing:
                self._remove(group, member_id)
            self._prepare_rebalance(group, f"members {', '.join(missing)} have not asked for their assignment")

    # -- Heartbeat

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation_id: int) -> None:
        """Keep a member in its group.

        Raises:
            RefusedError: It is not in this generation of the group, or has to join again.
        """
        group = self._group(group_id)
        member = group.validate(member_id, instance_id)
        group.check_generation(generation_id)
        self._heard_of(group, member)
        group.check_state(Action.STAY)

    def has_committed(self, group: ClassicGroup, member_id: str) -> None:
        """Treat a commit of offsets as a heartbeat."""
        member = group.members.get(member_id)
        if member is not None and group.state in (State.STABLE, State.PREPARING_REBALANCE):
            self._heard_of(group, member)

    def _heard_of(self, group: ClassicGroup, member: Member, timeout_ms: int | None = None) -> None:
        """Count a member's session from now on."""
        clients, member_id = self.clients[group.group_id], member.member_id
        timeout = member.session_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = clients.deadlines_ms[member_id] = self._clock.elapsed_ms() + timeout
        timer = clients.timers.get(member_id)
        if timer is None or timer.deadline_ms > deadline_ms:
            clients.stop_timer(member_id)
            clients.timers[member_id] = self._watch(group, member, timeout)

    def _watch(self, group: ClassicGroup, member: Member, delay_ms: float) -> Timer:
        clients = self.clients[group.group_id]

        def look() -> None:
            # Heartbeats only move the deadline, because a timer for each would cost too much.
            left_ms = clients.deadlines_ms[member.member_id] - self._clock.elapsed_ms()
            if left_ms > 0:
                clients.timers[member.member_id] = self._watch(group, member, left_ms)
            else:
                clients.stop_timer(member.member_id)
                self._expire_member(group, member)

        return self._after(delay_ms, look)

    def _expire_member(self, group: ClassicGroup, member: Member) -> None:
        clients, member_id = self.clients[group.group_id], member.member_id
        if not member.is_new and clients.is_waiting(member_id):
            return
        _logger.info("group %s: the session of member %s is over", group.group_id, member_id)
        clients.answer_join(member_id, join_answer(int(ErrorCode.unknown_member_id)))
        self._remove(group, member_id)
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self._prepare_rebalance(group, f"the session of member {member_id} is over")
        else:
            self._complete_if_joined(group, even_initial=True)

    def _expire_pending(self, group: ClassicGroup, member_id: str) -> None:
        self._remove(group, member_id)
        self._complete_if_joined(group, even_initial=True)

    # -- LeaveGroup

    def leave(self, group_id: str, members: Iterable[LeavingMember]) -> Work[list[Message]]:
        """Work: let members go; return an answer for each, up to the first one for which the group is another one."""
        group, answers = self._groups.get(group_id), list[Message]()
        unknown = int(ErrorCode.unknown_member_id)
        for member in members:
            if self._groups.get(group_id) is not group:
                # A member of the consumer protocol has joined between two turns.
                return answers
            answers.append(member.answer(self._leave(group, member) if isinstance(group, ClassicGroup) else unknown))
            yield
        gone = [answer["member_id"] for answer in answers if answer["error_code"] == NO_ERROR]
        if gone and isinstance(group, ClassicGroup) and self._groups.get(group_id) is group:
            if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
                self._prepare_rebalance(group, f"members {', '.join(gone)} leave")
            else:
                self._complete_if_joined(group)
        return answers

    def _leave(self, group: ClassicGroup, leaving: LeavingMember) -> int:
        member_id, instance_id = leaving.member_id, leaving.instance_id
        clients = self.clients[group.group_id]
        if not member_id:
            # An administrator names a static member by its instance id only.
            member_id, instance_id = group.static_members.get(instance_id or "", ""), None
        if member_id not in group.pending_join:
            try:
                group.validate(member_id, instance_id)
            except RefusedError as error:
                return error.error_code
            clients.answer_join(member_id, join_answer(int(ErrorCode.unknown_member_id)))
            clients.answer_sync(member_id, sync_answer(int(ErrorCode.unknown_member_id)))
        self._remove(group, member_id)
        _logger.info("group %s: member %s leaves; client reason: %s", group.group_id, member_id, leaving.reason)
        return NO_ERROR


def _joined(group: ClassicGroup, member_id: str, *, skip_assignment: bool = False) -> Message:
    """Return the answer to a member that has joined this generation; the leader gets the list of all members."""
    return {
        "error_code": NO_ERROR,
        "generation_id": group.generation_id,
        "protocol_type": group.protocol_type,
        "protocol_name": group.protocol,
        "leader": group.leader or "",
        "skip_assignment": skip_assignment,
        "member_id": member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata(group.protocol or ""),
            }
            for member in (group.members.values() if group.is_leader(member_id) else ())
        ],
    }
