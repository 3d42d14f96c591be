"""Listeners with TLS and with passwords, over the wire."""

from __future__ import annotations

import gc
import logging
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from odradek.admin.opening import open_admin
from odradek.broker.config import BrokerConfig
from odradek.broker.protocol import encode_request
from odradek.broker.running import BrokerThread
from odradek.broker.sasl_plain import parse_users
from odradek.broker.tls import load_tls
from odradek.errors import (
    BrokerError,
    BrokerUnavailableError,
    InvalidConfigError,
    LogError,
    OffsetStoreError,
    ProtocolError,
)
from odradek.kafka.client import BrokerClient
from odradek.kafka.settings import BrokerSettings
from odradek.offsets.store import open_store
from odradek.places.opening import open_place
from odradek.records import Record
from odradek.testing.wire import WireClient
from peers.broker_thread import advance, eventually, start
from peers.certificates import Certificate, make_certificate
from peers.requests import ask, batch, fetch_message, message, produce_message, produced

PASSWORD = 's3cret"with\\marks'
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = f"""{MODULE} required user_alice="{PASSWORD.replace(chr(92), chr(92) * 2).replace('"', chr(92) + '"')}"
    user_bob='other';"""
METADATA = message("Metadata", topics=None)
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def server() -> Certificate:
    return make_certificate("server")


@pytest.fixture(scope="module")
def alice() -> Certificate:
    return make_certificate("alice", "Example, Inc")


@pytest.fixture
def config(tmp_path: Path, server: Certificate, alice: Certificate) -> dict[str, str | int | float | bool]:
    store, _ = server.write(tmp_path)
    _, trusted = alice.write(tmp_path)
    names = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "listener.name.ssl.ssl.truststore.location": str(trusted),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": USERS,
        "listener.name.sasl_ssl.plain.connections.max.reauth.ms": HOUR_MS,
        "connection.failed.authentication.delay.ms": 0,
    }


@pytest.fixture
def secured(tmp_path: Path, config: dict[str, str | int | float | bool]) -> Iterator[BrokerThread]:
    with start(tmp_path / "data", **config) as running:
        yield running


def login(user: str, password: str) -> str:
    return f'{MODULE} required username="{user}" password="{password}";'


def connected(running: BrokerThread, listener: str, context: ssl.SSLContext | None = None) -> WireClient:
    endpoint = running.endpoint(listener)
    client = WireClient(endpoint.host, endpoint.port)
    if context is not None:
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
    return client


def trusting(certificate: Certificate) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=certificate.certificate_pem)


def token(name: str, password: str, authorization: str = "") -> bytes:
    return f"{authorization}\0{name}\0{password}".encode()


def authenticate(client: WireClient, name: str, password: str, version: int = 2) -> tuple[int, str | None]:
    shaken = client.call(17, 1, {"mechanism": "PLAIN"})
    assert (shaken.error_code, shaken.mechanisms) == (ErrorCode.none, ("PLAIN",))
    answer = client.call(36, version, {"auth_bytes": token(name, password)})
    return answer.error_code, answer.error_message


def assert_closed(client: WireClient) -> None:
    with pytest.raises((ProtocolError, ConnectionError, ssl.SSLError)):
        client.receive_frame()


def assert_serves(client: WireClient) -> None:
    assert len(client.call(3, 12, METADATA).brokers) == 1


# -- SASL


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_client_authenticates(secured: BrokerThread, version: int) -> None:
    with connected(secured, "SASL_PLAINTEXT") as client:
        assert ask(client, "ApiVersions", 3).error_code == 0
        assert authenticate(client, "alice", PASSWORD, version) == (ErrorCode.none, None)
        assert_serves(client)
        [connection] = secured.call(lambda: list(secured.server.connections))
        assert connection.principal == "User:alice"


def test_tokens_without_requests_follow_the_first_handshake(secured: BrokerThread) -> None:
    with connected(secured, "SASL_PLAINTEXT") as client:
        assert client.call(17, 0, {"mechanism": "PLAIN"}).error_code == 0
        sent = token("bob", "other", "bob")
        client.socket.sendall(struct.pack(">i", len(sent)) + sent)
        assert client.receive_frame() == b""
        assert_serves(client)
    with connected(secured, "SASL_PLAINTEXT") as client:
        client.call(17, 0, {"mechanism": "PLAIN"})
        sent = token("bob", "wrong")
        client.socket.sendall(struct.pack(">i", len(sent)) + sent)
        assert_closed(client)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (token("alice", "wrong"), "Authentication failed: Invalid username or password"),
        (token("eve", PASSWORD), "Authentication failed: Invalid username or password"),
        (token("bob", "other", "alice"), "authorization id that is different from username"),
        (token("", "other"), "username not specified"),
        (token("bob", ""), "password not specified"),
        (b"bob\0other", "expected 3 tokens, got 2"),
        (b"", "expected 3 tokens, got 1"),
    ],
)
def test_a_wrong_token_is_refused_and_the_connection_closed(secured: BrokerThread, sent: bytes, text: str) -> None:
    with connected(secured, "SASL_PLAINTEXT") as client:
        client.call(17, 1, {"mechanism": "PLAIN"})
        answer = client.call(36, 1, {"auth_bytes": sent})
        assert answer.error_code == ErrorCode.sasl_authentication_failed
        assert text in answer.error_message
        assert_closed(client)


@pytest.mark.slow
def test_a_wrong_password_is_answered_late(tmp_path: Path) -> None:
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": USERS,
        "connection.failed.authentication.delay.ms": HOUR_MS,
    }
    with start(tmp_path / "data", **config) as running, connected(running, "SASL_PLAINTEXT") as client:
        client.call(17, 1, {"mechanism": "PLAIN"})
        correlation_id = client.send(36, 1, {"auth_bytes": token("bob", "wrong")})
        client.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.receive_frame()
        client.socket.settimeout(30)
        advance(running, HOUR_MS / 1000)
        answer = client.receive(36, 1, correlation_id)
        assert answer.error_code == ErrorCode.sasl_authentication_failed
        assert_closed(client)


@pytest.mark.slow
def test_a_mechanism_that_is_not_there_is_refused(secured: BrokerThread) -> None:
    with connected(secured, "SASL_PLAINTEXT") as client:
        answer = client.call(17, 1, {"mechanism": "SCRAM-SHA-256"})
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.unsupported_sasl_mechanism, ("PLAIN",))
        assert_closed(client)


@pytest.mark.parametrize("begin", [False, True])
def test_nothing_else_is_answered_before(secured: BrokerThread, begin: bool) -> None:
    with connected(secured, "SASL_PLAINTEXT") as client:
        if begin:
            client.call(17, 1, {"mechanism": "PLAIN"})
        client.send(3, 12, METADATA)
        assert_closed(client)


def test_a_client_that_has_not_authenticated_cannot_send_much(secured: BrokerThread) -> None:
    with connected(secured, "SASL_PLAINTEXT") as client:
        client.socket.sendall(struct.pack(">i", 600_000))
        assert_closed(client)
    with connected(secured, "SASL_PLAINTEXT") as client:
        authenticate(client, "bob", "other")
        client.socket.sendall(struct.pack(">i", 600_000))
        client.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.receive_frame()


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_authenticating_out_of_turn_is_illegal(secured: BrokerThread, listener: str) -> None:
    with connected(secured, listener) as client:
        if listener == "SASL_PLAINTEXT":
            authenticate(client, "bob", "other")
        answer = client.call(36, 2, {"auth_bytes": token("bob", "other")})
        assert answer.error_code == ErrorCode.illegal_sasl_state
        assert client.call(17, 1, {"mechanism": "PLAIN"}).error_code == ErrorCode.illegal_sasl_state
        assert_serves(client)


def test_a_client_authenticates_again_in_time(secured: BrokerThread, server: Certificate) -> None:
    with connected(secured, "SASL_SSL", trusting(server)) as client:
        client.call(17, 1, {"mechanism": "PLAIN"})
        answer = client.call(36, 1, {"auth_bytes": token("bob", "other")})
        assert answer.session_lifetime.total_seconds() * 1000 == HOUR_MS
        # Not twice within a second.
        assert client.call(17, 1, {"mechanism": "PLAIN"}).error_code == 0
        client.call(36, 1, {"auth_bytes": token("bob", "other")})
        assert client.call(17, 1, {"mechanism": "PLAIN"}).error_code == ErrorCode.illegal_sasl_state
        advance(secured, 599)
        assert_serves(client)
        assert authenticate(client, "bob", "other") == (0, None)
        advance(secured, 599)
        assert_serves(client)
        # As another user not.
        code, text = authenticate(client, "alice", PASSWORD)
        assert code == ErrorCode.sasl_authentication_failed
        assert text is not None
        assert "Cannot change principals" in text
    with connected(secured, "SASL_SSL", trusting(server)) as client:
        authenticate(client, "bob", "other")
        for _ in range(8):
            # Used, so that it is not closed as idle.
            advance(secured, HOUR_MS / 8000 + 0.001)
            if secured.call(lambda: not secured.server.connections):
                break
            client.send(3, 12, METADATA)
            try:
                client.receive_frame()
            except (ProtocolError, OSError):
                break
        else:
            pytest.fail("the session did not expire")


@pytest.mark.parametrize(
    ("text", "users"),
    [
        (f'{MODULE} required user_a="b";', {"a": "b"}),
        (f'{MODULE} required\n username="x" password="y"\n user_a="b c" user_d=\'e"f\';', {"a": "b c", "d": 'e"f'}),
        (f"{MODULE} required user_a=bare;", {"a": "bare"}),
        (f'{MODULE} required user_a="quoted \\" mark" ;', {"a": 'quoted " mark'}),
        (f"{MODULE} required;", {}),
    ],
)
def test_users_are_read(text: str, users: dict[str, str]) -> None:
    assert parse_users(text) == users


@pytest.mark.parametrize(
    "text",
    ["", "other.Module required;", f"{MODULE} required", f'{MODULE} required user_a "b";', f'{MODULE} required a="b'],
)
def test_users_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not|has a"):
        parse_users(text)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "sasl.enabled.mechanisms"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "listener.name.sasl_plaintext.plain.sasl.jaas.config"),
        (
            {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": "s3cret"},
            "listener.name.sasl_plaintext.plain.sasl.jaas.config",
        ),
    ],
)
def test_a_listener_without_users_does_not_start(tmp_path: Path, config: dict[str, str], name: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        start(tmp_path / "data", **{"listeners": "SASL_PLAINTEXT://127.0.0.1:0", **config})
    assert name in str(refused.value)
    assert "s3cret" not in str(refused.value)


# -- TLS


@pytest.mark.slow
def test_records_go_over_tls_whole(secured: BrokerThread, server: Certificate) -> None:
    logs = secured.broker.logs
    logs.create_topic("tls")
    values = [bytes([number % 251]) * 100_000 for number in range(40)]
    for value in values:
        logs["tls", 0].append([Record(None, value)])
    with connected(secured, "SASL_SSL", trusting(server)) as client:
        authenticate(client, "alice", PASSWORD)
        answer = client.call(1, 11, fetch_message(topic="tls", max_bytes=1 << 26))
    records = answer.responses[0].partitions[0].records
    assert len(records) == sum(segment.size_bytes for segment in logs["tls", 0].segments)
    assert all(value in records for value in values)


def test_a_certificate_says_who_the_client_is(
    secured: BrokerThread, server: Certificate, alice: Certificate, tmp_path: Path
) -> None:
    context = trusting(server)
    context.load_cert_chain(alice.write(tmp_path)[0])
    with connected(secured, "SSL", context) as client:
        assert_serves(client)
        [connection] = secured.call(lambda: list(secured.server.connections))
        assert connection.principal == "User:CN=alice,O=Example\\, Inc"


def test_a_certificate_is_called_as_the_rules_say(
    tmp_path: Path,
    config: dict[str, str | int | float | bool],
    server: Certificate,
    alice: Certificate,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    context = trusting(server)
    context.load_cert_chain(alice.write(tmp_path)[0])
    rules = "listener.name.ssl.ssl.principal.mapping.rules"
    config[rules] = "RULE:^CN=(.*?),O=Example.*$/$1/U"
    with start(tmp_path / "data", **config) as running, connected(running, "SSL", context) as client:
        assert_serves(client)
        assert [one.principal for one in running.call(lambda: list(running.server.connections))] == ["User:ALICE"]
    config[rules] = "RULE:^CN=bob$/bob/"
    with start(tmp_path / "data", **config) as running, connected(running, "SSL", context) as client:
        assert_closed(client)
    assert "no rule of ssl.principal.mapping.rules is about CN=alice" in caplog.text


def test_a_client_without_a_certificate_is_told(secured: BrokerThread, server: Certificate) -> None:
    with (
        pytest.raises(ssl.SSLError, match=r"(?i)certificate required"),
        connected(secured, "SSL", trusting(server)) as client,
    ):
        assert_serves(client)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("unknown", "unknown ca"),
        ("of the same name", "unknown ca|decrypt error|bad certificate|certificate unknown"),
        ("expired", "certificate expired"),
        ("not valid yet", "bad certificate|certificate"),
    ],
)
def test_a_certificate_that_is_not_good_lets_nobody_in_and_its_client_is_told(
    tmp_path: Path, config: dict[str, str | int | float | bool], server: Certificate, kind: str, told: str
) -> None:
    since, days = {"expired": (-10, -1), "not valid yet": (1, 2)}.get(kind, (-10, 2))
    client = make_certificate("alice" if kind == "of the same name" else kind, "Example, Inc", since=since, days=days)
    trusted = tmp_path / "alice.crt"
    if kind in ("expired", "not valid yet"):
        trusted.write_text(trusted.read_text() + client.certificate_pem)
    context = trusting(server)
    (tmp_path / "client").mkdir()
    context.load_cert_chain(client.write(tmp_path / "client")[0])
    with (
        start(tmp_path / "data", **config) as running,
        pytest.raises(ssl.SSLError, match=f"(?i)alert .*({told})"),
        connected(running, "SSL", context) as one,
    ):
        one.call(18, 0, {})


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1:DeprecationWarning")
@pytest.mark.parametrize(("highest", "given"), [("TLSv1_1", "TLSv1.2,TLSv1.3"), ("TLSv1_2", "TLSv1.3")])
def test_nobody_gets_a_version_of_tls_that_is_not_enabled(
    tmp_path: Path, config: dict[str, str | int | float | bool], server: Certificate, highest: str, given: str
) -> None:
    context = trusting(server)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1_1
    with start(tmp_path / "data", **config, **{"ssl.enabled.protocols": given}) as running:
        with connected(running, "SASL_SSL", context) as client:
            assert isinstance(client.socket, ssl.SSLSocket)
            assert client.socket.version() == "TLSv1.3"
        context.maximum_version = ssl.TLSVersion[highest]
        with pytest.raises(ssl.SSLError, match=r"(?i)alert protocol version"):
            connected(running, "SASL_SSL", context)


def test_handshakes_that_are_cut_short_or_replayed_harm_nobody(secured: BrokerThread, server: Certificate) -> None:
    endpoint = secured.endpoint("SASL_SSL")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    handshake = trusting(server).wrap_bio(incoming, outgoing, server_hostname="localhost")
    sent = b""
    with closing(socket.create_connection((endpoint.host, endpoint.port), timeout=30)) as sock:
        while True:
            try:
                handshake.do_handshake()
                break
            except ssl.SSLWantReadError:
                part = outgoing.read()
                sock.sendall(part)
                sent += part
                incoming.write(sock.recv(1 << 16))
        handshake.write(encode_request(17, 1, 1, "c", {"mechanism": "PLAIN"}))
        part = outgoing.read()
        sock.sendall(part)
        assert sock.recv(1 << 16)
        sent += part
    for end in (1, 5, len(sent) // 4, len(sent) // 2, len(sent) - 1, len(sent)):
        with closing(socket.create_connection((endpoint.host, endpoint.port), timeout=30)) as sock:
            sock.sendall(sent[:end])
            sock.shutdown(socket.SHUT_WR)
            # A hello of the broker, and an alert; what was sent on the first connection cannot be read on another.
            while sock.recv(1 << 16):
                pass
    eventually(lambda: not secured.call(lambda: len(secured.server.connections)))
    assert sum(secured.server.metrics.apis["SaslHandshake"].counts) == 1
    with connected(secured, "SASL_SSL", trusting(server)) as client:
        assert authenticate(client, "bob", "other") == (0, None)


@pytest.fixture
def collected(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """kafka-python leaves the sockets of failed handshakes to the collector, which warns of them."""
    # What it logs would hold them beyond the test.
    caplog.set_level(logging.CRITICAL, logger="kafka")
    yield
    gc.collect()


@pytest.mark.slow
@pytest.mark.usefixtures("collected")
@pytest.mark.parametrize("listener", ["SSL", "PLAINTEXT"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_our_clients_tell_at_once_of_tls_that_cannot_be(
    secured: BrokerThread, server: Certificate, tmp_path: Path, listener: str
) -> None:
    """A client without its key, and one that speaks TLS to a plain port: neither waits for its time to be over."""
    settings = {"security.protocol": "SSL", "ssl.truststore.location": str(server.write(tmp_path)[1])}
    port = secured.endpoint(listener).port
    told = {"SSL": r"set ssl\.keystore\.location", "PLAINTEXT": r"is that a port for security\.protocol=SSL\?"}[
        listener
    ]
    with open_store(f"kafka://localhost:{port}/g?timeout_ms=6000000", settings) as store:
        with pytest.raises(OffsetStoreError, match=told):
            store.load()
    with pytest.raises(BrokerError, match=told), open_place(f"kafka://localhost:{port}", settings) as source:
        source.topics()


def test_large_and_small_requests_together_over_tls(secured: BrokerThread, server: Certificate) -> None:
    secured.broker.logs.create_topic("large")
    value = bytes(range(256)) * 5000
    asked = produce_message(batch(value), "large", acks=-1)
    with connected(secured, "SASL_SSL", trusting(server)) as client:
        authenticate(client, "alice", PASSWORD)
        small = [encode_request(18, 3, number, "c", message("ApiVersions")) for number in range(60)]
        client.socket.sendall(encode_request(0, 9, 100, "c", asked) + b"".join(small))
        assert produced(client.receive(0, 9, 100)) == (ErrorCode.message_too_large, -1)
        assert [client.receive(18, 3, number).error_code for number in range(60)] == [ErrorCode.none] * 60
        secured.broker.logs.alter_topic_config("large", {"max.message.bytes": str(1 << 24)})
        assert produced(client.call(0, 9, asked)) == (ErrorCode.none, 0)
    assert [record.value for record in secured.broker.logs["large", 0].read()] == [value]


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, b"\xff" * 5000])
def test_garbage_to_a_listener_with_tls_harms_only_itself(
    secured: BrokerThread, server: Certificate, sent: bytes
) -> None:
    with connected(secured, "SASL_SSL", trusting(server)) as good:
        endpoint = secured.endpoint("SASL_SSL")
        with closing(socket.create_connection((endpoint.host, endpoint.port), timeout=30)) as bad:
            bad.sendall(sent)
            while bad.recv(1000):
                pass
        assert authenticate(good, "bob", "other") == (0, None)
        assert_serves(good)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ["file", "settings", "one line", "password", "PKCS12", "JKS"])
def test_keys_are_read(tmp_path: Path, server: Certificate, kind: str) -> None:
    config: dict[str, str] = {"ssl.keystore.type": "PEM", "ssl.truststore.type": "PEM"}
    key, chain = server.key_pem("k3y" if kind == "password" else None), server.certificate_pem
    if kind == "one line":
        key, chain = key.replace("\n", " "), chain.replace("\n", " ")
    if kind == "file":
        config["ssl.keystore.location"] = config["ssl.truststore.location"] = str(server.write(tmp_path)[0])
    elif kind in ("PKCS12", "JKS"):
        store = tmp_path / "store.p12"
        store.write_bytes(server.pkcs12("st0re"))
        config |= {"ssl.keystore.type": kind, "ssl.keystore.location": str(store), "ssl.keystore.password": "st0re"}
        config |= {"ssl.key.password": "st0re"}
    else:
        config |= {"ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain}
        config |= {"ssl.key.password": "k3y", "ssl.truststore.certificates": chain}
    context = load_tls(BrokerConfig({"listeners": "SSL://:0", **config}), "SSL").context
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting(server).wrap_bio(theirs, ours, server_hostname="localhost")
    accepted = context.wrap_bio(ours, theirs, server_side=True)
    for side in (client, accepted, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert client.version() == "TLSv1.3"


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({}, "listener.name.ssl.ssl.keystore.location"),
        ({"ssl.keystore.location": "/nowhere/at/all"}, "ssl.keystore.location: /nowhere/at/all cannot be read"),
        ({"ssl.keystore.key": "KEY"}, "ssl.keystore.certificate.chain"),
        ({"ssl.keystore.key": "KEY", "ssl.keystore.certificate.chain": "CHAIN"}, "holds no PEM"),
        ({"ssl.enabled.protocols": "SSLv3"}, "TLSv1.3"),
    ],
)
def test_a_listener_without_a_key_does_not_start(tmp_path: Path, config: dict[str, str], text: str) -> None:
    config = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.type": "PEM", **config}
    with pytest.raises((InvalidConfigError, LogError)) as refused:
        start(tmp_path / "data", **config)
    assert text in str(refused.value)
    assert "KEY" not in str(refused.value).replace("ssl.keystore.key", "")


def test_a_key_with_the_wrong_password_is_told_of(tmp_path: Path, server: Certificate) -> None:
    config = {"ssl.keystore.type": "PEM", "ssl.keystore.key": server.key_pem("right")}
    config["ssl.keystore.certificate.chain"] = server.certificate_pem
    for password in ("wrong", None):
        given = config if password is None else {**config, "ssl.key.password": password}
        with pytest.raises(LogError, match=r"SSL: ssl.keystore.key and ssl.keystore.certificate.chain cannot be used"):
            load_tls(BrokerConfig({"listeners": "SSL://:0", **given}), "SSL")


# -- our own client


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"sasl.jaas.config": login("alice", "wrong")}, "SaslAuthenticationFailed"),
        ({"sasl.mechanism": "PLIAN"}, "does not support the requested SASL mechanism"),
    ],
    ids=["password", "mechanism"],
)
def test_a_refusal_is_told_at_once(secured: BrokerThread, settings: dict[str, str], told: str) -> None:
    endpoint = secured.endpoint("SASL_PLAINTEXT")
    # If it tried again until the time is over, the test would be ended first. (A few attempts there may be: a client
    # that finds the end of a connection together with the answer before it, is told of the end only.)
    config = {
        "bootstrap.servers": f"localhost:{endpoint.port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": login("bob", "other"),
        **settings,
        "default.api.timeout.ms": "999999999",
    }
    client = BrokerClient(BrokerSettings.parse(config))
    with closing(client), pytest.raises(BrokerUnavailableError, match=told):
        client.attempt("looking", client.topics)


@pytest.mark.slow
def test_an_offset_store_logs_in_as_the_settings_of_kafkas_clients_say(secured: BrokerThread) -> None:
    address = f"kafka://localhost:{secured.endpoint('SASL_PLAINTEXT').port}/group"
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    with open_store(address, {**settings, "sasl.jaas.config": login("bob", "other")}) as store:
        assert not store.load()
    with pytest.raises(OffsetStoreError, match=r"sasl\.jaas\.config must name a username and a password"):
        open_store(address, {**settings, "sasl.jaas.config": "bob:other"})


@pytest.mark.slow
def test_a_client_without_a_login_is_told_what_to_check(secured: BrokerThread) -> None:
    endpoint = secured.endpoint("SASL_PLAINTEXT")
    servers = {"bootstrap.servers": f"localhost:{endpoint.port}", "default.api.timeout.ms": "300"}
    client = BrokerClient(BrokerSettings.parse(servers))
    told = ""
    with closing(client):
        while "for security.protocol=PLAINTEXT?" not in told:  # at the first time, unless the machine is very slow
            with pytest.raises(BrokerUnavailableError, match="Unable to bootstrap from") as caught:
                client.attempt("looking", client.topics)
            told = str(caught.value)


def test_an_address_with_a_user_is_one_of_sasl(secured: BrokerThread) -> None:
    with open_store(f"kafka://bob:other@localhost:{secured.endpoint('SASL_PLAINTEXT').port}/group") as store:
        assert not store.load()


@pytest.mark.slow
@pytest.mark.parametrize("inline", [True, False])
def test_topics_and_groups_are_reached_over_tls(
    tmp_path: Path, secured: BrokerThread, server: Certificate, inline: bool
) -> None:
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(server.certificate_pem)
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": login("bob", "other"),
        "ssl.truststore.type": "PEM",
    }
    if inline:
        settings["ssl.truststore.certificates"] = server.certificate_pem
    else:
        settings["ssl.truststore.location"] = str(trusted)
    with open_admin(f"kafka://localhost:{secured.endpoint('SASL_SSL').port}", settings) as admin:
        admin.create_topic("made", 2)
        assert admin.topic_names() == ["made"]
        assert not admin.describe_groups()
