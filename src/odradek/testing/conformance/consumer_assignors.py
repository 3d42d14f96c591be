"""The assignors of consumer groups (KIP-848): what `uniform` and `range` give to whom, and which one is used."""

from __future__ import annotations

from typing import Any

from odradek.testing.conformance.administration import remove_members
from odradek.testing.conformance.consumer_members import Members, described, joined, ready
from odradek.testing.conformance.target import Target, expect


def _counts(members: Members, topic: Any = None) -> list[int]:
    return sorted(len(members.numbers(member, topic)) for member in members.held)


def uniform_is_even(target: Target) -> None:
    """With uniform, members have as many partitions as each other, but for one."""
    members = Members(target, 7)
    members.join_all("a", "b", "c")
    members.expect_each_once(7)
    expect("counts", _counts(members), [2, 2, 3])


def uniform_moves_no_more_than_it_must(target: Target) -> None:
    """With uniform, a member that comes takes only what others have too many of."""
    members = Members(target, 6)
    members.join_all("a", "b")
    before = {member: set(members.numbers(member)) for member in ("a", "b")}
    members.join_all("c")
    members.expect_each_once(6)
    for member, numbers in before.items():
        expect(f"what {member} keeps", len(numbers & set(members.numbers(member))), 2)


def uniform_gives_what_is_free(target: Target) -> None:
    """With uniform, what a member that leaves had goes to the others, who keep what they have."""
    members = Members(target, 6)
    members.join_all("a", "b", "c")
    before = {member: set(members.numbers(member)) for member in ("a", "b")}
    members.leave("c")
    members.settle()
    members.expect_each_once(6)
    for member, numbers in before.items():
        expect(f"what {member} keeps", numbers <= set(members.numbers(member)), True)


def uniform_with_different_topics(target: Target) -> None:
    """With uniform, a partition goes only to members that read its topic, and these have as many as that allows."""
    members, other = Members(target, 3), target.topic(3)
    members.join("a")
    members.read_also("a", other)
    members.join_all("b", subscribed_topic_names=[other.name])
    expect("what b has of the topic that it does not read", members.numbers("b"), [])
    expect("what a has of it", members.numbers("a"), [0, 1, 2])
    expect("the other topic", (members.numbers("a", other), members.numbers("b", other)), ([], [0, 1, 2]))


def range_gives_consecutive_partitions(target: Target) -> None:
    """With range, members have consecutive partitions in the order of their ids, the first ones one more."""
    members = Members(target, 5)
    members.join_all("b", "a", server_assignor="range")
    expect("partitions", (members.numbers("a"), members.numbers("b")), ([0, 1, 2], [3, 4]))


def range_gives_the_same_of_each_topic(target: Target) -> None:
    """With range, members have the same partitions of topics with as many of them."""
    members, other = Members(target, 4), target.topic(4)
    names = [members.topic.name, other.name]
    members.join("a", server_assignor="range", subscribed_topic_names=names)
    members.read_also("a", other)
    members.join_all("b", server_assignor="range", subscribed_topic_names=names)
    for member, numbers in (("a", [0, 1]), ("b", [2, 3])):
        expect(member, (members.numbers(member), members.numbers(member, other)), (numbers, numbers))


def range_orders_static_members_by_their_instance(target: Target) -> None:
    """With range, static members come first, in the order of their `group.instance.id`."""
    members = Members(target, 3)
    members.join("a", server_assignor="range")
    members.join("b", server_assignor="range", instance_id="y")
    members.join("c", server_assignor="range", instance_id="x")
    members.settle()
    expect("partitions", [members.numbers(one) for one in ("c", "b", "a")], [[0], [1], [2]])


def range_leaves_members_without_partitions(target: Target) -> None:
    """With range, members beyond the number of partitions have none, and are as far as the others."""
    members = Members(target, 1)
    members.join_all("a", "b", server_assignor="range")
    expect("partitions", (members.numbers("a"), members.numbers("b")), ([0], []))
    expect("epochs", members.epochs, {"a": 3, "b": 3})


def uniform_leaves_members_without_partitions(target: Target) -> None:
    """With uniform, a member that comes when each has one partition has none, and takes none away."""
    members = Members(target, 2)
    members.join_all("a", "b")
    before = dict(members.held)
    members.join_all("c")
    expect("what the others have", {one: members.held[one] for one in "ab"}, before)
    expect("what c has", members.numbers("c"), [])


def the_majority_chooses(target: Target) -> None:
    """The assignor that most members want is the group's."""
    members = Members(target, 2)
    members.join("a", server_assignor="uniform")
    members.join("b", server_assignor="range")
    members.join("c", server_assignor="range")
    expect("assignor", members.described().assignor_name, "range")
    members.settle()
    expect("partitions", [members.numbers(one) for one in "abc"], [[0], [1], []])


def a_member_without_a_wish_does_not_count(target: Target) -> None:
    """Members without a wish do not outvote one that has one."""
    members = Members(target, 2)
    members.join("a", server_assignor="range")
    members.join_all("b", "c")
    expect("assignor", members.described().assignor_name, "range")


def a_wish_goes_with_its_member(target: Target) -> None:
    """When the member that wanted an assignor has left, the default is the group's again."""
    members = Members(target, 2)
    members.join("a", server_assignor="range")
    members.join("b")
    members.leave("a")
    expect("assignor", members.described().assignor_name, "uniform")


def a_group_without_members_has_the_default(target: Target) -> None:
    """A group that no member is in has the default assignor."""
    group, topic = ready(target)
    joined(target, group, topic, server_assignor="range")
    members = described(target, group)
    expect("assignor", members.assignor_name, "range")
    remove_members(target, group, ("m", None))
    expect("assignor afterwards", described(target, group).assignor_name, "uniform")


def the_assignor_changes_what_members_have(target: Target) -> None:
    """When most members want another assignor, the next assignment is made by that."""
    members = Members(target, 4)
    members.join_all("a", "b")
    for member in ("a", "b"):
        members.beat(member, server_assignor="range")
    members.join_all("c", server_assignor="range")
    expect("partitions", [members.numbers(one) for one in "abc"], [[0, 1], [2], [3]])
