"""Who a client is, on listeners that ask for a password: SASL, with the mechanism PLAIN.

    SaslHandshake: which mechanism -> SaslAuthenticate: name and password -> all other requests
                                   -> (after a handshake of version 0) a token without a request around it

    listener.name.sasl_ssl.plain.sasl.jaas.config=...PlainLoginModule required user_alice="secret" user_bob="other";

With `connections.max.reauth.ms` the client must authenticate again before the time is over, as the same user.

Source in Kafka: `SaslServerAuthenticator`, `PlainSaslServer`, `PlainServerCallbackHandler`, `JaasConfig`.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from enum import Enum, auto

from kio.schema.errors import ErrorCode

from odradek.broker.config import BrokerConfig
from odradek.broker.errors import ApiError
from odradek.errors import InvalidConfigError, ProtocolError

PLAIN = "PLAIN"
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_FLAGS = ("required", "requisite", "sufficient", "optional")
_SETTING = "sasl.jaas.config"
_TOKEN = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s=;"']+))""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "b": "\b"}
_USER = "user_"
_SHORTEST_REAUTHENTICATION_MS = 1000

NOT_NOW = "SaslAuthenticate request received after successful authentication"
HANDSHAKE_KEY, AUTHENTICATE_KEY = 17, 36


class Users:
    """The users of a listener, and their passwords.

    Args:
        passwords: The passwords by name.
    """

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = {name: password.encode() for name, password in passwords.items()}

    def check(self, token: bytes) -> str:
        """Return the name in a PLAIN token: `authorization id NUL name NUL password`.

        Raises:
            ApiError: It is of another form, or the name or the password is wrong.
        """
        parts = token.decode("utf-8", "replace").split("\0", 3)
        if len(parts) != 3:
            raise _failed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, name, password = parts
        for what, text in (("username", name), ("password", password)):
            if not text:
                raise _failed(f"Authentication failed: {what} not specified")
        expected = self._passwords.get(name)
        if not hmac.compare_digest(password.encode(), expected or b"") or expected is None:
            raise _failed("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise _failed("Authentication failed: Client requested an authorization id that is different from username")
        return name


def _failed(text: str) -> ApiError:
    return ApiError(ErrorCode.sasl_authentication_failed, text)


def parse_users(text: str) -> dict[str, str]:
    """Return the passwords by name of `...PlainLoginModule required user_NAME="PASSWORD" ...;`.

    Raises:
        ValueError: It is of another form.
    """
    tokens, position = [], 0
    rest = text.strip()
    while position < len(rest):
        match = _TOKEN.match(rest, position)
        if match is None:
            raise ValueError("has a quotation mark that is not closed")
        quoted = match[1] if match[1] is not None else match[2]
        tokens.append((match[3] or match[4]) if quoted is None else _ESCAPE.sub(_plain, quoted))
        position = match.end()
    if tokens[:1] != [_MODULE]:
        raise ValueError(f"is not {_MODULE}")
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS or tokens.pop() != ";":
        raise ValueError('is not of the form: MODULE required user_NAME="PASSWORD";')
    options = tokens[2:]
    if len(options) % 3 or any(equals != "=" for equals in options[1::3]):
        raise ValueError('has an option that is not of the form NAME="VALUE"')
    return {
        name.removeprefix(_USER): value
        for name, value in zip(options[::3], options[2::3], strict=True)
        if name.startswith(_USER)
    }


def _plain(match: re.Match[str]) -> str:
    return _CONTROL.get(match[1], match[1])


class SaslConfig:
    """How clients of a listener authenticate.

    Args:
        config: The broker's settings.
        listener: The listener.

    Raises:
        InvalidConfigError: Its settings allow no mechanism that this broker has, or name no users.
    """

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        enabled = config.of_listener(listener, "sasl.enabled.mechanisms")
        if PLAIN not in enabled:
            text = f"{', '.join(enabled)}: {listener} needs {PLAIN}, the one mechanism that this broker has"
            raise InvalidConfigError("sasl.enabled.mechanisms", text)
        self.mechanisms = [PLAIN]
        text = config.of_listener(listener, _SETTING, PLAIN)
        name = f"listener.name.{listener.lower()}.plain.{_SETTING}"
        if text is None:
            raise InvalidConfigError(name, f"{listener} needs its users")
        try:
            self.users = Users(parse_users(text))
        except ValueError as error:
            raise InvalidConfigError(name, str(error)) from None
        self.max_token_bytes: int = config.of_listener(listener, "sasl.server.max.receive.size")
        self.session_ms: int = max(0, config.of_listener(listener, "connections.max.reauth.ms", PLAIN))
        self.max_request_bytes: int = config["socket.request.max.bytes"]


class _State(Enum):
    BEGUN = auto()
    HANDSHAKE = auto()
    TOKEN = auto()
    DONE = auto()


class SaslServer:
    """The authentication of one connection.

    Args:
        config: The listener's settings.
    """

    def __init__(self, config: SaslConfig) -> None:
        self._config = config
        self._state = _State.BEGUN
        self._user: str | None = None
        self._has_requests = True
        self._expires_ms: float | None = None
        self._begun_ms: float | None = None

    @property
    def mechanisms(self) -> list[str]:
        """The mechanisms that clients may ask for."""
        return self._config.mechanisms

    @property
    def wants_plain_token(self) -> bool:
        """Whether what comes next is a token without a request around it."""
        return self._state is _State.TOKEN and not self._has_requests

    @property
    def max_request_bytes(self) -> int:
        """How long a request may be: less as long as it is not known whose it is."""
        return self._config.max_token_bytes if self._user is None else self._config.max_request_bytes

    def admit(self, api_key: int, name: str, *, before_authentication: bool, now_ms: float) -> None:
        """Let a request pass, or not.

        Raises:
            ProtocolError: The client must authenticate first, or again.
        """
        match self._state:
            case _State.TOKEN:
                is_admitted = api_key == AUTHENTICATE_KEY
            case _State.BEGUN | _State.HANDSHAKE:
                is_admitted = before_authentication and api_key != AUTHENTICATE_KEY
            case _:
                is_expired = self._expires_ms is not None and now_ms > self._expires_ms
                is_admitted = not is_expired or api_key == HANDSHAKE_KEY
        if not is_admitted:
            raise ProtocolError(f"{name} from a client that has not authenticated, or not again in time")

    def begin(self, mechanism: str, version: int, now_ms: float) -> None:
        """Begin with a mechanism.

        Raises:
            ApiError: This broker does not have it; or it is not the time to authenticate.
        """
        if self._state is _State.DONE:
            too_soon = self._begun_ms is not None and now_ms - self._begun_ms < _SHORTEST_REAUTHENTICATION_MS
            if self._expires_ms is None or too_soon:
                raise ApiError(ErrorCode.illegal_sasl_state)
            self._begun_ms = now_ms
        if mechanism not in self.mechanisms:
            raise ApiError(ErrorCode.unsupported_sasl_mechanism)
        self._has_requests = version >= 1
        self._state = _State.TOKEN

    def authenticate(self, token: bytes, now_ms: float) -> tuple[str, int]:
        """Take a token.

        Returns:
            The user, and after how many ms it must authenticate again; 0 for never.

        Raises:
            ApiError: The name or the password is wrong; or it is not the time to authenticate.
        """
        if self._state is not _State.TOKEN:
            raise ApiError(ErrorCode.illegal_sasl_state, NOT_NOW)
        user = self._config.users.check(token)
        if self._user not in (None, user):
            raise _failed(f"Cannot change principals during re-authentication from User.{self._user}: User.{user}")
        self._user = user
        self._state = _State.DONE
        session_ms = self._config.session_ms
        if session_ms:
            self._expires_ms = now_ms + session_ms
        return user, session_ms
