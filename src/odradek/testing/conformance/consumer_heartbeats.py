"""ConsumerGroupHeartbeat (KIP-848): what each field may be, what a change of it does, and which errors come back."""

from __future__ import annotations

from typing import Any

from odradek.testing.conformance.administration import delete_group
from odradek.testing.conformance.consumer_members import (
    Members,
    alone,
    assigned,
    beat,
    described,
    joined,
    member_of,
    owned,
    ready,
)
from odradek.testing.conformance.target import Target, expect, expect_error


def the_broker_names_a_member_in_v0(target: Target) -> None:
    """In v0 a member may join without an id, and gets the one that the broker made."""
    group, topic = ready(target)
    fields: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topic_partitions": []}
    asked = {"group_id": group, "member_id": "", "member_epoch": 0, "subscribed_topic_names": [topic.name], **fields}
    answer = target.call("ConsumerGroupHeartbeat", 0, **asked)
    expect_error("error", answer.error_code, "NONE")
    expect("there is an id", bool(answer.member_id), True)
    expect("members", [one.member_id for one in described(target, group).members], [answer.member_id])


def a_member_needs_an_id_to_stay_in_v0(target: Target) -> None:
    """In v0, too, a member that stays or leaves says its id: INVALID_REQUEST."""
    group = target.group()
    for epoch in (1, -1):
        answer = target.call("ConsumerGroupHeartbeat", 0, group_id=group, member_id="", member_epoch=epoch)
        expect_error(f"epoch {epoch}", answer.error_code, "INVALID_REQUEST")


def a_member_needs_an_id_in_v1(target: Target) -> None:
    """From v1 on a member chooses its id (KIP-1082): an empty or a blank one is INVALID_REQUEST."""
    for epoch in (0, 1, -1, -2):
        for member in ("", " "):
            answer = beat(target, target.group(), member, epoch, instance_id="i")
            expect_error(f"{member!r} in epoch {epoch}", answer.error_code, "INVALID_REQUEST")


def a_blank_group_id_is_invalid(target: Target) -> None:
    """A group id of spaces is INVALID_REQUEST, as an empty one is."""
    target.group()
    for group in ("", "  "):
        expect_error(f"group {group!r}", beat(target, group, "m").error_code, "INVALID_REQUEST")


def a_blank_instance_id_is_invalid(target: Target) -> None:
    """A `group.instance.id` that is empty or of spaces is INVALID_REQUEST, in each epoch."""
    group = target.group()
    for epoch in (0, 1, -1, -2):
        for instance in ("", " "):
            answer = beat(target, group, "m", epoch, instance_id=instance)
            expect_error(f"{instance!r} in epoch {epoch}", answer.error_code, "INVALID_REQUEST")


def a_blank_rack_is_invalid(target: Target) -> None:
    """A rack that is empty or of spaces is INVALID_REQUEST."""
    group = target.group()
    for rack in ("", " "):
        expect_error(f"rack {rack!r}", beat(target, group, "m", rack_id=rack).error_code, "INVALID_REQUEST")


def a_join_needs_a_rebalance_timeout(target: Target) -> None:
    """A join without a rebalance time-out is INVALID_REQUEST; one of 0 ms is taken."""
    group = target.group()
    expect_error("none", beat(target, group, "m", rebalance_timeout_ms=-1).error_code, "INVALID_REQUEST")
    expect_error("0", beat(target, group, "m", rebalance_timeout_ms=0).error_code, "NONE")


def a_join_has_no_partitions(target: Target) -> None:
    """A join that says partitions, or does not say that it has none, is INVALID_REQUEST, also of a member."""
    group, topic = ready(target)
    for _ in range(2):
        for partitions in (None, owned(topic, 0)):
            answer = beat(target, group, "m", topic_partitions=partitions, subscribed_topic_names=[topic.name])
            expect_error(f"with {partitions}", answer.error_code, "INVALID_REQUEST")
        joined(target, group, topic)


def a_join_needs_topics(target: Target) -> None:
    """A join says names or a pattern, if only empty ones: otherwise it is INVALID_REQUEST."""
    group = target.group()
    for names, regex, wanted in ((None, None, "INVALID_REQUEST"), ([], None, "NONE"), (None, "", "NONE")):
        answer = beat(target, group, "m", subscribed_topic_names=names, subscribed_topic_regex=regex)
        expect_error(f"{names} and {regex!r}", answer.error_code, wanted)
        expect("assignment", assigned(answer), None if wanted != "NONE" else {})


def a_refusal_says_why(target: Target) -> None:
    """An error has a message, no member, no interval and no assignment."""
    answer = beat(target, target.group(), "m", rebalance_timeout_ms=-1)
    expect("there is a message", bool(answer.error_message), True)
    expect("member", (answer.member_id, answer.member_epoch), (None, 0))
    expect("assignment", assigned(answer), None)


def the_interval_is_the_groups(target: Target) -> None:
    """Each answer says how often heartbeats come: `group.consumer.heartbeat.interval.ms`."""
    group, topic = ready(target)
    answer = joined(target, group, topic)
    wanted = target.setting("group.consumer.heartbeat.interval.ms")
    found = answer.heartbeat_interval
    expect("interval", round(found.total_seconds() * 1000), wanted)


def an_unknown_assignor_is_refused_at_any_time(target: Target) -> None:
    """A member that wants an unknown assignor is UNSUPPORTED_ASSIGNOR, also when it stays or leaves."""
    group, _, epoch = alone(target)
    fields: dict[str, Any] = {"server_assignor": "none"}
    for at in (0, epoch, -1):
        expect_error(f"epoch {at}", beat(target, group, "m", at, **fields).error_code, "UNSUPPORTED_ASSIGNOR")
    expect_error("afterwards", beat(target, group, "m", epoch).error_code, "NONE")
    expect_error("in a new group", beat(target, target.group(), "m", **fields).error_code, "UNSUPPORTED_ASSIGNOR")


def leaving_a_group_that_does_not_exist(target: Target) -> None:
    """A member that leaves a group that does not exist gets GROUP_ID_NOT_FOUND."""
    group = target.group()
    for epoch in (-1, -2):
        expect_error(
            f"epoch {epoch}", beat(target, group, "m", epoch, instance_id="i").error_code, "GROUP_ID_NOT_FOUND"
        )


def leaving_twice(target: Target) -> None:
    """A member that has left is UNKNOWN_MEMBER_ID."""
    group, _, _ = alone(target)
    expect_error("first", beat(target, group, "m", -1).error_code, "NONE")
    expect_error("second", beat(target, group, "m", -1).error_code, "UNKNOWN_MEMBER_ID")


def a_deleted_group_is_not_found(target: Target) -> None:
    """A member of a group that was deleted gets GROUP_ID_NOT_FOUND, and may create it again."""
    group, topic, _ = alone(target)
    beat(target, group, "m", -1)
    delete_group(target, group)
    expect_error("heartbeat", beat(target, group, "m", 2).error_code, "GROUP_ID_NOT_FOUND")
    expect("epoch", joined(target, group, topic).member_epoch, 2)


def joining_again_changes_nothing(target: Target) -> None:
    """A member that joins again, as after an error, has the same epoch and its assignment back."""
    group, topic = ready(target, 2)
    for _ in range(2):
        answer = joined(target, group, topic)
        expect("epoch and assignment", (answer.member_epoch, assigned(answer)), (2, {topic.id: [0, 1]}))
    expect("group epoch", described(target, group).group_epoch, 2)


def _in_epoch_3(target: Target) -> Members:
    """Return a group with a member in epoch 3, which has the partitions 0 and 1."""
    members = Members(target, 2)
    members.join("m")
    other = f"{members.group}-none"
    members.beat("m", subscribed_topic_names=[members.topic.name, other])
    expect("epoch", members.epochs["m"], 3)
    return members


def an_answer_may_be_lost(target: Target) -> None:
    """The last epoch is taken from a member that says what it has, no more than is assigned: an answer was lost."""
    members = _in_epoch_3(target)
    for partitions in ([], [0], [0, 1]):
        answer = beat(target, members.group, "m", 2, topic_partitions=owned(members.topic, *partitions))
        expect_error(f"with {partitions}", answer.error_code, "NONE")
        expect("epoch", answer.member_epoch, 3)


def the_last_epoch_with_other_partitions_is_fenced(target: Target) -> None:
    """The last epoch with partitions that the member does not have is FENCED_MEMBER_EPOCH."""
    members = _in_epoch_3(target)
    for partitions in (owned(members.topic, 0, 1, 2), None):
        answer = beat(target, members.group, "m", 2, topic_partitions=partitions)
        expect_error(f"with {partitions}", answer.error_code, "FENCED_MEMBER_EPOCH")


def an_epoch_before_the_last_is_fenced(target: Target) -> None:
    """An epoch before the last one is FENCED_MEMBER_EPOCH, whatever the member has."""
    members = _in_epoch_3(target)
    answer = beat(target, members.group, "m", 1, topic_partitions=owned(members.topic, 0))
    expect_error("error", answer.error_code, "FENCED_MEMBER_EPOCH")


def a_fenced_member_stays_in_the_group(target: Target) -> None:
    """A fenced member is not removed: it joins again, and no assignment changes."""
    members = _in_epoch_3(target)
    answer = beat(target, members.group, "m", 9)
    expect_error("error", answer.error_code, "FENCED_MEMBER_EPOCH")
    again = members.join("m", subscribed_topic_names=[members.topic.name, f"{members.group}-none"])
    expect("epoch and partitions", (again.member_epoch, members.numbers("m")), (3, [0, 1]))


def other_topics_are_a_new_epoch(target: Target) -> None:
    """A member that reads other topics raises the group epoch, and has their partitions."""
    members = Members(target)
    members.join("m")
    other = target.topic(2)
    members.read_also("m", other)
    expect("partitions", (members.numbers("m"), members.numbers("m", other)), ([0], [0, 1]))
    expect("topics", set(members.told("m").subscribed_topic_names), {members.topic.name, other.name})


def the_same_topics_are_no_new_epoch(target: Target) -> None:
    """The same topics in another order, or twice, change nothing."""
    group, topic = ready(target)
    names = [topic.name, f"{group}-none"]
    epoch = beat(target, group, "m", subscribed_topic_names=names).member_epoch
    for again in (names[::-1], names * 2):
        expect_error("error", beat(target, group, "m", epoch, subscribed_topic_names=again).error_code, "NONE")
    expect("epoch", described(target, group).group_epoch, epoch)


def a_member_may_read_nothing_any_more(target: Target) -> None:
    """A member that reads no topics any more stays in the group, and has to give up what it has."""
    members = Members(target, 2)
    members.join("m")
    answer = members.beat("m", subscribed_topic_names=[])
    expect("assignment", assigned(answer), {})
    members.settle()
    expect("epoch and members", (members.epochs["m"], len(members.described().members)), (3, 1))


def _is_told_without_a_new_epoch(target: Target, field: str, told: str, value: Any) -> None:
    members = Members(target)
    members.join("m")
    members.beat("m", **{field: value})
    if told:
        expect(told, getattr(members.told("m"), told), value)
    expect("group epoch", members.described().group_epoch, 2)


def another_rack_is_no_new_epoch(target: Target) -> None:
    """A member's new rack is described, and changes no epoch."""
    _is_told_without_a_new_epoch(target, "rack_id", "rack_id", "elsewhere")


def another_assignor_is_a_new_epoch(target: Target) -> None:
    """Another assignor that most members want begins an epoch; one that a member alone wants does not."""
    target.needs_newest()
    members = Members(target)
    members.join("m")
    found = []
    for wanted in ("uniform", "range", "range", None):
        members.beat("m", server_assignor=wanted)
        group = members.described()
        found.append((group.assignor_name, group.group_epoch))
    expect("assignors and epochs", found, [("uniform", 2), *[("range", 3)] * 3])


def another_rebalance_timeout_is_no_new_epoch(target: Target) -> None:
    """Another rebalance time-out changes no epoch."""
    _is_told_without_a_new_epoch(target, "rebalance_timeout_ms", "", 5_000)


def another_client_id_is_told(target: Target) -> None:
    """A member is described by the client id of its last heartbeat, and by the host of its connection."""
    group, _, epoch = alone(target)
    with target.connect(client_id="other") as client:
        beat(target, group, "m", epoch, client=client)
    found = member_of(target, group, "m")
    expect("client", found.client_id, "other")
    expect("its host begins with a slash", found.client_host[:1], "/")


def what_is_not_said_stays(target: Target) -> None:
    """A heartbeat that says null, or -1, of a field leaves it as it was."""
    group, topic = ready(target)
    epoch = joined(target, group, topic, rack_id="r", server_assignor="range").member_epoch
    beat(target, group, "m", epoch)
    found = member_of(target, group, "m")
    expect("member", (found.rack_id, list(found.subscribed_topic_names)), ("r", [topic.name]))
    expect("assignor", described(target, group).assignor_name, "range")
