"""What the systems do differently: Linux's form, and another one where it is missing, as on macOS.

    function                   Linux                        elsewhere
    processors                 those of the process         all
    sync                       fsync                        F_FULLFSYNC: fsync may leave it in the drive's own cache
    is_in_page_cache           preadv2(RWF_NOWAIT)          taken to be
    drop_from_page_cache       posix_fadvise                nothing
    bring_in                   madvise(MADV_POPULATE_READ)  nothing: a page that cannot be read ends the process
    use_huge_pages             madvise(MADV_HUGEPAGE)       nothing
    secret_file                memfd_create                 a file that only this user can read, in a folder of its own
    is_closed_by_peer          TCP_INFO                     a look at what comes next
    MORE_TO_COME               MSG_MORE                     nothing: smaller packets
    lock_holder                F_GETLK, /proc               F_GETLK, whose structure is another
    memory_folder              /dev/shm                     nothing
    raise_descriptor_limit     the hard limit               that, or what the system takes

No other module asks which system it is on, but the kernels' C and `setup.py`. A form is missing if its name is, so a
test has another system by taking names away. Any thread may call these functions.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import resource
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MORE_TO_COME: int = getattr(socket, "MSG_MORE", 0)
"""The flag of a `send` that is followed by another one at once."""

_POPULATE_READ = 22
_TCP_ESTABLISHED = 1
_NO_FULL_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOTTY})
"""A file system of another machine, or an old one, does not know F_FULLFSYNC."""
_FEW_DESCRIPTORS = 10_240
"""OPEN_MAX of macOS, where "no limit" is not taken."""

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
    """Return when what was written to a file, or the names in a folder, are on the disk.

    Raises:
        OSError: They may not be.
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
    """Return whether a byte of a file can be read without a disk; where nobody says, it is taken to be.

    Raises:
        OSError: It cannot be read at all.
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
    """Let the memory go that keeps the bytes of a file, as far as nobody else uses them."""
    advise: Any = getattr(os, "posix_fadvise", None)
    if advise is not None:
        advise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # type: ignore[attr-defined,unused-ignore]


def bring_in(data: mmap.mmap, start: int, length: int) -> None:
    """Bring pages of a mapped file into memory, if the system can.

    Raises:
        OSError: It cannot (EINVAL), or a page cannot be read (EFAULT, EIO, EHWPOISON).
    """
    if sys.platform == "linux":
        data.madvise(_POPULATE_READ, start, length)


def use_huge_pages(memory: mmap.mmap) -> None:
    """Ask for large pages, of which there are fewer."""
    advice: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is not None:
        memory.madvise(advice)


@contextmanager
def secret_file(content: bytes) -> Iterator[str]:
    """Give bytes a path for as long as the block lasts; they are never on a disk, if the system can do that."""
    create: Any = getattr(os, "memfd_create", None)
    if create is None:
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
    """Return the process that has a POSIX lock of a file, which excludes ours; None if no other one is known to.

    Args:
        descriptor: The open file, which this process has not locked.

    Raises:
        OSError: The file system has no locks.
    """
    if sys.platform == "linux":
        asked = _LINUX_FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _LINUX_FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    else:
        asked = _BSD_FLOCK.pack(0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
        _, _, pid, kind, _ = _BSD_FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    # Of a lock that another machine holds, over NFS, the process is none of ours.
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None


def describe_process(pid: int) -> str:
    """Return how a user knows a process: `process 4711 (java)`."""
    with suppress(OSError):
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text(encoding='utf-8').strip()})"
    return f"process {pid}"


def memory_folder() -> Path | None:
    """Return the folder whose files are in memory; None if the system has none."""
    folder = Path("/dev/shm")  # noqa: S108 - what is made in it has a name of its own
    return folder if os.access(folder, os.W_OK) else None


def raise_descriptor_limit() -> None:
    """Allow this process as many open files as it may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (hard, _FEW_DESCRIPTORS):
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            return


# -- sockets


def is_closed_by_peer(connection: socket.socket) -> bool:
    """Return whether the other side of a TCP connection has closed it; where data is left, it may not be seen.

    Raises:
        OSError: The connection is broken.
    """
    info: int | None = getattr(socket, "TCP_INFO", None)
    if info is not None:
        return connection.getsockopt(socket.IPPROTO_TCP, info, 1)[0] != _TCP_ESTABLISHED
    with suppress(BlockingIOError):
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    return False
