"""The errors that the rules refuse requests with, as Kafka's codes.

Source in Kafka: `Errors`.
"""

from __future__ import annotations

from enum import IntEnum

from odradek.errors import BrokerError


class GroupErrorCode(IntEnum):
    """Why a request about a group is refused: Kafka's errors, by their codes."""

    UNKNOWN_SERVER_ERROR = -1
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    STALE_MEMBER_EPOCH = 113
    INVALID_REGULAR_EXPRESSION = 128


class TransactionErrorCode(IntEnum):
    """Why a request about a transaction is refused: Kafka's errors, by their codes."""

    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    CONCURRENT_TRANSACTIONS = 51
    PRODUCER_FENCED = 90


class ShareErrorCode(IntEnum):
    """Why a request about the deliveries of a share group is refused: Kafka's errors, by their codes."""

    UNKNOWN_SERVER_ERROR = -1
    INVALID_REQUEST = 42
    FENCED_LEADER_EPOCH = 74
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    SHARE_SESSION_LIMIT_REACHED = 133


class QuotaErrorCode(IntEnum):
    """Why a request about quotas is refused: Kafka's errors, by their codes."""

    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42


class TokenErrorCode(IntEnum):
    """Why a request about a delegation token is refused: Kafka's errors, by their codes."""

    POLICY_VIOLATION = 44
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67


class RefusedError(BrokerError):
    """A request about a group, a transaction, a quota or a token that the rules do not allow."""

    def __init__(
        self,
        code: GroupErrorCode | QuotaErrorCode | ShareErrorCode | TokenErrorCode | TransactionErrorCode,
        reason: str = "",
    ) -> None:
        super().__init__(reason or code.name)
        self.error_code = code.value
        self.error_name = code.name


OTHER_AUTHORIZATION = "Authentication failed: Client requested an authorization id that is different from username"


class RefusedLoginError(BrokerError):
    """A login that failed.

    Args:
        text: What the client is told; None for what every mechanism but PLAIN tells of a login that is not right.
        user: Who the client says it is, as far as it has said so.
    """

    def __init__(self, text: str | None = None, user: str | None = None) -> None:
        super().__init__(text or "invalid credentials")
        self.text = text
        self.user = user
        self.error_code = 58
        self.error_name = "SASL_AUTHENTICATION_FAILED"
