"""Values that take too long to find for a page: a thread finds them, and pages show the last one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from odradek.errors import OdradekError
from odradek.records.timestamps import now_ms

T = TypeVar("T")

_SHARE = 20
"""The thread works for at most one part in 20 of the time ..."""

_LONGEST_S = 240.0
"""... but no value is used for longer: to wait for a broker that does not answer is no work."""


class Background(Generic[T]):
    """A value that takes long to find. Any thread may use it.

    Args:
        find: Finds the value. After an `OdradekError` or `OSError` the last value stays, and the next page tries again.
        name: The name of the thread.
        fresh_s: How long a value is used before it is looked for again.

    Attributes:
        found_ms: When the last value was found.
        failure: Why the last try failed, or None.
    """

    def __init__(self, find: Callable[[], T], name: str, fresh_s: float) -> None:
        self._find = find
        self._name = name
        self._fresh_s = fresh_s
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._found: T | None = None
        self._due_s = 0.0
        self._changes = 0
        self._is_closed = False
        self.found_ms: int | None = None
        self.failure: Exception | None = None

    def get(self, wait_s: float = 0.0) -> T | None:
        """Return the last value, and start looking for the next one if that is due.

        Args:
            wait_s: How long to wait if there is no value yet; None is returned if finding it takes longer.
        """
        with self._lock:
            is_running = self._thread is not None and self._thread.is_alive()
            if not is_running and not self._is_closed and time.monotonic() >= self._due_s:
                self._thread = threading.Thread(target=self._look, name=self._name, daemon=True)
                self._thread.start()
            thread, found = self._thread, self._found
        if found is None and thread is not None:
            thread.join(wait_s)
        return self._found

    def _look(self) -> None:
        begun, changes = time.monotonic(), self._changes
        failure: Exception | None = None
        try:
            found = self._find()
        except (OdradekError, OSError) as error:
            failure = error
        now = time.monotonic()
        with self._lock:
            # Otherwise it may be the value from before the change.
            if changes != self._changes:
                return
            self.failure = failure
            if failure is None:
                self._found, self.found_ms = found, now_ms()
                self._due_s = now + max(self._fresh_s, min(_LONGEST_S, _SHARE * (now - begun)))

    def forget(self) -> None:
        """Discard the value, because it has changed; the next page looks for it again."""
        with self._lock:
            self._changes += 1
            self._found, self._due_s = None, 0.0

    def close(self, wait_s: float) -> None:
        """Look for no more values, and wait for the thread, for a limited time."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        if thread is not None:
            thread.join(wait_s)
