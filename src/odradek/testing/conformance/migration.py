"""Groups that move between the classic and the consumer protocol while they run, members of both in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from odradek.messages.coordinators.consumer_protocol import (
    SUBSCRIPTION,
    ConsumerSubscription,
    TopicPartitions,
    encode_assignment,
    read_assignment,
)
from odradek.testing.conformance.administration import remove_members
from odradek.testing.conformance.consumer_members import assigned, beat, described, owned, ready
from odradek.testing.conformance.group_offsets import commit_of, fetch_for, fetched
from odradek.testing.conformance.groups import beat as classic_beat
from odradek.testing.conformance.groups import described as classic_described
from odradek.testing.conformance.target import Target, Topic, expect, expect_error

_VERSION = 3


def subscription(topic: Topic, *partitions: int, version: int = _VERSION) -> bytes:
    """Return what a classic member says of itself: the topic that it reads, and the partitions that it has."""
    has = (TopicPartitions(topic.name, partitions),) if partitions else ()
    content = SUBSCRIPTION.encode(ConsumerSubscription((topic.name,), None, has), version)
    return version.to_bytes(2, "big") + content


def _assignment(topic: Topic, *partitions: int) -> bytes:
    return encode_assignment((TopicPartitions(topic.name, partitions),), _VERSION)


def _partitions(data: bytes) -> list[int]:
    reading = read_assignment(data)
    while True:
        try:
            next(reading)
        except StopIteration as ended:
            return sorted(number for topic in ended.value.assigned_partitions for number in topic.partitions)


def _fields(group: str, topic: Topic, member: str, partitions: Sequence[int], fields: Mapping[str, Any]) -> Any:
    protocols = [{"name": "range", "metadata": subscription(topic, *partitions)}]
    asked = {"group_id": group, "member_id": member, "group_instance_id": None, "reason": None, "protocols": protocols}
    return {**asked, **fields}


def _join(target: Target, group: str, topic: Topic, member: str = "", *partitions: int, **fields: Any) -> Any:
    """Ask to join; a member that has partitions says so."""
    version = fields.pop("version", 9)
    return target.call("JoinGroup", version, **_fields(group, topic, member, partitions, fields))


def _sync(target: Target, group: str, member: str, generation: int, data: bytes | None = None, **fields: Any) -> Any:
    assignments = [] if data is None else [{"member_id": member, "assignment": data}]
    asked = {"group_id": group, "member_id": member, "generation_id": generation, "group_instance_id": None}
    asked |= {"protocol_type": "consumer", "protocol_name": "range", "assignments": assignments}
    return target.call("SyncGroup", 5, **{**asked, **fields})


def _new_id(target: Target, group: str, topic: Topic) -> str:
    first = _join(target, group, topic)
    expect_error("first join", first.error_code, "MEMBER_ID_REQUIRED")
    return str(first.member_id)


def _classic(target: Target, group: str, topic: Topic, *partitions: int, instance: str | None = None) -> str:
    """Let a member be alone in a classic group with partitions, in generation 1; return its id."""
    member = "" if instance is not None else _new_id(target, group, topic)
    joined = _join(target, group, topic, member, group_instance_id=instance)
    expect("join", (int(joined.error_code), joined.generation_id), (0, 1))
    data = _assignment(topic, *partitions) if partitions else b""
    synced = _sync(target, group, joined.member_id, 1, data, group_instance_id=instance)
    expect_error("sync", synced.error_code, "NONE")
    return str(joined.member_id)


def _consumer(target: Target, group: str, topic: Topic, member: str = "c", **fields: Any) -> Any:
    answer = beat(target, group, member, subscribed_topic_names=[topic.name], **fields)
    expect_error("heartbeat", answer.error_code, "NONE")
    return answer


def _upgraded(target: Target, partitions: int = 2) -> tuple[str, Topic, str]:
    """Return a group with a classic member that has all partitions in epoch 1, and a consumer "c" that waits."""
    group, topic = ready(target, partitions)
    classic = _classic(target, group, topic, *range(partitions))
    _consumer(target, group, topic)
    return group, topic, classic


def _mixed(target: Target) -> tuple[str, Topic, str]:
    """Return a group whose two partitions a classic member and the consumer "c" share in epoch 2."""
    group, topic, classic = _upgraded(target)
    joined = _join(target, group, topic, classic, 0, 1)
    kept = _partitions(_sync(target, group, classic, joined.generation_id).assignment)
    expect_error("join again", _join(target, group, topic, classic, *kept).error_code, "NONE")
    expect_error("sync again", _sync(target, group, classic, 2).error_code, "NONE")
    answer = beat(target, group, "c", 2)
    expect("the others", assigned(answer), {topic.id: [number for number in (0, 1) if number not in kept]})
    return group, topic, classic


def _members(target: Target, group: str) -> dict[str, tuple[int, int, list[int], list[int]]]:
    """Return of each member its type, its epoch, and what it has and is to get."""

    def numbers(assignment: Any) -> list[int]:
        return sorted(number for topic in assignment.topic_partitions for number in topic.partitions)

    return {
        one.member_id: (one.member_type, one.member_epoch, numbers(one.assignment), numbers(one.target_assignment))
        for one in described(target, group).members
    }


def _state(target: Target, group: str) -> tuple[str, int]:
    found = described(target, group)
    return found.group_state, found.group_epoch


# -- upgrades


def a_heartbeat_upgrades_a_classic_group(target: Target) -> None:
    """A member of the consumer protocol makes a consumer group of a classic one; the generation is the epoch before."""
    group, topic = ready(target, 2)
    _classic(target, group, topic, 0, 1)
    answer = _consumer(target, group, topic)
    expect("epoch and assignment", (answer.member_epoch, assigned(answer)), (2, {}))
    found = described(target, group)
    expect("group", (found.group_state, found.group_epoch, found.assignment_epoch), ("Reconciling", 2, 2))
    expect("types", sorted(one.member_type for one in found.members), [0, 1])


def an_upgrade_keeps_what_members_have(target: Target) -> None:
    """A classic member keeps its partitions and its generation until it joins again."""
    group, _, classic = _upgraded(target, 4)
    kind, epoch, has, wanted = _members(target, group)[classic]
    expect("type, epoch, partitions, target", (kind, epoch, has, len(wanted)), (0, 1, [0, 1, 2, 3], 2))


def an_upgraded_group_is_listed_as_a_consumer_group(target: Target) -> None:
    """ListGroups and DescribeGroups see a consumer group after the upgrade."""
    group, _, _ = _upgraded(target)
    listed = [one for one in target.call("ListGroups", 5).groups if one.group_id == group]
    expect("type", [(one.group_type, one.protocol_type) for one in listed], [("consumer", "consumer")])
    expect("as a classic group", classic_described(target, group).group_state, "Dead")


def a_description_has_the_classic_members_topics(target: Target) -> None:
    """ConsumerGroupDescribe tells what a classic member reads, by its subscription."""
    group, topic, classic = _upgraded(target)
    member = next(one for one in described(target, group).members if one.member_id == classic)
    found = (list(member.subscribed_topic_names), member.subscribed_topic_regex, member.client_id)
    expect("topics, pattern and client", found, ([topic.name], "", "odradek-conformance"))


def only_a_join_upgrades(target: Target) -> None:
    """A heartbeat with an epoch, or one that leaves, does not upgrade: GROUP_ID_NOT_FOUND."""
    group, topic = ready(target)
    _classic(target, group, topic, 0)
    for epoch in (1, -1):
        expect_error(f"epoch {epoch}", beat(target, group, "c", epoch).error_code, "GROUP_ID_NOT_FOUND")
    expect("state", classic_described(target, group).group_state, "Stable")


def a_group_of_another_type_is_not_upgraded(target: Target) -> None:
    """A classic group whose members are no consumers is GROUP_ID_NOT_FOUND, and stays."""
    group, topic = ready(target)
    joined = _join(target, group, topic, version=3, protocol_type="connect")
    _sync(target, group, joined.member_id, 1, b"", protocol_type="connect")
    _refused(target, group, topic, "GROUP_ID_NOT_FOUND")


def _refused(target: Target, group: str, topic: Topic, wanted: str) -> None:
    answer = beat(target, group, "c", subscribed_topic_names=[topic.name])
    expect_error("heartbeat", answer.error_code, wanted)
    expect("state", classic_described(target, group).group_state, "Stable")


def an_assignment_that_cannot_be_read_is_not_upgraded(target: Target) -> None:
    """A group whose assignment is not the consumers' is GROUP_ID_NOT_FOUND, and stays."""
    group, topic = ready(target)
    joined = _join(target, group, topic, version=3)
    _sync(target, group, joined.member_id, 1, b"a")
    _refused(target, group, topic, "GROUP_ID_NOT_FOUND")


def the_data_of_an_assignor_is_not_upgraded(target: Target) -> None:
    """A group whose assignor gives its members data of its own is GROUP_ID_NOT_FOUND, and stays."""
    group, topic = ready(target)
    joined = _join(target, group, topic, version=3)
    _sync(target, group, joined.member_id, 1, _assignment(topic, 0)[:-4] + b"\0\0\0\1x")
    _refused(target, group, topic, "GROUP_ID_NOT_FOUND")


def a_subscription_that_cannot_be_read_is_not_upgraded(target: Target) -> None:
    """A group whose subscriptions are not the consumers' is GROUP_ID_NOT_FOUND, and stays."""
    group, topic = ready(target)
    joined = _join(target, group, topic, version=3, protocols=[{"name": "range", "metadata": b"m"}])
    _sync(target, group, joined.member_id, 1, b"")
    _refused(target, group, topic, "GROUP_ID_NOT_FOUND")


def a_group_that_waits_for_its_leader_is_upgraded(target: Target) -> None:
    """While the assignment is awaited members have nothing: the first consumer gets its part at once."""
    group, topic = ready(target, 2)
    joined = _join(target, group, topic, version=3)
    answer = _consumer(target, group, topic)
    expect("parts", [len(one) for one in (assigned(answer) or {}).values()], [1])
    synced = _sync(target, group, joined.member_id, 1, _assignment(topic, 0, 1))
    expect_error("sync of the leader", synced.error_code, "REBALANCE_IN_PROGRESS")


def a_follower_that_waits_joins_again(target: Target) -> None:
    """A member that waits for its assignment when the group is upgraded is answered REBALANCE_IN_PROGRESS."""
    group, topic = ready(target, 2)
    first, second = _two_joined(target, group, topic)
    follower = first if first.leader != first.member_id else second
    client = target.connect()
    asked = {"group_id": group, "member_id": follower.member_id, "generation_id": follower.generation_id}
    asked |= {"group_instance_id": None, "protocol_type": "consumer", "protocol_name": "range", "assignments": []}
    receive = target.send(client, "SyncGroup", 5, **asked)
    target.pause()
    _consumer(target, group, topic)
    expect_error("sync", receive().error_code, "REBALANCE_IN_PROGRESS")
    expect_error("heartbeat", classic_beat(target, group, follower.member_id, 2), "REBALANCE_IN_PROGRESS")


def _two_joined(target: Target, group: str, topic: Topic) -> tuple[Any, Any]:
    """Let two members be in generation 2 of a classic group, without an assignment."""
    first = _classic(target, group, topic, 0, 1)
    second = _new_id(target, group, topic)
    receive = target.send(target.connect(), "JoinGroup", 9, **_join_fields(group, topic, second))
    target.until("the first member is told", lambda: classic_beat(target, group, first, 1) or None)
    joined = _join(target, group, topic, first, 0, 1)
    return joined, receive()


def _join_fields(group: str, topic: Topic, member: str) -> dict[str, Any]:
    given = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer"}
    return {**given, **_fields(group, topic, member, (), {})}


def a_member_that_waits_to_join_joins_again(target: Target) -> None:
    """A member whose JoinGroup waits for others when the group is upgraded is answered REBALANCE_IN_PROGRESS."""
    group, topic = ready(target, 2)
    first = _classic(target, group, topic, 0, 1)
    second = _new_id(target, group, topic)
    receive = target.send(target.connect(), "JoinGroup", 9, **_join_fields(group, topic, second))
    target.until("the first member is told", lambda: classic_beat(target, group, first, 1) or None)
    _consumer(target, group, topic)
    answer = receive()
    expect_error("join", answer.error_code, "REBALANCE_IN_PROGRESS")
    expect("members", len(described(target, group).members), 3)
    expect_error("join again", _join(target, group, topic, second).error_code, "NONE")


# -- classic members in a consumer group


def a_classic_member_is_told_to_join_again(target: Target) -> None:
    """Heartbeat and SyncGroup of a classic member behind the assignment are REBALANCE_IN_PROGRESS."""
    group, _, classic = _upgraded(target)
    expect_error("heartbeat", classic_beat(target, group, classic, 1), "REBALANCE_IN_PROGRESS")
    expect_error("sync", _sync(target, group, classic, 1).error_code, "REBALANCE_IN_PROGRESS")


def a_classic_member_gives_up_partitions_first(target: Target) -> None:
    """A member that joins again stays in its generation, is synced what it keeps, and has to join once more."""
    group, topic, classic = _upgraded(target, 4)
    joined = _join(target, group, topic, classic, 0, 1, 2, 3)
    expect("generation", joined.generation_id, 1)
    kept = _partitions(_sync(target, group, classic, 1).assignment)
    expect("keeps", len(kept), 2)
    expect_error("heartbeat", classic_beat(target, group, classic, 1), "REBALANCE_IN_PROGRESS")
    expect("generation afterwards", _join(target, group, topic, classic, *kept).generation_id, 2)
    expect("has", _partitions(_sync(target, group, classic, 2).assignment), kept)
    expect_error("heartbeat afterwards", classic_beat(target, group, classic, 2), "NONE")
    given = assigned(beat(target, group, "c", 2))
    expect("the others", given, {topic.id: sorted({0, 1, 2, 3} - set(kept))})
    expect("state", _state(target, group), ("Stable", 2))


def an_eager_member_gives_up_all_at_once(target: Target) -> None:
    """A member that joins without partitions is in the next generation at once."""
    group, topic, classic = _upgraded(target, 4)
    expect("generation", _join(target, group, topic, classic).generation_id, 2)
    expect("has", len(_partitions(_sync(target, group, classic, 2).assignment)), 2)


def a_join_is_answered_without_a_leader(target: Target) -> None:
    """JoinGroup names no leader and no members: the coordinator assigns."""
    group, topic, classic = _upgraded(target)
    found = _join(target, group, topic, classic)
    expect("protocol", (found.protocol_type, found.protocol_name), ("consumer", "range"))
    expect("leader", (found.leader, list(found.members), found.skip_assignment), ("", [], False))
    expect("member", found.member_id, classic)


def a_leaders_assignment_does_not_count(target: Target) -> None:
    """What a classic member sends in SyncGroup is not used."""
    group, topic, classic = _mixed(target)
    has = _members(target, group)[classic][2]
    synced = _sync(target, group, classic, 2, _assignment(topic, 0, 1))
    expect("assignment", _partitions(synced.assignment), has)


def an_assignment_is_in_the_subscriptions_version(target: Target) -> None:
    """SyncGroup answers in the version of the member's subscription."""
    group, topic, classic = _upgraded(target)
    for version in (0, 1, 3):
        protocols = [{"name": "range", "metadata": subscription(topic, version=version)}]
        generation = _join(target, group, topic, classic, protocols=protocols).generation_id
        found = _sync(target, group, classic, generation).assignment
        expect(f"version {version}", int.from_bytes(found[:2], "big"), version)


def a_new_classic_member_is_given_an_id(target: Target) -> None:
    """From v4 on JoinGroup of a new member is MEMBER_ID_REQUIRED, before that it joins at once."""
    group, topic, _ = _upgraded(target)
    for version, wanted in ((5, "MEMBER_ID_REQUIRED"), (3, "NONE")):
        found = _join(target, group, topic, version=version)
        expect_error(f"v{version}", found.error_code, wanted)
        expect(f"v{version} has an id", bool(found.member_id), True)
    expect("members", len(described(target, group).members), 3)


def a_classic_member_may_bring_its_id(target: Target) -> None:
    """A member of an id that the group does not know joins with it."""
    group, topic, _ = _upgraded(target)
    found = _join(target, group, topic, "brought")
    expect("answer", (int(found.error_code), found.member_id), (0, "brought"))


def another_generation_is_illegal(target: Target) -> None:
    """Heartbeat and SyncGroup in another generation than the member's epoch are ILLEGAL_GENERATION."""
    group, _, classic = _mixed(target)
    for generation in (1, 3):
        expect_error("heartbeat", classic_beat(target, group, classic, generation), "ILLEGAL_GENERATION")
        expect_error("sync", _sync(target, group, classic, generation).error_code, "ILLEGAL_GENERATION")


def a_consumer_is_no_classic_member(target: Target) -> None:
    """Heartbeat and SyncGroup of a member of the consumer protocol are UNKNOWN_MEMBER_ID, as of an unknown one."""
    group, _, _ = _mixed(target)
    for member in ("c", "none"):
        expect_error("heartbeat", classic_beat(target, group, member, 2), "UNKNOWN_MEMBER_ID")
        expect_error("sync", _sync(target, group, member, 2).error_code, "UNKNOWN_MEMBER_ID")


def a_sync_names_the_protocol(target: Target) -> None:
    """SyncGroup with another protocol than that of the join is INCONSISTENT_GROUP_PROTOCOL."""
    group, _, classic = _mixed(target)
    wrong: tuple[dict[str, Any], ...] = ({"protocol_name": "other"}, {"protocol_type": "other"})
    for fields in wrong:
        found = _sync(target, group, classic, 2, **fields)
        expect_error(f"{fields}", found.error_code, "INCONSISTENT_GROUP_PROTOCOL")


def a_classic_member_needs_a_common_protocol(target: Target) -> None:
    """A classic member without the others' protocols, or of another type, is INCONSISTENT_GROUP_PROTOCOL."""
    group, topic, _ = _upgraded(target)
    other = [{"name": "other", "metadata": subscription(topic)}]
    wrong: tuple[dict[str, Any], ...] = ({"protocols": other}, {"protocol_type": "connect"}, {"protocols": []})
    for fields in wrong:
        found = _join(target, group, topic, **fields)
        expect_error(f"{fields}", found.error_code, "INCONSISTENT_GROUP_PROTOCOL")


def a_join_with_a_broken_subscription_fails(target: Target) -> None:
    """A classic member whose subscription cannot be read is INCONSISTENT_GROUP_PROTOCOL, and does not join."""
    target.needs_newest()
    group, topic, _ = _upgraded(target)
    found = _join(target, group, topic, "broken", protocols=[{"name": "range", "metadata": b"m"}])
    expect_error("error", found.error_code, "INCONSISTENT_GROUP_PROTOCOL")
    expect("members", len(described(target, group).members), 2)


def a_member_waits_for_partitions_without_a_rebalance(target: Target) -> None:
    """A classic member whose partitions others still have is not told to join again until these are free."""
    group, topic = ready(target, 2)
    _consumer(target, group, topic)
    _join(target, group, topic, "m")
    target.until("an assignment for both", lambda: _join(target, group, topic, "m").generation_id > 2)
    epoch = _members(target, group)["m"][1]
    expect("nothing yet", _partitions(_sync(target, group, "m", epoch).assignment), [])
    expect_error("heartbeat", classic_beat(target, group, "m", epoch), "NONE")
    answer = beat(target, group, "c", 2, topic_partitions=owned(topic, 0, 1))
    kept = (assigned(answer) or {}).get(topic.id, [])
    beat(target, group, "c", 2, topic_partitions=owned(topic, *kept))
    expect_error("when it is free", classic_beat(target, group, "m", epoch), "REBALANCE_IN_PROGRESS")
    _join(target, group, topic, "m")
    found = _partitions(_sync(target, group, "m", epoch).assignment)
    expect("gets", found, [number for number in (0, 1) if number not in kept])


def a_classic_member_that_leaves_leaves_a_consumer_group(target: Target) -> None:
    """LeaveGroup of a classic member is the next epoch of the group, which stays a consumer group."""
    group, _, classic = _mixed(target)
    (left,) = remove_members(target, group, (classic, None))
    expect_error("leave", left.error_code, "NONE")
    expect("group", (_state(target, group)[1], list(_members(target, group))), (3, ["c"]))


def a_classic_member_commits_in_its_generation(target: Target) -> None:
    """OffsetCommit v8 of a classic member is taken in its generation, in others ILLEGAL_GENERATION."""
    group, topic, classic = _upgraded(target)
    for generation, wanted in ((1, "NONE"), (2, "ILLEGAL_GENERATION"), (0, "ILLEGAL_GENERATION")):
        expect_error(f"generation {generation}", commit_of(target, group, topic, generation, classic), wanted)
    expect_error("a consumer", commit_of(target, group, topic, 2, "c"), "UNSUPPORTED_VERSION")


def a_classic_member_fetches_offsets_in_its_generation(target: Target) -> None:
    """OffsetFetch v9 of a classic member in another generation is ILLEGAL_GENERATION."""
    group, topic, classic = _upgraded(target)
    for epoch, wanted in ((1, "NONE"), (2, "ILLEGAL_GENERATION")):
        found = fetch_for(target, group, topic, version=9, member_id=classic, member_epoch=epoch)
        expect_error(f"generation {epoch}", found.error_code, wanted)


# -- downgrades


def _after_downgrade(target: Target, group: str, leave: Callable[[], Any]) -> Any:
    leave()
    found = classic_described(target, group)
    expect("as a consumer group", described(target, group).error_code.name, "group_id_not_found")
    return found


def the_last_consumer_that_leaves_downgrades(target: Target) -> None:
    """When only classic members remain the group is a classic one, which rebalances from the group's epoch."""
    group, topic, classic = _mixed(target)
    found = _after_downgrade(target, group, lambda: beat(target, group, "c", -1))
    expect("group", (found.group_state, found.protocol_type), ("PreparingRebalance", "consumer"))
    expect("members", [one.member_id for one in found.members], [classic])
    expect_error("heartbeat", classic_beat(target, group, classic, 2), "REBALANCE_IN_PROGRESS")
    joined = _join(target, group, topic, classic, 0)
    expect("join", (joined.generation_id, joined.leader), (3, classic))
    synced = _sync(target, group, classic, 3, _assignment(topic, 0, 1))
    expect("assignment", _partitions(synced.assignment), [0, 1])


def a_consumer_that_is_removed_downgrades(target: Target) -> None:
    """LeaveGroup that names the last consumer downgrades the group, too."""
    group, _, classic = _mixed(target)
    found = _after_downgrade(target, group, lambda: remove_members(target, group, ("c", None)))
    expect("members", [one.member_id for one in found.members], [classic])


def a_downgraded_group_keeps_its_offsets(target: Target) -> None:
    """Offsets stay through an upgrade and a downgrade."""
    group, topic = ready(target, 2)
    classic = _classic(target, group, topic, 0, 1)
    expect_error("commit", commit_of(target, group, topic, 1, classic), "NONE")
    _consumer(target, group, topic)
    beat(target, group, "c", -1)
    expect("state", classic_described(target, group).group_state, "PreparingRebalance")
    expect("offset", fetched(target, group, topic)[0].committed_offset, 5)


def a_member_behind_is_in_an_illegal_generation_afterwards(target: Target) -> None:
    """After a downgrade a classic member that had not followed is ILLEGAL_GENERATION, and joins again."""
    group, topic, classic = _upgraded(target)
    beat(target, group, "c", -1)
    expect_error("heartbeat", classic_beat(target, group, classic, 1), "ILLEGAL_GENERATION")
    joined = _join(target, group, topic, classic, 0, 1)
    expect("generation", (int(joined.error_code), joined.generation_id), (0, 3))


def a_group_without_members_is_not_downgraded(target: Target) -> None:
    """When the last member of all leaves, the group is an empty consumer group."""
    group, _, classic = _mixed(target)
    remove_members(target, group, ("c", None), (classic, None))
    expect("group", _state(target, group), ("Empty", 3))


def a_group_is_upgraded_again(target: Target) -> None:
    """A downgraded group is upgraded by the next consumer; epochs continue."""
    group, topic, classic = _mixed(target)
    beat(target, group, "c", -1)
    expect("generation", _join(target, group, topic, classic, 0).generation_id, 3)
    _sync(target, group, classic, 3, _assignment(topic, 0, 1))
    expect("epoch", _consumer(target, group, topic, "d").member_epoch, 4)
    expect("members", sorted(one[0] for one in _members(target, group).values()), [0, 1])


# -- static members


def a_static_member_changes_to_the_consumer_protocol(target: Target) -> None:
    """A consumer with the instance id of a classic member takes its place and its partitions; the old one is fenced."""
    group, topic = ready(target, 2)
    classic = _classic(target, group, topic, 0, 1, instance="i")
    answer = _consumer(target, group, topic, instance_id="i")
    expect("epoch and assignment", (answer.member_epoch, assigned(answer)), (1, {topic.id: [0, 1]}))
    expect("members", _members(target, group), {"c": (1, 1, [0, 1], [0, 1])})
    found = classic_beat(target, group, classic, 1, group_instance_id="i")
    expect_error("heartbeat", found, "FENCED_INSTANCE_ID")


def _static_pair(target: Target) -> tuple[str, Topic, str]:
    """Return a group of a static classic member "i" and a consumer "c" with instance "j", a partition each."""
    group, topic = ready(target, 2)
    classic = _classic(target, group, topic, 0, 1, instance="i")
    _consumer(target, group, topic, instance_id="j")
    for partitions in ((0, 1), None):
        has = partitions or _members(target, group)[classic][2]
        joined = _join(target, group, topic, classic, *(has if partitions else _kept(target, group, classic)),
                       group_instance_id="i")  # fmt: skip
        expect_error("join", joined.error_code, "NONE")
    expect_error("sync", _sync(target, group, classic, 2, group_instance_id="i").error_code, "NONE")
    expect("consumer", len((assigned(beat(target, group, "c", 2, instance_id="j")) or {})[topic.id]), 1)
    return group, topic, classic


def _kept(target: Target, group: str, member: str) -> list[int]:
    _, _, has, wanted = _members(target, group)[member]
    return [number for number in has if number in wanted]


def a_static_member_changes_to_the_classic_protocol(target: Target) -> None:
    """The last consumer's place is taken by a classic member: the group is classic, stable, in the group's epoch."""
    group, topic, classic = _static_pair(target)
    has = _members(target, group)["c"][2]
    joined = _join(target, group, topic, group_instance_id="j")
    expect("join", (int(joined.error_code), joined.generation_id), (0, 2))
    found = classic_described(target, group)
    expect("group", (found.group_state, found.protocol_data), ("Stable", "range"))
    expect("members", {one.member_id for one in found.members}, {classic, joined.member_id})
    synced = _sync(target, group, joined.member_id, 2, group_instance_id="j")
    expect("assignment", _partitions(synced.assignment), has)
    expect_error("the other", classic_beat(target, group, classic, 2, group_instance_id="i"), "NONE")
    answer = beat(target, group, "c", 2, instance_id="j")
    expect_error("the one before", answer.error_code, "GROUP_ID_NOT_FOUND")


def another_subscription_rebalances_the_classic_group(target: Target) -> None:
    """If the classic member that takes the last consumer's place reads something else, the group rebalances."""
    group, _, _ = _static_pair(target)
    other = target.topic()
    joined = _join(target, group, other, group_instance_id="j")
    expect("join", (int(joined.error_code), joined.generation_id), (0, 0))
    expect("state", classic_described(target, group).group_state, "PreparingRebalance")


def a_static_classic_member_comes_back(target: Target) -> None:
    """A static classic member that joins again without its id has a new id, and its partitions."""
    group, topic, classic = _static_pair(target)
    has = _members(target, group)[classic][2]
    joined = _join(target, group, topic, group_instance_id="i")
    expect("join", (int(joined.error_code), joined.generation_id), (0, 2))
    expect("another id", joined.member_id != classic, True)
    synced = _sync(target, group, joined.member_id, 2, group_instance_id="i")
    expect("assignment", _partitions(synced.assignment), has)
    expect("epoch", _state(target, group), ("Stable", 2))


def a_static_classic_member_is_checked(target: Target) -> None:
    """A static member with another's id is FENCED_INSTANCE_ID, with an unknown instance id UNKNOWN_MEMBER_ID."""
    group, topic, classic = _static_pair(target)
    for member, instance, wanted in (("other", "i", "FENCED_INSTANCE_ID"), (classic, "none", "UNKNOWN_MEMBER_ID")):
        fields: dict[str, Any] = {"group_instance_id": instance}
        expect_error("join", _join(target, group, topic, member, **fields).error_code, wanted)
        expect_error("sync", _sync(target, group, member, 2, **fields).error_code, wanted)
        expect_error("heartbeat", classic_beat(target, group, member, 2, **fields), wanted)
