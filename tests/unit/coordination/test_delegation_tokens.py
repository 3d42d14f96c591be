"""When delegation tokens expire, and who may change that; times are in ms."""

from __future__ import annotations

import pytest

from odradek.coordination.delegation_tokens import (
    Lifetimes,
    created,
    expired,
    is_expired,
    memory_bytes,
    owner_name,
    renewed,
    token_hmac,
)
from odradek.coordination.errors import RefusedError
from odradek.messages.metadata.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord

LIFETIMES = Lifetimes(max_ms=1000, expiry_ms=100)
LAST = 2**63 - 1
TOKEN = DelegationTokenRecord("User:alice", "User:bob", ("User:carol",), 0, 1000, 100, "id")


@pytest.mark.parametrize(
    ("wanted", "latest", "expires"),
    [(-1, 1050, 150), (0, 1050, 150), (60, 110, 110), (600, 650, 150), (LAST, 1050, 150), (-LAST - 1, 1050, 150)],
)
def test_a_new_token_has_the_lifetime_that_is_wanted_within_the_limits(wanted: int, latest: int, expires: int) -> None:
    token = created("id", "User:alice", "User:bob", (), wanted, LIFETIMES, 50)
    assert token == DelegationTokenRecord("User:alice", "User:bob", (), 50, latest, expires, "id")


def test_times_end_with_64_bits() -> None:
    token = created("id", "User:alice", "User:alice", (), -1, Lifetimes(LAST, LAST), 50)
    assert (token.max_timestamp, token.expiration_timestamp) == (LAST, LAST)
    assert renewed(token, "User:alice", LAST, Lifetimes(LAST, LAST), 50) == token


@pytest.mark.parametrize(
    ("period", "now", "expires"),
    [(-1, 90, 190), (50, 90, 140), (0, 90, 190), (LAST, 90, 190), (1, 100, 101), (-LAST - 1, 0, 100)],
)
def test_a_token_is_renewed_within_the_limits(period: int, now: int, expires: int) -> None:
    assert renewed(TOKEN, "User:alice", period, LIFETIMES, now).expiration_timestamp == expires


def test_a_token_is_not_renewed_beyond_its_end() -> None:
    late = TOKEN._replace(expiration_timestamp=990)
    assert renewed(late, "User:carol", -1, LIFETIMES, 980).expiration_timestamp == 1000
    assert expired(late, "User:carol", 500, 980) == TOKEN._replace(expiration_timestamp=1000)


def test_a_token_expires_after_its_time_whichever_comes_first() -> None:
    assert not is_expired(TOKEN, 100)
    assert is_expired(TOKEN, 101)
    assert is_expired(TOKEN._replace(max_timestamp=50), 51)
    with pytest.raises(RefusedError, match="DELEGATION_TOKEN_EXPIRED"):
        renewed(TOKEN, "User:alice", 1, LIFETIMES, 101)
    with pytest.raises(RefusedError, match="DELEGATION_TOKEN_EXPIRED"):
        expired(TOKEN, "User:alice", 1, 101)
    assert expired(TOKEN, "User:alice", -1, 101) == RemoveDelegationTokenRecord("id")


@pytest.mark.parametrize("principal", ["User:bob", "User:eve", "alice", "", "User:ANONYMOUS"])
def test_others_than_the_owner_and_the_renewers_change_nothing(principal: str) -> None:
    for period in (-1, 0, 1):
        with pytest.raises(RefusedError, match="OWNER_MISMATCH"):
            renewed(TOKEN, principal, period, LIFETIMES, 0)
        with pytest.raises(RefusedError, match="OWNER_MISMATCH"):
            expired(TOKEN, principal, period, 0)


@pytest.mark.parametrize(("owner", "name"), [("User:a:b", "a:b"), ("User:", ""), ("Group:a", None), ("user:a", None)])
def test_only_a_user_logs_in(owner: str, name: str | None) -> None:
    assert owner_name(TOKEN._replace(owner=owner)) == name


def test_the_secret_is_that_of_kafka() -> None:
    """By `javax.crypto.Mac` with HmacSHA512."""
    assert token_hmac(b"secret", "id").hex().startswith("2aab23f380f61ef9a7111a7ca97f6f02")


def test_renewers_count() -> None:
    assert memory_bytes(TOKEN._replace(renewers=("User:x",) * 1000)) > memory_bytes(TOKEN) + 320_000
