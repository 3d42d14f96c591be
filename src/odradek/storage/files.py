"""The one way to the file system for all code that writes.

Every change that this package makes to a disk goes through a `FileSystem`. So a test double can tear writes, fill the
disk or fail an fsync, and one page lists what can happen to a disk. Reading does not go through it: see
`regular_files`.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import TypeAlias

from odradek import system
from odradek.closing import Closing

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes to write."""


class WritableFile(Closing):
    """An open file to write to. `size` is where the next `write` goes."""

    # For an exception between `__new__` and `__init__`.
    _descriptor = -1

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def write(self, data: Buffer) -> None:
        """Append all of `data`."""
        self.write_at(self.size, data)

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of `data` from `position` on; the file grows if necessary."""
        written = os.pwrite(self._descriptor, data, position)
        position += written
        if written != len(data):
            view = memoryview(data).cast("B")[written:]
            while view:
                written = os.pwrite(self._descriptor, view, position)
                position += written
                view = view[written:]
        if position > self.size:
            self.size = position

    def truncate(self, size: int) -> None:
        """Cut the file, or grow it with zeros."""
        os.ftruncate(self._descriptor, size)
        self.size = size

    def set_mode(self, mode: int) -> None:
        """Set who may read and write the file."""
        os.fchmod(self._descriptor, mode)

    def sync(self) -> None:
        """Return when what was written is on the disk."""
        system.sync(self._descriptor)

    def close(self) -> None:
        """Close the file; calling it again has no effect."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        # It was not closed: an exception came before its owner had it, or nothing refers to the owner any more.
        self.close()


class FileSystem:
    """The changes that may be made to a disk."""

    _file_type = WritableFile

    def open(self, path: Path) -> WritableFile:
        """Open a file to write to, created if it is missing."""
        return self._file_type(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or folder another name in one step; a file of that name is replaced."""
        os.rename(source, target)  # noqa: PTH104 - see `LogDisk`: no other Python code between us and the system

    def link(self, source: Path, target: Path) -> None:
        """Give a file one more name; not every file system can."""
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        """Remove a file; it is not an error if it does not exist."""
        try:  # noqa: SIM105 - as in `rename`
            os.unlink(path)  # noqa: PTH108 - as in `rename`
        except FileNotFoundError:
            pass

    def make_directory(self, path: Path) -> None:
        """Make a folder and its parents, if they are missing."""
        path.mkdir(parents=True, exist_ok=True)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty folder."""
        os.rmdir(path)  # noqa: PTH106 - as in `rename`

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a folder are on the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            system.sync(descriptor)
        finally:
            os.close(descriptor)

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Set a file's modification time, in ms; retention uses it if there are no timestamps."""
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))


FILES = FileSystem()
"""The real disk."""


class _UnsyncedFile(WritableFile):
    """A file of `UnsyncedFileSystem`."""

    def sync(self) -> None:
        """Do nothing."""


class UnsyncedFileSystem(FileSystem):
    """The real disk for those who need nothing of it after a power cut: no sync waits for it."""

    _file_type = _UnsyncedFile

    def sync_directory(self, path: Path) -> None:
        """Do nothing."""


def make_durable_directory(path: Path, files: FileSystem = FILES) -> None:
    """Make a folder and its parents, if they are missing, and return when their names are on the disk."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    files.make_directory(path)
    for folder in reversed(missing):
        files.sync_directory(folder.parent)


TEMPORARY_SUFFIX = ".tmp"
"""The suffix of a file that is to replace another."""


def replace_file(path: Path, data: Buffer, files: FileSystem = FILES, *, temporary: Path | None = None) -> None:
    """Write a whole file so that a crash leaves the old one or the new one; its name may not be on the disk yet.

    A program that has the old file open, or mapped, keeps it. The new file gets the mode of the old one.

    Args:
        path: The file.
        data: Its new content.
        files: The way to the disk.
        temporary: The name of the new file until it is complete, in the same folder; if None, the file's name and
            `.tmp`, as Kafka has it in a log directory.
    """
    if temporary is None:
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    mode = _mode_of(path)
    if temporary.is_symlink():
        # It may be a link: what it leads to belongs to others, and the link itself would replace the file.
        files.unlink(temporary)
    with files.open(temporary) as file:
        file.truncate(0)
        if mode is not None and mode != _mode_of(temporary):
            file.set_mode(mode)
        file.write(data)
        file.sync()
    files.rename(temporary, path)


def _mode_of(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None


def write_atomically(path: Path, data: Buffer, files: FileSystem = FILES, *, temporary: Path | None = None) -> None:
    """Do as `replace_file`, and return when the name is on the disk, too: write, fsync, rename, fsync the folder."""
    replace_file(path, data, files, temporary=temporary)
    files.sync_directory(path.parent)


def replaceable(path: Path) -> Path | None:
    """Return the file that another may replace, so that links to it stay, or None for what has to be written itself.

    Returns:
        Where the path leads to, whether there is a file or not; None if there is a pipe, a device or a socket.

    Raises:
        PermissionError: The file may not be written: what is to replace it would not ask.
        IsADirectoryError: It is a folder.
        OSError: It is a link to itself.
    """
    place = Path(os.path.realpath(path))
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return place
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return place if stat.S_ISREG(mode) else None


def hidden_temporary(place: Path) -> Path:
    """Return the name of a file that is to replace one in a folder of the user's, where `NAME.tmp` may be the user's.

    A link of that name is removed: what it leads to belongs to others.
    """
    temporary = place.with_name(f".{place.name}{TEMPORARY_SUFFIX}")
    if temporary.is_symlink():
        temporary.unlink()
    return temporary
