"""Turns of the event loop: work that grows with its request pauses now and then, so that others have their turn.

    work   |--- 5 ms ---|            |--- 5 ms ---|            |-- the rest --|
    loop                | all others |            | all others |

Work is a generator that yields wherever others may have their turn, or what it has to wait for. However many requests
there are of that kind, they share one turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable
from functools import partial
from time import perf_counter
from typing import Any, TypeAlias, TypeVar

from odradek.broker.tasks import Tasks

_T = TypeVar("_T")
_R = TypeVar("_R")

Work: TypeAlias = Generator[Any, None, _T]
"""Work that yields where others may have their turn, or a function to wait for, and returns its result."""

_FIRST_S = 0.001
TURN_S = 0.005
_ITEMS = 50


class Turns:
    """Gives work its turns. It belongs to the event loop's thread.

    Attributes:
        begun: The work that no client waits for.
    """

    def __init__(self) -> None:
        self._queue: deque[tuple[Work[Any], asyncio.Future[Any]]] = deque()
        self._is_running = False
        self.begun = Tasks()

    def take(self, work: Work[_T]) -> _T | Awaitable[_T]:
        """Return the result of work if it does not take long, otherwise an awaitable of it."""
        try:
            waits = _advance(work, perf_counter() + _FIRST_S)
        except StopIteration as ended:
            found: _T = ended.value
            return found
        result: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._later(work, result, waits)
        return result

    def begin(self, work: Work[None]) -> None:
        """Begin work that no client waits for."""
        waits = self.take(work)
        if isinstance(waits, Awaitable):
            self.begun.start(waits)

    async def finish(self, work: Work[_T]) -> _T:
        """Return the result of work, after its turns."""
        found = self.take(work)
        return await found if isinstance(found, Awaitable) else found

    def _later(self, work: Work[_T], result: asyncio.Future[_T], waits: Callable[[], Awaitable[None]] | None) -> None:
        """Put work at the end of the queue, after what it waits for is done."""
        if waits is None:
            self._queue.append((work, result))
            self._run_later()
            return
        waiting = asyncio.ensure_future(waits())

        def end_wait(_: object) -> None:
            waiting.cancel()

        def waited(_: object) -> None:
            # Work may wait many times: the callbacks must not pile up.
            result.remove_done_callback(end_wait)
            error = asyncio.CancelledError() if waiting.cancelled() else waiting.exception()
            if error is not None:
                _fail(result, error)
            if result.done():
                work.close()
            else:
                self._later(work, result, None)

        result.add_done_callback(end_wait)
        waiting.add_done_callback(waited)

    def _run_later(self) -> None:
        if self._queue and not self._is_running:
            self._is_running = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        """Let work in the queue share this turn, until its time is over."""
        self._is_running = False
        end = perf_counter() + TURN_S
        try:
            while self._queue and perf_counter() < end:
                self._resume(*self._queue.popleft(), end)
        finally:
            self._run_later()

    def _resume(self, work: Work[_T], result: asyncio.Future[_T], end: float) -> None:
        try:
            if result.done():
                # It was cancelled.
                work.close()
            else:
                self._later(work, result, _advance(work, end))
        except StopIteration as ended:
            if not result.done():
                result.set_result(ended.value)
        except BaseException as error:
            # Any error: others still wait for their turn, and the client waits for an answer.
            _fail(result, error)
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise


def _fail(result: asyncio.Future[_T], error: BaseException) -> None:
    if isinstance(error, asyncio.CancelledError):
        result.cancel()
    elif not result.done():
        result.set_exception(error)


def _advance(work: Work[_T], end: float) -> Callable[[], Awaitable[None]] | None:
    """Let work continue until a time of `perf_counter`; return what it has to wait for, if anything."""
    while True:
        waits: Callable[[], Awaitable[None]] | None = next(work)
        if waits is not None or perf_counter() > end:
            return waits


def each(items: Iterable[_T], action: Callable[[_T], _R], step: int = 1) -> Work[list[_R]]:
    """Work: do something with each item; returns the results.

    Args:
        items: The items.
        action: Called with each of them.
        step: After how many of them others may have their turn; more than one where each takes little.
    """
    found = []
    for number, item in enumerate(items, 1):
        found.append(action(item))
        if number % step == 0:
            yield
    return found


def each_partition(
    topics: Iterable[Any], field: str, action: Callable[[Any, Any], _R]
) -> Work[list[tuple[Any, list[_R]]]]:
    """Work: do something with each topic of a request and each of its partitions; returns topics and results.

    Args:
        topics: The topics.
        field: The field of a topic that has the partitions.
        action: Called with the topic and the partition.
    """
    found = []
    for topic in topics:
        found.append((topic, (yield from each(getattr(topic, field), partial(action, topic)))))
        yield
    return found


def result_of(awaitable: Awaitable[_T]) -> Work[_T]:
    """Work: wait for something; returns its result, or raises its error."""
    future = asyncio.ensure_future(awaitable)
    yield partial(asyncio.wait, [future])
    return future.result()


def whole(work: Work[_T]) -> _T:
    """Do work in one turn."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            found: _T = ended.value
            return found


async def rest(number: int) -> None:
    """Let others have their turn after some items of a request; for loops that seldom wait for an item."""
    if number % _ITEMS == _ITEMS - 1:
        await asyncio.sleep(0)
