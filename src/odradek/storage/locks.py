"""The locks of this layer, and the one order in which they are taken.

    DIRECTORY     topics, folders, which logs are open            `WritableLogDirectory`
    METADATA      the records of topics and settings              `ClusterMetadata`
    CLEANING      the old segments of one log: compacted, or gone `CleaningTurn`
    FLUSH         what of one log is brought to the disk          `WritableLog`
    LOG           appends to one log, its list of segments        `WritableLog`
    CHECKPOINT    the checkpoint files of one folder              `DirectoryState`
    SYNC          one sync of one log at a time                   `LogDisk`
    REGISTER      which files are open, over all logs             `OpenSegments`, `OpenWriters`

A thread that holds a lock takes only locks further down, of the same kind none but the one that it has. So nobody calls
upward under a lock: what a log has to tell its directory is told once its own locks are free.

In production a lock is the interpreter's own `RLock`, which no exception can leave taken: neither `with` nor the lock
runs Python code that a signal's handler could interrupt. Tests check the order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import IntEnum
from types import TracebackType
from typing import Protocol


class Rank(IntEnum):
    """Where a lock stands in the order; the first is taken first."""

    DIRECTORY = 0
    METADATA = 1
    CLEANING = 2
    FLUSH = 3
    LOG = 4
    CHECKPOINT = 5
    SYNC = 6
    REGISTER = 7


class Lock(Protocol):
    """A lock that its thread may take again, by `with`."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> object: ...

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; see `threading.RLock`."""
        ...

    def release(self) -> None:
        """Give the lock back."""
        ...

    def _is_owned(self) -> bool: ...


class LockOrderError(RuntimeError):
    """A lock that was taken out of order: with another thread at work, a deadlock."""


class _Held(threading.local):
    def __init__(self) -> None:
        self.locks: list[OrderedLock] = []


_held = _Held()


class OrderedLock:
    """A lock that raises where it is taken out of order."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<lock {self.rank.name} {id(self):#x}>"

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; whoever does not wait cannot be part of a deadlock.

        Raises:
            LockOrderError: The thread holds a lock that comes after this one.
        """
        held = _held.locks
        if blocking and self not in held:
            later = [lock for lock in held if lock.rank >= self.rank]
            if later:
                raise LockOrderError(f"{self} is taken while {later} are held")
        taken = self._lock.acquire(blocking, timeout)
        if taken:
            held.append(self)
        return taken

    def release(self) -> None:
        """Give the lock back."""
        held = _held.locks
        for number in range(len(held) - 1, -1, -1):
            if held[number] is self:
                del held[number]
                break
        self._lock.release()

    def _is_owned(self) -> bool:
        return self in _held.locks

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def run_if_free(lock: Lock, action: Callable[[], None]) -> bool:
    """Do something under a lock of the same kind as one that is held, if it is free now; return whether it was done.

    Args:
        lock: The lock. A thread that holds it is in the middle of something: then it is not free.
        action: What is to be done.
    """
    if lock._is_owned():
        return False
    try:
        if not lock.acquire(blocking=False):
            return False
        action()
        return True
    finally:
        # An exception out of a signal's handler may have come before anybody knew that the lock was taken.
        if lock._is_owned():
            lock.release()


_checks_order = False


def check_lock_order(checks: bool) -> None:
    """Let the locks that are made from now on check the order in which they are taken; for tests."""
    global _checks_order
    _checks_order = checks


def create_lock(rank: Rank) -> Lock:
    """Return a new lock.

    Args:
        rank: Where it stands in the order.
    """
    return OrderedLock(rank) if _checks_order else threading.RLock()  # type: ignore[return-value]
