"""Brings one log's files to the disk, and knows whether the disk has failed.

    log.append(durable=True) | log.flush() | the maintenance      ->   one sync at a time   ->   fsync
                                                                       failed: the log is offline, for all of them

Of pages that could not be written the kernel tells one fsync of a file, and calls them clean from then on: a second one
at the same time, or a later one, would succeed. So nothing is synced after a failure, nor while another sync may fail.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.errors import LogOfflineError
from odradek.storage.files import FILES, FileSystem
from odradek.storage.names import SEGMENT_SUFFIXES, segment_file_name


class LogSync:
    """The syncs of one partition's folder.

    Args:
        path: The folder.
        files: The way to the disk.

    Attributes:
        failure: The error that took the log offline, if one did.
        is_directory_dirty: Whether the folder has names that may not be on the disk.
    """

    def __init__(self, path: Path, files: FileSystem = FILES) -> None:
        self.failure: OSError | None = None
        self.is_directory_dirty = False
        self._path = path
        self._files = files
        self._lock = threading.Lock()

    def check(self) -> None:
        """Do nothing while the disk is well.

        Raises:
            LogOfflineError: It has failed.
        """
        if self.failure is not None:
            raise LogOfflineError(self._path, str(self.failure)) from self.failure

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Take the log offline where the disk fails.

        Raises:
            LogOfflineError: It failed, now or before.
        """
        self.check()
        try:
            yield
        except OSError as error:
            self.failure = error
            raise LogOfflineError(self._path, str(error)) from error

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait for the sync that is under way, and keep others waiting; see `guard`."""
        with self._lock, self.guard():
            yield

    def file(self, path: Path) -> None:
        """Return when a file is on the disk."""
        file = self._files.open(path)
        try:
            with self.alone():
                file.sync()
        finally:
            file.close()

    def segment(self, base_offset: int) -> None:
        """Return when the files of a segment are on the disk, but for their names."""
        for suffix in SEGMENT_SUFFIXES:
            path = self._path / segment_file_name(base_offset, suffix)
            if path.exists():
                self.file(path)

    def directory(self) -> None:
        """Return when the names in the folder are on the disk; whoever comes second, when the first one has done it."""
        with self.alone():
            if self.is_directory_dirty:
                self.is_directory_dirty = False
                self._files.sync_directory(self._path)
