"""Creates and changes topics for the broker.

What clients ask for is checked here, in Kafka's order and with Kafka's words; the log directory makes the changes, in
another thread: each of them waits for the disk.

Source in Kafka: `AutoTopicCreationManager`, `ControllerApis`, `ReplicationControlManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from kio.schema.errors import ErrorCode

from odradek.broker.config import BrokerConfig
from odradek.broker.errors import ApiError
from odradek.broker.topic_names import check_topic_name
from odradek.coordination.internal_topics import INTERNAL_TOPICS
from odradek.errors import (
    BrokerError,
    OptionError,
    PolicyViolationError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from odradek.printable import logger
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.metadata.cluster import check_partition_count
from odradek.storage.metadata.metadata_image import MetadataImage, TopicImage
from odradek.storage.metadata.new_topic import NewTopic

_T = TypeVar("_T")
_K = TypeVar("_K")

_logger = logger(__name__)

_REMEMBERED = 1000


class Topics:
    """Creates topics.

    Args:
        logs: The log directory.
        config: The broker's settings.
        executor: Runs what takes long.
    """

    def __init__(self, logs: WritableLogDirectory, config: BrokerConfig, executor: ThreadPoolExecutor) -> None:
        self._logs = logs
        self._config = config
        self._executor = executor
        self._deleted: dict[str, None] = {}

    async def change(self, action: Callable[[], _T]) -> _T:
        """Change topics or settings in another thread; return when the change is on the disk."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, action)

    async def change_all(
        self,
        changes: Mapping[_K, _T],
        action: Callable[[Mapping[_K, _T]], object],
        is_made: Callable[[MetadataImage, _K, _T], bool],
    ) -> dict[_K, Exception | None]:
        """Make changes in another thread with one action, by which all are on the disk, or none.

        If one of them is refused, which happens where another client was faster, they are made one by one.

        Args:
            changes: The changes.
            action: Makes them.
            is_made: Whether the metadata have one of them: then it has happened, whatever failed after that.

        Returns:
            For each change why it was not made, or None.
        """
        return await self.change(partial(self._change_all, changes, action, is_made))

    def _change_all(
        self,
        changes: Mapping[_K, _T],
        action: Callable[[Mapping[_K, _T]], object],
        is_made: Callable[[MetadataImage, _K, _T], bool],
    ) -> dict[_K, Exception | None]:
        try:
            action(changes)
        except (BrokerError, OptionError, UnknownTopicOrPartitionError) as error:
            if len(changes) == 1:
                return dict.fromkeys(changes, error)
        except Exception as error:
            # The disk's. Kafka's controller answers by the metadata; what follows from them is done later.
            image = self._logs.metadata_image
            made = {key for key, change in changes.items() if is_made(image, key, change)}
            if made:
                _logger.error("What follows from a change of the metadata failed, and is tried again: %s", error)
            return {key: None if key in made else error for key in changes}
        else:
            return dict.fromkeys(changes)
        return {key: self._change_all({key: change}, action, is_made)[key] for key, change in changes.items()}

    # -- creating

    def deleted(self, names: Iterable[str]) -> None:
        """Remember topics that were deleted, so that clients learn of that before the topics are created again."""
        self._deleted |= dict.fromkeys(names)
        for name in list(self._deleted)[:-_REMEMBERED]:
            del self._deleted[name]

    def take_deleted(self, names: Iterable[str]) -> list[str]:
        """Return which of some topics were deleted since the last call that named them."""
        found = [name for name in names if name in self._deleted]
        for name in found:
            del self._deleted[name]
        return found

    def automatic(self, name: str) -> NewTopic:
        """Return a topic as it is created if a client has only named it."""
        topic = INTERNAL_TOPICS.get(name)
        if topic is None:
            return NewTopic(name, self._config["num.partitions"], {})
        segment_bytes = self._config[f"{topic.prefix}.segment.bytes"]
        return NewTopic(name, self._config[f"{topic.prefix}.num.partitions"], topic.config(segment_bytes))

    async def internal(self, name: str) -> TopicImage:
        """Return an internal topic, which is created if it is missing.

        Raises:
            LogError: The disk failed.
        """
        found = self._logs.metadata_image.topics.get(name)
        return await self.change(partial(self.create_internal, name)) if found is None else found

    def create_internal(self, name: str) -> TopicImage:
        """As `internal`, in this thread."""
        try:
            return self._logs.create_topics([self.automatic(name)])[0]
        except TopicExistsError:
            # Another request has created it at the same time.
            return self._logs.metadata_image.topic(name)

    def check_new_name(self, name: str) -> None:
        """Check the name of a topic that is to be created.

        Raises:
            ApiError: There is a topic of that name, or of one that is too much like it; or no topic can have the name.
        """
        image = self._logs.metadata_image
        if name in image.topics:
            raise ApiError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        check_topic_name(name)
        like = image.topic_like(name)
        if like is not None:
            raise ApiError(ErrorCode.invalid_topic_exception, f"Topic '{name}' collides with existing topic: {like}")

    def partitions_of(
        self, partitions: int, replication_factor: int, assignments: Mapping[int, Sequence[int]] | None
    ) -> int:
        """Return how many partitions a topic gets.

        Args:
            partitions: How many its creator asks for; -1 for the broker's default.
            replication_factor: How many replicas of each; -1 for the broker's default.
            assignments: The brokers that hold each partition, instead of both numbers.

        Raises:
            ApiError: One broker cannot hold such a topic.
        """
        if assignments is not None:
            if replication_factor != -1:
                what = "replication factor was not set to -1."
                raise ApiError(ErrorCode.invalid_request, f"A manual partition assignment was specified, but {what}")
            if partitions != -1:
                what = "numPartitions was not set to -1."
                raise ApiError(ErrorCode.invalid_request, f"A manual partition assignment was specified, but {what}")
            self._check_assignments(assignments)
            return len(assignments)
        if replication_factor < -1 or replication_factor == 0:
            reason = "Replication factor must be larger than 0, or -1 to use the default value."
            raise ApiError(ErrorCode.invalid_replication_factor, reason)
        if partitions < -1 or partitions == 0:
            reason = "Number of partitions was set to an invalid non-positive value."
            raise ApiError(ErrorCode.invalid_partitions, reason)
        factor = self._config["default.replication.factor"] if replication_factor == -1 else replication_factor
        if factor > 1:
            reason = (
                f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} "
                "cannot be reached because only 1 broker(s) are registered or some brokers have all their log "
                "directories cordoned."
            )
            raise ApiError(ErrorCode.invalid_replication_factor, reason)
        return int(self._config["num.partitions"]) if partitions == -1 else partitions

    def _check_assignments(self, assignments: Mapping[int, Sequence[int]]) -> None:
        factor: int | None = None
        for replicas in assignments.values():
            self.check_assignment(replicas, factor)
            factor = len(replicas)
        if set(assignments) != set(range(len(assignments))):
            reason = "partitions should be a consecutive 0-based integer sequence"
            raise ApiError(ErrorCode.invalid_replica_assignment, reason)

    def check_assignment(self, replicas: Sequence[int], replication_factor: int | None = None) -> None:
        """Check which brokers are to hold a partition.

        Args:
            replicas: The brokers.
            replication_factor: How many there have to be.

        Raises:
            ApiError: They are others than this one.
        """
        includes = "The manual partition assignment includes"
        if not replicas:
            raise ApiError(ErrorCode.invalid_replica_assignment, f"{includes} an empty replica list.")
        node_id = self._logs.identity.node_id
        for number, replica in enumerate(sorted(replicas)):
            if replica != node_id:
                reason = f"{includes} broker {replica}, but no such broker is registered."
                raise ApiError(ErrorCode.invalid_replica_assignment, reason)
            if number:
                reason = f"{includes} the broker {replica} more than once."
                raise ApiError(ErrorCode.invalid_replica_assignment, reason)
        if replication_factor is not None and len(replicas) != replication_factor:
            reason = (
                f"{includes} a partition with {len(replicas)} replica(s), but this is not consistent with previous "
                f"partitions, which have {replication_factor} replica(s)."
            )
            raise ApiError(ErrorCode.invalid_replica_assignment, reason)

    async def create(self, topics: Sequence[NewTopic]) -> list[TopicImage | Exception]:
        """Create topics that were checked.

        Returns:
            For each topic its image, or why it could not be created; none is if they are too many.
        """
        try:
            check_partition_count(sum(topic.partitions for topic in topics))
        except PolicyViolationError as error:
            return [error] * len(topics)
        made: dict[str, TopicImage] = {}

        def create(some: Mapping[str, NewTopic]) -> None:
            made.update(zip(some, self._logs.create_topics(some.values()), strict=True))

        def is_made(image: MetadataImage, name: str, topic: NewTopic) -> bool:
            found = image.topics.get(name)
            if found is not None:
                made.setdefault(name, found)
            return found is not None

        failed = await self.change_all({topic.name: topic for topic in topics}, create, is_made)
        return [failed[topic.name] or made[topic.name] for topic in topics]
