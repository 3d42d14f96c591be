"""The groups of one partition of `__consumer_offsets`, and how they are kept in its log.

A change is appended to the log first, and only then made in memory. On loading, the log is replayed; the offsets of a
transaction wait for its marker, as when they were committed.

Source in Kafka: `GroupCoordinatorShard`, `CoordinatorRuntime`, `CoordinatorOperationExceptionHelper`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kio.schema.errors import ErrorCode

from odradek.broker.clock import Clock
from odradek.broker.config import BrokerConfig
from odradek.broker.errors import ApiError, code_of, message_of
from odradek.broker.groups.group import Group, State, join_answer, sync_answer
from odradek.broker.groups.membership import Membership
from odradek.broker.groups.modern_group import ModernGroup
from odradek.broker.partitions import Partition
from odradek.broker.state_log import StateRecord, append_state
from odradek.errors import OdradekError
from odradek.inspection.committed_offsets import Offsets
from odradek.messages.coordinators.coordinator_records import UnknownCoordinatorRecordError
from odradek.messages.coordinators.group_records import (
    NO_EXPIRY,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_record,
    encode_offset_commit,
    modern_key,
)
from odradek.printable import logger
from odradek.records.control import ControlRecordType, parse_control_key
from odradek.storage.names import TopicPartition

_logger = logger(__name__)

_TOMBSTONES_AT_ONCE = 1000

_CODES = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
}
"""What clients are told of a log that cannot be written."""


class Shard:
    """The groups of a partition.

    Args:
        partition: The partition.
        clock: The time.
        config: The broker's settings.

    Attributes:
        partition: The partition.
        groups: The groups by their ids.
        offsets: Their offsets.
        members: Their members.
    """

    def __init__(self, partition: Partition, clock: Clock, config: BrokerConfig) -> None:
        self.partition = partition
        self._clock = clock
        self._retention_ms: int = config["offsets.retention.minutes"] * 60_000
        self.groups: dict[str, Group | ModernGroup] = {}
        self.offsets = Offsets()
        self.members = Membership(self, clock, config)

    # -- the log

    def replay(self, state: StateRecord) -> None:
        """Take over a record of the log.

        Raises:
            FormatError: It is damaged.
        """
        record, batch = state
        if batch.is_control:
            kind = parse_control_key(record.key)
            if kind in (ControlRecordType.COMMIT, ControlRecordType.ABORT):
                self.offsets.end_transaction(batch.producer_id, is_committed=kind is ControlRecordType.COMMIT)
            return
        key = record.key or b""
        modern = modern_key(key)
        if modern is not None:
            self._replay_modern(key, *modern, is_removed=record.value is None)
            return
        try:
            decoded = decode_group_record(key, record.value)
        except UnknownCoordinatorRecordError as error:
            _logger.warning("%s: %s", self.partition.topic_partition, error)
            return
        about = decoded.key
        if isinstance(about, OffsetCommitKey):
            producer_id = batch.producer_id if batch.is_transactional else -1
            self.replay_offset(about, decoded.value, record.offset or 0, producer_id)
        elif isinstance(about, GroupMetadataKey):
            if decoded.value is None:
                self.groups.pop(about.group, None)
            else:
                self.groups[about.group] = Group.from_record(about.group, decoded.value)

    def replay_offset(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, record_offset: int, producer_id: int
    ) -> None:
        """Take over a record of an offset. The first offset of a group without members makes the group."""
        if value is not None and key.group not in self.groups:
            self.groups[key.group] = Group(key.group, self._clock.now_ms())
        self.offsets.replay(key, value, record_offset, producer_id)

    def _replay_modern(self, key: bytes, group_id: str, kind: str, *, is_removed: bool) -> None:
        group = self.groups.get(group_id)
        if not isinstance(group, ModernGroup):
            # A group that offsets have made (without a protocol type) may turn out to be a modern one. A classic group
            # with members has replaced the modern one, so later tombstones of that one do not count.
            if is_removed or (group is not None and group.protocol_type is not None):
                return
            group = self.groups[group_id] = ModernGroup(group_id, kind)
        if not is_removed:
            group.keys[key] = None
            return
        group.keys.pop(key, None)
        if not group.keys:
            del self.groups[group_id]

    def append(
        self, records: Sequence[tuple[bytes, bytes | None]], producer_id: int = -1, producer_epoch: int = -1
    ) -> int:
        """Append records to the log, for a transaction if a producer is given.

        Returns:
            The offset of the first one.

        Raises:
            ApiError: They could not be written.
        """
        try:
            return append_state(
                self.partition,
                records,
                self._clock.now_ms(),
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                is_transactional=producer_id >= 0,
            )
        except (OdradekError, OSError) as error:
            code = ErrorCode(code_of(error))
            if code is ErrorCode.kafka_storage_error:
                _logger.error("%s cannot be written: %s", self.partition.topic_partition, error)
            raise ApiError(_CODES.get(code, code), message_of(error)) from error

    # -- offsets

    def check_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        *,
        is_transactional: bool,
        unknown: ErrorCode = ErrorCode.illegal_generation,
    ) -> None:
        """Check whether a client may commit offsets of a group; if it may, that keeps it in the group.

        Args:
            group_id: The group.
            member_id: The member, or nothing.
            instance_id: Its `group.instance.id`.
            generation_id: The generation that it is in; -1 for who is in no group.
            is_transactional: Whether the offsets belong to a transaction.
            unknown: What is answered if there is no such group.

        Raises:
            ApiError: It may not.
        """
        group = self.groups.get(group_id)
        if group is None:
            if generation_id >= 0:
                raise ApiError(unknown)
            return
        group.check_offset_commit(member_id, instance_id, generation_id, is_transactional=is_transactional)
        if isinstance(group, Group) and not is_transactional:
            self.members.has_committed(group, member_id)

    def commit(
        self,
        group_id: str,
        offsets: Iterable[tuple[TopicPartition, OffsetCommitValue]],
        producer_id: int = -1,
        producer_epoch: int = -1,
    ) -> None:
        """Write offsets, for a transaction if a producer is given.

        Raises:
            ApiError: They could not be written.
        """
        rows = [(OffsetCommitKey(group_id, *partition), value) for partition, value in offsets]
        if not rows:
            return
        first = self.append([encode_offset_commit(key, value) for key, value in rows], producer_id, producer_epoch)
        for number, (key, value) in enumerate(rows):
            self.replay_offset(key, value, first + number, producer_id)

    def remove_offsets(self, offsets: Iterable[tuple[str, TopicPartition]]) -> None:
        """Remove offsets of groups, pending ones too.

        Raises:
            ApiError: That could not be written.
        """
        keys = [OffsetCommitKey(group_id, *partition) for group_id, partition in offsets]
        for start in range(0, len(keys), _TOMBSTONES_AT_ONCE):
            some = keys[start : start + _TOMBSTONES_AT_ONCE]
            first = self.append([encode_offset_commit(key, None) for key in some])
            for number, key in enumerate(some):
                self.offsets.replay(key, None, first + number, -1)

    # -- groups

    def remove_group(self, group: Group | ModernGroup) -> None:
        """Remove a group.

        Raises:
            ApiError: That could not be written.
        """
        self.append(group.tombstones())
        del self.groups[group.group_id]
        if isinstance(group, Group):
            group.stop_timers()
            group.move_to(State.DEAD, self._clock.now_ms())

    def delete_group(self, group_id: str) -> None:
        """Remove a group and its offsets, as a client asked for.

        Raises:
            ApiError: There is none, or it has members, or that could not be written.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
        group.check_delete()
        self.remove_offsets([(group_id, partition) for partition in self.offsets.removable(group_id)])
        self.remove_group(group)

    def unload(self) -> None:
        """Send the members away, for the partition is gone."""
        code = int(ErrorCode.not_coordinator)
        for group in self.groups.values():
            if isinstance(group, Group):
                group.stop_timers()
                group.move_to(State.DEAD, self._clock.now_ms())
                for member in group.members.values():
                    member.complete_join(join_answer(code, member.member_id))
                    member.complete_sync(sync_answer(code))

    def expire(self) -> None:
        """Remove offsets whose retention is over, and groups that have no members and no offsets left."""
        now_ms = self._clock.now_ms()
        for group in list(self.groups.values()):
            try:
                self._expire(group, now_ms)
            except ApiError as error:
                # Go on with the other groups.
                _logger.warning("the expired offsets of group %s cannot be removed: %s", group.group_id, error)

    def _expire(self, group: Group | ModernGroup, now_ms: int) -> None:
        committed = self.offsets.of(group.group_id)
        expired = [
            (group.group_id, partition)
            for partition, offset in committed.items()
            if self._is_expired(group, partition, offset.value, now_ms)
        ]
        is_all = len(expired) == len(committed) and not self.offsets.is_pending(group.group_id)
        self.remove_offsets(expired)
        if is_all and group.is_empty:
            self.remove_group(group)

    def _is_expired(
        self, group: Group | ModernGroup, partition: TopicPartition, value: OffsetCommitValue, now_ms: int
    ) -> bool:
        since = group.expires_from(value)
        if since is None or group.is_subscribed_to(partition.topic):
            return False
        if self.offsets.is_pending(group.group_id, partition):
            return False
        if value.expire_timestamp != NO_EXPIRY:
            # The client of an old version said how long the offset is kept.
            return now_ms >= value.expire_timestamp
        return now_ms - since >= self._retention_ms
