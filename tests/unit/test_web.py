"""What the server of `odradek.web` does with clients that keep it waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvicorn

from odradek import web
from odradek.web import App, Message, PlainAnswer, Receive, Send, SiteGuard, listen, server_of

pytestmark = pytest.mark.slow

END_S = 10
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def client_of(app: App) -> AsyncIterator[tuple[uvicorn.Server, Awaitable[None], Streams]]:
    async def for_clients(scope: Message, receive: Receive, send: Send) -> None:
        # The server also tells that it starts, and goes on where an application does not know that.
        assert scope["type"] == "http"
        await app(scope, receive, send)

    listening = listen("127.0.0.1", 0)
    server = server_of(SiteGuard(for_clients, ()), connections=10, end_s=END_S)
    async with asyncio.timeout(20):
        running = asyncio.create_task(server.serve(sockets=[listening]))
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        yield server, running, (reader, writer)
        writer.close()
        server.should_exit = True
        await running


def seen(app: App, use: Callable[[uvicorn.Server, Awaitable[None], Streams], Awaitable[bytes]]) -> bytes:
    async def run() -> bytes:
        async with client_of(app) as (server, running, streams):
            return await use(server, running, streams)

    return asyncio.run(run())


@pytest.mark.parametrize("before", [b"", b"GET / HTT"])
def test_a_head_that_does_not_arrive_ends_the_connection(monkeypatch: pytest.MonkeyPatch, before: bytes) -> None:
    monkeypatch.setattr(web, "_HEAD_TIMEOUT_S", 0.02)

    async def use(server: uvicorn.Server, running: Awaitable[None], streams: Streams) -> bytes:
        streams[1].write(before)
        return await streams[0].read()

    assert seen(PlainAnswer(200, "answered"), use) == b""


def test_a_body_that_does_not_arrive_is_one_whose_client_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_BODY_TIMEOUT_S", 0.02)
    found: list[str] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        while not found or found[-1] == "http.request":
            found.append((await receive())["type"])
        await PlainAnswer(408, "too late")(scope, receive, send)

    async def use(server: uvicorn.Server, running: Awaitable[None], streams: Streams) -> bytes:
        streams[1].write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nab")
        return await streams[0].readuntil(b"too late")

    assert seen(app, use).startswith(b"HTTP/1.1 408 ")
    assert found[-1] == "http.disconnect"


def test_an_answer_without_an_end_is_broken_off_when_the_server_ends() -> None:
    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"more", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    async def use(server: uvicorn.Server, running: Awaitable[None], streams: Streams) -> bytes:
        streams[1].write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await streams[0].readuntil(b"more")
        server.should_exit = True
        # Before its time to end is over.
        await asyncio.wait_for(asyncio.shield(running), END_S / 2)
        return b""

    seen(app, use)
