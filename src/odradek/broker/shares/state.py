"""The share coordinator: keeps what share groups have delivered, in `__share_group_state`.

A partition of the topic is loaded when it is first asked for. A change is appended to the log, then made in memory; the
changes of a partition happen one after the other.

Source in Kafka: `ShareCoordinatorService`, `ShareCoordinatorShard`, `CoordinatorRuntime`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.clock import Clock, Timer
from odradek.broker.config import BrokerConfig
from odradek.broker.errors import ApiError
from odradek.broker.partitions import Partition
from odradek.broker.shares import ShareSummary
from odradek.broker.state_topic import StateTopic, check_storable
from odradek.broker.tasks import Tasks
from odradek.broker.turns import Turns, Work
from odradek.coordination.errors import RefusedError, ShareErrorCode
from odradek.coordination.shares.state_batches import NO_START_OFFSET
from odradek.coordination.shares.states import NO_EPOCH, NOT_COUNTED, DeliveryStates, StateWrite, coordinator_key
from odradek.coordination.state_log import KeyValue, state_batch
from odradek.errors import OdradekError
from odradek.messages.coordinators.coordinator_records import UnknownCoordinatorRecordError
from odradek.messages.coordinators.share_records import ShareKey, ShareSnapshot
from odradek.printable import logger
from odradek.records.append.validator import AppendOrigin
from odradek.records.header import BatchHeader
from odradek.records.kernels.objects import Record

_logger = logger(__name__)

_T = TypeVar("_T")

_REPLACED = "The share state of the partition was restarted, or removed."
_PORTION_BYTES = 1 << 15
"""How many bytes of records are written at once, if there may be any number of them."""
_BATCH_BYTES = 61
_RECORD_BYTES = 32
"""More than a record needs besides its key and its value."""
_QUICKLY_MERGED = 1000
"""More ranges are merged in another thread."""


_PUT_OFF = (
    "%s: the state of group %s takes more than the %d bytes that max.message.bytes leaves to a record. Its changes are "
    "written all the same, but no old record is deleted before it fits: raise max.message.bytes of the topic"
)


class _Shard:
    """A partition of the topic.

    Attributes:
        partition: The partition.
        states: What it holds.
        changing: Held by the change that is being made.
        pruned_to: Up to where records that are not needed were deleted.
    """

    def __init__(self, partition: Partition, updates_per_snapshot: int) -> None:
        self.partition = partition
        self.states = DeliveryStates(updates_per_snapshot)
        self.changing = asyncio.Lock()
        self.pruned_to = 0

    @property
    def most_bytes(self) -> int:
        """How many bytes key and value of a record may have together."""
        return self.partition.log.config.max_message_bytes - _BATCH_BYTES - _RECORD_BYTES

    def replay(self, record: Record, _: BatchHeader) -> None:
        """Take over a record of the log.

        Raises:
            FormatError: It is damaged.
        """
        try:
            self.states.replay(record.key, record.value, record.offset or 0)
        except UnknownCoordinatorRecordError as error:
            _logger.warning("%s: %s", self.partition.topic_partition, error)


class ShareStates:
    """What share groups have delivered. It belongs to the event loop's thread.

    Args:
        topic: `__share_group_state`.
        clock: The time.
        config: The broker's settings.
        turns: Lets other work have its turns.

    Attributes:
        replaced: Called when the state of a partition was restarted or removed, before any other change is made:
            what is in memory of it is of no use, and what waits to be written of it must not be.
    """

    def __init__(self, topic: StateTopic, clock: Clock, config: BrokerConfig, turns: Turns) -> None:
        self._topic = topic
        self._clock = clock
        self._config = config
        self._turns = turns
        self._shards: dict[int, asyncio.Future[_Shard]] = {}
        self._timers: dict[str, Timer] = {}
        self._tasks = Tasks(lambda error: _logger.debug("%s: %s", topic.name, error))
        self.replaced: Callable[[ShareKey, int], None] = lambda key, epoch: None

    def close(self) -> None:
        """Stop loading and changing, and stop the timers."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._shards.values():
            task.cancel()
        self._tasks.cancel()

    # -- loading

    async def _shard(self, key: ShareKey) -> _Shard:
        if not self._topic.count:
            raise ApiError(ErrorCode.not_coordinator)
        number = self._topic.number_for(coordinator_key(key))
        known = self._shards.get(number)
        if known is not None and _is_over(known):
            known = None
        if known is None:
            known = self._shards[number] = asyncio.ensure_future(self._load(number))
        try:
            return await asyncio.shield(known)
        except (OdradekError, OSError) as error:
            raise ApiError(ErrorCode.not_coordinator) from error

    async def _load(self, number: int) -> _Shard:
        try:
            shard = _Shard(
                await self._topic.open(number), self._config["share.coordinator.snapshot.update.records.per.snapshot"]
            )
            await self._topic.replay(shard.partition, shard.replay)
        except (OdradekError, OSError) as error:
            _logger.error("%s-%d cannot be loaded: %s", self._topic.name, number, error)
            raise
        if not self._timers:
            self._every("share.coordinator.state.topic.prune.interval.ms", self._prune)
            self._every("share.coordinator.cold.partition.snapshot.interval.ms", self._snapshot)
        # Topics may have been deleted while nobody asked for what is here.
        self._tasks.start(self._turns.finish(self._remove_deleted(shard)))
        return shard

    def _loaded(self) -> list[_Shard]:
        return [one.result() for one in self._shards.values() if one.done() and not _is_over(one)]

    # -- changing

    async def _change(
        self,
        shard: _Shard,
        make: Callable[[DeliveryStates], Sequence[KeyValue]],
        *,
        takes_long: bool = False,
        applied: Callable[[], None] = lambda: None,
    ) -> None:
        """Write the records that `make` returns, and apply them; `applied` is called before the next change is made."""
        run = self._topic.run
        async with shard.changing:
            if not shard.partition.has_room:
                await shard.partition.make_room()
            records = await run(partial(make, shard.states)) if takes_long else make(shard.states)
            if not records:
                return
            with self._topic.errors():
                batch = state_batch(records, self._clock.now_ms())
                first = shard.partition.append(batch, origin=AppendOrigin.COORDINATOR).first_offset
            apply = partial(_apply, shard.states, records, first)
            if takes_long:
                await run(apply)
            else:
                apply()
            applied()
        with self._topic.errors():
            await shard.partition.synced()

    async def _changed(
        self,
        key: ShareKey,
        make: Callable[[DeliveryStates], Sequence[KeyValue]],
        *,
        takes_long: bool = False,
        applied: Callable[[], None] = lambda: None,
    ) -> None:
        # A change that has begun is finished, even if the client has disconnected.
        await self._whole(self._change(await self._shard(key), make, takes_long=takes_long, applied=applied))

    async def _whole(self, change: Any) -> None:
        await asyncio.shield(self._tasks.start(change))

    def _key(self, group_id: str, topic_id: UUID, number: int) -> ShareKey:
        check_storable(group_id)
        _check_not_negative("partition id", number)
        return ShareKey(group_id, topic_id, number)

    def _check_exists(self, key: ShareKey) -> None:
        topic = self._topic.logs.metadata_image.topic_by_id(key.topic_id)
        if topic is None or key.partition not in topic.partitions:
            raise ApiError(ErrorCode.unknown_topic_or_partition)

    # -- what the group coordinator asks for: see `ShareState`

    async def create(self) -> None:
        """Create the topic if it is missing.

        Raises:
            LogError: The disk failed.
        """
        await self._topic.create()

    async def initialize(
        self, group_id: str, topic_id: UUID, partition: int, state_epoch: int, start_offset: int
    ) -> None:
        """Restart the state of a partition at an offset; -1 if that is not known yet.

        Raises:
            ApiError: There is no such partition, or it cannot be written.
            RefusedError: There is a newer state.
        """
        key = self._key(group_id, topic_id, partition)
        _check_not_negative("state epoch", state_epoch)

        def make(states: DeliveryStates) -> list[KeyValue]:
            states.check_initialize(key, state_epoch)
            self._check_exists(key)
            return [states.initialize(key, state_epoch, start_offset, self._clock.now_ms())]

        await self._changed(key, make, applied=lambda: self.replaced(key, state_epoch))

    async def delete(self, group_id: str, topic_id: UUID, partition: int) -> None:
        """Remove the state of a partition, if there is one.

        Raises:
            ApiError: There is no such partition, or it cannot be written.
        """
        key = self._key(group_id, topic_id, partition)

        def make(states: DeliveryStates) -> list[KeyValue]:
            self._check_exists(key)
            return states.delete([key])

        await self._changed(key, make, applied=lambda: self.replaced(key, NO_EPOCH))

    async def summary(self, group_id: str, topic_id: UUID, partition: int) -> ShareSummary:
        """Return what is written down of a partition.

        Raises:
            ApiError: There is no such partition, or its state cannot be read.
        """
        key = self._key(group_id, topic_id, partition)
        shard = await self._shard(key)
        self._check_exists(key)
        async with shard.changing:
            found = shard.states.states.get(key)
        if found is None:
            return ShareSummary(0, 0, NO_START_OFFSET, NOT_COUNTED)
        return ShareSummary(found.state_epoch, found.leader_epoch, found.start_offset, found.delivery_complete_count)

    # -- what the partitions of share groups ask for

    async def read(self, group_id: str, topic_id: UUID, partition: int, leader_epoch: int) -> ShareSnapshot:
        """Return the state of a partition for its leader.

        Raises:
            ApiError: There is no such partition, or its state cannot be read.
            RefusedError: There is no state, or a newer leader.
        """
        key = self._key(group_id, topic_id, partition)
        _check_not_negative("leader epoch", leader_epoch)
        found = list[ShareSnapshot]()

        def make(states: DeliveryStates) -> list[KeyValue]:
            found.append(states.check_read(key, leader_epoch))
            self._check_exists(key)
            return states.read(key, leader_epoch, self._clock.now_ms(), shard.most_bytes)

        shard = await self._shard(key)
        await self._changed(key, make)
        return found[0]

    async def write(
        self,
        group_id: str,
        topic_id: UUID,
        partition: int,
        write: StateWrite,
        is_current: Callable[[], bool] = lambda: True,
    ) -> None:
        """Write what has changed in a partition.

        Args:
            group_id: The group.
            topic_id: The topic.
            partition: The partition.
            write: What has changed.
            is_current: Returns whether the writer's state is the one that is kept. It is called when all changes before
                this one were made: a state that was restarted may have the same epoch.

        Raises:
            ApiError: There is no such partition, or it cannot be written.
            RefusedError: There is no state, or a newer one.
        """
        key = self._key(group_id, topic_id, partition)
        _check_not_negative("leader epoch", write.leader_epoch)
        _check_not_negative("state epoch", write.state_epoch)
        shard = await self._shard(key)

        def make(states: DeliveryStates) -> list[KeyValue]:
            states.check_write(key, write)
            if not is_current():
                raise RefusedError(ShareErrorCode.FENCED_STATE_EPOCH, _REPLACED)
            self._check_exists(key)
            was_put_off = key in states.put_off
            record = states.write(key, write, self._clock.now_ms(), shard.most_bytes)
            if key in states.put_off and not was_put_off:
                _logger.warning(_PUT_OFF, shard.partition.topic_partition, key.group_id, shard.most_bytes)
            return [record]

        known = shard.states.states.get(key)
        ranges = len(write.batches) + (0 if known is None else len(known.state_batches))
        await self._changed(key, make, takes_long=ranges > _QUICKLY_MERGED)

    # -- keeping the log short

    def _every(self, setting: str, action: Callable[[], None]) -> None:
        def act() -> None:
            self._every(setting, action)
            action()

        self._timers[setting] = self._clock.after(self._config[setting], act)

    def _prune(self) -> None:
        for shard in self._loaded():
            needed_from = shard.states.needed_from
            if needed_from > shard.pruned_to:
                shard.pruned_to = needed_from
                self._tasks.start(shard.partition.in_order(partial(shard.partition.log.delete_records, needed_from)))

    def _snapshot(self) -> None:
        for shard in self._loaded():
            self._tasks.start(self._turns.finish(self._snapshot_cold(shard)))

    def _snapshot_cold(self, shard: _Shard) -> Work[None]:
        interval_ms: int = self._config["share.coordinator.cold.partition.snapshot.interval.ms"]
        keys = yield from shard.states.cold(self._clock.now_ms(), interval_ms)
        for some in _portions(shard, keys):
            yield partial(self._write_snapshots, shard, some, interval_ms)

    async def _write_snapshots(self, shard: _Shard, keys: Sequence[ShareKey], interval_ms: int) -> None:
        def make(states: DeliveryStates) -> list[KeyValue]:
            return states.cold_snapshots(keys, self._clock.now_ms(), interval_ms)

        # Only a state that is larger than a portion is alone in one.
        takes_long = sum(map(shard.states.most_bytes, keys)) > _PORTION_BYTES
        try:
            await self._change(shard, make, takes_long=takes_long)
        except ApiError as error:
            # The others are written all the same.
            _logger.debug("%s: %s", shard.partition.topic_partition, error)

    # -- topics

    async def topics_deleted(self, names: Collection[str]) -> None:
        """Remove the states of topics that were deleted."""
        if self._topic.name in names:
            self._shards.clear()
            return
        for shard in self._loaded():
            await self._whole(self._turns.finish(self._remove_deleted(shard)))

    def _remove_deleted(self, shard: _Shard) -> Work[None]:
        logs, deleted = self._topic.logs, list[ShareKey]()
        for key in list(shard.states.states):
            if logs.metadata_image.topic_by_id(key.topic_id) is None:
                deleted.append(key)
            yield
        for some in _portions(shard, deleted):
            yield partial(self._change, shard, partial(DeliveryStates.delete, keys=some))


def _portions(shard: _Shard, keys: Iterable[ShareKey]) -> Iterator[list[ShareKey]]:
    """Yield the keys in portions whose records fit one batch; a state that is larger is alone in its portion."""
    most = min(_PORTION_BYTES, shard.partition.log.config.max_message_bytes - _BATCH_BYTES)
    some, size = list[ShareKey](), 0
    for key in keys:
        record_bytes = shard.states.most_bytes(key)
        if some and size + record_bytes > most:
            yield some
            some, size = [], 0
        some.append(key)
        size += record_bytes
    if some:
        yield some


def _is_over(loading: asyncio.Future[_Shard]) -> bool:
    """Return whether a partition has to be loaded again: that failed, or its log was closed meanwhile."""
    if not loading.done():
        return False
    if loading.cancelled() or loading.exception() is not None:
        return True
    return loading.result().partition.log.is_closed


def _apply(states: DeliveryStates, records: Sequence[KeyValue], first_offset: int) -> None:
    for number, (key, value) in enumerate(records):
        states.replay(key, value, first_offset + number)


def _check_not_negative(what: str, number: int) -> None:
    if number < 0:
        raise RefusedError(ShareErrorCode.INVALID_REQUEST, f"The {what} cannot be a negative number.")
