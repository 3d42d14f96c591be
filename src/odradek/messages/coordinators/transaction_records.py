"""The records of `__transaction_state`: the state of each transactional id.

    key     0000 | transactional_id: string
    value   0001 | producer_id: int64 | producer_epoch: int16 | transaction_timeout_ms: int32 | transaction_status: int8
                 | partitions | last update: int64 | start: int64 | tags

The partitions are null while the transaction is empty, and an empty array once it is complete.

Source in Kafka: `TransactionLog`, `TransactionLogKey`, `TransactionLogValue`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from odradek.messages.coordinators.coordinator_records import CoordinatorRecord, RecordType, decode, encode, to_json
from odradek.messages.field_types import INT8, INT16, INT32, INT64, STRING, Array
from odradek.messages.schema import Field, Schema

TRANSACTION_TYPE = 0
TRANSACTION_VERSION = 1
"""The version that Kafka writes."""


class TransactionState(IntEnum):
    """The state of a transaction."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


STATE_NAMES = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState}
"""The states as clients name them: `PrepareCommit`."""


class TransactionKey(NamedTuple):
    """The transactional id."""

    transactional_id: str


class TransactionTopic(NamedTuple):
    """The partitions of a topic that a transaction wrote to."""

    topic: str
    partition_ids: tuple[int, ...]


class TransactionValue(NamedTuple):
    """The state of a transactional id; `transaction_status` is a `TransactionState`."""

    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    transaction_partitions: tuple[TransactionTopic, ...] | None
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int
    previous_producer_id: int = -1
    next_producer_id: int = -1
    next_producer_epoch: int = -1
    client_transaction_version: int = 0


_TOPIC = Schema(TransactionTopic, (Field("topic", STRING), Field("partition_ids", Array(INT32))))

TYPES = {
    TRANSACTION_TYPE: RecordType(
        Schema(TransactionKey, (Field("transactional_id", STRING),)),
        Schema(
            TransactionValue,
            (
                Field("producer_id", INT64),
                Field("previous_producer_id", INT64, since=1, tag=0, needed=True),
                Field("next_producer_id", INT64, since=1, tag=1, needed=True),
                Field("producer_epoch", INT16),
                Field("next_producer_epoch", INT16, since=1, tag=3, needed=True),
                Field("transaction_timeout_ms", INT32),
                Field("transaction_status", INT8),
                Field("transaction_partitions", Array(_TOPIC, nullable=True)),
                Field("transaction_last_update_timestamp_ms", INT64),
                Field("transaction_start_timestamp_ms", INT64),
                Field("client_transaction_version", INT16, since=1, tag=2, needed=True),
            ),
            latest=1,
            flexible_since=1,
        ),
    )
}


def decode_transaction_record(key: bytes | None, value: bytes | None) -> CoordinatorRecord:
    """Read a record of `__transaction_state`.

    Raises:
        UnknownCoordinatorRecordError: Its type is not known.
        FormatError: It has no key, is cut short, or has an unknown version.
    """
    return decode(TYPES, key, value)


def encode_transaction_record(
    transactional_id: str, value: TransactionValue | None, version: int = TRANSACTION_VERSION
) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record; a value of None is a tombstone."""
    return encode(TYPES, CoordinatorRecord(TRANSACTION_TYPE, TransactionKey(transactional_id), version, value))


def transaction_record_json(key: bytes | None, value: bytes | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return key and value of a record as Kafka's dump tool prints them; None for a tombstone.

    Raises:
        UnknownCoordinatorRecordError: Its type is not known.
        FormatError: It has no key, is cut short, or has an unknown version.
    """
    shown_key, shown = to_json(TYPES, decode(TYPES, key, value))
    if shown is not None:
        state = shown["data"]["transactionStatus"]
        shown["data"]["transactionStatus"] = STATE_NAMES.get(state, str(state))
    return shown_key, shown
