"""The topics of a broker as a source.

Each thread that asks takes a client of its own from a pool, for as long as the question takes: a client belongs to one
thread at a time, and connections are kept for the next question.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TypeVar

from kafka import errors
from kafka.protocol.admin import DescribeConfigsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.metadata import CoordinatorType

from odradek.errors import BrokerUnavailableError, LogError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from odradek.kafka.client import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, BrokerClient, TopicMetadata
from odradek.kafka.cluster import check
from odradek.kafka.committed_offset import CommittedOffset
from odradek.kafka.group import committed_offsets, offset_fetch_request
from odradek.kafka.partition_fetch import Held, PartitionFetch
from odradek.records.isolation import ISOLATION_LEVELS, Isolation, check_isolation
from odradek.sources.address import BrokerAddress
from odradek.sources.source import SLICE_BYTES, Bounds, Source, SourceSlice, TopicDescription
from odradek.storage.names import TopicPartition

_TOPIC_RESOURCE = 2
_MADE_FOR_THE_TOPIC = 1
"""Where the value of a setting comes from: DYNAMIC_TOPIC_CONFIG; else from the broker, or it is a default."""

T = TypeVar("T")


class BrokerSource(Source):
    """The topics of a cluster, or one of them. It connects at the first question.

    Args:
        address: `kafka://[user:password@]host:port[,host:port][/topic][?setting=value]`.
        config: Settings of the connection, by the names of Kafka's clients.

    Raises:
        OptionError: The address or a setting is not valid.
    """

    def __init__(self, address: str, config: Mapping[str, str] | None = None) -> None:
        parsed = BrokerAddress.parse(address, config)
        self.address = parsed.text
        self.settings = parsed.settings
        self._only = parsed.topic
        self._lock = threading.Lock()
        self._idle: list[BrokerClient] = []
        self._is_closed = False
        self._topic_ids: dict[str, str | None] = {}

    @contextmanager
    def client(self) -> Iterator[BrokerClient]:
        """Lend a client, which is the caller's alone for the `with` block."""
        with self._lock:
            client = self._idle.pop() if self._idle else None
        if client is None:
            client = BrokerClient(self.settings)
        try:
            yield client
        finally:
            with self._lock:
                is_closed = self._is_closed
                if not is_closed:
                    self._idle.append(client)
            if is_closed:
                client.close()

    def topics(self) -> dict[str, TopicDescription]:
        """Return the topics by name, sorted: those that the client may describe.

        Raises:
            UnknownTopicOrPartitionError: The address names a topic that does not exist.
        """
        wanted = None if self._only is None else [self._only]
        with self.client() as client:
            found = self._metadata(client, wanted)
        if self._only is not None and self._only not in found:
            raise UnknownTopicOrPartitionError(self._only, path=self.address)
        return {
            name: TopicDescription(topic.topic_id, tuple(sorted(topic.leaders)))
            for name, topic in sorted(found.items())
        }

    def _metadata(self, client: BrokerClient, names: list[str] | None) -> dict[str, TopicMetadata]:
        found = client.attempt("listing topics", lambda: client.topics(names))
        for name, topic in found.items():
            # Keep the first id: a topic that is made again is another topic.
            self._topic_ids.setdefault(name, topic.topic_id)
        return found

    def topic_config(self, topic: str) -> dict[str, str]:
        """Return the settings that were made for a topic."""
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_TOPIC_RESOURCE, resource_name=topic, configuration_keys=None
        )
        request = DescribeConfigsRequest(
            resources=[resource], include_synonyms=False, include_documentation=False, min_version=1, max_version=4
        )

        def ask() -> dict[str, str]:
            result = client.ask(request).results[0]
            check(result.error_code, f"settings of {topic}")
            return {
                entry.name: entry.value or ""
                for entry in result.configs
                if entry.config_source == _MADE_FOR_THE_TOPIC and not entry.is_sensitive
            }

        with self.client() as client:
            if topic not in self._metadata(client, [topic]):
                raise UnknownTopicOrPartitionError(topic, path=self.address)
            return client.attempt(f"settings of {topic}", ask)

    def all_bounds(
        self, partitions: Iterable[TopicPartition], isolation: Isolation = "read_uncommitted"
    ) -> dict[TopicPartition, Bounds]:
        """Return which offsets partitions hold now."""
        check_isolation(isolation)
        wanted = list(partitions)
        if not wanted:
            return {}

        def ask() -> dict[TopicPartition, Bounds]:
            topics = client.topics(sorted({name.topic for name in wanted}))
            there = [name for name in wanted if name.topic in topics and name.partition in topics[name.topic].leaders]
            first = client.list_offsets(dict.fromkeys(there, EARLIEST_TIMESTAMP), 0)
            end = client.list_offsets(dict.fromkeys(there, LATEST_TIMESTAMP), ISOLATION_LEVELS[isolation])
            return {name: Bounds(first[name], max(first[name], end[name])) for name in there}

        with self.client() as client:
            return client.attempt("listing offsets", ask)

    def find_timestamp(
        self, topic_partition: TopicPartition, timestamp_ms: int, isolation: Isolation = "read_uncommitted"
    ) -> int | None:
        """Return the offset of the first record at or after a time, as ListOffsets answers."""
        check_isolation(isolation)
        # In ListOffsets a negative time has a meaning of its own, such as "latest".
        times = {topic_partition: max(0, timestamp_ms)}
        with self.client() as client:
            self._require(client, topic_partition)
            level = ISOLATION_LEVELS[isolation]
            found = client.attempt(
                f"looking up a time in {topic_partition}", lambda: client.list_offsets(times, level)
            )[topic_partition]
        return None if found < 0 else found

    def _require(self, client: BrokerClient, topic_partition: TopicPartition) -> None:
        topic = self._metadata(client, [topic_partition.topic]).get(topic_partition.topic)
        if topic is None or topic_partition.partition not in topic.leaders:
            raise UnknownTopicOrPartitionError(*topic_partition, path=self.address)

    def slices(
        self,
        topic_partition: TopicPartition,
        start_offset: int | None = None,
        end_offset: int | None = None,
        *,
        isolation: Isolation = "read_uncommitted",
        slice_bytes: int = SLICE_BYTES,
    ) -> Iterator[SourceSlice]:
        """Yield the batches that hold a range of offsets, from the current leader; one slice for each answer."""
        bounds = self.bounds(topic_partition, isolation)
        end = bounds.end_offset if end_offset is None else min(end_offset, bounds.end_offset)
        start = bounds.start_offset if start_offset is None else start_offset
        if start < bounds.start_offset or start > max(bounds.end_offset, self.bounds(topic_partition).end_offset):
            raise OffsetOutOfRangeError(start, *bounds, log=f"{topic_partition} of {self.address}")

        def lost(held: Held) -> None:
            name = f"{topic_partition} of {self.address}"
            if held.topic_id is not None:
                raise LogError(f"{name}: the topic was deleted and made again while it was read")
            # If the caller named no start, reading begins at the first offset that is left.
            if start_offset is not None or held.wanted_offset > held.start_offset:
                raise OffsetOutOfRangeError(held.wanted_offset, held.start_offset, held.end_offset, log=name)

        with self.client() as client:
            if topic_partition.topic not in self._topic_ids:
                self._require(client, topic_partition)
            fetch = PartitionFetch(
                client,
                topic_partition,
                start,
                end,
                isolation,
                lost=lost,
                topic_id=self._topic_ids[topic_partition.topic],
                max_bytes=slice_bytes,
            )
            try:
                with closing(fetch.chunks()) as chunks:
                    for chunk in chunks:
                        # Copy it: the next answer overwrites this one.
                        data = bytes(chunk.data[chunk.position : chunk.end_position])
                        yield SourceSlice(chunk.path, data, 0, len(data), aborted=chunk.aborted)
            except BrokerUnavailableError as error:
                if isinstance(error.__cause__, errors.UnknownTopicOrPartitionError):
                    raise UnknownTopicOrPartitionError(*topic_partition, path=self.address) from error
                raise

    def group_offsets(self) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Return the committed offsets of each group: of all that the client may describe.

        An offset in an open transaction is not committed yet.
        """
        with self.client() as client:
            groups = client.attempt("listing groups", lambda: _groups(client))
            found = {
                group: client.attempt(f"offsets of {group}", _offsets_of(client, group)) for group in sorted(groups)
            }
        return {group: offsets for group, offsets in found.items() if offsets}

    def refresh(self) -> None:
        """Do nothing: the broker is asked every time."""

    def close(self) -> None:
        """Close the connections; one that is in use is closed when its use ends."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for client in idle:
            client.close()


def _groups(client: BrokerClient) -> set[str]:
    found: set[str] = set()
    for node_id in client.nodes():
        response = client.ask(ListGroupsRequest(min_version=0, max_version=4), node_id)
        check(response.error_code, "groups")
        found.update(group.group_id for group in response.groups)
    return found


def _offsets_of(client: BrokerClient, group: str) -> Callable[[], dict[TopicPartition, CommittedOffset]]:
    def ask() -> dict[TopicPartition, CommittedOffset]:
        request = offset_fetch_request(group, client.newest_version(OffsetFetchRequest), require_stable=False)
        return committed_offsets(client.ask(request, client.coordinator(group, CoordinatorType.GROUP)))

    return ask
