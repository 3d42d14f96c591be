"""A connection to a cluster: sends each request to the node that answers it, and retries while that can help.

Brokers die, leaders move and coordinators load their state: the client waits for that, up to a deadline. An error that
a retry cannot mend is raised at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from kafka import errors
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest, MetadataRequest

from odradek.closing import Closing
from odradek.errors import BrokerUnavailableError
from odradek.kafka.cluster import Cluster, check
from odradek.kafka.connection import MAX_RESPONSE_BYTES, BareConnection
from odradek.kafka.settings import BrokerSettings
from odradek.kafka.stopping import check_not_stopped
from odradek.kafka.topics import Bounds, PartitionDescription, TopicDescription
from odradek.messages.uuids import ZERO_UUID, format_uuid
from odradek.records.isolation import ISOLATION_LEVELS, Isolation
from odradek.storage.names import TopicPartition

CLIENT_ID = "odradek"
EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3
"""The record with the greatest timestamp (KIP-734)."""
EARLIEST_LOCAL_TIMESTAMP = -4
"""The first offset on the broker's own disk; those below it, if there are any, are in remote storage (KIP-405)."""

_CONSUMER_REPLICA_ID = -1
_LIST_OFFSETS_ISOLATED = 2
_LIST_OFFSETS_NEWEST = 8
_LIST_OFFSETS_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL_TIMESTAMP: 8}
_FIND_COORDINATORS = 4
_RETRY_S = 0.1
MISSING_S = 5.0
"""How long a cluster may say that a topic does not exist until it is believed: brokers learn of a new one later."""
_WORTH_WAITING_FOR = (
    OSError,
    errors.ConcurrentTransactionsError,
    errors.CoordinatorLoadInProgressError,
    errors.CoordinatorNotAvailableError,
    errors.NotCoordinatorError,
    errors.NodeNotReadyError,
    errors.NotLeaderForPartitionError,
    errors.UnknownBrokerIdError,
)

T = TypeVar("T")


_NAMES = {
    -1: "UNKNOWN_SERVER_ERROR",
    6: "NOT_LEADER_OR_FOLLOWER",
    10: "MESSAGE_TOO_LARGE",
    17: "INVALID_TOPIC_EXCEPTION",
    39: "INVALID_REPLICA_ASSIGNMENT",
    128: "INVALID_REGULAR_EXPRESSION",
    129: "REBOOTSTRAP_REQUIRED",
    130: "STREAMS_INVALID_TOPOLOGY",
    131: "STREAMS_INVALID_TOPOLOGY_EPOCH",
    132: "STREAMS_TOPOLOGY_FENCED",
    133: "SHARE_SESSION_LIMIT_REACHED",
}
"""Where kafka-python has another name, or none."""


def error_name(error_code: int) -> str:
    """Return Kafka's name of an error code: for 40 INVALID_CONFIG, not kafka-python's InvalidConfigurationError."""
    return _NAMES.get(error_code) or str(errors.for_code(error_code).message)


class _MissingError(errors.UnknownTopicOrPartitionError):  # type: ignore[misc]
    """The cluster says that there is no such partition; one broker alone may just not know it yet."""

    def __str__(self) -> str:
        return f"there is no {self.args[0]}"


class FoundOffset(NamedTuple):
    """An offset that a broker looked up.

    Attributes:
        offset: The offset, or -1 if there is none.
        leader_epoch: The leader epoch of the record there, or of the leader where it is the end of the log; None if the
            broker does not say.
        timestamp: The timestamp of the record there; -1 if none was looked for.
    """

    offset: int
    leader_epoch: int | None
    timestamp: int


class BrokerClient(Closing):
    """A connection to a cluster; a context manager. Belongs to one thread at a time.

    Args:
        settings: How to reach it.
        first_timeout_ms: How long to wait for the first answer, if not as long as for any other.
    """

    def __init__(self, settings: BrokerSettings, first_timeout_ms: int | None = None) -> None:
        self.settings = settings
        self._first_timeout_ms = settings.timeout_ms if first_timeout_ms is None else first_timeout_ms
        self.name = ",".join(settings.bootstrap_servers)
        self._cluster = Cluster(
            settings.bootstrap_servers, CLIENT_ID, settings.connection, max_response_bytes=MAX_RESPONSE_BYTES
        )
        self._topics: dict[str, TopicDescription] = {}
        self._coordinators: dict[tuple[str, CoordinatorType], int] = {}
        self._idle: dict[int, list[BareConnection]] = {}

    def attempt(self, what: str, action: Callable[[], T]) -> T:
        """Run an action, and repeat it while that can help, until the time is over.

        Args:
            what: What the action does, for the error.
            action: The action; it may raise kafka-python's errors and OSError.

        Raises:
            BrokerUnavailableError: It did not succeed in time, or never will.
            StoppedError: The thread is to end.
        """
        began = time.monotonic()
        missing_until: float | None = None
        while True:
            check_not_stopped()
            try:
                return action()
            except (errors.KafkaError, OSError) as error:
                waits = isinstance(error, _WORTH_WAITING_FOR) or getattr(error, "retriable", False)
                now, deadline = time.monotonic(), began + self.patience_ms / 1000
                if not isinstance(error, _MissingError):
                    missing_until = None
                elif missing_until is None:
                    missing_until = now + MISSING_S
                if not waits or now > (deadline if missing_until is None else min(deadline, missing_until)):
                    raise self._failure(what, error) from error
                self._topics.clear()
                self._coordinators.clear()
                time.sleep(_RETRY_S)

    @property
    def patience_ms(self) -> int:
        """How long a request is tried now."""
        return self.settings.timeout_ms if self._cluster.is_known else self._first_timeout_ms

    def _failure(self, what: str, error: Exception) -> BrokerUnavailableError:
        """Return our error for one of kafka-python or of a socket: with the broker's own code if it answered."""
        if not isinstance(error, errors.BrokerResponseError):
            return BrokerUnavailableError(f"{self.name}: {what}: {error or type(error).__name__}")
        # kafka-python's text has its own name of the error, which is not Kafka's.
        told = str(error) if isinstance(error, _MissingError) else ": ".join(map(str, error.args)) or error.description
        failure = BrokerUnavailableError(f"{self.name}: {told if told.startswith(what) else f'{what}: {told}'}")
        failure.error_code, failure.error_name = error.errno, error_name(error.errno)
        return failure

    def ask(self, request: Any, node_id: int | None = None, *, timeout_ms: float | None = None) -> Any:
        """Send one request, once, and return the answer. Raises kafka-python's errors and OSError."""
        self._connected()
        return self._cluster.ask(request, node_id, timeout_ms=timeout_ms)

    def nodes(self) -> list[int]:
        """Return the ids of the cluster's nodes."""
        return sorted(node.node_id for node in self._connected().cluster.brokers())

    def controller(self) -> int | None:
        """Return the id of the node that takes changes of topics; None for any, as in a cluster under KRaft."""
        controller = self._connected().cluster.controller
        return None if controller is None else int(controller.node_id)

    def supports(self, request: Any) -> bool:
        """Return whether both sides have a version of a request.

        Raises:
            BrokerUnavailableError: The broker did not answer in time.
        """

        def ask() -> bool:
            try:
                self.newest_version(request)
            except errors.IncompatibleBrokerVersion:
                return False
            return True

        return self.attempt(f"versions of {request.name}", ask)

    def newest_version(self, request: Any) -> int:
        """Return the newest version of a request, or of its class, that both sides have."""
        return int(self._connected().broker_version_data.api_version(request))

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        """Return what the cluster says about topics, all if None; topics that do not exist are left out."""
        asked = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=False, min_version=4, max_version=9)
        manager = self._connected()
        if self.newest_version(MetadataRequest) >= 10:
            request = MetadataRequest(topics=asked, allow_auto_topic_creation=False, min_version=10, max_version=12)
        response = self.ask(request)
        # So that new nodes are found.
        manager.cluster.update_metadata(response)
        found = {}
        for topic in response.topics:
            if topic.error_code == errors.UnknownTopicOrPartitionError.errno:
                continue
            check(topic.error_code, f"metadata of {topic.name}")
            has_id = response.API_VERSION >= 10 and topic.topic_id != ZERO_UUID
            partitions = {
                part.partition_index: PartitionDescription(
                    part.leader_id, part.leader_epoch, tuple(part.replica_nodes), tuple(part.isr_nodes)
                )
                for part in sorted(topic.partitions, key=lambda part: int(part.partition_index))
            }
            topic_id = format_uuid(topic.topic_id) if has_id else None
            found[topic.name] = TopicDescription(topic.name, topic_id, partitions)
        self._topics.update(found)
        return found

    def partition_count(self, topic: str, patience_s: float = MISSING_S) -> int | None:
        """Return how many partitions a topic has; None if there is no such topic.

        Args:
            topic: The topic.
            patience_s: How long it may be missing at most.

        Raises:
            BrokerUnavailableError: The broker did not answer in time.
        """
        # A broker learns of a new topic a moment after the controller has answered.
        deadline = time.monotonic() + patience_s
        while True:
            found = self.attempt(f"looking for {topic}", lambda: self.topics([topic])).get(topic)
            if found is not None:
                return len(found.partitions)
            if time.monotonic() >= deadline:
                return None
            time.sleep(_RETRY_S)

    def topic_id(self, topic: str) -> str | None:
        """Return the id of a topic as `topics` last saw it; None if it did not, or if the cluster has no topic ids."""
        known = self._topics.get(topic)
        return None if known is None else known.topic_id

    def leader(self, partition: TopicPartition) -> int:
        """Return the node that leads a partition."""
        if partition.topic not in self._topics:
            self.topics([partition.topic])
        known = self._topics.get(partition.topic)
        if known is None or partition.partition not in known.partitions:
            raise _MissingError(str(partition))
        node_id = known.partitions[partition.partition].leader
        if node_id < 0:
            self._topics.pop(partition.topic)
            raise errors.LeaderNotAvailableError(str(partition))
        return node_id

    def coordinator(self, key: str, kind: CoordinatorType) -> int:
        """Return the node that coordinates a group or a transactional id."""
        node_id = self._coordinators.get((key, kind))
        if node_id is None:
            response = self.ask(FindCoordinatorRequest(key=key, key_type=kind.value, min_version=1, max_version=3))
            check(response.error_code, f"coordinator of {key}")
            node_id = int(response.node_id)
            self._coordinators[key, kind] = node_id
        return node_id

    def by_coordinator(self, keys: Iterable[str], kind: CoordinatorType) -> dict[int, list[str]]:
        """Return groups or transactional ids by the node that coordinates them."""
        wanted = list(keys)
        unknown = [key for key in wanted if (key, kind) not in self._coordinators]
        if len(unknown) > 1 and self.newest_version(FindCoordinatorRequest) >= _FIND_COORDINATORS:
            request = FindCoordinatorRequest(
                key_type=kind.value, coordinator_keys=unknown, min_version=_FIND_COORDINATORS, max_version=5
            )
            for found in self.ask(request).coordinators:
                check(found.error_code, f"coordinator of {found.key}")
                self._coordinators[found.key, kind] = int(found.node_id)
        by_node: dict[int, list[str]] = {}
        for key in wanted:
            by_node.setdefault(self.coordinator(key, kind), []).append(key)
        return by_node

    def list_offsets(self, times: Mapping[TopicPartition, int], isolation_level: int) -> dict[TopicPartition, int]:
        """Return the first offset at or after a time, for each partition, or -1; see `find_offsets`."""
        return {name: found.offset for name, found in self.find_offsets(times, isolation_level).items()}

    def find_offsets(
        self,
        times: Mapping[TopicPartition, int],
        isolation_level: int,
        unreadable: set[TopicPartition] | None = None,
    ) -> dict[TopicPartition, FoundOffset]:
        """Return the first offset at or after a time, for each partition, and its leader epoch.

        Args:
            times: The time in ms, or `EARLIEST_TIMESTAMP`, `LATEST_TIMESTAMP`, `MAX_TIMESTAMP` or
                `EARLIEST_LOCAL_TIMESTAMP`.
            isolation_level: 0 (read_uncommitted), or 1 (read_committed): the end is then the last stable offset.
            unreadable: Receives the partitions whose files the broker cannot read, which are then left out; without it
                they are an error, for which clients wait.
        """
        found: dict[TopicPartition, FoundOffset] = {}
        kind = ListOffsetsRequest.ListOffsetsTopic
        for node_id, topics in self._by_leader(times):
            asked = [
                kind(
                    name=topic,
                    partitions=[
                        kind.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=time)
                        for number, time in parts
                    ],
                )
                for topic, parts in topics.items()
            ]
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation_level,
                topics=asked,
                min_version=max(
                    _LIST_OFFSETS_SINCE.get(asked_for, _LIST_OFFSETS_ISOLATED) for asked_for in times.values()
                ),
                max_version=_LIST_OFFSETS_NEWEST,
            )
            for topic in self.ask(request, node_id).topics:
                for part in topic.partitions:
                    name = TopicPartition(topic.name, part.partition_index)
                    if unreadable is not None and part.error_code == errors.KafkaStorageError.errno:
                        unreadable.add(name)
                        continue
                    check(part.error_code, f"offsets of {name}")
                    # Before version 4 there is no leader epoch.
                    epoch = part.leader_epoch
                    found[name] = FoundOffset(
                        part.offset, None if epoch is None or epoch < 0 else epoch, part.timestamp
                    )
        return found

    def bounds(
        self,
        partitions: Collection[TopicPartition],
        isolation: Isolation,
        unreadable: set[TopicPartition] | None = None,
    ) -> dict[TopicPartition, Bounds]:
        """Return which offsets partitions hold now; those that do not exist are left out.

        Args:
            partitions: The partitions.
            isolation: Whether the end is that of committed records.
            unreadable: As for `find_offsets`.

        Raises:
            BrokerUnavailableError: The broker did not answer in time.
        """

        def ask() -> dict[TopicPartition, Bounds]:
            topics = self.topics(sorted({name.topic for name in partitions}))
            there = [one for one in partitions if one.topic in topics and one.partition in topics[one.topic].partitions]
            first = self.find_offsets(dict.fromkeys(there, EARLIEST_TIMESTAMP), 0, unreadable)
            end = self.find_offsets(dict.fromkeys(first, LATEST_TIMESTAMP), ISOLATION_LEVELS[isolation], unreadable)
            return {
                name: Bounds(
                    first[name].offset,
                    max(first[name].offset, end[name].offset),
                    topics[name.topic].topic_id,
                    end[name].leader_epoch,
                )
                for name in end
            }

        return self.attempt("listing offsets", ask) if partitions else {}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return where the records of a leader epoch end, for each partition (KIP-101).

        Returns:
            The end offset of the greatest epoch that is not above the one asked for; partitions whose leader does not
            know of such an epoch are left out.
        """
        found: dict[TopicPartition, int] = {}
        kind = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        for node_id, topics in self._by_leader(epochs):
            asked = [
                kind(
                    topic=topic,
                    partitions=[
                        kind.OffsetForLeaderPartition(partition=number, current_leader_epoch=-1, leader_epoch=epoch)
                        for number, epoch in parts
                    ],
                )
                for topic, parts in topics.items()
            ]
            request = OffsetForLeaderEpochRequest(
                replica_id=_CONSUMER_REPLICA_ID, topics=asked, min_version=2, max_version=4
            )
            for topic in self.ask(request, node_id).topics:
                for part in topic.partitions:
                    check(part.error_code, f"leader epochs of {topic.topic}-{part.partition}")
                    if part.end_offset >= 0:
                        found[TopicPartition(topic.topic, part.partition)] = part.end_offset
        return found

    def _by_leader(
        self, values: Mapping[TopicPartition, int]
    ) -> Iterable[tuple[int, dict[str, list[tuple[int, int]]]]]:
        """Return partitions and their values, by the node that leads them and by their topic."""
        by_node: dict[int, dict[str, list[tuple[int, int]]]] = {}
        for (topic, number), value in sorted(values.items()):
            leader = self.leader(TopicPartition(topic, number))
            by_node.setdefault(leader, {}).setdefault(topic, []).append((number, value))
        return by_node.items()

    def take_connection(self, node_id: int) -> BareConnection:
        """Return a connection for large responses, which is the caller's alone until `give_back`."""
        idle = self._idle.get(node_id)
        if idle:
            return idle.pop()
        manager = self._connected()

        async def take() -> Any:
            connection = await manager.get_connection(node_id)
            # kafka-python asks for metadata by itself after a connection broke. Its response would come to us.
            while connection.in_flight_requests:
                _, answered, *_ = connection.in_flight_requests[-1]
                await answered
            transport = connection.transport
            if transport is None:
                raise errors.KafkaConnectionError("the broker closed the connection")
            taken, transport._sock = transport._sock, None
            # Without a socket the transport only stops listening, and its manager forgets it.
            transport.close()
            return taken, connection.broker_version_data

        taken, versions = self._cluster.run(take)
        timeout_s = manager.config["request_timeout_ms"] / 1000
        return BareConnection(taken, node_id, versions, CLIENT_ID, timeout_s)

    def give_back(self, connection: BareConnection) -> None:
        """Keep a connection for the next caller; close it if a response is still to come."""
        if connection.awaited:
            connection.close()
        else:
            self._idle.setdefault(connection.node_id, []).append(connection)

    def close(self) -> None:
        """Close the connections."""
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()
        self._cluster.close()

    def _connected(self) -> Any:
        return self._cluster.connected(self.patience_ms)
