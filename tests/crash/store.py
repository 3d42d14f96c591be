"""A log directory, as the laboratory works with it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from odradek.errors import LogError
from odradek.storage.directory.lock import LOCK_FILE_NAME
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.files import FileSystem
from odradek.storage.names import CLEAN_SHUTDOWN_MARKER
from odradek.testing.faults import FaultyFileSystem, read_tree


class Store:
    """One log directory, open or not.

    Attributes:
        was_clean: Whether it was closed in order before it was opened.
        flushes_late: Whether rolled segments are flushed by the maintenance, as in the background, not as they roll.
    """

    def __init__(self, root: Path, files: FileSystem, clock: Callable[[], int], *, flushes_late: bool = False) -> None:
        self.root = root
        self.flushes_late = flushes_late
        self._files = files
        self._clock = clock
        self.was_clean = False
        self._opened: WritableLogDirectory | None = None

    @property
    def logs(self) -> WritableLogDirectory:
        """The log directory."""
        if self._opened is None:
            raise LogError("the log directory is not open")
        return self._opened

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def open(self) -> None:
        self.was_clean = (self.root / CLEAN_SHUTDOWN_MARKER).exists()
        self._opened = opened = WritableLogDirectory(self.root, files=self._files, clock=self._clock)
        if self.flushes_late:
            # As where the maintenance has its thread, which would make a case another one each time.
            opened._opener.flush_late()

    def close(self) -> None:
        opened, self._opened = self.logs, None
        opened.close()

    def abandon(self) -> None:
        """Leave everything as it is, as a program does that is killed."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.abandon()


def new_folder() -> Path:
    """Return a new folder, in memory where there is one: nothing of this is meant for a real disk."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="odradek-crash-", dir=memory if memory.is_dir() else None))


def files_of(root: Path) -> dict[str, bytes | None]:
    """Return what a log directory holds, but for the lock, which is no part of the data."""
    return {path: data for path, data in read_tree(root).items() if path != LOCK_FILE_NAME}


def unrecorded(files: FaultyFileSystem) -> list[str]:
    """Return what was written past the file system."""
    return [path for path in files.unrecorded() if path != LOCK_FILE_NAME]
