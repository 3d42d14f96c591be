"""What each record of `__consumer_offsets` changes, for the broker and for readers of a folder.

    classic group     the last record counts; a tombstone removes the group
    offset            makes a classic group without members where there is no group
    consumer group,   each record that is no tombstone makes it, the tombstone of its epoch removes it
    share group
    Streams group     exists as long as one of its records does
                      all of them replace a group that only offsets made
    marker            commits or drops the offsets of a transaction

Source in Kafka: `GroupCoordinatorShard.replay`, `GroupMetadataManager.replay`, `OffsetMetadataManager.replay`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from odradek.coordination.groups.classic import ClassicGroup
from odradek.coordination.groups.consumer import ConsumerGroup, Kind
from odradek.coordination.groups.modern import GroupRecord
from odradek.coordination.groups.offsets import Offsets
from odradek.coordination.groups.share import ShareGroup, ShareKind
from odradek.coordination.groups.streams import StreamsGroup
from odradek.messages.coordinators.group_records import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_record,
    modern_key,
)
from odradek.records.control import ControlRecordType, parse_control_key
from odradek.records.header import BatchHeader
from odradek.records.kernels.objects import Record

Group: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup
"""A group of any protocol."""


class GroupState:
    """The groups and offsets of partitions of `__consumer_offsets`.

    Args:
        now_ms: Returns the time from which a group counts as empty that only an offset names; None if it is not known.

    Attributes:
        groups: The groups by their ids.
        offsets: Their offsets.
    """

    def __init__(self, now_ms: Callable[[], int | None] = lambda: None) -> None:
        self._now_ms = now_ms
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()

    def replay(self, record: Record, batch: BatchHeader) -> None:
        """Take over a record.

        Raises:
            UnknownCoordinatorRecordError: Its type is not known; Kafka ignores it.
            FormatError: It is damaged.
        """
        if batch.is_control:
            kind = parse_control_key(record.key)
            if kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                self.offsets.end_transaction(batch.producer_id, is_committed=kind is ControlRecordType.COMMIT)
            return
        key = record.key or b""
        modern = modern_key(key)
        if modern is not None and modern[1] not in (ConsumerGroup.kind, ShareGroup.kind):
            self._replay_modern(key, record.value, *modern)
            return
        number, about, _, value = decode_group_record(key, record.value)
        if isinstance(about, OffsetCommitKey):
            self.replay_offset(about, value, record.offset or 0, batch.producer_id if batch.is_transactional else -1)
        elif isinstance(about, GroupMetadataKey):
            if value is None:
                self.groups.pop(about.group, None)
            else:
                self.groups[about.group] = ClassicGroup.from_record(about.group, value)
        elif modern is not None and modern[1] == ShareGroup.kind:
            self.replay_share(GroupRecord(number, about, value))
        else:
            self.replay_consumer(GroupRecord(number, about, value))

    def replay_consumer(self, record: GroupRecord) -> None:
        """Take over a record of a consumer group."""
        group_id = record.key.group_id
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None or not _is_replaceable(group):
                return
            group = self.groups[group_id] = ConsumerGroup(group_id)
        if record.type == Kind.EPOCH and record.value is None:
            del self.groups[group_id]
        else:
            group.apply(record)

    def replay_share(self, record: GroupRecord) -> None:
        """Take over a record of a share group."""
        group_id = record.key.group_id
        group = self.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            if record.value is None or not _is_replaceable(group):
                return
            group = self.groups[group_id] = ShareGroup(group_id)
        if record.type == ShareKind.EPOCH and record.value is None:
            del self.groups[group_id]
        else:
            group.apply(record, self._now_ms() or 0)

    def replay_offset(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, record_offset: int, producer_id: int
    ) -> None:
        """Take over a record of an offset; see `Offsets.replay`."""
        if value is not None and key.group not in self.groups:
            self.groups[key.group] = ClassicGroup(key.group, self._now_ms())
        self.offsets.replay(key, value, record_offset, producer_id)

    def _replay_modern(self, key: bytes, value: bytes | None, group_id: str, kind: str) -> None:
        group = self.groups.get(group_id)
        if not isinstance(group, StreamsGroup):
            if value is None or not _is_replaceable(group):
                return
            group = self.groups[group_id] = StreamsGroup(group_id, kind)
        if value is not None:
            group.records[key] = value
            return
        group.records.pop(key, None)
        if not group.records:
            del self.groups[group_id]


def _is_replaceable(group: Group | None) -> bool:
    """Whether records of a newer protocol make another group: not if a classic group with members has come after it."""
    return group is None or (isinstance(group, ClassicGroup) and not group.protocol_type)
