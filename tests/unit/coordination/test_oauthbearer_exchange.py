"""The messages of OAUTHBEARER (RFC 7628)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from odradek.coordination.errors import RefusedLoginError
from odradek.coordination.oauthbearer.exchange import OAuthBearerExchange, TokenLogin
from odradek.coordination.oauthbearer.tokens import INSUFFICIENT_SCOPE, MOST_TOKEN_BYTES, InvalidTokenError, Token
from peers.cpu import in_standards

SEEN: list[str] = []


async def validate(text: str) -> Token:
    SEEN.append(text)
    if text.startswith("bad"):
        raise InvalidTokenError("a secret reason")
    if text == "poor":
        raise InvalidTokenError("it lacks a scope", INSUFFICIENT_SCOPE, "[read]")
    return Token("a,b=c" if text == "odd" else "alice", 7)


async def wait(login: Awaitable[TokenLogin]) -> TokenLogin:
    return await login


def evaluate(message: bytes, exchange: OAuthBearerExchange | None = None) -> TokenLogin:
    return asyncio.run(wait((exchange or OAuthBearerExchange(validate)).evaluate(message)))


@pytest.mark.parametrize(
    ("message", "token"),
    [
        (b"n,,\x01auth=Bearer tok\x01\x01", "tok"),
        (b"n,,\x01auth=bEARER    a.b_c-d~e+f/g==\x01\x01", "a.b_c-d~e+f/g=="),
        (b"n,a=alice,\x01auth=Bearer tok\x01\x01", "tok"),
        (b"n,a=a=2Cb=3Dc,\x01auth=Bearer odd\x01\x01", "odd"),
        (b"n,,\x01traceId=7 8\t\r\n\x01auth=Bearer tok\x01logicalCluster=lkc-1\x01\x01", "tok"),
        (b"n,,\x01host=server.example.com\x01port=143\x01auth=Bearer tok\x01\x01", "tok"),
    ],
)
def test_a_token_is_taken(message: bytes, token: str) -> None:
    assert evaluate(message) == TokenLogin(b"", "a,b=c" if token == "odd" else "alice", 7)
    assert SEEN[-1] == token


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"\x01\x01",
        b"n,,",
        b"n,,\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer tok",
        b"n,,\x01auth=Bearer tok\x01",
        b"n,,\x01auth=Bearer tok\x01\x01\x01",
        b"n,,\x01auth=Bearer tok\x01\x01rest",
        b"y,,\x01auth=Bearer tok\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer tok\x01\x01",
        b"n,a=,\x01auth=Bearer tok\x01\x01",
        b"n,a=al=ice,\x01auth=Bearer tok\x01\x01",
        b"n,a=al,ice,\x01auth=Bearer tok\x01\x01",
        b"n,b=alice,\x01auth=Bearer tok\x01\x01",
        b"n,a=" + b"a" * 4097 + b",\x01auth=Bearer tok\x01\x01",
        b"n,,\x01auth=Basic tok\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearertok\x01\x01",
        b"n,,\x01auth=Bearer tok tok\x01\x01",
        b"n,,\x01auth=Bearer t=k\x01\x01",
        b"n,,\x01Auth=Bearer tok\x01\x01",
        b"n,,\x01auth=Bearer tok\x01auth=Bearer tok\x01\x01",
        b"n,,\x01auth=Bearer tok\x01a=1\x01a=2\x01\x01",
        b"n,,\x01auth=Bearer tok\x01a1=1\x01\x01",
        b"n,,\x01auth=Bearer tok\x01a=\x01\x01",
        b"n,,\x01auth=Bearer tok\x01a=\x00\x01\x01",
        b"n,,\x01auth=Bearer tok\x01a=\xc3\xa9\x01\x01",
        b"\0alice\0secret",
    ],
)
def test_a_message_of_another_form_ends_the_login(message: bytes) -> None:
    with pytest.raises(RefusedLoginError) as refused:
        evaluate(message)
    # Clients get what every mechanism says.
    assert refused.value.text is None


def test_a_refusal_is_told_and_acknowledged() -> None:
    exchange = OAuthBearerExchange(validate)
    assert evaluate(b"n,,\x01auth=Bearer bad\x01\x01", exchange) == TokenLogin(
        b'{"status":"invalid_token"}', None, None
    )
    with pytest.raises(RefusedLoginError) as refused:
        evaluate(b"\x01", exchange)
    assert refused.value.text == '{"status":"invalid_token"}'


def test_a_missing_scope_is_named() -> None:
    told = b'{"status":"insufficient_scope", "scope":"[read]"}'
    assert evaluate(b"n,,\x01auth=Bearer poor\x01\x01").answer == told


@pytest.mark.parametrize("message", [b"n,,\x01auth=Bearer tok\x01\x01", b"", b"\x01\x01"])
def test_nothing_else_is_taken_after_a_refusal(message: bytes) -> None:
    exchange = OAuthBearerExchange(validate)
    evaluate(b"n,,\x01auth=Bearer bad\x01\x01", exchange)
    with pytest.raises(RefusedLoginError):
        evaluate(message, exchange)


def test_nobody_acts_as_somebody_else() -> None:
    with pytest.raises(RefusedLoginError, match=r"authorization id \(bob\) that is different from .* \(alice\)"):
        evaluate(b"n,a=bob,\x01auth=Bearer tok\x01\x01")


@pytest.mark.slow
@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer " + b"a" * (1 << 19) + b"\x01\x01",
        b"n,,\x01" + b"a=1\x01" * (1 << 17) + b"\x01",
        b"n,,\x01auth=Bearer" + b" " * MOST_TOKEN_BYTES + b"\x01\x01",
        b"n,a=" + b"=2C" * 20_000 + b"=,\x01auth=Bearer tok\x01\x01",
        b"n,,\x01auth=Bearer " + b"=" * MOST_TOKEN_BYTES + b"\x01\x01",
        b"n,,\x01auth=Bearer tok\x01" + b"a" * MOST_TOKEN_BYTES + b"\x01\x01",
        b"n,," * (1 << 17),
        b"\x01" * (1 << 19),
    ],
)
def test_a_hostile_message_takes_no_time(message: bytes) -> None:
    def evaluate() -> None:
        with pytest.raises(RefusedLoginError):
            OAuthBearerExchange(validate).evaluate(message)

    assert in_standards(evaluate) < 25
