"""Tokens for tests of clients."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from odradek.testing.tokens import TokenProvider


def parts(token: str) -> list[dict[str, Any]]:
    return [json.loads(base64.urlsafe_b64decode(part + "==")) for part in token.split(".")[:2]]


def test_a_token_has_the_claims_that_are_asked_for() -> None:
    provider = TokenProvider(issuer="me", audience="them")
    header, claims = parts(provider.token("alice", expires_in_s=60, header={"typ": None}, groups=["a"], iat=None))
    assert header == {"alg": "ES256", "kid": "test"}
    assert abs(claims.pop("exp") - time.time() - 60) < 5
    assert claims == {"iss": "me", "aud": "them", "sub": "alice", "groups": ["a"]}
    header, claims = parts(provider.token("alice", expires_in_s=-60))
    assert claims["iat"] < claims["exp"] < time.time()


def test_an_unknown_algorithm_is_refused() -> None:
    for name in ("HS256", "RS1", "none", ""):
        with pytest.raises(ValueError, match="such as ES256"):
            TokenProvider(name)


def test_the_key_file_has_public_keys_only(tmp_path: Path) -> None:
    path = TokenProvider("RS256").write_jwks(tmp_path / "jwks.json", TokenProvider("Ed25519", key_id="other"))
    keys = json.loads(path.read_text())["keys"]
    assert [sorted(key) for key in keys] == [["e", "kid", "kty", "n", "use"], ["crv", "kid", "kty", "use", "x"]]
    assert [one.name for one in tmp_path.iterdir()] == ["jwks.json"]


def test_the_settings_are_those_of_one_listener(tmp_path: Path) -> None:
    settings = TokenProvider(audience=None).broker_settings(tmp_path / "jwks.json", "SASL_SSL")
    assert all(name.startswith("listener.name.sasl_ssl.") for name in settings)
    assert not any(name.endswith("expected.audience") for name in settings)
    assert settings["listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer.allow.unverified.audience"] == "true"
