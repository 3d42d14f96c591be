"""Groups that move between the protocols: who may, what is written, and what classic members are told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from odradek.broker.turns import whole
from odradek.coordination.errors import RefusedError
from odradek.coordination.groups.classic import ClassicGroup, Member, State
from odradek.coordination.groups.classic_members import (
    assignment,
    check_join,
    check_sync,
    join_request,
    joins_again,
    syncs_in_vain,
    validate,
)
from odradek.coordination.groups.consumer import ConsumerGroup, member_record, target_record
from odradek.coordination.groups.heartbeat import Heartbeat, Outcome
from odradek.coordination.groups.migration import check_upgrade, downgrade, downgrades, upgrade
from odradek.coordination.groups.migration_policy import POLICIES
from odradek.coordination.groups.modern import GroupRecord
from odradek.coordination.groups.reconciliation import ConsumerMember, MemberState
from odradek.coordination.placement import timeline_order
from odradek.errors import FormatError
from odradek.messages.coordinators.consumer_protocol import (
    ConsumerSubscription,
    TopicPartitions,
    encode_assignment,
    read_subscription,
)
from odradek.messages.coordinators.group_records import ClassicMemberMetadata, ClassicProtocol
from peers.consumer_groups import GROUP, Client, Room, Topics, topic_id
from peers.mixed_groups import assigned, subscription

T = topic_id("t")
CLASSIC = ClassicMemberMetadata(10_000, (ClassicProtocol("range", subscription(["t"])),))
BOTH = POLICIES["bidirectional"]
TOPICS = Topics({"t": 4})


def classic_group(*assignments: bytes, metadata: bytes | None = None, type_: str = "consumer") -> ClassicGroup:
    """Return a stable group in generation 5, of members a, b, ... with these assignments."""
    group = ClassicGroup(GROUP, 0)
    for name, data in zip("abcdefg", assignments, strict=False):
        protocols = (("range", subscription(["t"]) if metadata is None else metadata),)
        group.add(Member(name, None, "client", "/host", 60_000, 10_000, type_, protocols, data))
    group.generation_id, group.protocol, group.state = 5, "range", State.STABLE
    return group


def mixed_group(*members: ConsumerMember, target_epoch: int = 2) -> ConsumerGroup:
    group = ConsumerGroup(GROUP)
    for member in members:
        group._put(member.member_id, member)
    group.epoch = group.target_epoch = target_epoch
    return group


def member(name: str, *partitions: int, classic: bool = True, **fields: Any) -> ConsumerMember:
    held = {T: dict.fromkeys(partitions, 2)} if partitions else {}
    known = {"member_epoch": 2, "topic_names": frozenset(["t"]), "rebalance_timeout_ms": 60_000, "assigned": held}
    return ConsumerMember(name, classic=CLASSIC if classic else None, **{**known, **fields})


def refusal(error: pytest.ExceptionInfo[RefusedError]) -> str:
    return error.value.error_name


def kinds(records: Iterable[GroupRecord]) -> list[tuple[int, str, bool]]:
    return [(int(one.type), getattr(one.key, "member_id", ""), one.value is not None) for one in records]


# -- upgrades


@pytest.mark.parametrize(
    ("policy", "type_", "max_size", "refused"),
    [
        ("bidirectional", "consumer", 2, ""),
        ("upgrade", "consumer", 2, ""),
        ("downgrade", "consumer", 2, "upgrade is disabled"),
        ("disabled", "consumer", 2, "upgrade is disabled"),
        ("bidirectional", "connect", 2, "does not use the consumer"),
        ("bidirectional", "consumer", 1, "maximum size"),
    ],
)
def test_which_groups_are_upgraded(policy: str, type_: str, max_size: int, refused: str) -> None:
    group = classic_group(b"", b"", type_=type_)
    if not refused:
        check_upgrade(group, POLICIES[policy], max_size)
        return
    with pytest.raises(RefusedError, match=refused) as error:
        check_upgrade(group, POLICIES[policy], max_size)
    assert refusal(error) == "GROUP_ID_NOT_FOUND"


def test_an_upgrade_writes_members_epoch_targets_and_what_they_have() -> None:
    one, two = (
        encode_assignment((TopicPartitions("t", (0, 3)),), 1),
        encode_assignment((TopicPartitions("u", (0,)),), 1),
    )
    records, group = whole(upgrade(classic_group(one, two, b""), TOPICS))
    order = timeline_order(["a", "b", "c"])
    assert kinds(records) == [
        *((5, name, True) for name in order),
        (3, "", True),
        *((7, name, True) for name in order),
        (6, "", True),
        *((8, name, True) for name in order),
    ]
    assert (group.epoch, group.target_epoch, group.target_ms, group.classic_count) == (5, 5, 0, 3)
    # A topic that does not exist is not assigned.
    assert {name: group.members[name].assigned for name in "abc"} == {"a": {T: {0: 5, 3: 5}}, "b": {}, "c": {}}
    assert group.targets["a"] == {T: {0, 3}}
    found = group.members["b"]
    assert (found.member_epoch, found.previous_member_epoch, found.state) == (5, 5, MemberState.STABLE)
    assert found.classic == ClassicMemberMetadata(10_000, (ClassicProtocol("range", subscription(["t"])),))


@pytest.mark.parametrize(
    ("group", "code", "reason"),
    [
        (classic_group(b"a"), "GROUP_ID_NOT_FOUND", "malformed"),
        (classic_group(b"", metadata=b"m"), "GROUP_ID_NOT_FOUND", "malformed"),
        (classic_group(b"", metadata=b"\xff\xff" + subscription(["t"])[2:]), "GROUP_ID_NOT_FOUND", "malformed"),
        (classic_group(b"\0\1\0\0\0\0\0\0\0\1x"), "GROUP_ID_NOT_FOUND", "custom assignor"),
        (classic_group(*[encode_assignment((TopicPartitions("t", (1,)),), 1)] * 2), "UNKNOWN_SERVER_ERROR", "twice"),
    ],
)
def test_what_is_not_upgraded(group: ClassicGroup, code: str, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason) as error:
        whole(upgrade(group, TOPICS))
    assert refusal(error) == code


def test_partitions_that_do_not_exist_are_not_taken_over() -> None:
    data = encode_assignment((TopicPartitions("t", (-1, 1, 4)),), 1)
    group = whole(upgrade(classic_group(data), TOPICS)).group
    assert group.members["a"].assigned == {T: {1: 5}}


def test_a_change_of_the_classic_group_counts() -> None:
    group = classic_group(b"", b"")
    before = group.revision
    group.update(group.members["a"], group.members["a"].protocols, 1, 1)
    group.remove("b")
    assert group.revision == before + 2


# -- downgrades


@pytest.mark.parametrize(
    ("policy", "max_size", "members", "leaving", "wanted"),
    [
        ("bidirectional", 2, "aBc", "B", True),
        ("downgrade", 2, "aBc", "B", True),
        ("upgrade", 2, "aBc", "B", False),
        ("disabled", 2, "aBc", "B", False),
        ("bidirectional", 1, "aBc", "B", False),
        ("bidirectional", 2, "aBC", "B", False),
        ("bidirectional", 2, "aBC", "BC", True),
        ("bidirectional", 2, "aBc", "a", False),
        ("bidirectional", 2, "aBc", "aB", True),
        ("bidirectional", 2, "B", "B", False),
        ("bidirectional", 2, "aB", "aB", False),
        # All have been classic since the group was too large: any that leaves lets it move.
        ("bidirectional", 2, "abc", "a", True),
    ],
)
def test_which_groups_are_downgraded(policy: str, max_size: int, members: str, leaving: str, wanted: bool) -> None:
    """Capitals are members of the consumer protocol."""
    group = mixed_group(*(member(name, classic=name.islower()) for name in members))
    gone = [group.members[name] for name in leaving]
    assert downgrades(group, POLICIES[policy], max_size, leaving=gone) is wanted


@pytest.mark.parametrize(
    ("max_size", "members", "replaced", "wanted"),
    [(2, "aB", "B", True), (2, "B", "B", True), (1, "aB", "B", False), (2, "AB", "B", False), (2, "aB", "a", False)],
)
def test_which_replaced_members_let_a_group_downgrade(max_size: int, members: str, replaced: str, wanted: bool) -> None:
    group = mixed_group(*(member(name, classic=name.islower()) for name in members))
    assert downgrades(group, BOTH, max_size, replaced=group.members[replaced]) is wanted


def test_a_downgraded_group_has_the_targets() -> None:
    group = mixed_group(member("a", 0), member("b", 1), member("X", 2, classic=False))
    for name, numbers in (("a", {0, 2}), ("b", {1}), ("X", {3})):
        group.apply(target_record(GROUP, name, {T: frozenset(numbers), topic_id("gone"): frozenset({0})}))
    found = whole(downgrade(group, TOPICS, 77, leaving=[group.members["X"]]))
    assert (found.state, found.generation_id, found.protocol, found.state_timestamp_ms) == (
        State.STABLE,
        2,
        "range",
        77,
    )
    assert {one.member_id: assigned(one.assignment) for one in found.members.values()} == {"a": [0, 2], "b": [1]}
    assert found.leader == next(name for name in timeline_order("abX", room=1) if name != "X")
    assert found.subscribed_topics == frozenset({"t"})
    assert {one.session_timeout_ms for one in found.members.values()} == {10_000}
    assert [number for number, _, _ in kinds(group.removal_records({}))] == [8] * 3 + [7] * 3 + [6] + [5] * 3 + [4, 3]


def test_a_member_that_takes_a_static_ones_place_has_its_target() -> None:
    group = mixed_group(member("a", 0), member("X", 1, classic=False, instance_id="i"))
    group.apply(target_record(GROUP, "X", {T: frozenset({1})}))
    found = whole(downgrade(group, TOPICS, 0, joining=member("new", instance_id="i")))
    assert {one.member_id: assigned(one.assignment) for one in found.members.values()} == {"a": [], "new": [1]}
    assert found.static_members == {"i": "new"}


# -- classic members


@pytest.mark.parametrize(
    ("epoch", "target_epoch", "state", "taken", "again", "in_vain"),
    [
        (2, 2, MemberState.STABLE, True, False, False),
        (1, 2, MemberState.STABLE, True, True, True),
        (1, 2, MemberState.UNREVOKED_PARTITIONS, True, True, False),
        (2, 2, MemberState.UNREVOKED_PARTITIONS, True, True, False),
        (2, 2, MemberState.UNRELEASED_PARTITIONS, True, False, False),
        (2, 2, MemberState.UNRELEASED_PARTITIONS, False, True, False),
        (1, 2, MemberState.UNRELEASED_PARTITIONS, True, True, True),
    ],
)
def test_when_a_classic_member_joins_again(
    epoch: int, target_epoch: int, state: MemberState, taken: bool, again: bool, in_vain: bool
) -> None:
    one = member("a", 0, member_epoch=epoch, state=state)
    group = mixed_group(one, *([member("b", 1)] if taken else []), target_epoch=target_epoch)
    group.apply(target_record(GROUP, "a", {T: frozenset({0, 1})}))
    assert (joins_again(group, one), syncs_in_vain(group, one)) == (again, in_vain)


@pytest.mark.parametrize(
    ("member_id", "instance_id", "generation", "refused"),
    [
        ("a", None, 2, ""),
        ("a", None, 1, "ILLEGAL_GENERATION"),
        ("none", None, 2, "UNKNOWN_MEMBER_ID"),
        ("X", None, 2, "UNKNOWN_MEMBER_ID"),
        ("s", "i", 2, ""),
        ("s", None, 2, ""),
        ("a", "i", 2, "FENCED_INSTANCE_ID"),
        ("s", "j", 2, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_which_classic_members_there_are(
    member_id: str, instance_id: str | None, generation: int, refused: str
) -> None:
    group = mixed_group(member("a"), member("s", instance_id="i"), member("X", classic=False))
    if not refused:
        assert validate(group, member_id, instance_id, generation)[0] is group.members[member_id]
        return
    with pytest.raises(RefusedError) as error:
        validate(group, member_id, instance_id, generation)
    assert refusal(error) == refused


@pytest.mark.parametrize(
    ("policy", "max_size", "type_", "names", "refused"),
    [
        ("bidirectional", 9, "consumer", ["range"], ""),
        ("upgrade", 9, "consumer", ["other", "range"], ""),
        ("downgrade", 9, "consumer", ["range"], ""),
        ("disabled", 9, "consumer", ["range"], "INCONSISTENT_GROUP_PROTOCOL"),
        ("bidirectional", 2, "consumer", ["range"], "GROUP_MAX_SIZE_REACHED"),
        ("bidirectional", 9, "connect", ["range"], "INCONSISTENT_GROUP_PROTOCOL"),
        ("bidirectional", 9, "consumer", ["other"], "INCONSISTENT_GROUP_PROTOCOL"),
        ("bidirectional", 9, "consumer", [], "INCONSISTENT_GROUP_PROTOCOL"),
    ],
)
def test_which_classic_members_may_join(policy: str, max_size: int, type_: str, names: list[str], refused: str) -> None:
    group = mixed_group(member("a"), member("X", classic=False))
    settings = Room({}).settings._replace(policy=POLICIES[policy], max_size=max_size)
    protocols = tuple((name, b"") for name in names)
    if not refused:
        check_join(group, "new", type_, protocols, settings)
        return
    with pytest.raises(RefusedError) as error:
        check_join(group, "new", type_, protocols, settings)
    assert refusal(error) == refused


def test_a_sync_may_leave_out_the_protocol() -> None:
    check_sync(CLASSIC, None, None)
    check_sync(CLASSIC, "consumer", "range")
    for type_, name in (("connect", "range"), ("consumer", "other")):
        with pytest.raises(RefusedError):
            check_sync(CLASSIC, type_, name)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
def test_an_assignment_has_the_version_of_the_subscription(version: int) -> None:
    data = subscription(["t"], version=min(version, 3))
    metadata = version.to_bytes(2, "big") + data[2:]
    classic = ClassicMemberMetadata(10_000, (ClassicProtocol("range", metadata),))
    found = assignment(replace(member("a", 3, 1), classic=classic), classic, TOPICS)
    assert (int.from_bytes(found[:2], "big"), assigned(found)) == (min(version, 3), [1, 3])


# -- what members say


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_is_read_whole_and_refused_if_it_is_cut(version: int) -> None:
    data = subscription(["t", "u"], 1, 2, version=version)
    owned = (TopicPartitions("t", (1, 2)),) if version else ()
    assert whole(read_subscription(data)) == ConsumerSubscription(("t", "u"), None, owned)
    assert whole(read_subscription(data + b"more")) == whole(read_subscription(data))
    for size in range(len(data)):
        with pytest.raises(FormatError):
            whole(read_subscription(data[:size]))


def test_a_subscription_that_claims_more_than_it_has_is_refused_at_once() -> None:
    with pytest.raises(FormatError, match="count"):
        next(read_subscription(b"\0\0\x7f\xff\xff\xff\0\1t"))


def test_a_subscription_of_many_topics_is_read_in_turns() -> None:
    data = subscription([f"t{number}" for number in range(1000)])
    assert sum(1 for _ in read_subscription(data)) == 10


def join(room: Room, name: str, *owned: int, instance: str | None = None, is_new: bool = True) -> Outcome:
    request = whole(
        join_request(
            name, instance, (("range", subscription(["t"], *owned)),), room.topics, is_new=is_new,
            session_timeout_ms=10_000, rebalance_timeout_ms=60_000, client_id="c", client_host="/h",
        )
    )  # fmt: skip
    return whole(Heartbeat(room.group, request, room.topics, room.settings, room.now_ms).run())


def test_a_static_classic_member_that_takes_the_last_place_makes_the_group_classic() -> None:
    room, one = Room({"t": 2}), Client("x", ["t"], instance_id="i")
    room.settle([one])
    outcome = join(room, "new", instance="i")
    assert outcome.classic is not None
    assert (outcome.rebalances, outcome.member and outcome.member.member_epoch) == (False, 2)
    assert kinds(outcome.records) == [
        (8, "x", False), (7, "x", False), (5, "x", False), (5, "new", True), (7, "new", True), (8, "new", True),
        (5, "new", True), (8, "new", True),
        (8, "new", False), (7, "new", False), (6, "", False), (5, "new", False), (4, "", False), (3, "", False),
    ]  # fmt: skip
    assert assigned(outcome.classic.members["new"].assignment) == [0, 1]
    # Without the policy it stays.
    room.settings = room.settings._replace(policy=POLICIES["upgrade"])
    assert join(room, "new", instance="i").classic is None


def test_a_group_without_a_common_protocol_stays() -> None:
    """No client can make one; a damaged log can."""
    other = ClassicMemberMetadata(10_000, (ClassicProtocol("other", b""),))
    group = mixed_group(member("a"), member("X", classic=False))
    group.apply(member_record(GROUP, replace(member("b"), classic=other)))
    assert not downgrades(group, BOTH, 9, leaving=[group.members["X"]])


def test_members_are_in_the_order_of_kafkas_map() -> None:
    # As Apache Kafka wrote them.
    names = [f"member-{name}" for name in "abdefg"]
    wanted = ["member-e", "x", "member-b", "member-g", "member-d", "member-a", "member-f"]
    assert timeline_order([*names, "x"], room=1) == wanted
