"""What runs in other threads for pages: bounded, and ended when its reader goes.

    a page          one call in a thread, a few at a time; more wait, and more than that are refused
    a long answer   a search, an export, a live tail: a generator, each step of it a call in a thread

A reader who takes nothing, or has gone, holds no thread.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from starlette.exceptions import HTTPException

T = TypeVar("T")

_MOST_WAITING = 64
_BUSY = "The console is busy: try again in a moment."


class Work:
    """Runs what reads a folder or asks a broker. It belongs to one event loop.

    Args:
        pages: How many pages are made at the same time.
        steps: How many long answers are continued at the same time.
        long_answers: How many searches and exports may be open.
        tails: How many live tails may be open; each has a thread, which mostly sleeps.
    """

    def __init__(self, *, pages: int = 4, steps: int = 2, long_answers: int = 8, tails: int = 16) -> None:
        self._pages = pages
        self._steps = steps
        self._limiters: dict[str, anyio.CapacityLimiter] = {}
        self._tails = tails
        self._free = {"long": long_answers, "tail": tails}

    def _limiter(self, kind: str) -> anyio.CapacityLimiter:
        if kind not in self._limiters:
            total = {"page": self._pages, "long": self._steps, "tail": self._tails}[kind]
            self._limiters[kind] = anyio.CapacityLimiter(total)
        return self._limiters[kind]

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return what a function returns.

        Raises:
            HTTPException: Too many pages wait already.
        """
        limiter = self._limiter("page")
        if limiter.statistics().tasks_waiting >= _MOST_WAITING:
            raise HTTPException(503, _BUSY)
        return await anyio.to_thread.run_sync(partial(function, *arguments), limiter=limiter)

    async def steps(self, generator: Generator[T], kind: str = "long") -> AsyncGenerator[T]:
        """Yield what a generator yields; it is closed when its reader goes.

        Args:
            generator: The generator; each step of it runs in a thread.
            kind: `long` or `tail`.

        Raises:
            HTTPException: Too many are open already.
        """
        limiter, end, turn = self._limiter(kind), object(), threading.Lock()

        def step() -> object:
            with turn:
                return next(generator, end)

        def close() -> None:
            # A task that asyncio itself cancels, as uvicorn does at the end, has not waited for its step.
            with turn:
                generator.close()

        try:
            while (found := await anyio.to_thread.run_sync(step, limiter=limiter)) is not end:
                yield found  # type: ignore[misc]  # it is not the end
        finally:
            # What it closes may wait, too.
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(close)

    def reserve(self, kind: str = "long") -> contextlib.ExitStack:
        """Take one of the places of long answers, and return what gives it back.

        Raises:
            HTTPException: All are taken.
        """
        if not self._free[kind]:
            raise HTTPException(503, _BUSY)
        self._free[kind] -= 1
        held = contextlib.ExitStack()
        held.callback(self._give_back, kind)
        return held

    def _give_back(self, kind: str) -> None:
        self._free[kind] += 1
