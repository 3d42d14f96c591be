"""The states of a classic group, and what clients may do in each: tables, without a broker and without a file."""

from __future__ import annotations

import pytest

from odradek.coordination.errors import GroupErrorCode, RefusedError
from odradek.coordination.groups.classic import (
    REFUSALS,
    TRANSITIONS,
    Action,
    ClassicGroup,
    Event,
    Member,
    Protocols,
    State,
)
from odradek.coordination.groups.offsets import expires_from
from odradek.coordination.groups.share import ShareGroup
from odradek.coordination.groups.streams import StreamsGroup
from odradek.messages.coordinators.group_records import OffsetCommitValue, decode_group_record

EMPTY, PREPARING, COMPLETING, STABLE = (
    State.EMPTY,
    State.PREPARING_REBALANCE,
    State.COMPLETING_REBALANCE,
    State.STABLE,
)
REBALANCE, NON_EMPTY = GroupErrorCode.REBALANCE_IN_PROGRESS, GroupErrorCode.NON_EMPTY_GROUP
UNKNOWN, FENCED = GroupErrorCode.UNKNOWN_MEMBER_ID, GroupErrorCode.FENCED_INSTANCE_ID
GENERATION = GroupErrorCode.ILLEGAL_GENERATION

RANGE: Protocols = (("range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"),)
COMMITTED_MS, EMPTY_MS = 100, 200
OFFSET = OffsetCommitValue(1, "", COMMITTED_MS)


def member(member_id: str, protocols: Protocols = RANGE, instance_id: str | None = None) -> Member:
    return Member(member_id, instance_id, "client", "/here", 60_000, 10_000, "consumer", protocols)


def group_in(state: State, *members: Member) -> ClassicGroup:
    """Return a group that came to a state by its events; the first member leads."""
    group = ClassicGroup("g", EMPTY_MS)
    group.happens(Event.REBALANCE, 0)
    for one in members or (member("leader"), member("follower")):
        group.add(one)
    if state is EMPTY:
        for member_id in list(group.members):
            group.remove(member_id)
    if state is not PREPARING:
        group.next_generation(EMPTY_MS)
    if state is STABLE:
        group.happens(Event.ASSIGNED, 0)
    assert group.state is state
    return group


@pytest.mark.parametrize(
    ("state", "sync", "stay", "commit", "delete"),
    [
        (EMPTY, None, None, None, None),
        (PREPARING, REBALANCE, REBALANCE, None, NON_EMPTY),
        (COMPLETING, None, None, REBALANCE, NON_EMPTY),
        (STABLE, None, None, None, NON_EMPTY),
        (State.DEAD, None, None, None, NON_EMPTY),
    ],
)
def test_what_clients_may_do(state: State, sync: object, stay: object, commit: object, delete: object) -> None:
    assert [REFUSALS[action].get(state) for action in Action] == [sync, stay, commit, delete]


@pytest.mark.parametrize(
    ("state", "rebalance", "joined", "emptied", "assigned"),
    [
        (EMPTY, PREPARING, None, None, None),
        (PREPARING, None, COMPLETING, EMPTY, None),
        (COMPLETING, PREPARING, None, None, STABLE),
        (STABLE, PREPARING, None, None, None),
        (State.DEAD, None, None, None, None),
    ],
)
def test_which_state_follows(
    state: State, rebalance: object, joined: object, emptied: object, assigned: object
) -> None:
    follows = [TRANSITIONS[event].get(state) for event in Event]
    assert follows == [rebalance, joined, emptied, assigned, State.DEAD]


@pytest.mark.parametrize(
    ("state", "follower", "leader", "changed"),
    [(PREPARING, False, False, False), (COMPLETING, True, True, False), (STABLE, True, False, False)],
)
def test_a_member_that_joins_again(state: State, follower: bool, leader: bool, changed: bool) -> None:
    group = group_in(state)
    answered = [group.is_answered_again(group.members[one], RANGE) for one in ("follower", "leader")]
    assert answered == [follower, leader]
    assert group.is_answered_again(group.members["follower"], (("range", b""),)) is changed


@pytest.mark.parametrize(
    ("state", "joined", "limit", "old", "new"),
    [
        (EMPTY, (), 0, True, True),
        # Only those that have joined count while the group rebalances.
        (PREPARING, ("leader",), 2, True, True),
        (PREPARING, ("leader",), 1, False, False),
        (PREPARING, ("leader", "follower"), 1, True, False),
        (COMPLETING, (), 2, True, False),
        (STABLE, (), 2, True, False),
        (STABLE, (), 3, True, True),
    ],
)
def test_which_members_there_is_room_for(
    state: State, joined: tuple[str, ...], limit: int, old: bool, new: bool
) -> None:
    group = group_in(state)
    assert [group.has_room(one, joined, limit) for one in ("follower", "new")] == [old, new]


@pytest.mark.parametrize(
    ("state", "member_id", "instance_id", "generation", "is_transactional", "error"),
    [
        # Who is in no group commits where nobody is; in a transaction everywhere.
        (EMPTY, "", None, -1, False, None),
        (STABLE, "", None, -1, False, UNKNOWN),
        (STABLE, "", None, -1, True, None),
        (STABLE, "leader", None, 1, False, None),
        (STABLE, "leader", None, 2, False, GENERATION),
        (STABLE, "leader", None, 0, True, GENERATION),
        (STABLE, "nobody", None, 1, False, UNKNOWN),
        (STABLE, "leader", "unknown", 1, False, UNKNOWN),
        (STABLE, "leader", "static", 1, False, FENCED),
        (PREPARING, "leader", None, 0, False, None),
        (COMPLETING, "leader", None, 1, False, REBALANCE),
        (COMPLETING, "leader", None, 1, True, None),
    ],
)
def test_who_may_commit_offsets(
    state: State, member_id: str, instance_id: str | None, generation: int, is_transactional: bool, error: object
) -> None:
    group = group_in(state, member("leader"), member("other", instance_id="static"))
    found: object = None
    try:
        group.check_offset_commit(member_id, instance_id, generation, is_transactional=is_transactional)
    except RefusedError as refused:
        found = refused.error_code
    assert found == error


def test_a_leader_is_elected_among_those_that_have_joined() -> None:
    group = group_in(PREPARING, member("a"), member("b"), member("c"))
    assert [group.has_all_joined(joined) for joined in ("ab", "abc")] == [False, True]
    group.pending_join.add("d")
    assert not group.has_all_joined("abc")
    assert (group.elect_joined_leader(""), group.leader) == (False, "a")
    assert (group.elect_joined_leader("cb"), group.leader) == (True, "b")
    group.remove("b")
    assert group.leader == "a"


def test_a_static_member_keeps_its_place() -> None:
    group = group_in(STABLE, member("old", instance_id="one"), member("other"))
    group.members["old"].assignment = b"all"
    new = group.replace_static("one", "new")
    assert (new.member_id, new.assignment, group.leader, group.static_members) == ("new", b"all", "new", {"one": "new"})
    assert group.validate("new", "one") is new
    with pytest.raises(RefusedError) as refused:
        group.validate("old", "one")
    assert refused.value.error_code == FENCED


def test_the_protocol_that_all_support_and_most_like_best_is_selected() -> None:
    group = group_in(
        PREPARING,
        member("a", (("x", b""), ("range", b""))),
        member("b", (("range", b""), ("rr", b""))),
        member("c", (("rr", b""), ("range", b""), ("x", b""))),
    )
    assert group.select_protocol() == "range"
    assert not group.supports("consumer", (("x", b""),))
    group.update(group.members["b"], (("x", b""), ("range", b"")), 1, 1)
    assert group.supports("consumer", (("x", b""),))
    assert not group.supports("connect", (("x", b""),))
    assert group.select_protocol() == "x"


def test_a_group_is_as_its_record_says() -> None:
    group = group_in(COMPLETING)
    found = decode_group_record(*group.record({"leader": b"all"}))
    again = ClassicGroup.from_record("g", found.value)
    assert (again.state, again.generation_id, again.leader, again.protocol) == (STABLE, 1, "leader", "range")
    assert [(one.member_id, one.assignment) for one in again.members.values()] == [
        ("leader", b"all"),
        ("follower", b""),
    ]
    assert again.subscribed_topics == group.subscribed_topics == frozenset("t")
    removed = decode_group_record(*group.tombstones()[0])
    assert (removed.key, removed.value) == (found.key, None)


@pytest.mark.parametrize(
    ("group", "since_ms"),
    [
        (StreamsGroup("g", "streams"), COMMITTED_MS),
        (ShareGroup("g"), None),
        (ClassicGroup("g", EMPTY_MS), COMMITTED_MS),
        (group_in(EMPTY), EMPTY_MS),
        (group_in(PREPARING), None),
        (group_in(COMPLETING), None),
        (group_in(STABLE), COMMITTED_MS),
        # What these read is not known.
        (group_in(STABLE, member("one", (("range", b""),))), None),
    ],
)
def test_from_when_on_the_retention_of_an_offset_counts(
    group: ClassicGroup | ShareGroup | StreamsGroup, since_ms: object
) -> None:
    assert expires_from(group, OFFSET) == since_ms
