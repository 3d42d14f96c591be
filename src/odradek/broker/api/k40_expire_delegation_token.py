"""ExpireDelegationToken: a token expires at another time, or is removed at once (KIP-48).

Those who may renew a token may let it expire. Clients that have logged in by it stay until their sessions end.

Versions: 2 has compact sizes.

Source in Kafka: `KafkaApis.handleExpireTokenRequest`, `DelegationTokenControlManager.expireDelegationToken`.
"""

from __future__ import annotations

from odradek.broker.api import Request, api
from odradek.broker.api.token_requests import ChangeBody, change_failed, check_allowed, decode_change, tokens_of
from odradek.broker.errors import NO_ERROR
from odradek.broker.protocol import Message
from odradek.coordination.delegation_tokens import expired
from odradek.messages.metadata.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord


@api(40, "ExpireDelegationToken", range(1, 3), failed=change_failed, decode=decode_change)
async def expire_delegation_token(request: Request) -> Message:
    """Let a token expire."""
    body: ChangeBody = request.body
    check_allowed(request)

    def change(token: DelegationTokenRecord, now_ms: int) -> DelegationTokenRecord | RemoveDelegationTokenRecord:
        return expired(token, request.connection.principal, body.period_ms, now_ms)

    return {"error_code": NO_ERROR, "expiry_timestamp_ms": await tokens_of(request).change(body.hmac, change)}
