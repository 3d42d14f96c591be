"""The settings of share groups (KIP-932): where they begin, and what of transactions they read."""

from __future__ import annotations

from odradek.testing.conformance.administration import set_group
from odradek.testing.conformance.share_members import (
    ShareMember,
    share_group,
)
from odradek.testing.conformance.target import Target, batch, expect

_COMMITTED = "read_committed"


def a_group_begins_at_the_end_by_default(target: Target) -> None:
    """A group whose start offset is not known begins at the end of the log."""
    member = share_group(target, [2], start_offset=-1)
    _loaded(member)
    target.produced(member.topic, batch(b"a"))
    expect("acquired", member.got(), [(2, 2, 1)])


def _loaded(member: ShareMember) -> None:
    """Wait until the broker has loaded a partition without records."""
    member.target.until(
        "the partition is loaded", lambda: bool(member.ask(share_session_epoch=0, max_wait_ms=100).responses)
    )


def a_group_can_begin_at_the_start(target: Target) -> None:
    """With `share.auto.offset.reset=earliest` a group begins at the start of the log."""
    member = share_group(target, [2], start_offset=-1)
    set_group(target, member.group, share_auto_offset_reset="earliest")
    expect("acquired", member.got(), [(0, 1, 1)])


def a_group_can_begin_some_time_ago(target: Target) -> None:
    """With `share.auto.offset.reset=by_duration` a group begins with the records of that time."""
    member = share_group(target, start_offset=-1)
    target.produced(member.topic, batch(b"old", timestamp=1))
    target.produced(member.topic, batch(b"new"))
    set_group(target, member.group, share_auto_offset_reset="by_duration:PT1H")
    expect("acquired", member.got(), [(1, 1, 1)])


def aborted_records_are_left_out(target: Target) -> None:
    """With `share.isolation.level=read_committed` records of aborted transactions are not delivered."""
    member = share_group(target)
    set_group(target, member.group, share_isolation_level=_COMMITTED)
    transaction = target.open_transaction(member.topic, b"a", b"b")
    transaction.end(committed=False)
    target.produced(member.topic, batch(b"c"))
    # The marker is offset 2; no member gets it, but it counts.
    expect("acquired", member.got(), [(2, 3, 1)])


def aborted_records_are_delivered_by_default(target: Target) -> None:
    """A group that reads uncommitted gets the records of aborted transactions."""
    member = share_group(target)
    transaction = target.open_transaction(member.topic, b"a", b"b")
    transaction.end(committed=False)
    expect("acquired", member.got(), [(0, 2, 1)])


def open_transactions_hold_committed_readers_back(target: Target) -> None:
    """A group that reads committed does not get what comes after an open transaction."""
    member = share_group(target, [1])
    set_group(target, member.group, share_isolation_level=_COMMITTED)
    transaction = target.open_transaction(member.topic, b"a")
    target.produced(member.topic, batch(b"c"))
    expect("before", member.got(), [(0, 0, 1)])
    expect("held back", member.fetch(max_wait_ms=200).acquired, [])
    transaction.end(committed=True)
    expect("after", member.got(), [(1, 3, 1)])
