"""ListOffsets: offsets by time, and the special ones."""

from __future__ import annotations

import time
from typing import Any

from odradek.testing.conformance.target import Target, Topic, batch, expect, expect_error, stamped

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _PENDING_UPLOAD = range(-1, -7, -1)


def _now() -> int:
    return int(time.time() * 1000)


def _filled(target: Target, *timestamps: int) -> Topic:
    topic = target.topic()
    for timestamp in timestamps:
        target.produced(topic, batch(b"a", timestamp=timestamp))
    return topic


def _expect_offset(found: Any, offset: int, timestamp: int = -1) -> None:
    expect_error("error", found.error_code, "NONE")
    expect("offset and timestamp", (found.offset, found.timestamp), (offset, timestamp))


def an_unknown_isolation_level(target: Target) -> None:
    """An isolation level that does not exist is UNKNOWN_SERVER_ERROR."""
    found = target.offset(target.topic(), -1, isolation_level=2)
    expect_error("error", found.error_code, "UNKNOWN_SERVER_ERROR")


def latest_of_an_empty_partition(target: Target) -> None:
    """The latest offset of an empty partition is 0."""
    _expect_offset(target.offset(target.topic(), _LATEST), 0)


def earliest_of_an_empty_partition(target: Target) -> None:
    """The earliest offset of an empty partition is 0."""
    _expect_offset(target.offset(target.topic(), _EARLIEST), 0)


def latest(target: Target) -> None:
    """The latest offset is that of the next record."""
    _expect_offset(target.offset(_filled(target, _now(), _now()), _LATEST), 2)


def earliest_after_records_were_deleted(target: Target) -> None:
    """The earliest offset is the first that was not deleted."""
    topic = _filled(target, _now(), _now(), _now())
    target.delete_records(topic, 2)
    _expect_offset(target.offset(topic, _EARLIEST), 2)


def a_time(target: Target) -> None:
    """A time gives the first record at or after it."""
    now = _now()
    topic = _filled(target, now - 2000, now - 1000, now)
    _expect_offset(target.offset(topic, now - 1500), 1, now - 1000)
    _expect_offset(target.offset(topic, now - 1000), 1, now - 1000)


def a_time_without_a_record_is_minus_1(target: Target) -> None:
    """A time after the last record gives offset -1, and no error."""
    _expect_offset(target.offset(_filled(target, _now()), _now() + 3_600_000), -1)


def a_time_within_a_batch(target: Target) -> None:
    """A time is looked for within the batch, not only at its begin."""
    now, topic = _now(), target.topic()
    target.produced(topic, stamped(now - 3000, now - 2000, now - 1000))
    _expect_offset(target.offset(topic, now - 2000), 1, now - 2000)


def timestamps_that_descend(target: Target) -> None:
    """Producers' timestamps need not ascend: the first record at or after a time is found."""
    now, topic = _now(), target.topic()
    target.produced(topic, stamped(now - 1000, now, now - 5000))
    target.produced(topic, stamped(now - 9000))
    _expect_offset(target.offset(topic, now - 500), 1, now)
    _expect_offset(target.offset(topic, now - 9000), 0, now - 1000)


def time_0_is_the_first_record(target: Target) -> None:
    """Time 0 gives the first record."""
    now = _now()
    _expect_offset(target.offset(_filled(target, now, now), 0), 0, now)


def max_timestamp(target: Target) -> None:
    """-3 gives the record with the greatest timestamp (KIP-734), also within a batch."""
    now, topic = _now(), target.topic()
    target.produced(topic, stamped(now - 2000, now, now - 1000))
    target.produced(topic, stamped(now - 500))
    _expect_offset(target.offset(topic, _MAX_TIMESTAMP, version=7), 1, now)


def max_timestamp_of_an_empty_partition(target: Target) -> None:
    """-3 of an empty partition is offset -1, and no error."""
    _expect_offset(target.offset(target.topic(), _MAX_TIMESTAMP, version=7), -1)


def earliest_local(target: Target) -> None:
    """-4 is the earliest offset, as nothing is tiered (KIP-405)."""
    _expect_offset(target.offset(_filled(target, _now()), _EARLIEST_LOCAL, version=8), 0)


def latest_tiered(target: Target) -> None:
    """-5 is offset -1, as nothing is tiered (KIP-1005)."""
    _expect_offset(target.offset(_filled(target, _now()), _LATEST_TIERED, version=9), -1)


def earliest_pending_upload(target: Target) -> None:
    """-6 is offset -1, as nothing is tiered (KIP-1023)."""
    _expect_offset(target.offset(_filled(target, _now()), _PENDING_UPLOAD, version=11), -1)


def a_partition_named_twice_is_invalid(target: Target) -> None:
    """A partition that is named twice is an INVALID_REQUEST."""
    topic = target.topic()
    one = {"partition_index": 0, "timestamp": -1}
    answer = target.call("ListOffsets", 5, topics=[{"name": topic.name, "partitions": [one, one]}])
    for found in answer.topics[0].partitions:
        expect_error("error", found.error_code, "INVALID_REQUEST")


def unknown_partition(target: Target) -> None:
    """A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION."""
    found = target.offset(target.topic(), _LATEST, partition=7)
    expect_error("error", found.error_code, "UNKNOWN_TOPIC_OR_PARTITION")


def unknown_topic(target: Target) -> None:
    """A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION."""
    found = target.offset(Topic(target.name(), target.topic().id), _LATEST)
    expect_error("error", found.error_code, "UNKNOWN_TOPIC_OR_PARTITION")


def _with_epoch(target: Target, epoch: int) -> Any:
    one = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": epoch}
    answer = target.call("ListOffsets", 5, topics=[{"name": target.topic().name, "partitions": [one]}])
    return answer.topics[0].partitions[0]


def a_leader_epoch_to_come_is_unknown(target: Target) -> None:
    """A leader epoch that is not yet is UNKNOWN_LEADER_EPOCH."""
    expect_error("error", _with_epoch(target, 99).error_code, "UNKNOWN_LEADER_EPOCH")


def the_leader_epoch_of_now_is_taken(target: Target) -> None:
    """The current leader epoch is no error, and is in the answer."""
    found = _with_epoch(target, 0)
    expect_error("error", found.error_code, "NONE")
    expect("leader epoch", found.leader_epoch, 0)


def read_committed_is_the_last_stable_offset(target: Target) -> None:
    """For `read_committed` the latest offset is before the first record of an open transaction."""
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    transaction = target.open_transaction(topic, b"b")
    _expect_offset(target.offset(topic, _LATEST, isolation_level=1), 1)
    _expect_offset(target.offset(topic, _LATEST, isolation_level=0), 2)
    transaction.end(committed=True)
    _expect_offset(target.offset(topic, _LATEST, isolation_level=1), 3)


def _special_before(version: int, timestamp: int, target: Target) -> None:
    found = target.offset(_filled(target, _now()), timestamp, version=version)
    expect_error("error", found.error_code, "UNSUPPORTED_VERSION")


def max_timestamp_before_its_version(target: Target) -> None:
    """-3 in v6 is UNSUPPORTED_VERSION."""
    _special_before(6, _MAX_TIMESTAMP, target)


def earliest_local_before_its_version(target: Target) -> None:
    """-4 in v7 is UNSUPPORTED_VERSION."""
    _special_before(7, _EARLIEST_LOCAL, target)


def latest_tiered_before_its_version(target: Target) -> None:
    """-5 in v8 is UNSUPPORTED_VERSION."""
    _special_before(8, _LATEST_TIERED, target)


def a_special_time_that_does_not_exist(target: Target) -> None:
    """-7 is UNSUPPORTED_VERSION."""
    _special_before(11, -7, target)


def an_unsupported_time_counts_more_than_an_unknown_partition(target: Target) -> None:
    """A special time before its version is UNSUPPORTED_VERSION, also of a partition that does not exist."""
    found = target.offset(target.topic(), _MAX_TIMESTAMP, version=6, partition=7)
    expect_error("error", found.error_code, "UNSUPPORTED_VERSION")


def a_partition_that_is_named_twice_is_answered_once(target: Target) -> None:
    """The INVALID_REQUEST of a partition that is named twice stands in the answer once."""
    one = {"partition_index": 0, "timestamp": _LATEST}
    (topic,) = target.call("ListOffsets", 5, topics=[{"name": target.topic().name, "partitions": [one, one]}]).topics
    expect("answers", [(part.partition_index, int(part.error_code)) for part in topic.partitions], [(0, 42)])


def only_consumers_read_committed(target: Target) -> None:
    """For who is no consumer the latest offset is the end of the log, whatever the isolation level."""
    topic = target.topic()
    transaction = target.open_transaction(topic, b"a")
    _expect_offset(target.offset(topic, _LATEST, isolation_level=1), 0)
    _expect_offset(target.offset(topic, _LATEST, isolation_level=1, replica_id=-2), 1)
    transaction.end(committed=True)
