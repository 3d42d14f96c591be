"""How members of a consumer group (KIP-848) come to what they are to have: what is given up first, epochs, states."""

from __future__ import annotations

from odradek.testing.conformance.administration import create, delete, grow, set_group
from odradek.testing.conformance.consumer_members import (
    Members,
    assigned,
    beat,
    described,
    joined,
    partitions_of,
    ready,
)
from odradek.testing.conformance.target import Target, expect, expect_error


def _two(target: Target) -> Members:
    """Return a group where a has four partitions, two of which b is to have."""
    members = Members(target, 4)
    members.join("a")
    members.join("b")
    return members


def a_new_member_waits(target: Target) -> None:
    """A member that joins is in the epoch of the assignment at once, and waits for partitions that others have."""
    members = _two(target)
    expect("epoch and partitions of b", (members.epochs["b"], members.numbers("b")), (3, []))
    told = members.told("b")
    expect("what it is to have", [len(one) for one in partitions_of(told.target_assignment).values()], [2])
    expect("what it has", partitions_of(told.assignment), {})


def what_is_to_be_given_up_is_told_with_the_rest(target: Target) -> None:
    """Until a member has given up partitions, ConsumerGroupDescribe tells them as its own, in its old epoch."""
    members = _two(target)
    members.report("a")
    expect("epoch and what a was told to keep", (members.epochs["a"], len(members.numbers("a"))), (2, 2))
    told = members.told("a")
    expect("what it has", partitions_of(told.assignment), {members.topic.id: [0, 1, 2, 3]})
    expect("what it is to have", partitions_of(told.target_assignment), {members.topic.id: members.numbers("a")})
    expect("state", members.described().group_state, "Reconciling")


def a_heartbeat_without_partitions_gives_nothing_up(target: Target) -> None:
    """A member that does not say what it has has given up nothing."""
    members = _two(target)
    members.report("a")
    members.beat("a")
    members.beat("b")
    expect("epoch of a, partitions of b", (members.epochs["a"], members.numbers("b")), (2, []))


def a_part_that_is_given_up_is_not_enough(target: Target) -> None:
    """A member continues when it has given up all that it must; until then others get none of it."""
    members = _two(target)
    members.report("a")
    kept = members.numbers("a")
    still = sorted([*kept, *sorted({0, 1, 2, 3} - set(kept))[:1]])
    members.beat("a", topic_partitions=[{"topic_id": members.topic.id, "partitions": still}])
    members.beat("b")
    expect("epoch of a, partitions of b", (members.epochs["a"], members.numbers("b")), (2, []))


def what_was_given_up_is_free_at_once(target: Target) -> None:
    """When a member has given up its partitions it is in the new epoch, and the next heartbeat of another gets them."""
    members = _two(target)
    members.report("a")
    members.report("a")
    expect("epoch of a", members.epochs["a"], 3)
    members.beat("b")
    members.expect_each_once(4)


def a_member_that_gives_up_may_leave(target: Target) -> None:
    """What a member was to give up is free when it leaves."""
    members = _two(target)
    members.report("a")
    members.leave("a")
    members.beat("b")
    expect("epoch and partitions of b", (members.epochs["b"], members.numbers("b")), (4, [0, 1, 2, 3]))


def a_member_that_waits_may_leave(target: Target) -> None:
    """A member for which others give up partitions may leave; they get them back."""
    members = _two(target)
    members.report("a")
    members.leave("b")
    members.settle()
    expect("epoch and partitions of a", (members.epochs["a"], members.numbers("a")), (4, [0, 1, 2, 3]))


def a_member_that_gives_up_may_join_again(target: Target) -> None:
    """A member that joins again has no partitions any more: what it was to give up is free."""
    members = _two(target)
    members.report("a")
    members.join("a")
    expect("epoch and partitions of a", (members.epochs["a"], len(members.numbers("a"))), (3, 2))
    members.beat("b")
    members.expect_each_once(4)


def free_partitions_come_before_others(target: Target) -> None:
    """A member gets what is free at once, and the rest when it is given up."""
    members = Members(target, 6)
    members.join_all("a", "b")
    members.leave("b")
    members.join("c")
    expect("what c has", len(members.numbers("c")), 3)
    members.settle()
    members.expect_each_once(6)


def three_members_come_at_once(target: Target) -> None:
    """Members that come at once all have as much in the end, in the same epoch."""
    members = Members(target, 6)
    for member in ("a", "b", "c"):
        members.join(member)
    members.settle()
    members.expect_each_once(6)
    expect("epochs", members.epochs, {"a": 4, "b": 4, "c": 4})


def members_are_in_one_epoch_in_the_end(target: Target) -> None:
    """A stable group's members are in the assignment epoch, which is the group epoch."""
    members = Members(target, 4)
    members.join_all("a", "b")
    found = members.described()
    epochs = {found.group_epoch, found.assignment_epoch, *(one.member_epoch for one in found.members)}
    expect("epochs", epochs, {3})


def an_assignment_has_its_time(target: Target) -> None:
    """Within the assignment interval no new assignment is made: the group is Assigning, the member in the old epoch."""
    group, topic = ready(target, 2)
    set_group(target, group, consumer_assignment_interval_ms="15000")
    joined(target, group, topic, "a")
    answer = joined(target, group, topic, "b")
    expect("epoch and partitions of b", (answer.member_epoch, assigned(answer)), (2, {}))
    found = described(target, group)
    expect("group", (found.group_state, found.group_epoch, found.assignment_epoch), ("Assigning", 3, 2))


def an_empty_group_keeps_its_epoch(target: Target) -> None:
    """A group that members left counts its epochs on, also that of the assignment to nobody."""
    target.needs_newest()
    members = Members(target, 2)
    members.join("a")
    members.leave("a")
    found = members.described()
    expect("group", (found.group_state, found.group_epoch, found.assignment_epoch), ("Empty", 3, 3))
    members.join("a")
    expect("epoch and partitions", (members.epochs["a"], members.numbers("a")), (4, [0, 1]))


def a_partition_is_never_with_two(target: Target) -> None:
    """While members come and go, no two of them get the same partition."""
    members = Members(target, 5)
    for step, member in enumerate(("a", "b", "c", "d")):
        members.join(member)
        for other in list(members.epochs):
            members.report(other)
            held = [number for one in members.held for number in members.numbers(one)]
            expect(f"partitions in step {step}", sorted(held), sorted(set(held)))
    members.settle()
    members.expect_each_once(5)


# -- topics


def a_deleted_topic_is_taken_away(target: Target) -> None:
    """When a topic is deleted, the group's epoch grows, and members have its partitions no more."""
    members = Members(target, 2)
    members.join("m")
    delete(target, members.topic)
    members.until("it is gone", lambda: not members.held["m"] and members.epochs["m"] == 3)
    members.settle()
    expect("what it is to have", partitions_of(members.told("m").target_assignment), {})


def a_topic_made_again_is_another_one(target: Target) -> None:
    """A topic that is deleted and recreated is assigned by its new id."""
    members = Members(target, 1)
    members.join("m")
    old = members.topic
    delete(target, old)
    target.until("the topic is recreated", lambda: create(target, old.name, 2) == 0)
    found = members.until(
        "the new topic is assigned", lambda: next((topic for topic in members.held["m"] if topic != old.id), None)
    )
    expect("partitions", members.held["m"], {found: [0, 1]})


def a_topic_that_comes_later_is_assigned(target: Target) -> None:
    """A topic that a member named before it was made is assigned as soon as there is one."""
    members = Members(target)
    name = target.name()
    members.join("m", subscribed_topic_names=[name])
    expect("before", members.held["m"], {})
    create(target, name, 3)
    members.until("it is assigned", lambda: bool(members.held["m"]))
    expect("partitions and epoch", ([*members.held["m"].values()], members.epochs["m"]), ([[0, 1, 2]], 3))


def partitions_that_are_added_are_shared(target: Target) -> None:
    """Partitions that a topic gains go to members without anything being taken from them."""
    members = Members(target, 2)
    members.join_all("a", "b")
    before = {member: set(members.numbers(member)) for member in ("a", "b")}
    grow(target, members.topic.name, 4)
    members.until("all partitions are assigned", lambda: sum(len(members.numbers(one)) for one in "ab") == 4)
    members.settle()
    members.expect_each_once(4)
    for member, numbers in before.items():
        expect(f"what {member} keeps", numbers <= set(members.numbers(member)), True)


# -- limits


def a_full_group_takes_no_more(target: Target) -> None:
    """A group of `group.consumer.max.size` members is GROUP_MAX_SIZE_REACHED for others, not for its own members."""
    size = target.setting("group.consumer.max.size")
    target.skip_if(size > 50, f"needs a group.consumer.max.size of at most 50, not {size}")
    group = target.group()
    for number in range(size):
        expect_error(f"member {number}", beat(target, group, f"m-{number}").error_code, "NONE")
    expect_error("one more", beat(target, group, "more").error_code, "GROUP_MAX_SIZE_REACHED")
    expect_error("a member that joins again", beat(target, group, "m-0").error_code, "NONE")
    beat(target, group, "m-0", -1)
    expect_error("after one has left", beat(target, group, "more").error_code, "NONE")
