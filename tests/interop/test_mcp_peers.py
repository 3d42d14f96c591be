"""The tools for agents: by the inspector of the Model Context Protocol, and over brokers, Apache Kafka among them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

import odradek
from odradek.mcp.prompts import INCIDENTS
from odradek.mcp.server import create_server
from odradek.mcp.tool import TOOLS, Served
from odradek.records import Record
from peers.clients import inspector
from peers.command import told
from peers.fixtures import BrokerFactory
from peers.mcp_calls import CALLS, TOKEN

FILES_ONLY = {"explain", "verify"}
TIMEOUT_S = 180


class Inspector:
    """The inspector's command line; each call is a run of it."""

    def __init__(self, home: Path, *server: str) -> None:
        self._home = home
        self._server = server
        self._command = inspector()

    def run(self, method: str, *arguments: str, fails: bool = False) -> Any:
        """Returns what it printed; what it says instead if it is to fail."""
        result = subprocess.run(
            [*self._command, *self._server, "--method", method, *arguments],
            env={**os.environ, "HOME": str(self._home)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert (result.returncode != 0) == fails, result.stdout + result.stderr
        return result.stderr if fails else json.loads(result.stdout)

    def call(self, tool: str, **arguments: Any) -> Any:
        """Calls a tool."""
        pairs = [
            f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in arguments.items()
        ]
        given = ["--tool-arg", *pairs] if pairs else []
        return self.run("tools/call", "--tool-name", tool, *given)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with odradek.open(tmp_path / "data") as logs:
        logs.create_topic("events")
        logs["events", 0].append([Record(b"k", b"v%d" % number) for number in range(5)])
    return tmp_path / "data"


def environment(**more: str) -> dict[str, str]:
    return {"PYTHONPATH": str(Path(odradek.__file__).parents[1]), **more}


@pytest.fixture
def over_stdio(folder: Path) -> Inspector:
    given = [part for name, value in environment().items() for part in ("-e", f"{name}={value}")]
    return Inspector(folder.parent, *given, sys.executable, "-m", "odradek", "mcp", str(folder))


@pytest.fixture
def url(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "odradek", "mcp", str(folder), "--http", "127.0.0.1:0"]
    given = os.environ | environment(ODRADEK_MCP_TOKEN=TOKEN)
    with subprocess.Popen(command, env=given, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            yield server.stderr.readline().rpartition(" ")[2].strip()
        finally:
            server.terminate()


@pytest.mark.laboratory  # a client program
def test_the_inspector_lists_and_calls_over_stdin_and_stdout(over_stdio: Inspector) -> None:
    # It judges the schemas, too: it would end with another code if a client could not take one.
    listed = over_stdio.run("tools/list", "--strict")["tools"]
    assert {one["name"] for one in listed} == set(TOOLS) == set(CALLS)
    found = over_stdio.call("find", **CALLS["find"])["structuredContent"]
    assert [one["untrusted"]["value"] for one in found["items"]] == ["v1"]


@pytest.mark.laboratory  # a client program
def test_the_inspector_drives_every_tool_over_http(over_stdio: Inspector, url: str, tmp_path: Path) -> None:
    by_http = Inspector(tmp_path, url, "--transport", "http", "--header", f"Authorization: Bearer {TOKEN}")
    for tool, arguments in CALLS.items():
        result = by_http.call(tool, **arguments)
        assert not result["isError"], result
        assert result["structuredContent"]["items"] or tool in ("verify", "groups_and_lag", "transactions")
    assert {one["name"] for one in by_http.run("prompts/list")["prompts"]} == set(INCIDENTS)
    for header, reason in (("Authorization: Bearer wrong", "auth_required"), ("Origin: http://evil.example", "403")):
        stranger = Inspector(tmp_path, url, "--transport", "http", "--header", header)
        assert reason in stranger.run("tools/list", fails=True)


def test_every_tool_over_a_broker(any_broker: BrokerFactory, tmp_path: Path) -> None:
    address = f"kafka://{any_broker().bootstrap_servers}"
    told("topics", "create", address, "events", "--partitions", "1")
    lines = "".join(f"k\tv{number}\n" for number in range(5))
    told("produce", address, "events", "--key-separator", "\t", given=lines.encode())
    with odradek.consume(address, "events", group="readers", auto_offset_reset="earliest", follow=False) as consumer:
        assert len(list(consumer)) == 5
        consumer.commit()

    async def answers() -> dict[str, Any]:
        async with Client(create_server(Served(address))) as client:
            return {name: await client.call_tool(name, arguments) for name, arguments in CALLS.items()}

    found = asyncio.run(answers())
    assert {name for name, result in found.items() if result.is_error} == FILES_ONLY
    assert all("needs the files" in str(found[name].content) for name in FILES_ONLY)
    items = {name: found[name].structured_content["items"] for name in set(CALLS) - FILES_ONLY}
    assert [one["untrusted"]["value"] for one in items["find"]] == ["v1"]
    assert [one["offset"] for one in items["get"]] == [1]
    assert [one["offset"] for one in items["tail"]] == [2, 3, 4]
    assert items["aggregate"]
    assert [one["untrusted"]["group"] for one in items["groups_and_lag"]] == ["readers"]
    assert any("events" in str(one) for one in items["topics"])
    assert [one["kind"] for one in items["describe"]] == ["topic", "partition"]
