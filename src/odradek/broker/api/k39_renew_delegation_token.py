"""RenewDelegationToken: a token is valid longer, but not longer than its whole lifetime (KIP-48).

Its owner renews it, and those whom its creator named. Who shows its secret is told whether it has expired.

Versions: 2 has compact sizes.

Source in Kafka: `KafkaApis.handleRenewTokenRequest`, `DelegationTokenControlManager.renewDelegationToken`.
"""

from __future__ import annotations

from odradek.broker.api import Request, api
from odradek.broker.api.token_requests import ChangeBody, change_failed, check_allowed, decode_change, tokens_of
from odradek.broker.errors import NO_ERROR
from odradek.broker.protocol import Message
from odradek.coordination.delegation_tokens import renewed
from odradek.messages.metadata.metadata_records import DelegationTokenRecord


@api(39, "RenewDelegationToken", range(1, 3), failed=change_failed, decode=decode_change)
async def renew_delegation_token(request: Request) -> Message:
    """Renew a token."""
    body: ChangeBody = request.body
    check_allowed(request)
    tokens = tokens_of(request)

    def change(token: DelegationTokenRecord, now_ms: int) -> DelegationTokenRecord:
        return renewed(token, request.connection.principal, body.period_ms, tokens.lifetimes, now_ms)

    return {"error_code": NO_ERROR, "expiry_timestamp_ms": await tokens.change(body.hmac, change)}
