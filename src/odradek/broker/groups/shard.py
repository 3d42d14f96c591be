"""The groups of one partition of `__consumer_offsets`, and how they are kept in its log.

A change is appended to the log first, and only then made in memory; what a classic group keeps in memory alone, such as
who has joined, is not. On loading, the log is replayed; the offsets of a
transaction wait for its marker, as when they were committed.

Source in Kafka: `GroupCoordinatorShard`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from odradek.broker.clock import Clock, Timer
from odradek.broker.config import BrokerConfig
from odradek.broker.configs.group_settings import GroupSettings
from odradek.broker.errors import ApiError
from odradek.broker.groups.answers import AskedPartition
from odradek.broker.groups.changes import Changes
from odradek.broker.groups.classic_consumers import ClassicConsumers
from odradek.broker.groups.consumers import Consumers
from odradek.broker.groups.image_topics import ImageTopics
from odradek.broker.groups.membership import Membership
from odradek.broker.groups.share_offsets import ShareOffsets
from odradek.broker.groups.shares import Shares
from odradek.broker.partitions import Partition
from odradek.broker.shares import ShareState
from odradek.broker.state_topic import StateTopic
from odradek.broker.turns import Turns, Work
from odradek.coordination.errors import GroupErrorCode, RefusedError
from odradek.coordination.groups.classic import ClassicGroup
from odradek.coordination.groups.consumer import ConsumerGroup
from odradek.coordination.groups.replay import Group, GroupState
from odradek.coordination.groups.share import ShareGroup
from odradek.coordination.state_log import KeyValue, state_batch
from odradek.messages.coordinators.coordinator_records import UnknownCoordinatorRecordError
from odradek.messages.coordinators.group_records import OffsetCommitKey, OffsetCommitValue, encode_offset_commit
from odradek.printable import logger
from odradek.records.append.validator import AppendOrigin
from odradek.records.header import BatchHeader
from odradek.records.kernels.objects import Record
from odradek.storage.names import TopicPartition

_logger = logger(__name__)

_OFFSETS_AT_ONCE = 200
_GROUPS_AT_ONCE = 50
_FIRST_WITH_MEMBER_EPOCH = 9


class Commit(NamedTuple):
    """An offset that is to be committed, and its record."""

    key: OffsetCommitKey
    value: OffsetCommitValue
    record: KeyValue

    @classmethod
    def of(cls, group_id: str, partition: TopicPartition, value: OffsetCommitValue) -> Commit:
        """Return the commit of an offset of a group."""
        key = OffsetCommitKey(group_id, *partition)
        return cls(key, value, encode_offset_commit(key, value))


class Shard:
    """The groups of a partition.

    Args:
        topic: `__consumer_offsets`.
        partition: The partition.
        clock: The time.
        config: The broker's settings.
        settings: Those of groups.
        turns: Lets other work have its turns.
        topics: Returns the topics as they are now.
        match: Runs an action in another thread that tries patterns.
        share_state: What share groups have delivered.

    Attributes:
        partition: The partition.
        groups: The groups by their ids.
        offsets: Their offsets.
        members: The members of classic groups.
        consumers: The members of consumer groups.
        classic_consumers: The members of the classic protocol in consumer groups.
        shares: The members of share groups.
        share_offsets: The offsets of share groups.
    """

    def __init__(
        self,
        topic: StateTopic,
        partition: Partition,
        clock: Clock,
        config: BrokerConfig,
        settings: GroupSettings,
        turns: Turns,
        topics: Callable[[], ImageTopics],
        match: Callable[[Callable[[], Any]], Awaitable[Any]],
        share_state: ShareState,
    ) -> None:
        self._topic = topic
        self.partition = partition
        self._clock = clock
        self._retention_ms: int = config["offsets.retention.minutes"] * 60_000
        self._state = GroupState(clock.now_ms)
        self.groups = self._state.groups
        self.offsets = self._state.offsets
        self.members = Membership(self.groups, self.append, self.after, clock, config)
        changes = partial(Changes, self._state, self.append, self._room, self.members, topics)
        self.consumers = Consumers(self._state, changes, topics, topic.run, match, clock, config, settings, turns)
        self.shares = Shares(self._state, self.append, self._room, topics, share_state, clock, config, settings, turns)
        self.share_offsets = ShareOffsets(self.shares, clock.now_ms)
        self.classic_consumers = ClassicConsumers(self.groups, self.consumers, topics)

    def loaded(self) -> None:
        """Start the sessions of members, as if each had just sent a request."""
        self.members.loaded()
        self.consumers.loaded()
        self.shares.loaded()

    # -- the log

    def replay(self, record: Record, batch: BatchHeader) -> None:
        """Take over a record of the log.

        Raises:
            FormatError: It is damaged.
        """
        try:
            self._state.replay(record, batch)
        except UnknownCoordinatorRecordError as error:
            _logger.warning("%s: %s", self.partition.topic_partition, error)

    def append(self, records: Iterable[KeyValue], producer_id: int = -1, producer_epoch: int = -1) -> int:
        """Append records to the log, for a transaction if a producer is given.

        Returns:
            The offset of the first one.

        Raises:
            ApiError: They could not be written.
        """
        with self._topic.errors():
            batch = state_batch(records, self._clock.now_ms(), (producer_id, producer_epoch))
            return self.partition.append(batch, origin=AppendOrigin.COORDINATOR).first_offset

    def after(self, delay_ms: float, action: Callable[[], None]) -> Timer:
        """Run an action that appends records after a delay, once the event loop need not wait for the disk for it."""

        def act() -> None:
            if self.partition.has_room:
                action()
                return
            # It may still be cancelled.
            timer.postpone(action)
            asyncio.ensure_future(self.partition.make_room()).add_done_callback(lambda _: timer.fire())

        timer = self._clock.after(delay_ms, act)
        return timer

    def _room(self) -> Work[None]:
        """Work: wait until the event loop need not wait for the disk."""
        if not self.partition.has_room:
            yield self.partition.make_room

    # -- offsets

    def check_commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation_id: int,
        *,
        is_transactional: bool,
        partitions: Iterable[AskedPartition],
        version: int,
        unknown: ErrorCode = ErrorCode.illegal_generation,
        knows_epochs: bool = True,
    ) -> None:
        """Check whether a client may commit offsets of a group; if it may, that keeps it in the group.

        Args:
            group_id: The group.
            member_id: The member, or nothing.
            instance_id: Its `group.instance.id`.
            generation_id: The generation or the epoch that it is in; -1 for a client that is in no group.
            is_transactional: Whether the offsets belong to a transaction.
            partitions: The partitions of the offsets.
            version: The version of the request.
            unknown: What is answered if there is no such group.
            knows_epochs: Whether the client knows what a stale member epoch is.

        Raises:
            ApiError: It may not.
        """
        group = self.groups.get(group_id)
        if group is None:
            if generation_id >= 0:
                raise ApiError(unknown)
            return
        if isinstance(group, ConsumerGroup):
            member = group.committing_member(member_id, instance_id, generation_id, is_transactional=is_transactional)
            if member is None:
                return
            if not is_transactional and member.classic is None and version < _FIRST_WITH_MEMBER_EPOCH:
                raise ApiError(ErrorCode.unsupported_version)
            try:
                for one in partitions:
                    member.check_commit_epoch(generation_id, one.topic_id, one.topic_partition.partition)
            except RefusedError as error:
                if not knows_epochs:
                    raise RefusedError(GroupErrorCode.ILLEGAL_GENERATION) from error
                raise
            return
        if isinstance(group, ShareGroup):
            raise group.refuse_offsets()
        if not isinstance(group, ClassicGroup):
            # It has no members here, so nobody who says to be one may commit.
            if generation_id >= 0:
                raise ApiError(ErrorCode.unknown_member_id)
            return
        group.check_offset_commit(member_id, instance_id, generation_id, is_transactional=is_transactional)
        if not is_transactional:
            self.members.has_committed(group, member_id)

    def commit(self, commits: Sequence[Commit], producer_id: int = -1, producer_epoch: int = -1) -> None:
        """Write offsets, for a transaction if a producer is given.

        Raises:
            ApiError: They could not be written.
        """
        if not commits:
            return
        first = self.append([one.record for one in commits], producer_id, producer_epoch)
        for number, (key, value, _) in enumerate(commits):
            self._state.replay_offset(key, value, first + number, producer_id)

    def remove_offsets(
        self, offsets: Iterable[tuple[str, TopicPartition]], end_offset: int | None = None
    ) -> Work[None]:
        """Work: remove offsets of groups, pending ones too; not those that are committed while it does.

        Args:
            offsets: The groups, and the partitions that the offsets are of.
            end_offset: Offsets whose record is at or after this one stay; where the log ends now if None.

        Raises:
            ApiError: That could not be written.
        """
        end_offset = self.partition.log.log_end_offset if end_offset is None else end_offset
        places = iter(offsets)
        while some := list(islice(places, _OFFSETS_AT_ONCE)):
            yield from self._room()
            keys = [
                OffsetCommitKey(group_id, *partition)
                for group_id, partition in some
                if self.offsets.last_record_offset(group_id, partition) < end_offset
            ]
            if keys:
                first = self.append([encode_offset_commit(key, None) for key in keys])
                for number, key in enumerate(keys):
                    self.offsets.replay(key, None, first + number, -1)
            yield

    def remove_offsets_of(self, topics: Iterable[str], end_offset: int) -> Work[None]:
        """Work: remove the offsets of topics that were committed before an offset of this partition's log.

        Raises:
            ApiError: That could not be written.
        """
        return self.remove_offsets(self.offsets.of_topics(topics), end_offset)

    # -- groups

    def _remove_group(self, group: Group) -> None:
        self.append(group.tombstones())
        del self.groups[group.group_id]
        if isinstance(group, ClassicGroup):
            self.members.removed(group)

    def delete_group(self, group_id: str) -> Work[None]:
        """Work: remove a group and its offsets, as a client asked for.

        A member that joins meanwhile joins the next group of that name.

        Raises:
            ApiError: The group does not exist, or that could not be written.
            RefusedError: It has members.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
        group.check_delete()
        yield from self.remove_offsets([(group_id, partition) for partition in self.offsets.removable(group_id)])
        if self._is_left_alone(group):
            self._remove_group(group)

    def _is_left_alone(self, group: Group) -> bool:
        """Whether a group has no members, no offsets, and nobody has removed it."""
        group_id = group.group_id
        return self.groups.get(group_id) is group and group.is_empty and not any(self.offsets.removable(group_id))

    def unload(self) -> None:
        """Answer all members that this is not their coordinator: the partition was closed."""
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                self.members.removed(group, int(ErrorCode.not_coordinator))
        self.consumers.stop()
        self.shares.stop()

    def expire(self) -> Work[None]:
        """Work: remove offsets whose retention is over, and groups that have no members and no offsets left."""
        now_ms = self._clock.now_ms()
        for number, group in enumerate(list(self.groups.values()), 1):
            yield from self._room()
            try:
                # Another request may have removed it meanwhile.
                if self.groups.get(group.group_id) is group:
                    yield from self._expire(group, now_ms)
            except ApiError as error:
                # Continue with the other groups.
                _logger.warning("the expired offsets of group %s cannot be removed: %s", group.group_id, error)
            if number % _GROUPS_AT_ONCE == 0:
                yield

    def _expire(self, group: Group, now_ms: int) -> Work[None]:
        group_id = group.group_id
        expired = list(self.offsets.expired(group, now_ms, self._retention_ms))
        is_all = len(expired) == len(self.offsets.of(group_id)) and not self.offsets.is_pending(group_id)
        yield from self.remove_offsets([(group_id, partition) for partition in expired])
        # Kafka keeps share groups until they are deleted.
        if is_all and not isinstance(group, ShareGroup) and self._is_left_alone(group):
            self._remove_group(group)
