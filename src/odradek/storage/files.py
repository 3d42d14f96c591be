"""The one door to the file system for whatever writes.

Every change that this package makes to a disk goes through a `FileSystem`, so that a double of it can tear writes, fill
the disk or fail an fsync, and so that the list of what can happen to a disk is on one page. Reading does not pass
there; `read_file` and `open_file` read what may be anything, a FIFO or a device too, where a file should be.
"""

from __future__ import annotations

import errno
import os
import stat
from io import FileIO
from pathlib import Path
from typing import TypeAlias

from odradek.errors import FormatError

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes to write."""


class WritableFile:
    """An open file to write to. `size` is where the next `write` goes."""

    # Until it is set: an exception may come between `__new__` and `__init__`.
    _descriptor = -1

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def write(self, data: Buffer) -> None:
        """Append all of `data`."""
        self.write_at(self.size, data)

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of `data` from `position` on; the file grows where it must."""
        view = memoryview(data).cast("B")
        while view:
            written = os.pwrite(self._descriptor, view, position)
            position += written
            view = view[written:]
        self.size = max(self.size, position)

    def truncate(self, size: int) -> None:
        """Cut the file, or grow it with zeros."""
        os.ftruncate(self._descriptor, size)
        self.size = size

    def sync(self) -> None:
        """Return when what was written is on the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        # Nobody closed it: an exception came before its owner knew of it, or the owner was forgotten.
        self.close()


class FileSystem:
    """What may be done to a disk."""

    def open(self, path: Path) -> WritableFile:
        """Open a file to write to, made anew where it is missing."""
        return WritableFile(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or folder another name in one step; a file of that name is replaced."""
        os.rename(source, target)  # noqa: PTH104 - see `LogDisk`: no other Python code between us and the system

    def unlink(self, path: Path) -> None:
        """Remove a file; that it is gone already is no error."""
        try:  # noqa: SIM105 - as in `rename`
            os.unlink(path)  # noqa: PTH108 - as in `rename`
        except FileNotFoundError:
            pass

    def make_directory(self, path: Path) -> None:
        """Make a folder, and those above it, where they are missing."""
        path.mkdir(parents=True, exist_ok=True)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty folder."""
        os.rmdir(path)  # noqa: PTH106 - as in `rename`

    def sync_directory(self, path: Path) -> None:
        """Return when the names in a folder are on the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Set a file's modification time; retention falls back on it."""
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))


FILES = FileSystem()
"""The real disk."""


def make_durable_directory(path: Path, files: FileSystem = FILES) -> None:
    """Make a folder, and those above it, where they are missing, and return when their names are on the disk."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    files.make_directory(path)
    for folder in reversed(missing):
        files.sync_directory(folder.parent)


TEMPORARY_SUFFIX = ".tmp"
"""What the name of a file ends with that is to take the place of another."""


def replace_file(path: Path, data: Buffer, files: FileSystem = FILES) -> None:
    """Write a whole file so that a crash leaves the old one or the new one; its name may not be on the disk yet.

    Whoever has the old one open, or mapped, keeps it.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    if temporary.is_symlink():
        # What it leads to is somebody else's, and the link would take the place of the file.
        files.unlink(temporary)
    file = files.open(temporary)
    try:
        file.truncate(0)
        file.write(data)
        file.sync()
    finally:
        file.close()
    files.rename(temporary, path)


def write_atomically(path: Path, data: Buffer, files: FileSystem = FILES) -> None:
    """Write a whole file so that a crash leaves the old one or the new one: `.tmp`, fsync, rename, fsync the folder."""
    replace_file(path, data, files)
    files.sync_directory(path.parent)


_NO_FILE = frozenset({errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP})
"""What `open` says of a link to itself, of a name below a file, of a socket."""


def open_descriptor(path: Path) -> int:
    """Open a file to read from, and return its descriptor: what is under its name is a file, or this fails at once.

    Raises:
        FormatError: A directory, FIFO, socket, device or a link that leads nowhere is there instead.
        FileNotFoundError: There is nothing.
        OSError: The disk failed, or this program may not read it.
    """
    try:
        # To open a FIFO would wait for whoever writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        raise FormatError(f"this is no file that can be read: {error.strerror}", path=path) from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise FormatError(f"this is {_KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file", path=path)
    return descriptor


def open_file(path: Path) -> FileIO:
    """Open a file to read from, without a buffer; see `open_descriptor`."""
    return FileIO(open_descriptor(path), "r")


_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_file(path: Path, limit_bytes: int) -> bytes:
    """Return what is in a file.

    Args:
        path: The file.
        limit_bytes: How many bytes it may have: more than its writer ever writes.

    Raises:
        FormatError: It is no file, or one that is longer; nothing of it was read then.
        FileNotFoundError: There is nothing.
        OSError: The disk failed, or this program may not read it.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit_bytes:
            raise FormatError(f"{size} bytes are more than such a file can have: {limit_bytes}", path=path)
        return read_at(file, path, 0, size)


def read_at(file: FileIO, path: Path, position: int, size: int) -> bytes:
    """Return `size` bytes from a position of a file on; fewer where it ends.

    Raises:
        OSError: The disk failed; it names the file.
    """
    parts = []
    try:
        while size > 0:
            part = os.pread(file.fileno(), size, position)
            if not part:
                break
            parts.append(part)
            position += len(part)
            size -= len(part)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def subfolders(path: Path) -> list[str]:
    """Return the names of the folders in a folder, sorted; a link that leads to a folder is one.

    Raises:
        OSError: It cannot be read.
    """
    with os.scandir(path) as entries:
        # What a link leads to may be gone, or out of reach: that is no folder, and no reason to see none of the others.
        return sorted(
            entry.name
            for entry in entries
            if entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(entry.path))  # noqa: PTH112
        )
