"""A log directory that lies one level deeper than the folder that was named, as `kafka-log0` on a disk `data-0`."""

from __future__ import annotations

from pathlib import Path

from odradek.errors import ForeignDirectoryError
from odradek.storage.formats.meta_properties import META_PROPERTIES
from odradek.storage.regular_files import subfolders


def advice_of_deeper(path: Path) -> str | None:
    """Return what to say of a folder that is no log directory, but holds one; None of every other.

    Raises:
        OSError: It cannot be listed.
    """
    if (path / META_PROPERTIES).exists():
        return None
    found = [name for name in subfolders(path) if (path / name / META_PROPERTIES).exists()]
    if not found:
        return None
    return f"not a log directory, but {path / found[0]} is one" + (f", and {len(found) - 1} more" * (len(found) > 1))


def refuse_deeper(path: Path) -> None:
    """Raise an error for a folder that is no log directory, but holds one.

    Raises:
        ForeignDirectoryError: It does.
        OSError: It cannot be listed.
    """
    advice = advice_of_deeper(path)
    if advice is not None:
        raise ForeignDirectoryError(path, [], f"is {advice}")
