"""What share groups deliver (KIP-932): acquisition, acknowledgement, limits, sessions and locks."""

from __future__ import annotations

from typing import Any

from odradek.broker.protocol import milliseconds
from odradek.testing.conformance.administration import set_group
from odradek.testing.conformance.share_members import (
    ShareMember,
    read_state,
    share_group,
    written_states,
)
from odradek.testing.conformance.target import UNUSED_ID, Target, Topic, batch, expect, expect_error

_ACCEPT, _RELEASE, _REJECT, _RENEW = 1, 2, 3, 4
_RECORD_LIMIT = 1
_LOCK_S = 31.0
_AVAILABLE, _ACKNOWLEDGED, _ARCHIVED = 0, 2, 4


# -- acquiring


def records_are_acquired_with_their_batches(target: Target) -> None:
    """A member acquires whole batches, delivered once, and gets their bytes."""
    member = share_group(target, [2, 3])
    expect("acquired", member.got(), [(0, 4, 1)])


def a_record_is_with_one_member_only(target: Target) -> None:
    """What a member has acquired, another one does not get."""
    member = share_group(target, [2])
    other = ShareMember(target, member.group, member.topic, "other")
    member.got()
    expect("acquired by another", other.fetch(max_wait_ms=200).acquired, [])


def batch_size_splits_ranges_between_batches(target: Target) -> None:
    """Ranges end with batches of the log, when they have about `batch_size` records."""
    member = share_group(target, [2, 2, 2, 2])
    expect("acquired", member.got(batch_size=3), [(0, 3, 1), (4, 7, 1)])


def max_records_ends_with_a_batch(target: Target) -> None:
    """`max_records` may be exceeded, so that the last batch is whole."""
    member = share_group(target, [3, 3, 3])
    expect("acquired", member.got(max_records=4), [(0, 5, 1)])
    expect("the rest", member.got(max_records=1), [(6, 8, 1)])


def record_limit_is_not_exceeded(target: Target) -> None:
    """In the mode record_limit there are no more records than `max_records`; others get the rest of the batch."""
    member = share_group(target, [5])
    other = ShareMember(target, member.group, member.topic, "other")
    expect("acquired", member.got(max_records=2, share_acquire_mode=_RECORD_LIMIT), [(0, 1, 1)])
    expect("by another", other.got(), [(2, 4, 1)])


def only_batches_with_acquired_records_are_sent(target: Target) -> None:
    """The answer has the bytes of the batches that were acquired, and no others."""
    member = share_group(target, [1, 1, 1])
    one = len(batch(b"value"))
    found = target.until("records", lambda: got if (got := member.fetch(max_records=2)).acquired else None)
    expect("acquired and bytes", (found.acquired, len(found.records)), ([(0, 1, 1)], 2 * one))


def delivery_starts_where_the_state_says(target: Target) -> None:
    """Records before the start offset are not delivered, though their batch is sent."""
    member = share_group(target, [5], start_offset=3)
    expect("acquired", member.got(), [(3, 4, 1)])


def no_more_records_than_locks(target: Target) -> None:
    """A partition's members have `share.partition.max.record.locks` records at most, but for the last batch."""
    member = share_group(target, [60, 60, 60])
    set_group(target, member.group, share_partition_max_record_locks="100")
    expect("acquired", member.got(max_records=1000, batch_size=1000), [(0, 119, 1)])
    expect("more", member.fetch(max_wait_ms=200).acquired, [])


def a_fetch_waits_for_records(target: Target) -> None:
    """A ShareFetch without records is answered when some are appended."""
    member = share_group(target)
    member.fetch(max_wait_ms=0)
    usual = {"group_id": member.group, "member_id": member.name, "share_session_epoch": member.epoch, "topics": []}
    receive = target.send(member.client, "ShareFetch", 2, **usual, max_wait_ms=20_000)
    target.pause()
    target.produced(member.topic, batch(b"a"))
    (partition,) = receive().responses[0].partitions
    expect("acquired", [(one.first_offset, one.last_offset) for one in partition.acquired_records], [(0, 0)])


def a_fetch_waits_for_released_records(target: Target) -> None:
    """A ShareFetch that waits gets what another member releases, at the latest at the end of its wait."""
    member = share_group(target, [2])
    other = ShareMember(target, member.group, member.topic, "other")
    member.got()
    other.fetch(max_wait_ms=0)
    usual = {"group_id": other.group, "member_id": other.name, "share_session_epoch": other.epoch, "topics": []}
    receive = target.send(other.client, "ShareFetch", 2, **usual, max_wait_ms=1000)
    target.pause()
    expect_error("release", member.code((0, 1, [_RELEASE])), "NONE")
    (partition,) = receive().responses[0].partitions
    expect("acquired", [(one.first_offset, one.delivery_count) for one in partition.acquired_records], [(0, 2)])


def nothing_is_wanted(target: Target) -> None:
    """With 0 records wanted the answer is empty, at once."""
    member = share_group(target, [2])
    expect("responses", member.ask(max_records=0, max_wait_ms=20_000).responses, ())


def deleted_records_are_skipped(target: Target) -> None:
    """Delivery continues after records that were deleted from the log."""
    member = share_group(target, [2, 2])
    target.delete_records(member.topic, 3)
    expect("acquired", member.got(), [(3, 3, 1)])


def the_lock_duration_is_told(target: Target) -> None:
    """Answers tell how long records are locked: `share.record.lock.duration.ms` of the group."""
    member = share_group(target, [1])
    set_group(target, member.group, share_record_lock_duration_ms="20000")
    found = [milliseconds(member.ask().acquisition_lock_timeout), milliseconds(_lock(member))]
    expect("lock durations", found, [20_000, 20_000])


def _lock(member: ShareMember) -> Any:
    return member.acknowledge().acquisition_lock_timeout


# -- acknowledging


def accepted_records_are_not_delivered_again(target: Target) -> None:
    """Accepted records move the start offset; the next ones follow."""
    member = share_group(target, [2, 2])
    member.got(max_records=1)
    expect_error("accept", member.code((0, 1, [_ACCEPT])), "NONE")
    expect("next", member.got(), [(2, 3, 1)])
    expect("start offset", read_state(target, member.group, member.topic).start_offset, 0)


def states_are_written_down(target: Target) -> None:
    """What was said about records is what the share coordinator reads: states and delivery counts."""
    member = share_group(target, [6])
    member.got()
    types = [_ACCEPT, _ACCEPT, _RELEASE, _REJECT, 0]
    expect_error("acknowledge", member.code((1, 5, types)), "NONE")
    wanted = [(1, 2, _ACKNOWLEDGED, 1), (3, 3, _AVAILABLE, 1), (4, 5, _ARCHIVED, 1)]
    expect("states", written_states(target, member.group, member.topic), wanted)


def released_records_are_delivered_again(target: Target) -> None:
    """Released records are delivered again, with a greater count."""
    member = share_group(target, [3])
    member.got()
    expect_error("release", member.code((1, 1, [_RELEASE])), "NONE")
    expect("again", member.got(), [(1, 1, 2)])


def acknowledgements_go_along_with_a_fetch(target: Target) -> None:
    """A ShareFetch acknowledges, and fetches others."""
    member = share_group(target, [2, 2])
    member.got(max_records=1)
    found = member.fetch((0, 1, [_ACCEPT]), max_records=1)
    expect("acquired and error", (found.acquired, found.acknowledge_error_code), ([(2, 3, 1)], 0))
    expect("states", written_states(target, member.group, member.topic), [(0, 1, _ACKNOWLEDGED, 1)])


def an_acknowledgement_alone_is_answered(target: Target) -> None:
    """A ShareFetch that acknowledges, and gets nothing, names the partition."""
    member = share_group(target, [2])
    member.got()
    answer = member.ask((0, 1, [_ACCEPT]), max_wait_ms=0)
    (partition,) = answer.responses[0].partitions
    expect("partition", (partition.partition_index, partition.acknowledge_error_code), (0, 0))


def nobody_acknowledges_for_others(target: Target) -> None:
    """Records of another member cannot be acknowledged: INVALID_RECORD_STATE."""
    member = share_group(target, [2])
    other = ShareMember(target, member.group, member.topic, "other")
    member.got()
    other.fetch(max_wait_ms=0)
    expect_error("error", other.code((0, 1, [_ACCEPT])), "INVALID_RECORD_STATE")


def nobody_acknowledges_twice(target: Target) -> None:
    """Records cannot be acknowledged twice: INVALID_RECORD_STATE."""
    member = share_group(target, [3])
    member.got()
    expect_error("first", member.code((1, 1, [_ACCEPT])), "NONE")
    expect_error("second", member.code((1, 1, [_ACCEPT])), "INVALID_RECORD_STATE")


def all_or_nothing_is_acknowledged(target: Target) -> None:
    """If one of several ranges cannot be acknowledged, none is."""
    member = share_group(target, [4])
    other = ShareMember(target, member.group, member.topic, "other")
    member.got()
    expect_error("first", member.code((3, 3, [_ACCEPT])), "NONE")
    expect_error("both", member.code((0, 1, [_RELEASE]), (3, 3, [_ACCEPT])), "INVALID_RECORD_STATE")
    expect("released to another", other.fetch(max_wait_ms=200).acquired, [])
    expect_error("again", member.code((0, 1, [_ACCEPT])), "NONE")


def what_was_not_acquired_is_not_acknowledged(target: Target) -> None:
    """Offsets past those that were acquired are INVALID_REQUEST; with nothing in flight INVALID_RECORD_STATE."""
    member = share_group(target, [2])
    member.got()
    expect_error("partly past", member.code((1, 5, [_ACCEPT])), "INVALID_REQUEST")
    expect_error("past", member.code((5, 6, [_ACCEPT])), "INVALID_REQUEST")
    expect_error("all", member.code((0, 1, [_ACCEPT])), "NONE")
    expect_error("nothing in flight", member.code((7, 8, [_ACCEPT])), "INVALID_RECORD_STATE")


def old_offsets_are_acknowledged_without_effect(target: Target) -> None:
    """Offsets before the start offset can be acknowledged again: there is nothing to say about them any more."""
    member = share_group(target, [2])
    member.got()
    expect_error("first", member.code((0, 1, [_ACCEPT])), "NONE")
    expect_error("second", member.code((0, 1, [_ACCEPT])), "NONE")


def acknowledgements_that_make_no_sense(target: Target) -> None:
    """Ranges that are inverted, unordered, without types, with too few, or of unknown types are INVALID_REQUEST."""
    member = share_group(target, [4])
    member.got()
    wrong: list[list[tuple[int, int, list[int]]]] = [
        [(1, 0, [_ACCEPT])],
        [(2, 3, [_ACCEPT]), (0, 1, [_ACCEPT])],
        [(0, 1, [])],
        [(0, 3, [_ACCEPT, _ACCEPT])],
        [(0, 3, [5])],
        [(0, 3, [-1])],
        [(0, 3, [_RENEW])],
    ]
    for one in wrong:
        expect_error(str(one), member.code(*one), "INVALID_REQUEST")


def unknown_topics_are_not_acknowledged(target: Target) -> None:
    """Acknowledgements for unknown topics are UNKNOWN_TOPIC_ID, for those nobody fetched from unknown."""
    member = share_group(target, [1])
    member.got()
    topic, member.topic = member.topic, Topic("none", UNUSED_ID)
    expect_error("unknown id", member.code((0, 0, [_ACCEPT])), "UNKNOWN_TOPIC_ID")
    member.topic = target.topic()
    expect_error("not fetched from", member.code((0, 0, [_ACCEPT])), "UNKNOWN_TOPIC_OR_PARTITION")
    member.topic = topic


def renewals_fetch_nothing(target: Target) -> None:
    """A ShareFetch that renews must want nothing; it is answered without records."""
    member = share_group(target, [2, 2])
    member.got(max_records=1)
    nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    wanting = {**nothing, "max_records": 1}
    answer = member.ask((0, 1, [_RENEW]), is_renew_ack=True, **wanting)
    expect_error("wants records", answer.error_code, "INVALID_REQUEST")
    found = member.fetch((0, 1, [_RENEW]), is_renew_ack=True, **nothing)
    expect("acquired and error", (found.acquired, found.acknowledge_error_code), ([], 0))


def renewals_can_be_off(target: Target) -> None:
    """With `share.renew.acknowledge.enable=false` a renewal is INVALID_RECORD_STATE."""
    member = share_group(target, [2])
    set_group(target, member.group, share_renew_acknowledge_enable="false")
    member.got()
    expect_error("renewal", member.code((0, 1, [_RENEW]), is_renew_ack=True), "INVALID_RECORD_STATE")
    expect_error("accept", member.code((0, 1, [_ACCEPT])), "NONE")


# -- limits of deliveries


def a_record_is_not_delivered_too_often(target: Target) -> None:
    """After `share.delivery.count.limit` deliveries a released record is archived."""
    member = share_group(target, [1, 1])
    set_group(target, member.group, share_delivery_count_limit="2")
    expect("first", member.got(max_records=1), [(0, 0, 1)])
    expect_error("release", member.code((0, 0, [_RELEASE])), "NONE")
    expect("second", member.got(max_records=1), [(0, 0, 2)])
    expect_error("release", member.code((0, 0, [_RELEASE])), "NONE")
    expect("the next record", member.got(max_records=1), [(1, 1, 1)])


def often_delivered_records_come_in_smaller_portions(target: Target) -> None:
    """Records that were delivered half as often as allowed come in halves; the last time one by one."""
    member = share_group(target, [8])
    set_group(target, member.group, share_delivery_count_limit="5")
    found = member.got()
    portions = [found]
    for _ in range(4):
        released = [(first, last, [_RELEASE]) for first, last, _ in found]
        expect_error("release", member.code(*released), "NONE")
        found = member.got()
        portions.append(found)
    wanted = [[(0, 7, 1)], [(0, 7, 2)], [(0, 7, 3)], [(0, 3, 4)], [(0, 0, 5)]]
    expect("portions", portions, wanted)


# -- sessions


def a_session_goes_on_with_its_epochs(target: Target) -> None:
    """Each request of a session has the next epoch; another one is INVALID_SHARE_SESSION_EPOCH."""
    member = share_group(target, [1])
    member.got()
    member.fetch(max_wait_ms=0)
    for epoch in (member.epoch - 1, member.epoch + 1):
        answer = member.ask(share_session_epoch=epoch, max_wait_ms=0)
        expect_error(f"epoch {epoch}", answer.error_code, "INVALID_SHARE_SESSION_EPOCH")
    expect_error("next", member.ask(max_wait_ms=0).error_code, "NONE")


def a_session_must_have_begun(target: Target) -> None:
    """Without a session its epochs are SHARE_SESSION_NOT_FOUND, as is its end."""
    member = share_group(target)
    for epoch in (1, -1):
        answer = member.ask(share_session_epoch=epoch, max_wait_ms=0)
        expect_error(f"fetch with {epoch}", answer.error_code, "SHARE_SESSION_NOT_FOUND")
        answer = member.acknowledge(share_session_epoch=epoch)
        expect_error(f"acknowledge with {epoch}", answer.error_code, "SHARE_SESSION_NOT_FOUND")


def an_acknowledgement_begins_no_session(target: Target) -> None:
    """ShareAcknowledge with epoch 0 is INVALID_SHARE_SESSION_EPOCH."""
    member = share_group(target)
    answer = member.acknowledge(share_session_epoch=0)
    expect_error("error", answer.error_code, "INVALID_SHARE_SESSION_EPOCH")


def a_new_session_acknowledges_nothing(target: Target) -> None:
    """A ShareFetch with epoch 0 and acknowledgements is INVALID_REQUEST."""
    member = share_group(target, [1])
    answer = member.ask((0, 0, [_ACCEPT]))
    expect_error("error", answer.error_code, "INVALID_REQUEST")


def the_end_of_a_session_releases_records(target: Target) -> None:
    """Epoch -1 acknowledges, and releases what the member still has."""
    member = share_group(target, [3])
    member.got()
    answer = member.ask((1, 1, [_ACCEPT]), share_session_epoch=-1)
    expect_error("end", answer.error_code, "NONE")
    other = ShareMember(target, member.group, member.topic, "other")
    expect("acquired by another", other.got(), [(0, 0, 2), (2, 2, 2)])


def the_end_by_an_acknowledgement_releases_records(target: Target) -> None:
    """ShareAcknowledge with epoch -1 ends the session, too."""
    member = share_group(target, [3])
    member.got()
    expect_error("end", member.code((0, 0, [_ACCEPT]), share_session_epoch=-1), "NONE")
    other = ShareMember(target, member.group, member.topic, "other")
    expect("acquired by another", other.got(), [(1, 2, 2)])


def a_delivery_counts_if_its_session_ends(target: Target) -> None:
    """What a member that leaves had was delivered: after the last delivery that is allowed it is archived."""
    member = share_group(target, [1])
    set_group(target, member.group, share_delivery_count_limit="2")
    for number in (1, 2):
        other = ShareMember(target, member.group, member.topic, f"member-{number}")
        expect("acquired", other.got(), [(0, 0, number)])
        expect_error("end", other.ask(share_session_epoch=-1).error_code, "NONE")
    archived = [(0, 0, _ARCHIVED, 2)]
    target.until(
        "it is archived", lambda: True if written_states(target, member.group, member.topic) == archived else None
    )


def a_session_ends_with_its_connection(target: Target) -> None:
    """What a member has is released when its connection is closed."""
    member = share_group(target, [2])
    other = ShareMember(target, member.group, member.topic, "other")
    expect("first", member.got(), [(0, 1, 1)])
    expect("acquired already", other.fetch(max_wait_ms=0).acquired, [])
    member.client.close()
    expect("acquired by another", other.got(), [(0, 1, 2)])


def a_new_session_replaces_the_old_one(target: Target) -> None:
    """A member that starts a new session keeps its records, and its old epoch does not count."""
    member = share_group(target, [2])
    member.got()
    member.fetch(share_session_epoch=0, max_wait_ms=0)
    expect("epoch", member.epoch, 1)
    expect_error("accept", member.code((0, 1, [_ACCEPT])), "NONE")


def a_session_answers_what_is_new(target: Target) -> None:
    """After the first answer, a partition without records is not named."""
    member = share_group(target)
    answer = target.until(
        "the partition is loaded",
        lambda: (found := member.ask(share_session_epoch=0, max_wait_ms=100)) and (found if found.responses else None),
    )
    expect("first answer", len(answer.responses), 1)
    expect("second answer", member.ask(max_wait_ms=0).responses, ())


def forgotten_partitions_are_not_fetched(target: Target) -> None:
    """A partition that a session has forgotten is not fetched from any more."""
    member = share_group(target)
    member.fetch(max_wait_ms=0)
    forgotten = [{"topic_id": member.topic.id, "partitions": [0]}]
    member.fetch(forgotten_topics_data=forgotten, max_wait_ms=0)
    target.produced(member.topic, batch(b"a"))
    expect("responses", member.ask(max_wait_ms=200).responses, ())


def unknown_partitions_are_answered(target: Target) -> None:
    """A partition that the topic does not have is UNKNOWN_TOPIC_OR_PARTITION; the others are answered."""
    member = share_group(target, [1])
    member.got()
    asked: list[dict[str, Any]] = [{"partition_index": number, "acknowledgement_batches": []} for number in (9, 0)]
    answer = member.ask(topics=[{"topic_id": member.topic.id, "partitions": asked}], share_session_epoch=0)
    found = {one.partition_index: one.error_code.name.upper() for one in answer.responses[0].partitions}
    expect("errors", found, {9: "UNKNOWN_TOPIC_OR_PARTITION", 0: "NONE"})


def a_group_without_state_gets_nothing(target: Target) -> None:
    """A partition that the share coordinator does not know is UNKNOWN_SERVER_ERROR."""
    member = share_group(target, [1])
    stranger = ShareMember(target, target.name("share"), member.topic)
    answer = target.until(
        "the partition is answered",
        lambda: (found := stranger.ask(share_session_epoch=0)) and (found if found.responses else None),
    )
    expect_error("partition", answer.responses[0].partitions[0].error_code, "UNKNOWN_SERVER_ERROR")


def members_need_ids(target: Target) -> None:
    """A member without an id, or with one of more than 36 characters, is INVALID_REQUEST."""
    member = share_group(target)
    for name in ("", "m" * 37):
        member.name = name
        expect_error(f"fetch by {name!r}", member.ask(max_wait_ms=0).error_code, "INVALID_REQUEST")
        answer = member.acknowledge(share_session_epoch=1)
        expect_error(f"acknowledge by {name!r}", answer.error_code, "INVALID_REQUEST")


# -- time


def a_lock_that_ends_makes_records_available(target: Target) -> None:
    """After `share.record.lock.duration.ms` another member gets the records."""
    member = share_group(target, [2])
    other = ShareMember(target, member.group, member.topic, "other")
    expect("first", member.got(), [(0, 1, 1)])
    target.pass_time(_LOCK_S)
    expect("another", other.got(), [(0, 1, 2)])
    expect_error("too late", member.code((0, 1, [_ACCEPT])), "INVALID_RECORD_STATE")


def a_lock_can_be_renewed(target: Target) -> None:
    """A renewal makes the time of a member begin again, for some records or all."""
    member = share_group(target, [2])
    other = ShareMember(target, member.group, member.topic, "other")
    member.got()
    target.pass_time(_LOCK_S / 2)
    expect_error("renewal", member.code((0, 0, [_RENEW]), is_renew_ack=True), "NONE")
    target.pass_time(_LOCK_S / 2)
    expect("another", other.got(), [(1, 1, 2)])
    expect_error("accept", member.code((0, 0, [_ACCEPT])), "NONE")
