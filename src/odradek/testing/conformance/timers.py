"""What time brings: sessions end, transactions time out, offsets expire, old records go.

A control is needed, or patience.
"""

from __future__ import annotations

import time
from typing import Any

from odradek.records.batch import read_records
from odradek.records.scan import scan_batches
from odradek.testing.conformance.group_offsets import commit, fetched
from odradek.testing.conformance.groups import beat, described, stable_member
from odradek.testing.conformance.target import Target, Topic, batch, expect, expect_error

_SESSION_S = 6.0
"""The shortest session that Apache Kafka's defaults allow."""


def values(target: Target, topic: Topic, **fields: Any) -> list[bytes | None]:
    """Return the values of a topic's records; those of aborted transactions are left out."""
    found: list[bytes | None] = []
    offset = target.offset(topic, -2).offset
    while True:
        part = target.fetch(topic, offset, **fields)
        expect_error("Fetch", part.error_code, "NONE")
        headers = list(scan_batches(part.records or b""))
        if not headers:
            return found
        aborted = {one.producer_id for one in part.aborted_transactions or ()}
        kept = [one for one in headers if not one.is_control and one.producer_id not in aborted]
        found += [record.value for header in kept for record in read_records(part.records, header)]
        offset = headers[-1].next_offset


def times_out(target: Target, group: str) -> None:
    """Expect that the only member of a group, which sends no heartbeat, is removed."""
    target.pass_time(_SESSION_S + 1)
    # A group without members and offsets may be forgotten at once.
    gone = ("Empty", "Dead")
    target.until("the group is empty", lambda: described(target, group).group_state in gone)


def a_silent_member_is_removed(target: Target) -> None:
    """A member that sends no heartbeat for its session time-out is removed, and unknown then."""
    group = target.group()
    member = stable_member(target, group, session_timeout_ms=int(_SESSION_S * 1000))
    times_out(target, group)
    expect_error("heartbeat", beat(target, group, member.member_id, 1), "UNKNOWN_MEMBER_ID")


def a_heartbeat_keeps_a_member(target: Target) -> None:
    """A heartbeat restarts the session time-out."""
    group = target.group()
    member = stable_member(target, group, session_timeout_ms=int(_SESSION_S * 1000))
    for _ in range(3):
        target.pass_time(_SESSION_S / 2)
        expect_error("heartbeat", beat(target, group, member.member_id, 1), "NONE")
    expect("state", described(target, group).group_state, "Stable")


def a_member_that_does_not_join_again_is_left_out(target: Target) -> None:
    """A rebalance ends without the members that do not join again within their rebalance time-out."""
    group = target.group()
    first = stable_member(target, group, session_timeout_ms=60_000, rebalance_timeout_ms=2_000)
    client = target.connect()
    fields: dict[str, Any] = {"group_id": group, "protocols": [{"name": "range", "metadata": b"n"}]}
    fields |= {"session_timeout_ms": 60_000, "rebalance_timeout_ms": 2_000}
    named = target.send(client, "JoinGroup", 5, **fields, member_id="")().member_id
    second = target.send(client, "JoinGroup", 5, **fields, member_id=named)
    target.until("the first is told to join again", lambda: beat(target, group, first.member_id, 1) == 27)
    target.pass_time(3)
    joined = second()
    expect("generation and leader", (joined.generation_id, joined.leader), (2, named))
    expect_error("heartbeat of the first", beat(target, group, first.member_id, 1), "UNKNOWN_MEMBER_ID")


def a_transaction_times_out(target: Target) -> None:
    """A transaction that is open for longer than its time-out is aborted, and its producer is fenced."""
    topic = target.topic()
    transaction = target.transaction(transaction_timeout_ms=1000)
    transaction.add(topic)
    transaction.produce(topic, b"a")
    target.pass_time(12)
    target.until("the transaction is aborted", transaction.is_complete)
    expect("records", values(target, topic, isolation_level=1), [])
    expect("last stable offset", target.fetch(topic, 0, isolation_level=1).last_stable_offset, 2)
    answer = target.produce(topic, transaction.batch(b"b"), transactional_id=transaction.name)
    expect_error("written after it", answer.error_code, "INVALID_PRODUCER_EPOCH")


def offsets_of_an_empty_group_expire(target: Target) -> None:
    """The offsets of a group without members are removed after `offsets.retention.minutes`."""
    seconds = 60 * target.setting("offsets.retention.minutes")
    seconds += target.setting("offsets.retention.check.interval.ms") // 1000
    group, topic = target.group(), target.topic()
    commit(target, group, topic, 7)
    expect("offset", fetched(target, group, topic)[0].committed_offset, 7)
    target.pass_time(seconds / 2)
    expect("offset in the middle", fetched(target, group, topic)[0].committed_offset, 7)
    target.pass_time(seconds / 2 + 2)
    target.until("the offset is removed", lambda: fetched(target, group, topic)[0].committed_offset == -1)


def compaction_keeps_the_last_value_of_a_key(target: Target) -> None:
    """Compaction keeps the last value of each key in old segments, at its offset."""
    settings: dict[str, Any] = {
        "min_cleanable_dirty_ratio": "0.01",
        "segment_ms": "100",
        "max_compaction_lag_ms": "100",
    }
    topic = target.topic(cleanup_policy="compact", **settings)
    before = int(time.time() * 1000) - 10_000
    for value in (b"1", b"2", b"3"):
        target.produced(topic, batch(value, key=b"k", timestamp=before))
    target.produced(topic, batch(b"o", key=b"other", timestamp=before))
    # The active segment is not compacted: by its time this batch begins a new one.
    target.produced(topic, batch(b"last", key=b"last"))
    target.pass_time(20)
    target.until("it is compacted", lambda: values(target, topic) == [b"3", b"o", b"last"])
    expect("next offset", target.offset(topic, -1).offset, 5)


def old_segments_are_deleted(target: Target) -> None:
    """Segments whose records are older than `retention.ms` are deleted, and the log start offset is after them."""
    seconds = target.setting("log.retention.check.interval.ms") / 1000
    topic = target.topic(retention_ms="1000", segment_ms="500")
    target.produced(topic, batch(b"a", timestamp=int(time.time() * 1000) - 10_000))
    target.produced(topic, batch(b"b"))
    target.pass_time(seconds + 2)
    target.until("the first one is deleted", lambda: target.offset(topic, -2).offset >= 1)
