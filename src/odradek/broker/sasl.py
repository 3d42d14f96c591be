"""The identity of a client, on listeners that ask for a login: SASL.

    SaslHandshake: which mechanism -> SaslAuthenticate: one message or several -> all other requests
                                   -> (after a handshake of version 0) messages without requests around them

    PLAIN                            name and password, which are in the settings of the listener
    SCRAM-SHA-256, SCRAM-SHA-512     proofs that both sides know the password, whose hash is in the metadata
    OAUTHBEARER                      a token, signed by an identity provider

Who has a delegation token logs in by SCRAM as the token's owner, for as long as the token is valid
(`odradek.broker.delegation_tokens`).

With `connections.max.reauth.ms`, or when the token of a login expires, the client must authenticate again before the
time is over, as the same user and by the same mechanism.

Source in Kafka: `SaslServerAuthenticator`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kio.schema.errors import ErrorCode

from odradek.broker.clock import Clock
from odradek.broker.config import BrokerConfig
from odradek.broker.errors import ApiError
from odradek.broker.jaas import parse_login_module
from odradek.broker.oauth_settings import HANDLER_CLASS, OAUTHBEARER_MODULE
from odradek.broker.sasl_plain import PLAIN_MODULE, Users, parse_users
from odradek.coordination.errors import RefusedLoginError
from odradek.coordination.scram.credentials import MECHANISMS, ScramMechanism
from odradek.coordination.scram.exchange import ScramExchange, Tokens
from odradek.errors import InvalidConfigError, ProtocolError
from odradek.messages.metadata.metadata_records import UserScramCredentialRecord
from odradek.storage.metadata.metadata_image import MetadataImage

if TYPE_CHECKING:
    from odradek.broker.sasl_oauthbearer import OAuthBearer, Run
    from odradek.coordination.oauthbearer.exchange import TokenLogin

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
_KNOWN = (PLAIN, *MECHANISMS, OAUTHBEARER)
_SETTING = "sasl.jaas.config"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_MODULES = (SCRAM_MODULE, PLAIN_MODULE, OAUTHBEARER_MODULE)
_SHORTEST_REAUTHENTICATION_MS = 1000

NOT_NOW = "SaslAuthenticate request received after successful authentication"
HANDSHAKE_KEY, AUTHENTICATE_KEY = 17, 36
CLOSED_AFTER_MS = 100
"""The time from a refusal to the end of its connection: kafka-python drops an answer that arrives with the end."""


class Exchange(Protocol):
    """One login by a mechanism.

    Attributes:
        token_left_ms: After a login by a delegation token, how long that is valid; None after any other login.
    """

    @property
    def token_left_ms(self) -> int | None:
        """See above."""

    def preparation(self, message: bytes) -> Awaitable[None] | None:
        """Return what to wait for before `evaluate` takes a message; None if nothing is to be done."""

    def evaluate(self, message: bytes) -> tuple[bytes, str | None] | Awaitable[TokenLogin]:
        """Take a message of the client.

        Returns:
            The answer, and who the client is if this was its last message.

        Raises:
            RefusedLoginError: The client is not who it says it is.
        """


class Mechanism(NamedTuple):
    """A mechanism of a listener.

    Attributes:
        begin: Begins a login.
        session_ms: After how many ms a client must authenticate again; 0 for never.
    """

    begin: Callable[[], Exchange]
    session_ms: int


class Step(NamedTuple):
    """What a message of a client leads to.

    Attributes:
        answer: The answer.
        user: Who the client is; None if more messages are needed.
        session_ms: After how many ms it must authenticate again, as it is told; 0 for never, or for at once.
    """

    answer: bytes
    user: str | None
    session_ms: int = 0


class SaslConfig:
    """How clients of a listener authenticate.

    Args:
        config: The broker's settings.
        listener: The listener.
        image: Returns the metadata as they are now, which have what users log in with by SCRAM.
        tokens: The delegation tokens; None if there are none.
        clock: The time.
        run: Runs an action in another thread.

    Raises:
        InvalidConfigError: Its settings allow a mechanism that this broker does not have, or none, or name no users.
    """

    def __init__(
        self,
        config: BrokerConfig,
        listener: str,
        image: Callable[[], MetadataImage],
        tokens: Tokens | None,
        clock: Clock,
        run: Run,
    ) -> None:
        enabled = config.of_listener(listener, "sasl.enabled.mechanisms")
        unknown = [name for name in enabled if name not in _KNOWN]
        if unknown or not enabled:
            # Otherwise clients that use another mechanism could not log in, and nothing would say why.
            text = f"{', '.join(unknown)}: {listener} takes {', '.join(_KNOWN)}, the mechanisms that this broker has"
            given = config.name_for(listener, "sasl.enabled.mechanisms") or "sasl.enabled.mechanisms"
            raise InvalidConfigError(given, text)
        self._config = config
        self._listener = listener
        self._image = image
        self._tokens = tokens
        self.clock = clock
        self._run = run
        self._oauth: OAuthBearer | None = None
        self.by_name = {name: Mechanism(self._begin(name), self._session_ms(name)) for name in dict.fromkeys(enabled)}
        self.mechanisms = list(self.by_name)
        self.max_token_bytes: int = config.of_listener(listener, "sasl.server.max.receive.size")
        self.max_request_bytes: int = config["socket.request.max.bytes"]

    def close(self) -> None:
        """Fetch no more keys of tokens."""
        if self._oauth is not None:
            self._oauth.close()

    def _session_ms(self, mechanism: str) -> int:
        return max(0, int(self._config.of_listener(self._listener, "connections.max.reauth.ms", mechanism)))

    def _begin(self, mechanism: str) -> Callable[[], Exchange]:
        """Return what begins a login by a mechanism."""
        if mechanism == OAUTHBEARER:
            # Imported here: most brokers have no tokens, and start faster.
            from odradek.broker.sasl_oauthbearer import OAuthBearer

            self._oauth = OAuthBearer(self._config, self._listener, self.clock, self._run)
            return self._oauth.begin
        handler = self._config.name_for(self._listener, HANDLER_CLASS, mechanism)
        if handler is not None and self._config.of_listener(self._listener, HANDLER_CLASS, mechanism):
            text = f"restricts clients of {mechanism} at Apache Kafka only; name it oauthbearer.{HANDLER_CLASS}"
            raise InvalidConfigError(handler, text)
        text = self._config.of_listener(self._listener, _SETTING, mechanism)
        name = f"listener.name.{self._listener.lower()}.{mechanism.lower()}.{_SETTING}"
        try:
            if mechanism == PLAIN:
                if text is None:
                    raise InvalidConfigError(name, f"{self._listener} needs its users")
                users = Users(parse_users(text))
                return lambda: users
            # Kafka wants the module to be named. Without a mechanism in its name the setting may be that of PLAIN.
            if text is not None and parse_login_module(text).name not in _MODULES:
                raise ValueError(f"is not {SCRAM_MODULE}")
        except ValueError as error:
            raise InvalidConfigError(name, str(error)) from None
        found = MECHANISMS[mechanism]
        return partial(ScramExchange, found, partial(self._credentials_of, found), tokens=self._tokens)

    def _credentials_of(self, mechanism: ScramMechanism) -> dict[str, UserScramCredentialRecord]:
        return self._image().scram_credentials.get(mechanism.type, {})


class _State(Enum):
    BEGUN = auto()
    TOKEN = auto()
    DONE = auto()
    FAILED = auto()


class SaslServer:
    """The authentication of one connection.

    Args:
        config: The listener's settings.
        refused: Called with a mechanism, a user and a reason when a login is refused; any of it is what a client sent.

    Attributes:
        is_by_token: Whether the client has logged in by a delegation token.
    """

    def __init__(self, config: SaslConfig, refused: Callable[[str, str, str], None]) -> None:
        self._config = config
        self._refused = refused
        self._state = _State.BEGUN
        self._user: str | None = None
        self._mechanism = ""
        self._authenticated_by = ""
        self._exchange: Exchange | None = None
        self._has_requests = True
        self.is_by_token = False
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
    def admits_for_good(self) -> bool:
        """Whether the client has authenticated, for as long as its connection lasts."""
        return self._state is _State.DONE and self._expires_ms is None

    @property
    def admits_all(self) -> bool:
        """Whether the client has authenticated, and need not do so again by now."""
        is_done = self._state is _State.DONE
        return is_done and (self._expires_ms is None or self._config.clock.elapsed_ms() <= self._expires_ms)

    @property
    def is_in_login(self) -> bool:
        """Whether the client is authenticating, for the first time or again."""
        return self._state is not _State.DONE

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
            case _State.FAILED:
                is_admitted = False
            case _State.BEGUN:
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
            self._state = _State.FAILED
            self._refused(mechanism, "", "this listener does not have the mechanism")
            raise ApiError(ErrorCode.unsupported_sasl_mechanism)
        self._has_requests = version >= 1
        self._mechanism = mechanism
        self._exchange = self._config.by_name[mechanism].begin()
        self._state = _State.TOKEN

    def authenticate(self, message: bytes, now_ms: float) -> Step | Awaitable[Step]:
        """Take a message of the client.

        Returns:
            What it leads to, at once or after a wait; the wait may raise the same.

        Raises:
            ApiError: The client is not who it says it is; or it is not the time to authenticate.
        """
        exchange = self._exchange if self._state is _State.TOKEN else None
        waits = None if exchange is None else exchange.preparation(message)
        return self._authenticate(message, now_ms) if waits is None else self._authenticate_after(waits, message)

    async def _authenticate_after(self, waits: Awaitable[None], message: bytes) -> Step:
        await waits
        step = self._authenticate(message, self._config.clock.elapsed_ms())
        return await step if isinstance(step, Awaitable) else step

    def _authenticate(self, message: bytes, now_ms: float) -> Step | Awaitable[Step]:
        if self._state is not _State.TOKEN or self._exchange is None:
            raise ApiError(ErrorCode.illegal_sasl_state, NOT_NOW)
        # Unless all goes well; and until then, so that nothing else of the client is taken.
        self._state = _State.FAILED
        mechanism, before = self._mechanism, self._authenticated_by
        if before not in ("", mechanism):
            raise self._failed(
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of mechanism "
                f"'{before}'"
            )
        try:
            found = self._exchange.evaluate(message)
        except RefusedLoginError as error:
            raise self._refusal(error) from None
        if isinstance(found, Awaitable):
            return self._authenticate_later(found, now_ms)
        answer, user = found
        return self._step(answer, user, None, now_ms)

    async def _authenticate_later(self, login: Awaitable[TokenLogin], now_ms: float) -> Step:
        try:
            answer, user, lifetime_ms = await login
        except RefusedLoginError as error:
            raise self._refusal(error) from None
        return self._step(answer, user, lifetime_ms, now_ms)

    def _refusal(self, error: RefusedLoginError) -> ApiError:
        what = "re-authentication" if self._authenticated_by else "authentication"
        text = f"Authentication failed during {what} due to invalid credentials with SASL mechanism {self._mechanism}"
        return self._failed(error.text or text, error.user)

    def _step(self, answer: bytes, user: str | None, lifetime_ms: int | None, now_ms: float) -> Step:
        if user is None:
            self._state = _State.TOKEN
            return Step(answer, None)
        if self._user not in (None, user):
            text = f"Cannot change principals during re-authentication from User.{self._user}: User.{user}"
            raise self._failed(text, user)
        self._user = user
        self._authenticated_by = self._mechanism
        assert self._exchange is not None
        left_ms, self._exchange = self._exchange.token_left_ms, None
        self._state = _State.DONE
        self.is_by_token = left_ms is not None
        longest_ms = self._config.by_name[self._mechanism].session_ms
        known = [one for one in (longest_ms or None, left_ms, lifetime_ms) if one is not None]
        session_ms = max(0, min(known, default=0))
        # A token that only the skew of clocks lets pass ends at once, although its client is told 0, as in Kafka.
        self._expires_ms = now_ms + session_ms if known else None
        return Step(answer, user, session_ms)

    def _failed(self, text: str, user: str | None = None) -> ApiError:
        self._refused(self._mechanism, user or "", text)
        return ApiError(ErrorCode.sasl_authentication_failed, text)
