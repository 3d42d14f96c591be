"""CreateDelegationToken: a user gets a token, by which programs log in as that user (KIP-48).

A client that may CREATE_TOKENS for another user gets one for it (KIP-373); without an authorizer everybody may. Those
who may renew it are users. The answer has the token's secret, which is kept nowhere.

Versions: 2 has compact sizes, 3 the owner.

Source in Kafka: `KafkaApis.handleCreateTokenRequest`, `DelegationTokenControlManager.createDelegationToken`.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.api.token_requests import CreationBody, check_allowed, decode_creation, principal_fields, tokens_of
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message
from odradek.broker.turns import Work, each
from odradek.coordination.authorization.acls import Operation, ResourceType

_USER = "User"
_NO_TIMESTAMP = -1
_OF_CONTROLLER = (ErrorCode.delegation_token_auth_disabled, ErrorCode.unsupported_version)
"""What Apache Kafka's controller refuses: its answers have zeros for the times."""


def _owner(request: Request) -> str:
    body: CreationBody = request.body
    if not body.owner_principal_name:
        return request.connection.principal
    if body.owner_principal_type is None:
        raise ApiError(ErrorCode.unknown_server_error)
    return f"{body.owner_principal_type}:{body.owner_principal_name}"


def _check_owner(request: Request, owner: str) -> None:
    is_own = owner == request.connection.principal
    if not is_own and not request.may(Operation.CREATE_TOKENS, ResourceType.USER, owner):
        raise ApiError(ErrorCode.delegation_token_authorization_failed)


def _principals(request: Request, owner: str) -> dict[str, Any]:
    return principal_fields(owner) | principal_fields(request.connection.principal, "token_requester_principal")


def _failed(request: Request, code: int, text: str) -> Message:
    has_owner = not request.body.owner_principal_name or request.body.owner_principal_type is not None
    at = 0 if code in _OF_CONTROLLER else _NO_TIMESTAMP
    times = dict.fromkeys(("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"), at)
    owner = _owner(request) if has_owner else request.connection.principal
    return {"error_code": code, **_principals(request, owner), **times, "token_id": "", "hmac": b""}


@api(38, "CreateDelegationToken", range(1, 4), failed=_failed, decode=decode_creation)
async def create_delegation_token(request: Request) -> Message:
    """Create a token."""
    body: CreationBody = request.body
    owner, requester = _owner(request), request.connection.principal
    check_allowed(request)
    _check_owner(request, owner)
    renewers = await request.broker.turns.finish(_renewers(body))
    tokens = tokens_of(request)
    token = await tokens.create(owner, requester, tuple(renewers), body.max_lifetime_ms)
    return {
        "error_code": NO_ERROR,
        **_principals(request, owner),
        "issue_timestamp_ms": token.issue_timestamp,
        "expiry_timestamp_ms": token.expiration_timestamp,
        "max_timestamp_ms": token.max_timestamp,
        "token_id": token.token_id,
        "hmac": tokens.hmac_of(token.token_id),
    }


def _renewers(body: CreationBody) -> Work[list[str]]:
    """Work: return the principals that may renew a token."""

    def renewer(one: tuple[str, str]) -> str:
        kind, name = one
        if kind != _USER:
            raise ApiError(ErrorCode.invalid_principal_type)
        return f"{kind}:{name}"

    return each(body.renewers, renewer)
