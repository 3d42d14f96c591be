"""Tells whether a file or a folder has changed since it was looked at, without reading it.

    look -> version | nothing changes ............ look -> the same version: what is known of it still holds
    look -> None    | it has just been changed: a change right after the look may leave no trace, so it is read again

A file system's clock ticks every few milliseconds, and some keep whole seconds, or every second one. Of the changes
within a tick the later ones do not show. A program that copies folders sets modification times, so the size and the
time of the last change count too.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TICK_NS = 100_000_000
_COARSE_TICK_NS = 2_100_000_000
_SECOND_NS = 1_000_000_000


class FileVersion(NamedTuple):
    """What `stat` tells of a file or a folder.

    Attributes:
        modified_ns: When its contents changed, or what a program set.
        changed_ns: When anything of it changed; no program can set it.
        size_bytes: Its size.
        inode: Its inode.
    """

    modified_ns: int
    changed_ns: int
    size_bytes: int
    inode: int


def version_of(status: os.stat_result) -> FileVersion:
    """Return the version that `stat` tells of."""
    return FileVersion(status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def version_at(path: Path) -> FileVersion | None:
    """Return the version of what a path leads to; None if it cannot be looked at."""
    try:
        return version_of(path.stat())
    except (OSError, ValueError):
        return None


def settled_version(status: os.stat_result, looked_ns: int) -> FileVersion | None:
    """Return the version if each later change will give another one; None if it may not.

    Args:
        status: What `stat` told.
        looked_ns: The time before that.
    """
    version = version_of(status)
    last_ns = max(version.modified_ns, version.changed_ns)
    tick_ns = _TICK_NS if last_ns % _SECOND_NS else _COARSE_TICK_NS
    return version if looked_ns - last_ns > tick_ns else None
