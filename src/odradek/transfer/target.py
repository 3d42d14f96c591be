"""Where records are written, and how far that has come: a log directory or a broker.

    folder    offsets are kept: the end of a log is the next offset of the source, and every append moves it
    broker    a transaction holds records and the source's next offset, in a group of its own

So the next run asks `position`, and goes on from there: nothing is written twice, and nothing is left out, whenever and
however the writer was ended.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import pyarrow as pa

from odradek.errors import OptionError
from odradek.records import Record
from odradek.records.compression import Codec
from odradek.sources.source import is_broker
from odradek.storage.names import TopicPartition

_REMOVED = frozenset(("message.format.version", "message.downconversion.enable", "message.timestamp.difference.max.ms"))


def lasting_config(config: Mapping[str, str] | None) -> dict[str, str]:
    """Return a topic's settings without those that Apache Kafka 4.0 removed, with which no topic can be created."""
    return {name: value for name, value in (config or {}).items() if name not in _REMOVED}


class PartitionWriter(ABC):
    """Writes one partition, from one source. Belongs to one thread at a time."""

    @abstractmethod
    def position(self) -> int | None:
        """Return the next offset of the source; None if nothing was written."""

    @abstractmethod
    def last_record(self) -> Record | None:
        """Return the last record, whose offset is that of the source; None if the target has other offsets."""

    @abstractmethod
    def begin(self, start_offset: int) -> None:
        """Let the log begin at an offset, if nothing was written and the target keeps offsets."""

    @abstractmethod
    def write(self, rows: pa.RecordBatch, next_offset: int | None = None) -> None:
        """Write records. They are kept for good by the next `commit`, or before.

        Args:
            rows: The columns `key`, `value`, `headers`, `timestamp` and `timestamp_type`, and, if the position is to
                be kept, `offset`, which increases.
            next_offset: The offset of the source that comes after these records, and after those that it leaves out.
        """

    @abstractmethod
    def append(self, rows: pa.RecordBatch) -> None:
        """Write records after those that are there, whatever their offsets were, and keep no position."""

    @abstractmethod
    def commit(self) -> None:
        """Keep what was written, and the position after it."""

    @abstractmethod
    def close(self) -> None:
        """Drop what was not committed, as far as that can be dropped."""


class Target(ABC):
    """Topics that are written; a context manager. Any thread may use it.

    Attributes:
        address: Where they are, without a password.
    """

    address: str

    @abstractmethod
    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has; 0 if it does not exist."""

    @abstractmethod
    def ensure_topic(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Create a topic, or add the partitions that it lacks.

        Args:
            topic: Its name.
            partitions: How many partitions it has at least.
            config: Its settings if it is created; those that Apache Kafka 4.0 removed are left out.

        Raises:
            BrokerError: It cannot be created.
        """

    @abstractmethod
    def writer(self, topic_partition: TopicPartition, stream: str) -> PartitionWriter:
        """Return what writes a partition.

        Args:
            topic_partition: The partition.
            stream: The name of what is written, the same in each run that goes on with it. One process at a time
                writes a stream; on a broker, one that begins later stops one that began before.
        """

    @abstractmethod
    def close(self) -> None:
        """Close files and connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_target(
    address: str | os.PathLike[str], config: Mapping[str, str] | None = None, *, codec: Codec = Codec.NONE
) -> Target:
    """Open a log directory, which is created if it is missing, or connect to a broker.

    Args:
        address: A path, or `kafka://[user:password@]host:port[,host:port]`.
        config: Settings of the connection to a broker, by the names of Kafka's clients.
        codec: How batches are compressed.

    Raises:
        LogError: The folder cannot be opened, or another program has it open.
        OptionError: The address or a setting is not valid, or the extra `odradek[kafka]` is not installed.
    """
    if is_broker(address):
        try:
            from odradek.transfer.broker_target import BrokerTarget
        except ImportError as error:
            raise OptionError(f"kafka://: needs the extra odradek[kafka] ({error})") from error
        return BrokerTarget(os.fspath(address), config, codec=codec)
    from odradek.transfer.folder_target import FolderTarget

    return FolderTarget(address, codec=codec)
