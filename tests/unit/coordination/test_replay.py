"""What each record of `__consumer_offsets` changes: a table, without a broker and without a file."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from odradek.coordination.groups.consumer import ConsumerGroup
from odradek.coordination.groups.offsets import is_expired
from odradek.coordination.groups.replay import GroupState
from odradek.coordination.groups.share import ShareGroup
from odradek.coordination.groups.streams import StreamsGroup
from odradek.coordination.state_log import KeyValue, state_batch
from odradek.messages.coordinators.coordinator_records import CoordinatorRecord, UnknownCoordinatorRecordError, encode
from odradek.messages.coordinators.group_records import (
    NO_EXPIRY,
    TYPES,
    ConsumerGroupMetadataValue,
    GroupKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_group_metadata,
    encode_offset_commit,
)
from odradek.messages.coordinators.share_group_records import (
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
)
from odradek.records.batch import read_records
from odradek.records.builder import build_control_batch
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.records.scan import scan_batches
from odradek.storage.names import TopicPartition

GROUP, PARTITION = "g", TopicPartition("t", 0)


def offset(number: int | None) -> KeyValue:
    value = None if number is None else OffsetCommitValue(number, "", 0)
    return encode_offset_commit(OffsetCommitKey(GROUP, *PARTITION), value)


def classic(protocol_type: str | None) -> KeyValue:
    return encode_group_metadata(
        GROUP, None if protocol_type is None else GroupMetadataValue(protocol_type, 0, None, None)
    )


def epoch(number: int | None) -> KeyValue:
    value = None if number is None else ConsumerGroupMetadataValue(number)
    return encode(TYPES, CoordinatorRecord(3, GroupKey(GROUP), 0, value))


def target(number: int | None) -> KeyValue:
    key, value = epoch(number)
    return b"\0\6" + key[2:], value


def share(number: int, kind: int = 11) -> KeyValue:
    return encode(TYPES, CoordinatorRecord(kind, GroupKey(GROUP), 0, ShareGroupMetadataValue(number, 0)))


def share_topics(is_there: bool) -> KeyValue:
    value = ShareGroupStatePartitionMetadataValue((), (), ()) if is_there else None
    return encode(TYPES, CoordinatorRecord(15, GroupKey(GROUP), 0, value))


NO_SHARE = share(1)[0], None
STREAMS = b"\0\x11" + epoch(1)[0][2:], b"what is not read"
LATER = b"\0\x7f", b""

Step = tuple[int, KeyValue | bool]
"""A producer id, -1 for none, and its record or its marker: True is a commit."""


def state_of(steps: Sequence[Step]) -> GroupState:
    state = GroupState()
    for number, (producer_id, content) in enumerate(steps):
        if isinstance(content, bool):
            marker = EndTransactionMarker(ControlRecordType.COMMIT if content else ControlRecordType.ABORT, 0)
            data = build_control_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp=0)
        else:
            data = bytes(state_batch([content], 0, (producer_id, 0)))
        (batch,) = scan_batches(number.to_bytes(8, "big") + data[8:])
        for record in read_records(data, batch):
            state.replay(record, batch)
    return state


def alone(*records: KeyValue) -> list[Step]:
    return [(-1, record) for record in records]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("steps", "kind", "committed"),
    [
        ([], None, None),
        (alone(classic("consumer")), "classic", None),
        (alone(classic("consumer"), classic(None)), None, None),
        (alone(classic(None)), None, None),
        # An offset makes a group, and its tombstone does not remove that.
        (alone(offset(5)), "classic", 5),
        (alone(offset(5), offset(6)), "classic", 6),
        (alone(offset(5), offset(None)), "classic", None),
        (alone(offset(None)), None, None),
        # The records of a modern group make it; when the last one is removed, it is.
        (alone(epoch(1), target(1)), "consumer", None),
        (alone(epoch(1), target(1), target(None)), "consumer", None),
        (alone(epoch(1), target(1), target(None), epoch(None)), None, None),
        (alone(epoch(None)), None, None),
        (alone(share(1)), "share", None),
        (alone(share_topics(True)), "share", None),
        (alone(share_topics(False)), None, None),
        (alone(share(1), share_topics(True), share_topics(False)), "share", None),
        (alone(share(1), share_topics(True), NO_SHARE), None, None),
        (alone(classic("consumer"), share(1)), "classic", None),
        (alone(epoch(1), share(1)), "consumer", None),
        (alone(share(1), epoch(1)), "share", None),
        (alone(STREAMS), "streams", None),
        (alone(STREAMS, (STREAMS[0], None)), None, None),
        (alone(epoch(1), offset(5), epoch(None)), None, 5),
        # It replaces a group that has never had a protocol type, but no other.
        (alone(offset(5), epoch(1)), "consumer", 5),
        (alone(classic(""), epoch(1)), "consumer", None),
        (alone(classic("consumer"), epoch(1)), "classic", None),
        (alone(epoch(1), classic("consumer"), epoch(None)), "classic", None),
        # The offsets of a transaction count from its commit on, if no later record has set another.
        ([(7, offset(5))], "classic", None),
        ([(7, offset(5)), (7, True)], "classic", 5),
        ([(7, offset(5)), (7, False)], "classic", None),
        ([(7, offset(5)), (8, True)], "classic", None),
        ([*alone(offset(4)), (7, offset(5)), (7, True)], "classic", 5),
        ([(7, offset(5)), *alone(offset(6)), (7, True)], "classic", 6),
        ([(7, offset(5)), *alone(offset(None)), (7, True)], "classic", None),
        ([(7, offset(5)), (8, offset(6)), (8, True), (7, True)], "classic", 6),
    ],
)
def test_what_records_change(steps: list[Step], kind: str | None, committed: int | None) -> None:
    state = state_of(steps)
    found = state.groups.get(GROUP)
    assert (found.kind if isinstance(found, ConsumerGroup | ShareGroup | StreamsGroup) else found and "classic") == kind
    known = state.offsets.of(GROUP).get(PARTITION)
    assert (known and known.value.offset) == committed


@pytest.mark.parametrize(
    ("steps", "is_pending"),
    [
        ([(7, offset(5))], True),
        ([(7, offset(5)), (7, True)], False),
        ([(7, offset(5)), (8, offset(6)), (7, False)], True),
        ([(7, offset(5)), *alone(offset(None))], False),
        (alone(offset(5)), False),
    ],
)
def test_which_offsets_wait_for_a_marker(steps: list[Step], is_pending: bool) -> None:
    offsets = state_of(steps).offsets
    assert offsets.is_pending(GROUP) is offsets.is_pending(GROUP, PARTITION) is is_pending
    assert not offsets.is_pending(GROUP, TopicPartition("t", 1))


def test_a_consumer_group_is_removed_by_tombstones_in_an_order_that_kafka_can_replay() -> None:
    group = state_of(alone(epoch(1), target(1))).groups[GROUP]
    old_topics = b"\0\4" + epoch(None)[0][2:]
    assert group.tombstones() == [target(None), (old_topics, None), epoch(None)]


def test_a_type_of_a_later_kafka_is_told_apart_from_damage() -> None:
    with pytest.raises(UnknownCoordinatorRecordError):
        state_of(alone(LATER))


@pytest.mark.parametrize(
    ("expiry_ms", "since_ms", "now_ms", "answer"),
    [
        (NO_EXPIRY, 100, 149, False),
        (NO_EXPIRY, 100, 150, True),
        (NO_EXPIRY, None, 150, False),
        (200, 100, 199, False),
        (120, 100, 120, True),
        (120, None, 120, False),
    ],
)
def test_when_an_offset_expires(expiry_ms: int, since_ms: int | None, now_ms: int, answer: bool) -> None:
    value = OffsetCommitValue(1, "", 0, expire_timestamp=expiry_ms)
    assert is_expired(value, since_ms, now_ms, retention_ms=50) is answer
