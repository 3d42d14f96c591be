"""The group coordinator: finds the partition of `__consumer_offsets` that a group belongs to, and works on it.

The partitions that are there when the broker starts are loaded in a thread, one after another; until one is,
COORDINATOR_LOAD_IN_PROGRESS is answered for its groups, and clients ask again.

Source in Kafka: `GroupCoordinatorService`, `CoordinatorRuntime`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from odradek.broker.clock import Timer
from odradek.broker.errors import ApiError
from odradek.broker.groups.shard import Shard
from odradek.broker.partitions import Partition
from odradek.broker.state_log import check_storable, load_state
from odradek.coordination.placement import partition_for
from odradek.errors import BrokerError, OdradekError
from odradek.printable import logger
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC

if TYPE_CHECKING:
    from odradek.broker.broker import Broker

_logger = logger(__name__)


class Groups:
    """The groups of the broker. They belong to the event loop's thread.

    Args:
        broker: The broker.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._shards: dict[int, Shard] = {}
        # What to do with a partition when it is loaded. A partition that could not be loaded stays here.
        self._loading: dict[int, list[Callable[[Shard], None]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._expiry: Timer | None = None

    # -- life

    def load(self) -> None:
        """Begin to load the groups that the log directory has."""
        count = self._partition_count()
        self._loading = {number: [] for number in range(count)}
        self._task = asyncio.get_running_loop().create_task(self._load(count))

    def close(self) -> None:
        """Stop loading, and stop the timers."""
        if self._task is not None:
            self._task.cancel()
        if self._expiry is not None:
            self._expiry.cancel()

    async def _load(self, count: int) -> None:
        for number in range(count):
            try:
                # In another thread, because opening a log takes a while.
                await self._broker.run(partial(self._broker.logs.__getitem__, (CONSUMER_OFFSETS_TOPIC, number)))
                partition = self._broker.partitions.get(CONSUMER_OFFSETS_TOPIC, number)
                shard = self._new_shard(partition)
                if partition.log.log_end_offset > partition.log.log_start_offset:
                    await self._broker.run(partial(_replay, shard, partition))
            except (OdradekError, OSError) as error:
                _logger.error("the groups of %s-%d cannot be loaded: %s", CONSUMER_OFFSETS_TOPIC, number, error)
                continue
            self._shards[number] = shard
            for action in self._loading.pop(number, ()):
                action(shard)
            shard.members.loaded()

    def _new_shard(self, partition: Partition) -> Shard:
        if self._expiry is None:
            self._expire_later()
        return Shard(partition, self._broker.clock, self._broker.config)

    def _expire_later(self) -> None:
        interval_ms = self._broker.config["offsets.retention.check.interval.ms"]
        self._expiry = self._broker.clock.after(interval_ms, self._expire)

    def _expire(self) -> None:
        self._expire_later()
        for shard in self._shards.values():
            shard.expire()

    # -- partitions

    def _partition_count(self) -> int:
        topic = self._broker.logs.metadata_image.topics.get(CONSUMER_OFFSETS_TOPIC)
        return 0 if topic is None else len(topic.partitions)

    def partition_for(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that holds a group."""
        count = self._partition_count() or self._broker.config["offsets.topic.num.partitions"]
        return partition_for(group_id, count)

    def shard(self, group_id: str) -> Shard:
        """Return the partition that a group belongs to.

        Raises:
            ApiError: It is still being loaded, or could not be, or there is no such topic yet; or no group can have
                such an id.
        """
        check_storable(group_id)
        number = self.partition_for(group_id)
        found = self._shards.get(number)
        if found is not None:
            return found
        if number in self._loading:
            is_over = self._task is None or self._task.done()
            raise ApiError(ErrorCode.not_coordinator if is_over else ErrorCode.coordinator_load_in_progress)
        if not self._partition_count():
            raise ApiError(ErrorCode.not_coordinator)
        # The topic was created after the start: there is nothing to load.
        partition = self._broker.partitions.get(CONSUMER_OFFSETS_TOPIC, number)
        shard = self._shards[number] = self._new_shard(partition)
        return shard

    def shards(self) -> Iterator[Shard]:
        """Yield the partitions that groups are in.

        Raises:
            ApiError: One of them is still being loaded.
        """
        if self._loading and self._task is not None and not self._task.done():
            raise ApiError(ErrorCode.coordinator_load_in_progress)
        yield from self._shards.values()

    @property
    def count(self) -> int:
        """How many groups are loaded. Any thread may ask."""
        return sum(len(shard.groups) for shard in list(self._shards.values()))

    # -- what others tell

    def transaction_ended(self, partition_number: int, producer_id: int, is_committed: bool) -> None:
        """Commit or drop the offsets of a transaction, whose marker was written to a partition.

        Args:
            partition_number: Which partition of `__consumer_offsets`.
            producer_id: The producer.
            is_committed: Whether it is committed.
        """

        def end(shard: Shard) -> None:
            shard.offsets.end_transaction(producer_id, is_committed=is_committed)

        self._when_loaded(partition_number, end)

    def topic_deleted(self, names: Iterable[str]) -> None:
        """Remove the offsets of topics that were deleted."""
        topics = list(names)
        if CONSUMER_OFFSETS_TOPIC in topics:
            self._forget_all()
            return

        def remove(shard: Shard) -> None:
            try:
                shard.remove_offsets(list(shard.offsets.of_topics(topics)))
            except BrokerError as error:
                _logger.warning("offsets of deleted topics cannot be removed: %s", error)

        for number in [*self._shards, *self._loading]:
            self._when_loaded(number, remove)

    def _when_loaded(self, number: int, action: Callable[[Shard], None]) -> None:
        if number in self._shards:
            action(self._shards[number])
        elif number in self._loading:
            self._loading[number].append(action)

    def _forget_all(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for shard in self._shards.values():
            shard.unload()
        self._shards.clear()
        self._loading.clear()


def _replay(shard: Shard, partition: Partition) -> None:
    for state in load_state(partition):
        shard.replay(state)
