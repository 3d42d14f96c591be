"""What a consumer reads: the topics of a log directory, or of a broker (`odradek.consumer.broker_topics`)."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.consumer.partition_reader import ConvertedPolicy, PartitionReader
from odradek.consumer.subscription import SubscriptionPattern
from odradek.errors import OptionError
from odradek.messages.uuids import format_uuid
from odradek.offsets.store import OffsetStore
from odradek.records.isolation import Isolation
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.formats.partition_metadata import PARTITION_METADATA, read_partition_metadata
from odradek.storage.log.follow import waits
from odradek.storage.log.leader_epochs import end_offset_for, epoch_for_offset
from odradek.storage.log.log import Log
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    from odradek.offsets.member import MemberOffsetStore


class ConsumedTopics(ABC):
    """Topics to consume; for one thread at a time.

    Attributes:
        path: The log directory, or the address of the broker without its password.
        isolation: Which records are given.
    """

    path: Path | str
    isolation: Isolation

    @abstractmethod
    def listed(self) -> list[TopicPartition]:
        """Return the partitions that there are now."""

    @abstractmethod
    def readers(
        self, topic_partitions: Collection[TopicPartition], reset: ConvertedPolicy
    ) -> Iterator[PartitionReader]:
        """Yield a reader of each partition."""

    @abstractmethod
    def refresh(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Look now which offsets partitions hold."""

    def look(self, topic_partitions: Collection[TopicPartition], max_age_s: float) -> bool:
        """Look which offsets partitions hold, if the last look was longer ago; return whether this was done.

        Readers of a folder look by themselves.
        """
        return False

    @abstractmethod
    def store(self, group: str) -> OffsetStore:
        """Return where the offsets of a group are kept beside the topics."""

    def membership(
        self,
        group: str,
        topics: Sequence[str | re.Pattern[str]],
        pattern: SubscriptionPattern | None,
        instance_id: str | None,
    ) -> MemberOffsetStore:
        """Join a group of a broker, and return its offsets.

        Raises:
            OptionError: It is a folder.
        """
        raise OptionError(f"{self.path} is a folder: a group is shared at a broker")

    def pauses(self) -> Iterator[float]:
        """Give the times in seconds to wait before looking again."""
        return waits()

    @abstractmethod
    def close(self) -> None:
        """Close files and connections."""


class FolderTopics(ConsumedTopics):
    """The topics of a log directory, which another program may be writing.

    Raises:
        LogError: There is no such folder, or it cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str], isolation: Isolation) -> None:
        self._directory = LogDirectory(path)
        self.path = self._directory.path
        self.isolation = isolation

    def listed(self) -> list[TopicPartition]:
        """Return the partitions in the folder."""
        # The logs of the other one stay open.
        with LogDirectory(self._directory.path) as directory:
            return directory.topic_partitions()

    def readers(
        self, topic_partitions: Collection[TopicPartition], reset: ConvertedPolicy
    ) -> Iterator[PartitionReader]:
        """Open one log after another."""
        for name in topic_partitions:
            yield FolderReader(self._directory[name], isolation=self.isolation, reset=reset)

    def store(self, group: str) -> OffsetStore:
        """Return the offset store of a group of this folder."""
        # It imports what most consumers do not need.
        from odradek.offsets.folder import FolderOffsetStore

        return FolderOffsetStore(self.path, group)

    def refresh(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Look at the folders of partitions."""
        for name in topic_partitions:
            self._directory[name].refresh()

    def close(self) -> None:
        """Close the files."""
        self._directory.close()


class FolderReader(PartitionReader):
    """Reads a log of a folder."""

    def __init__(self, log: Log, *, isolation: Isolation, reset: ConvertedPolicy) -> None:
        topic_id = read_partition_metadata(log.path / PARTITION_METADATA)
        super().__init__(log, None if topic_id is None else format_uuid(topic_id), isolation=isolation, reset=reset)
        self._log = log

    def leader_epoch(self, offset: int) -> int | None:
        """Look in the log's leader epochs."""
        return epoch_for_offset(self._log.leader_epochs, offset)

    def epoch_end(self, leader_epoch: int, offset: int) -> int | None:
        """Look in the log's leader epochs."""
        end = end_offset_for(self._log.leader_epochs, leader_epoch, offset)
        return None if end is None else end.start_offset

    def offset_at(self, timestamp_ms: int, end_offset: int) -> int | None:
        """Look in the log's time indexes."""
        found = self._log.find_timestamp(timestamp_ms, end_offset)
        return None if found is None else found.offset
