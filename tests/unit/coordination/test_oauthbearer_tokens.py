"""Tokens of OAUTHBEARER: what their header, their claims and the key set must be like."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest

from odradek.coordination.oauthbearer.keys import MOST_JWKS_BYTES, KeySet, UnknownKeyError
from odradek.coordination.oauthbearer.tokens import (
    MOST_TOKEN_BYTES,
    MOST_USER_BYTES,
    InvalidTokenError,
    Token,
    TokenRules,
    parse_token,
    strict_json,
)
from odradek.testing.tokens import TokenProvider

NOW_MS = 1_700_000_000_000
NOW_S = NOW_MS // 1000
RULES = TokenRules(frozenset({"kafka", "other"}), "issuer", skew_ms=30_000)
CLAIMS: dict[str, Any] = {"iss": "issuer", "aud": "kafka", "sub": "alice", "iat": NOW_S, "exp": NOW_S + 60}
PROVIDER = TokenProvider("ES256")
RSA = TokenProvider("RS256", key_id="rsa")
PEM = RSA._key.as_pem(private=False)


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def unsigned(header: dict[str, Any], payload: bytes = b"{}", signature: bytes = b"") -> str:
    return ".".join(base64url(one) for one in (json.dumps(header).encode(), payload, signature))


def check(rules: TokenRules = RULES, /, **changed: Any) -> Token:
    claims = {name: value for name, value in (CLAIMS | changed).items() if value is not ...}
    return rules.check(json.dumps(claims).encode(), NOW_MS)


def key_set(*keys: Any) -> KeySet:
    return KeySet(json.dumps({"keys": keys}).encode())


def test_a_token_gives_its_user_and_how_long_it_is_valid() -> None:
    assert check() == Token("alice", 60_000)
    assert check(aud=["x", "other"], nbf=NOW_S, exp=NOW_S + 1.5) == Token("alice", 1500)
    assert check(sub=" \talice\n") == Token("alice", 60_000)


def test_the_skew_of_clocks_lets_a_token_pass_for_a_while() -> None:
    assert check(exp=NOW_S - 29, iat=NOW_S - 60).lifetime_ms == -29_000
    assert check(nbf=NOW_S + 30).user == "alice"
    # As in Kafka: a token may have been issued by a clock that is ahead.
    assert check(iat=NOW_S + 50).user == "alice"


def test_a_lifetime_is_no_longer_than_clients_can_count() -> None:
    assert check(exp=10**15).lifetime_ms == 100 * 365 * 86_400_000


@pytest.mark.parametrize(
    ("reason", "changed"),
    [
        ("it has expired", {"exp": NOW_S - 30, "iat": NOW_S - 60}),
        ("it has no time of expiry", {"exp": ...}),
        ("it has no time of expiry", {"exp": None}),
        ("it has no time of expiry", {"exp": -1, "iat": -2}),
        ("its claim exp is no time", {"exp": str(NOW_S + 60)}),
        ("its claim exp is no time", {"exp": True}),
        ("its claim exp is no time", {"exp": [NOW_S + 60]}),
        ("its claim exp is no time", {"exp": 1e300}),
        ("its claim exp is no time", {"exp": 10**4000}),
        ("it does not say when it was issued", {"iat": ...}),
        ("it does not say when it was issued", {"iat": -5}),
        ("its claim iat is no time", {"iat": "now"}),
        ("it is not valid yet", {"nbf": NOW_S + 31}),
        ("its claim nbf is no time", {"nbf": {}}),
        ("it expires before it is valid", {"iat": NOW_S + 61}),
        ("it expires before it is valid", {"nbf": NOW_S + 25, "exp": NOW_S + 20}),
        ("it is of another issuer", {"iss": "Issuer"}),
        ("it is of another issuer", {"iss": ...}),
        ("its claim iss is no string", {"iss": ["issuer"]}),
        ("it is for another audience", {"aud": "kafka2"}),
        ("it is for another audience", {"aud": []}),
        ("it is for another audience", {"aud": ...}),
        ("its audience is no string and no list of strings", {"aud": {"kafka": 1}}),
        ("its audience is no string and no list of strings", {"aud": ["kafka", 1]}),
        ("its claim sub is no string", {"sub": 7}),
        ("its claim sub is no string", {"sub": {"a": "alice"}}),
        ("its claim sub is no string", {"sub": ["alice"]}),
        ("its claim jti is no string", {"jti": 7}),
        ("it names no user in the claim sub", {"sub": ...}),
        ("it names no user in the claim sub", {"sub": ""}),
        ("it names no user in the claim sub", {"sub": " \t "}),
        ("its user is no text", {"sub": "a\ud800"}),
        ("its claim scope has a scope that is no string", {"scope": ["read", None]}),
        ("its claim scope has a scope that is empty, or one twice", {"scope": ["read", " read"]}),
        ("its claim scope has a scope that is empty, or one twice", {"scope": " "}),
    ],
)
def test_a_token_whose_claims_are_wrong_is_refused(reason: str, changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidTokenError) as refused:
        check(**changed)
    assert refused.value.reason == reason
    assert refused.value.status == "invalid_token"


def test_a_token_may_be_for_any_audience_where_none_is_expected() -> None:
    for audience in (..., "kafka", ["a", "b"]):
        assert check(TokenRules(), aud=audience, iss=...) == Token("alice", 60_000)


def test_a_user_fits_into_the_answers_of_every_version() -> None:
    assert check(sub="ä" * (MOST_USER_BYTES // 2)).user == "ä" * (MOST_USER_BYTES // 2)
    for user in ("a" * (MOST_USER_BYTES + 1), "ä" * (MOST_USER_BYTES // 2 + 1)):
        with pytest.raises(InvalidTokenError, match=f"its user has more than {MOST_USER_BYTES} bytes"):
            check(sub=user)


def test_claims_may_have_other_names() -> None:
    rules = RULES._replace(user_claim="client_id", scope_claim="scp")
    assert check(rules, client_id="app", scope=7, scp=["a", "b"]).user == "app"
    for claim in ({"client_id": 7}, {"client_id": ...}, {"client_id": "app", "scp": [7]}):
        with pytest.raises(InvalidTokenError):
            check(rules, **claim)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"sub": "alice", "sub": "root", "iat": 1700000000, "exp": 1700000060, "iss": "issuer", "aud": "kafka"}',
        b'{"sub": "alice", "iat": 1700000000, "exp": NaN, "iss": "issuer", "aud": "kafka"}',
        b'{"sub": "alice", "iat": 1700000000, "exp": Infinity, "iss": "issuer", "aud": "kafka"}',
        b'{"a": ' * 5000 + b"1" + b"}" * 5000,
        b"[" * 30_000,
        b'["sub", "alice"]',
        b'"alice"',
        b"",
        b"{",
        b"\xff\xfe{\x00}\x00",
        b'{"sub": "\xff"}',
        b'{"exp": ' + b"9" * 5000 + b"}",
    ],
)
def test_a_payload_that_is_no_object_of_json_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidTokenError) as refused:
        RULES.check(payload, NOW_MS)
    assert refused.value.reason == "its payload is no object of JSON without repeated names"


def test_infinite_times_by_their_digits_are_no_times() -> None:
    with pytest.raises(InvalidTokenError, match="its claim exp is no time"):
        RULES.check(b'{"exp": 1e999}', NOW_MS)


def test_names_are_not_repeated_within_claims() -> None:
    with pytest.raises(ValueError, match="twice"):
        strict_json(b'{"a": [{"b": 1, "b": 2}]}')


@pytest.mark.parametrize(
    ("reason", "token"),
    [
        ("it is not of the form", ""),
        ("it is not of the form", "e30.e30"),
        ("it is not of the form", "e30.e30.e30.e30"),
        ("it is not of the form", "." * 60_000),
        ("a part of it is not base64url", "..e30"),
        ("a part of it is not base64url", "e30=.e30.e30"),
        ("a part of it is not base64url", "e3 0.e30.e30"),
        ("a part of it is not base64url", "e+/0.e30.e30"),
        ("a part of it is not base64url", "e30aa.e30.e30"),
        ("a part of it is not base64url", unsigned({"alg": "ES256"}) + "a"),
        # The same bytes as e30 and e3090Q, written in another way.
        ("a part of it is not base64url", "e31.e30.e30"),
        ("a part of it is not base64url", f"{unsigned({'alg': 'ES256'})[:-1]}.e31"),
        ("a part of it is not base64url", f"{unsigned({'alg': 'ES256'})[:-1]}.e3090R"),
        ("its header is no object", f"{base64url(b'[]')}.e30.e30"),
        ("its header is no object", f"""{base64url(b'{"alg": "ES256", "alg": "none"}')}.e30.e30"""),
        ("its header is no object", f"{base64url(b'[' * 5000)}.e30.e30"),
        ("its header names no algorithm", "e30.e30.e30"),
        ("its header names no algorithm", unsigned({"alg": None})),
        ("its header names no algorithm", unsigned({"alg": ["ES256"]})),
        ("its header asks for an extension", unsigned({"alg": "ES256", "crit": []})),
        ("its header asks for an extension", unsigned({"alg": "ES256", "crit": ["exp"], "exp": 1})),
        ("its header asks for an extension", unsigned({"alg": "ES256", "b64": False})),
        ("the key id of its header is no string", unsigned({"alg": "ES256", "kid": 7})),
        ("the key id of its header is no string", unsigned({"alg": "ES256", "kid": {"a": []}})),
        ("its header has more than 8192 characters", unsigned({"alg": "ES256", "a": "a" * 9000})),
        (f"it has more than {MOST_TOKEN_BYTES} characters", unsigned({"alg": "ES256"}, b"a" * MOST_TOKEN_BYTES)),
    ],
)
def test_a_token_of_another_form_is_refused(reason: str, token: str) -> None:
    with pytest.raises(InvalidTokenError, match=reason):
        parse_token(token)


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519"]
)
def test_each_algorithm_with_a_public_key_is_taken(algorithm: str) -> None:
    provider = RSA if algorithm == "RS256" else TokenProvider(algorithm, key_id="rsa")
    token = parse_token(provider.token("alice"))
    keys = key_set(provider.public_key)
    keys.check(token)
    for wrong in (token._replace(signed=token.signed + b"a"), token._replace(signature=token.signature[::-1])):
        with pytest.raises(InvalidTokenError, match="its signature is wrong"):
            keys.check(wrong)


@pytest.mark.parametrize("signature", [b"", b"\0", b"\0" * 64, b"\xff" * 64, b"\xff" * 40_000])
def test_signatures_of_nothing_are_wrong(signature: bytes) -> None:
    for provider in (PROVIDER, RSA):
        token = parse_token(provider.token("alice"))
        with pytest.raises(InvalidTokenError):
            key_set(provider.public_key).check(token._replace(signature=signature))


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "NONE", "HS256", "HS384", "HS512", "ES256K", "", "RSA-OAEP", "dir"]
)
def test_no_other_algorithm_is_taken(algorithm: str) -> None:
    keys = key_set(RSA.public_key, {"kty": "oct", "kid": "rsa", "k": "c2VjcmV0"})
    for secret in (PEM, json.dumps(RSA.public_key).encode(), b"secret", b""):
        signed = f"{base64url(json.dumps({'alg': algorithm, 'kid': 'rsa'}).encode())}.{base64url(b'{}')}"
        signature = hmac.digest(secret, signed.encode(), hashlib.sha256)
        for token in (f"{signed}.{base64url(signature)}", f"{signed}."):
            with pytest.raises(InvalidTokenError, match="its algorithm is none with a public key"):
                keys.check(parse_token(token))


def test_a_key_is_taken_with_algorithms_of_its_kind_only() -> None:
    keys = key_set(RSA.public_key, PROVIDER.public_key)
    for algorithm, kid in (("ES256", "rsa"), ("RS256", "test"), ("ES384", "test"), ("EdDSA", "test")):
        token = parse_token(unsigned({"alg": algorithm, "kid": kid}, signature=b"a" * 64))
        with pytest.raises(UnknownKeyError):
            keys.check(token)
    # A key that says which algorithm it is for.
    keys = key_set({**RSA.public_key, "alg": "PS256"})
    with pytest.raises(InvalidTokenError, match="the key that it names cannot be used"):
        keys.check(parse_token(RSA.token("alice")))


def test_a_key_is_found_by_its_id_or_as_the_first_of_its_kind() -> None:
    other = TokenProvider("ES256", key_id="other")
    keys = key_set(other.public_key, PROVIDER.public_key, RSA.public_key)
    for provider in (other, PROVIDER, RSA):
        keys.check(parse_token(provider.token("alice")))
    # Without an id, one signature is checked and no more, as in Kafka.
    keys.check(parse_token(other.token("alice", header={"kid": None})))
    keys.check(parse_token(RSA.token("alice", header={"kid": None})))
    with pytest.raises(InvalidTokenError, match="its signature is wrong"):
        keys.check(parse_token(PROVIDER.token("alice", header={"kid": None})))
    for kid in ("", "unknown", "a" * 4000, "../../etc/passwd"):
        with pytest.raises(UnknownKeyError):
            keys.check(parse_token(PROVIDER.token("alice", header={"kid": kid})))


def test_a_token_s_own_key_is_not_taken() -> None:
    forger = TokenProvider("ES256")
    header = {"jwk": forger.public_key, "jku": "http://127.0.0.1/keys", "x5u": "http://127.0.0.1/chain"}
    with pytest.raises(InvalidTokenError, match="its signature is wrong"):
        key_set(PROVIDER.public_key).check(parse_token(forger.token("alice", header=header)))


def test_a_point_that_is_on_no_curve_is_no_key() -> None:
    keys = key_set({**PROVIDER.public_key, "x": base64url(b"\x01" * 32)})
    with pytest.raises(InvalidTokenError, match="the key that it names cannot be used"):
        keys.check(parse_token(PROVIDER.token("alice")))


def test_a_private_key_in_a_key_set_is_read_as_the_public_one() -> None:
    private = RSA._key.as_dict(private=True)
    assert "d" in private
    keys = key_set(private)
    keys.check(parse_token(RSA.token("alice")))
    assert not keys._key(0).is_private


@pytest.mark.parametrize(
    "key",
    [
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": ["RSA"]},
        {"kty": "RSA", "n": "AQAB"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"kty": "RSA", "n": "A" * 342 + "B" * 10, "e": "AQAB"},
        {"kty": "RSA", "n": RSA.public_key["n"], "e": RSA.public_key["n"]},
        {"kty": "RSA", "n": "_" * 3000, "e": "AQAB"},
        {"kty": "RSA", "n": "a", "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": "a" * 2000, "y": "a"},
        {"kty": "EC", "crv": 7, "x": "a", "y": "a"},
        {**PROVIDER.public_key, "use": "enc"},
        {**PROVIDER.public_key, "key_ops": ["sign"]},
        {**PROVIDER.public_key, "key_ops": 7},
        "key",
        None,
    ],
)
def test_a_key_of_no_use_is_skipped(key: Any) -> None:
    keys = key_set(key, PROVIDER.public_key)
    assert len(keys) == 1
    keys.check(parse_token(PROVIDER.token("alice")))


@pytest.mark.parametrize(
    ("reason", "data"),
    [
        ("no object", b"[]"),
        ("no list", b"{}"),
        ("no list", b'{"keys": {}}'),
        ("twice", b'{"keys": [], "keys": []}'),
        ("nested too deeply", b'{"keys": ' + b"[" * 100_000),
        ("more than 1000 keys", b'{"keys": [' + b",".join([b"1"] * 1001) + b"]}"),
        (f"more than {MOST_JWKS_BYTES} bytes", b" " * (MOST_JWKS_BYTES + 1)),
        ("Expecting value", b""),
        ("Expecting value", b"<html>"),
    ],
)
def test_what_is_no_key_set_is_refused(reason: str, data: bytes) -> None:
    with pytest.raises(ValueError, match=reason):
        KeySet(data)


def test_a_key_set_of_ten_thousand_keys_is_refused() -> None:
    keys = [{**PROVIDER.public_key, "kid": str(number)} for number in range(10_000)]
    with pytest.raises(ValueError, match="more than"):
        key_set(*keys)


def test_unsecured_tokens_are_as_in_kafka() -> None:
    rules = TokenRules(skew_ms=0, scopes=("read", "write"), is_unsecured=True)
    assert check(rules, scope=["write", "read", ""]).user == "alice"
    assert check(rules, scope=["write", "read"], iat=..., aud=["any"]).user == "alice"
    with pytest.raises(InvalidTokenError) as refused:
        check(rules, scope="read write")
    assert (refused.value.status, refused.value.scope) == ("insufficient_scope", "[read, write]")
    for wrong in ({"iat": NOW_S + 1}, {"exp": NOW_S}, {"exp": ...}, {"sub": ...}):
        with pytest.raises(InvalidTokenError):
            check(rules, scope=["write", "read"], **wrong)
