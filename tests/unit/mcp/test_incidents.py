"""Thirty incidents: a client that only follows the hints of the answers finds each planted cause."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.server.lowlevel import Server

from odradek.mcp.server import create_server
from odradek.mcp.tool import Served
from peers.incidents import QUESTIONS, Question, plant

MOST_CALLS, MOST_BYTES = 10, 80_000


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("incidents")
    plant(path)
    return path


async def ask(server: Server[Any], question: Question) -> tuple[int, int]:
    """Follow hints until all of the evidence was seen; return how many calls and bytes that took."""
    waiting = deque([(question.tool, question.arguments)])
    seen: list[Any] = []
    missing, calls, size = list(question.evidence), 0, 0
    async with Client(server) as client:
        while missing:
            assert waiting, f"no hint leads on from {seen}"
            name, arguments = waiting.popleft()
            if (name, arguments) in seen:
                continue
            seen.append((name, arguments))
            result = await client.call_tool(name, arguments)
            calls, size = calls + 1, size + len(result.model_dump_json().encode())
            assert calls <= MOST_CALLS, seen
            assert size <= MOST_BYTES, seen
            assert not result.is_error, (name, arguments, result.content)
            answer = result.structured_content
            missing = [check for check in missing if not check(answer)]
            waiting.extend((hint["tool"], hint["arguments"]) for hint in answer["next"])
    return calls, size


def test_there_are_thirty() -> None:
    assert len({question.text for question in QUESTIONS}) == 30


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.text)
def test_the_cause_is_found(question: Question, planted: Path) -> None:
    asyncio.run(ask(create_server(Served(str(planted))), question))
