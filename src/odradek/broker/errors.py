"""Errors as Kafka's codes.

Source in Kafka: `Errors`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from odradek.coordination.authorization.acls import ResourceType
from odradek.errors import (
    BrokerError,
    CorruptRecordError,
    FormatError,
    LogError,
    LogOfflineError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)

NO_ERROR = int(ErrorCode.none)


_MESSAGES = {
    ErrorCode.topic_authorization_failed: "Topic authorization failed.",
    ErrorCode.group_authorization_failed: "Group authorization failed.",
    ErrorCode.cluster_authorization_failed: "Cluster authorization failed.",
    ErrorCode.transactional_id_authorization_failed: "Transactional Id authorization failed.",
    ErrorCode.delegation_token_authorization_failed: "Delegation Token authorization failed.",
    ErrorCode.election_not_needed: "Leader election not needed for topic partition.",
    ErrorCode.invalid_request: (
        "This most likely occurs because of a request being malformed by the client library or the message was sent to "
        "an incompatible broker. See the broker logs for more details."
    ),
    ErrorCode.no_reassignment_in_progress: "No partition reassignment is in progress.",
    ErrorCode.topic_deletion_disabled: "Topic deletion is disabled.",
    ErrorCode.unknown_topic_id: "This server does not host this topic ID.",
    ErrorCode.unknown_topic_or_partition: "This server does not host this topic-partition.",
}
"""Kafka's message for an error, for the answers that have a place for one."""

_DENIED = {
    ResourceType.TOPIC: ErrorCode.topic_authorization_failed,
    ResourceType.GROUP: ErrorCode.group_authorization_failed,
    ResourceType.CLUSTER: ErrorCode.cluster_authorization_failed,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
    ResourceType.DELEGATION_TOKEN: ErrorCode.delegation_token_authorization_failed,
}

_MOST_TEXT = 4000
"""A longer message is cut: it repeats what the client sent, and old versions of answers hold 32,767 bytes."""


class ApiError(BrokerError):
    """One of Kafka's errors, as the broker answers it."""

    def __init__(self, code: ErrorCode, reason: str = "") -> None:
        super().__init__(reason or _MESSAGES.get(code, code.name.upper()))
        self.error_code = int(code)
        self.error_name = code.name.upper()


def denied(kind: ResourceType) -> ApiError:
    """Return the error of a client that may not do something with a resource of a type."""
    return ApiError(_DENIED[kind])


def fenced_as_before(code: int, *, is_old: bool) -> int:
    """Return the code for a client: an old one knows INVALID_PRODUCER_EPOCH, not PRODUCER_FENCED (KIP-588)."""
    return int(ErrorCode.invalid_producer_epoch) if is_old and code == ErrorCode.producer_fenced else code


def code_of(error: BaseException) -> int:
    """Return Kafka's code of an error."""
    match error:
        case BrokerError():
            return error.error_code
        case UnknownTopicOrPartitionError():
            return int(ErrorCode.unknown_topic_or_partition)
        case OffsetOutOfRangeError():
            return int(ErrorCode.offset_out_of_range)
        case LogOfflineError() | OSError():
            return int(ErrorCode.kafka_storage_error)
        case CorruptRecordError():
            return int(ErrorCode.corrupt_message)
        case FormatError() | LogError():
            return int(ErrorCode.kafka_storage_error)
        case _:
            return int(ErrorCode.unknown_server_error)


def message_of(error: BaseException) -> str:
    """Return the message of an error for a client, without details if the broker itself is at fault."""
    if isinstance(error, BrokerError):
        return error.reason[:_MOST_TEXT]
    code = ErrorCode(code_of(error))
    return str(error) if code is not ErrorCode.unknown_server_error else "the broker failed; its log tells more"
