"""The broker as a check uses it: requests by Kafka's names, topics of its own, comparisons that say what differs."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode

from odradek.closing import Closing
from odradek.errors import OdradekError
from odradek.messages.uuids import ZERO_UUID
from odradek.records.builder import build_batch
from odradek.records.kernels.objects import Record
from odradek.testing.api_names import api_key_of, error_name
from odradek.testing.conformance.means import Means
from odradek.testing.wire import WireClient

_T = TypeVar("_T")

UNUSED_ID = UUID("5a3f9c1e-22d4-4c8b-9f10-6f2d1f3f7a01")
"""An id that no topic has."""
_PATIENCE_S = 30.0
_FIRST_PATIENCE_S = 10.0
_LONGEST_WAIT_S = 120.0
TRANSIENT = (
    ErrorCode.concurrent_transactions,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)
"""What a coordinator answers while it is not ready."""

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "Produce": {"transactional_id": None, "acks": -1, "timeout_ms": 30_000},
    "Fetch": {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 24,
        "isolation_level": 0,
        "topics": [],
        "forgotten_topics_data": [],
    },
    "ListOffsets": {"replica_id": -1, "isolation_level": 0, "timeout_ms": 30_000},
    "Metadata": {
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    },
    "ApiVersions": {"client_software_name": "odradek-conformance", "client_software_version": "1"},
    "OffsetCommit": {"generation_id_or_member_epoch": -1, "member_id": ""},
    "OffsetFetch": {"require_stable": False},
    "JoinGroup": {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer"},
    "ConsumerGroupHeartbeat": {
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
    },
    "ShareFetch": {
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 500,
        "batch_size": 500,
        "share_acquire_mode": 0,
        "is_renew_ack": False,
        "forgotten_topics_data": [],
    },
    "ShareAcknowledge": {"is_renew_ack": False},
    "ConsumerGroupDescribe": {"include_authorized_operations": False},
    "DescribeGroups": {"include_authorized_operations": False},
    "ListGroups": {"states_filter": [], "types_filter": []},
    "CreateTopics": {"timeout_ms": 30_000, "validate_only": False},
    "DeleteTopics": {"timeout_ms": 30_000},
    "DeleteRecords": {"timeout_ms": 30_000},
    "InitProducerId": {"transactional_id": None, "transaction_timeout_ms": 60_000},
    "DescribeConfigs": {"include_synonyms": False, "include_documentation": False},
    "AlterConfigs": {"validate_only": False},
    "IncrementalAlterConfigs": {"validate_only": False},
    "CreatePartitions": {"timeout_ms": 30_000, "validate_only": False},
    "ElectLeaders": {"election_type": 0, "timeout_ms": 30_000},
    "AlterPartitionReassignments": {"timeout_ms": 30_000},
    "ListPartitionReassignments": {"timeout_ms": 30_000},
    "ListTransactions": {"state_filters": [], "producer_id_filters": []},
    "ListConfigResources": {"resource_types": []},
    "DescribeCluster": {"include_cluster_authorized_operations": False, "include_fenced_brokers": False},
    "UpdateFeatures": {"timeout_ms": 30_000, "feature_updates": []},
}
"""What a request says unless a check says otherwise."""


class NotAdvertisedError(Exception):
    """A check needs what the broker does not advertise."""


class UnexpectedError(AssertionError):
    """The broker did something else than Apache Kafka."""


class Topic(NamedTuple):
    """A topic of a check.

    Attributes:
        name: Its name.
        id: Its id.
    """

    name: str
    id: UUID


def expect(what: str, found: object, wanted: object) -> None:
    """Compare.

    Raises:
        UnexpectedError: They differ.
    """
    if found != wanted:
        raise UnexpectedError(f"{what}: {found!r}, not {wanted!r}")


def expect_error(what: str, found: int, wanted: str) -> None:
    """Compare an error with one of Kafka's names.

    Raises:
        UnexpectedError: They differ.
    """
    expect(what, error_name(found), wanted)


def batch(*values: bytes | None, timestamp: int | None = None, key: bytes | None = None, **options: Any) -> bytes:
    """Return a batch of records of the format's version 2, all with the same key, stamped now by default."""
    at = int(time.time() * 1000) if timestamp is None else timestamp
    records = [Record(offset=number, timestamp=at, key=key, value=value) for number, value in enumerate(values)]
    return bytes(build_batch(records, **options))


def stamped(*timestamps: int) -> bytes:
    """Return a batch of records with these timestamps."""
    return bytes(build_batch([Record(offset=at, timestamp=one, value=b"a") for at, one in enumerate(timestamps)]))


class Target(Closing):
    """A broker that is checked; a context manager.

    Args:
        host: Its host.
        port: Its port.
        means: What can be done with it besides sending requests.

    Attributes:
        host: Its host.
        port: Its port.
        means: As given.
        advertised: The lowest and the highest version of each API, by its number.

    Raises:
        OSError: It cannot be reached.
        ProtocolError: What answers is no broker.
    """

    def __init__(self, host: str, port: int, means: Means | None = None) -> None:
        self.host = host
        self.port = port
        self.means = means or Means()
        self._client: WireClient | None = None
        self._opened: list[WireClient] = []
        self._topics: list[str] = []
        self.advertised: dict[int, tuple[int, int]] = {}
        try:
            # Whether it is a broker shows soon, as in other commands.
            self._client = WireClient(host, port, client_id="odradek-conformance", timeout_s=_FIRST_PATIENCE_S)
            answer = self.client.call(api_key_of("ApiVersions"), 0, {})
            self.client.socket.settimeout(_PATIENCE_S)
        except BaseException:
            self.reconnect()
            raise
        self.advertised = {int(one.api_key): (one.min_version, one.max_version) for one in answer.api_keys}

    @property
    def client(self) -> WireClient:
        """A connection that checks share, one after the other."""
        if self._client is None:
            self._client = WireClient(self.host, self.port, client_id="odradek-conformance")
        return self._client

    def connect(self, *, timeout_s: float | None = None, client_id: str | None = "odradek-conformance") -> WireClient:
        """Return a new connection; it is closed after the check."""
        patience_s = _PATIENCE_S if timeout_s is None else timeout_s
        client = WireClient(self.host, self.port, client_id=client_id, timeout_s=patience_s)
        self._opened.append(client)
        return client

    def clean_up(self) -> None:
        """End what a check left: its connections and topics."""
        for client in self._opened:
            client.close()
        self._opened.clear()
        topics, self._topics = self._topics, []
        if topics and api_key_of("DeleteTopics") in self.advertised:
            with suppress(OdradekError, OSError):
                self.call("DeleteTopics", 1, topic_names=topics)

    def reconnect(self) -> None:
        """Let the next check have a new connection, since this one is closed or out of step."""
        if self._client is not None:
            self._client.close()
            self._client = None

    # -- requests

    def needs(self, api: str, version: int | None = None) -> int:
        """Return the highest version of an API.

        Raises:
            NotAdvertisedError: The broker does not have the API, or this version of it.
        """
        lowest, highest = self.advertised.get(api_key_of(api), (0, -1))
        if highest < 0:
            raise NotAdvertisedError(f"{api} is not advertised")
        if version is not None and not lowest <= version <= highest:
            raise NotAdvertisedError(f"{api} v{version} is not advertised")
        return highest

    def needs_newest(self) -> None:
        """Skip the check of what the newest Apache Kafka has added, unless the broker follows that one.

        Raises:
            NotAdvertisedError: It does not.
        """
        self.needs("ApiVersions", 5)

    def call(self, api: str, version: int | None = None, *, client: WireClient | None = None, **fields: Any) -> Any:
        """Send a request and return its answer, an object of kio's class.

        Args:
            api: Kafka's name of the API.
            version: The version; the highest one by default.
            client: The connection; the shared one by default.
            fields: The fields; those that are missing have values that suit most requests.

        Raises:
            NotAdvertisedError: The broker does not have the API, or this version of it.
            ProtocolError: The connection was closed, or the answer cannot be read.
        """
        highest = self.needs(api, version)
        version = highest if version is None else version
        used = client or self.client
        try:
            return used.call(api_key_of(api), version, {**DEFAULTS.get(api, {}), **fields})
        except (OdradekError, OSError):
            if used is self._client:
                self.reconnect()
            raise

    def send(self, client: WireClient, api: str, version: int, **fields: Any) -> Callable[[], Any]:
        """Send a request, and return what receives its answer."""
        self.needs(api, version)
        key = api_key_of(api)
        sent = client.send(key, version, {**DEFAULTS.get(api, {}), **fields})
        return lambda: client.receive(key, version, sent)

    def skip_if(self, is_so: bool, why: str) -> None:
        """Skip the check.

        Raises:
            NotAdvertisedError: It is so.
        """
        if is_so:
            raise NotAdvertisedError(why)

    def pause(self) -> None:
        """Let the broker come to what it was sent; a check that needs this passes without it, but means less."""
        time.sleep(0.05)

    # -- what needs more than requests

    def pass_time(self, seconds: float) -> None:
        """Let the broker's time pass; the check is skipped if nothing can.

        Raises:
            NotAdvertisedError: Nothing can.
        """
        self.skip_if(not self.means.lets_time_pass, "needs --control or --wait")
        self.skip_if(self.means.advance is None and seconds > _LONGEST_WAIT_S, f"takes {seconds:.0f} s")
        self.means.pass_time(seconds)

    def restart(self) -> None:
        """Restart the broker, and return when it answers.

        Raises:
            NotAdvertisedError: Nothing can.
        """
        if self.means.restart is None:
            raise NotAdvertisedError("needs --restart")
        self.reconnect()
        self.means.restart()
        self.until("the broker answers again", self._answers)

    def _answers(self) -> bool:
        try:
            self.call("ApiVersions", 0)
        except (OdradekError, OSError):
            self.reconnect()
            return False
        return True

    def setting(self, name: str) -> int:
        """Return a setting of the broker, a number."""
        (node,) = self.call("Metadata", 9, topics=[]).brokers
        asked = {"resource_type": 4, "resource_name": str(node.node_id), "configuration_keys": [name]}
        return int(self.call("DescribeConfigs", 1, resources=[asked]).results[0].configs[0].value)

    def until(self, what: str, look: Callable[[], _T | None]) -> _T:
        """Repeat a look until it gives something other than None or False.

        Raises:
            UnexpectedError: It never does.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            found = look()
            if found is not None and found is not False:
                return found
            if time.monotonic() > deadline:
                raise UnexpectedError(f"{what}: not within {_PATIENCE_S:.0f} s")
            time.sleep(0.01)

    # -- what checks work on

    def name(self, kind: str = "conformance") -> str:
        """Return a name that nobody uses."""
        return f"{kind}-{secrets.token_hex(8)}"

    def owns(self, name: str) -> None:
        """Let a topic be deleted after the check."""
        self._topics.append(name)

    def has_topic(self, name: str) -> bool:
        """Return whether a topic exists and has a leader."""
        (topic,) = self.call("Metadata", 9, topics=[{"name": name}]).topics
        return not topic.error_code

    def transaction(self, **fields: Any) -> Transaction:
        """Return a new transactional producer."""
        name = self.name("transaction")
        return Transaction(self, name, self.transactional_producer(name, **fields))

    def open_transaction(self, topic: Topic, *values: bytes) -> Transaction:
        """Return a new transactional producer that has added a topic's first partition, and written values to it."""
        transaction = self.transaction()
        transaction.add(topic)
        if values:
            transaction.produce(topic, *values)
        return transaction

    def group(self) -> str:
        """Return the id of a new group, when its coordinator can be used."""
        group = self.name("group")
        self._until_coordinator(group, 0)
        self.until(f"group {group} can be used", lambda: self._is_usable(group))
        return group

    def _is_usable(self, group: str) -> bool:
        (found,) = self.call("DescribeGroups", 5, groups=[group]).groups
        return found.error_code not in TRANSIENT

    def transactional_producer(self, transactional_id: str, **fields: Any) -> Any:
        """Return a producer id and epoch for a transactional id."""
        self._until_coordinator(transactional_id, 1)
        return self.until(
            f"{transactional_id} has a producer id", lambda: self._producer(transactional_id=transactional_id, **fields)
        )

    def idempotent_producer(self) -> int:
        """Return the id of a new producer without a transactional id."""
        return int(self.until("there is a producer id", self._producer).producer_id)

    def _producer(self, **fields: Any) -> Any | None:
        found = self.call("InitProducerId", 4, **fields)
        if found.error_code in TRANSIENT:
            return None
        expect_error("InitProducerId", found.error_code, "NONE")
        return found

    def _until_coordinator(self, key: str, key_type: int) -> None:
        """Wait until the coordinator of a group (0) or a transactional id (1) is there."""
        self.until(
            f"the coordinator of {key}",
            lambda: not self.call("FindCoordinator", 3, key=key, key_type=key_type).error_code,
        )

    def topic(self, partitions: int = 1, **config: str | int) -> Topic:
        """Create a topic; its settings with underscores: `cleanup_policy="compact"`."""
        name = self.name()
        self.call(
            "CreateTopics",
            5,
            topics=[
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [{"name": key.replace("_", "."), "value": str(one)} for key, one in config.items()],
                }
            ],
        )
        self.owns(name)
        return self.until(f"topic {name} has a leader", lambda: self._led(name, partitions))

    def _led(self, name: str, partitions: int) -> Topic | None:
        (topic,) = self.call("Metadata", 12, topics=[{"topic_id": None, "name": name}]).topics
        # The metadata may know of a leader before the leader does.
        asked = [{"partition_index": number, "timestamp": -1} for number in range(partitions)]
        (found,) = self.call("ListOffsets", 5, topics=[{"name": name, "partitions": asked}]).topics
        answered = (*topic.partitions, *found.partitions)
        is_led = len(answered) == 2 * partitions and not any(one.error_code for one in answered)
        return Topic(name, topic.topic_id or ZERO_UUID) if is_led else None

    def produce(
        self, topic: Topic, records: bytes | None, *, version: int = 9, partition: int = 0, **fields: Any
    ) -> Any:
        """Append a batch, and return the partition's answer."""
        data = {"name": topic.name, "topic_id": topic.id, "partition_data": [{"index": partition, "records": records}]}
        return self.call("Produce", version, topic_data=[data], **fields).responses[0].partition_responses[0]

    def produced(self, topic: Topic, records: bytes, *, version: int = 9, partition: int = 0, **fields: Any) -> int:
        """Append a batch that is in order, and return its offset."""
        answer = self.produce(topic, records, version=version, partition=partition, **fields)
        expect_error("Produce", answer.error_code, "NONE")
        return int(answer.base_offset)

    def delete_records(self, topic: Topic, offset: int) -> Any:
        """Delete a partition's records before an offset, and return its answer."""
        asked = [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": offset}]}]
        return self.call("DeleteRecords", 2, topics=asked).topics[0].partitions[0]

    def fetch_fields(self, topic: Topic, offset: int, *, partition: int = 0, **fields: Any) -> dict[str, Any]:
        """Return the fields of a Fetch of one partition; those of the partition by `of_partition`."""
        of_partition = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        of_partition.update(fields.pop("of_partition", {}))
        return {"topics": [{"topic": topic.name, "topic_id": topic.id, "partitions": [of_partition]}], **fields}

    def fetch(self, topic: Topic, offset: int, *, version: int = 12, **fields: Any) -> Any:
        """Fetch from one partition, and return its answer."""
        return self.call("Fetch", version, **self.fetch_fields(topic, offset, **fields)).responses[0].partitions[0]

    def offset(self, topic: Topic, timestamp: int, *, version: int = 5, partition: int = 0, **fields: Any) -> Any:
        """Look up an offset in a partition, and return its answer."""
        one = {"partition_index": partition, "timestamp": timestamp}
        answer = self.call("ListOffsets", version, topics=[{"name": topic.name, "partitions": [one]}], **fields)
        return answer.topics[0].partitions[0]

    def close(self) -> None:
        """Close all connections."""
        self.clean_up()
        self.reconnect()


class Transaction:
    """A transactional producer of a check, by the first version of transactions.

    Args:
        target: The broker.
        name: Its transactional id.
        made: The answer to InitProducerId.
    """

    def __init__(self, target: Target, name: str, made: Any) -> None:
        self.name = name
        self.producer_id: int = made.producer_id
        self.epoch: int = made.producer_epoch
        self.sequence = 0
        self._target = target

    @property
    def fields(self) -> dict[str, Any]:
        """Its identity, for a request."""
        return {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    def add(self, *topics: Topic, wanted: str = "NONE") -> None:
        """Add the first partitions of topics to the transaction, and expect an error or none."""
        fields = {**self.fields, "topics": [{"name": topic.name, "partitions": [0]} for topic in topics]}
        old = {f"v3_and_below_{name}": value for name, value in fields.items()}

        def look() -> int | None:
            answer = self._target.call("AddPartitionsToTxn", 3, **old)
            code = answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            return None if code in TRANSIENT else int(code)

        expect_error("AddPartitionsToTxn", self._target.until("the partitions are added", look), wanted)

    def batch(self, *values: bytes, sequence: int | None = None) -> bytes:
        """Return a batch of the transaction."""
        at = self.sequence if sequence is None else sequence
        return batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=at,
            is_transactional=True,
        )

    def produce(self, topic: Topic, *values: bytes) -> int:
        """Append a batch of the transaction, and return its offset."""
        offset = self._target.produced(topic, self.batch(*values), transactional_id=self.name)
        self.sequence += len(values)
        return offset

    def end(self, *, committed: bool, wanted: str = "NONE") -> None:
        """End the transaction, and wait until its markers are written."""

        def look() -> int | None:
            code = self._target.call("EndTxn", 3, **self.fields, committed=committed).error_code
            return None if code in TRANSIENT else int(code)

        expect_error("EndTxn", self._target.until("the transaction ends", look), wanted)
        if wanted == "NONE":
            self._target.until("the markers are written", self.is_complete)

    def is_complete(self) -> bool:
        """Return whether no end is in progress."""
        # Kafka answers before the markers are written; by then the next transaction may begin.
        states = self._target.call("ListTransactions", 0).transaction_states
        found = [state.transaction_state for state in states if state.transactional_id == self.name]
        return found in (["CompleteCommit"], ["CompleteAbort"], ["Empty"])
