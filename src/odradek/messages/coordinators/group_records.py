"""The records of `__consumer_offsets`: the positions of groups, and who is in them.

    key     0001 | group: string | topic: string | partition: int32           a committed offset (0000: old, the same)
    value   0004 | offset: int64 | leader_epoch: int32 | metadata | commit_timestamp: int64 | tag 0: topic_id

    key     0002 | group: string                                              a group of the classic protocol
    key     0003, 0005 to 0008, 0010 | group_id: string ...                   a group of the consumer protocol
    key     000a to 000f | group_id: string ...                               a share group

The consumer protocol is that of KIP-848; of type 4 only tombstones are written. The records of Streams groups are only
listed.

Source in Kafka: `GroupCoordinatorRecordSerde`, `GroupCoordinatorRecordHelpers`; `*Key.json`, `*Value.json`.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple
from uuid import UUID

from odradek.errors import FormatError
from odradek.messages.coordinators.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, protocol_json
from odradek.messages.coordinators.coordinator_records import CoordinatorRecord, RecordType, decode, encode, to_json
from odradek.messages.coordinators.listed_records import LISTED_GROUP_TYPES
from odradek.messages.coordinators.share_group_records import SHARE_EPOCH, SHARE_HOLDINGS, SHARE_MEMBER, SHARE_STATE
from odradek.messages.field_types import BYTES, INT8, INT32, INT64, NULLABLE_STRING, STRING, UUID_FIELD, Array, Nullable
from odradek.messages.schema import Field, Schema, flexible
from odradek.messages.uuids import ZERO_UUID

LEGACY_OFFSET_COMMIT_TYPE = 0
OFFSET_COMMIT_TYPE = 1
GROUP_METADATA_TYPE = 2
OFFSET_COMMIT_VERSION = 4
EXPIRING_OFFSET_COMMIT_VERSION = 1
GROUP_METADATA_VERSION = 3
"""The versions that Kafka writes; an offset with an expiry time needs version 1."""

_TYPE_AND_SIZE = struct.Struct(">hh")
_CONSUMER_TYPES = frozenset((3, 4, 5, 6, 7, 8, 16))
_SHARE_TYPES = range(10, 16)
_STREAMS_TYPES = range(17, 24)

CONSUMER_PROTOCOL = "consumer"
SHARE_PROTOCOL = "share"
NO_LEADER_EPOCH = -1
NO_EXPIRY = -1


class OffsetCommitKey(NamedTuple):
    """The group and the partition of a committed offset."""

    group: str
    topic: str
    partition: int


class OffsetCommitValue(NamedTuple):
    """A committed offset: the next one to read. -1 and the zero id stand for unknown values."""

    offset: int
    metadata: str
    commit_timestamp: int
    leader_epoch: int = NO_LEADER_EPOCH
    expire_timestamp: int = NO_EXPIRY
    topic_id: UUID = ZERO_UUID


class GroupMetadataKey(NamedTuple):
    """A group of the classic protocol."""

    group: str


class MemberMetadata(NamedTuple):
    """A member of a group; its subscription and assignment are in the form of its protocol."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout: int
    subscription: bytes
    assignment: bytes
    group_instance_id: str | None = None
    rebalance_timeout: int = -1


class GroupMetadataValue(NamedTuple):
    """A generation of a group; without members the group is empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    members: tuple[MemberMetadata, ...] = ()
    current_state_timestamp: int = -1


class GroupKey(NamedTuple):
    """A group of the consumer protocol, or a share group."""

    group_id: str


class MemberKey(NamedTuple):
    """A member of such a group."""

    group_id: str
    member_id: str


class ConsumerGroupMetadataValue(NamedTuple):
    """The epoch of a group."""

    epoch: int
    metadata_hash: int = 0


class ClassicProtocol(NamedTuple):
    """A protocol that a classic member supports."""

    name: str
    metadata: bytes


class ClassicMemberMetadata(NamedTuple):
    """What is known of a member that uses the classic protocol."""

    session_timeout_ms: int
    supported_protocols: tuple[ClassicProtocol, ...]


class ConsumerGroupMemberMetadataValue(NamedTuple):
    """A member, and what it subscribed to; of one of the consumer protocol `classic_member_metadata` is None."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ClassicMemberMetadata | None = ClassicMemberMetadata(0, ())


class TargetAssignmentMetadataValue(NamedTuple):
    """The epoch of a group's target assignment."""

    assignment_epoch: int
    assignment_timestamp: int = 0


class TargetPartitions(NamedTuple):
    """Partitions of a topic by its id, for a member to get."""

    topic_id: UUID
    partitions: tuple[int, ...]


class TargetAssignmentMemberValue(NamedTuple):
    """The partitions that a member is to get."""

    topic_partitions: tuple[TargetPartitions, ...]


class TopicIdPartitions(NamedTuple):
    """Partitions of a topic by its id."""

    topic_id: UUID
    partitions: tuple[int, ...]
    assignment_epochs: tuple[int, ...] | None = ()


class CurrentMemberAssignmentValue(NamedTuple):
    """The partitions that a member has."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: tuple[TopicIdPartitions, ...]
    partitions_pending_revocation: tuple[TopicIdPartitions, ...]


class RegularExpressionKey(NamedTuple):
    """A pattern of topics in such a group."""

    group_id: str
    regular_expression: str


class RegularExpressionValue(NamedTuple):
    """The topics that a pattern matched."""

    topics: tuple[str, ...]
    version: int
    timestamp: int


_INT32S = Array(INT32)
_MEMBER = Schema(
    MemberMetadata,
    (
        Field("member_id", STRING),
        Field("group_instance_id", NULLABLE_STRING, since=3),
        Field("client_id", STRING),
        Field("client_host", STRING),
        Field("rebalance_timeout", INT32, since=1),
        Field("session_timeout", INT32),
        Field("subscription", BYTES),
        Field("assignment", BYTES),
    ),
)
_OFFSET_COMMIT = RecordType(
    Schema(OffsetCommitKey, (Field("group", STRING), Field("topic", STRING), Field("partition", INT32))),
    Schema(
        OffsetCommitValue,
        (
            Field("offset", INT64),
            Field("leader_epoch", INT32, since=3),
            Field("metadata", STRING),
            Field("commit_timestamp", INT64),
            Field("expire_timestamp", INT64, since=1, until=1, needed=True),
            Field("topic_id", UUID_FIELD, since=4, tag=0),
        ),
        latest=4,
        flexible_since=4,
    ),
)
_GROUP_KEY = Schema(GroupKey, (Field("group_id", STRING),))
_MEMBER_KEY = Schema(MemberKey, (Field("group_id", STRING), Field("member_id", STRING)))
_CLASSIC_PROTOCOL = Schema(ClassicProtocol, (Field("name", STRING), Field("metadata", BYTES)))
_CLASSIC_MEMBER = Schema(
    ClassicMemberMetadata,
    (Field("session_timeout_ms", INT32), Field("supported_protocols", Array(_CLASSIC_PROTOCOL))),
)
_TARGET_PARTITIONS = Schema(TargetPartitions, (Field("topic_id", UUID_FIELD), Field("partitions", _INT32S)))
_CURRENT_PARTITIONS = Schema(
    TopicIdPartitions,
    (
        Field("topic_id", UUID_FIELD),
        Field("partitions", _INT32S),
        Field("assignment_epochs", Array(INT32, nullable=True), tag=0),
    ),
)
_TARGET_EPOCH = flexible(
    TargetAssignmentMetadataValue, Field("assignment_epoch", INT32), Field("assignment_timestamp", INT64, tag=0)
)
_TARGET = flexible(TargetAssignmentMemberValue, Field("topic_partitions", Array(_TARGET_PARTITIONS)))


TYPES = {
    LEGACY_OFFSET_COMMIT_TYPE: _OFFSET_COMMIT,
    OFFSET_COMMIT_TYPE: _OFFSET_COMMIT,
    GROUP_METADATA_TYPE: RecordType(
        Schema(GroupMetadataKey, (Field("group", STRING),)),
        Schema(
            GroupMetadataValue,
            (
                Field("protocol_type", STRING),
                Field("generation", INT32),
                Field("protocol", NULLABLE_STRING),
                Field("leader", NULLABLE_STRING),
                Field("current_state_timestamp", INT64, since=2),
                Field("members", Array(_MEMBER)),
            ),
            latest=4,
            flexible_since=4,
        ),
    ),
    3: RecordType(
        _GROUP_KEY,
        flexible(ConsumerGroupMetadataValue, Field("epoch", INT32), Field("metadata_hash", INT64, tag=0)),
    ),
    4: LISTED_GROUP_TYPES[4],
    5: RecordType(
        _MEMBER_KEY,
        flexible(
            ConsumerGroupMemberMetadataValue,
            Field("instance_id", NULLABLE_STRING),
            Field("rack_id", NULLABLE_STRING),
            Field("client_id", STRING),
            Field("client_host", STRING),
            Field("subscribed_topic_names", Array(STRING)),
            Field("subscribed_topic_regex", NULLABLE_STRING),
            Field("rebalance_timeout_ms", INT32),
            Field("server_assignor", NULLABLE_STRING),
            Field("classic_member_metadata", Nullable(_CLASSIC_MEMBER, tagged=True), tag=0),
        ),
    ),
    6: RecordType(_GROUP_KEY, _TARGET_EPOCH),
    7: RecordType(_MEMBER_KEY, _TARGET),
    8: RecordType(
        _MEMBER_KEY,
        flexible(
            CurrentMemberAssignmentValue,
            Field("member_epoch", INT32),
            Field("previous_member_epoch", INT32),
            Field("state", INT8),
            Field("assigned_partitions", Array(_CURRENT_PARTITIONS)),
            Field("partitions_pending_revocation", Array(_CURRENT_PARTITIONS)),
        ),
    ),
    10: RecordType(_MEMBER_KEY, SHARE_MEMBER),
    11: RecordType(_GROUP_KEY, SHARE_EPOCH),
    12: RecordType(_GROUP_KEY, _TARGET_EPOCH),
    13: RecordType(_MEMBER_KEY, _TARGET),
    14: RecordType(_MEMBER_KEY, SHARE_HOLDINGS),
    15: RecordType(_GROUP_KEY, SHARE_STATE),
    16: RecordType(
        Schema(RegularExpressionKey, (Field("group_id", STRING), Field("regular_expression", STRING))),
        flexible(
            RegularExpressionValue,
            Field("topics", Array(STRING)),
            Field("version", INT64),
            Field("timestamp", INT64),
        ),
    ),
}


SHOWN_GROUP_TYPES = {**TYPES, **LISTED_GROUP_TYPES}
_LEGACY_OFFSET = 0
_VERSION_END = 2


def modern_key(key: bytes) -> tuple[str, str] | None:
    """Return the id and the kind of the group that a key is about, if it is none of the classic protocol.

    Returns:
        The id, and `consumer` (KIP-848), `share` or `streams`; None for a classic group and for an offset.
    """
    if len(key) < _TYPE_AND_SIZE.size:
        return None
    number, size = _TYPE_AND_SIZE.unpack_from(key)
    if number in _CONSUMER_TYPES:
        kind = CONSUMER_PROTOCOL
    elif number in _SHARE_TYPES:
        kind = SHARE_PROTOCOL
    elif number in _STREAMS_TYPES:
        kind = "streams"
    else:
        return None
    return key[_TYPE_AND_SIZE.size : _TYPE_AND_SIZE.size + size].decode("utf-8", "replace"), kind


def decode_group_record(key: bytes | None, value: bytes | None) -> CoordinatorRecord:
    """Read a record of `__consumer_offsets`.

    Raises:
        UnknownCoordinatorRecordError: Its type is not known.
        FormatError: It has no key, is cut short, or has an unknown version.
    """
    return decode(TYPES, key, value)


def encode_offset_commit(
    key: OffsetCommitKey, value: OffsetCommitValue | None, version: int | None = None
) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a committed offset; a value of None is a tombstone.

    Args:
        key: The group and the partition.
        value: The offset.
        version: The version of the value; the one that Kafka writes if None.
    """
    expires = value is not None and value.expire_timestamp != NO_EXPIRY
    written = EXPIRING_OFFSET_COMMIT_VERSION if expires else OFFSET_COMMIT_VERSION
    return encode(TYPES, CoordinatorRecord(OFFSET_COMMIT_TYPE, key, written if version is None else version, value))


def encode_group_metadata(
    group: str, value: GroupMetadataValue | None, version: int = GROUP_METADATA_VERSION
) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a group of the classic protocol; a value of None is a tombstone."""
    return encode(TYPES, CoordinatorRecord(GROUP_METADATA_TYPE, GroupMetadataKey(group), version, value))


def encode_group_record(
    number: int, key: GroupKey | MemberKey | RegularExpressionKey, value: Any
) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record of such a group; None is a tombstone."""
    return encode(TYPES, CoordinatorRecord(number, key, 0, value))


def group_record_json(key: bytes | None, value: bytes | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return key and value of a record as Kafka's dump tool prints them; None for a tombstone.

    The subscription and the assignment of a consumer group's members are decoded too.

    Raises:
        UnknownCoordinatorRecordError: Its type is not known.
        FormatError: It has no key, is cut short, or has an unknown version.
    """
    record = decode(SHOWN_GROUP_TYPES, key, value)
    if record.type == _LEGACY_OFFSET and record.version > 0:
        # The tool reads an offset under the oldest key in its oldest version only.
        raise FormatError(f"version {record.version} is unknown", position=_VERSION_END)
    key_json, value_json = to_json(SHOWN_GROUP_TYPES, record)
    group = record.value
    if isinstance(group, GroupMetadataValue) and group.protocol_type == CONSUMER_PROTOCOL and value_json is not None:
        for member, shown in zip(group.members, value_json["data"]["members"], strict=True):
            shown["subscription"] = protocol_json(SUBSCRIPTION, member.subscription) or shown["subscription"]
            shown["assignment"] = protocol_json(ASSIGNMENT, member.assignment) or shown["assignment"]
    return key_json, value_json
