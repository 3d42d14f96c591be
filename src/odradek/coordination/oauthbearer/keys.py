"""The keys that tokens are signed with: a JSON Web Key Set (RFC 7517), as an identity provider publishes it.

    {"keys": [{"kty": "RSA", "kid": "a", "n": "...", "e": "AQAB"}, {"kty": "EC", "crv": "P-256", "x": "..."...}]}

A token is checked by one key, which is found by the `kid` of its header and by the kind of key that its algorithm has.
An algorithm is never taken with a key of another kind, so no public key can serve as a secret. Keys that are of no use
here are skipped, as in Kafka: those with a secret (`oct`), with another use, too weak, or too large to check quickly.

Source in Kafka: `JwksFileVerificationKeyResolver`, `RefreshingHttpsJwksVerificationKeyResolver`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.coordination.oauthbearer.tokens import InvalidTokenError, ParsedToken, strict_json

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, OKPKey, RSAKey

MOST_JWKS_BYTES = 1 << 19
_MOST_KEYS = 1000
_LEAST_RSA_BITS, _MOST_RSA_BITS, _MOST_EXPONENT_BITS = 2048, 8192, 64
_LONGEST_MEMBER = 1400

_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_EDWARDS = {"EdDSA": ("Ed25519", "Ed448"), "Ed25519": ("Ed25519",), "Ed448": ("Ed448",)}
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_MEMBERS = {"RSA": ("n", "e"), "EC": ("crv", "x", "y"), "OKP": ("crv", "x")}
"""The members of a public key; private ones are not read."""
_OF_USE = ("use", "key_ops", "alg")


class UnknownKeyError(InvalidTokenError):
    """A token that is signed by a key which is not among the known ones."""


class _Kind(NamedTuple):
    type: str
    curves: tuple[str, ...]


def _kind(algorithm: str) -> _Kind:
    """Return which keys an algorithm has."""
    if algorithm in _RSA:
        return _Kind("RSA", ())
    if algorithm in _CURVES:
        return _Kind("EC", (_CURVES[algorithm],))
    if algorithm in _EDWARDS:
        return _Kind("OKP", _EDWARDS[algorithm])
    # Not shown: it is the token's.
    raise InvalidTokenError("its algorithm is none with a public key")


class KeySet:
    """Keys that tokens may be signed with. Any thread may use it.

    Args:
        data: The key set as JSON.

    Raises:
        ValueError: It is no key set, or too large.
    """

    def __init__(self, data: bytes) -> None:
        if len(data) > MOST_JWKS_BYTES:
            raise ValueError(f"has more than {MOST_JWKS_BYTES} bytes")
        keys = strict_json(data).get("keys")
        if not isinstance(keys, list):
            raise ValueError('has no list "keys"')
        if len(keys) > _MOST_KEYS:
            raise ValueError(f"has more than {_MOST_KEYS} keys")
        self._keys: list[Mapping[str, Any]] = [key for key in keys if _is_useful(key)]
        # Those that were used, by their places.
        self._loaded: dict[int, RSAKey | ECKey | OKPKey] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def check(self, token: ParsedToken) -> None:
        """Check the signature of a token.

        Raises:
            UnknownKeyError: No key fits.
            InvalidTokenError: The signature is not of the key that fits, or the algorithm is not allowed.
        """
        # Imported here: it takes some ms, and most brokers have no OAUTHBEARER.
        from cryptography.exceptions import UnsupportedAlgorithm
        from joserfc.errors import JoseError
        from joserfc.jws import JWSRegistry

        name = token.header["alg"]
        place = self._place(_kind(name), token.header)
        algorithm = JWSRegistry.algorithms[name]
        try:
            key = self._key(place)
            algorithm.check_key(key)
            is_right = algorithm.verify(token.signed, token.signature, key)
        except (JoseError, UnsupportedAlgorithm, ValueError, TypeError):
            # What the key set says of the key, or a point that is not on its curve, or a curve that OpenSSL lacks.
            raise InvalidTokenError("the key that it names cannot be used") from None
        if not is_right:
            raise InvalidTokenError("its signature is wrong")

    def _place(self, kind: _Kind, header: Mapping[str, Any]) -> int:
        """Return the place of the key that fits; if several do, prefer one for the algorithm, then the first one."""
        fitting = [
            place
            for place, key in enumerate(self._keys)
            if key["kty"] == kind.type
            and (not kind.curves or key["crv"] in kind.curves)
            and ("kid" not in header or key.get("kid") == header["kid"])
        ]
        preferred = [place for place in fitting if self._keys[place].get("alg") in (None, header["alg"])]
        for found in (*preferred, *fitting):
            return found
        raise UnknownKeyError("it is signed by a key that the key set does not have")

    def _key(self, place: int) -> RSAKey | ECKey | OKPKey:
        from joserfc.jwk import ECKey, OKPKey, RSAKey

        found = self._loaded.get(place)
        if found is None:
            kinds: dict[str, type[RSAKey | ECKey | OKPKey]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
            key = self._keys[place]
            members = {name: key[name] for name in ("kty", *_MEMBERS[key["kty"]], *_OF_USE) if name in key}
            found = kinds[key["kty"]].import_key(members)
            self._loaded[place] = found
        return found


def _is_useful(key: Any) -> bool:
    if not (isinstance(key, dict) and isinstance(key.get("kty"), str) and key["kty"] in _MEMBERS):
        return False
    names = _MEMBERS[key["kty"]]
    members = [one for name in names if isinstance(one := key.get(name), str) and len(one) <= _LONGEST_MEMBER]
    if len(members) < len(names):
        return False
    operations = key.get("key_ops", ["verify"])
    if key.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        return False
    if key["kty"] != "RSA":
        return True
    try:
        bits, exponent_bits = (_number(one).bit_length() for one in members)
    except ValueError:
        return False
    return _LEAST_RSA_BITS <= bits <= _MOST_RSA_BITS and exponent_bits <= _MOST_EXPONENT_BITS


def _number(text: str) -> int:
    return int.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
