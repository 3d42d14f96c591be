"""Broken tokens, messages and key sets of OAUTHBEARER: they are refused with the error that is documented, or taken."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek.coordination.errors import RefusedLoginError
from odradek.coordination.oauthbearer.exchange import OAuthBearerExchange
from odradek.coordination.oauthbearer.keys import KeySet
from odradek.coordination.oauthbearer.tokens import InvalidTokenError, Token, TokenRules, parse_token
from odradek.testing.tokens import TokenProvider

PROVIDERS = [TokenProvider("ES256"), TokenProvider("RS256", key_id="rsa"), TokenProvider("Ed25519", key_id="okp")]
KEYS = [one.public_key for one in PROVIDERS]
KEY_SET = KeySet(json.dumps({"keys": KEYS}).encode())
RULES = TokenRules(frozenset({"kafka"}), "https://issuer.test")
NOW_MS = 1_700_000_000_000

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
CLAIMS = st.dictionaries(st.sampled_from(["iss", "aud", "sub", "exp", "iat", "nbf", "jti", "scope"]), VALUES)
HEADERS = st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk", "zip"]), VALUES)
NAMES = ["kty", "crv", "x", "y", "n", "e", "use", "key_ops", "alg", "kid", "d"]
MEMBERS = st.dictionaries(st.sampled_from(NAMES), VALUES)


@given(claims=CLAIMS, header=HEADERS, number=st.sampled_from([0, 1, 2]))
def test_a_token_with_any_claims_and_header(claims: dict[str, Any], header: dict[str, Any], number: int) -> None:
    full = {"iss": "https://issuer.test", "aud": "kafka", "sub": "alice", "iat": 1_700_000_000, "exp": 1_700_000_060}
    payload = json.dumps(full | claims).encode()
    token = PROVIDERS[number].sign(payload, **header)
    with suppress(InvalidTokenError):
        parsed = parse_token(token)
        KEY_SET.check(parsed)
        assert parsed.header["alg"] == PROVIDERS[number].algorithm
        found = RULES.check(parsed.payload, NOW_MS)
        assert found.user
        assert found.user.strip() == found.user or not found.user.isascii()
        assert found.lifetime_ms > -30_000


@given(cut=st.integers(0, 400), text=st.text(max_size=4), gone=st.integers(0, 3), number=st.sampled_from([0, 1, 2]))
def test_no_changed_token_is_taken(cut: int, text: str, gone: int, number: int) -> None:
    token = PROVIDERS[number].token("alice")
    changed = token[:cut] + text + token[cut + gone :]
    with suppress(InvalidTokenError):
        parsed = parse_token(changed)
        KEY_SET.check(parsed)
        # The last characters of base64 have bits that are not used.
        assert changed[:-1] == token[:-1]


@given(data=st.binary(max_size=64) | st.text(max_size=64).map(str.encode))
def test_any_message(data: bytes) -> None:
    async def validate(text: str) -> Token:
        return Token("alice", 1)

    def refuse(message: bytes) -> Awaitable[object] | None:
        with suppress(RefusedLoginError):
            return OAuthBearerExchange(validate).evaluate(message)
        return None

    for message in (data, b"n,," + data, b"n,,\x01" + data, b"n,,\x01auth=Bearer " + data + b"\x01\x01"):
        found = refuse(message)
        if found is not None:
            found.close()  # type: ignore[attr-defined]


@given(changes=MEMBERS, number=st.sampled_from([0, 1, 2]), place=st.integers(0, 300), data=st.binary(max_size=3))
def test_any_key_set(changes: dict[str, Any], number: int, place: int, data: bytes) -> None:
    text = json.dumps({"keys": [KEYS[number] | changes]}).encode()
    for broken in (text, text[:place] + data + text[place + len(data) :]):
        with suppress(ValueError):
            keys = KeySet(broken)
            with suppress(InvalidTokenError):
                keys.check(parse_token(PROVIDERS[number].token("alice")))
