"""Static members of consumer groups (KIP-848): how they leave for a while and come back, and who may say to be one."""

from __future__ import annotations

from odradek.testing.conformance.consumer_members import Members, assigned, beat, joined, partitions_of
from odradek.testing.conformance.target import Target, expect, expect_error


def _static(target: Target) -> Members:
    """Return a group of the static members a (instance i) and b (j), with two partitions each."""
    members = Members(target, 4)
    members.join("a", instance_id="i")
    members.join("b", instance_id="j")
    members.settle()
    return members


def one_that_is_away_keeps_its_partitions(target: Target) -> None:
    """While a static member is away the group epoch stays, and its partitions are nobody else's."""
    members = _static(target)
    numbers, others = members.numbers("a"), members.numbers("b")
    members.leave("a", -2, instance_id="i")
    members.report("b")
    expect("epoch and partitions of b", (members.epochs["b"], members.numbers("b")), (3, others))
    told = members.told("a")
    expect("epoch of a", told.member_epoch, -2)
    expect("partitions of a", partitions_of(told.assignment), {members.topic.id: numbers})
    expect("group epoch", members.described().group_epoch, 3)


def one_that_comes_back_has_its_partitions(target: Target) -> None:
    """A static member that comes back has the partitions that it had, with the group epoch as it was."""
    members = _static(target)
    numbers = members.numbers("a")
    members.leave("a", -2, instance_id="i")
    members.join("c", instance_id="i")
    expect("partitions and epoch", (members.numbers("c"), members.epochs["c"]), (numbers, 3))
    expect("what it is to have", partitions_of(members.told("c").target_assignment), {members.topic.id: numbers})
    expect("group epoch", members.described().group_epoch, 3)


def one_may_come_back_with_its_old_id(target: Target) -> None:
    """A static member may come back with the member id that it had."""
    members = _static(target)
    numbers = members.numbers("a")
    members.leave("a", -2, instance_id="i")
    members.join("a", instance_id="i")
    expect("partitions and epoch", (members.numbers("a"), members.epochs["a"]), (numbers, 3))


def one_that_comes_back_may_read_other_topics(target: Target) -> None:
    """A static member that comes back and reads other topics raises the group epoch."""
    members = _static(target)
    members.leave("a", -2, instance_id="i")
    members.join("c", instance_id="i", subscribed_topic_names=[])
    expect("group epoch", members.described().group_epoch, 4)
    members.settle()
    expect("partitions of b and c", (members.numbers("b"), members.numbers("c")), ([0, 1, 2, 3], []))


def one_that_is_away_is_still_known(target: Target) -> None:
    """The old id of a static member that is away is FENCED_MEMBER_EPOCH, in whatever epoch."""
    members = _static(target)
    epoch = members.epochs["a"]
    members.leave("a", -2, instance_id="i")
    for fields in ({"instance_id": "i"}, {}):
        answer = beat(target, members.group, "a", epoch, **fields)
        expect_error(f"with {fields}", answer.error_code, "FENCED_MEMBER_EPOCH")


def one_may_leave_twice_for_a_while(target: Target) -> None:
    """A static member that is away may leave again, for a while or for good."""
    members = _static(target)
    members.leave("a", -2, instance_id="i")
    for epoch in (-2, -1):
        answer = beat(target, members.group, "a", epoch, instance_id="i")
        expect("answer", (int(answer.error_code), answer.member_epoch), (0, epoch))
    expect("members", [one.member_id for one in members.described().members], ["b"])


def one_may_leave_for_good(target: Target) -> None:
    """A static member that leaves with epoch -1 is removed, and its partitions go to others."""
    members = _static(target)
    members.leave("a", instance_id="i")
    members.settle()
    expect("epoch and partitions of b", (members.epochs["b"], members.numbers("b")), (4, [0, 1, 2, 3]))
    answer = joined(target, members.group, members.topic, "c", instance_id="i")
    expect("epoch and partitions of c", (answer.member_epoch, assigned(answer)), (5, {}))


def joining_again_needs_to_leave_first(target: Target) -> None:
    """A static member that joins again and has not left is UNRELEASED_INSTANCE_ID, with its own id, too."""
    members = _static(target)
    answer = beat(target, members.group, "a", instance_id="i", subscribed_topic_names=[members.topic.name])
    expect_error("error", answer.error_code, "UNRELEASED_INSTANCE_ID")


def leaving_for_others_is_refused(target: Target) -> None:
    """A member that leaves with another's instance is FENCED_INSTANCE_ID, with an unknown one UNKNOWN_MEMBER_ID."""
    members = _static(target)
    for epoch in (-1, -2):
        for instance, wanted in (("j", "FENCED_INSTANCE_ID"), ("none", "UNKNOWN_MEMBER_ID")):
            answer = beat(target, members.group, "a", epoch, instance_id=instance)
            expect_error(f"{instance} with epoch {epoch}", answer.error_code, wanted)
    expect("members", len(members.described().members), 2)


def a_heartbeat_need_not_name_the_instance(target: Target) -> None:
    """A static member that does not say its instance is known by its member id."""
    members = _static(target)
    members.beat("a")
    expect("instance", members.told("a").instance_id, "i")


def a_heartbeat_with_anothers_instance_is_fenced(target: Target) -> None:
    """A heartbeat with the instance of another member is FENCED_INSTANCE_ID."""
    members = _static(target)
    answer = beat(target, members.group, "a", members.epochs["a"], instance_id="j")
    expect_error("error", answer.error_code, "FENCED_INSTANCE_ID")
