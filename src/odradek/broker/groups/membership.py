"""Who is in a group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup, and the rebalances that they cause.

    JoinGroup   parked until all members have joined, or the time-out of the rebalance is over     -> generation + 1
    SyncGroup   parked until the leader has sent the assignment, which is written to the log first
    Heartbeat   keeps a member in; tells it to join again

Members that join again with other partitions (cooperative rebalances, KIP-429) need nothing special here.

Source in Kafka: `GroupMetadataManager` (`classicGroupJoin` and what follows it).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from kio.schema.errors import ErrorCode

from odradek.broker.clock import Clock, Timer
from odradek.broker.config import BrokerConfig
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.groups.group import Group, State, join_answer, sync_answer
from odradek.broker.groups.member import Answer, Member, Protocols
from odradek.broker.groups.modern_group import ModernGroup
from odradek.broker.protocol import Message
from odradek.broker.state_log import check_storable
from odradek.errors import BrokerError
from odradek.messages.coordinators.group_records import GroupMetadataValue, encode_group_metadata
from odradek.printable import logger

_logger = logger(__name__)

_NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
_FIRST_THAT_REQUIRES_MEMBER_ID = 4
_FIRST_THAT_SKIPS_ASSIGNMENT = 9


class GroupStore(Protocol):
    """Where groups are kept."""

    groups: dict[str, Group | ModernGroup]

    def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> int:
        """Append records to the log.

        Raises:
            ApiError: They could not be written.
        """

    def remove_group(self, group: Group | ModernGroup) -> None:
        """Remove a group, in the log too.

        Raises:
            ApiError: That could not be written.
        """


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


class LeavingMember(NamedTuple):
    """A member that leaves, or is removed by its `group.instance.id`."""

    member_id: str
    instance_id: str | None
    reason: str


class Membership:
    """The members of the groups of one partition of `__consumer_offsets`.

    Args:
        store: Where the groups are kept.
        clock: The time.
        config: The broker's settings.
    """

    def __init__(self, store: GroupStore, clock: Clock, config: BrokerConfig) -> None:
        self._store = store
        self._clock = clock
        self._config = config

    def _group(self, group_id: str) -> Group:
        """Return a group of the classic protocol.

        Raises:
            ApiError: There is none.
        """
        group = self._store.groups.get(group_id)
        if not isinstance(group, Group):
            raise ApiError(ErrorCode.unknown_member_id)
        return group

    def loaded(self) -> None:
        """Wait for the members of groups that were loaded, as if they had just been heard of."""
        for group in self._store.groups.values():
            if isinstance(group, Group):
                for member in group.members.values():
                    self._heard_of(group, member)
                if len(group.members) > self._config["group.max.size"]:
                    self._prepare_rebalance(group, "it is over capacity")

    # -- JoinGroup

    def join(self, request: JoinRequest) -> Message | Answer:
        """Let a member join; the answer comes when all have joined."""
        group = self._store.groups.get(request.group_id)
        if isinstance(group, ModernGroup):
            if not group.can_become_classic:
                return join_answer(int(ErrorCode.inconsistent_group_protocol))
            if request.member_id:
                return join_answer(int(ErrorCode.unknown_member_id), request.member_id)
            _logger.info("group %s: turned from the %s protocol into a classic group", group.group_id, group.kind)
            self._store.remove_group(group)
            group = None
        is_new = group is None
        if group is None:
            if request.member_id:
                return join_answer(int(ErrorCode.unknown_member_id), request.member_id)
            group = self._store.groups[request.group_id] = Group(request.group_id, self._clock.now_ms())
        answer = self._join(group, request)
        if is_new:
            self._store_new(group)
        return answer

    def _store_new(self, group: Group) -> None:
        value = GroupMetadataValue("", 0, None, None, (), group.state_timestamp_ms or -1)
        try:
            self._store.append([encode_group_metadata(group.group_id, value)])
        except BrokerError as error:
            _logger.warning("group %s: cannot be written: %s", group.group_id, error)

    def _join(self, group: Group, request: JoinRequest) -> Message | Answer:
        for text in (request.protocol_type, *(name for name, _ in request.protocols)):
            check_storable(text)
        member_id = request.member_id
        if not self._has_room(group, member_id):
            group.remove(member_id)
            return join_answer(int(ErrorCode.group_max_size_reached))
        if not group.supports(request.protocol_type, request.protocols):
            return join_answer(int(ErrorCode.inconsistent_group_protocol), member_id)
        if member_id:
            return self._join_known(group, request)
        prefix = request.client_id if request.instance_id is None else request.instance_id
        new_id = f"{prefix}-{uuid.uuid4()}"
        check_storable(new_id)
        if request.instance_id is not None:
            if request.instance_id in group.static_members:
                return self._replace_static(group, request, new_id)
            return self._add(group, request, new_id)
        if request.version < _FIRST_THAT_REQUIRES_MEMBER_ID:
            return self._add(group, request, new_id)
        expire = partial(self._expire_pending, group, new_id)
        group.pending_join[new_id] = self._clock.after(request.session_timeout_ms, expire)
        return join_answer(int(ErrorCode.member_id_required), new_id)

    def _has_room(self, group: Group, member_id: str) -> bool:
        limit = self._config["group.max.size"]
        member = group.members.get(member_id)
        match group.state:
            case State.PREPARING_REBALANCE:
                # Only members that have joined count: if there are too many, the last ones to join again are refused.
                return (member is not None and member.awaiting_join is not None) or group.joined_count < limit
            case State.COMPLETING_REBALANCE | State.STABLE:
                return member is not None or len(group.members) < limit
            case _:
                return True

    def _join_known(self, group: Group, request: JoinRequest) -> Message | Answer:
        member_id = request.member_id
        if member_id in group.pending_join:
            if request.instance_id is not None:
                raise ApiError(ErrorCode.unknown_server_error, "a member that was given an id cannot be static")
            return self._add(group, request, member_id)
        try:
            member = group.validate(member_id, request.instance_id)
        except ApiError as error:
            return join_answer(error.error_code, member_id)
        if group.state is State.EMPTY:
            return join_answer(int(ErrorCode.unknown_member_id), member_id)
        is_same = member.protocols == request.protocols
        if is_same and (
            # It may not have got the answer to its first request.
            group.state is State.COMPLETING_REBALANCE
            # A leader that joins again wants a rebalance.
            or (group.state is State.STABLE and not group.is_leader(member_id))
        ):
            return group.joined(member_id)
        answer = self._waiting()
        self._update(member, request, answer)
        self._rebalance_or_complete(group, f"member {member_id} joins again; client reason: {request.reason}")
        return answer

    @staticmethod
    def _waiting() -> Answer:
        return asyncio.get_running_loop().create_future()

    @staticmethod
    def _update(member: Member, request: JoinRequest, answer: Answer) -> None:
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.awaiting_join = answer

    def _add(self, group: Group, request: JoinRequest, member_id: str) -> Answer:
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            request.protocols,
        )
        member.is_new = True
        if group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY:
            group.new_member_added = True
        answer = member.awaiting_join = self._waiting()
        group.add(member)
        # The client may have gone without leaving the group, so the wait for its next request ends at some time.
        self._heard_of(group, member, _NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance_or_complete(group, f"new member {member_id}; client reason: {request.reason}")
        return answer

    def _replace_static(self, group: Group, request: JoinRequest, new_id: str) -> Message | Answer:
        assert request.instance_id is not None
        old_id, old_leader = group.static_members[request.instance_id], group.leader
        member = group.replace_static(request.instance_id, new_id)
        self._heard_of(group, member)
        before = member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms
        answer = self._waiting()
        self._update(member, request, answer)
        reason = f"static member {request.instance_id} joins again; client reason: {request.reason}"
        match group.state:
            case State.STABLE if group.select_protocol() == group.protocol:
                try:
                    self._store.append(
                        [group.record({one.member_id: one.assignment for one in group.members.values()})]
                    )
                except BrokerError as error:
                    member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
                    member.awaiting_join = None
                    self._heard_of(group, group.replace_static(request.instance_id, old_id))
                    return {**group.joined(""), "leader": old_leader or "", "error_code": error.error_code}
                member.awaiting_join = None
                if request.version >= _FIRST_THAT_SKIPS_ASSIGNMENT:
                    return group.joined(new_id, skip_assignment=group.is_leader(new_id))
                # Clients of old versions would assign if they saw their own id as leader. With the old id they do not.
                return {**group.joined(new_id), "leader": old_leader or "", "members": []}
            case State.STABLE:
                self._rebalance_or_complete(group, reason)
            case State.COMPLETING_REBALANCE:
                # The leader may have sent an assignment for the old id already.
                self._prepare_rebalance(group, reason)
            case _:
                self._complete_if_joined(group)
        return answer

    # -- rebalance

    def _rebalance_or_complete(self, group: Group, reason: str) -> None:
        if group.can_rebalance:
            self._prepare_rebalance(group, reason)
        else:
            self._complete_if_joined(group)

    def _prepare_rebalance(self, group: Group, reason: str) -> None:
        _logger.info("group %s: rebalance from generation %d: %s", group.group_id, group.generation_id, reason)
        if group.state is State.COMPLETING_REBALANCE:
            self._drop_assignment(group, int(ErrorCode.rebalance_in_progress))
        group.pending_sync.clear()
        if group.sync_timer is not None:
            group.sync_timer.cancel()
        is_initial = group.state is State.EMPTY
        group.move_to(State.PREPARING_REBALANCE, self._clock.now_ms())
        if is_initial:
            delay_ms = self._config["group.initial.rebalance.delay.ms"]
            self._delay_initial(group, delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
        elif group.has_all_joined:
            self._complete_join(group)
        else:
            self._complete_later(group)

    def _delay_initial(self, group: Group, delay_ms: int, remaining_ms: int) -> None:
        def end() -> None:
            if group.new_member_added and remaining_ms:
                group.new_member_added = False
                more_ms = min(self._config["group.initial.rebalance.delay.ms"], remaining_ms)
                self._delay_initial(group, more_ms, max(remaining_ms - delay_ms, 0))
            else:
                self._complete_join(group)

        self._set_join_timer(group, delay_ms, end)

    def _complete_later(self, group: Group) -> None:
        self._set_join_timer(group, group.rebalance_timeout_ms, partial(self._complete_join, group))

    def _set_join_timer(self, group: Group, delay_ms: int, action: Callable[[], None]) -> None:
        if group.join_timer is not None:
            group.join_timer.cancel()
        group.join_timer = self._clock.after(delay_ms, action)

    def _complete_if_joined(self, group: Group) -> None:
        if (
            group.state is State.PREPARING_REBALANCE
            and group.previous_state is not State.EMPTY
            and group.has_all_joined
        ):
            self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        if group.join_timer is not None:
            group.join_timer.cancel()
        for member in list(group.members.values()):
            if member.awaiting_join is None and member.instance_id is None:
                _logger.info("group %s: member %s has not joined again", group.group_id, member.member_id)
                group.remove(member.member_id)
        if not group.elect_joined_leader() and group.members:
            # Only static members are left: they stay until their sessions are over.
            self._complete_later(group)
            return
        group.next_generation(self._clock.now_ms())
        if group.state is State.EMPTY:
            try:
                self._store.append([group.record({})])
            except BrokerError as error:
                _logger.warning("group %s: its end cannot be written: %s", group.group_id, error)
            return
        _logger.info("group %s: generation %d with %d members", group.group_id, group.generation_id, len(group.members))
        for member in group.members.values():
            member.complete_join(group.joined(member.member_id))
            self._heard_of(group, member)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        expire = partial(self._expire_sync, group, group.generation_id)
        group.sync_timer = self._clock.after(group.rebalance_timeout_ms, expire)

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
            ApiError: It is not in this generation of the group.
        """
        group = self._group(group_id)
        if group.state is State.EMPTY:
            raise ApiError(ErrorCode.unknown_member_id)
        member = group.validate(member_id, instance_id)
        if generation_id != group.generation_id:
            raise ApiError(ErrorCode.illegal_generation)
        for given, selected in ((protocol_type, group.protocol_type), (protocol, group.protocol)):
            if given is not None and selected is not None and given != selected:
                raise ApiError(ErrorCode.inconsistent_group_protocol)
        if group.state is State.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.rebalance_in_progress)
        group.pending_sync.discard(member_id)
        if not group.pending_sync and group.sync_timer is not None:
            group.sync_timer.cancel()
        if group.state is State.STABLE:
            return sync_answer(NO_ERROR, member.assignment, group.protocol_type, group.protocol)
        answer = member.awaiting_sync = self._waiting()
        if group.is_leader(member_id):
            self._assign(group, dict(assignments))
        return answer

    def _assign(self, group: Group, assignment: dict[str, bytes]) -> None:
        try:
            self._store.append([group.record(assignment)])
        except BrokerError as error:
            self._drop_assignment(group, error.error_code)
            self._rebalance_or_complete(group, f"its assignment cannot be written: {error}")
            return
        for member in group.members.values():
            member.assignment = assignment.get(member.member_id, b"")
            self._tell_assignment(group, member, NO_ERROR)
        group.move_to(State.STABLE, self._clock.now_ms())

    def _drop_assignment(self, group: Group, code: int) -> None:
        for member in group.members.values():
            member.assignment = b""
            self._tell_assignment(group, member, code)

    def _tell_assignment(self, group: Group, member: Member, code: int) -> None:
        names = (group.protocol_type, group.protocol) if code == NO_ERROR else (None, None)
        if member.complete_sync(sync_answer(code, member.assignment, *names)):
            self._heard_of(group, member)

    def _expire_sync(self, group: Group, generation_id: int) -> None:
        if group.generation_id != generation_id or group.state not in (State.COMPLETING_REBALANCE, State.STABLE):
            return
        if group.pending_sync:
            missing = sorted(group.pending_sync)
            for member_id in missing:
                group.remove(member_id)
            self._prepare_rebalance(group, f"members {', '.join(missing)} have not asked for their assignment")

    # -- Heartbeat

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation_id: int) -> None:
        """Keep a member in its group.

        Raises:
            ApiError: It is not in this generation of the group, or has to join again.
        """
        group = self._group(group_id)
        member = group.validate(member_id, instance_id)
        if generation_id != group.generation_id:
            raise ApiError(ErrorCode.illegal_generation)
        self._heard_of(group, member)
        if group.state is State.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.rebalance_in_progress)

    def has_committed(self, group: Group, member_id: str) -> None:
        """Take a commit of offsets for a heartbeat."""
        member = group.members.get(member_id)
        if member is not None and group.state in (State.STABLE, State.PREPARING_REBALANCE):
            self._heard_of(group, member)

    def _heard_of(self, group: Group, member: Member, timeout_ms: int | None = None) -> None:
        """Count a member's session from now on."""
        timeout = member.session_timeout_ms if timeout_ms is None else timeout_ms
        member.deadline_ms = self._clock.elapsed_ms() + timeout
        if member.timer is None or member.timer.deadline_ms > member.deadline_ms:
            member.stop_timer()
            member.timer = self._watch(group, member, timeout)

    def _watch(self, group: Group, member: Member, delay_ms: float) -> Timer:
        def look() -> None:
            # Heartbeats only move the deadline, because a timer for each would cost too much.
            left_ms = member.deadline_ms - self._clock.elapsed_ms()
            if left_ms > 0:
                member.timer = self._watch(group, member, left_ms)
            else:
                member.timer = None
                self._expire_member(group, member)

        return self._clock.after(delay_ms, look)

    def _expire_member(self, group: Group, member: Member) -> None:
        if group.members.get(member.member_id) is not member or member.has_satisfied_heartbeat:
            return
        _logger.info("group %s: the session of member %s is over", group.group_id, member.member_id)
        member.complete_join(join_answer(int(ErrorCode.unknown_member_id)))
        group.remove(member.member_id)
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self._prepare_rebalance(group, f"the session of member {member.member_id} is over")
        else:
            self._complete_if_all_joined(group)

    def _expire_pending(self, group: Group, member_id: str) -> None:
        group.remove(member_id)
        self._complete_if_all_joined(group)

    def _complete_if_all_joined(self, group: Group) -> None:
        """Complete a rebalance, also an initial one, when the last member that it waited for has gone."""
        if group.state is State.PREPARING_REBALANCE and group.has_all_joined:
            self._complete_join(group)

    # -- LeaveGroup

    def leave(self, group_id: str, members: Iterable[LeavingMember]) -> list[Message]:
        """Let members go; return an answer for each."""
        group = self._store.groups.get(group_id)
        if not isinstance(group, Group):
            return [_left(member, int(ErrorCode.unknown_member_id)) for member in members]
        answers = [_left(member, self._leave(group, member)) for member in members]
        gone = [answer["member_id"] for answer in answers if answer["error_code"] == NO_ERROR]
        if gone:
            if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
                self._prepare_rebalance(group, f"members {', '.join(gone)} leave")
            else:
                self._complete_if_joined(group)
        return answers

    def _leave(self, group: Group, leaving: LeavingMember) -> int:
        member_id = leaving.member_id
        try:
            if not member_id:
                # An administrator names a static member by its instance id only.
                member_id = group.static_members.get(leaving.instance_id or "", "")
                instance_id = None
            else:
                instance_id = leaving.instance_id
            if member_id not in group.pending_join:
                member = group.validate(member_id, instance_id)
                member.complete_join(join_answer(int(ErrorCode.unknown_member_id)))
                member.complete_sync(sync_answer(int(ErrorCode.unknown_member_id)))
            group.remove(member_id)
            _logger.info("group %s: member %s leaves; client reason: %s", group.group_id, member_id, leaving.reason)
        except ApiError as error:
            return error.error_code
        return NO_ERROR


def _left(leaving: LeavingMember, code: int) -> Message:
    return {"member_id": leaving.member_id, "group_instance_id": leaving.instance_id, "error_code": code}
