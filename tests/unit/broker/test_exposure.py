"""What is open to strangers: listeners that ask for no login, and addresses that web pages reach."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.broker import monitoring
from odradek.broker.config import BrokerConfig
from odradek.broker.exposure import exposed
from odradek.broker.monitoring import Monitoring
from odradek.broker.running import BrokerThread
from peers.broker_thread import eventually, start
from peers.http import FOREIGN_HEADERS, OWN_HOSTS, answered

MAP = "listener.security.protocol.map"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def warned(protocol: str, host: str, **settings: str) -> list[str]:
    config = BrokerConfig({"listeners": "X://127.0.0.1:9092", MAP: f"X:{protocol}"} | settings)
    return list(exposed(config, {"X": host}))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "fe80::1%eth0", "::ffff:10.0.0.1"])
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_listener_that_asks_for_no_login_is_warned_of(protocol: str, host: str) -> None:
    [line] = warned(protocol, host)
    assert line.startswith(f"X ({protocol}) is reachable from other machines and asks for no login")
    assert "read, write and delete" in line


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "/run/kafka.sock"])
def test_not_on_the_loopback(host: str) -> None:
    assert warned("PLAINTEXT", host) == []


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_nor_one_that_asks_for_a_login(protocol: str) -> None:
    assert warned(protocol, "0.0.0.0") == []


def test_certificates_are_a_login_if_each_client_needs_one() -> None:
    name = "listener.name.x.ssl.client.auth"
    assert warned("SSL", "::", **{name: "required"}) == []
    assert len(warned("SSL", "::", **{name: "requested"})) == 1
    assert len(warned("SSL", "::", **{"ssl.client.auth": "required", name: "none"})) == 1


def test_with_an_authorizer_the_warning_says_what_strangers_may() -> None:
    [line] = warned("PLAINTEXT", "::", **{"authorizer.class.name": AUTHORIZER})
    assert "User:ANONYMOUS" in line


def test_it_is_told_at_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    listeners = "PLAINTEXT://127.0.0.1:0,OPEN://:0,INNER://localhost:0"
    protocols = "PLAINTEXT:PLAINTEXT,OPEN:PLAINTEXT,INNER:PLAINTEXT"
    start(tmp_path / "data", listeners=listeners, **{MAP: protocols}).stop()
    [line] = caplog.messages
    assert line.startswith("OPEN (PLAINTEXT) is reachable")


# -- /metrics


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    advertised = {"listeners": "PLAINTEXT://127.0.0.1:0", "advertised.listeners": "PLAINTEXT://Broker.example:9092"}
    with start(tmp_path / "data", **advertised) as running:
        with listening(running) as port:
            yield port


@contextmanager
def listening(running: BrokerThread) -> Iterator[int]:
    async def listen() -> tuple[Monitoring, int]:
        found = Monitoring(running.server)
        return found, await found.listen("127.0.0.1", 0)

    made, port = running.call(lambda: asyncio.run_coroutine_threadsafe(listen(), asyncio.get_running_loop())).result()
    yield port
    stopped = running.call(lambda: asyncio.run_coroutine_threadsafe(made.close(), asyncio.get_running_loop()))
    stopped.result()


@pytest.mark.parametrize("host", [*OWN_HOSTS, "broker.example", "BROKER.example:80"])
def test_its_own_names_are_served(port: int, host: str) -> None:
    found = answered(port, f"host: {host}", f"Origin: http://{host}", "Sec-Fetch-Site: same-origin")
    assert found.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"odradek_topics" in found


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/"])
@pytest.mark.parametrize("headers", FOREIGN_HEADERS)
def test_a_web_page_reads_nothing(port: int, path: str, headers: tuple[str, ...]) -> None:
    found = answered(port, *headers, request=f"GET {path} HTTP/1.1")
    assert found.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert b"odradek_" not in found


def test_probes_without_a_host_are_answered(port: int) -> None:
    assert answered(port, request="GET /healthz HTTP/1.0").startswith(b"HTTP/1.1 200")
    assert answered(port, "Host: localhost", request="POST /metrics HTTP/1.1").startswith(b"HTTP/1.1 405")


def test_requests_and_clients_are_bounded(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answered(port, "Host: localhost", *(f"X-{number}: {'x' * 100}" for number in range(200))) == b""
    monkeypatch.setattr(monitoring, "_MOST_CLIENTS", 2)
    waiting = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(2)]
    deadline = time.monotonic() + 30
    while answered_or_closed(port) and time.monotonic() < deadline:
        pass
    assert not answered_or_closed(port)
    for one in waiting:
        one.close()
    while not answered_or_closed(port) and time.monotonic() < deadline:
        pass
    assert answered_or_closed(port)


def answered_or_closed(port: int) -> bytes:
    try:
        return answered(port, "Host: localhost")
    except ConnectionError:
        return b""


@pytest.mark.slow
def test_a_client_that_does_not_receive_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitoring, "_TIMEOUT_S", 0.2)
    with start(tmp_path / "data") as running:
        monkeypatch.setattr(Monitoring, "_problems", lambda self: ["x" * 1000] * 50_000)
        with listening(running) as port:
            before = descriptors()
            with socket.socket() as client:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect(("127.0.0.1", port))
                client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert client.recv(10) == b"HTTP/1.1 5"
                # That of this end.
                eventually(lambda: descriptors() == before + 1)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
