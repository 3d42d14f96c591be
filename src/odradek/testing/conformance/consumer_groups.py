"""Groups of the consumer protocol (KIP-848): joining, epochs, assignments, patterns, static members, and errors."""

from __future__ import annotations

from typing import Any

from odradek.testing.conformance.administration import delete_group, grow, remove_members
from odradek.testing.conformance.consumer_members import (
    alone,
    assigned,
    beat,
    described,
    joined,
    member_of,
    owned,
    ready,
)
from odradek.testing.conformance.group_offsets import PendingOffsets, commit_of, delete_offsets, fetch_for
from odradek.testing.conformance.groups import join, stable_member
from odradek.testing.conformance.target import Target, Topic, expect, expect_error


def the_first_member_gets_all(target: Target) -> None:
    """The first member has all partitions with its first heartbeat, in epoch 2."""
    group, topic = ready(target, 3)
    answer = joined(target, group, topic)
    expect("epoch and member", (answer.member_epoch, answer.member_id), (2, "m"))
    expect("assignment", assigned(answer), {topic.id: [0, 1, 2]})


def a_heartbeat_that_changes_nothing_has_no_assignment(target: Target) -> None:
    """A heartbeat that says nothing new is answered the epoch, and no assignment."""
    group, _, epoch = alone(target)
    answer = beat(target, group, "m", epoch)
    expect("answer", (int(answer.error_code), answer.member_epoch, assigned(answer)), (0, epoch, None))


def a_full_heartbeat_has_the_assignment(target: Target) -> None:
    """A heartbeat that says all is answered the assignment."""
    group, topic, epoch = alone(target, 2)
    fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [topic.name]}
    answer = beat(target, group, "m", epoch, topic_partitions=owned(topic, 0, 1), **fields)
    expect("assignment", assigned(answer), {topic.id: [0, 1]})


def partitions_move_after_they_were_given_up(target: Target) -> None:
    """A second member gets its partitions when the first one no longer reports them."""
    group, topic = ready(target, 4)
    joined(target, group, topic, "a")
    second = target.until("a second epoch", lambda: _assigned_epoch(target, group, topic))
    first = beat(target, group, "a", 2, topic_partitions=owned(topic, 0, 1, 2, 3))
    kept = (assigned(first) or {}).get(topic.id, [])
    expect("partitions that are kept, and the epoch", (len(kept), first.member_epoch), (2, 2))
    expect("waits", assigned(beat(target, group, "b", second)), None)
    answer = beat(target, group, "a", 2, topic_partitions=owned(topic, *kept))
    expect("epoch afterwards", answer.member_epoch, second)
    found = assigned(beat(target, group, "b", second))
    expect("gets", found, {topic.id: sorted({0, 1, 2, 3} - set(kept))})
    expect("state", described(target, group).group_state, "Stable")


def _assigned_epoch(target: Target, group: str, topic: Topic) -> int | None:
    """Let b join until an assignment was made for it: Kafka makes one a second at most."""
    answer = joined(target, group, topic, "b")
    return int(answer.member_epoch) if described(target, group).assignment_epoch > 2 else None


def a_member_that_leaves_leaves_an_empty_group(target: Target) -> None:
    """A member that leaves with epoch -1 is removed; the group is Empty."""
    group, _, _ = alone(target)
    answer = beat(target, group, "m", -1)
    expect("answer", (int(answer.error_code), answer.member_epoch, answer.member_id), (0, -1, "m"))
    found = described(target, group)
    expect("group", (found.group_state, found.group_epoch, len(found.members)), ("Empty", 3, 0))
    expect_error("heartbeat", beat(target, group, "m", 2).error_code, "UNKNOWN_MEMBER_ID")


def a_greater_epoch_is_fenced(target: Target) -> None:
    """An epoch that the member does not have yet is FENCED_MEMBER_EPOCH."""
    group, _, epoch = alone(target)
    expect_error("error", beat(target, group, "m", epoch + 1).error_code, "FENCED_MEMBER_EPOCH")


def a_smaller_epoch_is_fenced(target: Target) -> None:
    """An old epoch without the partitions that the member has is FENCED_MEMBER_EPOCH."""
    group, _, epoch = alone(target)
    expect_error("error", beat(target, group, "m", epoch - 1).error_code, "FENCED_MEMBER_EPOCH")


def an_unknown_member_is_refused(target: Target) -> None:
    """A member that has not joined is UNKNOWN_MEMBER_ID."""
    group, _, _ = alone(target)
    for epoch in (1, -1):
        expect_error(f"epoch {epoch}", beat(target, group, "none", epoch).error_code, "UNKNOWN_MEMBER_ID")


def an_unknown_group_is_not_found(target: Target) -> None:
    """A heartbeat that does not join needs a group: GROUP_ID_NOT_FOUND."""
    answer = beat(target, target.group(), "m", 1)
    expect_error("error", answer.error_code, "GROUP_ID_NOT_FOUND")


def an_epoch_below_minus_2_is_invalid(target: Target) -> None:
    """An epoch below -2 is INVALID_REQUEST, and so is -2 of a member that is not static."""
    group = target.group()
    for epoch in (-2, -3):
        expect_error(f"epoch {epoch}", beat(target, group, "m", epoch).error_code, "INVALID_REQUEST")


def a_pattern_finds_its_topics(target: Target) -> None:
    """A pattern's topics are assigned with one of the next heartbeats."""
    group, topic = ready(target, 2)
    pattern = f"{topic.name[:-1]}[{topic.name[-1]}]"
    epoch = beat(target, group, "m", subscribed_topic_names=None, subscribed_topic_regex=pattern).member_epoch

    def look() -> Any:
        answer = beat(target, group, "m", described_epoch())
        return assigned(answer) or None

    def described_epoch() -> int:
        return int(member_of(target, group, "m").member_epoch)

    expect("epoch", epoch, 1)
    expect("assignment", target.until("an assignment", look), {topic.id: [0, 1]})
    expect("pattern", member_of(target, group, "m").subscribed_topic_regex, pattern)


def a_pattern_that_is_not_valid_is_refused(target: Target) -> None:
    """A pattern that RE2 does not take is INVALID_REGULAR_EXPRESSION."""
    for pattern in ("(", "a{1001}", "(?=a)", "*"):
        answer = beat(target, target.group(), "m", subscribed_topic_names=None, subscribed_topic_regex=pattern)
        expect_error(pattern, answer.error_code, "INVALID_REGULAR_EXPRESSION")


def a_topic_that_does_not_exist_is_taken(target: Target) -> None:
    """A member may name a topic that does not exist; it has nothing."""
    group = target.group()
    answer = beat(target, group, "m", subscribed_topic_names=[f"{group}-none"])
    expect("answer", (int(answer.error_code), answer.member_epoch, assigned(answer)), (0, 2, {}))


def a_topic_that_is_made_is_assigned(target: Target) -> None:
    """When a topic gets more partitions, the epoch grows and the member gets them."""
    group, topic, epoch = alone(target, 1)
    grow(target, topic.name, 3)

    def look() -> Any:
        answer = beat(target, group, "m", int(member_of(target, group, "m").member_epoch))
        return assigned(answer)

    expect("assignment", target.until("an assignment", look), {topic.id: [0, 1, 2]})
    expect("epoch", member_of(target, group, "m").member_epoch, epoch + 1)


def a_static_member_comes_back(target: Target) -> None:
    """A static member that left with epoch -2 gets its partitions back under another id."""
    group, topic = ready(target, 2)
    joined(target, group, topic, "a", instance_id="i")
    left = beat(target, group, "a", -2, instance_id="i")
    expect("answer", (int(left.error_code), left.member_epoch), (0, -2))
    answer = joined(target, group, topic, "b", instance_id="i")
    expect("epoch and assignment", (answer.member_epoch, assigned(answer)), (2, {topic.id: [0, 1]}))
    found = described(target, group)
    expect("members", [(one.member_id, one.instance_id) for one in found.members], [("b", "i")])
    expect("epoch", found.group_epoch, 2)


def an_instance_id_in_use_is_unreleased(target: Target) -> None:
    """A `group.instance.id` whose member has not left is UNRELEASED_INSTANCE_ID for another one."""
    group, topic = ready(target)
    joined(target, group, topic, "a", instance_id="i")
    answer = beat(target, group, "b", subscribed_topic_names=[topic.name], instance_id="i")
    expect_error("error", answer.error_code, "UNRELEASED_INSTANCE_ID")


def a_static_member_is_fenced_by_its_successor(target: Target) -> None:
    """The old id of a static member is FENCED_INSTANCE_ID; an unknown instance is UNKNOWN_MEMBER_ID."""
    group, topic = ready(target)
    joined(target, group, topic, "a", instance_id="i")
    beat(target, group, "a", -2, instance_id="i")
    joined(target, group, topic, "b", instance_id="i")
    expect_error("old id", beat(target, group, "a", 2, instance_id="i").error_code, "FENCED_INSTANCE_ID")
    expect_error("instance", beat(target, group, "b", 2, instance_id="j").error_code, "UNKNOWN_MEMBER_ID")


def a_member_commits_in_its_epoch(target: Target) -> None:
    """A commit in the member's epoch is taken; a greater one is STALE_MEMBER_EPOCH."""
    group, topic, epoch = alone(target)
    expect_error("its epoch", commit_of(target, group, topic, epoch, version=9), "NONE")
    expect_error("a greater epoch", commit_of(target, group, topic, epoch + 1, version=9), "STALE_MEMBER_EPOCH")


def a_commit_of_before_the_assignment_is_stale(target: Target) -> None:
    """A commit in an epoch before the member got the partition is STALE_MEMBER_EPOCH."""
    group, topic, epoch = alone(target)
    expect_error("error", commit_of(target, group, topic, epoch - 1, version=9), "STALE_MEMBER_EPOCH")


def others_may_not_commit(target: Target) -> None:
    """While a group has members, a commit of another one, or of none, is UNKNOWN_MEMBER_ID."""
    group, topic, epoch = alone(target)
    expect_error("another", commit_of(target, group, topic, epoch, "none", version=9), "UNKNOWN_MEMBER_ID")
    expect_error("no member", commit_of(target, group, topic, -1, "", version=9), "UNKNOWN_MEMBER_ID")


def an_old_commit_is_unsupported(target: Target) -> None:
    """A member must commit with OffsetCommit v9 at least: UNSUPPORTED_VERSION."""
    group, topic, epoch = alone(target)
    expect_error("error", commit_of(target, group, topic, epoch, version=8), "UNSUPPORTED_VERSION")


def a_fetch_of_offsets_checks_the_epoch(target: Target) -> None:
    """OffsetFetch v9 of a member checks it: STALE_MEMBER_EPOCH, UNKNOWN_MEMBER_ID; without a member it is taken."""
    group, topic, epoch = alone(target)
    commit_of(target, group, topic, epoch, version=9)
    for member, known, wanted in (
        ("m", epoch, "NONE"),
        ("m", epoch - 1, "STALE_MEMBER_EPOCH"),
        ("m", epoch + 1, "STALE_MEMBER_EPOCH"),
        ("none", epoch, "UNKNOWN_MEMBER_ID"),
        (None, -1, "NONE"),
    ):
        found = fetch_for(target, group, topic, version=9, member_id=member, member_epoch=known)
        expect_error(f"{member} in {known}", found.error_code, wanted)


def a_transaction_commits_in_the_members_epoch(target: Target) -> None:
    """TxnOffsetCommit of a member checks its epoch: ILLEGAL_GENERATION; without a member it is taken."""
    group, topic, epoch = alone(target)
    offsets = PendingOffsets(target, group, topic)
    for member, known, wanted in (
        ("m", epoch + 1, "ILLEGAL_GENERATION"),
        ("m", epoch - 1, "ILLEGAL_GENERATION"),
        ("none", epoch, "UNKNOWN_MEMBER_ID"),
        ("m", epoch, "NONE"),
        ("", -1, "NONE"),
    ):
        offsets.commit(member, known, wanted)
    offsets.transaction.end(committed=False)


def offsets_of_what_is_read_are_not_deleted(target: Target) -> None:
    """OffsetDelete of a topic that a member reads is GROUP_SUBSCRIBED_TO_TOPIC."""
    group, topic, epoch = alone(target)
    commit_of(target, group, topic, epoch, version=9)
    answer = delete_offsets(target, group, topic)
    expect_error("error", answer.topics[0].partitions[0].error_code, "GROUP_SUBSCRIBED_TO_TOPIC")


def a_group_with_members_is_not_deleted(target: Target) -> None:
    """DeleteGroups of a group with members is NON_EMPTY_GROUP; afterwards it can be deleted."""
    group, _, _ = alone(target)
    expect_error("with a member", delete_group(target, group), "NON_EMPTY_GROUP")
    beat(target, group, "m", -1)
    expect_error("without", delete_group(target, group), "NONE")
    expect_error("afterwards", described(target, group).error_code, "GROUP_ID_NOT_FOUND")


def it_is_listed_by_its_type(target: Target) -> None:
    """ListGroups v5 lists it as of the type consumer, by the state, too."""
    group, _, _ = alone(target)

    def listed(**filters: Any) -> list[tuple[str, str, str]]:
        found = target.call("ListGroups", 5, **filters).groups
        return [(one.group_type, one.group_state, one.protocol_type) for one in found if one.group_id == group]

    expect("listed", listed(), [("consumer", "Stable", "consumer")])
    expect("by its type", listed(types_filter=["Consumer"], states_filter=["stable"]), listed())
    expect("by another type", listed(types_filter=["classic"]), [])


def it_is_no_classic_group(target: Target) -> None:
    """DescribeGroups v6 does not find it: GROUP_ID_NOT_FOUND; before, it is Dead."""
    group, _, _ = alone(target)
    found = target.call("DescribeGroups", 6, groups=[group]).groups[0]
    expect_error("error", found.error_code, "GROUP_ID_NOT_FOUND")
    found = target.call("DescribeGroups", 5, groups=[group]).groups[0]
    expect("before", (int(found.error_code), found.group_state), (0, "Dead"))


def a_classic_group_is_no_consumer_group(target: Target) -> None:
    """ConsumerGroupDescribe of a classic group is GROUP_ID_NOT_FOUND."""
    group = target.group()
    stable_member(target, group)
    expect_error("error", described(target, group).error_code, "GROUP_ID_NOT_FOUND")


def an_empty_group_becomes_classic(target: Target) -> None:
    """A classic member may join a consumer group that has no members."""
    group, _, _ = alone(target)
    beat(target, group, "m", -1)
    expect_error("error", join(target, group).error_code, "MEMBER_ID_REQUIRED")
    # The answer to the join does not wait until the change is committed, which a description asks.
    target.until("no consumer group", lambda: described(target, group).error_code or None)
    expect_error("described", described(target, group).error_code, "GROUP_ID_NOT_FOUND")


def an_empty_classic_group_becomes_a_consumer_group(target: Target) -> None:
    """A member may join a classic group that has no members."""
    group, topic = ready(target)
    member = stable_member(target, group)
    remove_members(target, group, (member.member_id, None))
    expect("epoch", joined(target, group, topic).member_epoch, 2)


def the_description_has_all(target: Target) -> None:
    """ConsumerGroupDescribe tells a group's epochs, and of each member what it has and is to get."""
    group, topic = ready(target, 2)
    joined(target, group, topic, rack_id="r", instance_id="i")
    found = described(target, group)
    expect_error("error", found.error_code, "NONE")
    expect("epochs", (found.group_state, found.group_epoch, found.assignment_epoch), ("Stable", 2, 2))
    member = found.members[0]
    expect("member", (member.member_id, member.instance_id, member.rack_id, member.member_epoch), ("m", "i", "r", 2))
    expect("client", (member.client_id, member.member_type), ("odradek-conformance", 1))
    expect("topics", (list(member.subscribed_topic_names), member.subscribed_topic_regex), ([topic.name], ""))
    for one in (member.assignment, member.target_assignment):
        partitions = [(part.topic_id, part.topic_name, sorted(part.partitions)) for part in one.topic_partitions]
        expect("partitions", partitions, [(topic.id, topic.name, [0, 1])])


def an_empty_group_id_is_invalid_to_describe(target: Target) -> None:
    """ConsumerGroupDescribe of an empty id is INVALID_GROUP_ID."""
    expect_error("error", described(target, "").error_code, "INVALID_GROUP_ID")
