"""Classic groups: joining, syncing, static members, and the errors that a member can cause."""

from __future__ import annotations

from typing import Any

from odradek.testing.conformance.target import Target, UnexpectedError, expect, expect_error

_NOT_ASKED = -(1 << 31)


def join(target: Target, group: str, version: int = 5, **fields: Any) -> Any:
    """Ask to join a group."""
    protocols = fields.pop("protocols", [{"name": "range", "metadata": b"m"}])
    return target.call("JoinGroup", version, group_id=group, protocols=protocols, **{"member_id": "", **fields})


def _joined(target: Target, group: str, **fields: Any) -> Any:
    """Join as the only member, with the id that the coordinator gives."""
    first = join(target, group, **fields)
    if first.error_code.name != "member_id_required":
        expect_error("JoinGroup", first.error_code, "NONE")
        return first
    second = join(target, group, **{**fields, "member_id": first.member_id})
    expect_error("JoinGroup", second.error_code, "NONE")
    return second


def stable_member(target: Target, group: str, **fields: Any) -> Any:
    """Join a group as its only member, and sync; the answer to JoinGroup."""
    member = _joined(target, group, **fields)
    expect_error("SyncGroup", _sync(target, group, member).error_code, "NONE")
    return member


def _sync(target: Target, group: str, member: Any, *, generation: int | None = None, **fields: Any) -> Any:
    assignments = [{"member_id": member.member_id, "assignment": b"a"}]
    at = member.generation_id if generation is None else generation
    return target.call(
        "SyncGroup", 3, group_id=group, generation_id=at, member_id=member.member_id, assignments=assignments, **fields
    )


def beat(target: Target, group: str, member: str, generation: int, **fields: Any) -> int:
    """Send a heartbeat; its error."""
    beat = target.call("Heartbeat", 3, group_id=group, generation_id=generation, member_id=member, **fields)
    return int(beat.error_code)


def described(target: Target, group: str) -> Any:
    """Return what DescribeGroups tells of a group."""
    return target.call("DescribeGroups", 5, groups=[group]).groups[0]


def _listed(target: Target, group: str, version: int, **filters: Any) -> list[Any]:
    return [one for one in target.call("ListGroups", version, **filters).groups if one.group_id == group]


def the_first_join_is_told_its_member_id(target: Target) -> None:
    """From v4 on a new member gets its id with MEMBER_ID_REQUIRED, and joins again with it (KIP-394)."""
    group = target.group()
    first = join(target, group)
    expect_error("error", first.error_code, "MEMBER_ID_REQUIRED")
    second = join(target, group, member_id=first.member_id)
    expect_error("error", second.error_code, "NONE")
    expect("member id", second.member_id, first.member_id)


def the_only_member_leads(target: Target) -> None:
    """The only member is the leader of generation 1, and gets the list of members."""
    member = _joined(target, target.group())
    expect("leader and generation", (member.leader, member.generation_id), (member.member_id, 1))
    expect("members", [(one.member_id, one.metadata) for one in member.members], [(member.member_id, b"m")])


def the_leaders_assignment_comes_back(target: Target) -> None:
    """A SyncGroup of the leader is answered by its own assignment, and the group is stable."""
    group = target.group()
    member = _joined(target, group)
    expect("assignment", _sync(target, group, member).assignment, b"a")
    found = described(target, group)
    expect("state", (found.group_state, found.protocol_type, found.protocol_data), ("Stable", "consumer", "range"))
    expect("assigned", [one.member_assignment for one in found.members], [b"a"])


def an_empty_group_id_is_invalid(target: Target) -> None:
    """A group must have an id to be joined: INVALID_GROUP_ID."""
    target.group()
    expect_error("error", join(target, "").error_code, "INVALID_GROUP_ID")


def a_session_timeout_below_the_least_is_invalid(target: Target) -> None:
    """A session time-out below `group.min.session.timeout.ms` is INVALID_SESSION_TIMEOUT."""
    found = join(target, target.group(), session_timeout_ms=1)
    expect_error("error", found.error_code, "INVALID_SESSION_TIMEOUT")


def a_session_timeout_above_the_most_is_invalid(target: Target) -> None:
    """A session time-out above `group.max.session.timeout.ms` is INVALID_SESSION_TIMEOUT."""
    found = join(target, target.group(), session_timeout_ms=(1 << 31) - 1)
    expect_error("error", found.error_code, "INVALID_SESSION_TIMEOUT")


def an_unknown_member_cannot_join(target: Target) -> None:
    """A member id that the group never gave is UNKNOWN_MEMBER_ID."""
    expect_error("error", join(target, target.group(), member_id="nobody").error_code, "UNKNOWN_MEMBER_ID")


def another_protocol_type_is_inconsistent(target: Target) -> None:
    """A member of another protocol type is INCONSISTENT_GROUP_PROTOCOL."""
    group = target.group()
    stable_member(target, group)
    found = join(target, group, protocol_type="connect")
    expect_error("error", found.error_code, "INCONSISTENT_GROUP_PROTOCOL")


def no_common_protocol_is_inconsistent(target: Target) -> None:
    """A member that has no protocol in common with the others is INCONSISTENT_GROUP_PROTOCOL."""
    group = target.group()
    stable_member(target, group)
    found = join(target, group, protocols=[{"name": "other", "metadata": b""}])
    expect_error("error", found.error_code, "INCONSISTENT_GROUP_PROTOCOL")


def no_protocols_are_inconsistent(target: Target) -> None:
    """A member without protocols is INCONSISTENT_GROUP_PROTOCOL."""
    expect_error("error", join(target, target.group(), protocols=[]).error_code, "INCONSISTENT_GROUP_PROTOCOL")


def a_heartbeat_of_a_member(target: Target) -> None:
    """A heartbeat of a member of a stable group is no error."""
    group = target.group()
    member = stable_member(target, group)
    expect_error("error", beat(target, group, member.member_id, 1), "NONE")


def a_heartbeat_of_another_generation(target: Target) -> None:
    """A heartbeat of another generation is ILLEGAL_GENERATION."""
    group = target.group()
    member = stable_member(target, group)
    expect_error("error", beat(target, group, member.member_id, 7), "ILLEGAL_GENERATION")


def a_sync_of_another_generation(target: Target) -> None:
    """A SyncGroup of another generation is ILLEGAL_GENERATION."""
    group = target.group()
    member = _joined(target, group)
    expect_error("error", _sync(target, group, member, generation=7).error_code, "ILLEGAL_GENERATION")


def a_sync_after_leaving(target: Target) -> None:
    """A SyncGroup of a member that is no longer in the group is UNKNOWN_MEMBER_ID."""
    group = target.group()
    member = stable_member(target, group)
    target.call("LeaveGroup", 2, group_id=group, member_id=member.member_id)
    expect_error("error", _sync(target, group, member).error_code, "UNKNOWN_MEMBER_ID")


def a_group_without_members_is_empty(target: Target) -> None:
    """After its last member has left, a group is empty, and keeps its protocol type."""
    group = target.group()
    member = stable_member(target, group)
    left = target.call("LeaveGroup", 2, group_id=group, member_id=member.member_id)
    expect_error("error", left.error_code, "NONE")
    found = described(target, group)
    expect("state", (found.group_state, found.protocol_type, found.members), ("Empty", "consumer", ()))


def a_second_member_makes_the_first_rejoin(target: Target) -> None:
    """When another member joins, the first learns it by REBALANCE_IN_PROGRESS, and both are in the next generation."""
    group = target.group()
    first = stable_member(target, group)
    client = target.connect()
    fields = {"group_id": group, "protocols": [{"name": "range", "metadata": b"n"}]}
    named = target.send(client, "JoinGroup", 5, **fields, member_id="")().member_id
    second = target.send(client, "JoinGroup", 5, **fields, member_id=named)
    target.until("the first is told to join again", lambda: beat(target, group, first.member_id, 1) == 27)
    again = join(target, group, member_id=first.member_id)
    other = second()
    expect("generations", (again.generation_id, other.generation_id), (2, 2))
    expect("members that the leader is told of", len(again.members), 2)
    expect("members that the other is told of", other.members, ())


def several_members_leave_at_once(target: Target) -> None:
    """From v3 on a LeaveGroup names members, and each has its own error."""
    group = target.group()
    member = stable_member(target, group)
    asked = [{"member_id": member.member_id}, {"member_id": "nobody"}]
    answer = target.call("LeaveGroup", 3, group_id=group, members=asked)
    expect("errors", [one.error_code.name for one in answer.members], ["none", "unknown_member_id"])


# -- static members


def a_static_member_keeps_its_place(target: Target) -> None:
    """A static member that joins again gets a new id, the same generation and no rebalance (KIP-345)."""
    group = target.group()
    first = stable_member(target, group, group_instance_id="i")
    second = join(target, group, group_instance_id="i")
    expect_error("error", second.error_code, "NONE")
    expect("generation and another id", (second.generation_id, second.member_id == first.member_id), (1, False))


def a_static_member_that_was_replaced_is_fenced(target: Target) -> None:
    """The old id of a static member is FENCED_INSTANCE_ID."""
    group = target.group()
    first = stable_member(target, group, group_instance_id="i")
    join(target, group, group_instance_id="i")
    code = beat(target, group, first.member_id, 1, group_instance_id="i")
    expect_error("error", code, "FENCED_INSTANCE_ID")


def a_static_member_updates_its_subscription(target: Target) -> None:
    """A static member that joins again with other metadata changes what the group knows of it."""
    group = target.group()
    stable_member(target, group, group_instance_id="i")
    again = join(target, group, group_instance_id="i", protocols=[{"name": "range", "metadata": b"other"}])
    expect_error("error", again.error_code, "NONE")
    expect("metadata", [one.member_metadata for one in described(target, group).members], [b"other"])


def a_static_member_leaves_by_its_instance(target: Target) -> None:
    """A static member may be removed by its group instance id alone."""
    group = target.group()
    stable_member(target, group, group_instance_id="i")
    answer = target.call("LeaveGroup", 3, group_id=group, members=[{"member_id": "", "group_instance_id": "i"}])
    expect("errors", [one.error_code.name for one in answer.members], ["none"])
    expect("state", described(target, group).group_state, "Empty")


# -- looking at groups, and deleting them


def groups_are_listed_with_their_states(target: Target) -> None:
    """A group is listed with its state, if that is asked for."""
    group = target.group()
    stable_member(target, group)
    listed = _listed(target, group, 4, states_filter=["Stable"])
    expect("state", [one.group_state for one in listed], ["Stable"])
    expect("among the empty ones", _listed(target, group, 4, states_filter=["Empty"]), [])


def groups_are_listed_with_their_types(target: Target) -> None:
    """From v5 on a group is listed with its type."""
    group = target.group()
    stable_member(target, group)
    listed = _listed(target, group, 5, types_filter=["classic"])
    expect("type", [one.group_type for one in listed], ["classic"])


def operations_are_told_if_asked(target: Target) -> None:
    """The operations that are allowed on a group are shown only to clients that ask."""
    group = target.group()
    stable_member(target, group)
    expect("not asked for", described(target, group).authorized_operations, _NOT_ASKED)
    asked = target.call("DescribeGroups", 5, groups=[group], include_authorized_operations=True).groups[0]
    # Read, delete, describe, describe configs, alter configs.
    expect("asked for", asked.authorized_operations, 0b110101001000)


def a_group_with_members_is_not_deleted(target: Target) -> None:
    """A group with members is NON_EMPTY_GROUP when it is to be deleted."""
    group = target.group()
    stable_member(target, group)
    answer = target.call("DeleteGroups", 1, groups_names=[group])
    expect_error("error", answer.results[0].error_code, "NON_EMPTY_GROUP")


def an_empty_group_is_deleted(target: Target) -> None:
    """A group without members can be deleted, and is dead then."""
    group = target.group()
    member = stable_member(target, group)
    target.call("LeaveGroup", 2, group_id=group, member_id=member.member_id)
    answer = target.call("DeleteGroups", 1, groups_names=[group])
    expect_error("error", answer.results[0].error_code, "NONE")
    expect("state", described(target, group).group_state, "Dead")


# -- coordinators


def a_coordinator_of_an_unknown_type(target: Target) -> None:
    """A coordinator for something else than groups, transactions and shares is an INVALID_REQUEST."""
    answer = target.call("FindCoordinator", 4, key_type=9, coordinator_keys=["a"])
    expect_error("error", answer.coordinators[0].error_code, "INVALID_REQUEST")
    expect("there is a message", bool(answer.coordinators[0].error_message), True)


def several_coordinators_at_once(target: Target) -> None:
    """From v4 on several coordinators are asked for at once, and answered with their keys."""
    groups = [target.group() for _ in range(2)]
    answer = target.call("FindCoordinator", 4, key_type=0, coordinator_keys=groups)
    expect("keys", sorted(one.key for one in answer.coordinators), sorted(groups))
    if any(one.error_code for one in answer.coordinators):
        raise UnexpectedError(f"errors: {answer.coordinators}")
