"""SCRAM: keys, and logins as the server sees them."""

from __future__ import annotations

import base64
import gc
import hashlib
import hmac
import sys
import tracemalloc
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest

from odradek.coordination.delegation_tokens import token_credential
from odradek.coordination.errors import RefusedLoginError
from odradek.coordination.scram.credentials import (
    MECHANISMS,
    ScramMechanism,
    base36,
    credential_of_password,
    credential_of_salted_password,
    saslprep,
)
from odradek.coordination.scram.exchange import ScramExchange
from odradek.messages.metadata.metadata_records import UserScramCredentialRecord
from peers.scram import ScramLogin

SHA_256 = MECHANISMS["SCRAM-SHA-256"]
ANY = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


LONG = b"a" * (1 << 16)


def users(mechanism: ScramMechanism) -> dict[str, UserScramCredentialRecord]:
    return {name: credential_of_password(name, mechanism, f"{name}'s") for name in ("alice", "a,b=c")}


def exchange(mechanism: ScramMechanism = SHA_256) -> ScramExchange:
    known = users(mechanism)
    return ScramExchange(mechanism, lambda: known)


def refusal(server: ScramExchange, message: bytes) -> str | None:
    with pytest.raises(RefusedLoginError) as refused:
        server.evaluate(message)
    return refused.value.text


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    credential = credential_of_salted_password("user", SHA_256, salted, salt, 4096)
    server = ScramExchange(SHA_256, lambda: {"user": credential}, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert server.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        None,
    )
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert server.evaluate(final) == (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "user")


@ANY
@pytest.mark.parametrize("name", ["alice", "a,b=c"])
def test_a_user_logs_in_and_knows_the_server(mechanism: ScramMechanism, name: str) -> None:
    server, client = exchange(mechanism), ScramLogin(mechanism.name, name, f"{name}'s")
    first, user = server.evaluate(client.first())
    assert user is None
    last, user = server.evaluate(client.final(first))
    assert user == name
    assert last == client.expected


@pytest.mark.sampled(4)
@ANY
@pytest.mark.parametrize("authorization", ["alice", ""])
@pytest.mark.parametrize("extensions", ["", ",tokenauth=false,other=x"])
def test_what_a_login_may_name_besides(mechanism: ScramMechanism, authorization: str, extensions: str) -> None:
    server = exchange(mechanism)
    client = ScramLogin(mechanism.name, "alice", "alice's", authorization=authorization, extensions=extensions)
    first, _ = server.evaluate(client.first())
    assert server.evaluate(client.final(first))[1] == "alice"


@ANY
@pytest.mark.parametrize(("name", "password"), [("alice", "bob's"), ("eve", "eve's"), ("eve", "")])
def test_wrong_passwords_and_unknown_users_end_alike(mechanism: ScramMechanism, name: str, password: str) -> None:
    server, client = exchange(mechanism), ScramLogin(mechanism.name, name, password)
    first, _ = server.evaluate(client.first())
    assert first.endswith(b",i=4096")
    assert refusal(server, client.final(first)) is None


class TokenOfAlice:
    """The delegation tokens: one of alice, or none."""

    def __init__(self, *, is_known: bool, is_valid: bool = True) -> None:
        self._credential = token_credential(SHA_256, "token", b"hmac") if is_known else None
        self._valid = ("alice", 1000) if is_known and is_valid else None

    def valid(self, token_id: str) -> tuple[str, int] | None:
        return self._valid

    def credential(self, mechanism: ScramMechanism, token_id: str) -> UserScramCredentialRecord | None:
        return self._credential

    def preparation(self, mechanism: ScramMechanism, token_id: str) -> None:
        pass


def calls_of_a_refused_login(
    server: ScramExchange, name: str, password: bytes = b"", extensions: str = ",x=1"
) -> list[str]:
    """Returns the functions that a login calls, in their order."""
    client = ScramLogin(SHA_256.name, name, base64.b64encode(password).decode(), extensions=extensions)
    found: list[str] = []

    def note(_: FrameType, event: str, function: Any) -> None:
        if event == "c_call":
            found.append(function.__qualname__)

    gc.disable()  # what Hypothesis does after each collection would be counted
    sys.setprofile(note)
    try:
        answer, _ = server.evaluate(client.first())
        refusal(server, client.final(answer))
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


def test_no_step_is_taken_for_known_users_only() -> None:
    """A stranger who makes such a step long, by a long extension, sees in the time who is a user."""
    bob = {"bob": credential_of_password("bob", SHA_256, "bob's")}
    # As many users, for how many there are is no secret of one of them.
    hers, carols = ({name: credential_of_password(name, SHA_256, "a"), **bob} for name in ("alice", "carol"))
    ways = [calls_of_a_refused_login(ScramExchange(SHA_256, lambda: known, "n"), "alice") for known in (hers, carols)]  # noqa: B023
    assert ways[0] == ways[1]


def test_a_token_is_refused_by_the_same_steps_whether_it_is_unknown_or_expired_or_its_secret_is_wrong() -> None:
    refused = [
        (TokenOfAlice(is_known=False), b"hmac"),
        (TokenOfAlice(is_known=True), b"HMAC"),
        (TokenOfAlice(is_known=True, is_valid=False), b"hmac"),
    ]
    ways = []
    for tokens, secret in refused:
        server = ScramExchange(SHA_256, dict, "n", tokens)
        ways.append(calls_of_a_refused_login(server, "token", secret, ",tokenauth=true"))
    assert ways[0] == ways[1] == ways[2]


def test_an_unknown_user_always_has_the_same_salt_and_looks_like_one_of_the_others() -> None:
    known = {"alice": credential_of_password("alice", SHA_256, "a", 8000)}

    def told(name: str) -> list[bytes]:
        answer, _ = ScramExchange(SHA_256, lambda: known).evaluate(f"n,,n={name},r=n".encode())
        return answer.split(b",")[1:]

    assert told("eve") == told("eve") != told("mallory")
    assert told("eve")[1] == told("alice")[1] == b"i=8000"
    assert abs(len(told("eve")[0]) - len(told("alice")[0])) <= 4
    # A client has made that one.
    salt = bytes(range(240, 256))
    salted = hashlib.pbkdf2_hmac("sha256", b"b", salt, 4096)
    known["bob"] = credential_of_salted_password("bob", SHA_256, salted, salt, 4096)
    # Were they all like one of them, then it would be known of the others that they exist.
    looks = {(len(told(f"u{number}")[0]) == len(told("bob")[0]), told(f"u{number}")[1]) for number in range(50)}
    assert looks == {(True, b"i=4096"), (False, b"i=8000")}
    assert told("eve") == told("eve") != told("mallory")


def test_a_credential_with_too_few_iterations_lets_nobody_in() -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4095)
    credential = credential_of_salted_password("alice", SHA_256, salted, b"salt", 4095)
    server = ScramExchange(SHA_256, lambda: {"alice": credential})
    client = ScramLogin(SHA_256.name, "alice", "secret")
    first, _ = server.evaluate(client.first())
    assert refusal(server, client.final(first.replace(b"i=4096", b"i=4095"))) is None


def test_a_delegation_token_is_not_taken_for_a_user() -> None:
    server, client = exchange(), ScramLogin(SHA_256.name, "alice", "alice's", extensions=",tokenauth=true")
    first, _ = server.evaluate(client.first())
    assert refusal(server, client.final(first)) is None


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=alice",
        b"n,,n=alice,r=",
        b"n,,n=,r=n",
        b"n,,n=al=ice,r=n",
        b"n,,r=n,n=alice",
        b"y,,n=alice,r=n",
        b"p=tls-unique,,n=alice,r=n",
        b"n,,m=must,n=alice,r=n",
        b"n,,n=alice,r=n\n",
        "n,,n=älice,r=n".encode(),
        b"n,,n=alice,r=n,=x",
        b"n,,n=alice,r=n,x=",
        b"n,,n=alice,r=n,",
        b"n,,n=alice,r=n,x=a\0",
        b"n,,n=alice,r=n,m=must",
        b"n,,n=alice,r=n,x=1,m=must",
        b"n,a=al=ice,n=alice,r=n",
        b"n,,n=alice=,r=n",
        b"n,,n=alice=2c,r=n",
        b"n,,n=al\0ice,r=n",
        b"n,,n=alice,r=" + b"n" * 8_192,
    ],
)
def test_a_first_message_of_another_form_is_refused(message: bytes) -> None:
    assert refusal(exchange(), message) is None


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "message",
    [
        b"n,,n=" + LONG,
        b"n,,n=" + LONG + b",r=n",
        b"n,a=" + LONG + b",n=alice,r=n",
        b"n,,n=" + LONG.replace(b"aaa", b"=2C") + b",r",
        b"n,,n=alice,r=" + LONG + b"\0",
        b"n,,n=alice,r=n," + LONG,
        b"n,,n=alice,r=n,a=" + LONG + b"\0",
        b"n,,n=alice,r=n" + LONG.replace(b"aaaa", b",a=a"),
        b"n,,n=alice,r=n" + LONG.replace(b"aaaa", b",a=a") + b",",
    ],
)
def test_a_long_message_of_a_stranger_costs_little(message: bytes) -> None:
    """Else one without a password keeps a broker from its other clients, or takes its memory."""
    server = exchange()
    tracemalloc.start()
    try:
        with suppress(RefusedLoginError):
            server.evaluate(message)
        assert tracemalloc.get_traced_memory()[1] < 16 * len(message)
    finally:
        tracemalloc.stop()


def test_nobody_logs_in_for_somebody_else() -> None:
    text = refusal(exchange(), b"n,a=bob,n=alice,r=n")
    assert text is not None
    assert "authorization id that is different" in text
    # Not even for a user that does not exist: the text would say who does.
    assert refusal(exchange(), b"n,a=bob,n=eve,r=n") == text


@pytest.mark.parametrize(
    ("part", "other"),
    [
        (b"c=biws", b"c=eSws"),  # y,,: the client would have bound the channel
        (b"c=biws", b"c="),
        (b"c=biws", b"c=biw"),
        (b",r=", b",r=x"),
        (b",p=", b",m=must,q="),
        (b",p=", b",m=must,p="),
        (b",p=", b",,p="),
        (b",p=", b",p=AAAA"),
        (b",p=", b",p=*"),
    ],
)
def test_a_final_message_of_another_form_is_refused(part: bytes, other: bytes) -> None:
    server, client = exchange(), ScramLogin(SHA_256.name, "alice", "alice's")
    first, _ = server.evaluate(client.first())
    assert refusal(server, client.final(first).replace(part, other, 1)) is None


def test_a_login_cannot_be_replayed() -> None:
    client = ScramLogin(SHA_256.name, "alice", "alice's")
    known = users(SHA_256)
    server = ScramExchange(SHA_256, lambda: known)
    sent = client.first(), client.final(server.evaluate(client.first())[0])
    assert server.evaluate(sent[1])[1] == "alice"
    again = ScramExchange(SHA_256, lambda: known)
    again.evaluate(sent[0])
    assert refusal(again, sent[1]) is None


def test_the_stored_keys_are_no_login() -> None:
    """Who reads the metadata gets the stored key: a proof that is made of it alone is refused."""
    known = users(SHA_256)
    server = ScramExchange(SHA_256, lambda: known)
    first, _ = server.evaluate(b"n,,n=alice,r=n")
    bare = b"c=biws," + first.split(b",")[0]
    signature = hmac.digest(known["alice"].stored_key, b"n=alice,r=n," + first + b"," + bare, "sha256")
    proof = bytes(one ^ other for one, other in zip(signature, known["alice"].stored_key, strict=True))
    assert refusal(server, bare + b",p=" + base64.b64encode(proof)) is None


# -- credentials


def test_a_credential_shows_no_key() -> None:
    credential = credential_of_password("alice", SHA_256, "secret")
    shown = f"{credential} {credential!r} {[credential]}"
    for key in (credential.salt, credential.stored_key, credential.server_key):
        assert repr(key)[2:-1] not in shown
        assert key.hex() not in shown


@pytest.mark.parametrize(
    ("name", "password", "iterations", "text"),
    [
        ("alice", "", 4096, "empty"),
        ("", "secret", 4096, "ASCII"),
        ("älice", "secret", 4096, "ASCII"),
        ("alice", "secret", 4095, "between"),
        ("alice", "secret", 16385, "between"),
        ("alice", "e\u0301", 4096, "SASLprep"),
        ("alice", "bell\a", 4096, "SASLprep"),
    ],
)
def test_what_is_no_credential(name: str, password: str, iterations: int, text: str) -> None:
    with pytest.raises(ValueError, match=text) as refused:
        credential_of_password(name, SHA_256, password, iterations)
    assert password == "" or password not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "prepared"),
    [  # RFC 4013, section 3
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("\u0007", None),
        ("\u0627\u0031", None),
        ("a\u00a0b", "a b"),
        ("", ""),
    ],
)
def test_saslprep(text: str, prepared: str | None) -> None:
    assert saslprep(text) == prepared


@pytest.mark.parametrize("number", [0, 1, 35, 36, (1 << 130) - 1])
def test_base36(number: int) -> None:
    assert int(base36(number), 36) == number
