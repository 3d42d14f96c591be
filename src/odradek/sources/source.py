"""What tools read records from: the files of a log, or a broker.

    data/events-0/00000000000000000042.log       a segment, by itself
    data/events-0                                the folder of a partition
    data                                         a log directory
    kafka://user:password@host:9092/events       a broker; all topics, or one

A source says which partitions there are and which offsets they hold, and hands out their batches as bytes: nothing is
decoded. `odradek.sources.arrow` makes Arrow record batches of them. Nothing is written.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from typing_extensions import Buffer

from odradek.errors import OptionError, UnknownTopicOrPartitionError
from odradek.kafka.committed_offset import CommittedOffset
from odradek.records.isolation import Isolation
from odradek.storage.directory.choice import choose
from odradek.storage.names import TopicPartition

SLICE_BYTES = 16 << 20
"""About how much a slice holds, unless one batch is larger."""

_SCHEME = "kafka:"


class TopicDescription(NamedTuple):
    """What a source says about a topic.

    Attributes:
        topic_id: Its id, as Kafka prints it; None if it is not known.
        partitions: The numbers of its partitions, sorted. A log directory may hold some of them only.
    """

    topic_id: str | None
    partitions: tuple[int, ...]


class Bounds(NamedTuple):
    """The offsets that a partition holds: from the first one to the one after the last."""

    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class SourceSlice:
    """Consecutive whole batches of one partition. It stays valid when the next one is asked for.

    Attributes:
        path: The `.log` file, or the partition and its broker, for errors.
        data: Bytes that hold the batches.
        position: The position of the first batch: in the file, or in what the broker sent.
        end_position: The position after the last batch.
        origin: The position at which `data` starts.
        next_offset: The base offset of the next segment, if this slice ends a sealed one; otherwise None.
        aborted: For `read_committed`, the transactions to leave out: producer id, first offset, offset of the marker.
    """

    path: Path | str
    data: Buffer
    position: int
    end_position: int
    origin: int = 0
    next_offset: int | None = None
    aborted: Sequence[tuple[int, int, int]] = ()

    @property
    def size_bytes(self) -> int:
        """How many bytes the batches have."""
        return self.end_position - self.position

    @property
    def batches(self) -> memoryview:
        """The bytes of the batches, and no others."""
        return memoryview(self.data)[self.position - self.origin : self.end_position - self.origin]


class Source(ABC):
    """Topics to read; a context manager. Any thread may use it.

    A method raises `BrokerUnavailableError` if a broker did not answer in time, and `LogError` if a folder cannot be
    read.

    Attributes:
        address: What it was opened by, without a password.
    """

    address: str

    @abstractmethod
    def topics(self) -> dict[str, TopicDescription]:
        """Return the topics by name, sorted; Kafka's internal ones too."""

    @abstractmethod
    def topic_config(self, topic: str) -> dict[str, str]:
        """Return the settings that were made for a topic, by Kafka's names; none if the source does not know any.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """

    @abstractmethod
    def all_bounds(
        self, partitions: Iterable[TopicPartition], isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, Bounds]:
        """Return which offsets partitions hold; those that do not exist are left out.

        Args:
            partitions: The partitions.
            isolation: `read_committed` ends at the last stable offset.
        """

    def bounds(self, topic_partition: TopicPartition, isolation: Isolation = "read_uncommitted") -> Bounds:
        """Return which offsets a partition holds, as `all_bounds` does.

        Raises:
            UnknownTopicOrPartitionError: There is no such partition.
        """
        found = self.all_bounds([topic_partition], isolation).get(topic_partition)
        if found is None:
            raise UnknownTopicOrPartitionError(*topic_partition, path=self.address)
        return found

    @abstractmethod
    def find_timestamp(
        self, topic_partition: TopicPartition, timestamp_ms: int, isolation: Isolation = "read_uncommitted"
    ) -> int | None:
        """Return the offset of the first record whose timestamp is at or above one; None if there is none.

        Raises:
            UnknownTopicOrPartitionError: There is no such partition.
        """

    @abstractmethod
    def slices(
        self,
        topic_partition: TopicPartition,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
        slice_bytes: int = SLICE_BYTES,
    ) -> Iterator[SourceSlice]:
        """Yield the batches that hold a range of offsets, one slice after the other.

        The first batch may begin before the range, and the last may end after it; the caller leaves out those records,
        control records, and for `read_committed` those of `SourceSlice.aborted`. Checksums are not checked.

        Args:
            topic_partition: The partition.
            start_offset: The first offset to read; the first that there is if None, also if that moves meanwhile.
            end_offset: The offset after the last one to read; the end as it is now if None, or if it is above that.
            isolation: `read_committed` ends at the last stable offset.
            slice_bytes: About how many bytes a slice has at most.

        Raises:
            OffsetOutOfRangeError: The partition does not hold the start, or no longer what comes after it.
            UnknownTopicOrPartitionError: There is no such partition, or it was deleted meanwhile.
            FormatError: Bytes within the range are no batches.
        """

    @abstractmethod
    def group_offsets(self) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Return the committed offsets of each group that has any, sorted by group.

        Those of a transaction that has not ended are not among them. A log directory knows the groups whose partition
        of `__consumer_offsets` it holds.
        """

    @abstractmethod
    def refresh(self) -> None:
        """Look again at what there is: a folder's new topics and partitions, and what was appended."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections."""

    def choose(
        self,
        topics: str | re.Pattern[str] | Iterable[str] | None = None,
        partitions: int | Iterable[int] | None = None,
    ) -> list[TopicPartition]:
        """Return the partitions that match, sorted.

        Args:
            topics: A name, a pattern (`events-*`, or a compiled regular expression), or a list of them; None for every
                topic that is not internal to Kafka.
            partitions: A number or several; all if None.

        Raises:
            UnknownTopicOrPartitionError: A topic that was named, or a partition of it, does not exist.
        """
        there = [TopicPartition(name, number) for name, topic in self.topics().items() for number in topic.partitions]
        return choose(there, topics, partitions, path=self.address)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_broker(address: str | os.PathLike[str]) -> bool:
    """Whether an address names a broker and not a path, also a misspelt one, which must not become a folder."""
    return os.fspath(address)[: len(_SCHEME)].lower() == _SCHEME


def open_source(address: str | os.PathLike[str], config: Mapping[str, str] | None = None) -> Source:
    """Open what an address names.

    Args:
        address: The path of a segment, of a partition's folder or of a log directory; or
            `kafka://[user:password@]host:port[,host:port][/topic][?setting=value]`.
        config: Settings of the connection to a broker, by the names of Kafka's clients (`security.protocol`), or by
            kafka-python's; they go before those of the address.

    Raises:
        LogError: The path is no file or folder of a log.
        OptionError: The address or a setting is not valid, or the extra `odradek[kafka]` is not installed.
    """
    if is_broker(address):
        try:
            from odradek.sources.broker import BrokerSource
        except ImportError as error:
            raise OptionError(f"kafka://: needs the extra odradek[kafka] ({error})") from error
        return BrokerSource(os.fspath(address), config)
    from odradek.sources.path import PathSource

    return PathSource(address)
