"""The control of a broker by HTTP."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from typing import Any

import pytest

from odradek.broker.running import BrokerThread
from odradek.testing import Broker, control_server
from odradek.testing.broker_control import BrokerControl
from odradek.testing.control_server import ControlServer, matches
from odradek.testing.wire import WireClient
from peers.broker_thread import connect, eventually, start
from peers.requests import ask

METADATA = 3


class Remote:
    def __init__(self, server: ControlServer) -> None:
        self.connection = HTTPConnection(*server.address, timeout=30)
        self.headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}

    def __call__(self, method: str, path: str, body: Any = None, **headers: str | None) -> tuple[int, Any]:
        changed = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in {**self.headers, **changed}.items() if value is not None}
        self.connection.request(method, path, None if body is None else json.dumps(body), sent)
        response = self.connection.getresponse()
        return response.status, json.loads(response.read())


@pytest.fixture
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with start(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture
def remote(running: BrokerThread) -> Iterator[Remote]:
    with ControlServer(BrokerControl(running.server, running.call)) as server:
        remote = Remote(server)
        yield remote
        remote.connection.close()


@pytest.fixture
def client(running: BrokerThread, remote: Remote) -> Iterator[WireClient]:
    with connect(running, client_id="tester") as client:
        yield client


def code_of(client: WireClient, topic: str) -> int:
    return int(ask(client, "Metadata", 7, topics=[{"name": topic}]).topics[0].error_code)


@pytest.mark.slow
def test_topics(remote: Remote, client: WireClient) -> None:
    status, topic = remote("POST", "/topics", {"name": "events", "partitions": 2})
    assert (status, topic["name"], len(topic["topic_id"])) == (200, "events", 22)
    assert code_of(client, "events") == 0
    assert remote("DELETE", "/topics/events") == (200, {})
    assert code_of(client, "events") == 3


@pytest.mark.slow
def test_faults(remote: Remote, client: WireClient) -> None:
    remote("POST", "/topics", {"name": "events"})
    asked = {
        "api": "Metadata",
        "error": "LEADER_NOT_AVAILABLE",
        "when": {"client_id": "tester", "fields": {"topics": [{"name": "events"}]}},
    }
    status, fault = remote("POST", "/fault", asked)
    assert (status, fault) == (200, {"id": 1, **asked, "fired": 0})
    assert [code_of(client, "events"), code_of(client, "other")] == [5, 3]
    assert remote("GET", "/fault/1")[1]["fired"] == 1
    assert [one["id"] for one in remote("GET", "/fault")[1]] == [1]
    assert remote("DELETE", "/fault/1") == (200, {})
    assert code_of(client, "events") == 0
    remote("POST", "/fault", {**asked, "times": 1})
    assert remote("DELETE", "/fault") == (200, {})
    assert code_of(client, "events") == 0


def test_requests(remote: Remote, client: WireClient) -> None:
    code_of(client, "events")
    (request,) = remote("GET", "/requests?api=Metadata")[1]
    assert (request["api"], request["version"], request["client_id"]) == ("Metadata", 7, "tester")
    assert request["fields"]["topics"] == [{"name": "events"}]
    assert remote("GET", "/requests?api=Produce") == (200, [])


def test_time(remote: Remote, running: BrokerThread) -> None:
    before = running.broker.clock.now_ms()
    status, told = remote("POST", "/advance", {"seconds": 3600})
    assert status == 200
    assert told["now_ms"] - before >= 3_600_000


@pytest.mark.slow
def test_users_acls_and_quotas() -> None:
    with Broker(users={"alice": "a"}, acls=[]) as broker, broker.control_server() as server:
        remote = Remote(server)
        broker.create_topic("events")
        rules = {"allow": [{"principal": "bob", "operation": "DESCRIBE", "topic": "ev", "prefixed": True}]}
        assert remote("POST", "/users", {"bob": "b", "alice": None}) == (200, {})
        assert remote("POST", "/acls", rules) == (200, {})
        assert remote("POST", "/quotas", {"users/bob": {"producer_byte_rate": 1000}}) == (200, {})
        image = broker.logs.metadata_image
        assert {name for users in image.scram_credentials.values() for name in users} == {"bob"}
        assert [one.principal for one in image.acls.values()] == ["User:bob"]
        assert len(image.client_quotas) == 1
        for path, body in (("/users", {"bob": ""}), ("/users", {"bob": 1}), ("/quotas", {"bob": {}})):
            assert remote("POST", path, body)[0] == 400
        for wrong in ({"principal": "bob"}, {"principal": "b", "operation": "READ"}, {"who": 1}, 7):
            assert remote("POST", "/acls", {"deny": [wrong]})[0] == 400
        remote.connection.close()


def test_health_needs_no_token(remote: Remote) -> None:
    assert remote("GET", "/healthz", Authorization=None) == (200, {"status": "ok"})


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (401, {"Authorization": None}),
        (401, {"Authorization": "Bearer é"}),
        (415, {"Content_Type": "text/plain"}),
        (403, {"origin": "http://evil.example"}),
        (415, {"Content_Type": None}),
        (403, {"Origin": "http://evil.example"}),
        (403, {"Origin": "null"}),
        (403, {"Host": "evil.example"}),
        (403, {"Host": "evil.example:80"}),
        (403, {"Host": ""}),
        (403, {"Sec_Fetch_Site": "cross-site"}),
        (403, {"Sec_Fetch_Site": "same-site"}),
    ],
)
def test_a_web_page_cannot_control_the_broker(
    remote: Remote, running: BrokerThread, status: int, headers: dict[str, str | None]
) -> None:
    before = running.broker.clock.now_ms()
    found, told = remote("POST", "/advance", {"seconds": 86_400}, **headers)
    assert (found, list(told)) == (status, ["error"])
    assert running.broker.clock.now_ms() - before < 86_400_000
    if "Content_Type" not in headers:
        assert remote("GET", "/requests", **headers)[0] == status
    assert remote("GET", "/requests") == (200, [])


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "[::1]:80", "10.0.0.7"])
def test_hosts_that_no_page_can_choose_are_served(remote: Remote, host: str) -> None:
    assert remote("GET", "/fault", Host=host, Origin=f"http://{host}") == (200, [])


@pytest.mark.parametrize("header", ["Transfer-Encoding: chunked", "Content-Length: many", "Content-Length: -1"])
def test_a_body_that_is_not_read_is_no_second_request(remote: Remote, header: str) -> None:
    remote("POST", "/fault", {"api": "Produce", "drop": True})
    token = f"Authorization: {remote.headers['Authorization']}"
    head = f"Host: localhost\r\n{token}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((remote.connection.host, remote.connection.port), timeout=30) as connection:
        connection.sendall(f"POST /advance HTTP/1.1\r\n{head}{header}\r\n\r\n".encode())
        connection.sendall(f"DELETE /fault HTTP/1.1\r\n{head}\r\n".encode())
        with connection.makefile("rb") as answers:
            assert answers.readline().startswith(b"HTTP/1.1 400")
    assert len(remote("GET", "/fault")[1]) == 1


def test_the_type_of_a_body_may_be_in_capitals(remote: Remote) -> None:
    assert remote("POST", "/advance", {"seconds": 0}, Content_Type="Application/JSON; charset=utf-8")[0] == 200


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("status", "method", "path", "body"),
    [
        (404, "GET", "/", None),
        (404, "GET", "/fault/7", None),
        (404, "DELETE", "/fault/x", None),
        (400, "POST", "/fault", {}),
        (400, "POST", "/fault", {"api": "Produces", "error": 6}),
        (400, "POST", "/fault", [1]),
        (400, "POST", "/advance", {"seconds": -1}),
        (400, "POST", "/advance", {"seconds": "soon"}),
        (400, "POST", "/topics", {"name": "no/topic"}),
        (400, "GET", "/requests?api=Produces", None),
    ],
)
def test_what_cannot_be_done_is_told(remote: Remote, status: int, method: str, path: str, body: Any) -> None:
    found, told = remote(method, path, body)
    assert (found, list(told)) == (status, ["error"])


def test_a_pattern_matches_what_has_all_of_it() -> None:
    value = {"a": 1, "b": [{"c": 2, "d": 3}, {"c": 4}]}
    assert matches({}, value)
    assert matches({"a": 1, "b": [{"c": 4}, {"d": 3}]}, value)
    assert not matches({"a": 2}, value)
    assert not matches({"b": [{"c": 4, "d": 3}]}, value)
    assert not matches({"e": None}, value)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"api": "Produce", "drop": True, "tmies": 2}, "tmies"),
        ({"api": [], "drop": True}, "no API []"),
        ({"api": "Produce", "error": []}, "no error []"),
        ({"api": "Produce", "error": "NONE"}, "NONE is no error"),
        ({"api": "Produce", "error": 0}, "NONE is no error"),
        ({"api": "Produce", "delay_ms": float("nan")}, "delay_ms"),
        ({"api": "Produce", "drop": True, "times": 1.5}, "times"),
    ],
)
def test_a_fault_that_is_written_wrongly_is_refused(remote: Remote, body: dict[str, Any], reason: str) -> None:
    status, answer = remote("POST", "/fault", body)
    assert status == 400
    assert reason in answer["error"]
    assert remote("GET", "/fault") == (200, [])


def test_json_that_is_nested_too_deeply_is_refused(running: BrokerThread, remote: Remote) -> None:
    remote.connection.request("POST", "/fault", "[" * 100_000, remote.headers)
    answer = remote.connection.getresponse()
    assert (answer.status, b"error" in answer.read()) == (400, True)


def serving_threads() -> int:
    return sum("process_request" in thread.name for thread in threading.enumerate())


def test_a_client_that_goes_early_is_no_error(
    running: BrokerThread, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with ControlServer(BrokerControl(running.server, running.call)) as server:
        with socket.create_connection(server.address) as gone:
            gone.sendall(b"GET /healthz HTTP/1.1\r\n")
            eventually(serving_threads)
            # So that it is reset.
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        eventually(lambda: not serving_threads())
    assert capfd.readouterr().err == ""
    assert not caplog.records


@pytest.mark.slow
def test_clients_and_their_time_are_bounded(
    running: BrokerThread, remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_server, "_MOST_CLIENTS", 2)
    monkeypatch.setattr(control_server._Handler, "timeout", 0.2)
    with ControlServer(BrokerControl(running.server, running.call)) as server:
        slow = [socket.create_connection(server.address, timeout=30) for _ in range(2)]
        with socket.create_connection(server.address, timeout=30) as one_more:
            one_more.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            with suppress(ConnectionError):
                assert one_more.recv(100) == b""
        # Those that send nothing are disconnected.
        for one in slow:
            assert one.recv(100) == b""
            one.close()
        eventually(lambda: is_healthy(server.address))


def is_healthy(address: tuple[str, int]) -> bool:
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        try:
            return connection.recv(100).startswith(b"HTTP/1.1 200")
        except ConnectionError:
            return False


def test_the_control_by_ipv6(running: BrokerThread) -> None:
    with ControlServer(BrokerControl(running.server, running.call), "::1") as server:
        remote = Remote(server)
        assert remote("GET", "/healthz") == (200, {"status": "ok"})
        remote.connection.close()
