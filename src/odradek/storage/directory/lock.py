"""`.lock`: an empty file whose POSIX record lock says that one program writes in a log directory.

Kafka takes the same lock (`FileChannel.tryLock` is `fcntl`), so the two can never both write; `flock` would not exclude
it. POSIX locks belong to a process and vanish as soon as it closes *any* descriptor of the file: a second lock in the
same process is refused here by a register of the files that are locked.

Source in Kafka: `org.apache.kafka.server.util.FileLock`, `LogManager.lockLogDirs`.
"""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from types import TracebackType

from odradek.errors import LogDirectoryLockedError

LOCK_FILE_NAME = ".lock"

_locked: set[tuple[int, int]] = set()
_register = threading.Lock()


class LogDirectoryLock:
    """The right to write in a log directory, held until `release`; a context manager.

    Raises:
        LogDirectoryLockedError: Another program, or this one already, has it.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / LOCK_FILE_NAME
        with _register:
            self._descriptor = self._acquire()
            status = os.fstat(self._descriptor)
            self._key = (status.st_dev, status.st_ino)
            _locked.add(self._key)

    def _acquire(self) -> int:
        while True:
            if self.path.exists():
                status = self.path.stat()
                if (status.st_dev, status.st_ino) in _locked:
                    raise LogDirectoryLockedError(self.path.parent)
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # A program that stops unlinks the file: the lock of a file without a name excludes nobody.
                if self.path.exists() and self.path.stat().st_ino == os.fstat(descriptor).st_ino:
                    return descriptor
            except OSError as error:
                os.close(descriptor)
                if isinstance(error, BlockingIOError | PermissionError):
                    raise LogDirectoryLockedError(self.path.parent) from error
                raise
            os.close(descriptor)

    def release(self) -> None:
        """Give the lock back and remove its file, as Kafka does; a second time does nothing."""
        with _register:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor < 0:
                return
            self.path.unlink(missing_ok=True)
            os.close(descriptor)
            _locked.discard(self._key)

    def __enter__(self) -> LogDirectoryLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
