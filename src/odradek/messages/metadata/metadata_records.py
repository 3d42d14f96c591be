"""The records of `__cluster_metadata`: the state of the cluster, one change in each record (KIP-631).

    frame_version: uvarint = 1 | api_key: uvarint | version: uvarint | fields, flexible

    01 02 00 | 04 "odr" | topic_id: 16 bytes | 00                                     TopicRecord, no tags
    01 03 01 | partition_id: int32 | topic_id | replicas | isr | ... | 00             PartitionRecord v1

The record's key is null; this is its value. Records of unknown types and versions are kept as bytes: see
`UnknownRecord`.

Source in Kafka: `MetadataRecordSerde`, `AbstractApiMessageSerde`, `common/metadata/*.json` of `kafka-metadata`.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from odradek.buffers import Buffer
from odradek.errors import FormatError
from odradek.messages.field_types import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UINT16,
    UUID_FIELD,
    Array,
    FieldReader,
    FieldWriter,
)
from odradek.messages.schema import Field, Schema, flexible

FRAME_VERSION = 1
UNCHANGED_LEADER = -2
UNCHANGED_RECOVERY_STATE = -1

_INT32S = Array(INT32)
_STRINGS = Array(STRING)
_NULLABLE_INT32S = Array(INT32, nullable=True)
_UUIDS = Array(UUID_FIELD)
_NULLABLE_UUIDS = Array(UUID_FIELD, nullable=True)


class TopicRecord(NamedTuple):
    """A topic is created; its partitions follow."""

    name: str
    topic_id: UUID


class PartitionRecord(NamedTuple):
    """A partition is created, or (in a snapshot) has this state.

    `directories` names the log directory of each replica: zero is "not yet known".
    """

    partition_id: int
    topic_id: UUID
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    directories: tuple[UUID, ...] = ()
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


class PartitionChangeRecord(NamedTuple):
    """A partition changes; fields that are null or have their default stay as they were."""

    partition_id: int
    topic_id: UUID
    isr: tuple[int, ...] | None = None
    leader: int = UNCHANGED_LEADER
    replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    leader_recovery_state: int = UNCHANGED_RECOVERY_STATE
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None
    directories: tuple[UUID, ...] | None = None


class ConfigRecord(NamedTuple):
    """A setting gets a value, or with null returns to its default.

    `resource_type` is 2 for a topic and 4 for a broker; the broker named "" is every broker.
    """

    resource_type: int
    resource_name: str
    name: str
    value: str | None


class RemoveTopicRecord(NamedTuple):
    """A topic is deleted, with its partitions and settings."""

    topic_id: UUID


class UserScramCredentialRecord(NamedTuple):
    """A user gets what its password is checked by (SCRAM), which replaces what it had for the mechanism.

    `mechanism` is 1 for SCRAM-SHA-256 and 2 for SCRAM-SHA-512.
    """

    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        # Errors and logs show records, and by the keys a password can be guessed.
        return (
            f"UserScramCredentialRecord(name={self.name!r}, mechanism={self.mechanism}, iterations={self.iterations})"
        )


class RemoveUserScramCredentialRecord(NamedTuple):
    """A user can no longer log in by a mechanism of SCRAM."""

    name: str
    mechanism: int


class DelegationTokenRecord(NamedTuple):
    """A delegation token is created, or renewed: its owner may log in by it until it expires.

    Principals are like `User:alice`, times are in ms. A client's secret is not here, but made of the id.
    """

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int
    token_id: str


class RemoveDelegationTokenRecord(NamedTuple):
    """Nobody can log in by a delegation token any more."""

    token_id: str


class FeatureLevelRecord(NamedTuple):
    """A feature, `metadata.version` among them, has this level from here on; 0 is off."""

    name: str
    feature_level: int


class ProducerIdsRecord(NamedTuple):
    """The producer ids below `next_producer_id` are allocated."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


class Endpoint(NamedTuple):
    """Where a node listens."""

    name: str
    host: str
    port: int
    security_protocol: int


class SupportedFeature(NamedTuple):
    """The levels of a feature that a node supports."""

    name: str
    min_supported_version: int
    max_supported_version: int


class RegisterBrokerRecord(NamedTuple):
    """A broker registers."""

    broker_id: int
    incarnation_id: UUID
    broker_epoch: int
    end_points: tuple[Endpoint, ...]
    features: tuple[SupportedFeature, ...]
    rack: str | None
    is_migrating_zk_broker: bool = False
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[UUID, ...] = ()
    cordoned_log_dirs: tuple[UUID, ...] | None = None


class QuotaEntity(NamedTuple):
    """A part of what a quota is for: a user, a client id or an address; the name None is the default of its type."""

    entity_type: str
    entity_name: str | None


class ClientQuotaRecord(NamedTuple):
    """A quota of clients gets a value, or is removed."""

    entity: tuple[QuotaEntity, ...]
    key: str
    value: float = 0.0
    remove: bool = False


class UnregisterBrokerRecord(NamedTuple):
    """A broker is removed for good."""

    broker_id: int
    broker_epoch: int


class FenceBrokerRecord(NamedTuple):
    """A broker is no longer heard of."""

    id: int
    epoch: int


class UnfenceBrokerRecord(NamedTuple):
    """A broker is heard of again."""

    id: int
    epoch: int


class AccessControlEntryRecord(NamedTuple):
    """An access control list is created, which Kafka calls an ACL: who may, or may not, do what."""

    id: UUID
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class RemoveAccessControlEntryRecord(NamedTuple):
    """An access control list is deleted."""

    id: UUID


class BrokerRegistrationChangeRecord(NamedTuple):
    """The registration of a broker changes."""

    broker_id: int
    broker_epoch: int
    fenced: int = 0
    in_controlled_shutdown: int = 0
    log_dirs: tuple[UUID, ...] = ()
    cordoned_log_dirs: tuple[UUID, ...] | None = None


class UnregisterControllerRecord(NamedTuple):
    """A controller is removed for good; since Apache Kafka 4.4."""

    controller_id: int


class RegisterControllerRecord(NamedTuple):
    """A controller registers."""

    controller_id: int
    incarnation_id: UUID
    zk_migration_ready: bool
    end_points: tuple[Endpoint, ...]
    features: tuple[SupportedFeature, ...]


class NoOpRecord(NamedTuple):
    """Nothing changed: the controller is alive."""


class ZkMigrationStateRecord(NamedTuple):
    """The state of the migration from ZooKeeper."""

    zk_migration_state: int


class BeginTransactionRecord(NamedTuple):
    """A transaction begins: the records up to its end or abort take effect together."""

    name: str | None = None


class EndTransactionRecord(NamedTuple):
    """A transaction ends: its records take effect."""


class AbortTransactionRecord(NamedTuple):
    """A transaction is aborted: its records take no effect."""

    reason: str | None = None


class ClearElrRecord(NamedTuple):
    """The eligible leader replicas of a topic, or of all, are forgotten."""

    topic_name: str


class UnknownRecord(NamedTuple):
    """A record of an unknown type or version: its fields as bytes."""

    api_key: int
    version: int
    fields: bytes


_ENDPOINT = Schema(
    Endpoint, (Field("name", STRING), Field("host", STRING), Field("port", UINT16), Field("security_protocol", INT16))
)
_SUPPORTED_FEATURE = Schema(
    SupportedFeature,
    (Field("name", STRING), Field("min_supported_version", INT16), Field("max_supported_version", INT16)),
)
_QUOTA_ENTITY = Schema(QuotaEntity, (Field("entity_type", STRING), Field("entity_name", NULLABLE_STRING)))
_PARTITION = (Field("partition_id", INT32), Field("topic_id", UUID_FIELD))
_TOPIC_ID = Field("topic_id", UUID_FIELD)
_BROKER = (Field("broker_id", INT32), Field("broker_epoch", INT64))
_SCRAM_USER = (Field("name", STRING), Field("mechanism", INT8))
_FENCE = (Field("id", INT32), Field("epoch", INT64))


SCHEMAS: dict[int, Schema[Any]] = {
    0: flexible(
        RegisterBrokerRecord,
        Field("broker_id", INT32),
        Field("is_migrating_zk_broker", BOOL, since=2, needed=True),
        Field("incarnation_id", UUID_FIELD),
        Field("broker_epoch", INT64),
        Field("end_points", Array(_ENDPOINT)),
        Field("features", Array(_SUPPORTED_FEATURE)),
        Field("rack", NULLABLE_STRING),
        Field("fenced", BOOL),
        Field("in_controlled_shutdown", BOOL, since=1, needed=True),
        Field("log_dirs", _UUIDS, since=3, tag=0, needed=True),
        Field("cordoned_log_dirs", _NULLABLE_UUIDS, since=4, tag=1, needed=True),
        latest=4,
    ),
    1: flexible(UnregisterBrokerRecord, *_BROKER),
    2: flexible(TopicRecord, Field("name", STRING), _TOPIC_ID),
    3: flexible(
        PartitionRecord,
        *_PARTITION,
        Field("replicas", _INT32S),
        Field("isr", _INT32S),
        Field("removing_replicas", _INT32S),
        Field("adding_replicas", _INT32S),
        Field("leader", INT32),
        Field("leader_recovery_state", INT8, tag=0),
        Field("leader_epoch", INT32),
        Field("partition_epoch", INT32),
        Field("directories", _UUIDS, since=1, needed=True),
        Field("eligible_leader_replicas", _NULLABLE_INT32S, since=2, tag=1, needed=True),
        Field("last_known_elr", _NULLABLE_INT32S, since=2, tag=2, needed=True),
        latest=2,
    ),
    4: flexible(
        ConfigRecord,
        Field("resource_type", INT8),
        Field("resource_name", STRING),
        Field("name", STRING),
        Field("value", NULLABLE_STRING),
    ),
    5: flexible(
        PartitionChangeRecord,
        *_PARTITION,
        Field("isr", _NULLABLE_INT32S, tag=0),
        Field("leader", INT32, tag=1),
        Field("replicas", _NULLABLE_INT32S, tag=2),
        Field("removing_replicas", _NULLABLE_INT32S, tag=3),
        Field("adding_replicas", _NULLABLE_INT32S, tag=4),
        Field("leader_recovery_state", INT8, tag=5),
        Field("directories", _NULLABLE_UUIDS, since=1, tag=8, needed=True),
        Field("eligible_leader_replicas", _NULLABLE_INT32S, since=2, tag=6, needed=True),
        Field("last_known_elr", _NULLABLE_INT32S, since=2, tag=7, needed=True),
        latest=2,
    ),
    7: flexible(FenceBrokerRecord, *_FENCE),
    8: flexible(UnfenceBrokerRecord, *_FENCE),
    9: flexible(RemoveTopicRecord, _TOPIC_ID),
    10: flexible(
        DelegationTokenRecord,
        Field("owner", STRING),
        Field("requester", STRING),
        Field("renewers", _STRINGS),
        Field("issue_timestamp", INT64),
        Field("max_timestamp", INT64),
        Field("expiration_timestamp", INT64),
        Field("token_id", STRING),
    ),
    11: flexible(
        UserScramCredentialRecord,
        *_SCRAM_USER,
        Field("salt", BYTES),
        Field("stored_key", BYTES),
        Field("server_key", BYTES),
        Field("iterations", INT32),
    ),
    12: flexible(FeatureLevelRecord, Field("name", STRING), Field("feature_level", INT16)),
    14: flexible(
        ClientQuotaRecord,
        Field("entity", Array(_QUOTA_ENTITY)),
        Field("key", STRING),
        Field("value", FLOAT64),
        Field("remove", BOOL),
    ),
    15: flexible(ProducerIdsRecord, *_BROKER, Field("next_producer_id", INT64)),
    17: flexible(
        BrokerRegistrationChangeRecord,
        *_BROKER,
        Field("fenced", INT8, tag=0),
        Field("in_controlled_shutdown", INT8, since=1, tag=1, needed=True),
        Field("log_dirs", _UUIDS, since=2, tag=2, needed=True),
        Field("cordoned_log_dirs", _NULLABLE_UUIDS, since=3, tag=3, needed=True),
        latest=3,
    ),
    18: flexible(
        AccessControlEntryRecord,
        Field("id", UUID_FIELD),
        Field("resource_type", INT8),
        Field("resource_name", STRING),
        Field("pattern_type", INT8),
        Field("principal", STRING),
        Field("host", STRING),
        Field("operation", INT8),
        Field("permission_type", INT8),
    ),
    19: flexible(RemoveAccessControlEntryRecord, Field("id", UUID_FIELD)),
    20: flexible(NoOpRecord),
    21: flexible(ZkMigrationStateRecord, Field("zk_migration_state", INT8)),
    22: flexible(RemoveUserScramCredentialRecord, *_SCRAM_USER),
    23: flexible(BeginTransactionRecord, Field("name", NULLABLE_STRING, tag=0)),
    24: flexible(EndTransactionRecord),
    25: flexible(AbortTransactionRecord, Field("reason", NULLABLE_STRING, tag=0)),
    26: flexible(RemoveDelegationTokenRecord, Field("token_id", STRING)),
    27: flexible(
        RegisterControllerRecord,
        Field("controller_id", INT32),
        Field("incarnation_id", UUID_FIELD),
        Field("zk_migration_ready", BOOL),
        Field("end_points", Array(_ENDPOINT)),
        Field("features", Array(_SUPPORTED_FEATURE)),
    ),
    28: flexible(ClearElrRecord, Field("topic_name", STRING)),
    29: flexible(UnregisterControllerRecord, Field("controller_id", INT32)),
}
"""The schema of each type of record, by its api key."""

API_KEYS = {schema.record: api_key for api_key, schema in SCHEMAS.items()}

MetadataRecord: TypeAlias = (
    TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ConfigRecord
    | RemoveTopicRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
    | FeatureLevelRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
    | RegisterBrokerRecord
    | UnregisterBrokerRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | BrokerRegistrationChangeRecord
    | RegisterControllerRecord
    | UnregisterControllerRecord
    | NoOpRecord
    | ZkMigrationStateRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | ClearElrRecord
    | UnknownRecord
)
"""Any record of the metadata log."""


def decode_metadata_record(value: Buffer | None) -> MetadataRecord:
    """Read a metadata record from the value of a log's record.

    Raises:
        FormatError: The frame has an unknown version, or the bytes are not a record of the type that they name.
    """
    return _decode(value)[0]


def _decode(value: Buffer | None) -> tuple[MetadataRecord, int]:
    if value is None:
        raise FormatError("a metadata record without a value")
    reader = FieldReader(value)
    frame_version = reader.unsigned_varint()
    if frame_version != FRAME_VERSION:
        raise FormatError(f"frame version {frame_version} of a metadata record is unknown", position=0)
    api_key, version = reader.unsigned_varint(), reader.unsigned_varint()
    schema = SCHEMAS.get(api_key)
    if schema is None or version > schema.latest:
        return UnknownRecord(api_key, version, reader.take(reader.left)), version
    record, end = schema.decode(value, version, position=reader.position)
    size_bytes = memoryview(value).nbytes
    if end != size_bytes:
        raise FormatError(f"{size_bytes - end} bytes too many after a metadata record", position=end)
    known: MetadataRecord = record
    return known, version


def encode_metadata_record(record: MetadataRecord, version: int = 0) -> bytes:
    """Return a metadata record as the value of a log's record.

    Args:
        record: The record.
        version: The version to write it in; an unknown record keeps its own.

    Raises:
        ValueError: The version cannot hold all of it.
    """
    writer = FieldWriter()
    writer.unsigned_varint(FRAME_VERSION)
    if isinstance(record, UnknownRecord):
        writer.unsigned_varint(record.api_key)
        writer.unsigned_varint(record.version)
        return bytes(writer.data) + record.fields
    api_key = API_KEYS[type(record)]
    writer.unsigned_varint(api_key)
    writer.unsigned_varint(version)
    return bytes(writer.data) + SCHEMAS[api_key].encode(record, version)


def metadata_record_json(value: Buffer | None) -> dict[str, Any]:
    """Return a metadata record as Kafka's dump tool prints it: type, version and data.

    Raises:
        FormatError: It cannot be read.
    """
    record, version = _decode(value)
    if isinstance(record, UnknownRecord):
        return {"type": f"UNKNOWN_{record.api_key}", "version": version, "data": {"bytes": record.fields.hex()}}
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(record).__name__).upper()
    return {"type": name, "version": version, "data": SCHEMAS[API_KEYS[type(record)]].to_json(record, version)}
