"""Tokens of OAUTHBEARER: a JWS in its compact form (RFC 7515), whose payload are the claims of a JWT (RFC 7519).

    base64url({"alg": "RS256", "kid": "a"}) . base64url({"sub": "alice", "iat": 1, "exp": 2}) . base64url(signature)

Nothing of a token is in the text of an error: who reads the log must not get to know it.

As in Kafka a token must have `iat` and `exp`. Stricter than there: only asymmetric algorithms, no `crit` and no `b64`
in the header, no base64 that is not that of RFC 7515.

Source in Kafka: `BrokerJwtValidator`, `ClaimValidationUtils`, `OAuthBearerUnsecuredJws`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek.errors import BrokerError

MOST_TOKEN_BYTES = 1 << 16
_MOST_HEADER_BYTES = 1 << 13
MOST_USER_BYTES = 1 << 12
"""The answers of older versions have texts of at most 32 KB, and some have two users."""

_LONGEST_MS = 100 * 365 * 86_400_000
"""A client of Java counts a lifetime in ns, which overflow after 292 years."""

_LATEST_S = 10**15
"""Later times, which Kafka refuses too, would not fit into 64 bits as ms; `json` gives numbers of any size."""

_BASE64 = re.compile(r"[A-Za-z0-9_-]+")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_LAST = (_LETTERS, "", _LETTERS[::16], _LETTERS[::4])
"""The letters that base64 may end with, by its length modulo 4."""

_BLANKS = "".join(map(chr, range(33)))
"""What Java's `trim` removes."""

INVALID_TOKEN, INSUFFICIENT_SCOPE = "invalid_token", "insufficient_scope"


class InvalidTokenError(BrokerError):
    """A token that is refused.

    Args:
        reason: Why, for the log of the broker, without anything of the token; a client gets the status only.
        status: An error of RFC 6750.
        scope: The scope that is required.
    """

    def __init__(self, reason: str, status: str = INVALID_TOKEN, scope: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.scope = scope


class Token(NamedTuple):
    """What counts of a token that is valid: its user, and for how many ms it is."""

    user: str
    lifetime_ms: int


class ParsedToken(NamedTuple):
    """A token whose signature was not checked.

    Attributes:
        header: The header.
        payload: The payload.
        signed: What the signature is of.
        signature: The signature.
    """

    header: Mapping[str, Any]
    payload: bytes
    signed: bytes
    signature: bytes


def strict_json(data: bytes) -> dict[str, Any]:
    """Return an object of JSON.

    Raises:
        ValueError: It is none, has a name twice or is nested too deeply, or a number is none of JSON.
    """
    try:
        found = json.loads(data.decode(), object_pairs_hook=_object, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("is no object")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("has a name twice")
    return found


def _no_constant(text: str) -> None:
    raise ValueError("has a number that is none of JSON")


def parse_token(text: str) -> ParsedToken:
    """Take a token apart.

    Raises:
        InvalidTokenError: It is too long, or of another form.
    """
    if len(text) > MOST_TOKEN_BYTES:
        raise InvalidTokenError(f"it has more than {MOST_TOKEN_BYTES} characters")
    parts = text.split(".", 3)
    if len(parts) != 3:
        raise InvalidTokenError("it is not of the form HEADER.PAYLOAD.SIGNATURE")
    if len(parts[0]) > _MOST_HEADER_BYTES:
        raise InvalidTokenError(f"its header has more than {_MOST_HEADER_BYTES} characters")
    header = _json_of(_decoded(parts[0]), "header")
    if not isinstance(header.get("alg"), str):
        raise InvalidTokenError("its header names no algorithm")
    if "crit" in header or "b64" in header:
        raise InvalidTokenError("its header asks for an extension")
    if not isinstance(header.get("kid", ""), str):
        raise InvalidTokenError("the key id of its header is no string")
    signature = _decoded(parts[2]) if parts[2] else b""
    return ParsedToken(header, _decoded(parts[1]), f"{parts[0]}.{parts[1]}".encode(), signature)


def _decoded(part: str) -> bytes:
    # The bits that are left over in the last letter are 0; otherwise one token could be written in several ways.
    if not _BASE64.fullmatch(part) or part[-1] not in _LAST[len(part) % 4]:
        raise InvalidTokenError("a part of it is not base64url")
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _json_of(data: bytes, what: str) -> dict[str, Any]:
    try:
        return strict_json(data)
    except ValueError:
        # Without its text, which may have a part of the token.
        raise InvalidTokenError(f"its {what} is no object of JSON without repeated names") from None


class TokenRules(NamedTuple):
    """What the claims of a token must be.

    Attributes:
        audiences: A token must be for one of them; if there are none, it may be for any.
        issuer: Who must have issued it; None for anybody.
        skew_ms: How much clocks may differ.
        scope_claim: The claim with the scopes.
        user_claim: The claim with the user.
        scopes: The scopes that it must have.
        is_unsecured: Whether tokens have no signature; then `iat` may be missing and must not be in the future.
    """

    audiences: frozenset[str] = frozenset()
    issuer: str | None = None
    skew_ms: int = 30_000
    scope_claim: str = "scope"
    user_claim: str = "sub"
    scopes: tuple[str, ...] = ()
    is_unsecured: bool = False

    def check(self, payload: bytes, now_ms: int) -> Token:
        """Check the claims of a token.

        Raises:
            InvalidTokenError: They are not as they must be.
        """
        claims = _json_of(payload, "payload")
        for name in ("iss", "sub", "jti"):
            _text(claims, name)
        lifetime_ms = self._lifetime_ms(claims, now_ms)
        if not self.is_unsecured:
            self._check_audience(claims.get("aud"))
            if self.issuer is not None and claims.get("iss") != self.issuer:
                raise InvalidTokenError("it is of another issuer")
        scopes = self._scopes(claims.get(self.scope_claim))
        if not set(self.scopes) <= scopes:
            raise InvalidTokenError("it lacks a required scope", INSUFFICIENT_SCOPE, f"[{', '.join(self.scopes)}]")
        user = (_text(claims, self.user_claim) or "").strip(_BLANKS)
        try:
            size = len(user.encode())
        except UnicodeEncodeError:
            raise InvalidTokenError("its user is no text") from None
        if size > MOST_USER_BYTES:
            raise InvalidTokenError(f"its user has more than {MOST_USER_BYTES} bytes")
        if not user:
            raise InvalidTokenError(f"it names no user in the claim {self.user_claim}")
        return Token(user, lifetime_ms)

    def _lifetime_ms(self, claims: Mapping[str, Any], now_ms: int) -> int:
        expires, issued, begins = (_time_ms(claims, name) for name in ("exp", "iat", "nbf"))
        if expires is None or expires < 0:
            raise InvalidTokenError("it has no time of expiry")
        if not self.is_unsecured and (issued is None or issued < 0):
            raise InvalidTokenError("it does not say when it was issued")
        if expires <= now_ms - self.skew_ms:
            raise InvalidTokenError("it has expired")
        if begins is not None and begins > now_ms + self.skew_ms:
            raise InvalidTokenError("it is not valid yet")
        if self.is_unsecured and issued is not None and issued > now_ms + self.skew_ms:
            raise InvalidTokenError("it was issued in the future")
        if any(one is not None and expires < one for one in (issued, begins)):
            raise InvalidTokenError("it expires before it is valid")
        return min(expires - now_ms, _LONGEST_MS)

    def _check_audience(self, found: Any) -> None:
        named = [found] if isinstance(found, str) else found
        if named is not None and not (isinstance(named, list) and all(isinstance(one, str) for one in named)):
            raise InvalidTokenError("its audience is no string and no list of strings")
        if self.audiences and self.audiences.isdisjoint(named or ()):
            raise InvalidTokenError("it is for another audience")

    def _scopes(self, found: Any) -> set[str]:
        # As in Kafka anything else is no scope.
        listed = [found] if isinstance(found, str) else found if isinstance(found, list) else []
        if not all(isinstance(one, str) for one in listed):
            raise InvalidTokenError(f"its claim {self.scope_claim} has a scope that is no string")
        scopes = [one.strip(_BLANKS) for one in listed]
        if self.is_unsecured:
            return set(scopes)
        if not all(scopes) or len(set(scopes)) < len(scopes):
            raise InvalidTokenError(f"its claim {self.scope_claim} has a scope that is empty, or one twice")
        return set(scopes)


def _text(claims: Mapping[str, Any], name: str) -> str | None:
    found = claims.get(name)
    if found is not None and not isinstance(found, str):
        raise InvalidTokenError(f"its claim {name} is no string")
    return found


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) <= _LATEST_S:
        raise InvalidTokenError(f"its claim {name} is no time")
    return int(found * 1000)
