"""Looking at consumer groups (KIP-848) and ending them: ListGroups, both descriptions, DeleteGroups, LeaveGroup."""

from __future__ import annotations

from typing import Any

from odradek.testing.conformance.administration import delete, delete_group, remove_members, set_group
from odradek.testing.conformance.consumer_members import Members, alone, beat, described, joined, member_of, ready
from odradek.testing.conformance.groups import beat as classic_beat
from odradek.testing.conformance.groups import stable_member
from odradek.testing.conformance.target import Target, expect, expect_error

_NOT_ASKED = -(1 << 31)


def _listed(target: Target, group: str, version: int = 5, **filters: Any) -> list[Any]:
    return [one for one in target.call("ListGroups", version, **filters).groups if one.group_id == group]


def _states(target: Target, group: str, *states: str) -> list[str]:
    return [one.group_state for one in _listed(target, group, states_filter=list(states))]


def groups_are_listed_by_each_state(target: Target) -> None:
    """A group is listed as Assigning, Reconciling, Stable and Empty, among those of its state only."""
    group, topic = ready(target, 2)
    set_group(target, group, consumer_assignment_interval_ms="15000")
    joined(target, group, topic, "a")
    joined(target, group, topic, "b")
    expect("Assigning", (_states(target, group, "assigning"), _states(target, group, "Stable")), (["Assigning"], []))
    members = Members(target, 2)
    members.join("a")
    expect("Stable", _states(target, members.group, "STABLE", "empty"), ["Stable"])
    members.join("b")
    found = _states(target, members.group, "Reconciling"), _states(target, members.group, "Stable")
    expect("Reconciling", found, (["Reconciling"], []))
    members.leave("a")
    members.leave("b")
    expect("Empty", (_states(target, members.group, "Empty"), _states(target, members.group, "dead")), (["Empty"], []))


def before_v5_groups_have_no_type(target: Target) -> None:
    """In v4 a consumer group is listed with its state, in v3 by its protocol type alone."""
    group, _, _ = alone(target)
    expect("v4", [(one.protocol_type, one.group_state) for one in _listed(target, group, 4)], [("consumer", "Stable")])
    expect("v3", [one.protocol_type for one in _listed(target, group, 3)], ["consumer"])


def groups_are_listed_by_several_types(target: Target) -> None:
    """Groups are listed by more types than one, in any case."""
    members, classic = Members(target), target.group()
    members.join("m")
    stable_member(target, classic)

    def listed(*types: str) -> list[bool]:
        return [bool(_listed(target, one, types_filter=list(types))) for one in (members.group, classic)]

    expect("both", listed("CONSUMER", "Classic"), [True, True])
    expect("consumer", listed("consumer"), [True, False])
    expect("classic", listed("classic"), [False, True])
    expect("share", listed("share"), [False, False])


def a_type_and_a_state_both_count(target: Target) -> None:
    """A group is listed if it is of a type and of a state that are asked for."""
    group, _, _ = alone(target)
    for types, states in ((["consumer"], ["Empty"]), (["classic"], ["Stable"])):
        expect(f"{types} and {states}", _listed(target, group, types_filter=types, states_filter=states), [])
    both = _listed(target, group, types_filter=["consumer"], states_filter=["Stable"])
    expect("both", len(both), 1)


def several_groups_are_described_in_their_order(target: Target) -> None:
    """ConsumerGroupDescribe answers each group that is asked for, an unknown one with GROUP_ID_NOT_FOUND."""
    members, none = Members(target), target.group()
    members.join("m")
    answer = target.call("ConsumerGroupDescribe", 1, group_ids=[none, members.group])
    found = {one.group_id: one.error_code.name for one in answer.groups}
    expect("errors", found, {none: "group_id_not_found", members.group: "none"})


def a_group_that_is_not_found_has_a_message(target: Target) -> None:
    """ConsumerGroupDescribe answers an unknown group with a message, no members and no epochs."""
    found = described(target, target.group())
    expect("there is a message", bool(found.error_message), True)
    expect("group", (found.group_state, found.group_epoch, found.assignment_epoch, len(found.members)), ("", 0, 0, 0))


def operations_are_told_if_asked(target: Target) -> None:
    """The operations that are allowed on a group are shown only to clients that ask."""
    group, _, _ = alone(target)
    expect("not asked for", described(target, group).authorized_operations, _NOT_ASKED)
    asked = target.call("ConsumerGroupDescribe", 1, group_ids=[group], include_authorized_operations=True).groups[0]
    # Read, delete, describe, describe configs, alter configs.
    expect("asked for", asked.authorized_operations, 0b110101001000)


def v0_describes_without_the_type_of_members(target: Target) -> None:
    """ConsumerGroupDescribe v0 has all but the type of members."""
    group, _, _ = alone(target)
    found = target.call("ConsumerGroupDescribe", 0, group_ids=[group]).groups[0]
    expect("member", [(one.member_id, one.member_epoch) for one in found.members], [("m", 2)])


def all_members_are_described(target: Target) -> None:
    """ConsumerGroupDescribe has each member, with its own topics; one that reads none raises no epoch."""
    members = Members(target, 2)
    members.join_all("a", "b")
    members.join("c", subscribed_topic_names=[])
    found = {one.member_id: (one.member_epoch, len(one.subscribed_topic_names)) for one in members.described().members}
    expect("members", found, {"a": (3, 1), "b": (3, 1), "c": (3, 0)})


def an_assignment_has_topics_that_exist(target: Target) -> None:
    """ConsumerGroupDescribe tells no partitions of a topic that was deleted."""
    members = Members(target)
    members.join("m")
    delete(target, members.topic)
    target.until("it is told no more", lambda: not members.told("m").assignment.topic_partitions)


# -- groups are deleted


def groups_that_cannot_be_deleted(target: Target) -> None:
    """DeleteGroups answers each group: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, or that it is deleted."""
    used, empty, none = Members(target), Members(target), target.group()
    used.join("m")
    empty.join("m")
    empty.leave("m")
    answer = target.call("DeleteGroups", 2, groups_names=[used.group, none, empty.group])
    found = {one.group_id: one.error_code.name for one in answer.results}
    wanted = {used.group: "non_empty_group", none: "group_id_not_found", empty.group: "none"}
    expect("errors", found, wanted)


def a_deleted_group_is_not_listed(target: Target) -> None:
    """A group that was deleted is not listed, and begins with epoch 1 when it is recreated."""
    members = Members(target)
    for _ in range(2):
        members.join("m")
        expect("epoch", members.epochs["m"], 2)
        members.leave("m")
        delete_group(target, members.group)
        expect("listed", _listed(target, members.group), [])


def a_member_that_is_away_is_a_member(target: Target) -> None:
    """A group whose only static member is away is NON_EMPTY_GROUP."""
    members = Members(target)
    members.join("a", instance_id="i")
    members.leave("a", -2, instance_id="i")
    expect_error("error", delete_group(target, members.group), "NON_EMPTY_GROUP")


# -- LeaveGroup, by which administrators remove members


def _removed(target: Target, members: Members, *named: tuple[str, str | None]) -> list[tuple[str, str | None, str]]:
    answers = remove_members(target, members.group, *named)
    return [(one.member_id, one.group_instance_id, one.error_code.name) for one in answers]


def administrators_remove_members(target: Target) -> None:
    """LeaveGroup removes a member by its id; what it had goes to the others, in the next epoch."""
    members = Members(target, 4)
    members.join_all("a", "b")
    expect("answer", _removed(target, members, ("a", None)), [("a", None, "none")])
    expect_error("heartbeat", beat(target, members.group, "a", 3).error_code, "UNKNOWN_MEMBER_ID")
    del members.epochs["a"], members.held["a"]
    members.settle()
    expect("epoch and partitions of b", (members.epochs["b"], members.numbers("b")), (4, [0, 1, 2, 3]))


def administrators_remove_static_members(target: Target) -> None:
    """LeaveGroup removes a static member by its instance alone, or with its id."""
    members = Members(target)
    members.join("a", instance_id="i")
    members.join("b", instance_id="j")
    expect("answers", _removed(target, members, ("", "i"), ("b", "j")), [("", "i", "none"), ("b", "j", "none")])
    expect("state", members.described().group_state, "Empty")


def administrators_remove_a_member_that_is_away(target: Target) -> None:
    """LeaveGroup removes a static member that has left for a while."""
    members = Members(target)
    members.join("a", instance_id="i")
    members.leave("a", -2, instance_id="i")
    expect("answer", _removed(target, members, ("", "i")), [("", "i", "none")])
    expect("members", len(members.described().members), 0)


def unknown_members_are_not_removed(target: Target) -> None:
    """LeaveGroup of a stranger is UNKNOWN_MEMBER_ID, with another's instance FENCED_INSTANCE_ID."""
    members = Members(target)
    members.join("a", instance_id="i")
    named = (("none", None), ("", None), ("", "none"), ("none", "i"))
    codes = ["unknown_member_id", "unknown_member_id", "unknown_member_id", "fenced_instance_id"]
    expect("errors", [code for _, _, code in _removed(target, members, *named)], codes)
    expect("members", len(members.described().members), 1)


def several_members_are_one_epoch(target: Target) -> None:
    """LeaveGroup of several members raises the group epoch once, and removes those that exist."""
    members = Members(target, 2)
    members.join_all("a", "b", "c")
    epoch = members.described().group_epoch
    found = _removed(target, members, ("a", None), ("none", None), ("b", None))
    expect("errors", [code for _, _, code in found], ["none", "unknown_member_id", "none"])
    told = members.described()
    expect("epoch and members", (told.group_epoch, [one.member_id for one in told.members]), (epoch + 1, ["c"]))


def leaving_in_an_old_version(target: Target) -> None:
    """LeaveGroup v2 removes a member of a consumer group, too."""
    members = Members(target)
    members.join("a")
    answer = target.call("LeaveGroup", 2, group_id=members.group, member_id="a")
    expect_error("error", answer.error_code, "NONE")
    expect("state", members.described().group_state, "Empty")


# -- the classic protocol


def a_classic_heartbeat_is_of_no_member(target: Target) -> None:
    """Heartbeat of a member of the consumer protocol is UNKNOWN_MEMBER_ID."""
    group, _, epoch = alone(target)
    for member in ("m", "none"):
        expect_error(member, classic_beat(target, group, member, epoch), "UNKNOWN_MEMBER_ID")


def a_classic_sync_is_of_no_member(target: Target) -> None:
    """SyncGroup of a member of the consumer protocol is UNKNOWN_MEMBER_ID."""
    group, _, epoch = alone(target)
    answer = target.call("SyncGroup", 3, group_id=group, generation_id=epoch, member_id="m", assignments=[])
    expect_error("error", answer.error_code, "UNKNOWN_MEMBER_ID")
    expect("epoch", member_of(target, group, "m").member_epoch, epoch)
