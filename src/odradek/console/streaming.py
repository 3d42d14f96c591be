"""Long answers: sent part by part as they are found, and ended when their reader goes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from odradek.console.work import Work
from odradek.errors import OdradekError
from odradek.printable import logger

_log = logger(__name__)


class Streamed(Response):
    """An answer of many parts.

    Args:
        work: Runs the steps.
        parts: The parts, made in other threads.
        media_type: What they are.
        kind: Which places the answer takes one of: `long` or `tail`.
        headers: More headers.

    Raises:
        HTTPException: Too many long answers are open.
    """

    def __init__(
        self,
        work: Work,
        parts: Generator[str] | Generator[bytes],
        media_type: str,
        kind: str = "long",
        headers: dict[str, str] | None = None,
    ) -> None:
        self.status_code = 200
        self.media_type = media_type
        self.background = None
        self.init_headers(headers)
        self._parts: AsyncGenerator[str | bytes] = work.steps(parts, kind)
        self._place: ExitStack = work.reserve(kind)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts, until they end or the reader goes.

        After an error the answer has no end, so that no browser takes it for whole: the server closes the connection.
        """
        failure: Exception | None = None

        async def until_gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        with self._place:
            try:
                async with anyio.create_task_group() as group:
                    group.start_soon(until_gone)
                    try:
                        await self._send(send)
                    except (TimeoutError, OdradekError, OSError) as error:
                        failure = error
                    group.cancel_scope.cancel()
            finally:
                with anyio.CancelScope(shield=True):
                    await self._parts.aclose()
        if failure is not None and not isinstance(failure, TimeoutError):
            _log.error("%s: %s", scope.get("path"), failure)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for part in self._parts:
            if part:
                body = part.encode() if isinstance(part, str) else part
                await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
