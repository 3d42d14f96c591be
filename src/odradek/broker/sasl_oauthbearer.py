"""SASL's mechanism OAUTHBEARER: tokens of an identity provider, which are checked by its keys.

    listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class=...OAuthBearerValidatorCallbackHandler
    listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url=file:///etc/odradek/jwks.json

Without the class Kafka takes tokens without a signature, which anybody can make; here the broker starts so only if its
owner says so (`--allow-unsecured-tokens`).

Source in Kafka: `OAuthBearerValidatorCallbackHandler`, `OAuthBearerUnsecuredValidatorCallbackHandler`.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from odradek.broker.clock import Clock
from odradek.broker.config import BrokerConfig
from odradek.broker.jaas import parse_login_module
from odradek.broker.jwks import JwksAddress, JwksFile, fetch_jwks, parse_jwks_url
from odradek.broker.oauth_settings import (
    ALLOW_ANY_AUDIENCE,
    ALLOW_ANY_ISSUER,
    EXPECTED_AUDIENCE,
    EXPECTED_ISSUER,
    HANDLER_CLASS,
    OAUTH_SETTINGS,
    OAUTH_TOKEN_SETTINGS,
    OAUTHBEARER_HANDLER,
    OAUTHBEARER_MODULE,
)
from odradek.broker.refusals import Refusals
from odradek.broker.tls import read_store
from odradek.coordination.oauthbearer.exchange import OAuthBearerExchange
from odradek.coordination.oauthbearer.keys import UnknownKeyError
from odradek.coordination.oauthbearer.tokens import InvalidTokenError, Token, TokenRules, parse_token
from odradek.errors import InvalidConfigError, OdradekError
from odradek.printable import logger

_logger = logger(__name__)

OAUTHBEARER = "OAUTHBEARER"
_PREFIX = "sasl.oauthbearer."
_URL = "sasl.oauthbearer.jwks.endpoint.url"
_TRUST_STORE = frozenset(("ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type"))
_OF_UNSECURED = "unsecuredValidator"

Run = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs an action in another thread."""


class _Settings:
    """The settings of OAUTHBEARER of a listener by name, and the options of its login module."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self._config = config
        self.listener = listener
        text = self["sasl.jaas.config"]
        self.options: Mapping[str, str] = {}
        if text is not None:
            module = parse_login_module(text)
            if module.name == OAUTHBEARER_MODULE:
                self.options = module.options
            elif f"{OAUTHBEARER.lower()}." in (self.given_name("sasl.jaas.config") or ""):
                # Without the mechanism in its name the setting may be that of another one.
                raise ValueError(f"is not {OAUTHBEARER_MODULE}")

    def __getitem__(self, name: str) -> Any:
        return self._config.of_listener(self.listener, name, OAUTHBEARER)

    def given_name(self, name: str) -> str | None:
        """Return the name that a setting was given by; None if it was not."""
        return self._config.name_for(self.listener, name, OAUTHBEARER)

    def name(self, setting: str) -> str:
        """Return the name of a setting that is only for this mechanism of the listener."""
        return f"listener.name.{self.listener.lower()}.{OAUTHBEARER.lower()}.{setting}"


class OAuthBearer:
    """How clients of a listener log in by OAUTHBEARER. It belongs to the event loop's thread.

    Args:
        config: The broker's settings.
        listener: The listener.
        clock: The time.
        run: Runs an action in another thread.

    Raises:
        InvalidConfigError: A setting is missing, or its value is not valid.
    """

    def __init__(self, config: BrokerConfig, listener: str, clock: Clock, run: Run) -> None:
        try:
            settings = _Settings(config, listener)
        except ValueError as error:
            name = f"listener.name.{listener.lower()}.oauthbearer.sasl.jaas.config"
            raise InvalidConfigError(name, str(error)) from None
        self._listener = listener
        self._refusals = Refusals(_logger, "tokens", clock.elapsed_ms)
        handler, given = settings[HANDLER_CLASS], settings.given_name(HANDLER_CLASS)
        self._validator: _SignedTokens | _UnsecuredTokens
        if handler and given != settings.name(HANDLER_CLASS):
            # Kafka reads it by this name only, and takes unsecured tokens if it has another one.
            raise InvalidConfigError(str(given), f"write {settings.name(HANDLER_CLASS)}")
        # Any other class has stopped the start before.
        if handler:
            self._validator = _SignedTokens(settings, clock, run)
        else:
            self._validator = _UnsecuredTokens(settings, clock, is_allowed=config.allows_unsecured_tokens)

    def begin(self) -> OAuthBearerExchange:
        """Begin a login."""
        return OAuthBearerExchange(self._validate)

    def close(self) -> None:
        """Fetch no more keys."""
        self._validator.close()

    async def _validate(self, text: str) -> Token:
        try:
            return await self._validator.validate(text)
        except InvalidTokenError as error:
            # Clients are not told why, and strangers must not fill the log.
            line, what = "%s: a token is refused: %s", (self._listener, error.reason)
            self._refusals.tell(self._listener, error.reason, line, *what, level=logging.WARNING)
            raise


class _SignedTokens:
    """Validates tokens by the keys of a JWKS."""

    def __init__(self, settings: _Settings, clock: Clock, run: Run) -> None:
        # Imported now, so that a missing package stops the start, and no client waits for it.
        import joserfc.jwk
        import joserfc.jws  # noqa: F401

        unused = [name for name in settings.options if name.startswith(_OF_UNSECURED)]
        if unused:
            name = settings.name("sasl.jaas.config")
            raise InvalidConfigError(name, f"has options of tokens without a signature: {', '.join(unused)}")
        # All of Kafka's own that check a signature are one here; reading the setting refuses any other.
        validator = settings["sasl.oauthbearer.jwt.validator.class"].rpartition(".")[2]
        self._clock = clock
        self._run = run
        self._rules = TokenRules(
            frozenset(settings[EXPECTED_AUDIENCE]),
            settings[EXPECTED_ISSUER] or None,
            settings["sasl.oauthbearer.clock.skew.seconds"] * 1000,
            settings["sasl.oauthbearer.scope.claim.name"],
            settings["sasl.oauthbearer.sub.claim.name"],
        )
        for missing, name, allow in (
            (not self._rules.audiences, EXPECTED_AUDIENCE, ALLOW_ANY_AUDIENCE),
            (self._rules.issuer is None, EXPECTED_ISSUER, ALLOW_ANY_ISSUER),
        ):
            # Read in any case, so that a wrong value is named.
            if not settings[allow] and missing:
                raise InvalidConfigError(settings.name(name), f"is missing; {allow}=true takes tokens of any")
        if not self._rules.audiences or self._rules.issuer is None:
            text = "%s: %s takes tokens for any purpose: set %sexpected.audience and %sexpected.issuer"
            _logger.warning(text, settings.listener, validator, _PREFIX, _PREFIX)
        # One at a time: the threads are also those of large requests.
        self._turn = asyncio.Lock()
        self._source = _source(settings, clock)

    async def validate(self, text: str) -> Token:
        await self._source.ready()
        try:
            return await self._checked(text)
        except UnknownKeyError:
            # The issuer may have begun to use another key.
            if not await self._source.refresh():
                raise
            return await self._checked(text)

    async def _checked(self, text: str) -> Token:
        async with self._turn:
            token: Token = await self._run(partial(self._check, text))
            return token

    def _check(self, text: str) -> Token:
        """Check a token, in another thread: the signature takes up to a millisecond, a long token several."""
        token = parse_token(text)
        keys = self._source.keys()
        if keys is None:
            raise UnknownKeyError("there are no keys yet")
        keys.check(token)
        return self._rules.check(token.payload, self._clock.now_ms())

    def close(self) -> None:
        self._source.close()


def _source(settings: _Settings, clock: Clock) -> JwksFile | JwksAddress:
    # Read for a file, too, so that a wrong value is named.
    endpoint = "sasl.oauthbearer.jwks.endpoint"
    times = [settings[f"{endpoint}.{one}.ms"] for one in ("refresh", "retry.backoff", "retry.backoff.max")]
    if times[1] > times[2]:
        name = settings.name(f"{endpoint}.retry.backoff.ms")
        raise InvalidConfigError(name, f"must not be greater than {endpoint}.retry.backoff.max.ms")
    text = settings[_URL]
    if not text:
        raise InvalidConfigError(settings.name(_URL), "name the file or the address with the keys of tokens")
    try:
        url = parse_jwks_url(text)
        if isinstance(url, Path):
            return JwksFile(url)
    except ValueError as error:
        raise InvalidConfigError(settings.name(_URL), str(error)) from None
    return JwksAddress(url, clock, times[0], times[1], times[2], partial(fetch_jwks, context=_tls(settings)))


def _tls(settings: _Settings) -> ssl.SSLContext | None:
    """Return whose certificates the server of the keys may have, if the login module has options for that."""
    unknown = [name for name in settings.options if name.startswith("ssl.") and name not in _TRUST_STORE]
    location = settings.options.get("ssl.truststore.location")
    name = settings.name("sasl.jaas.config")
    if unknown:
        raise InvalidConfigError(name, f"has options that have no effect here: {', '.join(unknown)}")
    if location is None:
        return None
    try:
        store = read_store(location, settings.options.get("ssl.truststore.password"))
        return ssl.create_default_context(cadata=store.trusted().decode())
    except (OSError, OdradekError, ValueError) as error:
        raise InvalidConfigError(name, f"{location} cannot be used: {error}") from None


class _UnsecuredTokens:
    """Takes tokens without a signature, which anybody can make."""

    def __init__(self, settings: _Settings, clock: Clock, *, is_allowed: bool) -> None:
        self._clock = clock
        given = next(filter(settings.given_name, filter(OAUTH_TOKEN_SETTINGS.__contains__, OAUTH_SETTINGS)), None)
        if given is not None or not is_allowed:
            restricts = "" if given is None else f" {given} has no effect without it."
            raise InvalidConfigError(
                settings.name(HANDLER_CLASS),
                f"name {OAUTHBEARER_HANDLER}.{restricts} Without it anybody can make tokens for any user: "
                "serve so with --allow-unsecured-tokens only",
            )
        _logger.warning("%s takes tokens that anybody can make, for any user", settings.listener)
        options = {name: text.strip() for name, text in settings.options.items() if text.strip()}
        prefix = _OF_UNSECURED
        skew = options.get(f"{prefix}AllowableClockSkewMs", "0")
        if not skew.isdecimal():
            raise InvalidConfigError(settings.name("sasl.jaas.config"), f"{prefix}AllowableClockSkewMs is no number")
        self._rules = TokenRules(
            skew_ms=int(skew),
            scope_claim=options.get(f"{prefix}ScopeClaimName", "scope"),
            user_claim=options.get(f"{prefix}PrincipalClaimName", "sub"),
            scopes=tuple(options.get(f"{prefix}RequiredScope", "").split()),
            is_unsecured=True,
        )

    async def validate(self, text: str) -> Token:
        token = parse_token(text)
        if token.header["alg"] != "none" or token.signature:
            raise InvalidTokenError("it has a signature, which nothing checks")
        return self._rules.check(token.payload, self._clock.now_ms())

    def close(self) -> None:
        """Do nothing."""
