"""The topics of a broker as a place.

Each call takes a client from a pool, and returns it: a client belongs to one thread at a time, and its connections are
kept for the next call. A call that is interrupted leaves none behind, and a fork opens connections of its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace

from kafka import errors

from odradek.errors import (
    BrokerUnavailableError,
    LogError,
    OdradekError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from odradek.inspection.group_description import SharedPartition
from odradek.kafka.client import LATEST_TIMESTAMP, BrokerClient
from odradek.kafka.cluster import check
from odradek.kafka.committed_offset import CommittedOffset
from odradek.kafka.configs import TOPIC_RESOURCE, describe_configs
from odradek.kafka.groups import committed_offsets, list_groups
from odradek.kafka.partition_fetch import Held, PartitionFetch
from odradek.kafka.topics import Bounds, TopicDescription
from odradek.kafka.transaction_states import transactional_ids
from odradek.places.address import BrokerAddress
from odradek.places.place import SLICE_BYTES, Place, PlaceSlice
from odradek.records.isolation import ISOLATION_LEVELS, Isolation, check_isolation
from odradek.storage.names import TopicPartition

_MADE_FOR_THE_TOPIC = 1
"""The source of a setting that the topic has, DYNAMIC_TOPIC_CONFIG; other values are the broker's or defaults."""
HIDDEN = (
    errors.TopicAuthorizationFailedError.errno,
    errors.ClusterAuthorizationFailedError.errno,
    errors.UnknownTopicOrPartitionError.errno,
)
"""A topic with one of these errors is shown without settings: the client may not read them, or it was just deleted."""


class BrokerPlace(Place):
    """The topics of a cluster, or one of them. It connects at the first question.

    Args:
        address: The cluster, or one of its topics.
        is_awaited: Whether the first question waits for the cluster as long as any other.

    Attributes:
        settings: How to reach the cluster.
        topic: The topic; None for all.
    """

    def __init__(self, address: BrokerAddress, *, is_awaited: bool = False) -> None:
        self.address = address.text
        self.settings = address.settings
        self.topic = address.topic
        self._is_closed = False
        self._has_answered = is_awaited
        self._topic_ids: dict[str, str | None] = {}
        self._start_pool()

    def _start_pool(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[BrokerClient] = []

    @contextmanager
    def client(self) -> Iterator[BrokerClient]:
        """Lend a client, which is the caller's alone for the `with` block."""
        if self._pid != os.getpid():
            # After a fork the connections are the parent's.
            self._start_pool()
        with self._lock:
            client = self._idle.pop() if self._idle else None
        if client is None:
            # A broker that has answered before may be restarting; one that has not may not exist.
            client = BrokerClient(self.settings, None if self._has_answered else self.settings.first_timeout_ms)
        is_usable = False
        try:
            yield client
            self._has_answered = is_usable = True
        except (OdradekError, GeneratorExit):
            is_usable = True
            raise
        finally:
            with self._lock:
                is_kept = is_usable and not self._is_closed
                if is_kept:
                    self._idle.append(client)
            if not is_kept:
                client.close()

    def topics(self) -> dict[str, TopicDescription]:
        """Return the topics by name, sorted: those that the client may describe.

        Raises:
            UnknownTopicOrPartitionError: The address names a topic that does not exist.
        """
        wanted = None if self.topic is None else [self.topic]
        with self.client() as client:
            found = self._metadata(client, wanted)
        if self.topic is not None and self.topic not in found:
            raise UnknownTopicOrPartitionError(self.topic, path=self.address)
        return dict(sorted(found.items()))

    def _metadata(self, client: BrokerClient, names: list[str] | None) -> dict[str, TopicDescription]:
        found = client.attempt("listing topics", lambda: client.topics(names))
        for name, topic in found.items():
            # Keep the first id: a topic that is created again is another topic.
            self._topic_ids.setdefault(name, topic.topic_id)
        return found

    def require_topics(self, names: Collection[str]) -> None:
        """Ask whether topics exist.

        Raises:
            UnknownTopicOrPartitionError: One of them does not; the error names the first.
        """
        with self.client() as client:
            self._existing(client, names)

    def _existing(self, client: BrokerClient, names: Collection[str] | None) -> dict[str, TopicDescription]:
        found = self._metadata(client, None if names is None else sorted(set(names)))
        for name in names or ():
            if name not in found:
                raise UnknownTopicOrPartitionError(name, path=self.address)
        return found

    def describe(self, names: Collection[str] | None = None) -> list[TopicDescription]:
        """Return topics with the settings that were made for them, if the client may read those."""
        with self.client() as client:
            found = self._existing(client, names)
            configs = client.attempt("settings of topics", lambda: _configs(client, found, HIDDEN)) if found else {}
        return [replace(topic, config=configs.get(name, {})) for name, topic in sorted(found.items())]

    def topic_config(self, topic: str) -> dict[str, str]:
        """Return the settings that were made for a topic; it is an error if the client may not read them."""
        with self.client() as client:
            self._existing(client, [topic])
            return client.attempt(f"settings of {topic}", lambda: _configs(client, [topic]))[topic]

    def all_bounds(
        self, partitions: Iterable[TopicPartition], isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, Bounds]:
        """Return which offsets partitions hold now."""
        check_isolation(isolation)
        with self.client() as client:
            return client.bounds(list(partitions), isolation)

    def ends(
        self, partitions: Collection[TopicPartition], isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        """Return where partitions end now, by one question to each of their leaders."""
        check_isolation(isolation)
        latest, level = dict.fromkeys(partitions, LATEST_TIMESTAMP), ISOLATION_LEVELS[isolation]
        with self.client() as client:
            return client.attempt("looking up the ends of logs", lambda: client.list_offsets(latest, level))

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where the records of a leader epoch end, as OffsetForLeaderEpoch answers."""
        with self.client() as client:
            return client.attempt("looking up leader epochs", lambda: client.epoch_ends(epochs))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int], isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, int | None]:
        """Return the first offsets at or after times, as ListOffsets answers."""
        check_isolation(isolation)
        # In ListOffsets a negative time has a meaning of its own, such as "latest".
        asked = {name: max(0, timestamp_ms) for name, timestamp_ms in times.items()}
        with self.client() as client:
            self._require(client, asked)
            level = ISOLATION_LEVELS[isolation]
            found = client.attempt("looking up times", lambda: client.list_offsets(asked, level))
        return {name: None if offset < 0 else offset for name, offset in found.items()}

    def _require(self, client: BrokerClient, partitions: Collection[TopicPartition]) -> None:
        topics = self._metadata(client, sorted({name.topic for name in partitions}))
        for name in partitions:
            if name.topic not in topics or name.partition not in topics[name.topic].partitions:
                raise UnknownTopicOrPartitionError(*name, path=self.address)

    def slices(
        self,
        topic_partition: TopicPartition,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
        slice_bytes: int = SLICE_BYTES,
    ) -> Iterator[PlaceSlice]:
        """Yield the batches that hold a range of offsets, from the current leader; one slice for each answer."""
        bounds = self.bounds(topic_partition, isolation)
        end = bounds.end_offset if end_offset is None else min(end_offset, bounds.end_offset)
        start = bounds.start_offset if start_offset is None else start_offset
        if start < bounds.start_offset or start > max(bounds.end_offset, self.bounds(topic_partition).end_offset):
            raise OffsetOutOfRangeError(start, *bounds[:2], log=f"{topic_partition} of {self.address}")

        def lost(held: Held) -> None:
            name = f"{topic_partition} of {self.address}"
            if held.topic_id is not None:
                raise LogError(f"{name}: the topic was deleted and created again while it was read")
            # If the caller named no start, reading begins at the first offset that is left.
            if start_offset is not None or held.wanted_offset > held.start_offset:
                raise OffsetOutOfRangeError(held.wanted_offset, held.start_offset, held.end_offset, log=name)

        if topic_partition.topic not in self._topic_ids:
            with self.client() as client:
                self._require(client, [topic_partition])
        topic_id = self._topic_ids[topic_partition.topic]
        yield from self.fetch(
            topic_partition, start, end, isolation, lost=lost, topic_id=topic_id, max_bytes=slice_bytes
        )

    def fetch(
        self,
        topic_partition: TopicPartition,
        start_offset: int,
        end_offset: int,
        isolation: Isolation,
        *,
        lost: Callable[[Held], None],
        topic_id: str | None,
        max_bytes: int,
        ahead: bool = True,
    ) -> Generator[PlaceSlice]:
        """Yield the batches that hold a range of offsets, as bytes of their own; the arguments are `PartitionFetch`'s.

        Raises:
            UnknownTopicOrPartitionError: There is no such partition, or it was deleted meanwhile.
        """
        with self.client() as client:
            fetch = PartitionFetch(
                client,
                topic_partition,
                start_offset,
                end_offset,
                isolation,
                lost=lost,
                topic_id=topic_id,
                max_bytes=max_bytes,
                ahead=ahead,
            )
            try:
                with closing(fetch.chunks()) as chunks:
                    for chunk in chunks:
                        # Copy it: the next answer overwrites this one.
                        data = bytes(chunk.data[chunk.position : chunk.end_position])
                        if not ahead:
                            # Its caller takes one chunk, and comes to no last one.
                            fetch.check_topic()
                        yield PlaceSlice(chunk.path, data, 0, len(data), aborted=chunk.aborted)
            except BrokerUnavailableError as error:
                if isinstance(error.__cause__, errors.UnknownTopicOrPartitionError):
                    raise UnknownTopicOrPartitionError(*topic_partition, path=self.address) from error
                raise

    def group_offsets(self, groups: Collection[str] | None = None) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Return the committed offsets of groups, all that the client may describe if None."""
        with self.client() as client:
            found = committed_offsets(client, list_groups(client) if groups is None else groups)
        return dict(sorted(found.items()))

    def shared_offsets(self, groups: Collection[str]) -> dict[str, dict[TopicPartition, SharedPartition]]:
        """Return how far share groups are, as their coordinators tell."""
        if not groups:
            return {}
        # kio, which has the schemas of these requests, takes long to import.
        from odradek.kafka.share_offsets import share_offsets

        with self.client() as client:
            return share_offsets(client, sorted(groups))

    def transactional_ids(self, producer_ids: Collection[int]) -> dict[int, str]:
        """Return the transactional ids of producers, from all brokers: each knows those that it coordinates."""
        with self.client() as client:
            return transactional_ids(client, producer_ids)

    def refresh(self) -> None:
        """Forget which topics were seen: one that was recreated is read from now on. The rest is asked every time."""
        self._topic_ids.clear()

    def close(self) -> None:
        """Close the connections, but not those of a parent process; one in use is closed when its use ends."""
        if self._pid != os.getpid():
            self._start_pool()
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for client in idle:
            client.close()


def _configs(client: BrokerClient, topics: Iterable[str], left_out: Collection[int] = ()) -> dict[str, dict[str, str]]:
    """Return the settings that were made for topics; those answered with an error code of `left_out` are left out."""
    found = {}
    for result in describe_configs(client, TOPIC_RESOURCE, topics):
        if result.error_code in left_out:
            continue
        check(result.error_code, f"settings of {result.resource_name}")
        found[result.resource_name] = {
            entry.name: entry.value or ""
            for entry in sorted(result.configs, key=lambda entry: str(entry.name))
            if entry.config_source == _MADE_FOR_THE_TOPIC and not entry.is_sensitive
        }
    return found
