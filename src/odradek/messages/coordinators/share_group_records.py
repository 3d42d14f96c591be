"""What the records of share groups (KIP-932) in `__consumer_offsets` say: their values, of types 10 to 15.

    10  a member            11  the group's epoch    12, 13  the target assignment, as in a consumer group (6, 7)
    14  what a member has   15  of which partitions there is a share state, or is to be

Their keys are those of consumer groups; see `group_records`.

Source in Kafka: `ShareGroup*.json`.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from odradek.messages.field_types import INT8, INT32, INT64, NULLABLE_STRING, STRING, UUID_FIELD, Array
from odradek.messages.schema import Field, Schema, flexible


class ShareGroupMemberMetadataValue(NamedTuple):
    """A member, and the topics that it names."""

    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]


class ShareGroupMetadataValue(NamedTuple):
    """The epoch of a group."""

    epoch: int
    metadata_hash: int


class SharePartitions(NamedTuple):
    """Partitions of a topic by its id."""

    topic_id: UUID
    partitions: tuple[int, ...]


class ShareGroupCurrentMemberAssignmentValue(NamedTuple):
    """The partitions that a member has."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: tuple[SharePartitions, ...]


class StatePartitions(NamedTuple):
    """Partitions of a topic by its id and its name."""

    topic_id: UUID
    topic_name: str
    partitions: tuple[int, ...]


class StateTopicName(NamedTuple):
    """A topic by its id and its name."""

    topic_id: UUID
    topic_name: str


class ShareGroupStatePartitionMetadataValue(NamedTuple):
    """The partitions whose share state is being made, or is there; the topics whose share state is being removed."""

    initializing_topics: tuple[StatePartitions, ...]
    initialized_topics: tuple[StatePartitions, ...]
    deleting_topics: tuple[StateTopicName, ...]


_INT32S = Array(INT32)
_SHARE_PARTITIONS = Schema(SharePartitions, (Field("topic_id", UUID_FIELD), Field("partitions", _INT32S)))
_STATE_PARTITIONS = Schema(
    StatePartitions,
    (Field("topic_id", UUID_FIELD), Field("topic_name", STRING), Field("partitions", _INT32S)),
)
_STATE_TOPIC = Schema(StateTopicName, (Field("topic_id", UUID_FIELD), Field("topic_name", STRING)))

SHARE_MEMBER = flexible(
    ShareGroupMemberMetadataValue,
    Field("rack_id", NULLABLE_STRING),
    Field("client_id", STRING),
    Field("client_host", STRING),
    Field("subscribed_topic_names", Array(STRING)),
)
SHARE_EPOCH = flexible(ShareGroupMetadataValue, Field("epoch", INT32), Field("metadata_hash", INT64))
SHARE_HOLDINGS = flexible(
    ShareGroupCurrentMemberAssignmentValue,
    Field("member_epoch", INT32),
    Field("previous_member_epoch", INT32),
    Field("state", INT8),
    Field("assigned_partitions", Array(_SHARE_PARTITIONS)),
)
SHARE_STATE = flexible(
    ShareGroupStatePartitionMetadataValue,
    Field("initializing_topics", Array(_STATE_PARTITIONS)),
    Field("initialized_topics", Array(_STATE_PARTITIONS)),
    Field("deleting_topics", Array(_STATE_TOPIC)),
)
