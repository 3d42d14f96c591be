"""The control of a broker by HTTP."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from odradek.broker.running import BrokerThread
from odradek.testing.broker_control import BrokerControl
from odradek.testing.control_server import ControlServer, matches
from odradek.testing.wire import WireClient
from peers.broker_thread import eventually

METADATA = 3


class Remote:
    def __init__(self, address: tuple[str, int]) -> None:
        self.connection = HTTPConnection(*address, timeout=30)

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        self.connection.request(method, path, None if body is None else json.dumps(body))
        response = self.connection.getresponse()
        return response.status, json.loads(response.read())


@pytest.fixture
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    config = {"listeners": "PLAINTEXT://127.0.0.1:0"}
    with BrokerThread(tmp_path_factory.mktemp("broker") / "data", config, sync="off", background=False) as running:
        yield running


@pytest.fixture
def remote(running: BrokerThread) -> Iterator[Remote]:
    with ControlServer(BrokerControl(running.server, running.call)) as server:
        remote = Remote(server.address)
        yield remote
        remote.connection.close()


@pytest.fixture
def client(running: BrokerThread, remote: Remote) -> Iterator[WireClient]:
    endpoint = running.endpoint()
    with WireClient(endpoint.host, endpoint.port, client_id="tester") as client:
        yield client


def code_of(client: WireClient, topic: str) -> int:
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    return int(client.call(METADATA, 7, asked).topics[0].error_code)


def test_topics(remote: Remote, client: WireClient) -> None:
    status, topic = remote("POST", "/topics", {"name": "events", "partitions": 2})
    assert (status, topic["name"], len(topic["topic_id"])) == (200, "events", 22)
    assert code_of(client, "events") == 0
    assert remote("DELETE", "/topics/events") == (200, {})
    assert code_of(client, "events") == 3


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


def test_health(remote: Remote) -> None:
    assert remote("GET", "/healthz") == (200, {"status": "ok"})


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
    remote.connection.request("POST", "/fault", "[" * 100_000)
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


def test_the_control_by_ipv6(running: BrokerThread) -> None:
    with ControlServer(BrokerControl(running.server, running.call), "::1") as server:
        remote = Remote(server.address)
        assert remote("GET", "/healthz") == (200, {"status": "ok"})
        remote.connection.close()
