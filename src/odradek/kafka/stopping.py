"""Ends what a thread waits for: a thread that waits for a broker checks several times a second whether to continue.

    with stopped_by(event):          in this thread, until the end of the block
        ...                          waits for an answer; raises `StoppedError` soon after another thread sets the event

Code that waits calls `check_not_stopped` each time it looks.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import NamedTuple

LOOK_S = 0.2
"""How long a wait lasts at most without a look."""


class StoppedError(Exception):
    """What the thread did is to end: another part of it has failed, or it was interrupted."""


class _Limit(NamedTuple):
    """What ends waits; None: nothing does."""

    stop: threading.Event | None = None
    until_s: float | None = None


_NO_LIMIT = _Limit()
_limit: ContextVar[_Limit] = ContextVar("odradek_limit", default=_NO_LIMIT)


@contextmanager
def _limited(limit: _Limit) -> Iterator[None]:
    token = _limit.set(limit)
    try:
        yield
    finally:
        _limit.reset(token)


def stopped_by(stop: threading.Event) -> AbstractContextManager[None]:
    """Let an event end what this thread waits for in the `with` block."""
    return _limited(_Limit(stop=stop))


def at_most(seconds: float) -> AbstractContextManager[None]:
    """Let this thread wait at most so long in the `with` block, whether or not it is stopped already."""
    return _limited(_Limit(until_s=time.monotonic() + seconds))


def check_not_stopped() -> None:
    """Do nothing if this thread may continue.

    Raises:
        StoppedError: It is not.
    """
    stop, until_s = _limit.get()
    if (stop is not None and stop.is_set()) or (until_s is not None and time.monotonic() > until_s):
        raise StoppedError


@contextmanager
def signals_held() -> Iterator[None]:
    """Let the handlers of SIGINT, SIGTERM and SIGHUP run at the end of the `with` block, which is to be short.

    What a handler raises in the middle of an event loop ends one of its tasks and is lost there: the program would go
    on, and wait for ever for the task's answer.
    """
    if threading.current_thread() is not threading.main_thread():
        # No handler runs in it.
        yield
        return
    with ExitStack() as held:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            held.enter_context(_signal_held(number))
        yield


@contextmanager
def _signal_held(number: signal.Signals) -> Iterator[None]:
    handler = signal.getsignal(number)
    if not callable(handler):
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(number, lambda *given: came.append(given))
    try:
        yield
    finally:
        signal.signal(number, handler)
        if came:
            handler(*came[0])
