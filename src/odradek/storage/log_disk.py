"""The disk of one log: its first failure takes the log offline, and only one sync runs at a time.

    append | flush | roll | delete | compact     ->   LogDisk   ->   FileSystem   ->   the disk
                                                      failure: nothing is written any more, by any thread

When the kernel cannot write pages, it reports that to one sync of the file, and treats them as clean from then on: a
second sync at the same time, or a later one, would succeed. So nothing is synced after a failure, nor while another
sync may fail.

Not every `OSError` is a failure of the disk. The disk of a process that has no descriptors left is not broken, and a
signal handler, which Python may run anywhere, may raise anything: a `TimeoutError`, for example.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from odradek.errors import LogError, LogOfflineError
from odradek.storage.files import FILES, Buffer, FileSystem, WritableFile
from odradek.storage.locks import Rank, create_lock
from odradek.storage.names import SEGMENT_SUFFIXES, segment_file_name
from odradek.storage.system_errors import DISK_FULL, NO_DESCRIPTORS

_P = ParamSpec("_P")
_T = TypeVar("_T")


def is_disk_error(error: BaseException) -> bool:
    """Whether an error came from a system call of a `FileSystem`, not from a signal handler that ran in it."""
    if not isinstance(error, OSError) or error.errno is None:
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    # The frame that made the system call; a signal handler has a frame of its own above it.
    return trace is not None and isinstance(trace.tb_frame.f_locals.get("self"), FileSystem | WritableFile)


def _disk_error_within(error: BaseException | None) -> OSError | None:
    """Return the disk's error during whose handling another one was raised."""
    while error is not None:
        if isinstance(error, OSError) and is_disk_error(error):
            return error
        error = error.__context__
    return None


class LogDisk(FileSystem):
    """The way to the disk of one partition's folder. Any thread may use it.

    Args:
        path: The folder.
        files: The file system to write through.
        free_descriptors: Closes files that can be opened again; called when the process has no descriptors left.
        failed: Called after a failure has taken the log offline.

    Attributes:
        failure: The error that took the log offline; None if it is not offline.
    """

    def __init__(
        self,
        path: Path,
        files: FileSystem = FILES,
        free_descriptors: Callable[[], None] = lambda: None,
        failed: Callable[[], object] = lambda: None,
    ) -> None:
        self.failure: OSError | None = None
        self._path = path
        self._files = files
        self._free_descriptors = free_descriptors
        self._failed = failed
        self._lock = create_lock(Rank.SYNC)
        # How many times the names in the folder have changed, and how many of these changes are on the disk.
        self._names_changed = 0
        self._names_synced = 0

    @property
    def is_full(self) -> bool:
        """Whether it failed because it was full: opening the log again helps once there is room."""
        return self.failure is not None and self.failure.errno in DISK_FULL

    def check(self) -> None:
        """Raise if the disk has failed.

        Raises:
            LogOfflineError: It has.
        """
        if self.failure is not None:
            raise self._offline(self.failure)

    def _offline(self, failure: OSError) -> LogOfflineError:
        error = LogOfflineError(self._path, str(failure))
        error.__cause__ = failure
        return error

    def run(self, action: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function that changes the disk.

        Raises:
            LogOfflineError: The disk failed, now or before.
            LogError: The process has no descriptors left.
        """
        if self.failure is not None:
            self.check()
        try:
            return action(*args, **kwargs)
        except OSError as error:
            if error.errno is not None:
                # First of all: an exception from a signal handler may come in any call after this, and the error would
                # be lost.
                self.failure = self.failure or error
                self.judge(error)
            raise
        except BaseException as error:
            self.judge_context(error)
            raise

    def judge(self, error: OSError) -> None:
        """Tell what an error that was just noted as `failure` means; return if it did not come from the disk.

        Raises:
            LogOfflineError: The disk failed.
            LogError: The process has no descriptors left.
        """
        is_of_disk = is_disk_error(error)
        if is_of_disk and error.errno not in NO_DESCRIPTORS:
            self.failure = error
            self._failed()
            raise self._offline(error) from error
        # Another thread may have met a failure meanwhile.
        if self.failure is error:
            self.failure = None
        if is_of_disk:
            raise LogError(f"{self._path}: no file could be opened: {error.strerror}") from error

    def judge_context(self, error: BaseException) -> None:
        """Note the disk's error during whose handling another one was raised, if there is one."""
        found = _disk_error_within(error)
        if found is not None and found.errno not in NO_DESCRIPTORS:
            self.failure = found
            self._failed()

    # -- files

    def open(self, path: Path) -> WritableFile:
        """Open a file to write to, created if it is missing.

        Raises:
            LogOfflineError: The disk failed, now or before.
            LogError: The process has no descriptors left.
        """
        try:
            return _LogFile(self, self.run(self._files.open, path))
        except LogOfflineError:
            raise
        except LogError:
            self._free_descriptors()
        return _LogFile(self, self.run(self._files.open, path))

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name in one step."""
        self._names_changed += 1
        self.run(self._files.rename, source, target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file one more name."""
        self._names_changed += 1
        self.run(self._files.link, source, target)

    def unlink(self, path: Path) -> None:
        """Remove a file; it is not an error if it does not exist."""
        self._names_changed += 1
        self.run(self._files.unlink, path)

    def make_directory(self, path: Path) -> None:
        """Make a folder."""
        self.run(self._files.make_directory, path)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty folder."""
        self.run(self._files.remove_directory, path)

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Set a file's modification time."""
        self.run(self._files.set_modified_ms, path, modified_ms)

    # -- bringing to the disk

    def names_changed(self) -> None:
        """Note that the folder has a name that may not be on the disk yet."""
        self._names_changed += 1

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a folder are on the disk."""
        with self._lock:
            changed = self._names_changed
            self.run(self._files.sync_directory, path)
            if path == self._path:
                self._names_synced = max(self._names_synced, changed)

    @property
    def are_names_synced(self) -> bool:
        """Whether the names in the folder are on the disk."""
        return self._names_synced == self._names_changed

    def sync_names(self) -> None:
        """Return when the names in the folder are on the disk; of several concurrent callers, one syncs for all.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        wanted = self._names_changed
        with self._lock:
            self.check()
            if self._names_synced < wanted:
                self.sync_directory(self._path)

    def sync_file(self, path: Path) -> None:
        """Return when a file is on the disk.

        Raises:
            LogOfflineError: The disk failed, now or before.
        """
        with self.open(path) as file:
            file.sync()

    def sync_segment(self, base_offset: int) -> None:
        """Return when the files of a segment are on the disk, but not their names."""
        for suffix in SEGMENT_SUFFIXES:
            path = self._path / segment_file_name(base_offset, suffix)
            if path.exists():
                self.sync_file(path)


class _LogFile(WritableFile):
    """A file of a `LogDisk`."""

    def __init__(self, disk: LogDisk, file: WritableFile) -> None:
        self._disk = disk
        self._file = file
        self.path = file.path

    @property
    def size(self) -> int:  # type: ignore[override]
        return self._file.size

    def write_at(self, position: int, data: Buffer) -> None:
        # `LogDisk.run` without its call of anything with any arguments, which would add a fourth to a small write.
        disk = self._disk
        if disk.failure is not None:
            disk.check()
        try:
            self._file.write_at(position, data)
        except OSError as error:
            if error.errno is not None:
                disk.failure = disk.failure or error
                disk.judge(error)
            raise
        except BaseException as error:
            disk.judge_context(error)
            raise

    def truncate(self, size: int) -> None:
        self._disk.run(self._file.truncate, size)

    def set_mode(self, mode: int) -> None:
        self._disk.run(self._file.set_mode, mode)

    def sync(self) -> None:
        with self._disk._lock:
            self._disk.run(self._file.sync)

    def close(self) -> None:
        self._file.close()

    def __del__(self) -> None:
        # The wrapped file closes itself.
        return
