"""SaslAuthenticate: the name and password of a client (KIP-152).

After a wrong one the answer comes late, so that passwords cannot be tried quickly, and the connection is closed. v1
(KIP-368) tells when the client must authenticate again, v2 (KIP-482) has compact sizes.

Source in Kafka: `SaslServerAuthenticator.handleSaslToken`, `KafkaApis.handleSaslAuthenticateRequest`.
"""

from __future__ import annotations

from collections.abc import Awaitable

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message
from odradek.broker.sasl import AUTHENTICATE_KEY, NOT_NOW


@api(AUTHENTICATE_KEY, "SaslAuthenticate", range(3), before_authentication=True)
def sasl_authenticate(request: Request) -> Message | Awaitable[Message]:
    """Answer whether the client is who it says it is."""
    connection = request.connection
    sasl = connection.sasl
    if sasl is None:
        return _answer(int(ErrorCode.illegal_sasl_state), NOT_NOW)
    try:
        user, session_ms = sasl.authenticate(bytes(request.body.auth_bytes), request.broker.clock.elapsed_ms())
    except ApiError as error:
        if error.error_code != ErrorCode.sasl_authentication_failed:
            return _answer(error.error_code, error.reason)
        return _refuse(request, error)
    connection.principal = f"User:{user}"
    connection.max_request_bytes = sasl.max_request_bytes
    return _answer(NO_ERROR, None, session_ms)


async def _refuse(request: Request, error: ApiError) -> Message:
    await request.broker.clock.sleep(request.broker.config["connection.failed.authentication.delay.ms"])
    request.connection.close_when_sent()
    return _answer(error.error_code, error.reason)


def _answer(code: int, text: str | None, session_ms: int = 0) -> Message:
    return {"error_code": code, "error_message": text, "auth_bytes": b"", "session_lifetime_ms": session_ms}
