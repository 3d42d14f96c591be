"""DescribeDelegationToken: tokens with their secrets, for those who own, asked for or may renew them (KIP-48).

Others need to be allowed to DESCRIBE the token, or to DESCRIBE_TOKENS of its owner (KIP-373): they get the secret as
well, and so can log in as the owner. Tokens that have expired are described until they are removed.

Versions: 2 has compact sizes, 3 tells who asked for a token.

Source in Kafka: `KafkaApis.handleDescribeTokensRequest`, `DelegationTokenManager.filterToken`.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.api.token_requests import check_allowed, principal_fields
from odradek.broker.delegation_tokens import DelegationTokens
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message
from odradek.broker.turns import Work
from odradek.coordination.authorization.acls import Operation, ResourceType
from odradek.messages.metadata.metadata_records import DelegationTokenRecord


def _failed(request: Request, code: int, text: str) -> Message:
    return {"error_code": code, "tokens": []}


@api(41, "DescribeDelegationToken", range(1, 4), failed=_failed)
def describe_delegation_token(request: Request) -> Work[Message]:
    """Answer the tokens of the owners that are named, or of all."""
    check_allowed(request)
    tokens = request.broker.tokens
    if tokens is None:
        raise ApiError(ErrorCode.delegation_token_auth_disabled)
    owners: set[str] | None = None
    if request.body.owners is not None:
        owners = set()
        for one in request.body.owners:
            owners.add(f"{one.principal_type}:{one.principal_name}")
            yield
    found = []
    # No owners are asked for, or one at least.
    for token in tokens.all.values() if owners is None or owners else ():
        if _is_told(request, token, owners):
            found.append(_described(tokens, token))
        yield
    return {"error_code": NO_ERROR, "tokens": found}


def _is_told(request: Request, token: DelegationTokenRecord, owners: set[str] | None) -> bool:
    about = (token.owner, token.requester, *token.renewers)
    if owners is not None and owners.isdisjoint(about):
        return False
    return (
        request.connection.principal in about
        or request.may(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, is_told=False)
        or request.may(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner, is_told=False)
    )


def _described(tokens: DelegationTokens, token: DelegationTokenRecord) -> dict[str, Any]:
    return {
        **principal_fields(token.owner),
        **principal_fields(token.requester, "token_requester_principal"),
        "issue_timestamp": token.issue_timestamp,
        "expiry_timestamp": token.expiration_timestamp,
        "max_timestamp": token.max_timestamp,
        "token_id": token.token_id,
        "hmac": tokens.hmac_of(token.token_id),
        "renewers": [principal_fields(one) for one in token.renewers],
    }
