"""Errors as Kafka's codes.

Source in Kafka: `Errors`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

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
"""What Kafka says of an error, where clients are told."""


class ApiError(BrokerError):
    """An answer of the broker that is one of Kafka's errors."""

    def __init__(self, code: ErrorCode, reason: str = "") -> None:
        super().__init__(reason or _MESSAGES.get(code, code.name.upper()))
        self.error_code = int(code)
        self.error_name = code.name.upper()

    def fenced_as_before(self, *, is_old: bool) -> ApiError:
        """Return the error for a client: an old one knows INVALID_PRODUCER_EPOCH, not PRODUCER_FENCED (KIP-588)."""
        if is_old and self.error_code == ErrorCode.producer_fenced:
            return ApiError(ErrorCode.invalid_producer_epoch)
        return self


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
    """Return what a client is told of an error: of the broker's own faults no details."""
    if isinstance(error, BrokerError):
        return error.reason
    code = ErrorCode(code_of(error))
    return str(error) if code is not ErrorCode.unknown_server_error else "the broker failed; its log tells more"
