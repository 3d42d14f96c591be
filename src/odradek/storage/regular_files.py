"""Opens regular files, and refuses anything else.

A path with the name of a log's file may be a FIFO, whose opening waits for a writer; a device, which has no end; a
folder; or a link to itself. They are refused with an error that names them.
"""

from __future__ import annotations

import errno
import os
import stat
from io import FileIO
from pathlib import Path

from odradek.errors import FormatError
from odradek.storage.system_errors import raise_unless_of_system

_NO_FILE = frozenset({errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP})
"""The errors of `open` for a link to itself, for a path below a file, for a socket."""


def open_descriptor(path: Path) -> int:
    """Open a file for reading and return its descriptor; if the path is not a regular file, fail at once.

    Raises:
        FormatError: The path is a directory, FIFO, socket, device or a link that leads nowhere.
        FileNotFoundError: The path does not exist.
        OSError: The disk failed, or this program may not read it.
    """
    try:
        # Otherwise opening a FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        raise FormatError(f"this is not a file that can be read: {error.strerror}", path=path) from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise FormatError(f"this is {_KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file", path=path)
    return descriptor


def open_file(path: Path) -> FileIO:
    """Open a file for reading, unbuffered; see `open_descriptor`."""
    return FileIO(open_descriptor(path), "r")


_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def file_size(path: Path) -> int:
    """Return the size of a file in bytes.

    Raises:
        FormatError: It is not a regular file.
        FileNotFoundError: The path does not exist.
        OSError: This program may not read it.
    """
    with open_file(path) as file:
        return os.fstat(file.fileno()).st_size


def read_file(path: Path, limit_bytes: int) -> bytes:
    """Return the bytes of a file.

    Args:
        path: The file.
        limit_bytes: How large the file may be: larger than its writer ever makes it.

    Raises:
        FormatError: It is not a regular file, or is larger; nothing of it was read then.
        FileNotFoundError: The path does not exist.
        OSError: The disk failed, or this program may not read it.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit_bytes:
            raise FormatError(f"{size} bytes are more than such a file can have: {limit_bytes}", path=path)
        return read_at(file, path, 0, size)


def read_at(file: FileIO, path: Path, position: int, size: int) -> bytes:
    """Return `size` bytes from a position in a file on; fewer if the file ends before.

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
        raise_unless_of_system(error)
        raise OSError(error.errno, error.strerror, str(path)) from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def subfolders(path: Path) -> list[str]:
    """Return the names of the folders in a folder, sorted; a link that leads to a folder counts as one.

    Raises:
        OSError: It cannot be read.
    """
    with os.scandir(path) as entries:
        # The target of a link may be gone, or out of reach: then it is not a folder, but the others must still be
        # listed.
        return sorted(
            entry.name
            for entry in entries
            if entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(entry.path))  # noqa: PTH112
        )
