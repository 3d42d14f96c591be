"""Delegation tokens: a user gets one, and programs log in by it as that user, without the user's password (KIP-48).

    created                       renewed, by its owner or a renewer            max timestamp
    |--- expiry time ---|......   |--- expiry time ---|                         |
                        expires                       expires                   expires whatever is done

A program logs in by SCRAM, with the token's id as the name and its HMAC as the password. The HMAC is that of the id by
the broker's secret key, so it is written nowhere.

Source in Kafka: `DelegationTokenControlManager`, `DelegationTokenManager`, `TokenInformation`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import NamedTuple

from odradek.coordination.errors import RefusedError, TokenErrorCode
from odradek.coordination.scram.credentials import (
    MIN_ITERATIONS,
    ScramMechanism,
    credential_of_salted_password,
    random_text,
)
from odradek.messages.metadata.metadata_records import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
    UserScramCredentialRecord,
)

_LAST_TIMESTAMP = 2**63 - 1
_USER = "User:"
_BYTES_OF_RECORD, _BYTES_OF_RENEWER = 512, 320
"""A renewer counts as what it takes in an answer: many clients may ask for all tokens at a time."""


class Lifetimes(NamedTuple):
    """How long tokens are valid.

    Attributes:
        max_ms: `delegation.token.max.lifetime.ms`, from the creation on.
        expiry_ms: `delegation.token.expiry.time.ms`, from the creation or a renewal on.
    """

    max_ms: int
    expiry_ms: int


def token_hmac(secret_key: bytes, token_id: str) -> bytes:
    """Return the secret of a token, which its clients log in with."""
    return hmac.digest(secret_key, token_id.encode(), "sha512")


def token_credential(mechanism: ScramMechanism, token_id: str, secret: bytes) -> UserScramCredentialRecord:
    """Return what a client with a token logs in with by SCRAM. This takes milliseconds."""
    salt = random_text().encode()
    salted = hashlib.pbkdf2_hmac(mechanism.hash_name, base64.b64encode(secret), salt, MIN_ITERATIONS)
    return credential_of_salted_password(token_id, mechanism, salted, salt, MIN_ITERATIONS)


def owner_name(token: DelegationTokenRecord) -> str | None:
    """Return the name of the user that a token's clients log in as; None if its owner is no user."""
    return token.owner.removeprefix(_USER) if token.owner.startswith(_USER) else None


def memory_bytes(token: DelegationTokenRecord) -> int:
    """Return about how much memory a token takes."""
    texts = len(token.owner) + len(token.requester) + sum(map(len, token.renewers))
    return _BYTES_OF_RECORD + _BYTES_OF_RENEWER * len(token.renewers) + texts


def is_expired(token: DelegationTokenRecord, now_ms: int) -> bool:
    """Return whether nobody can log in by a token any more."""
    return min(token.max_timestamp, token.expiration_timestamp) < now_ms


def _after(now_ms: int, duration_ms: int) -> int:
    return min(now_ms + duration_ms, _LAST_TIMESTAMP)


def _at_most(most_ms: int, wanted_ms: int) -> int:
    """Return a duration, which is the longest one if a client does not want a shorter one."""
    return min(most_ms, wanted_ms) if wanted_ms > 0 else most_ms


def created(
    token_id: str,
    owner: str,
    requester: str,
    renewers: tuple[str, ...],
    max_lifetime_ms: int,
    lifetimes: Lifetimes,
    now_ms: int,
) -> DelegationTokenRecord:
    """Return a new token.

    Args:
        token_id: Its id.
        owner: The principal that clients log in as.
        requester: The principal that asked for it.
        renewers: The principals that may renew it, besides the owner.
        max_lifetime_ms: How long it is valid, however often it is renewed; not positive for the longest time.
        lifetimes: The broker's limits.
        now_ms: The time.
    """
    max_timestamp = _after(now_ms, _at_most(lifetimes.max_ms, max_lifetime_ms))
    expiration = min(max_timestamp, _after(now_ms, lifetimes.expiry_ms))
    return DelegationTokenRecord(owner, requester, renewers, now_ms, max_timestamp, expiration, token_id)


def _check_may_renew(token: DelegationTokenRecord, principal: str) -> None:
    if principal != token.owner and principal not in token.renewers:
        raise RefusedError(TokenErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def renewed(
    token: DelegationTokenRecord, principal: str, period_ms: int, lifetimes: Lifetimes, now_ms: int
) -> DelegationTokenRecord:
    """Return a token after its renewal.

    Args:
        token: The token.
        principal: Who renews it.
        period_ms: How long it is then valid; not positive for the longest time.
        lifetimes: The broker's limits.
        now_ms: The time.

    Raises:
        RefusedError: It has expired, or is not for this principal to renew.
    """
    if is_expired(token, now_ms):
        raise RefusedError(TokenErrorCode.DELEGATION_TOKEN_EXPIRED)
    _check_may_renew(token, principal)
    until = _after(now_ms, _at_most(lifetimes.expiry_ms, period_ms))
    return token._replace(expiration_timestamp=min(token.max_timestamp, until))


def expired(
    token: DelegationTokenRecord, principal: str, period_ms: int, now_ms: int
) -> DelegationTokenRecord | RemoveDelegationTokenRecord:
    """Return a token that expires at another time, or its removal.

    Args:
        token: The token.
        principal: Who lets it expire.
        period_ms: How long it is still valid; negative to remove it at once.
        now_ms: The time.

    Raises:
        RefusedError: It has expired, or is not for this principal to renew.
    """
    _check_may_renew(token, principal)
    if period_ms < 0:
        return RemoveDelegationTokenRecord(token.token_id)
    if is_expired(token, now_ms):
        raise RefusedError(TokenErrorCode.DELEGATION_TOKEN_EXPIRED)
    return token._replace(expiration_timestamp=min(token.max_timestamp, _after(now_ms, period_ms)))
