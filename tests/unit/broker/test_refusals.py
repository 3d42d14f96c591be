"""What is logged of those whom the broker refuses: who, why, and not too often."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from odradek.broker.refusals import Refusals
from odradek.broker.running import BrokerThread
from odradek.coordination.scram.credentials import MECHANISMS, credential_of_password
from odradek.errors import ProtocolError
from peers.broker_thread import advance, connect, eventually, start
from peers.certificates import make_certificate
from peers.scram import ScramLogin

LISTENER = "SASL_PLAINTEXT"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
HOUR_MS = 3_600_000


@pytest.fixture
def running(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[BrokerThread]:
    store, _ = make_certificate("server").write(tmp_path)
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "plain.sasl.jaas.config": f'{MODULE} required user_alice="secret";',
        "connection.failed.authentication.delay.ms": 0,
    }
    with start(tmp_path / "data", **config) as running:
        credential = credential_of_password("alice", MECHANISMS["SCRAM-SHA-256"], "secret")
        running.broker.logs.metadata.alter_scram_credentials([credential])
        caplog.set_level(logging.INFO, logger="odradek.broker")
        yield running


def refused(running: BrokerThread, name: str, password: str = "wr0ng") -> None:
    with connect(running, LISTENER) as client:
        client.call(17, 1, {"mechanism": "PLAIN"})
        answer = client.call(36, 2, {"auth_bytes": f"\0{name}\0{password}".encode()})
        assert answer.error_code == ErrorCode.sasl_authentication_failed


def test_a_refused_login_is_logged_with_its_user_once_a_minute(
    running: BrokerThread, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        refused(running, "alice")
    line = "127.0.0.1: a login by PLAIN as 'alice' was refused: Authentication failed: Invalid username or password"
    assert caplog.messages == [line]
    refused(running, "bob")
    assert len(caplog.messages) == 2
    advance(running, 61)
    refused(running, "alice")
    assert caplog.messages[2:] == [line]
    assert "wr0ng" not in caplog.text


def test_so_is_one_by_scram_and_by_a_mechanism_that_is_not_there(
    running: BrokerThread, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("alice", "eve"):
        steps = ScramLogin("SCRAM-SHA-256", name, "wr0ng")
        with connect(running, LISTENER) as client:
            client.call(17, 1, {"mechanism": "SCRAM-SHA-256"})
            first = client.call(36, 2, {"auth_bytes": steps.first()})
            client.call(36, 2, {"auth_bytes": steps.final(first.auth_bytes)})
    with connect(running, LISTENER) as client:
        client.call(17, 1, {"mechanism": "GSSAPI\nforged"})
    alice, eve, other = caplog.messages
    assert alice.startswith("127.0.0.1: a login by SCRAM-SHA-256 as 'alice' was refused: Authentication failed")
    assert eve == alice.replace("alice", "eve")
    assert other.startswith("127.0.0.1: a login by GSSAPI\\nforged as ")


def test_what_a_client_calls_itself_is_escaped_and_cut(running: BrokerThread, caplog: pytest.LogCaptureFixture) -> None:
    refused(running, "\x1b[2J\n" + "x" * 100_000)
    [line] = caplog.messages
    assert line.isprintable()
    assert len(line) < 500


def test_a_token_without_a_request_is_logged_once_too(running: BrokerThread, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        with connect(running, LISTENER) as client:
            client.call(17, 0, {"mechanism": "PLAIN"})
            client.socket.sendall(struct.pack(">i", 10) + b"\0bob\0wr0ng")
            with pytest.raises((ProtocolError, ConnectionError)):
                client.receive_frame()
    assert len(caplog.messages) == 1
    assert "as 'bob' was refused" in caplog.messages[0]


def test_rubbish_and_failed_handshakes_do_not_fill_the_log(
    running: BrokerThread, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        for listener in ("PLAINTEXT", "SSL", LISTENER):
            with connect(running, listener) as client:
                client.socket.sendall(b"\0\0\0\x0a\0\x63\0\0\0\0\0\1\xff\xff\0\0" if listener != "SSL" else b"GET / ")
                client.socket.shutdown(socket.SHUT_WR)
                with suppress(ConnectionError):
                    while client.socket.recv(100):
                        pass
    assert len(caplog.messages) == 2
    assert sum("handshake" in line for line in caplog.messages) == 1


def test_one_client_leaves_room_in_the_log_for_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now_ms = 1.0
    refusals = Refusals(logging.getLogger("test"), "logins", lambda: now_ms)
    for client, times in (("mallory", 2000), ("alice", 1)):
        for number in range(times):
            refusals.tell(client, number, "%s: %d", client, number)
    assert caplog.messages[-1] == "alice: 0"
    assert len(caplog.messages) == 101
    for number in range(2000):
        refusals.tell(f"client {number}", 0, "%d", number)
    assert len(caplog.messages) == 1000
    now_ms += 60_000
    refusals.tell("alice", 0, "%s: %d", "alice", 0)
    assert caplog.messages[-2:] == ["3001 other refused logins were not logged", "alice: 0"]


def test_a_refused_client_that_has_gone_leaves_its_descriptor(tmp_path: Path) -> None:
    config = {
        "listeners": f"{LISTENER}://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f'{MODULE} required user_alice="secret";',
        "connections.max.idle.ms": -1,
    }
    with start(tmp_path / "data", **config) as running:
        for count in (0, 50):
            client = connect(running, LISTENER)
            client.call(17, 1, {"mechanism": "PLAIN"})
            client.send(36, 2, {"auth_bytes": b"\0alice\0wr0ng"})
            # With these nothing more is read from it.
            for _ in range(count):
                client.send(18, 0, {})
            client.close()
        advance(running, 0.2)
        advance(running, 0.2)
        eventually(lambda: not running.call(lambda: len(running.server.connections)))
