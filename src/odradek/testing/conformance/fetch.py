"""Fetch: which batches come when, and what the answer says beside them."""

from __future__ import annotations

import time
from typing import Any

from odradek.records.batch import read_records
from odradek.records.scan import scan_batches
from odradek.testing.conformance.administration import delete
from odradek.testing.conformance.target import UNUSED_ID, Target, Topic, batch, expect, expect_error


def _offsets(partition: Any) -> list[int | None]:
    data = partition.records or b""
    return [record.offset for header in scan_batches(data) for record in read_records(data, header)]


def _waited_ms(target: Target, topic: Topic, offset: int, **fields: Any) -> tuple[Any, float]:
    started = time.monotonic()
    found = target.fetch(topic, offset, **fields)
    return found, (time.monotonic() - started) * 1000


def from_the_middle_of_a_batch(target: Target) -> None:
    """From an offset in the middle of a batch the whole batch comes."""
    topic = target.topic()
    target.produced(topic, batch(b"a", b"b", b"c"))
    expect("offsets", _offsets(target.fetch(topic, 1)), [0, 1, 2])


def several_batches_at_once(target: Target) -> None:
    """As many batches come as there are."""
    topic = target.topic()
    for _ in range(3):
        target.produced(topic, batch(b"a"))
    expect("offsets", _offsets(target.fetch(topic, 1)), [1, 2])


def at_the_end_there_is_nothing(target: Target) -> None:
    """At the end there are no records, and no error."""
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    found = target.fetch(topic, 1)
    expect_error("error", found.error_code, "NONE")
    expect("records and high watermark", (found.records, found.high_watermark), (b"", 1))


def beyond_the_end_is_out_of_range(target: Target) -> None:
    """An offset after the end is OFFSET_OUT_OF_RANGE."""
    expect_error("error", target.fetch(target.topic(), 1).error_code, "OFFSET_OUT_OF_RANGE")


def before_the_beginning_is_out_of_range(target: Target) -> None:
    """An offset that was deleted is OFFSET_OUT_OF_RANGE."""
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    target.produced(topic, batch(b"b"))
    target.delete_records(topic, 1)
    expect_error("error", target.fetch(topic, 0).error_code, "OFFSET_OUT_OF_RANGE")
    expect("log start offset", target.fetch(topic, 1).log_start_offset, 1)


def unknown_topic(target: Target) -> None:
    """A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION."""
    found = target.fetch(Topic(target.name(), UNUSED_ID), 0)
    expect_error("error", found.error_code, "UNKNOWN_TOPIC_OR_PARTITION")


def unknown_partition(target: Target) -> None:
    """A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION."""
    found = target.fetch(target.topic(), 0, partition=9)
    expect_error("error", found.error_code, "UNKNOWN_TOPIC_OR_PARTITION")


def unknown_topic_id(target: Target) -> None:
    """From v13 on, an id that no topic has is UNKNOWN_TOPIC_ID."""
    found = target.fetch(Topic("", UNUSED_ID), 0, version=13)
    expect_error("error", found.error_code, "UNKNOWN_TOPIC_ID")


def an_error_is_answered_at_once(target: Target) -> None:
    """A Fetch with an error does not wait."""
    found, waited = _waited_ms(target, target.topic(), 5, max_wait_ms=20_000)
    expect_error("error", found.error_code, "OFFSET_OUT_OF_RANGE")
    expect("waited for 10 s", waited > 10_000, False)


def _of_replica(version: int, replica: int) -> dict[str, Any]:
    return {"replica_id": replica} if version < 15 else {"replica_state": {"replica_id": replica, "replica_epoch": -1}}


def a_replica_that_has_not_the_partition(target: Target) -> None:
    """A replica that the partition does not have is NOT_LEADER_OR_FOLLOWER; UNKNOWN_LEADER_EPOCH if it has an epoch."""
    topic = target.topic()
    epoch = target.call("Metadata", 12, topics=[{"topic_id": None, "name": topic.name}]).topics[0].partitions[0]
    for version in (8, 12, 15):
        fields = _of_replica(version, 9999)
        found = target.fetch(topic, 0, version=version, **fields)
        expect_error(f"error of v{version}", found.error_code, "NOT_LEADER_OR_FOLLOWER")
        if version >= 9:
            of_partition = {"current_leader_epoch": epoch.leader_epoch}
            found = target.fetch(topic, 0, version=version, of_partition=of_partition, **fields)
            expect_error(f"error of v{version} with an epoch", found.error_code, "UNKNOWN_LEADER_EPOCH")


def an_unknown_isolation_level(target: Target) -> None:
    """An isolation level that does not exist is UNKNOWN_SERVER_ERROR, of all or of each partition."""
    topic = target.topic()
    found = target.fetch(topic, 0, version=4, isolation_level=2)
    expect_error("error of v4", found.error_code, "UNKNOWN_SERVER_ERROR")
    answer = target.call("Fetch", 13, **target.fetch_fields(topic, 0), isolation_level=-1)
    expect_error("error of v13", answer.error_code, "UNKNOWN_SERVER_ERROR")


def a_deleted_topic_wakes_a_fetch(target: Target) -> None:
    """A Fetch that waits is answered with an error as soon as its topic is deleted."""
    for version in (12, 13):
        topic, client = target.topic(), target.connect(timeout_s=40)
        answer = target.send(client, "Fetch", version, **target.fetch_fields(topic, 0, max_wait_ms=10_000))
        target.pause()
        started = time.monotonic()
        delete(target, topic)
        (found,) = answer().responses[0].partitions
        expect("waited for 5 s", time.monotonic() - started > 5, False)
        expect(f"there is an error in v{version}", bool(found.error_code), True)


def nothing_to_fetch_is_answered_at_once(target: Target) -> None:
    """A Fetch of no partitions does not wait."""
    started = time.monotonic()
    expect("partitions", target.call("Fetch", 12, max_wait_ms=20_000).responses, ())
    expect("waited for 10 s", time.monotonic() - started > 10, False)


def without_records_it_waits(target: Target) -> None:
    """Without records a Fetch waits for `max.wait`, and has no error then."""
    found, waited = _waited_ms(target, target.topic(), 0, max_wait_ms=400)
    expect_error("error", found.error_code, "NONE")
    expect("waited for 400 ms", waited >= 390, True)


def min_bytes_are_waited_for(target: Target) -> None:
    """A Fetch waits if there is less than `min.bytes`, and then gives what there is."""
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    found, waited = _waited_ms(target, topic, 0, max_wait_ms=400, min_bytes=100_000)
    expect("waited for 400 ms", waited >= 390, True)
    expect("offsets", _offsets(found), [0])


def an_append_wakes_it(target: Target) -> None:
    """A Fetch that waits is answered when a record is appended."""
    topic, client = target.topic(), target.connect()
    waiting = target.send(client, "Fetch", 12, **target.fetch_fields(topic, 0, max_wait_ms=25_000))
    target.pause()
    started = time.monotonic()
    target.produced(topic, batch(b"a"))
    expect("offsets", _offsets(waiting().responses[0].partitions[0]), [0])
    expect("waited for 10 s", time.monotonic() - started > 10, False)


def the_first_batch_comes_even_if_it_is_too_large(target: Target) -> None:
    """A batch that is larger than the limits comes whole (KIP-74)."""
    topic = target.topic()
    target.produced(topic, batch(b"a" * 5000))
    found = target.fetch(topic, 0, max_bytes=10, of_partition={"partition_max_bytes": 10})
    expect("offsets", _offsets(found), [0])


def only_one_partition_may_exceed_the_limit(target: Target) -> None:
    """Only one of two partitions with batches above `max.bytes` has records."""
    topic = target.topic(2)
    for partition in range(2):
        target.produced(topic, batch(b"a" * 5000), partition=partition)
    wanted = [{"partition": one, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for one in range(2)]
    answer = target.call("Fetch", 12, topics=[{"topic": topic.name, "partitions": wanted}], max_bytes=100)
    expect("partitions with records", sum(bool(one.records) for one in answer.responses[0].partitions), 1)


def a_batch_that_does_not_fit_any_more_is_left_out(target: Target) -> None:
    """After the records of one partition, another one gives whole batches or none."""
    topic = target.topic(2)
    for partition in range(2):
        target.produced(topic, batch(b"a" * 5000), partition=partition)
    wanted = [{"partition": one, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for one in range(2)]
    answer = target.call("Fetch", 12, topics=[{"topic": topic.name, "partitions": wanted}], max_bytes=8000)
    sizes = sorted(len(one.records or b"") for one in answer.responses[0].partitions)
    expect("bytes of a partition", (sizes[0], sizes[1] > 5000), (0, True))


def max_bytes_of_a_partition(target: Target) -> None:
    """No more comes than `max.partition.fetch.bytes`, once there is a batch."""
    topic = target.topic()
    for _ in range(5):
        target.produced(topic, batch(b"a" * 1000))
    found = target.fetch(topic, 0, of_partition={"partition_max_bytes": 2500})
    expect("bytes", 1000 < len(found.records) <= 2500, True)


def no_preferred_replica(target: Target) -> None:
    """From v11 on there is a preferred replica to read from, and it is none: -1."""
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    expect("preferred replica", target.fetch(topic, 0, version=11, rack_id="").preferred_read_replica, -1)


def a_leader_epoch_to_come_is_unknown(target: Target) -> None:
    """A leader epoch that is not yet is UNKNOWN_LEADER_EPOCH."""
    found = target.fetch(target.topic(), 0, of_partition={"current_leader_epoch": 99})
    expect_error("error", found.error_code, "UNKNOWN_LEADER_EPOCH")


def the_leader_epoch_of_now_is_taken(target: Target) -> None:
    """The leader epoch of now is no error."""
    found = target.fetch(target.topic(), 0, of_partition={"current_leader_epoch": 0})
    expect_error("error", found.error_code, "NONE")


def aborted_transactions_are_null_for_read_uncommitted(target: Target) -> None:
    """For `read_uncommitted` the list of aborted transactions is null."""
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    expect("aborted", target.fetch(topic, 0).aborted_transactions, None)


def aborted_transactions_are_empty_without_any(target: Target) -> None:
    """For `read_committed` the list of aborted transactions is empty if there are none."""
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    expect("aborted", target.fetch(topic, 0, isolation_level=1).aborted_transactions or (), ())


def a_partition_in_two_topics(target: Target) -> None:
    """Several topics are answered with their names."""
    topics = [target.topic() for _ in range(2)]
    for topic in topics:
        target.produced(topic, batch(b"a"))
    asked = [target.fetch_fields(topic, 0)["topics"][0] for topic in topics]
    answer = target.call("Fetch", 12, topics=asked)
    expect("topics", {one.topic for one in answer.responses}, {topic.name for topic in topics})


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


def an_open_transaction_is_hidden_from_read_committed(target: Target) -> None:
    """`read_committed` reads only up to the first record of an open transaction."""
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    target.open_transaction(topic, b"b")
    found = target.fetch(topic, 0, isolation_level=1)
    expect("offsets", _offsets(found), [0])
    expect("last stable offset and high watermark", (found.last_stable_offset, found.high_watermark), (1, 2))
    expect("for read_uncommitted", _offsets(target.fetch(topic, 0)), [0, 1])


def an_aborted_transaction_is_listed(target: Target) -> None:
    """`read_committed` gets the aborted transactions: producers and first offsets."""
    topic = target.topic()
    transaction = target.open_transaction(topic, b"a")
    transaction.end(committed=False)
    target.produced(topic, batch(b"b"))
    aborted = target.fetch(topic, 0, isolation_level=1).aborted_transactions
    expect("aborted", [(one.producer_id, one.first_offset) for one in aborted], [(transaction.producer_id, 0)])
