"""The administrative APIs: the same requests to Apache Kafka and to this broker, and what differs in the answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

import pytest

import odradek
from odradek.broker.running import BrokerThread
from odradek.errors import OdradekError
from odradek.testing.wire import WireClient
from peers.kafka import KafkaBroker
from peers.kafka_tools import KafkaTools
from peers.process import wait_for

METADATA, API_VERSIONS, CREATE, DELETE, DELETE_RECORDS, EPOCH = 3, 18, 19, 20, 21, 23
DESCRIBE_CONFIGS, ALTER_CONFIGS, ALTER_LOG_DIRS, LOG_DIRS, GROW, ELECT, INCREMENTAL = 32, 33, 34, 35, 37, 43, 44
REASSIGN, LIST_REASSIGNMENTS, QUORUM, FEATURES, CLUSTER, LIST_CONFIGS, TOPIC_PARTITIONS = 45, 46, 55, 57, 60, 74, 75
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
GIVEN = 4
CHANGED = {1, 2, 3}
"""The sources of settings of a topic, of one broker and of all of them."""
SET, REMOVE, APPEND, SUBTRACT = range(4)
UNKNOWN_ID = UUID(int=0xABCDEF << 64 | 0x1234)

SETTINGS: dict[str, str] = {
    "auto.create.topics.enable": "true",
    "num.partitions": "2",
    "log.retention.ms": "86400000000",
    "log.segment.bytes": "2097152",
    "message.max.bytes": "2000000",
}
"""What both brokers are started with."""

RELATED = {
    "num.replica.fetchers": ["2", "3"],
    "background.threads": ["4", "5", "21"],
    "log.cleaner.threads": ["2", "3"],
    "log.cleaner.dedupe.buffer.size": ["1", "1048576", "1048577", "2097152"],
    "group.consumer.assignment.interval.ms": ["0", "15000", "15001", "100000"],
    "metric.reporters": ["x.Y", ""],
    "follower.replication.throttled.rate": ["-5", "0"],
    "leader.replication.throttled.rate": ["-1", "x", "7"],
}
"""Settings that Apache Kafka holds against the present ones and against each other, and values of both kinds."""

NOT_DYNAMIC = {
    "listeners",
    "max.connections.per.ip.overrides",
    "listener.security.protocol.map",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
}
"""What Apache Kafka's broker can change while it runs, and this broker cannot."""

VARYING = {"throttle_time", "host", "port", "cluster_id", "log_dir", "total_bytes", "usable_bytes", "documentation"} | {
    "log_end_offset",
    "high_watermark",
    "last_fetch_timestamp",
    "last_caught_up_timestamp",
    "leader_epoch_of_quorum",
    "finalized_features_epoch",
    "listeners",
    "partition_size",
}
"""The fields that differ between any two brokers."""


class Case(NamedTuple):
    """A request: what it is about, its API, its fields; its version, or the highest one and others."""

    about: str
    key: int
    message: Mapping[str, Any]
    versions: Sequence[int]

    @property
    def changes(self) -> bool:
        """Whether it changes what later answers are about."""
        return self.key in (CREATE, DELETE, GROW, ALTER_CONFIGS, INCREMENTAL)


def create(about: str, *topics: dict[str, Any], version: int = 7, **fields: Any) -> Case:
    defaults: dict[str, Any] = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    message = {"timeout_ms": 10_000, "validate_only": False, **fields}
    return Case(about, CREATE, {"topics": [defaults | topic for topic in topics], **message}, [version])


def replicas(first: int, count: int) -> str:
    return ",".join(f"{number}:1" for number in range(first, first + count))


def topic_configs(**values: str | None) -> list[dict[str, str | None]]:
    return [{"name": name.replace("_", "."), "value": value} for name, value in values.items()]


def assigned(*replicas: Sequence[int], first: int = 0) -> dict[str, Any]:
    return {
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": first + n, "broker_ids": ids} for n, ids in enumerate(replicas)],
    }


def describe(about: str, *resources: tuple[int, str, Sequence[str] | None], versions: Sequence[int] = (1, 4)) -> Case:
    named = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": keys} for kind, name, keys in resources
    ]
    message = {"resources": named, "include_synonyms": True, "include_documentation": True}
    return Case(about, DESCRIBE_CONFIGS, message, versions)


def alter(
    about: str,
    *resources: tuple[int, str, Sequence[tuple[str, int, str | None]]],
    version: int = 1,
    validate_only: bool = False,
) -> Case:
    named = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [
                {"name": key, "config_operation": operation, "value": value} for key, operation, value in changes
            ],
        }
        for kind, name, changes in resources
    ]
    return Case(about, INCREMENTAL, {"resources": named, "validate_only": validate_only}, [version])


def replace(about: str, kind: int, name: str, *configs: tuple[str, str | None], version: int = 2) -> Case:
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configs": [{"name": key, "value": value} for key, value in configs],
    }
    return Case(about, ALTER_CONFIGS, {"resources": [resource], "validate_only": False}, [version])


def grow(
    about: str, *topics: tuple[str, int, Sequence[Sequence[int]] | None], version: int = 3, only: bool = False
) -> Case:
    named = [
        {"name": name, "count": count, "assignments": None if ids is None else [{"broker_ids": one} for one in ids]}
        for name, count, ids in topics
    ]
    return Case(about, GROW, {"topics": named, "timeout_ms": 10_000, "validate_only": only}, [version])


def delete(about: str, *names: str, version: int = 6, ids: Sequence[UUID] = ()) -> Case:
    states = [{"name": name, "topic_id": None} for name in names] + [{"name": None, "topic_id": one} for one in ids]
    return Case(about, DELETE, {"topics": states, "topic_names": list(names), "timeout_ms": 10_000}, [version])


def metadata(about: str, *names: str, versions: Sequence[int] = (0, 1, 4, 5, 8, 10, 11, 13), **fields: Any) -> Case:
    named = [{"name": name, "topic_id": None} for name in names]
    message = {"topics": named, "allow_auto_topic_creation": False, **fields}
    asks = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    return Case(about, METADATA, message | asks, versions)


def records(about: str, topic: str, partition: int, offset: int, versions: Sequence[int] = (0, 2)) -> Case:
    one = {"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}
    return Case(about, DELETE_RECORDS, {"topics": [one], "timeout_ms": 10_000}, versions)


def epoch(about: str, topic: str, partition: int, current: int, wanted: int) -> Case:
    one = {"partition": partition, "current_leader_epoch": current, "leader_epoch": wanted}
    return Case(about, EPOCH, {"replica_id": -1, "topics": [{"topic": topic, "partitions": [one]}]}, (2, 4))


def reassign(
    about: str, topic: str, partition: int, replicas: Sequence[int] | None, versions: Sequence[int] = (0, 1)
) -> Case:
    one = {"name": topic, "partitions": [{"partition_index": partition, "replicas": replicas}]}
    return Case(about, REASSIGN, {"timeout_ms": 10_000, "topics": [one]}, versions)


def elect(about: str, topics: Sequence[tuple[str, Sequence[int]]] | None, kind: int = 0) -> Case:
    named = None if topics is None else [{"topic": name, "partitions": numbers} for name, numbers in topics]
    return Case(about, ELECT, {"election_type": kind, "topic_partitions": named, "timeout_ms": 10_000}, (0, 1, 2))


def features(
    about: str, name: str, level: int, kind: int = 1, *, only: bool = True, versions: Sequence[int] = (1, 2)
) -> Case:
    update = {"feature": name, "max_version_level": level, "upgrade_type": kind, "allow_downgrade": kind > 1}
    return Case(about, FEATURES, {"timeout_ms": 10_000, "feature_updates": [update], "validate_only": only}, versions)


def portion(about: str, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Case:
    start = cursor and {"topic_name": cursor[0], "partition_index": cursor[1]}
    message = {"topics": [{"name": name} for name in names], "response_partition_limit": limit, "cursor": start}
    return Case(about, TOPIC_PARTITIONS, message, [0])


def quorum(about: str, topic: str) -> Case:
    return Case(about, QUORUM, {"topics": [{"topic_name": topic, "partitions": [{"partition_index": 0}]}]}, (0, 1, 2))


LONG = "x" * 250

GROUP_LIMITS = [
    ("consumer.heartbeat.interval.ms", "4999"),
    ("consumer.heartbeat.interval.ms", "15001"),
    ("consumer.session.timeout.ms", "60001"),
    ("consumer.assignment.interval.ms", "15001"),
    ("share.heartbeat.interval.ms", "4999"),
    ("share.session.timeout.ms", "60001"),
    ("share.record.lock.duration.ms", "60001"),
    ("share.delivery.count.limit", "11"),
    ("share.partition.max.record.locks", "10001"),
    ("share.assignment.interval.ms", "15001"),
    ("streams.heartbeat.interval.ms", "4999"),
    ("streams.session.timeout.ms", "60001"),
    ("streams.num.standby.replicas", "3"),
    ("streams.assignment.interval.ms", "15001"),
    ("streams.task.offset.interval.ms", "14999"),
    ("streams.num.warmup.replicas", "21"),
    ("streams.rack.aware.assignment.tags", "zone, rack,zone"),
    ("streams.assignor.name", "nope"),
    ("errors.deadletterqueue.topic.name", "__letters"),
]
"""Values that the broker's settings do not allow."""

CASES = [
    # CreateTopics
    create("a topic", {"name": "events", "num_partitions": 3}),
    *(create(f"a topic by version {version}", {"name": f"v{version}"}, version=version) for version in range(2, 7)),
    create("the broker's numbers", {"name": "defaults", "num_partitions": -1, "replication_factor": -1}),
    create(
        "with settings",
        {
            "name": "set",
            "configs": topic_configs(
                cleanup_policy="compact,delete", retention_ms="5000", segment_bytes=" 1048576", preallocate="TRUE"
            ),
        },
    ),
    create("only checked", {"name": "checked"}, validate_only=True),
    create("a policy twice", {"name": "policy", "configs": topic_configs(cleanup_policy="delete,delete")}),
    create("once more", {"name": "events"}),
    create("one of two exists", {"name": "events"}, {"name": "second"}),
    create("the same twice", {"name": "twice"}, {"name": "twice"}, {"name": "third"}),
    create("the metadata log", {"name": "__cluster_metadata"}),
    create("an empty name", {"name": ""}),
    create("a dot", {"name": "."}),
    create("a bad letter", {"name": "a b"}),
    create("too long a name", {"name": LONG}),
    create("a name with a dot", {"name": "a.b"}),
    create("a name like it", {"name": "a_b"}),
    create("no partitions", {"name": "none", "num_partitions": 0}),
    create("fewer than no partitions", {"name": "none", "num_partitions": -2}),
    create("no replicas", {"name": "none", "replication_factor": 0}),
    create("two replicas", {"name": "none", "replication_factor": 2}),
    create("too many partitions", {"name": "none", "num_partitions": 10_001}),
    create("assigned", {"name": "assigned", **assigned([1], [1])}),
    create("assigned, and counted", {"name": "none", **assigned([1]), "num_partitions": 1}),
    create("assigned, and replicated", {"name": "none", **assigned([1]), "replication_factor": 1}),
    create("assigned to an unknown broker", {"name": "none", **assigned([1], [5])}),
    create("assigned twice", {"name": "none", **assigned([1, 1])}),
    create("assigned to nobody", {"name": "none", **assigned([])}),
    create("assigned with a gap", {"name": "none", **assigned([1], first=1)}),
    create(
        "a partition assigned twice",
        {
            "name": "none",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": [1]}] * 2,
        },
    ),
    *(
        create(f"{name} of {value!r}", {"name": "none", "configs": [{"name": name, "value": value}]})
        for name, value in [
            ("no.such", "1"),
            ("retention.ms", None),
            ("retention.ms", "abc"),
            ("retention.ms", "-2"),
            ("retention.ms", "99999999999999999999"),
            ("segment.bytes", "100"),
            ("cleanup.policy", "shred"),
            ("cleanup.policy", "delete,,compact"),
            ("compression.type", "brotli"),
            ("compression.gzip.level", "10"),
            ("compression.lz4.level", "18"),
            ("compression.zstd.level", "23"),
            ("min.cleanable.dirty.ratio", "2"),
            ("min.cleanable.dirty.ratio", "-0.5"),
            ("min.cleanable.dirty.ratio", "x"),
            ("preallocate", "maybe"),
            ("leader.replication.throttled.replicas", "a"),
            ("remote.storage.enable", "true"),
            ("min.compaction.lag.ms", "9223372036854775808"),
        ]
    ),
    create(
        "lags in conflict",
        {"name": "none", "configs": topic_configs(min_compaction_lag_ms="10", max_compaction_lag_ms="5")},
    ),
    # Metadata
    metadata("topics", "events", "set"),
    metadata("a topic that is not there", "missing", versions=(4, 8, 13)),
    metadata("a topic that cannot be", "a b", versions=(4, 13)),
    metadata("a topic twice", "events", "events", versions=(1, 13)),
    metadata("a topic that cannot be made", "a b", versions=[4], allow_auto_topic_creation=True),
    metadata("no topics", versions=(1, 13)),
    metadata("an unknown id", versions=[12, 13], topics=[{"name": None, "topic_id": UNKNOWN_ID}]),
    metadata("an id too early", versions=[10, 11], topics=[{"name": "events", "topic_id": UNKNOWN_ID}]),
    metadata("no name too early", versions=[10], topics=[{"name": None, "topic_id": None}]),
    # CreatePartitions
    *(grow(f"more by version {version}", (f"v{version + 2}", 2, None), version=version) for version in range(4)),
    grow("more, assigned", ("v6", 2, [[1]])),
    grow("only checked", ("events", 5, None), only=True),
    grow("as many", ("events", 3, None)),
    grow("fewer", ("events", 2, None)),
    grow("of a topic that is not there", ("missing", 2, None)),
    grow("the same twice", ("events", 4, None), ("events", 5, None)),
    grow("too few assigned", ("events", 5, [[1]])),
    grow("assigned to an unknown broker", ("events", 4, [[7]])),
    grow("assigned to two", ("events", 4, [[1, 7]])),
    grow("assigned to nobody", ("events", 4, [[]])),
    # settings
    describe("a topic", (TOPIC, "events", None)),
    describe("a topic with settings", (TOPIC, "set", None), versions=(1, 2, 3, 4)),
    describe("keys of a topic", (TOPIC, "set", ["cleanup.policy", "retention.ms", "no.such"])),
    describe("no keys", (TOPIC, "set", []), versions=[4]),
    describe("a topic that is not there", (TOPIC, "missing", None)),
    describe("a topic that cannot be", (TOPIC, "a b", None)),
    describe("an empty topic", (TOPIC, "", None)),
    describe("another broker", (BROKER, "7", None)),
    describe("a broker that is no number", (BROKER, "seven", None)),
    describe("every broker", (BROKER, "", ["message.max.bytes"])),
    describe("a group", (GROUP, "workers", None)),
    describe("a group without a name", (GROUP, "", None)),
    describe("an unknown type", (99, "x", None)),
    alter("set", (TOPIC, "events", [("retention.ms", SET, "100000"), ("segment.ms", SET, "5000")])),
    *(
        alter(f"{name}={value}", (BROKER, resource, [(name, SET, value)]), validate_only=True)
        for resource in ("", "1")
        for name, values in RELATED.items()
        for value in values
        if not (resource == "" and name.endswith(".rate"))
    ),
    alter("removed", (TOPIC, "events", [("segment.ms", REMOVE, None)]), version=0),
    alter("removed though not set", (TOPIC, "events", [("segment.ms", REMOVE, None), ("no.such", REMOVE, None)])),
    alter("appended", (TOPIC, "events", [("cleanup.policy", APPEND, "compact")])),
    alter("appended again", (TOPIC, "events", [("cleanup.policy", APPEND, "compact,delete")])),
    alter("subtracted", (TOPIC, "set", [("cleanup.policy", SUBTRACT, "delete")])),
    alter("subtracted to nothing", (TOPIC, "set", [("cleanup.policy", SUBTRACT, "compact")])),
    alter("appended to a number", (TOPIC, "events", [("retention.ms", APPEND, "5")])),
    alter("subtracted from a number", (TOPIC, "events", [("retention.ms", SUBTRACT, "5")])),
    alter("only checked", (TOPIC, "events", [("retention.ms", SET, "7")]), validate_only=True),
    alter("not valid", (TOPIC, "events", [("retention.ms", SET, "-7")])),
    alter("one of two not valid", (TOPIC, "events", [("flush.ms", SET, "7"), ("preallocate", SET, "7")])),
    alter("unknown", (TOPIC, "events", [("no.such", SET, "7")])),
    alter("null", (TOPIC, "events", [("retention.ms", SET, None)])),
    alter("a key twice", (TOPIC, "events", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")])),
    alter("a resource twice", *[(TOPIC, "events", [("retention.ms", SET, "1")])] * 2),
    alter("a topic that is not there", (TOPIC, "missing", [("retention.ms", SET, "1")])),
    alter("a topic that cannot be", (TOPIC, "a b", [("retention.ms", SET, "1")])),
    alter("an empty topic", (TOPIC, "", [("retention.ms", SET, "1")])),
    alter("an unknown type", (99, "events", [("retention.ms", SET, "1")])),
    *(
        alter(
            f"too long after {first}",
            (TOPIC, "events", [("leader.replication.throttled.replicas", APPEND, replicas(first, 3500))]),
        )
        for first in (1000, 5000)
    ),
    alter("no longer too long", (TOPIC, "events", [("leader.replication.throttled.replicas", REMOVE, None)])),
    alter(
        "a topic and the broker",
        (TOPIC, "events", [("flush.messages", SET, "9")]),
        (BROKER, "1", [("log.flush.interval.messages", SET, "11")]),
    ),
    alter("the broker", (BROKER, "1", [("message.max.bytes", SET, "3000000")])),
    alter("every broker", (BROKER, "", [("message.max.bytes", SET, "4000000"), ("max.connections", SET, "5000")])),
    alter("every broker's policy", (BROKER, "", [("log.cleanup.policy", APPEND, "compact")])),
    alter("the broker, not valid", (BROKER, "1", [("message.max.bytes", SET, "many")])),
    alter("the broker, not dynamic", (BROKER, "1", [("num.partitions", SET, "3")])),
    alter("the broker, appended to a number", (BROKER, "1", [("message.max.bytes", APPEND, "3")])),
    alter("the broker, appended to nothing", (BROKER, "1", [("no.such", APPEND, "3")])),
    alter("another broker", (BROKER, "7", [("message.max.bytes", SET, "3000000")])),
    alter("a broker that is no number", (BROKER, "seven", [("message.max.bytes", SET, "3000000")])),
    alter("the broker's replicas in sync", (BROKER, "1", [("min.insync.replicas", SET, "1")])),
    alter("a group", (GROUP, "workers", [("consumer.session.timeout.ms", SET, "50000")])),
    alter("a group, unknown", (GROUP, "workers", [("no.such", SET, "50000")])),
    alter("a group, not valid", (GROUP, "workers", [("consumer.heartbeat.interval.ms", SET, "often")])),
    *(alter(f"a group, {name}={value}", (GROUP, "workers", [(name, SET, value)])) for name, value in GROUP_LIMITS),
    alter("a group without a name", (GROUP, "", [("consumer.session.timeout.ms", SET, "50000")])),
    describe("what was altered", (TOPIC, "events", None), (TOPIC, "set", None), (GROUP, "workers", None)),
    describe("what every broker has", (BROKER, "", ["message.max.bytes", "max.connections", "log.cleanup.policy"])),
    describe("what the broker has", (BROKER, "1", ["message.max.bytes", "max.connections", "log.cleanup.policy"])),
    create("after the broker's settings", {"name": "after"}),
    alter(
        "the broker's removed",
        (BROKER, "1", [("message.max.bytes", REMOVE, None), ("log.flush.interval.messages", REMOVE, None)]),
        (BROKER, "", [(name, REMOVE, None) for name in ("message.max.bytes", "max.connections", "log.cleanup.policy")]),
    ),
    *(
        replace(f"replaced by version {version}", TOPIC, "events", ("retention.ms", f"{version}00000"), version=version)
        for version in range(3)
    ),
    replace("replaced, not valid", TOPIC, "events", ("retention.ms", "abc")),
    replace("replaced, unknown", TOPIC, "events", ("no.such", "abc")),
    replace("replaced, null", TOPIC, "events", ("retention.ms", None)),
    replace("replaced, a topic that is not there", TOPIC, "missing", ("retention.ms", "1")),
    replace("replaced, another broker", BROKER, "7", ("message.max.bytes", "1")),
    replace("replaced, an unknown type", 99, "x", ("message.max.bytes", "1")),
    describe("what was replaced", (TOPIC, "events", None)),
    Case("what has settings", LIST_CONFIGS, {"resource_types": []}, [0]),
    Case("topics, brokers and groups with settings", LIST_CONFIGS, {"resource_types": [TOPIC, BROKER, GROUP]}, [1]),
    Case("an unknown type with settings", LIST_CONFIGS, {"resource_types": [99]}, [1]),
    # records
    records("records before", "events", 0, 2),
    records("records before the same", "events", 0, 1),
    records("records after the end", "events", 0, 100),
    records("records before nothing", "events", 0, -2),
    records("all records", "events", 0, -1),
    records("of a topic that is not there", "missing", 0, 0),
    records("of a partition that is not there", "events", 9, 0),
    epoch("an epoch", "events", 0, -1, 0),
    epoch("an epoch of an empty partition", "events", 1, -1, 0),
    epoch("a later epoch", "events", 0, -1, 5),
    epoch("no epoch", "events", 0, -1, -1),
    epoch("an epoch, the leader's being later", "events", 0, 5, 0),
    epoch("an epoch of a partition that is not there", "events", 9, -1, 0),
    # folders, leaders, replicas
    Case("sizes of some", LOG_DIRS, {"topics": [{"topic": "set", "partitions": [0]}]}, (1, 2, 3, 4, 5)),
    Case("sizes of what is not there", LOG_DIRS, {"topics": [{"topic": "missing", "partitions": [0]}]}, (1, 5)),
    Case("sizes of nothing", LOG_DIRS, {"topics": []}, (1, 5)),
    Case(
        "to a folder that is not there",
        ALTER_LOG_DIRS,
        {"dirs": [{"path": "/no/such", "topics": [{"name": "events", "partitions": [0, 9]}]}]},
        (1, 2),
    ),
    elect("preferred leaders", [("events", [0, 9]), ("missing", [0])]),
    elect("unclean leaders", [("events", [0])], 1),
    elect("leaders of nothing", []),
    reassign("to itself", "events", 0, [1]),
    reassign("to another", "events", 0, [7]),
    reassign("to nobody", "events", 0, []),
    reassign("cancelled", "events", 0, None),
    reassign("of a topic that is not there", "missing", 0, [1]),
    reassign("of a partition that is not there", "events", 9, [1]),
    Case("all that move", LIST_REASSIGNMENTS, {"timeout_ms": 10_000, "topics": None}, [0]),
    Case(
        "those that move",
        LIST_REASSIGNMENTS,
        {"timeout_ms": 10_000, "topics": [{"name": "events", "partition_indexes": [0]}]},
        [0],
    ),
    # the cluster
    *(
        Case(
            about,
            CLUSTER,
            {
                "include_cluster_authorized_operations": True,
                "endpoint_type": kind,
                "include_fenced_brokers": True,
            },
            versions,
        )
        for about, kind, versions in (
            ("the cluster", 1, (0, 1, 2)),
            ("the controllers", 2, (1, 2)),
            ("something else", 3, (1, 2)),
        )
    ),
    quorum("the quorum", "__cluster_metadata"),
    quorum("the quorum of a topic", "events"),
    portion("some topics", "events", "set", "missing", "a b"),
    portion("three partitions", "events", "v2", "v3", limit=4),
    portion("further partitions", "events", "v2", "v3", limit=4, cursor=("v2", 1)),
    portion("a cursor that is not asked for", "events", cursor=("v2", 1)),
    portion("a negative cursor", "events", cursor=("events", -1)),
    portion("a cursor after the end", "events", "set", cursor=("events", 7)),
    features("a feature's level", "transaction.version", 2),
    features("a level by version 0", "transaction.version", 2, versions=[0]),
    features("a lower level by version 0", "transaction.version", 1, 2, versions=[0]),
    features("the level again", "transaction.version", 2, only=False, versions=[2]),
    features("the level again by version 1", "transaction.version", 1, 2, only=False, versions=[1]),
    features("the level again by version 2", "transaction.version", 2, only=False, versions=[2]),
    features("a lower level", "transaction.version", 1),
    features("a lower level, safely", "transaction.version", 1, 2),
    features("too high a level", "transaction.version", 9),
    features("a negative level", "transaction.version", -1),
    features("a higher level, downwards", "metadata.version", 30, 2),
    features("an unknown feature", "no.such", 1),
    features("an unknown type of change", "transaction.version", 1, 9),
    features("older metadata", "metadata.version", 20, 2),
    features("much older metadata", "metadata.version", 20, 3),
    # DeleteTopics
    *(delete(f"deleted by version {version}", f"v{version + 1}", version=version) for version in range(1, 6)),
    delete("deleted", "after"),
    delete("deleted once more", "after"),
    delete("deleted though not there", "missing", version=1),
    delete("deleted twice", "set", "set", "second"),
    delete("deleted by an unknown id", ids=[UNKNOWN_ID]),
    delete("deleted by two unknown ids", ids=[UNKNOWN_ID] * 2),
    Case("deleted without a name", DELETE, {"topics": [{"name": None, "topic_id": None}], "timeout_ms": 9}, [6]),
    Case("deleted by both", DELETE, {"topics": [{"name": "set", "topic_id": UNKNOWN_ID}], "timeout_ms": 9}, [6]),
    metadata("what is left", "set", "second", "after", versions=[13]),
    # UnregisterController
    Case("a controller that is not there", 94, {"controller_id": 9}, [0]),
    Case("the only controller", 94, {"controller_id": 1}, [0]),
]


def plain(value: Any, name: str = "") -> Any:
    """Return an answer without what differs between any two brokers; arrays in an order of their own."""
    if dataclasses.is_dataclass(value):
        return {
            field.name: plain(getattr(value, field.name), field.name)
            for field in dataclasses.fields(value)
            if field.name not in VARYING
        }
    if isinstance(value, tuple):
        items = [plain(item) for item in value]
        return items if name in ("synonyms", "values") else sorted(items, key=repr)
    if isinstance(value, UUID):
        return "id"
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value


def ask(address: tuple[str, int], case: Case, version: int) -> Any:
    with WireClient(*address) as client:
        try:
            return plain(client.call(case.key, version, case.message))
        except OdradekError as error:
            return str(error)


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Yield where two answers differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from differences(one.get(key), other.get(key), f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, f"{path}[{number}]")
    elif one != other:
        yield f"{path}: {one!r}, here {other!r}"


@pytest.fixture(scope="module")
def kafka(kafka_tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    path = tmp_path_factory.mktemp("admin") / "kafka"
    # Made by us, so that the features have the same levels.
    odradek.open(path).close()
    with KafkaBroker(kafka_tools, path, SETTINGS) as broker:
        yield "127.0.0.1", broker.port


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    path = tmp_path_factory.mktemp("admin") / "odradek"
    with BrokerThread(path, {"listeners": "PLAINTEXT://127.0.0.1:0", **SETTINGS}, background=False) as running:
        yield running


@pytest.fixture
def here(running: BrokerThread) -> tuple[str, int]:
    return running.endpoint().host, running.endpoint().port


def state_of(address: tuple[str, int]) -> tuple[Any, dict[tuple[int, str], dict[str, str]]]:
    """Return the topics that a broker knows, and the settings that were changed while it runs."""
    asked = {"topics": None, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    with WireClient(*address) as client:
        topics = plain(client.call(METADATA, 12, asked).topics)
        resources = [(TOPIC, topic["name"]) for topic in topics] + [(BROKER, ""), (BROKER, "1")]
        named = [{"resource_type": kind, "resource_name": name, "configuration_keys": None} for kind, name in resources]
        message = {"resources": named, "include_synonyms": False, "include_documentation": False}
        results = client.call(DESCRIBE_CONFIGS, 4, message).results
    changed = {
        (one.resource_type, one.resource_name): {
            config.name: config.value for config in one.configs if config.config_source in CHANGED
        }
        for one in results
    }
    return topics, changed


def test_every_answer_is_that_of_apache_kafka(kafka: tuple[str, int], here: tuple[str, int]) -> None:
    found: list[str] = []
    for case in CASES:
        for version in case.versions:
            theirs = ask(kafka, case, version)
            ours = ask(here, case, version)
            if case.changes:
                # Apache Kafka's broker follows its controller.
                wait_for(lambda: state_of(kafka) == state_of(here), 30, f"the same topics and settings: {case.about}")
            found += [f"{case.about}, version {version}: {one}" for one in differences(theirs, ours)]
    assert not found, "\n".join(found)


def described(address: tuple[str, int], kind: int, name: str) -> dict[str, Any]:
    message = {
        "resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": None}],
        "include_synonyms": True,
        "include_documentation": True,
    }
    with WireClient(*address) as client:
        return {config.name: config for config in client.call(DESCRIBE_CONFIGS, 4, message).results[0].configs}


def test_the_settings_of_the_broker_are_those_of_apache_kafka(kafka: tuple[str, int], here: tuple[str, int]) -> None:
    theirs, ours = described(kafka, BROKER, "1"), described(here, BROKER, "1")
    given = {name for name, config in theirs.items() if config.config_source == GIVEN}
    differ = {}
    assert list(ours) == list(theirs)
    for name, config in ours.items():
        left, right = plain(theirs[name]), plain(config)
        if name in given:
            left, right = (
                {key: one[key] for key in ("config_type", "is_sensitive", "read_only")} for one in (left, right)
            )
        found = list(differences(left, right))
        if found:
            differ[name] = found
        assert config.documentation
    assert differ == {name: [".read_only: False, here True"] for name in NOT_DYNAMIC}


def test_settings_are_described_in_the_order_of_apache_kafka(kafka: tuple[str, int], here: tuple[str, int]) -> None:
    made = [{"name": "ordered", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}]
    for address in (kafka, here):
        with WireClient(*address) as client:
            client.call(CREATE, 5, {"topics": made, "timeout_ms": 9000, "validate_only": False})
    wait_for(lambda: state_of(kafka) == state_of(here), 30, "the same topics and settings")
    for kind, name in ((TOPIC, "ordered"), (CLIENT_METRICS, "a-subscription"), (GROUP, "a-group")):
        assert list(described(here, kind, name)) == list(described(kafka, kind, name))


def test_what_is_advertised_is_advertised_by_apache_kafka(kafka: tuple[str, int], here: tuple[str, int]) -> None:
    answers = []
    for address in (kafka, here):
        with WireClient(*address) as client:
            answers.append(client.call(API_VERSIONS, 4, {"client_software_name": "t", "client_software_version": "1"}))
    theirs, ours = answers
    keys = [
        {(int(one.api_key), one.min_version, one.max_version) for one in answer.api_keys} for answer in (theirs, ours)
    ]
    assert keys[1] <= keys[0]
    ranges = [{one.name: (one.min_version, one.max_version) for one in answer.supported_features} for answer in answers]
    # Its second level has topics for dead letters.
    assert ranges[1] == {name: ranges[0][name] for name in ranges[1]} | {"share.version": (0, 1)}
    assert set(ours.finalized_features) <= set(theirs.finalized_features)
