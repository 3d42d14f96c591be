"""What a user logs in with by SCRAM: keys that are made of the password, and do not give it away.

    salted password = PBKDF2(password, salt, iterations)     takes milliseconds; no login needs it here
    client key      = HMAC(salted password, "Client Key")
    stored key      = H(client key)                          by it the server checks a client
    server key      = HMAC(salted password, "Server Key")    by it a client checks the server

Source in Kafka: `ScramMechanism`, `ScramFormatter`, `ScramControlManager`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import stringprep
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

from odradek.messages.metadata.metadata_records import UserScramCredentialRecord

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
_SALT_BITS = 130
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class ScramMechanism(NamedTuple):
    """A mechanism of SCRAM.

    Attributes:
        type: Its number in Kafka's records and requests.
        name: Its name in SASL.
        hash_name: Its hash function, as `hashlib` calls it.
    """

    type: int
    name: str
    hash_name: str

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """Return the HMAC of some bytes."""
        return hmac.digest(key, data, self.hash_name)

    def hash(self, data: bytes) -> bytes:
        """Return the hash of some bytes."""
        return hashlib.new(self.hash_name, data).digest()


MECHANISMS: Mapping[str, ScramMechanism] = {
    one.name: one
    for one in (ScramMechanism(1, "SCRAM-SHA-256", "sha256"), ScramMechanism(2, "SCRAM-SHA-512", "sha512"))
}
"""The mechanisms by their names."""

MECHANISMS_BY_TYPE: Mapping[int, ScramMechanism] = {one.type: one for one in MECHANISMS.values()}
"""The mechanisms by their numbers in records."""


def random_text() -> str:
    """Return random text of 130 bits: a salt, or a nonce."""
    return base36(secrets.randbits(_SALT_BITS))


def base36(number: int) -> str:
    """Return a number below 2**130 in digits and letters, as Kafka writes its salts and nonces."""
    number &= (1 << _SALT_BITS) - 1
    text = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        text = _DIGITS[digit] + text
    return text or "0"


def credential_of_salted_password(
    name: str, mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> UserScramCredentialRecord:
    """Return the credential of a user whose password was salted and hashed already."""
    stored_key = mechanism.hash(mechanism.hmac(salted_password, b"Client Key"))
    server_key = mechanism.hmac(salted_password, b"Server Key")
    return UserScramCredentialRecord(name, mechanism.type, salt, stored_key, server_key, iterations)


def credential_of_password(
    name: str, mechanism: ScramMechanism, password: str, iterations: int = MIN_ITERATIONS
) -> UserScramCredentialRecord:
    """Return a credential for a password, with a random salt. This takes milliseconds.

    Raises:
        ValueError: The user could not log in by it at Apache Kafka, or not with every client.
    """
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise ValueError(f"{iterations} iterations are not between {MIN_ITERATIONS} and {MAX_ITERATIONS}")
    if not name or not name.isascii() or "\0" in name:
        raise ValueError("the name of a user of SCRAM has ASCII characters, and one at least")
    if not password:
        raise ValueError("the password is empty")
    if saslprep(password) != password:
        # Some clients prepare a password as RFC 5802 wants it, others, Kafka's among them, send it as it is.
        raise ValueError("the password has characters that not all clients send alike (SASLprep, RFC 4013)")
    salt = random_text().encode()
    salted = hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)
    return credential_of_salted_password(name, mechanism, salted, salt, iterations)


_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


def saslprep(text: str) -> str | None:
    """Return text as SASLprep (RFC 4013) prepares it; None if it has characters that may not be in it."""
    spaced = (" " if stringprep.in_table_c12(one) else one for one in text if not stringprep.in_table_b1(one))
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", "".join(spaced))
    if any(is_prohibited(one) for one in prepared for is_prohibited in _PROHIBITED):
        return None
    if any(map(stringprep.in_table_d1, prepared)):
        # From right to left: all of it must be, from the first to the last character.
        ends = stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])
        if not ends or any(map(stringprep.in_table_d2, prepared)):
            return None
    return prepared
