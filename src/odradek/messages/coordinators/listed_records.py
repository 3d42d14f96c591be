"""Records of coordinators that are listed, but never replayed: most are of Streams groups.

    __consumer_offsets      types 4, 17 to 23               groups: members, epochs, assignments, topologies

Type 4 is of groups of KIP-848: the partitions of their topics, which Apache Kafka wrote before 4.1.

Source in Kafka: `StreamsGroup*.json`, `ConsumerGroupPartitionMetadata*.json`.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, NamedTuple

from odradek.messages.coordinators.coordinator_records import RecordType
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
    FieldType,
    Nullable,
)
from odradek.messages.schema import LATEST, Field, Schema


class _Tagged(NamedTuple):
    """The type of a field with a tag, which is written only if it differs from its default."""

    type: FieldType
    tag: int
    default: Any = ()


def _record(record: str, /, flexible_since: int = 0, **fields: FieldType | _Tagged) -> Schema[Any]:
    """Return the schema of a record that needs no class of its own, by its fields and their types, in their order."""
    tagged = {name: kind if isinstance(kind, _Tagged) else _Tagged(kind, -1) for name, kind in fields.items()}
    made = namedtuple(record, tagged, defaults=[kind.default for kind in tagged.values()])  # type: ignore[misc]
    rows = (Field(name, kind.type, tag=kind.tag if kind.tag >= 0 else None) for name, kind in tagged.items())
    return Schema(made, tuple(rows), flexible_since=flexible_since)


def _key(record: str, /, **fields: FieldType) -> Schema[Any]:
    return _record(record, LATEST, **fields)


_STRINGS, _INT16S, _INT32S = Array(STRING), Array(INT16), Array(INT32)
_GROUP_KEY = _key("GroupKey", group_id=STRING)
_MEMBER_KEY = _key("MemberKey", group_id=STRING, member_id=STRING)
_TARGET_EPOCH = _record("TargetAssignmentMetadata", assignment_epoch=INT32, assignment_timestamp=_Tagged(INT64, 0, 0))
_PAIRS = Array(_record("KeyValue", key=STRING, value=STRING))

_TOPIC_METADATA = _record(
    "TopicMetadata",
    topic_id=UUID_FIELD,
    topic_name=STRING,
    num_partitions=INT32,
    partition_metadata=Array(_record("PartitionMetadata", partition=INT32, racks=_STRINGS)),
)

_TARGET_TASKS = Array(_record("TaskIds", subtopology_id=STRING, partitions=_INT32S))
_TASKS = Array(
    _record(
        "TaskIds", subtopology_id=STRING, partitions=_INT32S, assignment_epochs=_Tagged(Array(INT32, nullable=True), 0)
    )
)
_MADE_TOPICS = Array(
    _record("TopicInfo", name=STRING, partitions=INT32, replication_factor=INT16, topic_configs=_PAIRS)
)
_SUBTOPOLOGY = _record(
    "Subtopology",
    subtopology_id=STRING,
    source_topics=_STRINGS,
    source_topic_regex=_STRINGS,
    state_changelog_topics=_MADE_TOPICS,
    repartition_sink_topics=_STRINGS,
    repartition_source_topics=_MADE_TOPICS,
    copartition_groups=Array(
        _record(
            "CopartitionGroup", source_topics=_INT16S, source_topic_regex=_INT16S, repartition_source_topics=_INT16S
        )
    ),
)

LISTED_GROUP_TYPES = {
    4: RecordType(_GROUP_KEY, _record("ConsumerGroupPartitionMetadata", topics=Array(_TOPIC_METADATA))),
    17: RecordType(
        _GROUP_KEY,
        _record(
            "StreamsGroupMetadata",
            epoch=INT32,
            metadata_hash=INT64,
            validated_topology_epoch=_Tagged(INT32, 0, -1),
            last_assignment_configs=_Tagged(
                Array(_record("LastAssignmentConfig", key=STRING, value=STRING), nullable=True), 1
            ),
            stored_description_topology_epoch=_Tagged(INT32, 2, -1),
            failed_description_topology_epoch=_Tagged(INT32, 3, -1),
        ),
    ),
    19: RecordType(
        _MEMBER_KEY,
        _record(
            "StreamsGroupMemberMetadata",
            instance_id=NULLABLE_STRING,
            rack_id=NULLABLE_STRING,
            client_id=STRING,
            client_host=STRING,
            rebalance_timeout_ms=INT32,
            topology_epoch=INT32,
            process_id=STRING,
            user_endpoint=Nullable(_record("Endpoint", host=STRING, port=UINT16), tagged=False),
            client_tags=_PAIRS,
        ),
    ),
    20: RecordType(_GROUP_KEY, _TARGET_EPOCH),
    21: RecordType(
        _MEMBER_KEY,
        _record(
            "StreamsGroupTarget", active_tasks=_TARGET_TASKS, standby_tasks=_TARGET_TASKS, warmup_tasks=_TARGET_TASKS
        ),
    ),
    22: RecordType(
        _MEMBER_KEY,
        _record(
            "StreamsGroupCurrentAssignment",
            member_epoch=INT32,
            previous_member_epoch=INT32,
            state=INT8,
            active_tasks=_TASKS,
            standby_tasks=_TASKS,
            warmup_tasks=_TASKS,
            active_tasks_pending_revocation=_TASKS,
            standby_tasks_pending_revocation=_TASKS,
            warmup_tasks_pending_revocation=_TASKS,
        ),
    ),
    23: RecordType(_GROUP_KEY, _record("StreamsGroupTopology", epoch=INT32, subtopologies=Array(_SUBTOPOLOGY))),
}
"""The records of `__consumer_offsets` that are only listed, by the number of their type."""
