"""`.lock`: an empty file whose lock says that a program writes to a log directory.

Kafka takes the same lock, so that the two never write at the same time; see `FileLock`.

Source in Kafka: `LogManager.lockLogDirs`.
"""

from __future__ import annotations

import gc
import warnings
from pathlib import Path
from types import TracebackType

from odradek.errors import LogDirectoryLockedError
from odradek.storage.file_lock import FileLock
from odradek.storage.process import WritingProcess

LOCK_FILE_NAME = ".lock"


class LogDirectoryLock:
    """The right to write to a log directory, held until `release`; a context manager. Any thread may release it.

    If nothing refers to it any more, it is released with a `ResourceWarning`.

    Raises:
        LogDirectoryLockedError: Another program, or this one, holds it.
    """

    _lock: FileLock | None = None

    def __init__(self, directory: Path) -> None:
        self.path = directory / LOCK_FILE_NAME
        self._process = WritingProcess(directory)
        self._lock = lock = FileLock(self.path)
        if lock.is_taken_here:
            # A log directory that nothing refers to any more may hold it.
            gc.collect()
        if not lock.acquire():
            raise LogDirectoryLockedError(directory, is_own=lock.is_taken_here, holder=lock.holder())

    @property
    def is_held(self) -> bool:
        """Whether the lock is held."""
        return self._lock is not None and self._lock.is_held

    def release(self) -> None:
        """Release the lock and remove its file, as Kafka does; calling it again has no effect."""
        if self._lock is not None and self._process.is_this:
            self._lock.release(removes=True)

    def __del__(self) -> None:
        if self.is_held and self._process.is_this:
            try:
                # It raises if warnings are errors.
                warnings.warn(f"{self.path.parent} was not closed", ResourceWarning, stacklevel=2, source=self)
            finally:
                self.release()

    def __enter__(self) -> LogDirectoryLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
