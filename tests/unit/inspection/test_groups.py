"""Groups as the records of `__consumer_offsets` describe them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import odradek
from odradek.coordination.placement import partition_for
from odradek.errors import FormatError
from odradek.inspection.groups import GroupStates, load_groups
from odradek.messages.coordinators.coordinator_records import CoordinatorRecord, encode
from odradek.messages.coordinators.group_records import (
    TYPES,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    CurrentMemberAssignmentValue,
    GroupKey,
    MemberKey,
    OffsetCommitKey,
    OffsetCommitValue,
    TargetAssignmentMetadataValue,
    TopicIdPartitions,
    encode_offset_commit,
)
from odradek.places.group_log import append_group_records
from odradek.records import Record
from odradek.records.append.validator import AppendOrigin
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.names import TopicPartition
from peers.batches import transactional

GROUP, MEMBER = GroupKey("g"), MemberKey("g", "m")
EVENTS_0 = TopicPartition("events", 0)


def record(number: int, key: Any, value: Any) -> tuple[bytes, bytes | None]:
    return encode(TYPES, CoordinatorRecord(number, key, 0, value))


def groups(path: Path, *records: tuple[bytes, bytes | None]) -> GroupStates:
    with odradek.open(path) as logs:
        if "events" not in logs.topics():
            logs.create_topic("events", 2)
            logs.create_topic("__consumer_offsets", 1, {"cleanup.policy": "compact"})
        append_group_records(logs, "g", records)
    with LogDirectory(path) as reading:
        return load_groups(reading)


def member(topic_id: UUID, *, epoch: int = 2, state: int = 0) -> list[tuple[bytes, bytes | None]]:
    known = ConsumerGroupMemberMetadataValue(None, None, "counter", "/host", ("events",), None, 1, "range", None)
    held = CurrentMemberAssignmentValue(epoch, 1, state, (TopicIdPartitions(topic_id, (1, 0)),), ())
    return [record(5, MEMBER, known), record(8, MEMBER, held)]


@pytest.mark.parametrize(
    ("group_epoch", "member_epoch", "member_state", "state"),
    [(2, 2, 0, "Stable"), (3, 2, 0, "Assigning"), (2, 1, 0, "Reconciling"), (2, 2, 1, "Reconciling")],
)
def test_the_state_of_a_group_of_the_consumer_protocol(
    group_epoch: int, member_epoch: int, member_state: int, state: str, tmp_path: Path
) -> None:
    with odradek.open(tmp_path) as logs:
        topic = logs.create_topic("events", 2)
        logs.create_topic("__consumer_offsets", 1, {"cleanup.policy": "compact"})
    assert topic.topic_id is not None
    epochs = [
        record(3, GROUP, ConsumerGroupMetadataValue(group_epoch)),
        record(6, GROUP, TargetAssignmentMetadataValue(2)),
    ]
    states = groups(tmp_path, *epochs, *member(topic.topic_id, epoch=member_epoch, state=member_state))
    described = states.describe("g")
    assert described is not None
    assert (described.type, described.state, described.protocol) == ("consumer", state, "range")
    assert described.members is not None
    (found,) = described.members
    assert found[:4] == ("m", None, "counter", "/host")
    assert found.partitions == (EVENTS_0, TopicPartition("events", 1))
    # The member leaves.
    states = groups(tmp_path, record(8, MEMBER, None), record(5, MEMBER, None))
    described = states.describe("g")
    assert described is not None
    assert (described.state, described.members) == ("Empty", ())
    # Its own records remove the group.
    assert groups(tmp_path, *states.tombstones("g")).group_ids() == []


def test_offsets_of_a_transaction_count_from_its_marker_on(tmp_path: Path) -> None:
    key = OffsetCommitKey("g", *EVENTS_0)
    groups(tmp_path, encode_offset_commit(key, OffsetCommitValue(1, "", 0)))
    for commits, after in ((False, 1), (True, 3)):
        with odradek.open(tmp_path) as logs:
            (producer_id,) = logs.take_producer_ids()
            made = Record(*encode_offset_commit(key, OffsetCommitValue(3, "", 0)), timestamp=0)
            data = transactional([made], producer_id, -1)
            log = logs["__consumer_offsets", 0]
            log.append_batches(data, origin=AppendOrigin.COORDINATOR)
            with LogDirectory(tmp_path) as reading:
                assert load_groups(reading).committed("g")[EVENTS_0].offset == 1
            log.end_transaction(producer_id, 0, commit=commits)
        with LogDirectory(tmp_path) as reading:
            assert load_groups(reading).committed("g")[EVENTS_0].offset == after


def test_a_marker_ends_no_transaction_in_another_partition(tmp_path: Path) -> None:
    """The same producer has ended a transaction in one partition, and has the next one open in another."""
    first, second = sorted(("g0", "g1"), key=lambda group_id: partition_for(group_id, 2))
    with odradek.open(tmp_path) as logs:
        logs.create_topic("__consumer_offsets", 2, {"cleanup.policy": "compact"})
        for group_id in (first, second):
            commit = encode_offset_commit(OffsetCommitKey(group_id, *EVENTS_0), OffsetCommitValue(1, "", 0))
            append_group_records(logs, group_id, [commit], producer=(7, 0))
        logs["__consumer_offsets", 1].end_transaction(7, 0, commit=True)
    with LogDirectory(tmp_path) as reading:
        states = load_groups(reading)
    assert (states.committed(first), list(states.committed(second))) == ({}, [EVENTS_0])
    assert [list(states.partitions_with_offsets(one)) for one in (first, second)] == [[EVENTS_0], [EVENTS_0]]
    assert list(states.offsets_of_topics(["events"])) == [(first, EVENTS_0), (second, EVENTS_0)]


def test_a_record_that_is_damaged_is_named(tmp_path: Path) -> None:
    key, _ = encode_offset_commit(OffsetCommitKey("g", *EVENTS_0), OffsetCommitValue(1, "", 0))
    with pytest.raises(FormatError, match=r"__consumer_offsets-0/0+\.log, position \d+"):
        groups(tmp_path, (key, b"\0\1x"))
