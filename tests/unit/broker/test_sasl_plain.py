"""PLAIN: what a refusal tells nobody."""

from __future__ import annotations

import hmac

import pytest

from odradek.broker.sasl_plain import Users
from odradek.coordination.errors import RefusedLoginError


def test_an_unknown_user_and_passwords_of_any_length_are_compared_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    users = Users({"alice": "a", "bob": "b" * 1000})
    compared: list[tuple[int, int]] = []

    def note(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", note)
    for name in ("alice", "bob", "eve"):
        with pytest.raises(RefusedLoginError):
            users.evaluate(f"\0{name}\0wrong".encode())
    with pytest.raises(RefusedLoginError):
        users.evaluate(b"\0eve\0")
    assert users.evaluate(b"\0alice\0a") == (b"", "alice")
    assert compared == [(32, 32)] * 4
