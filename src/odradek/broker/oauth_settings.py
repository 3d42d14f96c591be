"""The broker's settings of OAUTHBEARER.

    listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class=...OAuthBearerValidatorCallbackHandler
    listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url=https://login.example.org/keys

Source in Kafka: `BrokerSecurityConfigs`, `SaslConfigs`.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek.storage.config_def import Parser, int32, int64

_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
OAUTHBEARER_HANDLER = f"{_PACKAGE}OAuthBearerValidatorCallbackHandler"
OAUTHBEARER_MODULE = f"{_PACKAGE}OAuthBearerLoginModule"
HANDLER_CLASS = "sasl.server.callback.handler.class"
EXPECTED_AUDIENCE = "sasl.oauthbearer.expected.audience"
EXPECTED_ISSUER = "sasl.oauthbearer.expected.issuer"
ALLOW_ANY_AUDIENCE = "sasl.oauthbearer.allow.unverified.audience"
ALLOW_ANY_ISSUER = "sasl.oauthbearer.allow.unverified.issuer"
_VALIDATORS = (f"{_PACKAGE}DefaultJwtValidator", f"{_PACKAGE}BrokerJwtValidator")

OAUTH_SETTINGS: Mapping[str, str] = {
    HANDLER_CLASS: "What checks the tokens of OAUTHBEARER.",
    "sasl.oauthbearer.jwt.validator.class": "How the tokens of OAUTHBEARER are checked: by the keys of a JWKS.",
    "sasl.oauthbearer.jwks.endpoint.url": "The file (file:) or the address (http:, https:) with the keys of tokens.",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "How often the keys are fetched.",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "After what time a fetch of keys that failed is tried again.",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "The longest time between such attempts.",
    EXPECTED_AUDIENCE: "The audiences that tokens may be for.",
    EXPECTED_ISSUER: "The issuer that tokens must be of.",
    ALLOW_ANY_AUDIENCE: "Whether tokens may be for any audience, if none is expected.",
    ALLOW_ANY_ISSUER: "Whether tokens may be of any issuer, if none is expected.",
    "sasl.oauthbearer.clock.skew.seconds": "How much the clock of the issuer may differ.",
    "sasl.oauthbearer.scope.claim.name": "The claim of a token with its scopes.",
    "sasl.oauthbearer.sub.claim.name": "The claim of a token with the user.",
}
"""What the settings do."""

OAUTH_TOKEN_SETTINGS = frozenset(name for name in OAUTH_SETTINGS if name != HANDLER_CLASS)
"""Those that only OAUTHBEARER has."""


def _validator(text: str) -> str:
    if text.strip() not in _VALIDATORS:
        # Among those that Kafka has is one that checks no signature.
        raise ValueError(f"is none of {', '.join(_VALIDATORS)}, which this broker has")
    return text.strip()


def _claim(text: str) -> str:
    if not text.strip():
        raise ValueError("names no claim")
    return text.strip()


OAUTH_PARSERS: Mapping[str, Parser] = {
    HANDLER_CLASS: str.strip,
    "sasl.oauthbearer.jwt.validator.class": _validator,
    "sasl.oauthbearer.jwks.endpoint.url": str.strip,
    EXPECTED_ISSUER: str.strip,
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": int64(1),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": int64(1),
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": int64(1),
    "sasl.oauthbearer.clock.skew.seconds": int32(0),
    "sasl.oauthbearer.scope.claim.name": _claim,
    "sasl.oauthbearer.sub.claim.name": _claim,
}
"""How settings are read for which Kafka's type is not enough."""
