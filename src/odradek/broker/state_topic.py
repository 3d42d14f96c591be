"""The internal topic in which a coordinator of the broker keeps its state: loaded once, then appended to.

Source in Kafka: `CoordinatorRuntime`, `CoordinatorOperationExceptionHelper`, `TransactionStateManager`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError, code_of, message_of
from odradek.broker.partitions import Partition, Partitions
from odradek.broker.topics import Topics
from odradek.coordination.placement import partition_for
from odradek.errors import FormatError, OdradekError
from odradek.records.header import BatchHeader
from odradek.records.kernels.objects import Record
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.log.replay import replay

_LONGEST_TEXT = 0x7FFF

_CODES = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
}
"""Maps an error of a log to the one that clients get if a state cannot be written."""


def check_storable(text: str) -> None:
    """Check whether an id of a client fits a record.

    Raises:
        ApiError: It is too long.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > _LONGEST_TEXT:
        reason = f"an id of {size} bytes cannot be stored, as it is longer than {_LONGEST_TEXT}"
        raise ApiError(ErrorCode.unknown_server_error, reason)


@dataclass(frozen=True, slots=True)
class StateTopic:
    """An internal topic.

    Attributes:
        name: Its name.
        logs: The log directory.
        topics: Creates the topic.
        partitions: The partitions of the broker.
        run: Runs an action in another thread.
        disk_failed: Logs that the disk failed, the same text only once.
        found_damage: Notes damage in a log.
    """

    name: str
    logs: WritableLogDirectory
    topics: Topics
    partitions: Partitions
    run: Callable[[Callable[[], Any]], Awaitable[Any]]
    disk_failed: Callable[[str], None]
    found_damage: Callable[[FormatError], None]

    @property
    def count(self) -> int:
        """How many partitions it has; 0 if it does not exist."""
        topic = self.logs.metadata_image.topics.get(self.name)
        return 0 if topic is None else len(topic.partitions)

    def number_for(self, key: str) -> int:
        """Return the partition that holds a key's state, or will hold it when the topic is created."""
        return partition_for(key, self.count or self.topics.automatic(self.name).partitions)

    async def create(self) -> None:
        """Create the topic if it is missing.

        Raises:
            LogError: The disk failed.
        """
        await self.topics.internal(self.name)

    def partition(self, number: int) -> Partition:
        """Return a partition.

        Raises:
            ApiError: It is missing or offline.
        """
        return self.partitions.get(self.name, number)

    async def partition_of(self, key: str) -> Partition:
        """Return the partition that holds a key's state; the topic is created if it is missing.

        Raises:
            ApiError: It is offline.
            LogError: The disk failed.
        """
        await self.create()
        return await self.partitions.opened(self.name, self.number_for(key))

    async def open(self, number: int) -> Partition:
        """Open a partition, which takes a while, in another thread."""
        await self.run(partial(self.logs.__getitem__, (self.name, number)))
        return self.partition(number)

    async def replay(self, partition: Partition, each: Callable[[Record, BatchHeader], None]) -> None:
        """Call a function with each record of a partition, in another thread.

        Raises:
            FormatError: A record is damaged.
            LogError: The log cannot be read.
        """
        if partition.log.log_end_offset > partition.log.log_start_offset:
            try:
                await self.run(partial(replay, partition.log, each))
            except FormatError as error:
                self.found_damage(error)
                raise

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise the errors of a log as those of a coordinator.

        Raises:
            ApiError: The log could not be written.
        """
        try:
            yield
        except (OdradekError, OSError) as error:
            code = ErrorCode(code_of(error))
            if code is ErrorCode.kafka_storage_error:
                self.disk_failed(f"{self.name} cannot be written: {error}")
            raise ApiError(_CODES.get(code, code), message_of(error)) from error
