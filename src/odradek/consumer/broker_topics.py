"""The topics of a broker, for a consumer.

    look     which offsets do all partitions hold?      one question for all, at least once a second
    read     fetch about 1 MB  ->  decode batch by batch  ->  fetch, up to the end that the last look found

An answer's bytes are copied, so partitions take turns with one connection to each leader.

Source in Kafka: `Fetcher`, `SubscriptionState`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from odradek.consumer.consumed_topics import ConsumedTopics
from odradek.consumer.partition_reader import ConvertedPolicy, PartitionReader
from odradek.consumer.subscription import SubscriptionPattern
from odradek.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from odradek.kafka.client import MISSING_S
from odradek.kafka.partition_fetch import Held
from odradek.kafka.topics import Bounds
from odradek.offsets.kafka import KafkaOffsetStore
from odradek.offsets.store import is_same_topic
from odradek.places.address import BrokerAddress
from odradek.places.broker import BrokerPlace
from odradek.places.place import PlaceSlice
from odradek.records import Record, scan_batches
from odradek.records.batch import each_record
from odradek.records.isolation import Isolation
from odradek.storage.directory.choice import choose
from odradek.storage.formats.checkpoints import EpochEntry
from odradek.storage.formats.transaction_index import AbortedTransaction
from odradek.storage.log.follow import waits
from odradek.storage.log.leader_epochs import epoch_for_offset
from odradek.storage.log.transactions import AbortedRanges
from odradek.storage.names import TopicPartition

if TYPE_CHECKING:
    from odradek.offsets.member import MemberOffsetStore

_FETCH_BYTES = 1 << 20
_LOOK_S = 0.1


class BrokerTopics(ConsumedTopics):
    """The topics of a broker.

    Args:
        address: `kafka://[user:password@]host:port[,host:port][/topic][?setting=value]`.
        isolation: Which records are given.

    Attributes:
        place: The broker.

    Raises:
        OptionError: The address or a setting is not valid.
    """

    def __init__(self, address: str, isolation: Isolation) -> None:
        self.place = BrokerPlace(BrokerAddress.parse(address))
        self.path = self.place.address
        self.isolation = isolation
        self._bounds: dict[TopicPartition, Bounds] = {}
        self._topic_ids: dict[str, str | None] = {}
        self._missing_since_s: dict[TopicPartition, float] = {}
        self._looked_s = 0.0

    def store(self, group: str) -> KafkaOffsetStore:
        """Return the offset store of a group of this broker."""
        return KafkaOffsetStore.of_broker(self.place.settings, group)

    def membership(
        self,
        group: str,
        topics: Sequence[str | re.Pattern[str]],
        pattern: SubscriptionPattern | None,
        instance_id: str | None,
    ) -> MemberOffsetStore:
        """Join a group of this broker, as a reader of the topics that there are now, or of a pattern."""
        # kio, which has the schema of heartbeats, takes long to import.
        from odradek.offsets.member import MemberOffsetStore

        regex = None if pattern is None else pattern.pattern
        names = {name.topic for name in choose(self.listed(), topics, None, path=self.path)} if topics else ()
        return MemberOffsetStore(self.place.settings, group, names, regex, instance_id)

    def listed(self) -> list[TopicPartition]:
        """Return the partitions that the broker names."""
        return self.place.partitions()

    def readers(
        self, topic_partitions: Collection[TopicPartition], reset: ConvertedPolicy
    ) -> Iterator[PartitionReader]:
        """Ask what all partitions hold, and yield a reader of each."""
        self.refresh(topic_partitions)
        for name in topic_partitions:
            yield _BrokerReader(_BrokerLog(self, name), self, isolation=self.isolation, reset=reset)

    def refresh(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Ask which offsets partitions hold."""
        found = self.place.all_bounds(topic_partitions, self.isolation)
        now = time.monotonic()
        missing = {name: self._missing_since_s.get(name, now) for name in topic_partitions if name not in found}
        self._missing_since_s = missing
        self._topic_ids.update({name.topic: held.topic_id for name, held in found.items()})
        self._bounds.update(found)

    def look(self, topic_partitions: Collection[TopicPartition], max_age_s: float) -> bool:
        """Ask for all partitions at once."""
        if not topic_partitions or time.monotonic() < self._looked_s + max_age_s:
            return False
        self.refresh(topic_partitions)
        self._looked_s = time.monotonic()
        return True

    def bounds(self, topic_partition: TopicPartition) -> Bounds:
        """Return which offsets a partition held at the last look.

        Raises:
            UnknownTopicOrPartitionError: It did not exist then, nor for some seconds before.
        """
        missing_since_s = self._missing_since_s.get(topic_partition)
        held = self._bounds.get(topic_partition)
        if held is None or (missing_since_s is not None and time.monotonic() > missing_since_s + MISSING_S):
            raise UnknownTopicOrPartitionError(*topic_partition, path=self.path)
        return held

    def topic_id(self, topic: str) -> str | None:
        """Return the id of a topic as of the last look."""
        return self._topic_ids.get(topic)

    def pauses(self) -> Iterator[float]:
        """Give the times in seconds to wait before asking again."""
        return waits(_LOOK_S, _LOOK_S)

    def close(self) -> None:
        """Close the connections; those of a parent process stay."""
        self.place.close()


class _Epochs(NamedTuple):
    """The leader epochs of consecutive offsets that were read."""

    start_offset: int
    end_offset: int
    entries: tuple[EpochEntry, ...] = ()

    def extended(self, epoch: int, start_offset: int, end_offset: int) -> _Epochs:
        if self.entries and self.entries[-1].epoch == epoch:
            return self._replace(end_offset=end_offset)
        return self._replace(end_offset=end_offset, entries=(*self.entries, EpochEntry(epoch, start_offset)))

    def of(self, offset: int) -> int | None:
        epoch = epoch_for_offset(self.entries, offset) if self.start_offset <= offset < self.end_offset else None
        return None if epoch is None or epoch < 0 else epoch


class _BrokerLog:
    """A partition of a broker, as a log that grows."""

    def __init__(self, topics: BrokerTopics, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topics.topic_id(topic_partition.topic)
        self.epochs = _Epochs(0, 0)
        self._topics = topics

    @property
    def log_start_offset(self) -> int:
        return self._topics.bounds(self.topic_partition).start_offset

    @property
    def log_end_offset(self) -> int:
        return self._topics.place.bounds(self.topic_partition).end_offset

    def end_offset(self, isolation: Isolation) -> int:
        return self._topics.bounds(self.topic_partition).end_offset

    def refresh(self) -> None:
        """Make sure that it is still the same topic; `BrokerTopics` looks for all partitions at once."""
        if not is_same_topic(self.topic_id, self._topics.topic_id(self.topic_partition.topic)):
            raise UnknownTopicOrPartitionError(*self.topic_partition, path=self._topics.path)

    def tail_identity(self) -> object:
        """Return always the same: a log that was cut is noticed where it ends before the place, or at a start."""
        return None

    def read(self, start_offset: int, end_offset: int, *, isolation: Isolation) -> Iterator[Record]:
        if self.epochs.end_offset != start_offset:
            self.epochs = _Epochs(start_offset, start_offset)
        position = start_offset
        while position < end_offset:
            part = self._fetched(position, end_offset, isolation)
            if part is None:
                return
            aborted = AbortedRanges(AbortedTransaction(*span, last_stable_offset=span[2]) for span in part.aborted)
            batches = scan_batches(part.data, path=part.path)
            for header in batches:
                records = [] if header.is_control or header in aborted else each_record(part.data, header)
                first = max(start_offset, header.base_offset)
                self.epochs = self.epochs.extended(header.partition_leader_epoch, first, header.next_offset)
                for record in records:
                    if record.offset is not None and position <= record.offset < end_offset:
                        yield record
                position = max(position, header.next_offset)
            if batches.damage is not None:
                raise batches.damage

    def _fetched(self, offset: int, end_offset: int, isolation: Isolation) -> PlaceSlice | None:
        """Fetch the next batches; None if there are none before the end."""
        name, place = self.topic_partition, self._topics.place

        def lost(held: Held) -> None:
            if held.topic_id is not None:
                raise UnknownTopicOrPartitionError(*name, path=place.address)
            self._topics.refresh([name])
            raise OffsetOutOfRangeError(
                held.wanted_offset, held.start_offset, held.end_offset, log=f"{name} of {place.address}"
            )

        parts = place.fetch(
            name,
            offset,
            end_offset,
            isolation,
            lost=lost,
            topic_id=self.topic_id,
            max_bytes=_FETCH_BYTES,
            ahead=False,
        )
        with closing(parts):
            return next(parts, None)


class _BrokerReader(PartitionReader):
    """Reads a partition of a broker."""

    def __init__(self, log: _BrokerLog, topics: BrokerTopics, *, isolation: Isolation, reset: ConvertedPolicy) -> None:
        super().__init__(log, log.topic_id, isolation=isolation, reset=reset)
        self._log = log
        self._topics = topics

    def leader_epoch(self, offset: int) -> int | None:
        """Look in the batches that were read."""
        return self._log.epochs.of(offset)

    def epoch_end(self, leader_epoch: int, offset: int) -> int | None:
        """Ask the partition's leader."""
        name = self._log.topic_partition
        return self._topics.place.epoch_ends({name: leader_epoch}).get(name)

    def offset_at(self, timestamp_ms: int, end_offset: int) -> int | None:
        """Ask the partition's leader."""
        return self._topics.place.find_timestamp(self._log.topic_partition, timestamp_ms, self._topics.isolation)
