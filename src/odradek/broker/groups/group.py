"""A group of the classic protocol: its members, its state, and what it may do in which state.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
      ^              |   ^                |                 |
      +--------------+   +----------------+-----------------+        Dead: removed

Source in Kafka: `ClassicGroup`, `ClassicGroupState`.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum

from kio.schema.errors import ErrorCode

from odradek.broker.clock import Timer
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.groups.member import Member, Protocols
from odradek.broker.protocol import Message
from odradek.coordination.placement import java_hash
from odradek.errors import FormatError
from odradek.messages.coordinators.consumer_protocol import SUBSCRIPTION
from odradek.messages.coordinators.group_records import (
    CONSUMER_PROTOCOL,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
    encode_group_metadata,
)

_VERSION_BYTES = 2
_BUCKETS = 16


class State(Enum):
    """The states of a group, by the names that clients see."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Group:
    """A group.

    Args:
        group_id: Its id.
        now_ms: When it got into its state, by the time of day.

    Attributes:
        group_id: Its id.
        state: Its state.
        previous_state: The state before.
        state_timestamp_ms: When it got into its state; None if an old record does not tell.
        generation_id: Counts the rebalances.
        protocol_type: What the members agree on; None if there has been none.
        protocol: The protocol that was selected.
        leader: The member that assigns.
        members: The members by their ids.
        static_members: The ids of static members by `group.instance.id`.
        pending_join: The ids that were given to members that have not joined with them; each with its time-out.
        pending_sync: The ids of the members that have not yet asked for their assignment.
        new_member_added: Whether a member has joined since the initial rebalance was delayed.
        subscribed_topics: The topics of all members; None if they are not known.
        join_timer: Ends the wait for members to join.
        sync_timer: Ends the wait for members to ask for their assignment.
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
        self.pending_join: dict[str, Timer] = {}
        self.pending_sync: set[str] = set()
        self.new_member_added = False
        self.subscribed_topics: frozenset[str] | None = None
        self.join_timer: Timer | None = None
        self.sync_timer: Timer | None = None

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> Group:
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

    def record(self, assignment: dict[str, bytes]) -> tuple[bytes, bytes | None]:
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

    # -- state

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return self.state is State.EMPTY

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance can begin."""
        return self.state in (State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY)

    def move_to(self, state: State, now_ms: int) -> None:
        """Get into a state."""
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def next_generation(self, now_ms: int) -> None:
        """Begin the next generation with those members that are there."""
        self.generation_id += 1
        self.protocol = self.select_protocol() if self.members else None
        self.subscribed_topics = self._subscribed_topics()
        self.move_to(State.COMPLETING_REBALANCE if self.members else State.EMPTY, now_ms)
        self.pending_sync.clear()

    def stop_timers(self) -> None:
        """Do nothing more for this group when time passes."""
        for timer in (self.join_timer, self.sync_timer, *self.pending_join.values()):
            if timer is not None:
                timer.cancel()
        for member in self.members.values():
            member.stop_timer()

    # -- members

    def is_leader(self, member_id: str) -> bool:
        """Whether a member assigns."""
        return self.leader == member_id

    def add(self, member: Member) -> None:
        """Take a member in; the first one leads."""
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._forget_pending(member.member_id)

    def remove(self, member_id: str) -> None:
        """Let a member go, also one that is pending; another one leads if it led."""
        member = self.members.pop(member_id, None)
        if member is not None:
            member.stop_timer()
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
        if self.is_leader(member_id):
            self.leader = next(iter(self.members), None)
        self._forget_pending(member_id)
        self.pending_sync.discard(member_id)

    def _forget_pending(self, member_id: str) -> None:
        timer = self.pending_join.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def replace_static(self, instance_id: str, new_member_id: str) -> Member:
        """Give a static member a new id; who waits under the old one is told that it was replaced."""
        old_member_id = self.static_members[instance_id]
        old = self.members.pop(old_member_id)
        old.stop_timer()
        fenced = int(ErrorCode.fenced_instance_id)
        old.complete_join(join_answer(fenced, old_member_id))
        old.complete_sync(sync_answer(fenced))
        new = Member(
            new_member_id,
            instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocol_type,
            old.protocols,
            old.assignment,
        )
        self.members[new_member_id] = new
        if self.is_leader(old_member_id):
            self.leader = new_member_id
        self.static_members[instance_id] = new_member_id
        return new

    def elect_joined_leader(self) -> bool:
        """Let a member lead that has joined; return whether there is one."""
        leader = None if self.leader is None else self.members[self.leader]
        if leader is None:
            return False
        if leader.awaiting_join is None:
            joined = [member for member in self.members.values() if member.awaiting_join is not None]
            if not joined:
                return False
            self.leader = joined[0].member_id
        return True

    @property
    def joined_count(self) -> int:
        """How many members have joined the rebalance that is under way."""
        return sum(1 for member in self.members.values() if member.awaiting_join is not None)

    @property
    def has_all_joined(self) -> bool:
        """Whether no member is missing in the rebalance."""
        return not self.pending_join and self.joined_count == len(self.members)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance may take: as long as its slowest member may."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def validate(self, member_id: str, instance_id: str | None) -> Member:
        """Return a member.

        Raises:
            ApiError: It is not in the group, or was replaced by another one with its `group.instance.id`.
        """
        if instance_id is not None:
            found = self.static_members.get(instance_id)
            if found is None:
                raise ApiError(ErrorCode.unknown_member_id)
            if found != member_id:
                raise ApiError(ErrorCode.fenced_instance_id)
        if member_id not in self.members:
            raise ApiError(ErrorCode.unknown_member_id)
        return self.members[member_id]

    # -- protocols

    def _supported(self) -> Counter[str]:
        return Counter(name for member in self.members.values() for name in {name for name, _ in member.protocols})

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can be in the group."""
        if self.state is State.EMPTY:
            return bool(protocol_type and protocols)
        supported = self._supported()
        return self.protocol_type == protocol_type and any(
            supported[name] == len(self.members) for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """Return the protocol that all members support and most of them like best."""
        candidates = {name for name, count in self._supported().items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        # Among equals, Kafka takes the first one in the order of a Java `HashMap`.
        return min(votes, key=lambda name: (-votes[name], _place_in_java_map(name)))

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
            ApiError: They may not.
        """
        if generation_id < 0 and self.state is State.EMPTY:
            # A consumer that assigns itself, or an admin client.
            return
        if generation_id >= 0 or member_id or instance_id is not None:
            self.validate(member_id, instance_id)
            if generation_id != self.generation_id:
                raise ApiError(ErrorCode.illegal_generation)
        elif not is_transactional:
            raise ApiError(ErrorCode.unknown_member_id)
        if not is_transactional and self.state is State.COMPLETING_REBALANCE:
            raise ApiError(ErrorCode.rebalance_in_progress)

    def check_offset_delete(self) -> None:
        """Check whether offsets may be deleted: always in a group of consumers, if no member reads the topic.

        Raises:
            ApiError: They may not.
        """
        if self.state is not State.EMPTY and self.protocol_type != CONSUMER_PROTOCOL:
            raise ApiError(ErrorCode.non_empty_group)

    def check_delete(self) -> None:
        """Check whether the group may be deleted.

        Raises:
            ApiError: It has members.
        """
        if self.state is not State.EMPTY:
            raise ApiError(ErrorCode.non_empty_group)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads a topic; if the topics of consumers are not known, it is assumed."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL
        return topic in self.subscribed_topics

    def expires_from(self, value: OffsetCommitValue) -> int | None:
        """Return the time from which the retention of an offset is counted; None if it does not expire now."""
        if self.protocol_type is None:
            return value.commit_timestamp
        if self.state is State.EMPTY:
            return value.commit_timestamp if self.state_timestamp_ms is None else self.state_timestamp_ms
        if (
            self.state is State.STABLE
            and self.protocol_type == CONSUMER_PROTOCOL
            and self.subscribed_topics is not None
        ):
            return value.commit_timestamp
        return None

    def tombstones(self) -> list[tuple[bytes, bytes | None]]:
        """Return the records that remove it."""
        return [encode_group_metadata(self.group_id, None)]

    # -- answers

    def joined(self, member_id: str, *, skip_assignment: bool = False, leader: str | None = None) -> Message:
        """Return the answer to a member that has joined this generation; the leader is told of all members."""
        return {
            **join_answer(NO_ERROR, member_id),
            "generation_id": self.generation_id,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "leader": leader or self.leader or "",
            "skip_assignment": skip_assignment,
            "members": [
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.instance_id,
                    "metadata": member.metadata(self.protocol or ""),
                }
                for member in (self.members.values() if self.is_leader(member_id) else ())
            ],
        }

    def listed(self) -> Message:
        """Return how ListGroups shows it."""
        return {
            "group_id": self.group_id,
            "protocol_type": self.protocol_type or "",
            "group_state": self.state.value,
            "group_type": "classic",
        }

    def described(self) -> Message:
        """Return how DescribeGroups shows it."""
        is_stable = self.state is State.STABLE
        return {
            "error_code": NO_ERROR,
            "group_id": self.group_id,
            "group_state": self.state.value,
            "protocol_type": self.protocol_type or "",
            "protocol_data": (self.protocol or "") if is_stable else "",
            "members": [
                {
                    "member_id": member.member_id,
                    "group_instance_id": member.instance_id,
                    "client_id": member.client_id,
                    "client_host": member.client_host,
                    "member_metadata": member.metadata(self.protocol or "") if is_stable else b"",
                    "member_assignment": member.assignment,
                }
                for member in self.members.values()
            ],
        }


def _place_in_java_map(name: str) -> int:
    """Return where a small `HashMap` has a text."""
    found = java_hash(name) & 0xFFFFFFFF
    return (found ^ found >> 16) & (_BUCKETS - 1)


def join_answer(code: int, member_id: str = "") -> Message:
    """Return an answer to JoinGroup that tells of an error."""
    return {
        "error_code": code,
        "generation_id": -1,
        "protocol_type": None,
        "protocol_name": None,
        "leader": "",
        "skip_assignment": False,
        "member_id": member_id,
        "members": [],
    }


def sync_answer(
    code: int, assignment: bytes = b"", protocol_type: str | None = None, protocol: str | None = None
) -> Message:
    """Return an answer to SyncGroup."""
    return {"error_code": code, "assignment": assignment, "protocol_type": protocol_type, "protocol_name": protocol}
