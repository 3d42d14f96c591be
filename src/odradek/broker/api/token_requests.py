"""What the APIs of delegation tokens have in common: who may use them, and how their requests are read.

Lifetimes are read by hand: the reader of all messages closes the connection when a client asks for the longest one
that fits into 64 bits.

Source in Kafka: `KafkaApis.allowTokenRequests`, `CreateDelegationTokenRequest.json`,
`RenewDelegationTokenRequest.json`, `ExpireDelegationTokenRequest.json`.
"""

from __future__ import annotations

from typing import NamedTuple

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request
from odradek.broker.delegation_tokens import DelegationTokens
from odradek.broker.errors import ApiError
from odradek.broker.protocol import Message, RequestHeader, is_flexible
from odradek.errors import ProtocolError
from odradek.records.kernels.frames import WireReader

_ANONYMOUS = "User:ANONYMOUS"
_FIRST_WITH_OWNER = 3


class CreationBody(NamedTuple):
    """The body of a CreateDelegationToken request.

    Attributes:
        owner_principal_type: The type of the owner.
        owner_principal_name: The name of the owner; empty or None for the client itself.
        renewers: The types and names of those who may renew the token.
        max_lifetime_ms: How long it is valid; not positive for the longest time.
    """

    owner_principal_type: str | None
    owner_principal_name: str | None
    renewers: list[tuple[str, str]]
    max_lifetime_ms: int


class ChangeBody(NamedTuple):
    """The body of a RenewDelegationToken or an ExpireDelegationToken request.

    Attributes:
        hmac: The token's secret.
        period_ms: How long it is then valid.
    """

    hmac: bytes
    period_ms: int

    def __repr__(self) -> str:
        # Whoever reads it in a log could log in.
        return f"ChangeBody(period_ms={self.period_ms})"


def decode_creation(frame: bytearray, header: RequestHeader) -> CreationBody:
    """Read the body of a CreateDelegationToken request.

    Raises:
        ProtocolError: It does not follow its schema.
    """
    reader = _reader(frame, header)
    has_owner = header.version >= _FIRST_WITH_OWNER
    owner = (reader.nullable_text(), reader.nullable_text()) if has_owner else (None, None)
    renewers = []
    for _ in range(reader.count()):
        renewers.append((reader.text(), reader.text()))
        reader.tags()
    body = CreationBody(*owner, renewers, reader.int64())
    reader.tags()
    return body


def decode_change(frame: bytearray, header: RequestHeader) -> ChangeBody:
    """Read the body of a RenewDelegationToken or an ExpireDelegationToken request.

    Raises:
        ProtocolError: It does not follow its schema.
    """
    reader = _reader(frame, header)
    hmac = reader.records()
    if hmac is None:
        raise ProtocolError("the HMAC of a delegation token is null")
    body = ChangeBody(bytes(hmac), reader.int64())
    reader.tags()
    return body


def _reader(frame: bytearray, header: RequestHeader) -> WireReader:
    return WireReader(frame, header.body_position, is_flexible=is_flexible(header.api_key, header.version))


def check_allowed(request: Request) -> None:
    """Check that a client may ask for tokens at all.

    Nobody gets a token by a token, for it could be used for ever; and nobody whom this broker cannot know, or whose
    answer others could read.

    Raises:
        ApiError: It may not.
    """
    connection = request.connection
    protocol = request.broker.config.protocol(connection.listener)
    is_unknown = protocol == "SSL" and connection.principal == _ANONYMOUS
    if protocol == "PLAINTEXT" or is_unknown or (connection.sasl is not None and connection.sasl.is_by_token):
        raise ApiError(ErrorCode.delegation_token_request_not_allowed)


def change_failed(request: Request, code: int, text: str) -> Message:
    """Return the answer to a RenewDelegationToken or an ExpireDelegationToken request that failed."""
    is_refused_first = code == ErrorCode.delegation_token_request_not_allowed
    return {"error_code": code, "expiry_timestamp_ms": -1 if is_refused_first else 0}


def tokens_of(request: Request) -> DelegationTokens:
    """Return the tokens, to change them.

    Raises:
        ApiError: There are none, or `metadata.version` is from before tokens.
    """
    tokens = request.broker.tokens
    if tokens is None:
        raise ApiError(ErrorCode.delegation_token_auth_disabled)
    if not tokens.are_supported:
        raise ApiError(ErrorCode.unsupported_version)
    return tokens


def principal_fields(principal: str, beginning: str = "principal") -> dict[str, str]:
    """Return the type and the name of a principal, as fields of an answer."""
    kind, _, name = principal.partition(":")
    return {f"{beginning}_type": kind, f"{beginning}_name": name}
