"""Calls that differ between operating systems: the Linux form, and another for systems such as macOS that lack it.

    function                   Linux                        elsewhere
    processors                 those of the process         all
    sync                       fsync                        F_FULLFSYNC: fsync may leave data in the drive's cache
    is_in_page_cache           preadv2(RWF_NOWAIT)          assumed to be
    drop_from_page_cache       posix_fadvise                nothing
    bring_in                   madvise(MADV_POPULATE_READ)  nothing: an unreadable page ends the process
    use_huge_pages             madvise(MADV_HUGEPAGE)       nothing
    secret_file                memfd_create                 a temporary file that only this user can read
    is_closed_by_peer          TCP_INFO                     a peek at the next byte
    more_to_come               MSG_MORE                     nothing: more and smaller packets
    lock_holder                F_GETLK                      F_GETLK with another structure
    memory_folder              /dev/shm                     nothing
    raise_descriptor_limit     the hard limit               the hard limit, or 10,240 if that is refused

Only the kernels' C and `setup.py` ask for the system besides this module. A form counts as missing if its name is, so
tests imitate another system by deleting names. Thread-safe.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

_POPULATE_READ = 22
_TCP_ESTABLISHED = 1
_NO_FULL_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOTTY})
"""How a file system without F_FULLFSYNC, such as a network one, refuses it."""
_FEW_DESCRIPTORS = 10_240
"""OPEN_MAX of macOS, which refuses RLIM_INFINITY."""

_LINUX_FLOCK = struct.Struct("hhqqi0q")
"""`struct flock`: type, whence, start, length, process id."""
_BSD_FLOCK = struct.Struct("qqihh")
"""The same elsewhere: start, length, process id, type, whence."""


def processors() -> int:
    """Return how many processors this process may use."""
    affinity: Any = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


# -- files


def sync(descriptor: int) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk.

    Raises:
        OSError: They may not be on the disk.
    """
    full_sync: int | None = getattr(fcntl, "F_FULLFSYNC", None)
    if full_sync is not None:
        try:
            fcntl.fcntl(descriptor, full_sync)
        except OSError as error:
            if error.errno not in _NO_FULL_SYNC:
                raise
        else:
            return
    os.fsync(descriptor)


def is_in_page_cache(descriptor: int, position: int) -> bool:
    """Return whether a byte of a file can be read without waiting for a disk; True if the system cannot tell.

    Raises:
        OSError: The byte cannot be read at all.
    """
    now: int | None = getattr(os, "RWF_NOWAIT", None)
    if now is None:
        return True
    try:
        os.preadv(descriptor, [bytearray(1)], position, now)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
    return True


def drop_from_page_cache(descriptor: int) -> None:
    """Free the page cache of a file, except for pages that are in use."""
    advise: Any = getattr(os, "posix_fadvise", None)
    if advise is not None:
        advise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # type: ignore[attr-defined,unused-ignore]


def bring_in(data: mmap.mmap, start: int, length: int) -> None:
    """Read pages of a mapped file into memory, if the system can.

    Raises:
        OSError: The system is too old (EINVAL), or a page is unreadable (EFAULT, EIO, EHWPOISON).
    """
    if sys.platform == "linux":
        data.madvise(_POPULATE_READ, start, length)


def use_huge_pages(memory: mmap.mmap) -> None:
    """Ask for huge pages, which need fewer page faults."""
    advice: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is not None:
        memory.madvise(advice)


@contextmanager
def secret_file(content: bytes) -> Iterator[str]:
    """Give bytes a path while the block runs, in memory only if the system can."""
    create: Any = getattr(os, "memfd_create", None)
    if create is None:
        # Imports much that is not needed otherwise.
        import tempfile

        with tempfile.TemporaryDirectory(prefix="odradek-") as folder:
            path = Path(folder, "secret")
            path.touch(mode=0o600)
            path.write_bytes(content)
            yield str(path)
        return
    descriptor = create("odradek-secret")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def lock_holder(descriptor: int) -> int | None:
    """Return the id of the process that holds a conflicting POSIX lock on a file, or None if there is no known one.

    Args:
        descriptor: The open file, not locked by this process.

    Raises:
        OSError: The file system does not support locks.
    """
    if sys.platform == "linux":
        asked = _LINUX_FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _LINUX_FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    else:
        asked = _BSD_FLOCK.pack(0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
        _, _, pid, kind, _ = _BSD_FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    # A lock held on another machine, over NFS, has no process here.
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None


def describe_process(pid: int) -> str:
    """Return the id and, if it is known, the name of a process: `process 4711 (java)`."""
    with suppress(OSError):
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text(encoding='utf-8').strip()})"
    return f"process {pid}"


def memory_folder() -> Path | None:
    """Return the folder whose files are in memory, or None if the system has none."""
    folder = Path("/dev/shm")  # noqa: S108 - what is made in it has a name of its own
    return folder if os.access(folder, os.W_OK) else None


def raise_descriptor_limit() -> None:
    """Allow this process as many open files as it may have."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (hard, _FEW_DESCRIPTORS):
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            return


# -- sockets


def more_to_come() -> int:
    """Return the flag of a `send` that another one follows at once."""
    import socket

    flag: int = getattr(socket, "MSG_MORE", 0)
    return flag


def is_closed_by_peer(connection: socket.socket) -> bool:
    """Return whether the peer has closed a TCP connection; without TCP_INFO, False as long as there is unread data.

    Raises:
        OSError: The connection is broken.
    """
    import socket

    info: int | None = getattr(socket, "TCP_INFO", None)
    if info is not None:
        return connection.getsockopt(socket.IPPROTO_TCP, info, 1)[0] != _TCP_ESTABLISHED
    with suppress(BlockingIOError):
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    return False
