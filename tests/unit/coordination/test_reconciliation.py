"""How a member of a consumer group gets from what it has to what it is to get: a table."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.coordination.errors import RefusedError
from odradek.coordination.groups.reconciliation import ConsumerMember, EpochPartitions, MemberState, Reconciliation
from peers.consumer_groups import topic_id

T, U = topic_id("t"), topic_id("u")
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS


def member(state: MemberState, epoch: int, assigned: str, revoked: str = "") -> ConsumerMember:
    def partitions(text: str) -> dict[UUID, dict[int, int]]:
        return {T: dict.fromkeys(map(int, text), 5)} if text else {}

    return ConsumerMember("m", epoch, 4, state, assigned=partitions(assigned), revoked=partitions(revoked))


def numbers(found: EpochPartitions) -> str:
    return "".join(map(str, sorted(found.get(T, ()))))


@pytest.mark.parametrize(
    ("before", "target", "owned", "taken", "after"),
    [
        # Nothing to do in the target's epoch.
        (member(STABLE, 6, "01"), "01", "01", "", (STABLE, 6, "01", "")),
        # The epoch alone.
        (member(STABLE, 5, "01"), "01", "01", "", (STABLE, 6, "01", "")),
        (member(STABLE, 5, ""), "01", "", "", (STABLE, 6, "01", "")),
        # What is to be given up comes first, in the old epoch.
        (member(STABLE, 5, "01"), "12", "01", "", (UNREVOKED, 5, "1", "0")),
        (member(STABLE, 5, "01"), "12", None, "", (UNREVOKED, 5, "1", "0")),
        # The client does not have it: nothing is to be given up.
        (member(STABLE, 5, "01"), "12", "1", "", (STABLE, 6, "12", "")),
        (member(UNREVOKED, 5, "1", "0"), "12", "01", "", (UNREVOKED, 5, "1", "0")),
        (member(UNREVOKED, 5, "1", "0"), "12", None, "", (UNREVOKED, 5, "1", "0")),
        (member(UNREVOKED, 5, "1", "0"), "12", "1", "", (STABLE, 6, "12", "")),
        # A target that changed meanwhile.
        (member(UNREVOKED, 5, "1", "0"), "2", "1", "", (UNREVOKED, 5, "", "1")),
        # Others have what it is to get.
        (member(STABLE, 5, "0"), "012", "0", "2", (UNRELEASED, 6, "01", "")),
        (member(STABLE, 5, "0"), "02", "0", "2", (UNRELEASED, 6, "0", "")),
        (member(UNRELEASED, 6, "0"), "02", "0", "2", (UNRELEASED, 6, "0", "")),
        (member(UNRELEASED, 6, "0"), "02", "0", "", (STABLE, 6, "02", "")),
        (member(UNRELEASED, 5, "0"), "1", "0", "", (UNREVOKED, 5, "", "0")),
        # What it gives up itself is not taken.
        (member(UNREVOKED, 5, "1", "0"), "01", "1", "0", (STABLE, 6, "01", "")),
        # A state of a later Kafka.
        (member(MemberState.UNKNOWN, 5, "01"), "12", "", "", (STABLE, 6, "12", "")),
    ],
)
def test_the_next_step(
    before: ConsumerMember, target: str, owned: str | None, taken: str, after: tuple[object, ...]
) -> None:
    reported = None if owned is None else {T: frozenset(map(int, owned))}
    if owned == "":
        reported = {}
    step = Reconciliation(
        6, {T: frozenset(map(int, target))}, {T}, False, reported, lambda topic, number: str(number) in taken
    )
    found = step.next_step(before)
    assert (found.state, found.member_epoch, numbers(found.assigned), numbers(found.revoked)) == after
    is_same = after[:2] == (before.state, before.member_epoch) and found.assigned == before.assigned
    assert is_same or found.previous_member_epoch == before.member_epoch


def test_partitions_keep_the_epoch_in_which_they_came() -> None:
    step = Reconciliation(6, {T: frozenset({0, 1, 2})}, {T}, False, {T: frozenset({0, 1})}, lambda topic, number: False)
    assert step.next_step(member(STABLE, 5, "01")).assigned == {T: {0: 5, 1: 5, 2: 6}}


def test_a_topic_that_is_no_longer_read_is_given_up_in_any_state() -> None:
    for state, epoch in ((STABLE, 6), (STABLE, 5), (UNREVOKED, 5)):
        step = Reconciliation(6, {T: frozenset({0})}, {U}, True, {T: frozenset({0})}, lambda topic, number: False)
        found = step.next_step(member(state, epoch, "0"))
        assert (found.state, numbers(found.assigned), numbers(found.revoked)) == (UNREVOKED, "", "0")


def test_a_member_in_an_unknown_state_joins_again() -> None:
    step = Reconciliation(6, {}, {T}, False, {T: frozenset({0})}, lambda topic, number: False)
    with pytest.raises(RefusedError, match="unknown state"):
        step.next_step(member(MemberState.UNKNOWN, 5, "0"))
    assert MemberState(99) is MemberState.UNKNOWN


@pytest.mark.parametrize(
    ("epoch", "owned", "error"),
    [
        (0, None, None),
        (5, None, None),
        (6, "01", "FENCED_MEMBER_EPOCH"),
        # The answer with epoch 5 may have been lost.
        (4, "01", None),
        (4, "0", None),
        (4, "02", "FENCED_MEMBER_EPOCH"),
        (4, None, "FENCED_MEMBER_EPOCH"),
        (3, "0", "FENCED_MEMBER_EPOCH"),
    ],
)
def test_which_epochs_a_heartbeat_may_have(epoch: int, owned: str | None, error: str | None) -> None:
    reported = None if owned is None else {T: frozenset(map(int, owned))}
    try:
        member(STABLE, 5, "01").check_epoch(epoch, reported)
        found = None
    except RefusedError as refused:
        found = refused.error_name
    assert found == error


@pytest.mark.parametrize(
    ("epoch", "partition", "error"),
    [
        (7, 0, None),
        (7, 9, None),
        (8, 0, "STALE_MEMBER_EPOCH"),
        (6, 0, None),
        (5, 0, None),
        (4, 0, "STALE_MEMBER_EPOCH"),
        (6, 1, None),
        (6, 9, "STALE_MEMBER_EPOCH"),
    ],
)
def test_which_epochs_a_commit_may_have(epoch: int, partition: int, error: str | None) -> None:
    try:
        member(UNREVOKED, 7, "0", "1").check_commit_epoch(epoch, T, partition)
        found = None
    except RefusedError as refused:
        found = refused.error_name
    assert found == error
