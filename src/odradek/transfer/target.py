"""Where records are written, and how far that has come: a log directory or a broker.

    folder    offsets are kept: the end of a log is the next offset of the source, and every append moves it
    broker    a transaction holds records and the source's next offset, in a group of its own

So the next run asks `position`, and continues from there: nothing is written twice, and nothing is skipped, however
the writer ended.

Groups' positions go with the records:

    source    | 3 | 4 | 7 | 9 |             a group's position is 7: it comes next
    target    | 0 | 1 | C |                 all before 7 is committed: the next record will get 3

A folder keeps the offsets, so positions stay as they are. On a broker a transaction ends before each record that is
some group's position; the end of the partition is then the group's position in the target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import pyarrow as pa

from odradek.closing import Closing
from odradek.kafka.committed_offset import CommittedOffset
from odradek.places.place import Place
from odradek.records import Record
from odradek.storage.names import TopicPartition

_REMOVED = frozenset(("message.format.version", "message.downconversion.enable", "message.timestamp.difference.max.ms"))


def lasting_config(config: Mapping[str, str] | None) -> dict[str, str]:
    """Return a topic's settings without those that Apache Kafka 4.0 removed, with which no topic can be created."""
    return {name: value for name, value in (config or {}).items() if name not in _REMOVED}


def positions_of(place: Place) -> set[tuple[str, TopicPartition]]:
    """Return the groups and partitions that have a position in a place."""
    return {(group, partition) for group, offsets in place.group_offsets().items() for partition in offsets}


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
        """Write records. They are durable after the next `commit`, or before.

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
        """Commit what was written, and the position after it."""

    @abstractmethod
    def close(self) -> None:
        """Drop what was not committed, as far as that can be dropped."""


class Target(Closing, ABC):
    """Topics that are written; a context manager. Any thread may use it.

    Attributes:
        address: Where they are, without a password.
        keeps_offsets: Whether records keep the offsets of the source.
    """

    address: str
    keeps_offsets: bool

    @abstractmethod
    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has; 0 if it does not exist."""

    @abstractmethod
    def ensure_topic(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Create a topic, or add the partitions that it lacks.

        Args:
            topic: Its name.
            partitions: How many partitions it has at least.
            config: Its settings if it is created; those that Apache Kafka 4.0 removed are ignored.

        Raises:
            BrokerError: It cannot be created.
        """

    @abstractmethod
    def writer(self, topic_partition: TopicPartition, stream: str) -> PartitionWriter:
        """Return what writes a partition.

        Args:
            topic_partition: The partition.
            stream: The name of what is written, the same in each run that continues it. One process at a time
                writes a stream; on a broker, one that begins later stops one that began before.
        """

    @abstractmethod
    def known_positions(self) -> set[tuple[str, TopicPartition]]:
        """Return the groups and partitions that have a position here."""

    @abstractmethod
    def place_groups(self, topic_partition: TopicPartition, positions: Mapping[str, CommittedOffset]) -> dict[str, str]:
        """Set positions of groups to where the next record of the source will be here.

        Args:
            topic_partition: The partition.
            positions: The position in the source of each group.

        Returns:
            The groups that were refused, each with the reason.
        """

    @abstractmethod
    def close(self) -> None:
        """Close files and connections."""
