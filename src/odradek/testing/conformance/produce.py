"""Produce: what is appended, and what is refused with which error."""

from __future__ import annotations

import struct
import time
from typing import Any

from odradek.errors import ProtocolError
from odradek.records.batch import read_records
from odradek.records.compression import Codec
from odradek.records.header import ATTRIBUTES_POSITION, CRC_POSITION, MAGIC_POSITION
from odradek.records.scan import scan_batches
from odradek.testing.conformance.suite import add
from odradek.testing.conformance.target import UNUSED_ID, Target, Topic, UnexpectedError, batch, expect, expect_error


def _values(target: Target, topic: Topic, offset: int = 0, **fields: Any) -> list[bytes | None]:
    data = target.fetch(topic, offset, **fields).records or b""
    return [record.value for header in scan_batches(data) for record in read_records(data, header)]


def _fields_of(topic: Topic, records: bytes | None) -> dict[str, Any]:
    data = {"index": 0, "records": records}
    return {"topic_data": [{"name": topic.name, "topic_id": topic.id, "partition_data": [data]}]}


# -- acks


def acks_0_has_no_answer(target: Target) -> None:
    """With `acks=0` there is no answer: the next one is that of the next request."""
    topic, client = target.topic(), target.connect()
    target.send(client, "Produce", 9, **_fields_of(topic, batch(b"a")), acks=0)
    expect_error("the next answer", target.call("ApiVersions", 0, client=client).error_code, "NONE")
    target.until("the record is there", lambda: _values(target, topic) or None)


def acks_0_with_an_error_closes_the_connection(target: Target) -> None:
    """With `acks=0` a client learns of an error by the closed connection."""
    client = target.connect()
    topic = Topic(target.name(), UNUSED_ID)
    target.send(client, "Produce", 9, **_fields_of(topic, batch(b"a")), acks=0)
    try:
        client.receive_frame()
    except (ProtocolError, ConnectionError):
        return
    raise UnexpectedError("there is an answer")


def acks_1_and_all(target: Target) -> None:
    """With `acks=1` and `acks=all` the answer has the offset."""
    topic = target.topic()
    expect("offset with acks=1", target.produced(topic, batch(b"a"), acks=1), 0)
    expect("offset with acks=all", target.produced(topic, batch(b"b"), acks=-1), 1)


def other_acks_are_invalid(target: Target) -> None:
    """`acks=2` is INVALID_REQUIRED_ACKS."""
    answer = target.produce(target.topic(), batch(b"a"), acks=2)
    expect_error("error", answer.error_code, "INVALID_REQUIRED_ACKS")


# -- topics


def offsets_follow_each_other(target: Target) -> None:
    """Batches get the offsets after those of the batches before."""
    topic = target.topic()
    expect("offsets", [target.produced(topic, batch(b"a", b"b")) for _ in range(3)], [0, 2, 4])


def unknown_topic(target: Target) -> None:
    """A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION."""
    answer = target.produce(Topic(target.name(), UNUSED_ID), batch(b"a"))
    expect_error("error", answer.error_code, "UNKNOWN_TOPIC_OR_PARTITION")
    expect("offset", answer.base_offset, -1)


def unknown_partition(target: Target) -> None:
    """A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION."""
    answer = target.produce(target.topic(), batch(b"a"), partition=9)
    expect_error("error", answer.error_code, "UNKNOWN_TOPIC_OR_PARTITION")


def unknown_topic_id(target: Target) -> None:
    """From v13 on, an id that no topic has is UNKNOWN_TOPIC_ID."""
    answer = target.produce(Topic("", UNUSED_ID), batch(b"a"), version=13)
    expect_error("error", answer.error_code, "UNKNOWN_TOPIC_ID")


def one_wrong_partition_does_not_spoil_the_others(target: Target) -> None:
    """A request with a partition that does not exist is appended to the other one."""
    topic = target.topic()
    data = [{"index": number, "records": batch(b"a")} for number in (0, 5)]
    answer = target.call("Produce", 9, topic_data=[{"name": topic.name, "partition_data": data}])
    found = {one.index: one.error_code.name for one in answer.responses[0].partition_responses}
    expect("errors", found, {0: "none", 5: "unknown_topic_or_partition"})


def of_a_partition_named_twice_the_last_counts(target: Target) -> None:
    """If a request has two batches for one partition, only the last one is appended and answered."""
    topic = target.topic()
    data = [{"name": topic.name, "partition_data": [{"index": 0, "records": batch(one)}]} for one in (b"a", b"b")]
    twice = [{"name": topic.name, "partition_data": [one["partition_data"][0] for one in data]}]
    for asked in (twice, data):
        answer = target.call("Produce", 9, topic_data=asked)
        found = [(one.index, one.error_code.name) for some in answer.responses for one in some.partition_responses]
        expect("answered", found, [(0, "none")])
    expect("values", _values(target, topic), [b"b", b"b"])


def an_internal_topic_is_refused(target: Target) -> None:
    """A client may not append to the topic of committed offsets: INVALID_TOPIC_EXCEPTION."""
    target.group()
    answer = target.produce(Topic("__consumer_offsets", UNUSED_ID), batch(b"a", key=b"k"))
    expect_error("error", answer.error_code, "INVALID_TOPIC_EXCEPTION")


# -- batches


def empty_is_no_batch(target: Target) -> None:
    """Records of no bytes are INVALID_RECORD."""
    expect_error("error", target.produce(target.topic(), b"").error_code, "INVALID_RECORD")


def two_batches_are_refused(target: Target) -> None:
    """More than one batch for a partition is INVALID_RECORD."""
    answer = target.produce(target.topic(), batch(b"a") + batch(b"b"))
    expect_error("error", answer.error_code, "INVALID_RECORD")


def _changed(data: bytes, at: int, layout: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(layout, changed, at, value)
    return bytes(changed)


def a_wrong_checksum_is_corrupt(target: Target) -> None:
    """A batch whose checksum is wrong is CORRUPT_MESSAGE."""
    answer = target.produce(target.topic(), _changed(batch(b"a"), CRC_POSITION, ">I", 1))
    expect_error("error", answer.error_code, "CORRUPT_MESSAGE")


def a_size_below_the_least_is_corrupt(target: Target) -> None:
    """A batch whose size is below that of the smallest message, or of its header, is CORRUPT_MESSAGE."""
    topic, data = target.topic(), batch(b"a")
    for size in (-1, 0, 13, 48):
        found = target.produce(topic, _changed(data, 8, ">i", size))
        expect_error(f"error of a size of {size}", found.error_code, "CORRUPT_MESSAGE")
    expect_error("error of zeros after it", target.produce(topic, data + bytes(12)).error_code, "CORRUPT_MESSAGE")


def an_unknown_format_is_corrupt(target: Target) -> None:
    """A batch of a format that does not exist is CORRUPT_MESSAGE."""
    for magic in (-1, 3):
        found = target.produce(target.topic(), _changed(batch(b"a"), 16, ">b", magic))
        expect_error(f"error of format {magic}", found.error_code, "CORRUPT_MESSAGE")


def part_of_a_second_batch_is_left_out(target: Target) -> None:
    """A batch is appended without the incomplete one after it."""
    topic, data = target.topic(), batch(b"a")
    target.produced(topic, data + data[:30])
    expect("values", _values(target, topic), [b"a"])


def an_old_format_is_refused(target: Target) -> None:
    """A message of the format's version 1 is INVALID_RECORD."""
    answer = target.produce(target.topic(), _changed(batch(b"a"), MAGIC_POSITION, ">b", 1))
    expect_error("error", answer.error_code, "INVALID_RECORD")


def a_batch_that_is_too_large(target: Target) -> None:
    """A batch above `max.message.bytes` is MESSAGE_TOO_LARGE."""
    answer = target.produce(target.topic(max_message_bytes=1000), batch(b"a" * 2000))
    expect_error("error", answer.error_code, "MESSAGE_TOO_LARGE")


def a_record_that_is_too_large_decompressed(target: Target) -> None:
    """A compressed batch with a record above `max.decompressed.message.bytes` is INVALID_RECORD; no other is."""
    target.needs_newest()
    # 100 bytes of value, and 7 of what is around them.
    exact, less = (target.topic(max_decompressed_message_bytes=most) for most in (107, 106))
    packed = batch(b"a" * 100, codec=Codec.GZIP)
    expect_error("as large as it may be", target.produce(exact, packed).error_code, "NONE")
    expect_error("one byte more", target.produce(less, packed).error_code, "INVALID_RECORD")
    expect_error("uncompressed", target.produce(less, batch(b"a" * 100)).error_code, "NONE")


def what_is_refused_before_the_log_has_no_start(target: Target) -> None:
    """The answer to a batch that is refused before it reaches the log has no log start offset."""
    topic = target.topic(max_message_bytes=100)
    refused = {
        "too large": target.produce(topic, batch(b"x" * 200)),
        "no batch": target.produce(topic, b""),
        "a wrong checksum": target.produce(topic, _changed(batch(b"a"), 17, ">I", 7)),
        "unknown acks": target.produce(topic, batch(b"a"), acks=7),
    }
    expect(
        "log start offsets", {about: one.log_start_offset for about, one in refused.items()}, dict.fromkeys(refused, -1)
    )


def what_the_log_refuses_has_its_start(target: Target) -> None:
    """The answer to a batch that the log refuses has the log start offset."""
    topic, producer = target.topic(), _producer(target)
    target.produced(topic, _idempotent(0, b"a", producer=producer))
    answer = target.produce(topic, _idempotent(5, b"b", producer=producer))
    expect_error("error", answer.error_code, "OUT_OF_ORDER_SEQUENCE_NUMBER")
    expect("log start offset", answer.log_start_offset, 0)


def a_control_batch_is_refused(target: Target) -> None:
    """A client may not append control records: INVALID_RECORD."""
    topic, transaction = target.topic(), target.transaction()
    transaction.add(topic)
    producer = {"producer_id": transaction.producer_id, "producer_epoch": transaction.epoch}
    marker = batch(b"\0\0\0\0\0\0", key=b"\0\0\0\1", is_control=True, is_transactional=True, **producer)
    answer = target.produce(topic, marker, transactional_id=transaction.name)
    expect_error("error", answer.error_code, "INVALID_RECORD")


def a_compacted_topic_needs_keys(target: Target) -> None:
    """A record without a key is INVALID_RECORD on a compacted topic, and the answer says which."""
    answer = target.produce(target.topic(cleanup_policy="compact"), batch(b"a"))
    expect_error("error", answer.error_code, "INVALID_RECORD")
    expect("wrong records", [one.batch_index for one in answer.record_errors], [0])


def a_compacted_topic_takes_keys(target: Target) -> None:
    """A record with a key is taken by a compacted topic."""
    expect("offset", target.produced(target.topic(cleanup_policy="compact"), batch(b"a", key=b"k")), 0)


def a_timestamp_too_far_in_the_future(target: Target) -> None:
    """A timestamp beyond `message.timestamp.after.max.ms` is INVALID_TIMESTAMP."""
    later = int(time.time() * 1000) + 3_600_000
    answer = target.produce(target.topic(message_timestamp_after_max_ms=1000), batch(b"a", timestamp=later))
    expect_error("error", answer.error_code, "INVALID_TIMESTAMP")


def log_append_time(target: Target) -> None:
    """With `message.timestamp.type=LogAppendTime` the answer has the time of the append, and so have the records."""
    topic = target.topic(message_timestamp_type="LogAppendTime")
    answer = target.produce(topic, batch(b"a", timestamp=1))
    at = answer.log_append_time
    expect("there is a time", at is not None, True)
    found = target.offset(topic, 0)
    expect("timestamp of the record", found.timestamp, round(at.timestamp() * 1000))


def zstd_before_v7_is_refused(target: Target) -> None:
    """Zstandard before v7 is UNSUPPORTED_COMPRESSION_TYPE."""
    answer = target.produce(target.topic(), batch(b"a", codec=Codec.ZSTD), version=6)
    expect_error("error", answer.error_code, "UNSUPPORTED_COMPRESSION_TYPE")


def an_unknown_codec_closes_or_refuses(target: Target) -> None:
    """A batch whose codec does not exist is not appended."""
    topic = target.topic()
    wrong = _changed(batch(b"a"), ATTRIBUTES_POSITION - 1, ">h", 7)
    try:
        code = int(target.produce(topic, wrong).error_code)
    except ProtocolError:
        code = -1
    expect("it is refused", code != 0, True)
    expect("offset of the next batch", target.produced(topic, batch(b"b")), 0)


def the_topics_codec_is_applied(target: Target) -> None:
    """A batch is compressed as the topic's `compression.type` says."""
    topic = target.topic(compression_type="gzip")
    target.produced(topic, batch(b"a" * 1000))
    (header,) = scan_batches(target.fetch(topic, 0).records)
    expect("codec", header.codec, Codec.GZIP)


def _codec(codec: Codec, target: Target) -> None:
    topic = target.topic()
    target.produced(topic, batch(b"a" * 1000, b"b", codec=codec), version=9)
    data = target.fetch(topic, 0).records
    (header,) = scan_batches(data)
    expect("codec", header.codec, codec)
    expect("values", _values(target, topic), [b"a" * 1000, b"b"])


for _one in Codec:
    add(
        f"produce.codec_{_one.name.lower()}",
        f"A batch that is compressed by {_one.name.lower()} is kept as it is.",
        lambda target, codec=_one: _codec(codec, target),  # type: ignore[misc]
    )


def keys_values_and_headers_may_be_null(target: Target) -> None:
    """Null and empty are kept apart."""
    topic = target.topic()
    target.produced(topic, batch(None, b""))
    expect("values", _values(target, topic), [None, b""])


# -- idempotence


def _idempotent(sequence: int, *values: bytes, producer: int, epoch: int = 0, **options: Any) -> bytes:
    return batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **options)


def _producer(target: Target) -> int:
    found = target.call("InitProducerId", 4)
    expect_error("InitProducerId", found.error_code, "NONE")
    return int(found.producer_id)


def a_batch_sent_twice_is_there_once(target: Target) -> None:
    """A batch of an idempotent producer that comes again gets the offset that it has."""
    topic, producer = target.topic(), _producer(target)
    data = _idempotent(0, b"a", b"b", producer=producer)
    expect("offsets", [target.produced(topic, data) for _ in range(2)], [0, 0])
    expect("next offset", target.offset(topic, -1).offset, 2)


def the_last_five_batches_are_known(target: Target) -> None:
    """Each of the last five batches may come again."""
    topic, producer = target.topic(), _producer(target)
    sent = [_idempotent(number, b"a", producer=producer) for number in range(5)]
    offsets = [target.produced(topic, data) for data in sent]
    expect("offsets again", [target.produced(topic, data) for data in sent], offsets)


def a_batch_sent_twice_has_its_time(target: Target) -> None:
    """The answer to a batch that comes again has its time, also if the topic's records keep their own."""
    topic, producer = target.topic(), _producer(target)
    data = _idempotent(0, b"a", producer=producer, timestamp=1_700_000_000_000)
    first, again = (target.produce(topic, data).log_append_time for _ in range(2))
    expect("first", first, None)
    expect("again", again and again.timestamp(), 1_700_000_000)


def a_gap_is_out_of_order(target: Target) -> None:
    """A sequence number that does not follow is OUT_OF_ORDER_SEQUENCE_NUMBER."""
    topic, producer = target.topic(), _producer(target)
    target.produced(topic, _idempotent(0, b"a", producer=producer))
    answer = target.produce(topic, _idempotent(5, b"b", producer=producer))
    expect_error("error", answer.error_code, "OUT_OF_ORDER_SEQUENCE_NUMBER")


def a_producer_that_is_not_known_may_begin_anywhere(target: Target) -> None:
    """The first batch of a producer that the partition does not know may have any sequence number."""
    topic, producer = target.topic(), _producer(target)
    expect("offset", target.produced(topic, _idempotent(7, b"a", producer=producer)), 0)


def an_older_epoch_is_fenced(target: Target) -> None:
    """A batch of an older epoch of its producer is INVALID_PRODUCER_EPOCH."""
    topic, producer = target.topic(), _producer(target)
    target.produced(topic, _idempotent(0, b"a", producer=producer, epoch=1))
    answer = target.produce(topic, _idempotent(1, b"b", producer=producer))
    expect_error("error", answer.error_code, "INVALID_PRODUCER_EPOCH")


def a_new_epoch_begins_at_0(target: Target) -> None:
    """The first batch of a new epoch has the sequence number 0; another is OUT_OF_ORDER_SEQUENCE_NUMBER."""
    topic, producer = target.topic(), _producer(target)
    target.produced(topic, _idempotent(0, b"a", producer=producer))
    answer = target.produce(topic, _idempotent(3, b"b", producer=producer, epoch=1))
    expect_error("error", answer.error_code, "OUT_OF_ORDER_SEQUENCE_NUMBER")
    target.produced(topic, _idempotent(0, b"b", producer=producer, epoch=1))


def sequence_numbers_wrap(target: Target) -> None:
    """After the greatest sequence number comes 0."""
    topic, producer = target.topic(), _producer(target)
    target.produced(topic, _idempotent((1 << 31) - 1, b"a", producer=producer))
    expect("offset", target.produced(topic, _idempotent(0, b"b", producer=producer)), 1)


def idempotence_on_a_compacted_topic(target: Target) -> None:
    """An idempotent producer writes to a compacted topic as to any other."""
    topic, producer = target.topic(cleanup_policy="compact"), _producer(target)
    sent = [_idempotent(number, b"a", producer=producer, key=b"k") for number in range(3)]
    expect("offsets", [target.produced(topic, data) for data in sent], [0, 1, 2])
    expect("offset again", target.produced(topic, sent[2]), 2)


def a_timestamp_of_minus_1_does_not_expire_a_producer(target: Target) -> None:
    """A producer whose records have no timestamp is still known."""
    topic, producer = target.topic(), _producer(target)
    sent = [_idempotent(number, b"a", producer=producer, timestamp=-1) for number in range(2)]
    expect("offsets", [target.produced(topic, data) for data in sent], [0, 1])
    expect("offset again", target.produced(topic, sent[1]), 1)


def producer_ids_differ(target: Target) -> None:
    """Each InitProducerId without a transactional id gives another producer id, at epoch 0."""
    found = [target.call("InitProducerId", 4) for _ in range(3)]
    expect("ids", len({one.producer_id for one in found}), 3)
    expect("epochs", {int(one.producer_epoch) for one in found}, {0})


# -- refused by v0 to v2


def _refused_version(version: int, target: Target) -> None:
    client = target.connect()
    body = struct.pack(">hii", 1, 1000, 0)
    frame = struct.pack(">hhih", 0, version, 7, -1) + body
    client.socket.sendall(struct.pack(">i", len(frame)) + frame)
    try:
        answer = client.receive_frame()
    except (ProtocolError, ConnectionError):
        return
    raise UnexpectedError(f"an answer of {len(answer)} bytes, not a closed connection")


for _version in range(3):
    add(
        f"produce.v{_version}_is_refused",
        f"Version {_version} is advertised for old versions of librdkafka, and closes the connection (KIP-896).",
        lambda target, version=_version: _refused_version(version, target),  # type: ignore[misc]
    )
