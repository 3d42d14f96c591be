"""The group coordinator: finds the partition of `__consumer_offsets` that a group belongs to, and loads it.

When the broker starts, the partitions are loaded in a thread, one after another. Until a partition is loaded, requests
about its groups get COORDINATOR_LOAD_IN_PROGRESS, and clients ask again.

Source in Kafka: `GroupCoordinatorService`, `CoordinatorRuntime`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.broker.clock import Clock, Timer
from odradek.broker.config import BrokerConfig
from odradek.broker.configs.group_settings import GroupSettings
from odradek.broker.errors import ApiError
from odradek.broker.groups.image_topics import TopicViews
from odradek.broker.groups.shard import Shard
from odradek.broker.partitions import Partition
from odradek.broker.shares import ShareState
from odradek.broker.state_topic import StateTopic, check_storable
from odradek.broker.turns import Turns, Work, whole
from odradek.coordination.groups.share import ShareGroup
from odradek.errors import BrokerError, OdradekError
from odradek.printable import logger
from odradek.storage.names import CONSUMER_OFFSETS_TOPIC, TopicPartition

_logger = logger(__name__)
_NOT_LOADED = "the groups of %s-%d cannot be loaded: they are not listed, and their clients get NOT_COORDINATOR: %s"

_T = TypeVar("_T")


class Groups:
    """The groups of the broker. They belong to the event loop's thread.

    Args:
        topic: `__consumer_offsets`.
        clock: The time.
        config: The broker's settings.
        settings: Those of groups.
        turns: Lets other work have its turns.
        share_state: What share groups have delivered.

    Attributes:
        topic: `__consumer_offsets`.
    """

    def __init__(
        self,
        topic: StateTopic,
        clock: Clock,
        config: BrokerConfig,
        settings: GroupSettings,
        turns: Turns,
        share_state: ShareState,
    ) -> None:
        self.topic = topic
        self._share_state = share_state
        self._clock = clock
        self._config = config
        self._turns = turns
        self._topics = TopicViews(topic.logs)
        self._settings = settings
        self._matching = asyncio.Lock()
        self._shards: dict[int, Shard] = {}
        # The actions for each partition when it is loaded.
        self._loading: dict[int, list[Callable[[Shard], None]]] = {}
        # Those that could not be loaded. Nothing is kept for them: they are loaded again by the next broker only.
        self._failed: set[int] = set()
        self._task: asyncio.Task[None] | None = None
        self._expiry: Timer | None = None
        self._expiring: asyncio.Future[None] | None = None

    # -- life

    def load(self) -> None:
        """Begin to load the groups that the log directory has."""
        numbers = range(self.topic.count)
        self._loading = {number: [] for number in numbers}
        self._task = asyncio.get_running_loop().create_task(self._load(numbers))

    def close(self) -> None:
        """Stop loading, and stop the timers."""
        if self._task is not None:
            self._task.cancel()
        if self._expiry is not None:
            self._expiry.cancel()
        if self._expiring is not None:
            self._expiring.cancel()

    async def _load_again(self, number: int, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        await self._load([number])

    async def _load(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            try:
                shard = self._new_shard(await self.topic.open(number))
                await self.topic.replay(shard.partition, shard.replay)
            except (OdradekError, OSError) as error:
                _logger.error(_NOT_LOADED, CONSUMER_OFFSETS_TOPIC, number, error)
                self._failed.add(number)
                self._loading.pop(number, None)
                continue
            self._shards[number] = shard
            for action in self._loading.pop(number, ()):
                action(shard)
            shard.loaded()

    def _new_shard(self, partition: Partition) -> Shard:
        if self._expiry is None:
            self._expire_later()
        return Shard(
            self.topic,
            partition,
            self._clock,
            self._config,
            self._settings,
            self._turns,
            self._topics.now,
            self._match,
            self._share_state,
        )

    async def _match(self, action: Callable[[], _T]) -> _T:
        """Run an action that tries patterns in another thread, one at a time: the other threads are for other work."""
        async with self._matching:
            found: _T = await self.topic.run(action)
            return found

    def _expire_later(self) -> None:
        interval_ms = self._config["offsets.retention.check.interval.ms"]
        self._expiry = self._clock.after(interval_ms, self._expire)

    def _expire(self) -> None:
        self._expire_later()
        expiring = self._turns.take(self._expire_all())
        self._expiring = asyncio.ensure_future(expiring) if isinstance(expiring, Awaitable) else None

    def _expire_all(self) -> Work[None]:
        for shard in list(self._shards.values()):
            yield from shard.expire()

    # -- partitions

    def partition_for(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that holds a group."""
        return self.topic.number_for(group_id)

    def partition_numbers(self, group_ids: Iterable[str]) -> Work[set[int]]:
        """Work: return the partitions that groups are in; ids that no group can have are skipped."""
        found = set()
        for group_id in group_ids:
            # The hash of an id of megabytes takes a second.
            with suppress(ApiError):
                check_storable(group_id)
                found.add(self.partition_for(group_id))
            yield
        return found

    def closed(self, numbers: set[int]) -> Iterator[tuple[str, int]]:
        """Yield the partitions whose logs may have to be opened before `shard` is called for their groups."""
        known = self._shards.keys() | self._loading.keys() | self._failed
        if len(known) < self.topic.count:
            yield from ((CONSUMER_OFFSETS_TOPIC, number) for number in numbers - known)

    def full(self, numbers: Iterable[int]) -> list[Partition]:
        """Return the partitions to which nothing can be written without a wait."""
        shards = map(self._shards.get, numbers)
        found = [one.partition for one in shards if one is not None]
        return [one for one in found if not one.has_room]

    def unsynced(self, numbers: Iterable[int]) -> list[Partition]:
        """Return the partitions with appends that are not on the disk, although the settings ask for that."""
        # All partitions have the same settings.
        if not any(shard.partition.flushes for shard in islice(self._shards.values(), 1)):
            return []
        shards = map(self._shards.get, numbers)
        return [one.partition for one in shards if one is not None and one.partition.commits.unsynced is not None]

    def shard(self, group_id: str) -> Shard:
        """Return the partition that a group belongs to.

        Raises:
            ApiError: It is still being loaded, or could not be, or there is no such topic yet; or no group can have
                such an id.
        """
        check_storable(group_id)
        number = self.partition_for(group_id)
        found = self._shards.get(number)
        if found is not None and found.partition.log.is_closed and number < self.topic.count:
            # A full disk had taken its log offline, and the log was opened again: load what it holds.
            self._shards.pop(number).unload()
            self._loading[number] = []
            self._task = asyncio.get_running_loop().create_task(self._load_again(number, self._task))
        elif found is not None:
            return found
        if number in self._failed:
            raise ApiError(ErrorCode.not_coordinator)
        if number in self._loading:
            is_over = self._task is None or self._task.done()
            raise ApiError(ErrorCode.not_coordinator if is_over else ErrorCode.coordinator_load_in_progress)
        if not self.topic.count:
            raise ApiError(ErrorCode.not_coordinator)
        # The topic was created after the start: there is nothing to load.
        shard = self._shards[number] = self._new_shard(self.topic.partition(number))
        return shard

    def share_group(self, group_id: str) -> ShareGroup | None:
        """Return a share group, if there is one of that id.

        Raises:
            ApiError: See `shard`.
        """
        found = self.shard(group_id).groups.get(group_id)
        return found if isinstance(found, ShareGroup) else None

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

    def not_loaded(self) -> list[int]:
        """Return the partitions that could not be loaded. Any thread may ask."""
        is_over = self._task is not None and self._task.done()
        return sorted({*list(self._failed), *(list(self._loading) if is_over else ())})

    def kinds(self) -> Iterator[tuple[str, str]]:
        """Yield type and state of each group that is loaded. Any thread may ask."""
        for shard in list(self._shards.values()):
            for group in list(shard.groups.values()):
                listed = group.listed()
                yield listed["group_type"], listed["group_state"]

    def committed(self) -> Iterator[tuple[str, TopicPartition, int]]:
        """Yield the committed offsets of the groups that are loaded. Any thread may ask."""
        for shard in list(self._shards.values()):
            yield from shard.offsets.all()

    # -- called by others

    def transaction_ended(self, partition_number: int, producer_id: int, is_committed: bool) -> None:
        """Commit or drop the offsets of a transaction, whose marker was written to a partition.

        Args:
            partition_number: Which partition of `__consumer_offsets`.
            producer_id: The producer.
            is_committed: Whether it is committed.
        """

        def end(shard: Shard) -> None:
            shard.offsets.end_transaction(producer_id, is_committed=is_committed)

        if partition_number in self._shards:
            end(self._shards[partition_number])
        elif partition_number in self._loading:
            self._loading[partition_number].append(end)

    def topics_deleted(self, deleted: Mapping[str, UUID | None]) -> Work[None]:
        """Work: remove what groups have of topics that were deleted.

        Args:
            deleted: The ids of the topics by their names.
        """
        topics = list(deleted)
        if CONSUMER_OFFSETS_TOPIC in topics:
            self._forget_all()
            return
        topic_ids = {topic_id for topic_id in deleted.values() if topic_id is not None}

        def removed_before(shard: Shard) -> None:
            whole(_remove_offsets(shard, topics, shard.partition.log.log_end_offset))
            shard.shares.topics_deleted(topic_ids)

        for actions in self._loading.values():
            actions.append(removed_before)
        # Offsets that are committed between two turns are about topics that were created since.
        for shard, end in [(shard, shard.partition.log.log_end_offset) for shard in self._shards.values()]:
            yield from _remove_offsets(shard, topics, end)
        for shard in list(self._shards.values()):
            shard.shares.topics_deleted(topic_ids)
            yield

    def _forget_all(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for shard in self._shards.values():
            shard.unload()
        self._shards.clear()
        self._loading.clear()
        self._failed.clear()


def _remove_offsets(shard: Shard, topics: Iterable[str], end_offset: int) -> Work[None]:
    try:
        yield from shard.remove_offsets_of(topics, end_offset)
    except BrokerError as error:
        _logger.warning("offsets of deleted topics cannot be removed: %s", error)
