"""What holds topics: the files of a log, or a broker.

    data/events-0/00000000000000000042.log       a segment, by itself
    data/events-0                                the folder of a partition
    data                                         a log directory
    kafka://user:password@host:9092/events       a broker; all topics, or one

A place says which partitions there are and which offsets they hold, and hands out their batches as bytes: nothing is
decoded. `odradek.sources.arrow` makes Arrow record batches of them. Nothing is written.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.buffers import Buffer
from odradek.closing import Closing
from odradek.errors import UnknownTopicOrPartitionError
from odradek.inspection.group_description import SharedPartition
from odradek.kafka.committed_offset import CommittedOffset
from odradek.kafka.topics import Bounds, TopicDescription
from odradek.records.isolation import Isolation
from odradek.records.kernels.batches import BatchTable
from odradek.storage.directory.choice import choose
from odradek.storage.names import TopicPartition
from odradek.storage.segment.batch_reader import BatchReader, Damage

SLICE_BYTES = 16 << 20
"""About how much a slice holds, unless one batch is larger."""


@dataclass(frozen=True, slots=True)
class PlaceSlice:
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

    def tables(self, damaged: Callable[[Damage], None]) -> Iterator[tuple[BatchTable, bytes]]:
        """Yield the headers of the batches, each with the bytes of its batch; damage is reported, and skipped."""
        data = bytes(self.batches)
        for table, _ in BatchReader(Path(self.path), data, damaged).tables():
            yield table, data


class Place(Closing, ABC):
    """Topics of a folder or a broker; a context manager. Any thread may use it.

    A method raises `BrokerUnavailableError` if a broker did not answer in time, and `LogError` if a folder cannot be
    read.

    Attributes:
        address: What it was opened by, without a password.
    """

    address: str

    @abstractmethod
    def topics(self) -> dict[str, TopicDescription]:
        """Return the topics by name, sorted; Kafka's internal ones too. Their settings are not asked for."""

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions of all topics, sorted."""
        return [TopicPartition(name, number) for name, topic in self.topics().items() for number in topic.partitions]

    @abstractmethod
    def describe(self, names: Collection[str] | None = None) -> list[TopicDescription]:
        """Return topics with all that the metadata say, sorted by name; all of the cluster if None.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """

    def topic_config(self, topic: str) -> dict[str, str]:
        """Return the settings that were made for a topic, by Kafka's names; none if the place does not know any.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        return dict(self.describe([topic])[0].config)

    @abstractmethod
    def all_bounds(
        self, partitions: Iterable[TopicPartition], isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, Bounds]:
        """Return which offsets partitions hold; those that do not exist are missing in the result.

        Args:
            partitions: The partitions.
            isolation: `read_committed` ends at the last stable offset.
        """

    def identified(self, bounds: dict[TopicPartition, Bounds]) -> dict[TopicPartition, Bounds]:
        """Return what `all_bounds` found, with topic ids and latest leader epochs; a broker has told them already."""
        return bounds

    def lost_end(self, topic_partition: TopicPartition) -> tuple[int, int] | None:
        """Return the offsets that a closed log had, and that a folder's log has no more: the first, the one after."""
        return None

    @abstractmethod
    def ends(
        self, partitions: Collection[TopicPartition], isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        """Return where partitions end now, without a `refresh`: at less cost than by `all_bounds`.

        Raises:
            OdradekError: A partition does not exist any more, or the place does not answer.
        """

    @abstractmethod
    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where the records of a leader epoch end; partitions that do not know the epoch are left out."""

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
    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset whose timestamp, in ms, is at or after a time; None if there is no such record.

        Raises:
            UnknownTopicOrPartitionError: There is no such partition.
        """

    def find_timestamp(
        self, topic_partition: TopicPartition, timestamp_ms: int, isolation: Isolation = "read_uncommitted"
    ) -> int | None:
        """Return the first offset at or after a time in one partition, as `offsets_for_times` does."""
        return self.offsets_for_times({topic_partition: timestamp_ms}, isolation)[topic_partition]

    @abstractmethod
    def slices(
        self,
        topic_partition: TopicPartition,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
        slice_bytes: int = SLICE_BYTES,
    ) -> Iterator[PlaceSlice]:
        """Yield the batches that hold a range of offsets, one slice after the other.

        The first batch may begin before the range, and the last may end after it; the caller leaves out those records,
        control records, and for `read_committed` those of `PlaceSlice.aborted`. Checksums are not checked.

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
    def group_offsets(self, groups: Collection[str] | None = None) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Return the committed offsets of groups, all if None, sorted by group.

        Those of a transaction that has not ended are not among them. A log directory knows the groups whose partition
        of `__consumer_offsets` it holds.
        """

    @abstractmethod
    def shared_offsets(self, groups: Collection[str]) -> dict[str, dict[TopicPartition, SharedPartition]]:
        """Return how far share groups are in the partitions that they have read."""

    @abstractmethod
    def transactional_ids(self, producer_ids: Collection[int]) -> dict[int, str]:
        """Return the transactional ids of producers, as far as the place tells; this may take long."""

    @abstractmethod
    def refresh(self) -> None:
        """Look again: for a folder's new topics and partitions, and for what was appended."""

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
        return choose(self.partitions(), topics, partitions, path=self.address)
