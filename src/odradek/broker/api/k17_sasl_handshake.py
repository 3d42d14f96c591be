"""SaslHandshake: which SASL mechanism a client authenticates with (KIP-43).

After v0 the client sends tokens without requests around them; after v1 (KIP-152) it sends SaslAuthenticate requests. A
client that has authenticated begins again with it (KIP-368). Where there is nothing to authenticate, the answer is
ILLEGAL_SASL_STATE. There are PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.

Source in Kafka: `SaslServerAuthenticator.handleHandshakeRequest`, `KafkaApis.handleSaslHandshakeRequest`.
"""

from __future__ import annotations

from collections.abc import Awaitable

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message
from odradek.broker.sasl import CLOSED_AFTER_MS, HANDSHAKE_KEY


@api(HANDSHAKE_KEY, "SaslHandshake", range(2), before_authentication=True)
def sasl_handshake(request: Request) -> Message | Awaitable[Message]:
    """Answer whether the mechanism can be used, and which ones can."""
    sasl = request.connection.sasl
    if sasl is None:
        return {"error_code": int(ErrorCode.illegal_sasl_state), "mechanisms": []}
    try:
        sasl.begin(request.body.mechanism, request.version, request.broker.clock.elapsed_ms())
    except ApiError as error:
        if error.error_code != ErrorCode.unsupported_sasl_mechanism:
            return {"error_code": error.error_code, "mechanisms": []}
        return _refuse(request, {"error_code": error.error_code, "mechanisms": sasl.mechanisms})
    return {"error_code": NO_ERROR, "mechanisms": sasl.mechanisms}


async def _refuse(request: Request, answer: Message) -> Message:
    await request.broker.clock.sleep(request.broker.config["connection.failed.authentication.delay.ms"])
    request.broker.clock.after(CLOSED_AFTER_MS, request.connection.close_when_sent)
    return answer
