"""Fetch: which batches come when, and what is told beside them."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from odradek.records.batch import read_records
from odradek.records.scan import scan_batches
from odradek.testing.conformance.suite import check
from odradek.testing.conformance.target import Target, Topic, batch, expect, expect_error

_UNUSED_ID = UUID("5a3f9c1e-22d4-4c8b-9f10-6f2d1f3f7a03")


def _offsets(partition: Any) -> list[int | None]:
    data = partition.records or b""
    return [record.offset for header in scan_batches(data) for record in read_records(data, header)]


def _waited_ms(target: Target, topic: Topic, offset: int, **fields: Any) -> tuple[Any, float]:
    started = time.monotonic()
    found = target.fetch(topic, offset, **fields)
    return found, (time.monotonic() - started) * 1000


@check
def from_the_middle_of_a_batch(target: Target) -> None:
    """From an offset in the middle of a batch the whole batch comes."""
    topic = target.topic()
    target.produced(topic, batch(b"a", b"b", b"c"))
    expect("offsets", _offsets(target.fetch(topic, 1)), [0, 1, 2])


@check
def several_batches_at_once(target: Target) -> None:
    """As many batches come as there are."""
    topic = target.topic()
    for _ in range(3):
        target.produced(topic, batch(b"a"))
    expect("offsets", _offsets(target.fetch(topic, 1)), [1, 2])


@check
def at_the_end_there_is_nothing(target: Target) -> None:
    """At the end there are no records, and no error."""
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    found = target.fetch(topic, 1)
    expect_error("error", found.error_code, "NONE")
    expect("records and high watermark", (found.records, found.high_watermark), (b"", 1))


@check
def beyond_the_end_is_out_of_range(target: Target) -> None:
    """An offset after the end is OFFSET_OUT_OF_RANGE."""
    expect_error("error", target.fetch(target.topic(), 1).error_code, "OFFSET_OUT_OF_RANGE")


@check
def before_the_beginning_is_out_of_range(target: Target) -> None:
    """An offset that was deleted is OFFSET_OUT_OF_RANGE."""
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    target.produced(topic, batch(b"b"))
    deleted = [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": 1}]}]
    target.call("DeleteRecords", 2, topics=deleted)
    expect_error("error", target.fetch(topic, 0).error_code, "OFFSET_OUT_OF_RANGE")
    expect("log start offset", target.fetch(topic, 1).log_start_offset, 1)


@check
def unknown_topic(target: Target) -> None:
    """A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION."""
    found = target.fetch(Topic(target.name(), _UNUSED_ID), 0)
    expect_error("error", found.error_code, "UNKNOWN_TOPIC_OR_PARTITION")


@check
def unknown_partition(target: Target) -> None:
    """A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION."""
    found = target.fetch(target.topic(), 0, partition=9)
    expect_error("error", found.error_code, "UNKNOWN_TOPIC_OR_PARTITION")


@check
def unknown_topic_id(target: Target) -> None:
    """From v13 on, an id that no topic has is UNKNOWN_TOPIC_ID."""
    found = target.fetch(Topic("", _UNUSED_ID), 0, version=13)
    expect_error("error", found.error_code, "UNKNOWN_TOPIC_ID")


@check
def an_error_is_answered_at_once(target: Target) -> None:
    """A Fetch with an error does not wait."""
    found, waited = _waited_ms(target, target.topic(), 5, max_wait_ms=20_000)
    expect_error("error", found.error_code, "OFFSET_OUT_OF_RANGE")
    expect("waited for 10 s", waited > 10_000, False)


@check
def nothing_to_fetch_is_answered_at_once(target: Target) -> None:
    """A Fetch of no partitions does not wait."""
    started = time.monotonic()
    expect("partitions", target.call("Fetch", 12, max_wait_ms=20_000).responses, ())
    expect("waited for 10 s", time.monotonic() - started > 10, False)


@check
def without_records_it_waits(target: Target) -> None:
    """Without records a Fetch waits for `max.wait`, and has no error then."""
    found, waited = _waited_ms(target, target.topic(), 0, max_wait_ms=400)
    expect_error("error", found.error_code, "NONE")
    expect("waited for 400 ms", waited >= 390, True)


@check
def min_bytes_are_waited_for(target: Target) -> None:
    """A Fetch waits if there is less than `min.bytes`, and then gives what there is."""
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    found, waited = _waited_ms(target, topic, 0, max_wait_ms=400, min_bytes=100_000)
    expect("waited for 400 ms", waited >= 390, True)
    expect("offsets", _offsets(found), [0])


@check
def an_append_wakes_it(target: Target) -> None:
    """A Fetch that waits is answered when a record is appended."""
    topic, client = target.topic(), target.connect()
    waiting = target.send(client, "Fetch", 12, **target.fetch_fields(topic, 0, max_wait_ms=25_000))
    target.pause()
    started = time.monotonic()
    target.produced(topic, batch(b"a"))
    expect("offsets", _offsets(waiting().responses[0].partitions[0]), [0])
    expect("waited for 10 s", time.monotonic() - started > 10, False)


@check
def the_first_batch_comes_even_if_it_is_too_large(target: Target) -> None:
    """A batch that is larger than the limits comes whole (KIP-74)."""
    topic = target.topic()
    target.produced(topic, batch(b"a" * 5000))
    found = target.fetch(topic, 0, max_bytes=10, of_partition={"partition_max_bytes": 10})
    expect("offsets", _offsets(found), [0])


@check
def only_one_partition_may_exceed_the_limit(target: Target) -> None:
    """Of two partitions with batches above `max.bytes`, one has records."""
    topic = target.topic(2)
    for partition in range(2):
        target.produced(topic, batch(b"a" * 5000), partition=partition)
    wanted = [{"partition": one, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for one in range(2)]
    answer = target.call("Fetch", 12, topics=[{"topic": topic.name, "partitions": wanted}], max_bytes=100)
    expect("partitions with records", sum(bool(one.records) for one in answer.responses[0].partitions), 1)


@check
def a_batch_that_does_not_fit_any_more_is_left_out(target: Target) -> None:
    """After the records of one partition, another one gives whole batches or none."""
    topic = target.topic(2)
    for partition in range(2):
        target.produced(topic, batch(b"a" * 5000), partition=partition)
    wanted = [{"partition": one, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for one in range(2)]
    answer = target.call("Fetch", 12, topics=[{"topic": topic.name, "partitions": wanted}], max_bytes=8000)
    sizes = sorted(len(one.records or b"") for one in answer.responses[0].partitions)
    expect("bytes of a partition", (sizes[0], sizes[1] > 5000), (0, True))


@check
def max_bytes_of_a_partition(target: Target) -> None:
    """No more comes than `max.partition.fetch.bytes`, once there is a batch."""
    topic = target.topic()
    for _ in range(5):
        target.produced(topic, batch(b"a" * 1000))
    found = target.fetch(topic, 0, of_partition={"partition_max_bytes": 2500})
    expect("bytes", 1000 < len(found.records) <= 2500, True)


@check
def no_preferred_replica(target: Target) -> None:
    """From v11 on there is a preferred replica to read from, and it is none: -1."""
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    expect("preferred replica", target.fetch(topic, 0, version=11, rack_id="").preferred_read_replica, -1)


@check
def a_leader_epoch_to_come_is_unknown(target: Target) -> None:
    """A leader epoch that is not yet is UNKNOWN_LEADER_EPOCH."""
    found = target.fetch(target.topic(), 0, of_partition={"current_leader_epoch": 99})
    expect_error("error", found.error_code, "UNKNOWN_LEADER_EPOCH")


@check
def the_leader_epoch_of_now_is_taken(target: Target) -> None:
    """The leader epoch of now is no error."""
    found = target.fetch(target.topic(), 0, of_partition={"current_leader_epoch": 0})
    expect_error("error", found.error_code, "NONE")


@check
def aborted_transactions_are_null_for_read_uncommitted(target: Target) -> None:
    """For `read_uncommitted` the list of aborted transactions is null."""
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    expect("aborted", target.fetch(topic, 0).aborted_transactions, None)


@check
def aborted_transactions_are_empty_without_any(target: Target) -> None:
    """For `read_committed` the list of aborted transactions is empty if there are none."""
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    expect("aborted", target.fetch(topic, 0, isolation_level=1).aborted_transactions or (), ())


@check
def a_partition_in_two_topics(target: Target) -> None:
    """Several topics are answered with their names."""
    topics = [target.topic() for _ in range(2)]
    for topic in topics:
        target.produced(topic, batch(b"a"))
    asked = [target.fetch_fields(topic, 0)["topics"][0] for topic in topics]
    answer = target.call("Fetch", 12, topics=asked)
    expect("topics", {one.topic for one in answer.responses}, {topic.name for topic in topics})


@check
def of_a_partition_named_twice_the_last_counts(target: Target) -> None:
    """A partition that a request names twice is answered once, from the offset that came last."""
    topic = target.topic()
    for value in (b"a", b"b"):
        target.produced(topic, batch(value))
    wanted = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20} for offset in (0, 1)]
    for epoch in (-1, 0):
        answer = target.call(
            "Fetch", 12, topics=[{"topic": topic.name, "partitions": wanted}], session_id=0, session_epoch=epoch
        )
        expect("offsets", [_offsets(one) for one in answer.responses[0].partitions], [[1]])


@check
def an_open_transaction_is_hidden_from_read_committed(target: Target) -> None:
    """`read_committed` reads only up to the first record of an open transaction."""
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    target.open_transaction(topic, b"b")
    found = target.fetch(topic, 0, isolation_level=1)
    expect("offsets", _offsets(found), [0])
    expect("last stable offset and high watermark", (found.last_stable_offset, found.high_watermark), (1, 2))
    expect("for read_uncommitted", _offsets(target.fetch(topic, 0)), [0, 1])


@check
def an_aborted_transaction_is_listed(target: Target) -> None:
    """`read_committed` is told which producer's records, from which offset on, were aborted."""
    topic = target.topic()
    transaction = target.open_transaction(topic, b"a")
    transaction.end(committed=False)
    target.produced(topic, batch(b"b"))
    aborted = target.fetch(topic, 0, isolation_level=1).aborted_transactions
    expect("aborted", [(one.producer_id, one.first_offset) for one in aborted], [(transaction.producer_id, 0)])
