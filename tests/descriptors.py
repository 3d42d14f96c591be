"""What this process has open."""

from __future__ import annotations

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
