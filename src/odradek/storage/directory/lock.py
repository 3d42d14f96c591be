"""`.lock`: an empty file whose lock says that one program writes in a log directory.

Kafka takes the same lock, so the two can never both write; see `FileLock`.

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
    """The right to write in a log directory, held until `release`; a context manager. Any thread may release it.

    Where nobody refers to it any more it lets go by itself, with a `ResourceWarning`.

    Raises:
        LogDirectoryLockedError: Another program, or this one already, has it.
    """

    _lock: FileLock | None = None

    def __init__(self, directory: Path) -> None:
        self.path = directory / LOCK_FILE_NAME
        self._process = WritingProcess(directory)
        self._lock = lock = FileLock(self.path)
        if lock.is_taken_here:
            # By a directory that nobody refers to any more, perhaps.
            gc.collect()
        if not lock.acquire():
            raise LogDirectoryLockedError(directory, is_own=lock.is_taken_here)

    @property
    def is_held(self) -> bool:
        """Whether the lock is held."""
        return self._lock is not None and self._lock.is_held

    def release(self) -> None:
        """Give the lock back and remove its file, as Kafka does; a second time does nothing."""
        if self._lock is not None and self._process.is_this:
            self._lock.release(removes=True)

    def __del__(self) -> None:
        if self.is_held and self._process.is_this:
            try:
                # It raises, where warnings are errors.
                warnings.warn(f"{self.path.parent} was not closed", ResourceWarning, stacklevel=2, source=self)
            finally:
                self.release()

    def __enter__(self) -> LogDirectoryLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
