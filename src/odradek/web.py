"""Serves applications of ASGI by HTTP: the guard before them, and the server, whose clients cannot hold it up.

    head      has to arrive within 10 s, and the body within 30 s
    guard     Host, Origin, Sec-Fetch-Site (`odradek.cross_site`), then what the application itself asks for
    answer    each part has to be taken within 30 s

When the server ends, answers that are still being sent are broken off.
"""

from __future__ import annotations

import socket
from asyncio import TimerHandle, Transport
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, cast

import anyio
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from odradek.cross_site import RefusedRequestError, UnknownHostError, check_site
from odradek.errors import LogError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

READING = ("GET", "HEAD")
"""The methods that change nothing."""

SEND_TIMEOUT_S = 30.0
"""How long a client may take for a part of an answer."""

_HEAD_TIMEOUT_S = 10.0
_BODY_TIMEOUT_S = 30.0
_LONGEST_HEAD_BYTES = 1 << 16
_UNKNOWN_HOST = "The server does not know the host that it was called by. Name it with --allow-host.\n"


class PlainAnswer:
    """An answer of one line, as an application of ASGI."""

    def __init__(self, status: int, text: str, *headers: tuple[bytes, bytes]) -> None:
        self.status = status
        self._body = text.encode()
        size = str(len(self._body)).encode()
        self._headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", size), *headers]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer."""
        await send({"type": "http.response.start", "status": self.status, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._body})


class SiteGuard:
    """Lets only those requests through to an application that no foreign page caused.

    Args:
        app: The application.
        names: What the server is called; see `check_site`.
        has_cookies: Whether browsers log in: links lead to it then, and what changes something must come from it.
        only_names: Whether it is called by nothing else than the names.
        headers: Headers of every answer.
        send_timeout_s: How long a client may take for a part of an answer.
    """

    def __init__(
        self,
        app: App,
        names: Collection[str],
        *,
        has_cookies: bool = False,
        only_names: bool = False,
        headers: Collection[tuple[bytes, bytes]] = (),
        send_timeout_s: float = SEND_TIMEOUT_S,
    ) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names)
        self._has_cookies = has_cookies
        self._only_names = only_names
        self._headers = dict(headers)
        self._send_timeout_s = send_timeout_s

    def refusal(self, scope: Message) -> App | None:
        """Return what answers a request instead of the application, or None; no foreign page caused it."""
        return None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            # Nothing here has a WebSocket; closing it refuses it.
            await send({"type": "websocket.close", "code": 1008})
            return
        end_s, is_whole = anyio.current_time() + _BODY_TIMEOUT_S, False

        async def received() -> Message:
            nonlocal is_whole
            if is_whole:
                return await receive()
            with anyio.move_on_after(max(0.0, end_s - anyio.current_time())):
                message = await receive()
                is_whole = not message.get("more_body", False)
                return message
            return {"type": "http.disconnect"}

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message.get("headers", ()) if pair[0].lower() not in self._headers]
                message = {**message, "headers": [*kept, *self._headers.items()]}
            # A client that takes nothing holds its socket until then, and what is read for it no longer.
            with anyio.fail_after(self._send_timeout_s):
                await send(message)

        try:
            await (self._site_refusal(scope) or self.refusal(scope) or self._app)(scope, received, sent)
        except TimeoutError:
            # Without the end of its answer, the server closes the connection.
            return

    def _site_refusal(self, scope: Message) -> App | None:
        if not scope["path"].startswith("/"):
            # A target with a host of its own, as proxies are sent.
            return PlainAnswer(421, _UNKNOWN_HOST)
        try:
            check_site(
                ((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]),
                self._names,
                only_names=self._only_names,
                needs_host=True,
                follows_links=self._has_cookies and scope["method"] in READING,
                needs_site=self._has_cookies and scope["method"] not in READING,
            )
        except UnknownHostError:
            return PlainAnswer(421, _UNKNOWN_HOST)
        except RefusedRequestError as error:
            return PlainAnswer(error.status, f"Refused: {error}.\n")
        return None


class _Protocol(H11Protocol):
    """Closes a connection whose next head takes too long: uvicorn would wait for it for ever."""

    _timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()

    def _watch(self) -> None:
        # uvicorn says otherwise, but there is none before the first head.
        cycle = cast("Any", self.cycle)
        if cycle is not None and not cycle.response_complete:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        elif self._timer is None:
            self._timer = self.loop.call_later(_HEAD_TIMEOUT_S, self.transport.close)


class _Server(uvicorn.Server):
    """Breaks off running answers when it ends: live ones would never end."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for connection in list(self.server_state.connections):
            cycle = getattr(connection, "cycle", None)
            if cycle is not None and not cycle.response_complete:
                cycle.transport.abort()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens, for port 0 at any free one.

    Raises:
        LogError: The address is taken, or not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family)
    except OSError as error:
        raise LogError(f"cannot listen at {host}:{port}: {error.strerror or error}") from error


def url_of(listening: socket.socket) -> str:
    """Return the address of a server, without a path."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_of(app: App, *, connections: int, end_s: int) -> uvicorn.Server:
    """Return a server of an application.

    Args:
        app: The application, behind its guard.
        connections: How many connections it has at most.
        end_s: How long it waits for running answers when it ends.
    """
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=connections,
        h11_max_incomplete_event_size=_LONGEST_HEAD_BYTES,
        timeout_graceful_shutdown=end_s,
    )
    return _Server(config)
