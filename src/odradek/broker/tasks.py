"""Work that runs beside requests: the event loop itself does not keep its tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


class Tasks:
    """Tasks until they end. They belong to the event loop's thread.

    Args:
        failed: Called with the error of a task; without it, asyncio logs an error that nobody has waited for.
    """

    def __init__(self, failed: Callable[[BaseException], None] | None = None) -> None:
        self._failed = failed
        self._running: set[asyncio.Future[Any]] = set()

    def __bool__(self) -> bool:
        return bool(self._running)

    def start(self, work: Awaitable[_T]) -> asyncio.Future[_T]:
        """Begin work; return its task."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._running.discard(task)
        if self._failed is not None and not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    async def ended(self) -> None:
        """Wait until none is left."""
        while self._running:
            await asyncio.wait(list(self._running))

    def cancel(self) -> None:
        """End them where they wait."""
        for task in list(self._running):
            task.cancel()
