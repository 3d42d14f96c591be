"""The records of `__share_group_state`: what share groups (KIP-932) have delivered of each partition.

    key     0000 | group_id: string | topic_id: uuid | partition: int32        a snapshot: all that is known
    key     0001 | the same                                                    an update: what has changed since
    value   0000 | epochs | start_offset: int64 | ... | state_batches | tag 0: delivery_complete_count: int32

Source in Kafka: `ShareCoordinatorRecordHelpers`, `ShareCoordinatorRecordSerde`; `ShareSnapshot*.json`,
`ShareUpdate*.json`.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from odradek.messages.coordinators.coordinator_records import CoordinatorRecord, RecordType, decode, encode, to_json
from odradek.messages.field_types import INT8, INT16, INT32, INT64, STRING, UUID_FIELD, Array
from odradek.messages.schema import Field, Schema

SHARE_SNAPSHOT_TYPE = 0
SHARE_UPDATE_TYPE = 1


class ShareKey(NamedTuple):
    """A partition of a topic, as a share group sees it."""

    group_id: str
    topic_id: UUID
    partition: int


class WrittenBatch(NamedTuple):
    """A range of records in the same state."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class ShareSnapshot(NamedTuple):
    """All that is known of a partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    create_timestamp: int
    write_timestamp: int
    state_batches: tuple[WrittenBatch, ...]
    delivery_complete_count: int = -1


class ShareUpdate(NamedTuple):
    """What has changed since the last snapshot, or the last update."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    state_batches: tuple[WrittenBatch, ...]
    delivery_complete_count: int = -1


_KEY = Schema(ShareKey, (Field("group_id", STRING), Field("topic_id", UUID_FIELD), Field("partition", INT32)))
_BATCH = Schema(
    WrittenBatch,
    (
        Field("first_offset", INT64),
        Field("last_offset", INT64),
        Field("delivery_state", INT8),
        Field("delivery_count", INT16),
    ),
    flexible_since=0,
)
_COMPLETE_COUNT = Field("delivery_complete_count", INT32, tag=0)
SHARE_TYPES = {
    SHARE_SNAPSHOT_TYPE: RecordType(
        _KEY,
        Schema(
            ShareSnapshot,
            (
                Field("snapshot_epoch", INT32),
                Field("state_epoch", INT32),
                Field("leader_epoch", INT32),
                Field("start_offset", INT64),
                _COMPLETE_COUNT,
                Field("create_timestamp", INT64),
                Field("write_timestamp", INT64),
                Field("state_batches", Array(_BATCH)),
            ),
            flexible_since=0,
        ),
    ),
    SHARE_UPDATE_TYPE: RecordType(
        _KEY,
        Schema(
            ShareUpdate,
            (
                Field("snapshot_epoch", INT32),
                Field("leader_epoch", INT32),
                Field("start_offset", INT64),
                _COMPLETE_COUNT,
                Field("state_batches", Array(_BATCH)),
            ),
            flexible_since=0,
        ),
    ),
}
"""The records by the number of their type."""


def decode_share_record(key: bytes | None, value: bytes | None) -> CoordinatorRecord:
    """Read a record.

    Raises:
        UnknownCoordinatorRecordError: Its type is not known; Kafka ignores it.
        FormatError: It has no key, is cut short, or has an unknown version.
    """
    return decode(SHARE_TYPES, key, value)


def encode_share_record(key: ShareKey, value: ShareSnapshot | ShareUpdate | None) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record; None makes a tombstone."""
    number = SHARE_UPDATE_TYPE if isinstance(value, ShareUpdate) else SHARE_SNAPSHOT_TYPE
    return encode(SHARE_TYPES, CoordinatorRecord(number, key, 0, value))


def share_record_json(key: bytes | None, value: bytes | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return key and value of a record as Kafka's dump tool prints them; None for a tombstone.

    Raises:
        UnknownCoordinatorRecordError: Its type is not known.
        FormatError: It has no key, is cut short, or has an unknown version.
    """
    return to_json(SHARE_TYPES, decode(SHARE_TYPES, key, value))
