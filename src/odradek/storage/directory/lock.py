"""`.lock`: an empty file whose POSIX record lock says that one program writes in a log directory.

Kafka takes the same lock (`FileChannel.tryLock` is `fcntl`), so the two can never both write; `flock` would not exclude
it. POSIX locks belong to a process and vanish as soon as it closes *any* descriptor of the file: a second lock in the
same process is refused here by a register of the files that are locked. A child process has none of its parent's locks.

Source in Kafka: `org.apache.kafka.server.util.FileLock`, `LogManager.lockLogDirs`.
"""

from __future__ import annotations

import fcntl
import gc
import io
import os
import warnings
from pathlib import Path
from types import TracebackType

from odradek.errors import LogDirectoryLockedError
from odradek.storage.locks import Rank, create_lock
from odradek.storage.process import WritingProcess

LOCK_FILE_NAME = ".lock"


class _Register:
    """The files that this process has locked."""

    def __init__(self) -> None:
        self.lock = create_lock(Rank.REGISTER)
        self.files: set[tuple[int, int]] = set()


_register = _Register()
# Nothing of it is true in a child, and a thread of the parent may have had its lock.
os.register_at_fork(after_in_child=_register.__init__)  # type: ignore[misc]


class LogDirectoryLock:
    """The right to write in a log directory, held until `release`; a context manager. Any thread may release it.

    Where nobody refers to it any more it lets go by itself, with a `ResourceWarning`.

    Raises:
        LogDirectoryLockedError: Another program, or this one already, has it.
    """

    _file: io.FileIO | None = None
    _key: tuple[int, int] | None = None

    def __init__(self, directory: Path) -> None:
        self.path = directory / LOCK_FILE_NAME
        self._process = WritingProcess(directory)
        if self._is_ours():
            # By a directory that nobody refers to any more, perhaps.
            gc.collect()
        with _register.lock:
            self._file = file = self._acquire()
            status = os.fstat(file.fileno())
            self._key = (status.st_dev, status.st_ino)
            _register.files.add(self._key)

    def _is_ours(self) -> bool:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return False
        return (status.st_dev, status.st_ino) in _register.files

    def _acquire(self) -> io.FileIO:
        while True:
            if self._is_ours():
                raise LogDirectoryLockedError(self.path.parent, is_own=True)
            file = io.FileIO(self.path, "a+")
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # A program that stops unlinks the file: the lock of a file without a name excludes nobody.
                if self.path.exists() and self.path.stat().st_ino == os.fstat(file.fileno()).st_ino:
                    return file
            except OSError as error:
                file.close()
                if isinstance(error, BlockingIOError | PermissionError):
                    raise LogDirectoryLockedError(self.path.parent) from error
                raise
            file.close()

    @property
    def is_held(self) -> bool:
        """Whether the lock is held."""
        return self._file is not None and not self._file.closed

    def release(self) -> None:
        """Give the lock back and remove its file, as Kafka does; a second time does nothing."""
        file = self._file
        if file is None or not self._process.is_this:
            return
        with _register.lock:
            if not file.closed:
                try:
                    if self._is_ours():
                        # Else the folder was renamed, and this is the lock of another one.
                        self.path.unlink(missing_ok=True)
                finally:
                    _register.files -= {self._key}
                    file.close()

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
