"""What time brings to consumer groups (KIP-848): sessions and rebalance time-outs end. A control, or patience."""

from __future__ import annotations

from odradek.testing.conformance.administration import create, set_group
from odradek.testing.conformance.consumer_members import Members, beat, described, joined, ready
from odradek.testing.conformance.consumer_patterns import reads
from odradek.testing.conformance.group_offsets import commit_of
from odradek.testing.conformance.target import Target, expect, expect_error


def _session(target: Target) -> float:
    return target.setting("group.consumer.session.timeout.ms") / 1000


def _without(target: Target, members: Members, *gone: str) -> None:
    """Wait until members are no longer in the group."""
    target.until(f"{gone} are removed", lambda: not {one.member_id for one in members.described().members} & set(gone))
    for member in gone:
        del members.epochs[member], members.held[member]


def a_silent_member_is_removed(target: Target) -> None:
    """A member that sends no heartbeat for its session time-out is removed, in the next epoch, and unknown then."""
    members = Members(target)
    members.join("m")
    # A group without members and offsets may be forgotten at once.
    expect_error("commit", commit_of(target, members.group, members.topic, 2, version=10), "NONE")
    target.pass_time(_session(target) + 1)
    _without(target, members, "m")
    found = members.described()
    expect("group", (found.group_state, found.group_epoch), ("Empty", 3))
    expect_error("heartbeat", beat(target, members.group, "m", 2).error_code, "UNKNOWN_MEMBER_ID")


def a_heartbeat_keeps_a_member(target: Target) -> None:
    """A heartbeat restarts the session; what a silent member had goes to members that send heartbeats."""
    members = Members(target, 2)
    members.join_all("a", "b")
    for _ in range(2):
        target.pass_time(_session(target) * 0.6)
        members.report("a")
    _without(target, members, "b")
    members.settle()
    expect("epoch and partitions of a", (members.epochs["a"], members.numbers("a")), (4, [0, 1]))


def a_session_is_as_long_as_the_group_says(target: Target) -> None:
    """A group's own `consumer.session.timeout.ms` counts."""
    most = target.setting("group.consumer.max.session.timeout.ms")
    members, session = Members(target), _session(target)
    set_group(target, members.group, consumer_session_timeout_ms=str(most))
    target.skip_if(
        most / 1000 < session + 3, "needs a group.consumer.max.session.timeout.ms above the session time-out"
    )
    members.join("m")
    target.pass_time(session + 1)
    expect("members", len(members.described().members), 1)
    target.pass_time(most / 1000 - session)
    _without(target, members, "m")


def a_static_member_that_stays_away_is_removed(target: Target) -> None:
    """A static member that has left for a while is removed when its session is over."""
    members = Members(target, 2)
    members.join("a", instance_id="i")
    members.join("b")
    members.settle()
    answer = beat(target, members.group, "a", -2, instance_id="i")
    expect_error("leaves", answer.error_code, "NONE")
    for _ in range(2):
        target.pass_time(_session(target) * 0.6)
        members.report("b")
    _without(target, members, "a")
    members.settle()
    expect("partitions of b", members.numbers("b"), [0, 1])


def a_member_that_gives_nothing_up_is_removed(target: Target) -> None:
    """A member that does not give up partitions within its rebalance time-out is removed, though it is not silent."""
    members = Members(target, 2)
    members.join("a", rebalance_timeout_ms=2_000)
    members.join("b")
    members.report("a")
    target.pass_time(1)
    members.beat("a")
    target.pass_time(2)
    _without(target, members, "a")
    members.settle()
    expect("partitions of b", members.numbers("b"), [0, 1])


def a_member_that_gives_up_in_time_stays(target: Target) -> None:
    """A member that has given up its partitions in time is not removed afterwards."""
    members = Members(target, 2)
    members.join("a", rebalance_timeout_ms=2_000)
    members.join("b")
    members.report("a")
    target.pass_time(1)
    members.report("a")
    expect("epoch", members.epochs["a"], 3)
    target.pass_time(2)
    members.settle()
    expect("members", len(members.described().members), 2)


def an_assignment_is_made_after_its_interval(target: Target) -> None:
    """A change within the assignment interval is assigned with the first heartbeat after it."""
    group, topic = ready(target, 2)
    set_group(target, group, consumer_assignment_interval_ms="5000")
    joined(target, group, topic, "a")
    joined(target, group, topic, "b")
    expect("state", described(target, group).group_state, "Assigning")
    # In two steps: a session may be as short.
    for _ in range(2):
        target.pass_time(3)
        answer = beat(target, group, "b", 2)
        expect_error("heartbeat of a", beat(target, group, "a", 2).error_code, "NONE")
    found = described(target, group)
    expect("epochs", (answer.member_epoch, found.assignment_epoch, found.group_state), (3, 3, "Reconciling"))


def a_topic_that_matches_later_is_assigned(target: Target) -> None:
    """A topic that is made later and matches is assigned; patterns rest for ten seconds after they were tried."""
    members, name = Members(target), target.name()
    reads(target, members, f"{members.topic.name}|{name}", {members.topic.id})
    create(target, name)
    for _ in range(4):
        target.pass_time(3)
        members.report("m")
    members.until("it is assigned", lambda: len(members.held["m"]) == 2)
