"""SaslAuthenticate: who the client is, in one message or, with SCRAM, in two (KIP-152).

After a wrong password the answer comes late, so that passwords cannot be tried quickly, and the connection is closed.
A token of OAUTHBEARER is checked in another thread.
v1 (KIP-368) tells when the client must authenticate again, v2 (KIP-482) has compact sizes.

Source in Kafka: `SaslServerAuthenticator.handleSaslToken`, `KafkaApis.handleSaslAuthenticateRequest`.
"""

from __future__ import annotations

from collections.abc import Awaitable

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message
from odradek.broker.sasl import AUTHENTICATE_KEY, CLOSED_AFTER_MS, NOT_NOW, SaslServer, Step


@api(AUTHENTICATE_KEY, "SaslAuthenticate", range(3), before_authentication=True)
def sasl_authenticate(request: Request) -> Message | Awaitable[Message]:
    """Answer whether the client is who it says it is."""
    sasl = request.connection.sasl
    if sasl is None:
        return _answer(int(ErrorCode.illegal_sasl_state), NOT_NOW)
    try:
        step = sasl.authenticate(bytes(request.body.auth_bytes), request.broker.clock.elapsed_ms())
    except ApiError as error:
        return _failed(request, error)
    return _admit_later(request, sasl, step) if isinstance(step, Awaitable) else _admit(request, sasl, step)


def _admit(request: Request, sasl: SaslServer, step: Step) -> Message:
    if step.user is not None:
        request.connection.authenticated(step.user, sasl)
    return {**_answer(NO_ERROR, None, step.session_ms), "auth_bytes": step.answer}


async def _admit_later(request: Request, sasl: SaslServer, step: Awaitable[Step]) -> Message:
    try:
        return _admit(request, sasl, await step)
    except ApiError as error:
        answer = _failed(request, error)
        return await answer if isinstance(answer, Awaitable) else answer


def _failed(request: Request, error: ApiError) -> Message | Awaitable[Message]:
    is_refused = error.error_code == ErrorCode.sasl_authentication_failed
    return _refuse(request, error) if is_refused else _answer(error.error_code, error.reason)


async def _refuse(request: Request, error: ApiError) -> Message:
    await request.broker.clock.sleep(request.broker.config["connection.failed.authentication.delay.ms"])
    request.broker.clock.after(CLOSED_AFTER_MS, request.connection.close_when_sent)
    return _answer(error.error_code, error.reason)


def _answer(code: int, text: str | None, session_ms: int = 0) -> Message:
    return {"error_code": code, "error_message": text, "session_lifetime_ms": session_ms}
