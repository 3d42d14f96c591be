from __future__ import annotations

from pathlib import Path

import pytest

from odradek.errors import FormatError
from odradek.messages.coordinators.group_records import (
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_group_metadata,
    encode_offset_commit,
)
from odradek.records import Record
from odradek.records.builder import build_batch, build_control_batch
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.storage.directory.committed_offsets import consumer_group_offsets
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.names import TopicPartition
from peers.kafka_fixture import KafkaFixture


def test_what_a_group_committed_to_kafka(fixture_4_3_1: KafkaFixture, fixture_2_8_2: KafkaFixture) -> None:
    with LogDirectory(fixture_4_3_1.log_dir) as logs:
        offsets = consumer_group_offsets(logs)
    assert {group: {tp.partition: c.offset for tp, c in found.items()} for group, found in offsets.items()} == {
        "group-1": {0: 69, 1: 157, 2: 274}
    }
    with LogDirectory(fixture_2_8_2.log_dir) as logs:
        offsets = consumer_group_offsets(logs)
    assert {group: {tp: c.offset for tp, c in found.items()} for group, found in offsets.items()} == {
        "group-1": {TopicPartition("keyed", 0): 171, TopicPartition("keyed", 1): 160, TopicPartition("keyed", 2): 169}
    }


class OffsetsTopic:
    """A partition of `__consumer_offsets` that a test writes."""

    def __init__(self, path: Path) -> None:
        self.directory = path
        self.folder = path / "__consumer_offsets-0"
        self.folder.mkdir()
        self.next_offset = 0

    def _append(self, batch: bytes, count: int) -> None:
        with (self.folder / f"{0:020d}.log").open("ab") as file:
            file.write(batch)
        self.next_offset += count

    def commit(self, topic: str, offset: int | None, producer_id: int | None = None) -> None:
        value = None if offset is None else OffsetCommitValue(offset, "", 1)
        self.write(Record(*encode_offset_commit(OffsetCommitKey("g", topic, 0), value)), producer_id)

    def write(self, record: Record, producer_id: int | None = None) -> None:
        in_transaction = (
            {}
            if producer_id is None
            else {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
        )
        self._append(build_batch([record], base_offset=self.next_offset, **in_transaction), 1)  # type: ignore[arg-type]

    def end(self, kind: ControlRecordType, producer_id: int) -> None:
        marker = EndTransactionMarker(kind, 0)
        batch = build_control_batch(
            marker, producer_id=producer_id, producer_epoch=0, timestamp=1, base_offset=self.next_offset
        )
        self._append(batch, 1)

    def offsets(self) -> dict[str, int]:
        with LogDirectory(self.directory) as logs:
            groups = consumer_group_offsets(logs)
        assert set(groups) <= {"g"}
        return {topic_partition.topic: value.offset for topic_partition, value in groups.get("g", {}).items()}


def test_commits_tombstones_and_transactions(tmp_path: Path) -> None:
    topic = OffsetsTopic(tmp_path)
    for name in ("plain", "deleted", "committed", "aborted", "open", "overtaken", "ended later"):
        topic.commit(name, 1)
    topic.commit("plain", 2)
    topic.commit("deleted", None)
    topic.commit("committed", 3, producer_id=7)
    topic.commit("overtaken", 4, producer_id=7)
    topic.commit("aborted", 5, producer_id=8)
    topic.commit("open", 6, producer_id=9)
    topic.commit("overtaken", 8)
    topic.end(ControlRecordType.COMMIT, 7)
    topic.end(ControlRecordType.ABORT, 8)
    topic.commit("after the open one", 10)
    topic.write(Record(*encode_group_metadata("g", GroupMetadataValue("consumer", 1, None, None))))
    topic.write(Record(b"\0\x0f\0\1x", b"\0\0"))

    expected = {"plain": 2, "committed": 3, "aborted": 1, "open": 1, "overtaken": 8, "ended later": 1}
    assert topic.offsets() == expected | {"after the open one": 10}
    topic.end(ControlRecordType.COMMIT, 9)
    assert topic.offsets()["open"] == 6


def test_no_groups(tmp_path: Path) -> None:
    with LogDirectory(tmp_path) as logs:
        assert consumer_group_offsets(logs) == {}


def test_a_record_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    topic = OffsetsTopic(tmp_path)
    topic.commit("t", 1)
    topic.write(Record(encode_offset_commit(OffsetCommitKey("g", "t", 0), None)[0], b"\0\4\0"))

    with pytest.raises(FormatError, match="record 1: a field claims 8 bytes, 1 are left"):
        topic.offsets()
