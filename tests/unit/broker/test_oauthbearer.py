"""Logins by OAUTHBEARER over the wire, and the settings that they are checked by."""

from __future__ import annotations

import base64
import json
import logging
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode

from odradek.broker.api import APIS, Api
from odradek.broker.oauth_settings import HANDLER_CLASS, OAUTHBEARER_HANDLER, OAUTHBEARER_MODULE
from odradek.broker.running import BrokerThread
from odradek.coordination.oauthbearer.keys import KeySet
from odradek.coordination.oauthbearer.tokens import TokenRules
from odradek.errors import InvalidConfigError, ProtocolError
from odradek.testing.tokens import TokenProvider
from odradek.testing.wire import WireClient
from peers.broker_thread import advance, connect, start
from peers.requests import ask, batch, message, produce_message, produced

LISTENER = "SASL_PLAINTEXT"
OTHER = "OTHER"
METADATA = message("Metadata", topics=None)
PROVIDER = TokenProvider()
PREFIX = "listener.name.sasl_plaintext.oauthbearer.sasl.oauthbearer."
JAAS = "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"
MECHANISMS = "listener.name.sasl_plaintext.sasl.enabled.mechanisms"
HANDLER = f"listener.name.sasl_plaintext.oauthbearer.{HANDLER_CLASS}"
INVALID = '{"status":"invalid_token"}'
MISSPELT = [
    "listener.name.sasl_plaintext.OAUTHBEARER.sasl.oauthbearer.expected.issuer",
    "OAuthBearer.sasl.oauthbearer.expected.issuer",
    "listener.name.sasl_plaintext.PLAIN.sasl.jaas.config",
    "listener.name.sasl_plaintext.scram-sha-256.sasl.oauthbearer.expected.issuer",
    "oauth.sasl.oauthbearer.expected.issuer",
]
FAILED = "Authentication failed during {}authentication due to invalid credentials with SASL mechanism OAUTHBEARER"


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    found = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,OTHER:SASL_PLAINTEXT",
        "connection.failed.authentication.delay.ms": 0,
        "listener.name.other.connections.max.reauth.ms": 60_000,
        "listener.name.other.oauthbearer.sasl.oauthbearer.sub.claim.name": "client_id",
        **PROVIDER.broker_settings(PROVIDER.write_jwks(folder / "jwks.json")),
        **PROVIDER.broker_settings(folder / "jwks.json", OTHER),
        **more,
    }
    return {name: value for name, value in found.items() if value is not None}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerThread]:
    with start(tmp_path / "data", **settings(tmp_path)) as running:
        yield running


def first_message(token: str) -> bytes:
    return b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"


def login(client: WireClient, token: str) -> Any:
    """Logs in; returns the last answer."""
    assert client.call(17, 1, {"mechanism": "OAUTHBEARER"}).error_code == ErrorCode.none
    answer = client.call(36, 2, {"auth_bytes": first_message(token)})
    if answer.error_code == ErrorCode.none and answer.auth_bytes:
        assert answer.auth_bytes.decode() == INVALID
        assert answer.session_lifetime.total_seconds() == 0
        return client.call(36, 2, {"auth_bytes": b"\x01"})
    return answer


def refused(answer: Any) -> str:
    assert answer.error_code == ErrorCode.sasl_authentication_failed
    assert not answer.auth_bytes
    return str(answer.error_message)


def assert_closed(client: WireClient) -> None:
    with pytest.raises((ProtocolError, ConnectionError)):
        client.receive_frame()


def principals(running: BrokerThread) -> list[str]:
    return running.call(lambda: [one.principal for one in running.server.connections])


def test_a_client_logs_in_until_its_token_expires(running: BrokerThread) -> None:
    with connect(running, LISTENER) as client:
        answer = login(client, PROVIDER.token("alice", expires_in_s=500))
        assert answer.error_code == ErrorCode.none
        assert 490 < answer.session_lifetime.total_seconds() <= 500
        assert principals(running) == ["User:alice"]
        advance(running, 480)
        assert len(client.call(3, 12, METADATA).brokers) == 1
        advance(running, 21)
        client.send(3, 12, METADATA)
        assert_closed(client)


@pytest.mark.slow
def test_a_client_logs_in_again_with_a_newer_token(running: BrokerThread) -> None:
    with connect(running, LISTENER) as client:
        login(client, PROVIDER.token("alice", expires_in_s=500))
        advance(running, 501)
        answer = login(client, PROVIDER.token("alice", expires_in_s=3000))
        assert answer.session_lifetime.total_seconds() > 2400
        assert len(client.call(3, 12, METADATA).brokers) == 1
        # The first one has expired.
        advance(running, 1)
        assert refused(login(client, PROVIDER.token("alice", expires_in_s=400))) == INVALID
        assert_closed(client)


@pytest.mark.slow
def test_nobody_becomes_somebody_else(running: BrokerThread) -> None:
    with connect(running, LISTENER) as client:
        login(client, PROVIDER.token("alice"))
        text = "Cannot change principals during re-authentication from User.alice: User.bob"
        assert refused(login(client, PROVIDER.token("bob"))) == text
        assert_closed(client)


@pytest.mark.parametrize("version", [1, 2])
def test_what_a_refusal_says_of_long_names_fits_into_its_answer(
    running: BrokerThread, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    for length, code in ((4096, "sasl_authentication_failed"), (20_000, "none")):
        with connect(running, LISTENER) as client:
            for letter in "ab":
                client.call(17, 1, {"mechanism": "OAUTHBEARER"})
                sent = first_message(PROVIDER.token(letter * length))
                answer = client.call(36, version, {"auth_bytes": sent})
                if answer.auth_bytes:
                    break
            assert answer.error_code.name == code
            assert answer.auth_bytes.decode() == (INVALID if code == "none" else "")
    assert "failed\nTraceback" not in caplog.text


def test_a_producer_is_answered_at_once_until_its_token_expires(
    running: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.call(lambda: running.broker.logs.create_topic("events"))
    usual = APIS[0]
    assert usual is not None
    sent = produce_message(batch(b"a"), "events", acks=-1)
    with connect(running, LISTENER) as client:
        login(client, PROVIDER.token("alice", expires_in_s=500))
        assert produced(client.call(0, 9, sent)) == (ErrorCode.none, 0)
        monkeypatch.setitem(cast("dict[int, Api]", APIS), 0, usual._replace(handle=lambda request: None))
        assert produced(client.call(0, 9, sent)) == (ErrorCode.none, 1)
        advance(running, 501)
        client.send(0, 9, sent)
        assert_closed(client)
    assert running.broker.logs["events", 0].log_end_offset == 2


def test_no_dump_of_settings_has_a_password(tmp_path: Path) -> None:
    options = f'{OAUTHBEARER_MODULE} required ssl.truststore.password="hidden";'
    with start(tmp_path / "data", **settings(tmp_path, **{JAAS: options})) as running, connect(running) as client:
        resources = [{"resource_type": 4, "resource_name": "1", "configuration_keys": None}]
        resources[0]["resource_name"] = str(running.broker.node_id)
        answer = ask(client, "DescribeConfigs", 4, resources=resources, include_synonyms=True)
        names = [one.name for one in answer.results[0].configs]
        assert "sasl.oauthbearer.expected.audience" in names
        assert "hidden" not in repr(answer)


def test_each_listener_has_its_own_settings(running: BrokerThread) -> None:
    with connect(running, OTHER) as client:
        answer = login(client, PROVIDER.token("alice", client_id="app"))
        assert answer.session_lifetime.total_seconds() == 60
        assert principals(running) == ["User:app"]
    with connect(running, OTHER) as client:
        assert (
            25
            < login(client, PROVIDER.token("a", client_id="b", expires_in_s=30)).session_lifetime.total_seconds()
            <= 30
        )
    with connect(running, OTHER) as client:
        assert refused(login(client, PROVIDER.token("alice"))) == INVALID


def test_a_token_that_only_the_skew_lets_pass_is_for_no_further_request(running: BrokerThread) -> None:
    with connect(running, LISTENER) as client:
        answer = login(client, PROVIDER.token("alice", expires_in_s=-10))
        assert (answer.error_code, answer.session_lifetime.total_seconds()) == (ErrorCode.none, 0)
        advance(running, 0.001)
        client.send(3, 12, METADATA)
        assert_closed(client)


BAD = {
    "expired": PROVIDER.token("alice", expires_in_s=-31),
    "for others": PROVIDER.token("alice", aud="others"),
    "of another issuer": PROVIDER.token("alice", iss="https://evil.test"),
    "not valid yet": PROVIDER.token("alice", nbf=4_000_000_000, exp=4_000_000_001),
    "of a stranger": TokenProvider().token("alice"),
    "of an unknown key": TokenProvider(key_id="unknown").token("alice"),
    "without a user": PROVIDER.token("alice", sub=None),
    "with a number as user": PROVIDER.token("alice", sub=7),
    "unsigned": PROVIDER.token("alice").rpartition(".")[0] + ".",
    "changed": ".".join(
        (lambda parts, other: [parts[0], other[1], parts[2]])(
            PROVIDER.token("alice").split("."), PROVIDER.token("root").split(".")
        )
    ),
    "no token": "nonsense",
    "long": "a" * (1 << 16),
    "longer": "a" * ((1 << 16) + 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", BAD)
def test_a_token_that_is_not_valid_is_refused(
    running: BrokerThread, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with connect(running, LISTENER) as client:
        assert refused(login(client, BAD[kind])) == INVALID
        assert_closed(client)
    with connect(running, LISTENER) as client:
        assert refused(login(client, BAD[kind])) == INVALID
    # Its owner is told why, once a minute, and nothing of the token.
    assert caplog.text.count("a token is refused: ") == 1
    assert not any(part in caplog.text for part in (BAD[kind], *BAD[kind].split(".")) if part)
    assert "alice" not in caplog.text


def test_nothing_of_a_forged_token_is_looked_at(running: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long its refusal takes does not tell which claims would be right."""
    looked_at = []
    monkeypatch.setattr(TokenRules, "check", lambda *arguments: looked_at.append(arguments))
    for claims in ({}, {"aud": "others"}, {"exp": 1}, {"sub": None}):
        with connect(running, LISTENER) as client:
            assert refused(login(client, TokenProvider().token("alice", **claims))) == INVALID
    assert looked_at == []


@pytest.mark.slow
def test_a_message_of_another_form_is_refused_as_of_other_mechanisms(running: BrokerThread) -> None:
    with connect(running, LISTENER) as client:
        client.call(17, 1, {"mechanism": "OAUTHBEARER"})
        assert refused(client.call(36, 2, {"auth_bytes": b"\0alice\0secret"})) == FAILED.format("")
        assert_closed(client)
    with connect(running, LISTENER) as client:
        login(client, PROVIDER.token("alice"))
        client.call(17, 1, {"mechanism": "OAUTHBEARER"})
        assert refused(client.call(36, 2, {"auth_bytes": b"?"})) == FAILED.format("re-")


@pytest.mark.slow
def test_no_second_token_is_tried_after_a_refusal(running: BrokerThread) -> None:
    with connect(running, LISTENER) as client:
        client.call(17, 1, {"mechanism": "OAUTHBEARER"})
        assert client.call(36, 2, {"auth_bytes": first_message("bad")}).auth_bytes.decode() == INVALID
        client.call(36, 2, {"auth_bytes": first_message(PROVIDER.token("alice"))})
        assert_closed(client)
        assert principals(running) == []


def test_nothing_else_is_taken_while_a_token_is_checked(running: BrokerThread) -> None:
    with connect(running, LISTENER) as client:
        client.call(17, 1, {"mechanism": "OAUTHBEARER"})
        client.send(36, 2, {"auth_bytes": first_message(BAD["of a stranger"])})
        client.send(3, 12, METADATA)
        client.receive_frame()
        assert_closed(client)


def test_messages_without_requests_follow_the_first_handshake(running: BrokerThread) -> None:
    def sent(client: WireClient, token: bytes) -> bytes:
        client.socket.sendall(struct.pack(">i", len(token)) + token)
        return bytes(client.receive_frame())

    with connect(running, LISTENER) as client:
        client.call(17, 0, {"mechanism": "OAUTHBEARER"})
        assert sent(client, first_message(PROVIDER.token("alice"))) == b""
        assert len(client.call(3, 12, METADATA).brokers) == 1
    with connect(running, LISTENER) as client:
        client.call(17, 0, {"mechanism": "OAUTHBEARER"})
        assert sent(client, first_message(BAD["expired"])).decode() == INVALID
        with pytest.raises((ProtocolError, ConnectionError)):
            sent(client, b"\x01")


@pytest.mark.slow
def test_signatures_are_checked_off_the_loop_and_one_at_a_time(
    running: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, at_once = set(), []
    lock, check = threading.Lock(), KeySet.check

    def noted(keys: KeySet, token: Any) -> None:
        assert lock.acquire(blocking=False)
        at_once.append(1)
        threads.add(threading.get_ident())
        check(keys, token)
        lock.release()

    monkeypatch.setattr(KeySet, "check", noted)

    def log_in(number: int) -> int:
        with connect(running, LISTENER) as client:
            return int(login(client, PROVIDER.token(f"user-{number}")).error_code)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(log_in, range(24))) == [0] * 24
    assert len(at_once) == 24
    assert running.call(threading.get_ident) not in threads


def test_a_changed_file_counts_for_the_next_login(running: BrokerThread, tmp_path: Path) -> None:
    newer = TokenProvider(key_id="newer")
    with connect(running, LISTENER) as client:
        assert refused(login(client, newer.token("alice"))) == INVALID
    newer.write_jwks(tmp_path / "jwks.json")
    with connect(running, LISTENER) as client:
        assert login(client, newer.token("alice")).error_code == ErrorCode.none
    with connect(running, LISTENER) as client:
        assert refused(login(client, PROVIDER.token("alice"))) == INVALID


def test_keys_of_an_address_are_fetched_before_the_first_login_and_for_a_new_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = TokenProvider(key_id="newer")
    answers = [[PROVIDER.public_key], [PROVIDER.public_key, newer.public_key]]
    gate = threading.Event()

    def fetch(url: Any, context: object) -> bytes:
        assert url.geturl() == "https://login.test/keys"
        gate.wait(10)
        return json.dumps({"keys": answers.pop(0)}).encode()

    monkeypatch.setattr("odradek.broker.sasl_oauthbearer.fetch_jwks", fetch)
    config = settings(tmp_path, **{f"{PREFIX}jwks.endpoint.url": "https://login.test/keys"})
    config["listeners"] = "SASL_PLAINTEXT://127.0.0.1:0"
    with start(tmp_path / "data", **config) as running, connect(running, LISTENER) as client:
        client.call(17, 1, {"mechanism": "OAUTHBEARER"})
        client.send(36, 2, {"auth_bytes": first_message(PROVIDER.token("alice"))})
        gate.set()
        client.receive_frame()
        assert len(client.call(3, 12, METADATA).brokers) == 1
        with connect(running, LISTENER) as other:
            assert login(other, newer.token("bob")).error_code == ErrorCode.none
        with connect(running, LISTENER) as other:
            assert refused(login(other, BAD["of an unknown key"])) == INVALID
    assert answers == []


def test_without_keys_everybody_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(url: Any, context: object) -> bytes:
        raise OSError("unreachable")

    monkeypatch.setattr("odradek.broker.sasl_oauthbearer.fetch_jwks", fetch)
    with (
        start(tmp_path / "data", **settings(tmp_path, **{f"{PREFIX}jwks.endpoint.url": "http://h/"})) as running,
        connect(running, LISTENER) as client,
    ):
        assert refused(login(client, PROVIDER.token("alice"))) == INVALID


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        (HANDLER, {HANDLER: "org.example.Handler"}),
        (HANDLER, {HANDLER: ""}),
        # Kafka does not read these.
        (HANDLER_CLASS, {HANDLER: None, HANDLER_CLASS: OAUTHBEARER_HANDLER}),
        (HANDLER_CLASS, {HANDLER: None, f"oauthbearer.{HANDLER_CLASS}": OAUTHBEARER_HANDLER}),
        (HANDLER_CLASS, {HANDLER: None, f"listener.name.sasl_plaintext.{HANDLER_CLASS}": OAUTHBEARER_HANDLER}),
        (f"plain.{HANDLER_CLASS}", {f"plain.{HANDLER_CLASS}": OAUTHBEARER_HANDLER, MECHANISMS: "OAUTHBEARER,PLAIN"}),
        (f"{PREFIX}jwt.validator.class", {f"{PREFIX}jwt.validator.class": "org.example.Validator"}),
        (
            f"{PREFIX}jwt.validator.class",
            {f"{PREFIX}jwt.validator.class": "org.apache.kafka.common.security.oauthbearer.ClientJwtValidator"},
        ),
        (f"{PREFIX}jwks.endpoint.url", {f"{PREFIX}jwks.endpoint.url": ""}),
        (f"{PREFIX}jwks.endpoint.url", {f"{PREFIX}jwks.endpoint.url": "file:///nowhere/jwks.json"}),
        (f"{PREFIX}jwks.endpoint.url", {f"{PREFIX}jwks.endpoint.url": "ftp://host/keys"}),
        *((f"{PREFIX}expected.{claim}", {f"{PREFIX}expected.{claim}": None}) for claim in ("audience", "issuer")),
        *(
            (f"{PREFIX}expected.{one}", {f"{PREFIX}expected.{one}": "", f"{PREFIX}allow.unverified.{other}": "true"})
            for one, other in (("audience", "issuer"), ("issuer", "audience"))
        ),
        (f"{PREFIX}allow.unverified.issuer", {f"{PREFIX}allow.unverified.issuer": "yes"}),
        (f"{PREFIX}clock.skew.seconds", {f"{PREFIX}clock.skew.seconds": "-1"}),
        (f"{PREFIX}sub.claim.name", {f"{PREFIX}sub.claim.name": " "}),
        (
            f"{PREFIX}jwks.endpoint.retry.backoff.ms",
            {f"{PREFIX}jwks.endpoint.retry.backoff.ms": 20_000, f"{PREFIX}jwks.endpoint.url": "http://127.0.0.1:1/"},
        ),
        # No key set of a file is fetched; the values are wrong all the same.
        (f"{PREFIX}jwks.endpoint.refresh.ms", {f"{PREFIX}jwks.endpoint.refresh.ms": "soon"}),
        # What Kafka would not read, and so would restrict nobody.
        *((name, {name: "x"}) for name in MISSPELT),
        ("sasl.enabled.mechanisms", {MECHANISMS: "OAUTHBEARER,GSSAPI"}),
        ("sasl.jaas.config", {JAAS: f'{OAUTHBEARER_MODULE} required unsecuredValidatorRequiredScope="read";'}),
        ("sasl.jaas.config", {JAAS: "org.example.Module required;"}),
        ("sasl.jaas.config", {JAAS: "nonsense"}),
        (
            "sasl.jaas.config",
            {
                JAAS: f'{OAUTHBEARER_MODULE} required ssl.keystore.location="x";',
                f"{PREFIX}jwks.endpoint.url": "https://127.0.0.1:1/",
            },
        ),
    ],
)
def test_settings_that_cannot_be_enforced_stop_the_start(tmp_path: Path, name: str, changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigError) as error, start(tmp_path / "data", **settings(tmp_path, **changed)):
        pass
    assert error.value.config_name.endswith(name)


def test_the_settings_of_kafka_s_users_start(tmp_path: Path) -> None:
    changed = {
        # Java keeps blanks at the end of a line, and Kafka trims the value.
        f"{PREFIX}expected.issuer": f"{PROVIDER.issuer} ",
        f"{PREFIX}jwt.validator.class": "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator",
        MECHANISMS: "OAUTHBEARER,SCRAM-SHA-256",
    }
    with start(tmp_path / "data", **settings(tmp_path, **changed)) as running, connect(running, LISTENER) as client:
        assert login(client, PROVIDER.token("alice")).error_code == ErrorCode.none


def test_the_owner_is_told_of_what_any_token_of_the_keys_can_do(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with start(tmp_path / "data", **settings(tmp_path)):
        assert "any purpose" not in caplog.text
    for claim in ("audience", "issuer"):
        any_claim = {f"{PREFIX}expected.{claim}": "", f"{PREFIX}allow.unverified.{claim}": "true"}
        caplog.clear()
        with start(tmp_path / claim, **settings(tmp_path, **any_claim)):
            assert "SASL_PLAINTEXT: DefaultJwtValidator takes tokens for any purpose" in caplog.text


def unsecured(user: str, algorithm: str = "none", **claims: Any) -> str:
    parts = {"alg": algorithm}, {"sub": user, "iat": 1, "exp": 4_000_000_000, **claims}
    return ".".join(base64.urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in parts) + "."


UNSECURED = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "OAUTHBEARER"}


def test_unsecured_tokens_stop_the_start_unless_they_are_allowed(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"anybody can make tokens .* --allow-unsecured-tokens"):
        start(tmp_path / "data", **UNSECURED)
    # What would restrict tokens, and does not.
    for name in ("jwks.endpoint.url", "expected.audience", "clock.skew.seconds"):
        config = {**UNSECURED, f"{PREFIX}{name}": "7"}
        with pytest.raises(InvalidConfigError, match=rf"{name} has no effect without it"):
            BrokerThread(tmp_path / "data", config, sync="off", background=False, unsecured_tokens=True)


@pytest.mark.slow
def test_unsecured_tokens_are_taken_where_they_are_allowed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    options = 'unsecuredValidatorPrincipalClaimName="name" unsecuredValidatorRequiredScope="read"'
    config = {**UNSECURED, "oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required {options};"}
    with BrokerThread(tmp_path / "data", config, sync="off", background=False, unsecured_tokens=True) as running:
        assert "SASL_PLAINTEXT takes tokens that anybody can make" in caplog.text
        with connect(running, LISTENER) as client:
            assert login(client, unsecured("x", name="alice", scope="read")).error_code == ErrorCode.none
            assert principals(running) == ["User:alice"]
        for token in (PROVIDER.token("x", name="alice", scope="read"), unsecured("x", "HS256", name="a", scope="read")):
            with connect(running, LISTENER) as client:
                assert refused(login(client, token)) == INVALID


def test_unsecured_tokens_are_never_taken_beside_keys(tmp_path: Path) -> None:
    with BrokerThread(
        tmp_path / "data", settings(tmp_path), sync="off", background=False, unsecured_tokens=True
    ) as running:
        for algorithm in ("none", "NONE", "HS256", "ES256"):
            with connect(running, LISTENER) as client:
                token = unsecured("alice", algorithm, iss=PROVIDER.issuer, aud="kafka")
                assert refused(login(client, token)) == INVALID


@pytest.mark.slow
def test_a_broker_without_it_imports_nothing_of_it() -> None:
    code = "import sys, odradek.broker.server, odradek.broker.sasl; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"joserfc", "odradek.broker.jwks", "odradek.coordination.oauthbearer", "http.client"} & set(found)
