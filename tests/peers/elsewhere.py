"""Takes away what only Linux has, as a plugin of pytest: `pytest -p peers.elsewhere`, or by hand with a monkeypatch."""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
from collections.abc import Callable
from typing import Any

from odradek import system

LINUX_ONLY = (
    (mmap, "MADV_HUGEPAGE"),
    (os, "RWF_NOWAIT"),
    (os, "memfd_create"),
    (os, "posix_fadvise"),
    (os, "sched_getaffinity"),
    (socket, "MSG_MORE"),
    (socket, "TCP_INFO"),
)
F_FULLFSYNC = 51
"""Linux does not know it, like a file system of another machine on macOS."""


def take_away(delete: Callable[[Any, str], None], put: Callable[[Any, str, Any], None]) -> None:
    """Makes of this system another one."""
    for module, name in LINUX_ONLY:
        delete(module, name)
    put(fcntl, "F_FULLFSYNC", F_FULLFSYNC)
    put(system, "memory_folder", lambda: None)
    put(system, "bring_in", lambda *_: None)


def pytest_configure() -> None:
    """Does it for a whole run."""
    take_away(delattr, setattr)
