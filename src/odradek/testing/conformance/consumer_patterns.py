"""Regular expressions of consumer groups (KIP-848): which topics they find, and what becomes of them."""

from __future__ import annotations

from typing import Any

from odradek.testing.conformance.administration import delete, delete_group, grow
from odradek.testing.conformance.consumer_members import Members, assigned, beat, described
from odradek.testing.conformance.group_offsets import delete_offsets
from odradek.testing.conformance.target import Target, expect, expect_error


def reads(target: Target, members: Members, pattern: str, topics: set[Any], member: str = "m", **fields: Any) -> None:
    """Let a member join that reads a pattern, and wait until it has partitions of just these topics."""
    members.join(member, **{"subscribed_topic_names": None, "subscribed_topic_regex": pattern, **fields})
    _has(members, topics, member)


def _has(members: Members, topics: set[Any], member: str = "m") -> None:
    members.until(f"{member} has the topics", lambda: set(members.held[member]) == topics, member)


def two_topics_match(target: Target) -> None:
    """A pattern is of RE2, and has the topics whose whole name it matches."""
    members, other = Members(target), target.topic()
    reads(target, members, f"{members.topic.name}|{other.name}", {members.topic.id, other.id})


def a_part_of_a_name_does_not_match(target: Target) -> None:
    """A pattern that matches the beginning of a name, or its end, does not have the topic."""
    members, other = Members(target), target.topic()
    name = members.topic.name
    reads(target, members, f"{name[:-1]}|{name[1:]}|{other.name}", {other.id})


def names_are_told_apart_by_case(target: Target) -> None:
    """A pattern in capitals does not match, but for `(?i)`."""
    members, other = Members(target), target.topic()
    name = members.topic.name
    reads(target, members, f"{name.upper()}|(?i:{other.name.upper()})", {other.id})


def names_and_a_pattern_are_both_read(target: Target) -> None:
    """A member may read topics by name and by pattern."""
    members, other = Members(target), target.topic()
    reads(target, members, other.name, {members.topic.id, other.id}, subscribed_topic_names=[members.topic.name])


def a_pattern_that_matches_nothing(target: Target) -> None:
    """A member whose pattern matches nothing is in the group, and has nothing."""
    members = Members(target)
    answer = members.join("m", subscribed_topic_names=None, subscribed_topic_regex="none-.*")
    expect("assignment", assigned(answer), {})
    expect("members", len(members.described().members), 1)


def members_share_the_topics_of_a_pattern(target: Target) -> None:
    """Members with the same pattern share its topics; the second one need not wait for them."""
    members = Members(target, 4)
    reads(target, members, members.topic.name, {members.topic.id}, "a")
    members.join("b", subscribed_topic_names=None, subscribed_topic_regex=members.topic.name)
    members.settle()
    members.expect_each_once(4)
    expect("counts", [len(members.numbers(one)) for one in "ab"], [2, 2])


def a_pattern_and_a_name_of_two_members(target: Target) -> None:
    """Members that read a topic by pattern and by name share it."""
    members = Members(target, 4)
    reads(target, members, members.topic.name, {members.topic.id}, "a")
    members.join_all("b")
    members.expect_each_once(4)
    expect("counts", [len(members.numbers(one)) for one in "ab"], [2, 2])


def names_may_take_the_place_of_a_pattern(target: Target) -> None:
    """A member that says an empty pattern and names reads only these."""
    members, other = Members(target), target.topic()
    reads(target, members, other.name, {other.id})
    members.beat("m", subscribed_topic_names=[members.topic.name], subscribed_topic_regex="")
    _has(members, {members.topic.id})
    expect("pattern", members.told("m").subscribed_topic_regex, "")


def a_pattern_stays_if_nothing_is_said(target: Target) -> None:
    """A heartbeat without a pattern leaves the member's as it is."""
    members = Members(target)
    reads(target, members, members.topic.name, {members.topic.id})
    members.beat("m", subscribed_topic_names=[])
    members.settle()
    expect("pattern", members.told("m").subscribed_topic_regex, members.topic.name)
    expect("partitions", members.numbers("m"), [0])


def an_invalid_pattern_leaves_the_old_one(target: Target) -> None:
    """A member that says an invalid pattern is refused, and reads what it read."""
    members = Members(target)
    members.join("m")
    for pattern in ("[", "a**", r"\1", "a(?!b)"):
        answer = beat(target, members.group, "m", 2, subscribed_topic_regex=pattern)
        expect_error(pattern, answer.error_code, "INVALID_REGULAR_EXPRESSION")
    members.report("m")
    expect("partitions and pattern", (members.numbers("m"), members.told("m").subscribed_topic_regex), ([0], ""))


def a_pattern_that_other_engines_would_not_end(target: Target) -> None:
    """A pattern that explodes in engines that backtrack is one like any other."""
    members = Members(target)
    pattern = f"(a+)+{'$'}|(x+x+)+y|{members.topic.name}"
    reads(target, members, pattern, {members.topic.id})


def a_deleted_topic_leaves_a_pattern(target: Target) -> None:
    """A topic that a pattern found and that is deleted is taken away, and the rest stays."""
    members, other = Members(target), target.topic()
    reads(target, members, f"{members.topic.name}|{other.name}", {members.topic.id, other.id})
    delete(target, other)
    _has(members, {members.topic.id})


def a_topic_of_a_pattern_grows(target: Target) -> None:
    """Partitions that a topic of a pattern gains are assigned."""
    members = Members(target)
    reads(target, members, members.topic.name, {members.topic.id})
    grow(target, members.topic.name, 3)
    members.until("all partitions are assigned", lambda: members.numbers("m") == [0, 1, 2])


def offsets_of_a_patterns_topic_are_not_deleted(target: Target) -> None:
    """OffsetDelete of a topic that is read by pattern is GROUP_SUBSCRIBED_TO_TOPIC, and of another one is done."""
    members, other = Members(target), target.topic()
    reads(target, members, members.topic.name, {members.topic.id})
    answer = delete_offsets(target, members.group, members.topic, other)
    found = {one.name: one.partitions[0].error_code.name for one in answer.topics}
    expect("errors", found, {members.topic.name: "group_subscribed_to_topic", other.name: "none"})


def a_group_of_patterns_may_be_deleted(target: Target) -> None:
    """When its last member has left, a group with patterns can be deleted."""
    members = Members(target)
    reads(target, members, members.topic.name, {members.topic.id})
    members.leave("m")
    expect_error("error", delete_group(target, members.group), "NONE")
    expect_error("afterwards", described(target, members.group).error_code, "GROUP_ID_NOT_FOUND")
