"""Every version of every API: a small request that is valid, and the answer, which must follow its schema to the byte.

The samples also say what the answer holds; what it must tell of further cases is checked in the areas' own modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from kio.schema.errors import ErrorCode

from odradek.testing.api_names import api_key_of
from odradek.testing.conformance.suite import add
from odradek.testing.conformance.target import Target, Topic, batch, expect
from odradek.testing.plain_fields import plain_fields

Fields: TypeAlias = Mapping[str, Any]
Wanted: TypeAlias = Mapping[str, Any]
"""What an answer holds, by the path to it: `topics.0.error_code`. An error is Kafka's name for it."""

_TOPIC, _BROKER = 2, 4


class Sample(NamedTuple):
    """A request and its answer.

    Attributes:
        api: Kafka's name of the API.
        versions: The versions that Apache Kafka 4.3.1 has.
        fields: Makes the request's fields, for a version.
        wanted: Makes what the answer holds, for a version and the request.
    """

    api: str
    versions: range
    fields: Callable[[Target, int], Fields]
    wanted: Callable[[int, Fields], Wanted]


def _version_of(sample: Sample, version: int, target: Target) -> None:
    target.needs(sample.api, version)
    fields = sample.fields(target, version)
    found = plain_fields(target.call(sample.api, version, **fields))
    for path, wanted in sample.wanted(version, fields).items():
        value: Any = found
        for step in path.split("."):
            value = value[int(step) if step.isdigit() else step]
        if path.endswith("error_code"):
            value = ErrorCode(value).name.upper()
        expect(path, value, wanted)


def _range_of(sample: Sample, lowest: int, target: Target) -> None:
    target.needs(sample.api)
    expect(f"versions of {sample.api}", target.advertised[api_key_of(sample.api)], (lowest, sample.versions.stop - 1))


def _no_error(version: int, fields: Fields) -> Wanted:
    return {"error_code": "NONE"}


def _one_topic(topic: Topic, **partition: Any) -> list[dict[str, Any]]:
    """Return a request's topic with one partition, whatever the API calls them."""
    return [
        {
            "name": topic.name,
            "topic": topic.name,
            "topic_id": topic.id,
            "topic_name": topic.name,
            "partitions": [partition],
        }
    ]


# -- records


def _produce(target: Target, version: int) -> Fields:
    topic = target.topic()
    partition = {"index": 0, "records": batch(b"a")}
    return {"topic_data": [{"name": topic.name, "topic_id": topic.id, "partition_data": [partition]}]}


def _produce_wanted(version: int, fields: Fields) -> Wanted:
    sent, at = fields["topic_data"][0], "responses.0.partition_responses.0."
    wanted = {at + "index": 0, at + "error_code": "NONE", at + "base_offset": 0, at + "log_append_time_ms": -1}
    wanted["responses.0.topic_id" if version >= 13 else "responses.0.name"] = sent[
        "topic_id" if version >= 13 else "name"
    ]
    if version >= 5:
        wanted[at + "log_start_offset"] = 0
    return wanted | ({at + "record_errors": [], at + "error_message": None} if version >= 8 else {})


def _fetch(target: Target, version: int) -> Fields:
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    return target.fetch_fields(topic, 0)


def _fetch_wanted(version: int, fields: Fields) -> Wanted:
    at = "responses.0.partitions.0."
    wanted = {at + "error_code": "NONE", at + "high_watermark": 1, at + "last_stable_offset": 1}
    wanted[at + "partition_index"] = 0
    if version >= 5:
        wanted[at + "log_start_offset"] = 0
    if version >= 7:
        wanted |= {"error_code": "NONE", "session_id": 0}
    return wanted | ({at + "preferred_read_replica": -1} if version >= 11 else {})


def _list_offsets(target: Target, version: int) -> Fields:
    topic = target.topic()
    target.produced(topic, batch(b"a", b"b"))
    return {"topics": _one_topic(topic, partition_index=0, timestamp=-1)}


def _list_offsets_wanted(version: int, fields: Fields) -> Wanted:
    at = "topics.0.partitions.0."
    wanted = {at + "error_code": "NONE", at + "offset": 2, at + "timestamp": -1}
    return wanted | ({at + "leader_epoch": 0} if version >= 4 else {})


def _metadata(target: Target, version: int) -> Fields:
    topic = target.topic(2)
    return {"topics": [{"name": topic.name, "topic_id": None}]}


def _metadata_wanted(version: int, fields: Fields) -> Wanted:
    wanted = {"topics.0.error_code": "NONE", "topics.0.name": fields["topics"][0]["name"]}
    wanted |= {f"topics.0.partitions.{number}.error_code": "NONE" for number in range(2)}
    if version >= 1:
        wanted["topics.0.is_internal"] = False
    if version >= 5:
        wanted["topics.0.partitions.0.offline_replicas"] = []
    if 8 <= version <= 10:
        wanted["cluster_authorized_operations"] = -(1 << 31)
    return wanted | ({"topics.0.topic_authorized_operations": -(1 << 31)} if version >= 8 else {})


def _leader_epoch(target: Target, version: int) -> Fields:
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    return {"topics": _one_topic(topic, partition=0, leader_epoch=0)}


def _leader_epoch_wanted(version: int, fields: Fields) -> Wanted:
    at = "topics.0.partitions.0."
    return {at + "error_code": "NONE", at + "leader_epoch": 0, at + "end_offset": 1, at + "partition": 0}


def _delete_records(target: Target, version: int) -> Fields:
    topic = target.topic()
    target.produced(topic, batch(b"a", b"b"))
    return {"topics": _one_topic(topic, partition_index=0, offset=1)}


def _delete_records_wanted(version: int, fields: Fields) -> Wanted:
    return {"topics.0.partitions.0.error_code": "NONE", "topics.0.partitions.0.low_watermark": 1}


# -- groups


def _offset_commit(target: Target, version: int) -> Fields:
    one = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "m"}
    return {"group_id": target.group(), "topics": _one_topic(target.topic(), **one)}


def _offset_commit_wanted(version: int, fields: Fields) -> Wanted:
    return {"topics.0.partitions.0.error_code": "NONE", "topics.0.partitions.0.partition_index": 0}


def _offset_fetch(target: Target, version: int) -> Fields:
    topic, group = target.topic(), target.group()
    one = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": 0, "committed_metadata": "m"}
    target.call("OffsetCommit", 8, group_id=group, topics=_one_topic(topic, **one))
    topics = [{"name": topic.name, "topic_id": topic.id, "partition_indexes": [0]}]
    return {"group_id": group, "topics": topics, "groups": [{"group_id": group, "topics": topics}]}


def _offset_fetch_wanted(version: int, fields: Fields) -> Wanted:
    at = "groups.0.topics.0.partitions.0." if version >= 8 else "topics.0.partitions.0."
    wanted = {at + "error_code": "NONE", at + "committed_offset": 7, at + "metadata": "m"}
    if version >= 5:
        wanted[at + "committed_leader_epoch"] = 0
    if version >= 8:
        wanted["groups.0.error_code"] = "NONE"
    return wanted | ({"error_code": "NONE"} if 2 <= version <= 7 else {})


def _find_coordinator(target: Target, version: int) -> Fields:
    group = target.group()
    return {"key": group, "key_type": 0, "coordinator_keys": [group]}


def _find_coordinator_wanted(version: int, fields: Fields) -> Wanted:
    if version >= 4:
        return {"coordinators.0.error_code": "NONE", "coordinators.0.key": fields["key"]}
    return {"error_code": "NONE"}


def _join_group(target: Target, version: int) -> Fields:
    protocols = [{"name": "range", "metadata": b"m"}]
    return {"group_id": target.group(), "member_id": "", "protocols": protocols}


def _join_group_wanted(version: int, fields: Fields) -> Wanted:
    if version >= 4:
        return {"error_code": "MEMBER_ID_REQUIRED", "generation_id": -1}
    return {"error_code": "NONE", "generation_id": 1, "protocol_name": "range", "members.0.metadata": b"m"}


def _sync_group(target: Target, version: int) -> Fields:
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    return {"group_id": target.group(), "generation_id": 1, "member_id": "nobody", "assignments": [], **protocol}


def _heartbeat(target: Target, version: int) -> Fields:
    return {"group_id": target.group(), "generation_id": 1, "member_id": "nobody"}


def _leave_group(target: Target, version: int) -> Fields:
    return {"group_id": target.group(), "member_id": "nobody", "members": [{"member_id": "nobody"}]}


def _unknown_member(version: int, fields: Fields) -> Wanted:
    return {"error_code": "UNKNOWN_MEMBER_ID"}


def _leave_group_wanted(version: int, fields: Fields) -> Wanted:
    if version >= 3:
        return {"error_code": "NONE", "members.0.error_code": "UNKNOWN_MEMBER_ID", "members.0.member_id": "nobody"}
    return {"error_code": "UNKNOWN_MEMBER_ID"}


def _describe_groups(target: Target, version: int) -> Fields:
    return {"groups": [target.group()]}


def _describe_groups_wanted(version: int, fields: Fields) -> Wanted:
    at = "groups.0."
    error = "GROUP_ID_NOT_FOUND" if version >= 6 else "NONE"
    return {at + "error_code": error, at + "group_id": fields["groups"][0], at + "group_state": "Dead"}


def _delete_groups(target: Target, version: int) -> Fields:
    return {"groups_names": [target.group()]}


def _delete_groups_wanted(version: int, fields: Fields) -> Wanted:
    return {"results.0.error_code": "GROUP_ID_NOT_FOUND", "results.0.group_id": fields["groups_names"][0]}


def _offset_delete(target: Target, version: int) -> Fields:
    one = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
    topics, group = _one_topic(target.topic(), **one), target.group()
    target.call("OffsetCommit", 8, group_id=group, topics=topics)
    return {"group_id": group, "topics": topics}


def _offset_delete_wanted(version: int, fields: Fields) -> Wanted:
    return {"error_code": "NONE", "topics.0.partitions.0.error_code": "NONE"}


# -- transactions


def _init_producer_id_wanted(version: int, fields: Fields) -> Wanted:
    return {"error_code": "NONE", "producer_epoch": 0}


def _transaction(target: Target, version: int) -> Fields:
    """Return a producer that has begun nothing, and all that the APIs of transactions ask for."""
    topic, group, name = target.topic(), target.group(), target.name("transaction")
    made = target.transactional_producer(name)
    producer = {"transactional_id": name, "producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
    topics = [{"name": topic.name, "partitions": [0]}]
    old = {f"v3_and_below_{key}": value for key, value in {**producer, "topics": topics}.items()}
    transactions = [{**producer, "topics": topics}]
    return {**producer, **old, "transactions": transactions, "group_id": group, "topics": topics, "committed": True}


def _add_partitions_wanted(version: int, fields: Fields) -> Wanted:
    if version >= 4:
        at = "results_by_transaction.0.topic_results.0.results_by_partition.0."
        return {"error_code": "NONE", at + "partition_error_code": "NONE"}
    return {"results_by_topic_v3_and_below.0.results_by_partition.0.partition_error_code": "NONE"}


def _end_txn(target: Target, version: int) -> Fields:
    return {**target.open_transaction(target.topic()).fields, "committed": True}


def _end_txn_wanted(version: int, fields: Fields) -> Wanted:
    wanted = {"error_code": "NONE"}
    if version >= 5:
        # KIP-890: the epoch that the next transaction has.
        return {**wanted, "producer_id": fields["producer_id"], "producer_epoch": fields["producer_epoch"] + 1}
    return wanted


def _txn_offset_commit(target: Target, version: int) -> Fields:
    fields = _transaction(target, version)
    producer = {name: fields[name] for name in ("producer_id", "producer_epoch", "transactional_id", "group_id")}
    if version < 5:
        target.call("AddOffsetsToTxn", 3, **producer)
    one = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
    return {**producer, "topics": _one_topic(target.topic(), **one)}


def _txn_offset_commit_wanted(version: int, fields: Fields) -> Wanted:
    return {"topics.0.partitions.0.error_code": "NONE"}


def _write_txn_markers(target: Target, version: int) -> Fields:
    marker = {"producer_id": 1, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
    topics = [{"name": target.name(), "partition_indexes": [0]}]
    return {"markers": [{**marker, "topics": topics}]}


def _write_txn_markers_wanted(version: int, fields: Fields) -> Wanted:
    return {"markers.0.topics.0.partitions.0.error_code": "UNKNOWN_TOPIC_OR_PARTITION"}


def _describe_transactions(target: Target, version: int) -> Fields:
    return {"transactional_ids": [target.open_transaction(target.topic()).name]}


def _describe_transactions_wanted(version: int, fields: Fields) -> Wanted:
    at = "transaction_states.0."
    return {
        at + "error_code": "NONE",
        at + "transactional_id": fields["transactional_ids"][0],
        at + "transaction_state": "Ongoing",
        at + "transaction_timeout_ms": 60_000,
    }


def _describe_producers(target: Target, version: int) -> Fields:
    topic = target.topic()
    target.produced(topic, batch(b"a", producer_id=987_654_321, producer_epoch=0, base_sequence=0))
    return {"topics": [{"name": topic.name, "partition_indexes": [0]}]}


def _describe_producers_wanted(version: int, fields: Fields) -> Wanted:
    at = "topics.0.partitions.0."
    wanted = {at + "error_code": "NONE", at + "active_producers.0.producer_id": 987_654_321}
    return {**wanted, at + "active_producers.0.last_sequence": 0, at + "active_producers.0.coordinator_epoch": -1}


# -- topics and settings


def _create_topics(target: Target, version: int) -> Fields:
    topic = {"name": target.name(), "num_partitions": 3, "replication_factor": 1, "assignments": [], "configs": []}
    return {"topics": [topic], "validate_only": True}


def _create_topics_wanted(version: int, fields: Fields) -> Wanted:
    wanted = {"topics.0.error_code": "NONE", "topics.0.name": fields["topics"][0]["name"]}
    return wanted | ({"topics.0.num_partitions": 3, "topics.0.replication_factor": 1} if version >= 5 else {})


def _delete_topics(target: Target, version: int) -> Fields:
    topic = target.topic()
    return {"topic_names": [topic.name], "topics": [{"name": topic.name, "topic_id": None}]}


def _delete_topics_wanted(version: int, fields: Fields) -> Wanted:
    return {"responses.0.error_code": "NONE", "responses.0.name": fields["topic_names"][0]}


def _create_partitions(target: Target, version: int) -> Fields:
    return {"topics": [{"name": target.topic().name, "count": 2, "assignments": None}]}


def _create_partitions_wanted(version: int, fields: Fields) -> Wanted:
    return {"results.0.error_code": "NONE", "results.0.name": fields["topics"][0]["name"]}


def _describe_configs(target: Target, version: int) -> Fields:
    name = target.topic(retention_ms=5000).name
    resource = {"resource_type": _TOPIC, "resource_name": name, "configuration_keys": ["retention.ms"]}
    return {"resources": [resource]}


def _describe_configs_wanted(version: int, fields: Fields) -> Wanted:
    at = "results.0."
    wanted = {at + "error_code": "NONE", at + "resource_type": _TOPIC}
    wanted |= {at + "configs.0.name": "retention.ms", at + "configs.0.value": "5000"}
    wanted |= {at + "configs.0.read_only": False, at + "configs.0.is_sensitive": False}
    wanted[at + "configs.0.config_source"] = 1
    return wanted | ({at + "configs.0.config_type": 5} if version >= 3 else {})


def _alter_configs(target: Target, version: int) -> Fields:
    configs = [{"name": "retention.ms", "value": "5000", "config_operation": 0}]
    return {"resources": [{"resource_type": _TOPIC, "resource_name": target.topic().name, "configs": configs}]}


def _alter_configs_wanted(version: int, fields: Fields) -> Wanted:
    at = "responses.0."
    return {at + "error_code": "NONE", at + "resource_name": fields["resources"][0]["resource_name"]}


def _describe_log_dirs(target: Target, version: int) -> Fields:
    topic = target.topic()
    target.produced(topic, batch(b"a"))
    return {"topics": [{"topic": topic.name, "partitions": [0]}]}


def _describe_log_dirs_wanted(version: int, fields: Fields) -> Wanted:
    at = "results.0."
    wanted = {at + "error_code": "NONE", at + "topics.0.name": fields["topics"][0]["topic"]}
    wanted |= {at + "topics.0.partitions.0.offset_lag": 0, at + "topics.0.partitions.0.is_future_key": False}
    return wanted | ({"error_code": "NONE"} if version >= 3 else {})


def _elect_leaders(target: Target, version: int) -> Fields:
    return {"topic_partitions": [{"topic": target.topic().name, "partitions": [0]}]}


def _elect_leaders_wanted(version: int, fields: Fields) -> Wanted:
    at = "replica_election_results.0.partition_result.0."
    wanted = {at + "error_code": "ELECTION_NOT_NEEDED", at + "partition_id": 0}
    return wanted | ({"error_code": "NONE"} if version >= 1 else {})


def _alter_reassignments(target: Target, version: int) -> Fields:
    partition = {"partition_index": 0, "replicas": None}
    return {"topics": [{"name": target.topic().name, "partitions": [partition]}]}


def _alter_reassignments_wanted(version: int, fields: Fields) -> Wanted:
    return {"error_code": "NONE", "responses.0.partitions.0.error_code": "NO_REASSIGNMENT_IN_PROGRESS"}


def _list_reassignments(target: Target, version: int) -> Fields:
    return {"topics": [{"name": target.topic().name, "partition_indexes": [0]}]}


def _list_reassignments_wanted(version: int, fields: Fields) -> Wanted:
    return {"error_code": "NONE", "topics": []}


def _describe_quorum(target: Target, version: int) -> Fields:
    return {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}


def _describe_quorum_wanted(version: int, fields: Fields) -> Wanted:
    return {
        "error_code": "NONE",
        "topics.0.topic_name": "__cluster_metadata",
        "topics.0.partitions.0.error_code": "NONE",
    }


def _describe_topic_partitions(target: Target, version: int) -> Fields:
    return {"topics": [{"name": target.topic(2).name}]}


def _describe_topic_partitions_wanted(version: int, fields: Fields) -> Wanted:
    name = fields["topics"][0]["name"]
    return {
        "topics.0.error_code": "NONE",
        "topics.0.name": name,
        "topics.0.partitions.1.error_code": "NONE",
        "topics.0.partitions.1.partition_index": 1,
        "next_cursor": None,
    }


def _empty(target: Target, version: int) -> Fields:
    return {}


_SAMPLES = [
    Sample("Produce", range(3, 14), _produce, _produce_wanted),
    Sample("Fetch", range(4, 19), _fetch, _fetch_wanted),
    Sample("ListOffsets", range(1, 12), _list_offsets, _list_offsets_wanted),
    Sample("Metadata", range(14), _metadata, _metadata_wanted),
    Sample("OffsetCommit", range(2, 11), _offset_commit, _offset_commit_wanted),
    Sample("OffsetFetch", range(1, 11), _offset_fetch, _offset_fetch_wanted),
    Sample("FindCoordinator", range(7), _find_coordinator, _find_coordinator_wanted),
    Sample("JoinGroup", range(10), _join_group, _join_group_wanted),
    Sample("Heartbeat", range(5), _heartbeat, _unknown_member),
    Sample("LeaveGroup", range(6), _leave_group, _leave_group_wanted),
    Sample("SyncGroup", range(6), _sync_group, _unknown_member),
    Sample("DescribeGroups", range(7), _describe_groups, _describe_groups_wanted),
    Sample("ListGroups", range(6), _empty, _no_error),
    Sample("ApiVersions", range(5), _empty, _no_error),
    Sample("CreateTopics", range(2, 8), _create_topics, _create_topics_wanted),
    Sample("DeleteTopics", range(1, 7), _delete_topics, _delete_topics_wanted),
    Sample("DeleteRecords", range(3), _delete_records, _delete_records_wanted),
    Sample("InitProducerId", range(6), _empty, _init_producer_id_wanted),
    Sample("OffsetForLeaderEpoch", range(2, 5), _leader_epoch, _leader_epoch_wanted),
    Sample("AddPartitionsToTxn", range(6), _transaction, _add_partitions_wanted),
    Sample("AddOffsetsToTxn", range(5), _transaction, _no_error),
    Sample("EndTxn", range(6), _end_txn, _end_txn_wanted),
    Sample("WriteTxnMarkers", range(1, 3), _write_txn_markers, _write_txn_markers_wanted),
    Sample("TxnOffsetCommit", range(6), _txn_offset_commit, _txn_offset_commit_wanted),
    Sample("DescribeConfigs", range(1, 5), _describe_configs, _describe_configs_wanted),
    Sample("AlterConfigs", range(3), _alter_configs, _alter_configs_wanted),
    Sample("DescribeLogDirs", range(1, 6), _describe_log_dirs, _describe_log_dirs_wanted),
    Sample("CreatePartitions", range(4), _create_partitions, _create_partitions_wanted),
    Sample("DeleteGroups", range(3), _delete_groups, _delete_groups_wanted),
    Sample("ElectLeaders", range(3), _elect_leaders, _elect_leaders_wanted),
    Sample("IncrementalAlterConfigs", range(2), _alter_configs, _alter_configs_wanted),
    Sample("AlterPartitionReassignments", range(2), _alter_reassignments, _alter_reassignments_wanted),
    Sample("ListPartitionReassignments", range(1), _list_reassignments, _list_reassignments_wanted),
    Sample("OffsetDelete", range(1), _offset_delete, _offset_delete_wanted),
    Sample("DescribeQuorum", range(3), _describe_quorum, _describe_quorum_wanted),
    Sample("UpdateFeatures", range(3), _empty, _no_error),
    Sample("DescribeCluster", range(3), _empty, _no_error),
    Sample("DescribeProducers", range(1), _describe_producers, _describe_producers_wanted),
    Sample("DescribeTransactions", range(1), _describe_transactions, _describe_transactions_wanted),
    Sample("ListTransactions", range(3), _empty, _no_error),
    Sample("ListConfigResources", range(2), _empty, _no_error),
    Sample("DescribeTopicPartitions", range(1), _describe_topic_partitions, _describe_topic_partitions_wanted),
]
_ADVERTISED_FROM = {"Produce": 0}
"""Apache Kafka advertises these for old versions of librdkafka, and refuses them (KIP-896)."""

for _sample in _SAMPLES:
    _lowest = _ADVERTISED_FROM.get(_sample.api, _sample.versions.start)
    add(
        f"versions.{_sample.api}_range",
        f"It has the versions of {_sample.api} that Apache Kafka 4.3.1 has.",
        partial(_range_of, _sample, _lowest),
    )
    for _version in _sample.versions:
        add(
            f"versions.{_sample.api}_v{_version}",
            f"It answers a request of {_sample.api} v{_version}.",
            partial(_version_of, _sample, _version),
        )
