"""A group of the classic protocol: its members, its states, and what clients may do in each of them.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
      ^              |   ^                |                 |
      +--------------+   +----------------+-----------------+        Dead: removed

A member that joins again while the group has a generation gets that generation's answer, or a new rebalance begins:

    state                 as before: follower   leader      other protocols
    CompletingRebalance   answer                answer      rebalance
    Stable                answer                rebalance   rebalance

Source in Kafka: `ClassicGroup`, `ClassicGroupState`, `ClassicGroupMember`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TypeAlias

from odradek.coordination.errors import GroupErrorCode, RefusedError
from odradek.coordination.placement import bucket, in_hash_order
from odradek.coordination.state_log import KeyValue
from odradek.errors import FormatError
from odradek.messages.coordinators.consumer_protocol import SUBSCRIPTION
from odradek.messages.coordinators.group_records import (
    CONSUMER_PROTOCOL,
    GroupMetadataValue,
    MemberMetadata,
    encode_group_metadata,
)

_VERSION_BYTES = 2
_BUCKETS = 16

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""The protocols that a member supports, the one it likes best first, each with the member's subscription."""


class State(Enum):
    """The states of a group, by the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Enum):
    """What changes the state of a group."""

    REBALANCE = auto()
    JOINED = auto()
    EMPTIED = auto()
    ASSIGNED = auto()
    REMOVED = auto()


TRANSITIONS: Mapping[Event, Mapping[State, State]] = {
    Event.REBALANCE: dict.fromkeys((State.EMPTY, State.COMPLETING_REBALANCE, State.STABLE), State.PREPARING_REBALANCE),
    Event.JOINED: {State.PREPARING_REBALANCE: State.COMPLETING_REBALANCE},
    Event.EMPTIED: {State.PREPARING_REBALANCE: State.EMPTY},
    Event.ASSIGNED: {State.COMPLETING_REBALANCE: State.STABLE},
    Event.REMOVED: dict.fromkeys(State, State.DEAD),
}
"""The state that follows an event; an event is possible only in the states that it has here."""


class Action(Enum):
    """What a client wants to do, and may not do in every state."""

    SYNC = auto()
    STAY = auto()
    COMMIT = auto()
    DELETE = auto()


_WITH_MEMBERS = [state for state in State if state is not State.EMPTY]

REFUSALS: Mapping[Action, Mapping[State, GroupErrorCode]] = {
    Action.SYNC: {State.PREPARING_REBALANCE: GroupErrorCode.REBALANCE_IN_PROGRESS},
    Action.STAY: {State.PREPARING_REBALANCE: GroupErrorCode.REBALANCE_IN_PROGRESS},
    Action.COMMIT: {State.COMPLETING_REBALANCE: GroupErrorCode.REBALANCE_IN_PROGRESS},
    Action.DELETE: dict.fromkeys(_WITH_MEMBERS, GroupErrorCode.NON_EMPTY_GROUP),
}
"""The error of an action in a state; in all other states the action is allowed."""


@dataclass(slots=True, eq=False)
class Member:
    """A member.

    Attributes:
        member_id: The id that the coordinator gave it.
        instance_id: `group.instance.id` of a static member.
        client_id: What the client calls itself.
        client_host: The client's address, as Kafka shows it: `/127.0.0.1`.
        rebalance_timeout_ms: How long it may take to join again.
        session_timeout_ms: How long it may be silent.
        protocol_type: `consumer`, or what else the members agree on.
        protocols: The protocols that it supports.
        assignment: What it was assigned.
        is_new: Whether it does not know its id yet; then it may be removed while it waits to join.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False

    @property
    def protocol_names(self) -> set[str]:
        """The names of the protocols that it supports."""
        return {name for name, _ in self.protocols}

    def metadata(self, protocol: str) -> bytes:
        """Return its subscription for a protocol that it supports."""
        return next(metadata for name, metadata in self.protocols if name == protocol)

    def vote(self, candidates: Collection[str]) -> str:
        """Return the protocol that it likes best."""
        return next(name for name, _ in self.protocols if name in candidates)


class ClassicGroup:
    """A group.

    A member has joined the current rebalance if its JoinGroup request waits; the caller knows these requests.

    Args:
        group_id: Its id.
        now_ms: When it got into its state, by the time of day.

    Attributes:
        group_id: Its id.
        state: Its state.
        previous_state: The state before.
        state_timestamp_ms: When it got into its state; None if an old record does not say.
        generation_id: Counts the rebalances.
        protocol_type: What the members agree on; None if there has been none.
        protocol: The protocol that was selected.
        leader: The member that assigns.
        members: The members by their ids.
        static_members: The ids of static members by `group.instance.id`.
        pending_join: The ids that were given to members that have not joined with them.
        pending_sync: The ids of the members that have not yet asked for their assignment.
        new_member_added: Whether a member has joined since the initial rebalance was delayed.
        subscribed_topics: The topics of all members; None if they are not known.
        revision: Counts what changes the state, the members and their assignments.
    """

    def __init__(self, group_id: str, now_ms: int | None) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.previous_state = State.DEAD
        self.state_timestamp_ms = now_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_join: set[str] = set()
        self.pending_sync: set[str] = set()
        # How many members support a protocol: counted here, as each of thousands of members that join asks.
        self._supported: Counter[str] = Counter()
        self.new_member_added = False
        self.subscribed_topics: frozenset[str] | None = None
        self.revision = 0

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> ClassicGroup:
        """Return a group as a record of `__consumer_offsets` describes it."""
        known = value.current_state_timestamp >= 0
        group = cls(group_id, value.current_state_timestamp if known else None)
        group.generation_id = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol = value.protocol
        group.leader = value.leader
        for member in value.members:
            rebalance_timeout = member.rebalance_timeout if member.rebalance_timeout != -1 else member.session_timeout
            group.add(
                Member(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    rebalance_timeout,
                    member.session_timeout,
                    value.protocol_type,
                    ((value.protocol or "", member.subscription),),
                    member.assignment,
                )
            )
        if group.members:
            group.state = State.STABLE
        group.subscribed_topics = group._subscribed_topics()
        return group

    def record(self, assignment: Mapping[str, bytes]) -> KeyValue:
        """Return the record of this generation, in which each member has an assignment."""
        members = tuple(
            MemberMetadata(
                member.member_id,
                member.client_id,
                member.client_host,
                member.session_timeout_ms,
                member.metadata(self.protocol or ""),
                assignment.get(member.member_id, b""),
                member.instance_id,
                member.rebalance_timeout_ms,
            )
            for member in self.members.values()
        )
        return encode_group_metadata(
            self.group_id,
            GroupMetadataValue(
                self.protocol_type or "",
                self.generation_id,
                self.protocol,
                self.leader,
                members,
                self.state_timestamp_ms if self.state_timestamp_ms is not None else -1,
            ),
        )

    def tombstones(self) -> list[KeyValue]:
        """Return the records that remove it."""
        return [encode_group_metadata(self.group_id, None)]

    # -- state

    def happens(self, event: Event, now_ms: int) -> None:
        """Get into the state that follows an event, which must be possible."""
        self.previous_state, self.state = self.state, TRANSITIONS[event][self.state]
        self.state_timestamp_ms = now_ms
        self.revision += 1

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.state is State.EMPTY

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance can begin."""
        return self.state in TRANSITIONS[Event.REBALANCE]

    @property
    def is_initial(self) -> bool:
        """Whether its first members are joining, and it waits for more."""
        return self.previous_state is State.EMPTY

    def check_state(self, action: Action) -> None:
        """Check whether clients may do something in this state.

        Raises:
            RefusedError: They may not.
        """
        code = REFUSALS[action].get(self.state)
        if code is not None:
            raise RefusedError(code)

    def check_generation(self, generation_id: int) -> None:
        """Check the generation that a client knows.

        Raises:
            RefusedError: The group has another one.
        """
        if generation_id != self.generation_id:
            raise RefusedError(GroupErrorCode.ILLEGAL_GENERATION)

    def check_protocol(self, protocol_type: str | None, protocol: str | None) -> None:
        """Check the protocol that a client knows; what is not known is not compared.

        Raises:
            RefusedError: The group has another one.
        """
        for given, selected in ((protocol_type, self.protocol_type), (protocol, self.protocol)):
            if given is not None and selected is not None and given != selected:
                raise RefusedError(GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def next_generation(self, now_ms: int) -> None:
        """Begin the next generation with the members that have joined."""
        self.generation_id += 1
        self.protocol = self.select_protocol() if self.members else None
        self.subscribed_topics = self._subscribed_topics()
        self.happens(Event.JOINED if self.members else Event.EMPTIED, now_ms)
        self.pending_sync = set(self.members)

    def has_assignments(self, generation_id: int) -> None:
        """Be stable in a generation: another protocol has assigned. The members get the order of Kafka's map."""
        self.generation_id = generation_id
        self.members = {member_id: self.members[member_id] for member_id in in_hash_order(self.members)}
        self.state = State.STABLE
        self.protocol = self.select_protocol()
        self.subscribed_topics = self._subscribed_topics()

    # -- members

    def is_leader(self, member_id: str) -> bool:
        """Whether a member assigns."""
        return self.leader == member_id

    def has_room(self, member_id: str, joined: Collection[str], limit: int) -> bool:
        """Whether a member may join.

        Args:
            member_id: The member, which may be in the group already.
            joined: The members that have joined the rebalance under way.
            limit: `group.max.size`.
        """
        match self.state:
            case State.PREPARING_REBALANCE:
                # Only members that have joined count: if there are too many, the last ones to join again are refused.
                return member_id in joined or len(joined) < limit
            case State.COMPLETING_REBALANCE | State.STABLE:
                return member_id in self.members or len(self.members) < limit
            case _:
                return True

    def add(self, member: Member) -> None:
        """Take a member in; the first one leads."""
        if member.is_new and self.state is State.PREPARING_REBALANCE and self.is_initial:
            self.new_member_added = True
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._supported.update(member.protocol_names)
        self.pending_join.discard(member.member_id)
        self.revision += 1

    def remove(self, member_id: str) -> None:
        """Remove a member, also a pending one; if it was the leader, another member leads."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._withdraw(member)
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.is_leader(member_id):
            self.leader = next(iter(self.members), None)
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)
        self.revision += 1

    def replace_static(self, instance_id: str, new_member_id: str) -> Member:
        """Give a static member a new id."""
        old = self.members.pop(self.static_members[instance_id])
        new = self.members[new_member_id] = replace(old, member_id=new_member_id, is_new=False)
        if self.is_leader(old.member_id):
            self.leader = new_member_id
        self.static_members[instance_id] = new_member_id
        self.revision += 1
        return new

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """Let a member support other protocols, and have other time-outs."""
        self._withdraw(member)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self._supported.update(member.protocol_names)
        self.revision += 1

    def _withdraw(self, member: Member) -> None:
        for name in member.protocol_names:
            self._supported[name] -= 1
            if not self._supported[name]:
                del self._supported[name]

    def is_answered_again(self, member: Member, protocols: Protocols) -> bool:
        """Whether a member that joins again gets the answer of this generation; see above."""
        if member.protocols != protocols:
            return False
        # It may not have got the answer to its first request. But a leader that joins again wants a rebalance.
        is_follower = not self.is_leader(member.member_id)
        return self.state is State.COMPLETING_REBALANCE or (self.state is State.STABLE and is_follower)

    def elect_joined_leader(self, joined: Collection[str]) -> bool:
        """Let a member lead that has joined; return whether there is one."""
        if self.leader not in joined:
            leader = next((member_id for member_id in self.members if member_id in joined), None)
            if leader is None:
                return False
            self.leader = leader
        return True

    def has_all_joined(self, joined: Collection[str]) -> bool:
        """Whether a rebalance is under way that all members have joined."""
        is_rebalancing = self.state is State.PREPARING_REBALANCE
        return is_rebalancing and not self.pending_join and len(joined) == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance may take: as long as its slowest member may."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def validate(self, member_id: str, instance_id: str | None) -> Member:
        """Return a member.

        Raises:
            RefusedError: It is not in the group, or a member with the same `group.instance.id` has replaced it.
        """
        if instance_id is not None:
            found = self.static_members.get(instance_id)
            if found is None:
                raise RefusedError(GroupErrorCode.UNKNOWN_MEMBER_ID)
            if found != member_id:
                raise RefusedError(GroupErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise RefusedError(GroupErrorCode.UNKNOWN_MEMBER_ID)
        return self.members[member_id]

    # -- protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can be in the group."""
        if self.state is State.EMPTY:
            return bool(protocol_type and protocols)
        return self.protocol_type == protocol_type and any(
            self._supported[name] == len(self.members) for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """Return the protocol that all members support and most of them like best."""
        candidates = {name for name, count in self._supported.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        # Among equals, Kafka takes the first one in the order of a Java `HashMap`.
        return min(votes, key=lambda name: (-votes[name], bucket(name, _BUCKETS)))

    def _subscribed_topics(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        found: set[str] = set()
        try:
            for member in self.members.values():
                # Later versions only add fields after those of version 0.
                data = member.metadata(self.protocol)
                found.update(SUBSCRIPTION.decode(data, 0, position=_VERSION_BYTES)[0].topics)
        except FormatError:
            return None
        return frozenset(found)

    # -- offsets

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation_id: int, *, is_transactional: bool
    ) -> None:
        """Check whether offsets may be committed.

        Raises:
            RefusedError: They may not.
        """
        if generation_id < 0 and self.state is State.EMPTY:
            # A consumer that assigns itself, or an admin client.
            return
        if generation_id >= 0 or member_id or instance_id is not None:
            self.validate(member_id, instance_id)
            self.check_generation(generation_id)
        elif not is_transactional:
            raise RefusedError(GroupErrorCode.UNKNOWN_MEMBER_ID)
        if not is_transactional:
            self.check_state(Action.COMMIT)

    def check_offset_delete(self) -> None:
        """Check whether offsets may be deleted: always in a group of consumers, if no member reads the topic.

        Raises:
            RefusedError: They may not.
        """
        if self.protocol_type != CONSUMER_PROTOCOL:
            self.check_state(Action.DELETE)

    def check_delete(self) -> None:
        """Check whether the group may be deleted.

        Raises:
            RefusedError: It has members.
        """
        self.check_state(Action.DELETE)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads a topic; if the topics of consumers are not known, it is assumed."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL
        return topic in self.subscribed_topics

    def listed(self) -> dict[str, str]:
        """Return how ListGroups shows it."""
        return {
            "group_id": self.group_id,
            "protocol_type": self.protocol_type or "",
            "group_state": self.state.value,
            "group_type": "classic",
        }
