"""Limits how many logs have files open for appending: the log whose last append is oldest closes its files.

Of thousands of logs few are written to at a time; a log that was closed here opens its files again at its next append.
"""

from __future__ import annotations

import resource
from collections import OrderedDict
from itertools import islice
from typing import Protocol

from odradek.storage.locks import Lock, Rank, create_lock, run_if_free

_FILES_PER_LOG = 4


class Parkable(Protocol):
    """Something with open files."""

    @property
    def lock(self) -> Lock:
        """The lock that users of the files hold."""
        ...

    def park(self) -> None:
        """Close the files; the caller holds the lock."""


class OpenWriters:
    """The logs that have files open for appending.

    Any thread may use it.

    Args:
        limit: How many logs, at most; if None, a quarter of the number of descriptors that the process may have.

    Attributes:
        latest: The log that was touched last; it need not be touched again. It is removed under its own lock only,
            which the caller of `touch` holds.
    """

    def __init__(self, limit: int | None = None) -> None:
        if limit is None:
            soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            limit = max(8, min(2048, soft // 4 // _FILES_PER_LOG))
        self._limit = limit
        self._lock = create_lock(Rank.REGISTER)
        self._logs: OrderedDict[Parkable, None] = OrderedDict()
        self.latest: Parkable | None = None

    def __len__(self) -> int:
        return len(self._logs)

    def touch(self, log: Parkable) -> None:
        """Note that a log is about to open its files, or is using them; the caller holds its lock."""
        with self._lock:
            self._logs[log] = None
            self._logs.move_to_end(log)
            self.latest = log
            excess = len(self._logs) - self._limit
            oldest = list(islice(self._logs, excess + 8)) if excess > 0 else []
        for other in oldest:
            if excess <= 0:
                return
            if other is not log and run_if_free(other.lock, other.park):
                self.forget(other)
                excess -= 1

    def park_all(self, *, but: Lock) -> None:
        """Close the files of every log that is not using them, except the log with one lock."""
        with self._lock:
            logs = list(self._logs)
        for log in logs:
            if log.lock is not but and run_if_free(log.lock, log.park):
                self.forget(log)

    def forget(self, log: Parkable) -> None:
        """Note that a log has closed its files."""
        with self._lock:
            self.latest = None
            self._logs.pop(log, None)
