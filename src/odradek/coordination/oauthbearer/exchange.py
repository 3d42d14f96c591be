"""A login by OAUTHBEARER (RFC 7628), as the server sees it: one message with a token, and one more after a refusal.

    client  n,a=alice,^Aauth=Bearer TOKEN^AtraceId=7^A^A    server  (empty)
                                                            server  {"status":"invalid_token"}
    client  ^A                                              the login has failed

Extensions such as `traceId` have no meaning here, as in Kafka. Stricter than there: a key that occurs twice ends the
login, and so does anything but `^A` after a refusal, where Kafka takes one token after the other.

Source in Kafka: `OAuthBearerSaslServer`, `OAuthBearerClientInitialResponse`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from odradek.coordination.errors import RefusedLoginError
from odradek.coordination.oauthbearer.tokens import MOST_TOKEN_BYTES, MOST_USER_BYTES, InvalidTokenError, Token

_SEPARATOR = "\x01"
_MOST_BYTES = MOST_TOKEN_BYTES + (1 << 13)
_MOST_PAIRS = 64

# Repeated are single characters only, never groups.
_HEADER = re.compile(r"n,(?:a=([\x02-\x2b\x2d-\x7f]+))?,")
_NO_ESCAPE = re.compile("=(?!2C|3D)")
_PAIR = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)")
_BEARER = re.compile(r"bearer ++([-_~+/.a-zA-Z0-9]++=*+)", re.IGNORECASE)

Validate: TypeAlias = Callable[[str], Awaitable[Token]]
"""Returns a token if it is valid; raises an InvalidTokenError."""


class TokenLogin(NamedTuple):
    """What a message of a client leads to.

    Attributes:
        answer: The answer.
        user: Who the client is; None if its token was refused, which one more message acknowledges.
        lifetime_ms: For how many ms the token is valid; not positive if only the skew of clocks lets it pass.
    """

    answer: bytes
    user: str | None
    lifetime_ms: int | None


class OAuthBearerExchange:
    """One login by OAUTHBEARER. It belongs to the thread of its connection.

    Args:
        validate: Validates a token.

    Attributes:
        token_left_ms: None: nobody logs in by a delegation token.
    """

    token_left_ms: int | None = None

    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._refusal: str | None = None

    def preparation(self, message: bytes) -> None:
        """Return None: nothing is to be done before `evaluate` takes a message."""

    def evaluate(self, message: bytes) -> Awaitable[TokenLogin]:
        """Take a message of the client.

        Raises:
            RefusedLoginError: It is of another form, or acknowledges a refusal.
        """
        if self._refusal is not None:
            raise RefusedLoginError(self._refusal if message == _SEPARATOR.encode() else None)
        token, authorization = _parsed(message)
        return self._login(token, authorization)

    async def _login(self, text: str, authorization: str | None) -> TokenLogin:
        try:
            token = await self._validate(text)
        except InvalidTokenError as error:
            told = {"status": error.status} | ({"scope": error.scope} if error.scope else {})
            self._refusal = json.dumps(told, separators=(", ", ":"))
            return TokenLogin(self._refusal.encode(), None, None)
        if authorization not in (None, token.user):
            raise RefusedLoginError(
                f"Authentication failed: Client requested an authorization id ({authorization}) that is different from "
                f"the token's principal name ({token.user})"
            )
        return TokenLogin(b"", token.user, token.lifetime_ms)


def _parsed(message: bytes) -> tuple[str, str | None]:
    """Return the token and the authorization id of a client's first message."""
    if len(message) > _MOST_BYTES or message.count(_SEPARATOR.encode()) > _MOST_PAIRS:
        raise RefusedLoginError
    try:
        text = message.decode("ascii")
    except UnicodeDecodeError:
        raise RefusedLoginError from None
    header, _, rest = text.partition(_SEPARATOR)
    match = _HEADER.fullmatch(header)
    if match is None or not rest.endswith(2 * _SEPARATOR):
        raise RefusedLoginError
    authorization: str | None = match[1]
    if authorization is not None:
        if _NO_ESCAPE.search(authorization):
            raise RefusedLoginError
        authorization = authorization.replace("=2C", ",").replace("=3D", "=")
        if len(authorization) > MOST_USER_BYTES:
            # No user of a token is that long.
            raise RefusedLoginError
    values: dict[str, str] = {}
    for pair in rest[:-2].split(_SEPARATOR):
        found = _PAIR.fullmatch(pair)
        if found is None or found[1] in values:
            raise RefusedLoginError
        values[found[1]] = found[2]
    bearer = _BEARER.fullmatch(values.get("auth", ""))
    if bearer is None:
        raise RefusedLoginError
    return bearer[1], authorization
