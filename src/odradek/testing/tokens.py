"""Tokens of OAUTHBEARER for tests of clients: an identity provider without a server.

    provider = TokenProvider()
    jwks = provider.write_jwks(tmp_path / "jwks.json")
    with Broker(config={"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **provider.broker_settings(jwks)}) as broker:
        token = provider.token("alice")

A token is a JWS with the claims of a JWT; the broker checks it by the key that is in the JWKS file.
"""

from __future__ import annotations

import base64
import json
import os
import time
from pathlib import Path
from typing import Any

from odradek.broker.oauth_settings import HANDLER_CLASS, OAUTHBEARER_HANDLER, OAUTHBEARER_MODULE

_KINDS = {"RS": ("RSA", 2048), "PS": ("RSA", 2048), "ES256": ("EC", "P-256"), "ES384": ("EC", "P-384")}
_KINDS |= {"ES512": ("EC", "P-521"), "Ed25519": ("OKP", "Ed25519")}


class TokenProvider:
    """A key, and tokens that are signed with it. Any thread may use it.

    Args:
        algorithm: How tokens are signed: ES256, RS256, PS256 and their like, or Ed25519.
        key_id: The id of the key.
        issuer: The claim `iss` of the tokens.
        audience: The claim `aud` of the tokens, and what a broker expects; None for none.

    Raises:
        ValueError: There is no such algorithm.
    """

    def __init__(
        self,
        algorithm: str = "ES256",
        *,
        key_id: str = "test",
        issuer: str = "https://issuer.test",
        audience: str | None = "kafka",
    ) -> None:
        from joserfc import jwk

        kind = _KINDS.get(algorithm) or _KINDS.get(algorithm[:2] if algorithm[2:] in ("256", "384", "512") else "")
        if kind is None:
            raise ValueError(f"expected an algorithm such as ES256 or RS256, got {algorithm!r}")
        self.algorithm = algorithm
        self.issuer = issuer
        self.audience = audience
        kinds: dict[str, Any] = {"RSA": jwk.RSAKey, "EC": jwk.ECKey, "OKP": jwk.OKPKey}
        self._key = kinds[kind[0]].generate_key(kind[1], {"kid": key_id, "use": "sig"})

    @property
    def public_key(self) -> dict[str, Any]:
        """The public key as a JWK."""
        found: dict[str, Any] = self._key.as_dict(private=False)
        return found

    def token(
        self, user: str, *, expires_in_s: float = 3600, header: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        """Return a token.

        Args:
            user: The claim `sub`.
            expires_in_s: After what time it expires; in the past if negative.
            header: What the header has besides `alg`, `kid` and `typ`, or instead of them.
            claims: Claims that are added, or replace others; one that is None is left out.
        """
        now_s = int(time.time())
        issued_s = now_s if expires_in_s >= 0 else now_s + int(expires_in_s) - 60
        made: dict[str, Any] = {"iss": self.issuer, "aud": self.audience, "sub": user, "iat": issued_s}
        made |= {"exp": now_s + int(expires_in_s)} | claims
        payload = json.dumps({name: value for name, value in made.items() if value is not None})
        return self.sign(payload.encode(), **(header or {}))

    def sign(self, payload: bytes, **header: Any) -> str:
        """Return a token with any payload, for tests of what is no token.

        Args:
            payload: The payload.
            header: What the header has besides `alg`, `kid` and `typ`, or instead of them; None leaves one out.
        """
        from joserfc.jws import JWSRegistry

        fields = {"alg": self.algorithm, "kid": self._key.kid, "typ": "JWT"} | header
        text = json.dumps({name: value for name, value in fields.items() if value is not None})
        signed = f"{_base64url(text.encode())}.{_base64url(payload)}"
        # By the algorithm itself: `jws.serialize_compact` makes only what is valid.
        return f"{signed}.{_base64url(JWSRegistry.algorithms[self.algorithm].sign(signed.encode(), self._key))}"

    def write_jwks(self, path: str | os.PathLike[str], *others: TokenProvider) -> Path:
        """Write the key, and those of other providers, as a JWKS file; return its path.

        Args:
            path: The file; it is replaced.
            others: Other providers.
        """
        target = Path(path)
        beside = target.with_name(f"{target.name}.new")
        beside.write_text(json.dumps({"keys": [one.public_key for one in (self, *others)]}))
        return beside.replace(target)

    def broker_settings(self, jwks: str | os.PathLike[str], listener: str = "SASL_PLAINTEXT") -> dict[str, str]:
        """Return the settings of a broker with a listener that takes these tokens and nothing else.

        Args:
            jwks: The JWKS file.
            listener: The name of the listener.
        """
        of_listener = {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            f"oauthbearer.{HANDLER_CLASS}": OAUTHBEARER_HANDLER,
            "oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
            "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": Path(jwks).absolute().as_uri(),
            "oauthbearer.sasl.oauthbearer.expected.issuer": self.issuer,
            "oauthbearer.sasl.oauthbearer.expected.audience": self.audience,
            "oauthbearer.sasl.oauthbearer.allow.unverified.audience": "true" if self.audience is None else None,
        }
        prefix = f"listener.name.{listener.lower()}."
        return {f"{prefix}{name}": text for name, text in of_listener.items() if text is not None}


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
