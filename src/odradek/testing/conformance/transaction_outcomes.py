"""What transactions leave in the log: markers, what `read_committed` is given, offsets that wait for their end."""

from __future__ import annotations

from typing import Any

from odradek.records.batch import read_records
from odradek.records.scan import scan_batches
from odradek.testing.conformance.group_offsets import PendingOffsets, fetched
from odradek.testing.conformance.target import Target, Topic, expect, expect_error


def _markers(target: Target, topic: Topic) -> list[Any]:
    data = target.fetch(topic, 0).records
    headers = [header for header in scan_batches(data) if header.is_control]
    return [record for header in headers for record in read_records(data, header)]


def _ended(target: Target, *, committed: bool) -> Any:
    topic = target.topic()
    target.open_transaction(topic, b"a").end(committed=committed)
    (marker,) = _markers(target, topic)
    return marker


def a_commit_marker(target: Target) -> None:
    """A commit writes a marker: key version 0, type 1, and a value of 6 bytes: its version and the epoch."""
    marker = _ended(target, committed=True)
    expect("key", marker.key, b"\0\0\0\1")
    expect("bytes of the value and its version", (len(marker.value), marker.value[:2]), (6, b"\0\0"))


def an_abort_marker(target: Target) -> None:
    """An abort writes a marker: key version 0, type 0, and a value of 6 bytes."""
    marker = _ended(target, committed=False)
    expect("key", marker.key, b"\0\0\0\0")
    expect("bytes of the value", len(marker.value), 6)


def two_transactions_after_each_other(target: Target) -> None:
    """The records of two committed transactions are there for `read_committed`, in their order."""
    made, topic = target.transaction(), target.topic()
    for value in (b"a", b"b"):
        made.add(topic)
        made.produce(topic, value)
        made.end(committed=True)
    found = target.fetch(topic, 0, isolation_level=1)
    expect("high watermark and last stable offset", (found.high_watermark, found.last_stable_offset), (4, 4))


def sequence_numbers_go_on_after_an_abort(target: Target) -> None:
    """A batch with the sequence number of an aborted one is its duplicate: it gets the same offset, and is not kept."""
    topic = target.topic()
    transaction = target.open_transaction(topic, b"a")
    transaction.end(committed=False)
    transaction.add(topic)
    again = transaction.batch(b"b", sequence=0)
    expect("offset", target.produced(topic, again, transactional_id=transaction.name), 0)
    transaction.end(committed=True)
    # The record and two markers.
    expect("high watermark", target.fetch(topic, 0).high_watermark, 3)


def offsets_of_a_transaction_wait_for_its_end(target: Target) -> None:
    """An offset that was committed in a transaction is not told before its end: UNSTABLE_OFFSET_COMMIT."""
    group, topic = target.group(), target.topic()
    offsets = PendingOffsets(target, group, topic)
    offsets.commit()
    expect("offset", fetched(target, group, topic)[0].committed_offset, -1)
    stable = fetched(target, group, topic, require_stable=True)[0]
    expect_error("error if it must be stable", stable.error_code, "UNSTABLE_OFFSET_COMMIT")
    offsets.transaction.end(committed=True)
    expect("offset after the commit", fetched(target, group, topic)[0].committed_offset, 7)


def offsets_of_an_aborted_transaction_are_dropped(target: Target) -> None:
    """An offset of an aborted transaction does not count."""
    group, topic = target.group(), target.topic()
    offsets = PendingOffsets(target, group, topic)
    offsets.commit()
    offsets.transaction.end(committed=False)
    found = fetched(target, group, topic, require_stable=True)[0]
    expect_error("error", found.error_code, "NONE")
    expect("offset", found.committed_offset, -1)
