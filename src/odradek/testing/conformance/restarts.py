"""What a restart of the broker must not lose, and what it must take up again. A command that restarts it is needed."""

from __future__ import annotations

from typing import Any

from odradek.testing.conformance.group_offsets import commit, fetched
from odradek.testing.conformance.groups import beat, described, stable_member
from odradek.testing.conformance.target import TRANSIENT, Target, batch, expect, expect_error
from odradek.testing.conformance.timers import times_out, values


def _when_loaded(target: Target, group: str) -> Any:
    """Wait until a group's coordinator is there again; return what it tells of the group."""
    return target.until(
        f"the coordinator of {group}",
        lambda: None if (found := described(target, group)).error_code in TRANSIENT else found,
    )


def members_stay(target: Target) -> None:
    """After a restart the members of a group are the same, in the same generation."""
    group = target.group()
    member = stable_member(target, group)
    target.restart()
    found = _when_loaded(target, group)
    expect("state and members", (found.group_state, len(found.members)), ("Stable", 1))
    expect_error("heartbeat", beat(target, group, member.member_id, 1), "NONE")


def silent_members_are_removed(target: Target) -> None:
    """After a restart the session time-outs of members run as before it."""
    target.skip_if(not target.means.lets_time_pass, "needs --control or --wait")
    group = target.group()
    stable_member(target, group, session_timeout_ms=6000)
    target.restart()
    _when_loaded(target, group)
    times_out(target, group)


def committed_offsets_stay(target: Target) -> None:
    """After a restart the committed offsets are the same."""
    group, topic = target.group(), target.topic()
    commit(target, group, topic, 7)
    target.restart()
    _when_loaded(target, group)
    (found,) = fetched(target, group, topic)
    expect("offset", (found.committed_offset, found.metadata), (7, "m"))


def a_decided_commit_is_completed(target: Target) -> None:
    """A commit that was answered is completed after a restart: its markers are written."""
    topic = target.topic()
    transaction = target.open_transaction(topic, b"a")
    answer = target.call("EndTxn", 3, **transaction.fields, committed=True)
    expect_error("EndTxn", answer.error_code, "NONE")
    target.restart()
    target.until("the markers are written", transaction.is_complete)
    target.until("the record is there", lambda: values(target, topic, isolation_level=1) == [b"a"])
    expect("last stable offset", target.fetch(topic, 0, isolation_level=1).last_stable_offset, 2)


def an_open_transaction_goes_on(target: Target) -> None:
    """A transaction that is open stays so over a restart, and can be committed."""
    topic = target.topic()
    transaction = target.open_transaction(topic, b"a")
    target.restart()
    transaction.add(topic)
    expect("offset", transaction.produce(topic, b"b"), 1)
    expect("last stable offset", target.fetch(topic, 0, isolation_level=1).last_stable_offset, 0)
    transaction.end(committed=True)
    expect("records", values(target, topic, isolation_level=1), [b"a", b"b"])


def an_open_transaction_times_out(target: Target) -> None:
    """After a restart a transaction that is open for longer than its time-out is aborted."""
    target.skip_if(not target.means.lets_time_pass, "needs --control or --wait")
    topic = target.topic()
    transaction = target.transaction(transaction_timeout_ms=1000)
    transaction.add(topic)
    transaction.produce(topic, b"a")
    target.restart()
    target.pass_time(12)
    target.until("the transaction is aborted", transaction.is_complete)
    expect("records", values(target, topic, isolation_level=1), [])


def producers_are_still_known(target: Target) -> None:
    """After a restart a batch that comes again is a duplicate, and one that does not follow is out of order."""
    topic = target.topic()
    producer = target.idempotent_producer()
    sent = [batch(b"a", producer_id=producer, producer_epoch=0, base_sequence=number) for number in (0, 1, 3)]
    expect("offsets", [target.produced(topic, data) for data in sent[:2]], [0, 1])
    target.restart()
    target.until("the topic can be used", lambda: target.has_topic(topic.name))
    expect("offset again", target.produced(topic, sent[1]), 1)
    expect_error("a gap", target.produce(topic, sent[2]).error_code, "OUT_OF_ORDER_SEQUENCE_NUMBER")


def epochs_of_transactional_ids_stay(target: Target) -> None:
    """After a restart a transactional id has the same producer id, and its next epoch."""
    transaction = target.transaction()
    target.restart()
    again = target.transactional_producer(transaction.name)
    expect("id and epoch", (again.producer_id, again.producer_epoch), (transaction.producer_id, transaction.epoch + 1))
