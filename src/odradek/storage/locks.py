"""The locks of this layer, and the only order in which they may be taken.

    DIRECTORY     topics, folders, which logs are open            `DirectoryGuard`
    METADATA      the records of topics and settings              `ClusterMetadata`
    CLEANING      the old segments of one log: compacted, or gone `CleaningTurn`
    FLUSH         what of one log is brought to the disk          `ChangeGuard`
    LOG           appends to one log, its list of segments        `ChangeGuard`
    CHECKPOINT    the checkpoint files of one folder              `DirectoryState`, `LogCleaner`
    SYNC          one sync of one log at a time                   `LogDisk`
    REGISTER      which files are open or locked, over all logs   `OpenSegments`, `OpenWriters`, `LockedFiles`

A thread that holds a lock takes only locks further down, and no second one of the same kind. So no code calls upward
under a lock: a log calls its directory only after it has released its own locks.

In production a lock is the interpreter's own `RLock`, which an exception cannot leave taken: neither `with` nor the
lock runs Python code that a signal handler could interrupt. Tests check the order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import IntEnum
from types import TracebackType
from typing import Protocol


class Rank(IntEnum):
    """The place of a lock in the order; the first is taken first."""

    DIRECTORY = 0
    METADATA = 1
    CLEANING = 2
    FLUSH = 3
    LOG = 4
    CHECKPOINT = 5
    SYNC = 6
    REGISTER = 7


class Lock(Protocol):
    """A lock that its thread may take again; used with `with`."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> object: ...

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; see `threading.RLock`."""
        ...

    def release(self) -> None:
        """Release the lock."""
        ...

    def _is_owned(self) -> bool: ...


class LockOrderError(RuntimeError):
    """A lock was taken out of order; with another thread, that may be a deadlock."""


class _Held(threading.local):
    def __init__(self) -> None:
        self.locks: list[OrderedLock] = []


_held = _Held()


class OrderedLock:
    """A lock that raises if it is taken out of order."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<lock {self.rank.name} {id(self):#x}>"

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock. A call that does not wait is not checked: it cannot cause a deadlock.

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
        """Release the lock."""
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
    """Call a function under a second lock of one kind, if that is free now; return whether it was called.

    Args:
        lock: The lock. It is not free if this thread holds it already, since that thread is in the middle of something.
        action: The function.
    """
    if lock._is_owned():
        return False
    try:
        if not lock.acquire(blocking=False):
            return False
        action()
        return True
    finally:
        # An exception from a signal handler may have come just after the lock was taken.
        if lock._is_owned():
            lock.release()


_checks_order = False


def check_lock_order(checks: bool) -> None:
    """Make locks that check the order in which they are taken, from now on; for tests."""
    global _checks_order
    _checks_order = checks


def create_lock(rank: Rank) -> Lock:
    """Return a new lock.

    Args:
        rank: Its place in the order.
    """
    return OrderedLock(rank) if _checks_order else threading.RLock()  # type: ignore[return-value]
