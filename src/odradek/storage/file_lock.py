"""Locks of files: one holder at a time, in this process or in another.

They are POSIX record locks by `fcntl.lockf`, which Kafka takes too (`FileChannel.tryLock`; `flock` would not exclude
it). They work over NFS and end with their process. A process loses such a lock as soon as it closes *any* descriptor of
the file, and may take it as often as it likes. So a register of the locked files refuses a second holder in the same
process before it opens the file. A child process has none of its parent's locks.

Source in Kafka: `org.apache.kafka.server.util.FileLock`.
"""

from __future__ import annotations

import fcntl
import io
import os
from contextlib import suppress
from pathlib import Path

from odradek import system
from odradek.storage.locks import Rank, create_lock


class LockedFiles:
    """The files that this process has locked."""

    def __init__(self) -> None:
        self.lock = create_lock(Rank.REGISTER)
        self.locked: dict[tuple[int, int], io.FileIO] = {}


_register = LockedFiles()
# The register is wrong in a child process, and a thread of the parent may have held its lock.
os.register_at_fork(after_in_child=_register.__init__)  # type: ignore[misc]


class FileLock:
    """The lock of a file, taken by `acquire` and held until `release`. Any thread may release it.

    A lock that nothing refers to any more is released: an interrupt may have ended `release` early.

    Args:
        path: The file, created if it is missing; its folder exists.
    """

    _file: io.FileIO | None = None
    _identity = (0, 0)

    def __init__(self, path: Path) -> None:
        self.path = path

    def acquire(self) -> bool:
        """Take the lock if it is free; return whether it was.

        Raises:
            OSError: The file cannot be opened, or its file system does not support locks.
        """
        with _register.lock:
            file = self._open_locked()
            if file is None:
                return False
            # An open file that is not in the register would take the lock from its next holder when it is closed.
            try:
                self._identity = _identity(os.fstat(file.fileno()))
                _register.locked[self._identity] = file
                self._file = file
            except BaseException:
                file.close()
                raise
            return True

    def _open_locked(self) -> io.FileIO | None:
        while self._holder() is None:
            file = io.FileIO(self.path, "a+")
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Another process may remove the file as it releases it: a lock on a file without a name excludes
                # nobody.
                if self.path.exists() and _identity(self.path.stat()) == _identity(os.fstat(file.fileno())):
                    return file
            except (BlockingIOError, PermissionError):  # EAGAIN or EACCES, as the system likes
                file.close()
                return None
            except BaseException:
                file.close()
                raise
            file.close()
        return None

    def _holder(self) -> io.FileIO | None:
        """Return the file that has the path now, if this process has locked it."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        file = _register.locked.get(_identity(status))
        return None if file is None or file.closed else file

    @property
    def is_taken_here(self) -> bool:
        """Whether this process holds the lock, by this object or by another."""
        return self._holder() is not None

    def holder(self) -> str | None:
        """Return the other process that holds the lock, such as `process 4711 (java)`; None if that is not known."""
        # Not while this process has the lock, which it would lose as the file is closed.
        with _register.lock, suppress(OSError):
            if self._holder() is not None:
                return None
            with self.path.open("rb") as file:
                pid = system.lock_holder(file.fileno())
            return None if pid is None else system.describe_process(pid)
        return None

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._file is not None and not self._file.closed

    def release(self, *, removes: bool = False) -> None:
        """Release the lock; if it is not held, nothing happens.

        Args:
            removes: Whether to remove the file first, as Kafka does.
        """
        file = self._file
        if file is None:
            return
        with _register.lock:
            if not file.closed:
                try:
                    # Otherwise the folder was renamed, and the path may belong to another lock.
                    if removes and self._holder() is file:
                        self.path.unlink(missing_ok=True)
                finally:
                    self._drop(file)

    def _drop(self, file: io.FileIO) -> None:
        # Closed first: the register ignores the entry of a closed file.
        file.close()
        if _register.locked.get(self._identity) is file:
            del _register.locked[self._identity]

    def __del__(self) -> None:
        # Without the register's lock, which this thread may hold: each step here is atomic in the interpreter.
        if self._file is not None and not self._file.closed:
            self._drop(self._file)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
