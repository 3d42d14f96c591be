"""What this process has open."""

from __future__ import annotations

import time
from pathlib import Path


def descriptors() -> set[tuple[str, str]]:
    """Each open file descriptor and what it leads to.

    A test that looks for leaks asks for those that are new: what was open before may be closed by the garbage
    collector at any time.
    """
    found = set()
    for path in Path("/proc/self/fd").iterdir():
        try:
            found.add((path.name, str(path.readlink())))
        except FileNotFoundError:
            continue  # The descriptor of this listing itself.
    return found


def stay_open(before: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the descriptors that are new since `before` and stay open.

    Another thread, which an earlier test left in this process, may start a program at this moment: its pipes are closed
    again soon.
    """
    found = descriptors() - before
    deadline = time.monotonic() + 10
    while found and time.monotonic() < deadline:
        time.sleep(0.05)
        found &= descriptors()
    return found
