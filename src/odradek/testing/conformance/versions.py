"""Every version of every API: a small request that is valid, and the answer, which must follow its schema to the byte.

    _SAMPLES    the API, its versions, and what makes a request
    _want       what the answer holds; without any, no error

What an answer must tell of further cases is checked in the areas' own modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from odradek.kafka_version import KAFKA_VERSION, OLDER_KAFKA_VERSION
from odradek.testing.api_names import api_key_of, error_name
from odradek.testing.conformance.client_quotas import entry
from odradek.testing.conformance.suite import add
from odradek.testing.conformance.target import Target, Topic, batch, expect
from odradek.testing.plain_fields import plain_fields

Fields: TypeAlias = Mapping[str, Any]

_TOPIC = 2
_NOT_ASKED = -(1 << 31)
_PARTITION = "topics.0.partitions.0"
_LATEST_VERSION = 99
_API_VERSIONS_OF_4_4 = 5
_HIGHEST_OF_4_3 = {"ApiVersions": 4, "TxnOffsetCommit": 5, "DeleteGroups": 2}


class Sample(NamedTuple):
    """A request.

    Attributes:
        api: Kafka's name of the API.
        versions: The versions that Apache Kafka has.
        fields: Makes the request's fields, for a version.
    """

    api: str
    versions: range
    fields: Callable[[Target, int], Fields]


class Part(NamedTuple):
    """What a part of an answer holds.

    Attributes:
        path: Where the part is: `topics.0`; empty for all of the answer.
        fields: Its fields: an error is Kafka's name for it, and a function is called with the request's fields.
        since: The first version that has them.
        until: The last version that has them.
    """

    path: str
    fields: Fields
    since: int = 0
    until: int = _LATEST_VERSION


_wanted: dict[str, list[Part]] = {}


def _alter_client_quotas(target: Target, _: int) -> Fields:
    return {"entries": [entry({"client-id": target.name()}, producer_byte_rate=1e9)], "validate_only": True}


def _want(api: str, path: str, *, since: int = 0, until: int = _LATEST_VERSION, **fields: Any) -> None:
    _wanted.setdefault(api, []).append(Part(path, fields, since, until))


def _version_of(sample: Sample, version: int, target: Target) -> None:
    target.needs(sample.api, version)
    sent = sample.fields(target, version)
    found = plain_fields(target.call(sample.api, version, **sent))
    for part in _wanted.get(sample.api, [Part("", {"error_code": "NONE"})]):
        if not part.since <= version <= part.until:
            continue
        holder: Any = found
        for step in part.path.split(".") if part.path else ():
            holder = holder[int(step) if step.isdigit() else step]
        for name, wanted in part.fields.items():
            value = error_name(holder[name]) if name.endswith("error_code") else holder[name]
            expect(f"{part.path}.{name}".strip("."), value, wanted(sent) if callable(wanted) else wanted)


def _range_of(sample: Sample, lowest: int, target: Target) -> None:
    target.needs(sample.api)
    highest = sample.versions.stop - 1
    if target.advertised[api_key_of("ApiVersions")][1] < _API_VERSIONS_OF_4_4:
        highest = _HIGHEST_OF_4_3.get(sample.api, highest)
    expect(f"versions of {sample.api}", target.advertised[api_key_of(sample.api)], (lowest, highest))


def _one_topic(topic: Topic, **partition: Any) -> list[dict[str, Any]]:
    """Return a request's topic with one partition, whatever the API calls them."""
    names = dict.fromkeys(("name", "topic", "topic_name"), topic.name)
    return [{**names, "topic_id": topic.id, "partitions": [partition]}]


def _filled(target: Target, *values: bytes) -> Topic:
    """Return a new topic with records of these values."""
    topic = target.topic()
    target.produced(topic, batch(*values))
    return topic


# -- records


def _produce(target: Target, version: int) -> Fields:
    topic = target.topic()
    partition = {"index": 0, "records": batch(b"a")}
    return {"topic_data": [{"name": topic.name, "topic_id": topic.id, "partition_data": [partition]}]}


def _list_offsets(target: Target, version: int) -> Fields:
    return {"topics": _one_topic(_filled(target, b"a", b"b"), partition_index=0, timestamp=-1)}


def _consumer_heartbeat(target: Target, version: int) -> Fields:
    fields = {"group_id": target.group(), "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 60_000}
    return {**fields, "subscribed_topic_names": [target.topic().name], "topic_partitions": []}


def _share_heartbeat(target: Target, version: int) -> Fields:
    names = [target.topic().name]
    return {"group_id": target.group(), "member_id": "m", "member_epoch": 0, "subscribed_topic_names": names}


def _describe_share_offsets(target: Target, version: int) -> Fields:
    topics = [{"topic_name": target.topic().name, "partitions": [0]}]
    return {"groups": [{"group_id": target.group(), "topics": topics}]}


def _alter_share_offsets(target: Target, version: int) -> Fields:
    partition = {"partition_index": 7, "start_offset": 0}
    return {"group_id": target.group(), "topics": _one_topic(target.topic(), **partition)}


def _delete_share_offsets(target: Target, version: int) -> Fields:
    group = target.group()
    return {"group_id": group, "topics": [{"topic_name": f"{group}-none"}]}


def _leader_epoch(target: Target, version: int) -> Fields:
    return {"topics": _one_topic(_filled(target, b"a"), partition=0, leader_epoch=0)}


def _delete_records(target: Target, version: int) -> Fields:
    return {"topics": _one_topic(_filled(target, b"a", b"b"), partition_index=0, offset=1)}


# -- groups


def _offset_commit(target: Target, version: int, *, leader_epoch: int | None = None) -> Fields:
    one = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "m"}
    known = {} if leader_epoch is None else {"committed_leader_epoch": leader_epoch}
    return {"group_id": target.group(), "topics": _one_topic(target.topic(), **one, **known)}


def _offset_fetch(target: Target, version: int) -> Fields:
    committed = _offset_commit(target, 8, leader_epoch=0)
    target.call("OffsetCommit", 8, **committed)
    (topic,), group = committed["topics"], committed["group_id"]
    topics = [{"name": topic["name"], "topic_id": topic["topic_id"], "partition_indexes": [0]}]
    return {"group_id": group, "topics": topics, "groups": [{"group_id": group, "topics": topics}]}


def _find_coordinator(target: Target, version: int) -> Fields:
    group = target.group()
    return {"key": group, "key_type": 0, "coordinator_keys": [group]}


def _join_group(target: Target, version: int) -> Fields:
    return {"group_id": target.group(), "member_id": "", "protocols": [{"name": "range", "metadata": b"m"}]}


def _unknown_member(target: Target, version: int) -> Fields:
    """Return what SyncGroup, Heartbeat and LeaveGroup say of a member that the group does not have."""
    protocol = {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
    member = {"generation_id": 1, "member_id": "nobody", "members": [{"member_id": "nobody"}]}
    return {"group_id": target.group(), **member, **protocol}


def _offset_delete(target: Target, version: int) -> Fields:
    committed = _offset_commit(target, 8)
    target.call("OffsetCommit", 8, **committed)
    return committed


# -- transactions


def _transaction(target: Target, version: int) -> Fields:
    """Return a producer with no open transaction, and all that the APIs of transactions ask for."""
    topic, group, name = target.topic(), target.group(), target.name("transaction")
    made = target.transactional_producer(name)
    producer = {"transactional_id": name, "producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
    topics = [{"name": topic.name, "partitions": [0]}]
    old = {f"v3_and_below_{key}": value for key, value in {**producer, "topics": topics}.items()}
    transactions = [{**producer, "topics": topics}]
    return {**producer, **old, "transactions": transactions, "group_id": group, "topics": topics, "committed": True}


def _txn_offset_commit(target: Target, version: int) -> Fields:
    fields = _transaction(target, version)
    producer = {name: fields[name] for name in ("producer_id", "producer_epoch", "transactional_id", "group_id")}
    if version < 5:
        target.call("AddOffsetsToTxn", 3, **producer)
    one = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
    return {**producer, "topics": _one_topic(target.topic(), **one)}


def _write_txn_markers(target: Target, version: int) -> Fields:
    marker = {"producer_id": 1, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
    return {"markers": [{**marker, "topics": [{"name": target.name(), "partition_indexes": [0]}]}]}


def _describe_transactions(target: Target, version: int) -> Fields:
    return {"transactional_ids": [target.open_transaction(target.topic()).name]}


def _describe_producers(target: Target, version: int) -> Fields:
    topic = target.topic()
    target.produced(topic, batch(b"a", producer_id=987_654_321, producer_epoch=0, base_sequence=0))
    return {"topics": [{"name": topic.name, "partition_indexes": [0]}]}


# -- topics and settings


def _create_topics(target: Target, version: int) -> Fields:
    topic = {"name": target.name(), "num_partitions": 3, "replication_factor": 1, "assignments": [], "configs": []}
    return {"topics": [topic], "validate_only": True}


def _delete_topics(target: Target, version: int) -> Fields:
    topic = target.topic()
    return {"topic_names": [topic.name], "topics": [{"name": topic.name, "topic_id": None}]}


def _create_partitions(target: Target, version: int) -> Fields:
    return {"topics": [{"name": target.topic().name, "count": 2, "assignments": None}]}


def _describe_configs(target: Target, version: int) -> Fields:
    name = target.topic(retention_ms=5000).name
    return {"resources": [{"resource_type": _TOPIC, "resource_name": name, "configuration_keys": ["retention.ms"]}]}


def _alter_configs(target: Target, version: int) -> Fields:
    configs = [{"name": "retention.ms", "value": "5000", "config_operation": 0}]
    return {"resources": [{"resource_type": _TOPIC, "resource_name": target.topic().name, "configs": configs}]}


def _acl_filter(target: Target, version: int) -> Fields:
    names = {"resource_name_filter": target.name(), "principal_filter": None, "host_filter": None}
    one = {**names, "resource_type_filter": _TOPIC, "pattern_type_filter": 3, "operation": 3, "permission_type": 3}
    return {**one, "filters": [one]}


def _create_acls(target: Target, version: int) -> Fields:
    pattern = {"resource_type": _TOPIC, "resource_name": target.name(), "resource_pattern_type": 3}
    acl = {**pattern, "principal": "User:alice", "host": "*", "operation": 3, "permission_type": 3}
    return {"creations": [acl]}


def _describe_log_dirs(target: Target, version: int) -> Fields:
    return {"topics": [{"topic": _filled(target, b"a").name, "partitions": [0]}]}


def _elect_leaders(target: Target, version: int) -> Fields:
    return {"topic_partitions": [{"topic": target.topic().name, "partitions": [0]}]}


def _alter_reassignments(target: Target, version: int) -> Fields:
    partition = {"partition_index": 0, "replicas": None}
    return {"topics": [{"name": target.topic().name, "partitions": [partition]}]}


def _list_reassignments(target: Target, version: int) -> Fields:
    return {"topics": [{"name": target.topic().name, "partition_indexes": [0]}]}


def _describe_quorum(target: Target, version: int) -> Fields:
    return {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}


def _alter_users(target: Target, version: int) -> Fields:
    return {"deletions": [{"name": target.name("user"), "mechanism": 1}], "upsertions": []}


def _create_token(target: Target, version: int) -> Fields:
    owner = {"owner_principal_type": "User", "owner_principal_name": "alice"}
    return {**owner, "renewers": [{"principal_type": "User", "principal_name": "bob"}], "max_lifetime_ms": -1}


def _change_token(target: Target, version: int) -> Fields:
    return {"hmac": b"hmac", "renew_period_ms": -1, "expiry_time_period_ms": -1}


def _empty(target: Target, version: int) -> Fields:
    return {}


def _first_name(sent: Fields) -> Any:
    return sent["topics"][0]["name"]


_PRODUCED, _FETCHED, _CONFIG = "responses.0.partition_responses.0", "responses.0.partitions.0", "results.0.configs.0"
_GROUP_PARTITION, _PRODUCER = f"groups.0.{_PARTITION}", f"{_PARTITION}.active_producers.0"
_ADDED_BEFORE_V4 = "results_by_topic_v3_and_below.0.results_by_partition.0"
_ADDED = "results_by_transaction.0.topic_results.0.results_by_partition.0"
_ELECTED = "replica_election_results.0.partition_result.0"
_UNKNOWN_MEMBER = "UNKNOWN_MEMBER_ID"

_want("Produce", _PRODUCED, index=0, error_code="NONE", base_offset=0, log_append_time_ms=-1)
_want("Produce", "responses.0", until=12, name=lambda sent: sent["topic_data"][0]["name"])
_want("Produce", "responses.0", since=13, topic_id=lambda sent: sent["topic_data"][0]["topic_id"])
_want("Produce", _PRODUCED, since=5, log_start_offset=0)
_want("Produce", _PRODUCED, since=8, record_errors=[], error_message=None)
_want("Fetch", _FETCHED, error_code="NONE", high_watermark=1, last_stable_offset=1, partition_index=0)
_want("Fetch", _FETCHED, since=5, log_start_offset=0)
_want("Fetch", "", since=7, error_code="NONE", session_id=0)
_want("Fetch", _FETCHED, since=11, preferred_read_replica=-1)
_want("ListOffsets", _PARTITION, error_code="NONE", offset=2, timestamp=-1)
_want("ListOffsets", _PARTITION, since=4, leader_epoch=0)
_want("Metadata", "topics.0", error_code="NONE", name=_first_name)
_want("Metadata", _PARTITION, error_code="NONE")
_want("Metadata", "topics.0.partitions.1", error_code="NONE")
_want("Metadata", "topics.0", since=1, is_internal=False)
_want("Metadata", _PARTITION, since=5, offline_replicas=[])
_want("Metadata", "", since=8, until=10, cluster_authorized_operations=_NOT_ASKED)
_want("Metadata", "topics.0", since=8, topic_authorized_operations=_NOT_ASKED)
_want("OffsetCommit", _PARTITION, error_code="NONE", partition_index=0)
_want("OffsetFetch", "", since=2, until=7, error_code="NONE")
_want("OffsetFetch", _PARTITION, until=7, error_code="NONE", committed_offset=7, metadata="m")
_want("OffsetFetch", _PARTITION, since=5, until=7, committed_leader_epoch=0)
_want("OffsetFetch", "groups.0", since=8, error_code="NONE")
_want("OffsetFetch", _GROUP_PARTITION, since=8, error_code="NONE", committed_offset=7, metadata="m")
_want("OffsetFetch", _GROUP_PARTITION, since=8, committed_leader_epoch=0)
_want("FindCoordinator", "", until=3, error_code="NONE")
_want("FindCoordinator", "coordinators.0", since=4, error_code="NONE", key=lambda sent: sent["key"])
_want("JoinGroup", "", until=3, error_code="NONE", generation_id=1, protocol_name="range")
_want("JoinGroup", "members.0", until=3, metadata=b"m")
_want("JoinGroup", "", since=4, error_code="MEMBER_ID_REQUIRED", generation_id=-1)
_want("Heartbeat", "", error_code=_UNKNOWN_MEMBER)
_want("SyncGroup", "", error_code=_UNKNOWN_MEMBER)
_want("LeaveGroup", "", until=2, error_code=_UNKNOWN_MEMBER)
_want("LeaveGroup", "", since=3, error_code="NONE")
_want("LeaveGroup", "members.0", since=3, error_code=_UNKNOWN_MEMBER, member_id="nobody")
_want("DescribeGroups", "groups.0", group_id=lambda sent: sent["groups"][0], group_state="Dead")
_want("DescribeGroups", "groups.0", until=5, error_code="NONE")
_want("DescribeGroups", "groups.0", since=6, error_code="GROUP_ID_NOT_FOUND")
_want("CreateTopics", "topics.0", error_code="NONE", name=_first_name)
_want("CreateTopics", "topics.0", since=5, num_partitions=3, replication_factor=1)
_want("DeleteTopics", "responses.0", error_code="NONE", name=_first_name)
_want("DeleteRecords", _PARTITION, error_code="NONE", low_watermark=1)
_want("InitProducerId", "", error_code="NONE", producer_epoch=0)
_want("OffsetForLeaderEpoch", _PARTITION, error_code="NONE", leader_epoch=0, end_offset=1, partition=0)
_want("AddPartitionsToTxn", _ADDED_BEFORE_V4, until=3, partition_error_code="NONE")
_want("AddPartitionsToTxn", "", since=4, error_code="NONE")
_want("AddPartitionsToTxn", _ADDED, since=4, partition_error_code="NONE")
_want("EndTxn", "", error_code="NONE")
# KIP-890: the epoch that the next transaction has.
_want("EndTxn", "", since=5, producer_id=lambda sent: sent["producer_id"])
_want("EndTxn", "", since=5, producer_epoch=lambda sent: sent["producer_epoch"] + 1)
_want("WriteTxnMarkers", f"markers.0.{_PARTITION}", error_code="UNKNOWN_TOPIC_OR_PARTITION")
_want("TxnOffsetCommit", _PARTITION, error_code="NONE")
_want("DescribeAcls", "", error_code="SECURITY_DISABLED", resources=[])
_want("CreateAcls", "results.0", error_code="SECURITY_DISABLED")
_want("DeleteAcls", "filter_results.0", error_code="SECURITY_DISABLED", matching_acls=[])
_want("DescribeConfigs", "results.0", error_code="NONE", resource_type=_TOPIC)
_want("DescribeConfigs", _CONFIG, name="retention.ms", value="5000", config_source=1)
_want("DescribeConfigs", _CONFIG, read_only=False, is_sensitive=False)
_want("DescribeConfigs", _CONFIG, since=3, config_type=5)
for _api in ("AlterConfigs", "IncrementalAlterConfigs"):
    _want(_api, "responses.0", error_code="NONE", resource_name=lambda sent: sent["resources"][0]["resource_name"])
_want("DescribeLogDirs", "", since=3, error_code="NONE")
_want("DescribeLogDirs", "results.0", error_code="NONE")
_want("DescribeLogDirs", "results.0.topics.0", name=lambda sent: sent["topics"][0]["topic"])
_want("DescribeLogDirs", f"results.0.{_PARTITION}", offset_lag=0, is_future_key=False)
_want("CreatePartitions", "results.0", error_code="NONE", name=_first_name)
_want("DeleteGroups", "results.0", error_code="GROUP_ID_NOT_FOUND", group_id=lambda sent: sent["groups_names"][0])
_want("ElectLeaders", "", since=1, error_code="NONE")
_want("ElectLeaders", _ELECTED, error_code="ELECTION_NOT_NEEDED", partition_id=0)
_want("AlterPartitionReassignments", "", error_code="NONE")
_want("AlterPartitionReassignments", _FETCHED, error_code="NO_REASSIGNMENT_IN_PROGRESS")
_want("ListPartitionReassignments", "", error_code="NONE", topics=[])
_want("OffsetDelete", "", error_code="NONE")
_want("OffsetDelete", _PARTITION, error_code="NONE")
_want("DescribeClientQuotas", "", error_code="NONE", entries=[])
_want("AlterClientQuotas", "entries.0", error_code="NONE", error_message=None)
_want("DescribeUserScramCredentials", "", error_code="NONE")
_want("DescribeUserScramCredentials", "results.0", error_code="RESOURCE_NOT_FOUND", credential_infos=[])
_want("AlterUserScramCredentials", "results.0", error_code="RESOURCE_NOT_FOUND")
_NO_TOKENS = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
_want("CreateDelegationToken", "", error_code=_NO_TOKENS, token_id="", hmac=b"", principal_type="User")
_want("CreateDelegationToken", "", issue_timestamp_ms=-1, expiry_timestamp_ms=-1, max_timestamp_ms=-1)
_want("CreateDelegationToken", "", until=2, principal_name="ANONYMOUS")
_want("CreateDelegationToken", "", since=3, principal_name="alice")
_want("CreateDelegationToken", "", since=3, token_requester_principal_name="ANONYMOUS")  # noqa: S106
_want("RenewDelegationToken", "", error_code=_NO_TOKENS, expiry_timestamp_ms=-1)
_want("ExpireDelegationToken", "", error_code=_NO_TOKENS, expiry_timestamp_ms=-1)
_want("DescribeDelegationToken", "", error_code=_NO_TOKENS, tokens=[])
_want("DescribeQuorum", "", error_code="NONE")
_want("DescribeQuorum", "topics.0", topic_name="__cluster_metadata")
_want("DescribeQuorum", _PARTITION, error_code="NONE")
_want("DescribeProducers", _PARTITION, error_code="NONE")
_want("DescribeProducers", _PRODUCER, producer_id=987_654_321, last_sequence=0, coordinator_epoch=-1)
_want("DescribeTransactions", "transaction_states.0", error_code="NONE", transaction_state="Ongoing")
_want("DescribeTransactions", "transaction_states.0", transactional_id=lambda sent: sent["transactional_ids"][0])
_want("DescribeTransactions", "transaction_states.0", transaction_timeout_ms=60_000)
_want("ConsumerGroupHeartbeat", "", error_code="NONE", member_id="m", member_epoch=2)
_want("ConsumerGroupDescribe", "groups.0", error_code="GROUP_ID_NOT_FOUND")
_want("ShareGroupHeartbeat", "", error_code="NONE", member_id="m", member_epoch=2)
_want("ShareGroupDescribe", "groups.0", error_code="GROUP_ID_NOT_FOUND")
_want("DescribeShareGroupOffsets", "groups.0", error_code="NONE")
_want("DescribeShareGroupOffsets", _GROUP_PARTITION, error_code="NONE", start_offset=-1, partition_index=0)
_want("DescribeShareGroupOffsets", _GROUP_PARTITION, since=1, lag=-1)
_want("AlterShareGroupOffsets", "", error_code="NONE")
_want("AlterShareGroupOffsets", "responses.0.partitions.0", error_code="UNKNOWN_TOPIC_OR_PARTITION")
_want("DeleteShareGroupOffsets", "", error_code="GROUP_ID_NOT_FOUND")
_want("DescribeTopicPartitions", "", next_cursor=None)
_want("DescribeTopicPartitions", "topics.0", error_code="NONE", name=_first_name)
_want("DescribeTopicPartitions", "topics.0.partitions.1", error_code="NONE", partition_index=1)

# What it is told depends on metadata.version, see `api_versions`.
_want("UnregisterController", "")
_SAMPLES = [
    Sample("Produce", range(3, 14), _produce),
    Sample("Fetch", range(4, 19), lambda target, _: target.fetch_fields(_filled(target, b"a"), 0)),
    Sample("ListOffsets", range(1, 12), _list_offsets),
    Sample("Metadata", range(14), lambda target, _: {"topics": [{"name": target.topic(2).name, "topic_id": None}]}),
    Sample("OffsetCommit", range(2, 11), _offset_commit),
    Sample("OffsetFetch", range(1, 11), _offset_fetch),
    Sample("FindCoordinator", range(7), _find_coordinator),
    Sample("JoinGroup", range(10), _join_group),
    Sample("Heartbeat", range(5), _unknown_member),
    Sample("LeaveGroup", range(6), _unknown_member),
    Sample("SyncGroup", range(6), _unknown_member),
    Sample("DescribeGroups", range(7), lambda target, _: {"groups": [target.group()]}),
    Sample("ListGroups", range(6), _empty),
    Sample("ApiVersions", range(6), _empty),
    Sample("CreateTopics", range(2, 8), _create_topics),
    Sample("DeleteTopics", range(1, 7), _delete_topics),
    Sample("DeleteRecords", range(3), _delete_records),
    Sample("InitProducerId", range(6), _empty),
    Sample("OffsetForLeaderEpoch", range(2, 5), _leader_epoch),
    Sample("AddPartitionsToTxn", range(6), _transaction),
    Sample("AddOffsetsToTxn", range(5), _transaction),
    Sample("EndTxn", range(6), lambda target, _: {**target.open_transaction(target.topic()).fields, "committed": True}),
    Sample("WriteTxnMarkers", range(1, 3), _write_txn_markers),
    Sample("TxnOffsetCommit", range(7), _txn_offset_commit),
    # Without an authorizer; with one, these would be refused to most clients.
    Sample("DescribeAcls", range(1, 4), _acl_filter),
    Sample("CreateAcls", range(1, 4), _create_acls),
    Sample("DeleteAcls", range(1, 4), _acl_filter),
    Sample("DescribeConfigs", range(1, 5), _describe_configs),
    Sample("AlterConfigs", range(3), _alter_configs),
    Sample("DescribeLogDirs", range(1, 6), _describe_log_dirs),
    Sample("CreatePartitions", range(4), _create_partitions),
    # Nobody has logged in.
    Sample("CreateDelegationToken", range(1, 4), _create_token),
    Sample("RenewDelegationToken", range(1, 3), _change_token),
    Sample("ExpireDelegationToken", range(1, 3), _change_token),
    Sample("DescribeDelegationToken", range(1, 4), lambda *_: {"owners": None}),
    Sample("DeleteGroups", range(4), lambda target, _: {"groups_names": [target.group()]}),
    Sample("ElectLeaders", range(3), _elect_leaders),
    Sample("IncrementalAlterConfigs", range(2), _alter_configs),
    Sample("AlterPartitionReassignments", range(2), _alter_reassignments),
    Sample("ListPartitionReassignments", range(1), _list_reassignments),
    Sample("OffsetDelete", range(1), _offset_delete),
    Sample("DescribeClientQuotas", range(2), lambda *_: {"components": [], "strict": True}),
    Sample("AlterClientQuotas", range(2), _alter_client_quotas),
    Sample("DescribeUserScramCredentials", range(1), lambda target, _: {"users": [{"name": target.name("user")}]}),
    Sample("AlterUserScramCredentials", range(1), _alter_users),
    Sample("DescribeQuorum", range(3), _describe_quorum),
    Sample("UpdateFeatures", range(3), _empty),
    Sample("DescribeCluster", range(3), _empty),
    Sample("DescribeProducers", range(1), _describe_producers),
    Sample("DescribeTransactions", range(1), _describe_transactions),
    Sample("ListTransactions", range(3), _empty),
    Sample("ConsumerGroupHeartbeat", range(2), _consumer_heartbeat),
    Sample("ConsumerGroupDescribe", range(2), lambda target, _: {"group_ids": [target.group()]}),
    Sample("ShareGroupHeartbeat", range(1, 2), _share_heartbeat),
    Sample("ShareGroupDescribe", range(1, 2), lambda target, _: {"group_ids": [target.group()]}),
    Sample("DescribeShareGroupOffsets", range(2), _describe_share_offsets),
    Sample("AlterShareGroupOffsets", range(1), _alter_share_offsets),
    Sample("DeleteShareGroupOffsets", range(1), _delete_share_offsets),
    Sample("ListConfigResources", range(2), _empty),
    Sample("UnregisterController", range(1), lambda *_: {"controller_id": 77}),
    Sample("DescribeTopicPartitions", range(1), lambda target, _: {"topics": [{"name": target.topic(2).name}]}),
]
_ADVERTISED_FROM = {"Produce": 0}
"""Apache Kafka advertises these for old versions of librdkafka, and refuses them (KIP-896)."""

for _sample in _SAMPLES:
    _lowest = _ADVERTISED_FROM.get(_sample.api, _sample.versions.start)
    add(
        f"versions.{_sample.api}_range",
        f"It has the versions of {_sample.api} that Apache Kafka {KAFKA_VERSION} has, or {OLDER_KAFKA_VERSION}.",
        partial(_range_of, _sample, _lowest),
    )
    for _version in _sample.versions:
        add(
            f"versions.{_sample.api}_v{_version}",
            f"It answers a request of {_sample.api} v{_version}.",
            partial(_version_of, _sample, _version),
        )
