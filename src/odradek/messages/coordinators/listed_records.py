"""Records of coordinators that are listed, but never replayed: those of share groups and of Streams groups.

    __consumer_offsets      types 4, 10 to 15, 17 to 23     groups: members, epochs, assignments, topologies
    __share_group_state     types 0 and 1                   what a share group has delivered of a partition

Type 4, the partitions of the topics of a group of KIP-848, was written before Apache Kafka 4.1.

Source in Kafka: `ShareGroup*.json`, `StreamsGroup*.json`, `ConsumerGroupPartitionMetadata*.json`,
`ShareSnapshot*.json`, `ShareUpdate*.json`.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from odradek.messages.coordinators.coordinator_records import RecordType, decode, to_json
from odradek.messages.field_types import (
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UINT16,
    UUID_FIELD,
    Array,
    Nullable,
)
from odradek.messages.schema import LATEST, Field, Schema


def _record(name: str, *fields: Field, flexible_since: int = 0, **defaults: Any) -> Schema[Any]:
    """Return the schema of a record that needs no class of its own; fields with a tag need defaults."""
    names = [field.name for field in fields]
    made = namedtuple(name, names, defaults=[defaults.get(field, ()) for field in names])  # type: ignore[misc]
    return Schema(made, fields, flexible_since=flexible_since)


def _key(name: str, *fields: Field) -> Schema[Any]:
    return _record(name, *fields, flexible_since=LATEST)


_STRINGS, _INT16S, _INT32S = Array(STRING), Array(INT16), Array(INT32)
_GROUP_KEY = _key("GroupKey", Field("group_id", STRING))
_MEMBER_KEY = _key("MemberKey", Field("group_id", STRING), Field("member_id", STRING))
_TARGET_EPOCH = _record(
    "TargetAssignmentMetadata",
    Field("assignment_epoch", INT32),
    Field("assignment_timestamp", INT64, tag=0),
    assignment_timestamp=0,
)
_PAIRS = Array(_record("KeyValue", Field("key", STRING), Field("value", STRING)))

_TOPIC_METADATA = _record(
    "TopicMetadata",
    Field("topic_id", UUID_FIELD),
    Field("topic_name", STRING),
    Field("num_partitions", INT32),
    Field(
        "partition_metadata",
        Array(_record("PartitionMetadata", Field("partition", INT32), Field("racks", _STRINGS))),
    ),
)

_SHARED_PARTITIONS = Array(_record("TopicPartitions", Field("topic_id", UUID_FIELD), Field("partitions", _INT32S)))
_SHARED_TOPICS = Array(
    _record(
        "TopicPartitionsInfo",
        Field("topic_id", UUID_FIELD),
        Field("topic_name", STRING),
        Field("partitions", _INT32S),
    )
)
_DELETED_TOPICS = Array(_record("TopicInfo", Field("topic_id", UUID_FIELD), Field("topic_name", STRING)))

_TARGET_TASKS = Array(_record("TaskIds", Field("subtopology_id", STRING), Field("partitions", _INT32S)))
_TASKS = Array(
    _record(
        "TaskIds",
        Field("subtopology_id", STRING),
        Field("partitions", _INT32S),
        Field("assignment_epochs", Array(INT32, nullable=True), tag=0),
    )
)
_MADE_TOPICS = Array(
    _record(
        "TopicInfo",
        Field("name", STRING),
        Field("partitions", INT32),
        Field("replication_factor", INT16),
        Field("topic_configs", _PAIRS),
    )
)
_SUBTOPOLOGY = _record(
    "Subtopology",
    Field("subtopology_id", STRING),
    Field("source_topics", _STRINGS),
    Field("source_topic_regex", _STRINGS),
    Field("state_changelog_topics", _MADE_TOPICS),
    Field("repartition_sink_topics", _STRINGS),
    Field("repartition_source_topics", _MADE_TOPICS),
    Field(
        "copartition_groups",
        Array(
            _record(
                "CopartitionGroup",
                Field("source_topics", _INT16S),
                Field("source_topic_regex", _INT16S),
                Field("repartition_source_topics", _INT16S),
            )
        ),
    ),
)

LISTED_GROUP_TYPES = {
    4: RecordType(_GROUP_KEY, _record("ConsumerGroupPartitionMetadata", Field("topics", Array(_TOPIC_METADATA)))),
    10: RecordType(
        _MEMBER_KEY,
        _record(
            "ShareGroupMemberMetadata",
            Field("rack_id", NULLABLE_STRING),
            Field("client_id", STRING),
            Field("client_host", STRING),
            Field("subscribed_topic_names", _STRINGS),
        ),
    ),
    11: RecordType(_GROUP_KEY, _record("ShareGroupMetadata", Field("epoch", INT32), Field("metadata_hash", INT64))),
    12: RecordType(_GROUP_KEY, _TARGET_EPOCH),
    13: RecordType(_MEMBER_KEY, _record("ShareGroupTarget", Field("topic_partitions", _SHARED_PARTITIONS))),
    14: RecordType(
        _MEMBER_KEY,
        _record(
            "ShareGroupCurrentAssignment",
            Field("member_epoch", INT32),
            Field("previous_member_epoch", INT32),
            Field("state", INT8),
            Field("assigned_partitions", _SHARED_PARTITIONS),
        ),
    ),
    15: RecordType(
        _GROUP_KEY,
        _record(
            "ShareGroupStatePartitionMetadata",
            Field("initializing_topics", _SHARED_TOPICS),
            Field("initialized_topics", _SHARED_TOPICS),
            Field("deleting_topics", _DELETED_TOPICS),
        ),
    ),
    17: RecordType(
        _GROUP_KEY,
        _record(
            "StreamsGroupMetadata",
            Field("epoch", INT32),
            Field("metadata_hash", INT64),
            Field("validated_topology_epoch", INT32, tag=0),
            Field(
                "last_assignment_configs",
                Array(_record("LastAssignmentConfig", Field("key", STRING), Field("value", STRING)), nullable=True),
                tag=1,
            ),
            validated_topology_epoch=-1,
        ),
    ),
    19: RecordType(
        _MEMBER_KEY,
        _record(
            "StreamsGroupMemberMetadata",
            Field("instance_id", NULLABLE_STRING),
            Field("rack_id", NULLABLE_STRING),
            Field("client_id", STRING),
            Field("client_host", STRING),
            Field("rebalance_timeout_ms", INT32),
            Field("topology_epoch", INT32),
            Field("process_id", STRING),
            Field(
                "user_endpoint",
                Nullable(_record("Endpoint", Field("host", STRING), Field("port", UINT16)), tagged=False),
            ),
            Field("client_tags", _PAIRS),
        ),
    ),
    20: RecordType(_GROUP_KEY, _TARGET_EPOCH),
    21: RecordType(
        _MEMBER_KEY,
        _record(
            "StreamsGroupTarget",
            Field("active_tasks", _TARGET_TASKS),
            Field("standby_tasks", _TARGET_TASKS),
            Field("warmup_tasks", _TARGET_TASKS),
        ),
    ),
    22: RecordType(
        _MEMBER_KEY,
        _record(
            "StreamsGroupCurrentAssignment",
            Field("member_epoch", INT32),
            Field("previous_member_epoch", INT32),
            Field("state", INT8),
            Field("active_tasks", _TASKS),
            Field("standby_tasks", _TASKS),
            Field("warmup_tasks", _TASKS),
            Field("active_tasks_pending_revocation", _TASKS),
            Field("standby_tasks_pending_revocation", _TASKS),
            Field("warmup_tasks_pending_revocation", _TASKS),
        ),
    ),
    23: RecordType(
        _GROUP_KEY,
        _record("StreamsGroupTopology", Field("epoch", INT32), Field("subtopologies", Array(_SUBTOPOLOGY))),
    ),
}
"""The records of `__consumer_offsets` about share groups and Streams groups, by the number of their type."""

_SHARE_KEY = _key("ShareKey", Field("group_id", STRING), Field("topic_id", UUID_FIELD), Field("partition", INT32))
_STATE_BATCHES = Array(
    _record(
        "StateBatch",
        Field("first_offset", INT64),
        Field("last_offset", INT64),
        Field("delivery_state", INT8),
        Field("delivery_count", INT16),
    )
)
SHARE_TYPES = {
    0: RecordType(
        _SHARE_KEY,
        _record(
            "ShareSnapshot",
            Field("snapshot_epoch", INT32),
            Field("state_epoch", INT32),
            Field("leader_epoch", INT32),
            Field("start_offset", INT64),
            Field("delivery_complete_count", INT32, tag=0),
            Field("create_timestamp", INT64),
            Field("write_timestamp", INT64),
            Field("state_batches", _STATE_BATCHES),
            delivery_complete_count=-1,
        ),
    ),
    1: RecordType(
        _SHARE_KEY,
        _record(
            "ShareUpdate",
            Field("snapshot_epoch", INT32),
            Field("leader_epoch", INT32),
            Field("start_offset", INT64),
            Field("delivery_complete_count", INT32, tag=0),
            Field("state_batches", _STATE_BATCHES),
            delivery_complete_count=-1,
        ),
    ),
}


def share_record_json(key: bytes | None, value: bytes | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return key and value of a record of `__share_group_state` as Kafka's dump tool prints them; None for a tombstone.

    Raises:
        UnknownCoordinatorRecordError: Its type is not known.
        FormatError: It has no key, is cut short, or has an unknown version.
    """
    return to_json(SHARE_TYPES, decode(SHARE_TYPES, key, value))
