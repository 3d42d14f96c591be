"""The threads of a broker, for tasks that take long: large appends, flushes, reads from the disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

_T = TypeVar("_T")


class Workers(ThreadPoolExecutor):
    """Threads that can be waited for until they have nothing left to do."""

    def __init__(self, count: int) -> None:
        super().__init__(count, "odradek-broker")
        self._lock = threading.Lock()
        self._pending: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Run an action in a thread."""
        future = super().submit(fn, *args, **kwargs)
        with self._lock:
            self._pending.add(future)
        future.add_done_callback(self._done)
        return future

    def _done(self, future: Future[Any]) -> None:
        with self._lock:
            self._pending.discard(future)

    async def wait(self, timeout_s: float) -> bool:
        """Wait until all actions so far have run, or the time is over; return whether there were any."""
        with self._lock:
            pending = set(self._pending)
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def finished(future: Future[Any]) -> None:
            with self._lock:
                pending.discard(future)
                if pending:
                    return
            loop.call_soon_threadsafe(done.set)

        waited_for = list(pending)
        for future in waited_for:
            future.add_done_callback(finished)
        if waited_for:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await done.wait()
        return bool(waited_for)
