"""The server, by the SDK's own client: in this process, over stdin and stdout, and over HTTP."""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import httpx2
import pytest
from click.testing import CliRunner
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

import odradek
from odradek.cli.app import main
from odradek.errors import OptionError
from odradek.mcp import tool
from odradek.mcp.http import names_of, serve_http
from odradek.mcp.prompts import INCIDENTS
from odradek.mcp.server import create_server
from odradek.mcp.tool import TOOLS, Served
from odradek.records import Record
from peers.mcp_calls import CALLS, TOKEN


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("folder")
    with odradek.open(path) as logs:
        logs.create_topic("events")
        logs["events", 0].append([Record(b"k", b"v%d" % number) for number in range(5)])
    return path


async def drive(client: Client) -> None:
    """Call every tool, and ask for every prompt."""
    listed = (await client.list_tools()).tools
    assert {one.name for one in listed} == set(CALLS) == set(TOOLS)
    for one in listed:
        assert one.annotations is not None
        assert one.annotations.read_only_hint
        # The client compares the answer with the tool's schema.
        result = await client.call_tool(one.name, CALLS[one.name])
        assert not result.is_error, result
        # What comes after the record that is asked for is left out.
        assert (result.structured_content["left_out"] is None) == (one.name != "get")
    for prompt in (await client.list_prompts()).prompts:
        given = {argument.name: "it" for argument in prompt.arguments or ()}
        [message] = (await client.get_prompt(prompt.name, given)).messages
        assert "next" in message.content.text  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_in_this_process(mode: str, folder: Path) -> None:
    async def run() -> None:
        async with Client(create_server(Served(str(folder))), mode=mode) as client:
            await drive(client)
            for name, arguments, reason in (
                ("nothing", {}, "there is no tool"),
                ("find", {}, "'topic' is a required property"),
                ("find", {"topic": "events", "sql": "select 1"}, "sql"),
                ("find", {"topic": "events", "limit_bytes": 10**9}, "maximum"),
                ("find", {"topic": "missing"}, "missing is not in"),
            ):
                result = await client.call_tool(name, arguments)
                assert result.is_error
                assert reason in str(result.content), result
            with pytest.raises(MCPError):
                await client.get_prompt("lag", {})

    asyncio.run(run())
    assert set(INCIDENTS) == {"lost_record", "poison_message", "lag", "torn_batch", "zombie_producer"}


@pytest.mark.slow
def test_over_stdin_and_stdout(folder: Path) -> None:
    async def run() -> None:
        command = StdioServerParameters(
            command=sys.executable,
            args=["-m", "odradek", "mcp", str(folder), "--redact", "key"],
            env={"PYTHONPATH": str(Path(odradek.__file__).parents[1])},
        )
        async with Client(command) as client:
            await drive(client)

    asyncio.run(run())


class Slow:
    """A tool that reads until its call ends."""

    def __init__(self) -> None:
        self.began, self.ended = threading.Event(), threading.Event()

    def __call__(self, call: tool.Call, arguments: Any, answer: Any) -> None:
        self.began.set()
        try:
            while not call.is_late():
                time.sleep(0.001)
        except tool.CallEndedError:
            self.ended.set()
            raise

    async def cancelled(self, client: Client) -> None:
        """Call it, and cancel the call."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "topics", {})
            assert await anyio.to_thread.run_sync(self.began.wait, 30)
            tasks.cancel_scope.cancel()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    made = Slow()
    monkeypatch.setitem(TOOLS, "topics", replace(TOOLS["topics"], run=made))
    return made


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_call_that_is_cancelled_ends(mode: str, folder: Path, slow: Slow) -> None:
    async def run() -> None:
        async with Client(create_server(Served(str(folder), time_limit_s=60)), mode=mode) as client:
            await slow.cancelled(client)
            assert await anyio.to_thread.run_sync(slow.ended.wait, 30)

    asyncio.run(run())


# -- over HTTP


class Running(NamedTuple):
    """A server.

    Attributes:
        url: Where it is.
        port: Its port.
    """

    url: str
    port: int


def _serving(folder: Path, token: str | None) -> Iterator[Running]:
    started: list[str] = []
    is_there = threading.Event()
    holder: list[Any] = []

    def note(url: str) -> None:
        started.append(url)
        is_there.set()

    async def run() -> None:
        holder.append((asyncio.get_running_loop(), asyncio.current_task()))
        await serve_http(Served(str(folder), time_limit_s=60), "127.0.0.1", 0, ["tools.example"], token, note)

    def main_of_thread() -> None:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(run())

    thread = threading.Thread(target=main_of_thread)
    thread.start()
    assert is_there.wait(30)
    port = int(started[0].rpartition(":")[2].partition("/")[0])
    yield Running(started[0], port)
    loop, task = holder[0]
    loop.call_soon_threadsafe(task.cancel)
    thread.join(30)
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Running]:
    yield from _serving(folder, TOKEN)


@pytest.mark.slow
def test_over_http(server: Running) -> None:
    async def run() -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(headers=headers) as caller:
            async with Client(streamable_http_client(server.url, http_client=caller)) as client:
                await drive(client)

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_call_whose_caller_disconnects_ends(mode: str, server: Running, slow: Slow) -> None:
    async def run() -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient(headers=headers) as caller:
            async with Client(streamable_http_client(server.url, http_client=caller), mode=mode) as client:
                await slow.cancelled(client)

    asyncio.run(run())
    assert slow.ended.wait(30)


LIST = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


def post(server: Running, path: str = "/mcp", method: str = "POST", **changes: str | None) -> tuple[int, str]:
    """Send a request with these headers, some of them changed or left out."""
    headers: dict[str, str | None] = {
        "Host": f"127.0.0.1:{server.port}",
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        body = json.dumps(LIST).encode() if method == "POST" else b""
        for name, value in headers.items():
            if value is not None:
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_who_is_answered(server: Running) -> None:
    for changes in (
        {},
        {"Host": f"localhost:{server.port}"},
        {"Host": f"tools.example:{server.port}"},
        {"Origin": f"http://127.0.0.1:{server.port}"},
    ):
        status, text = post(server, **changes)
        assert status == 200, (changes, text)
        assert "serverInfo" in text


@pytest.mark.parametrize(
    ("status", "changes"),
    [
        (401, {"Authorization": None}),
        (401, {"Authorization": ""}),
        (401, {"Authorization": "Bearer"}),
        (401, {"Authorization": "Bearer a-toke"}),
        (401, {"Authorization": "Bearer a-token "[:-1] + "x"}),
        (401, {"Authorization": "Basic YS10b2tlbg=="}),
        (401, {"Authorization": f"Bearer {TOKEN}é"}),
        (421, {"Host": "evil.example"}),
        (421, {"Host": "127.0.0.1"}),
        (421, {"Host": "127.0.0.1:1"}),
        (421, {"Host": "localhost:80.evil.example"}),
        (421, {"Host": "127.0.0.1.evil.example"}),
        (403, {"Origin": "http://evil.example"}),
        (403, {"Origin": "null"}),
        (403, {"Origin": "http://127.0.0.1:1"}),
        (403, {"Origin": "http://127.0.0.1"}),
        (403, {"Sec_Fetch_Site": "cross-site"}),
        (403, {"Sec_Fetch_Site": "same-site"}),
        (400, {"Content_Type": "text/plain"}),
    ],
)
def test_who_is_refused(status: int, changes: dict[str, Any], server: Running) -> None:
    found, text = post(server, **changes)
    assert found == status, text
    assert "serverInfo" not in text


def test_a_request_without_a_host_is_none(server: Running) -> None:
    # h11 itself refuses it, and closes the connection: a body on its way would be lost with the answer.
    assert post(server, method="GET", Host=None)[0] == 400


@pytest.mark.parametrize("path", ["/", "/mcp/", "/sse", "/.well-known/oauth-protected-resource", "//mcp"])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "DELETE"])
def test_every_path_asks_for_the_token(path: str, method: str, server: Running) -> None:
    assert post(server, path, method, Authorization=None)[0] == 401
    assert post(server, path, method, Host="evil.example")[0] == 421
    assert post(server, path, method, Origin="http://evil.example")[0] == 403


def test_a_large_request_is_refused(server: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        connection.request("POST", "/mcp", b"x" * ((1 << 20) + 1), headers)
        assert connection.getresponse().status == 413
    finally:
        connection.close()


@pytest.mark.parametrize("host", ["", "0.0.0.0", "192.0.2.1", "::", "db.example"])
def test_others_need_a_token(host: str, folder: Path) -> None:
    with pytest.raises(OptionError, match="token"):
        asyncio.run(serve_http(Served(str(folder)), host, 0, [], None, print))


def test_names() -> None:
    assert names_of("127.0.0.1", 8080, []) == {"127.0.0.1:8080", "localhost:8080", "[::1]:8080"}
    assert names_of("0.0.0.0", 8080, ["Tools.Example", "tools.example:443"]) == {
        "tools.example:8080",
        "tools.example:443",
    }
    assert names_of("2001:db8::1", 80, []) == {"[2001:db8::1]:80", "[2001:db8::1]"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["missing"], "missing"),
        ([".", "--allow-host", "x"], "--allow-host is for --http"),
        ([".", "--redact", "values"], "neither key, value nor headers"),
        ([".", "--http", "nowhere"], "HOST:PORT"),
        ([".", "--http", ":0"], "token"),
    ],
)
def test_wrong_commands(arguments: list[str], reason: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("ODRADEK_MCP_TOKEN", raising=False)
    result = CliRunner().invoke(main, ["mcp", *arguments])
    assert result.exit_code in (2, 3)
    assert reason in result.output
