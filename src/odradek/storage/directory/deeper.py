"""A log directory that lies one level deeper than the folder that was named, as `kafka-log0` on a disk `data-0`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from odradek.errors import ForeignDirectoryError
from odradek.storage.formats.meta_properties import META_PROPERTIES
from odradek.storage.names import parse_partition_directory
from odradek.storage.regular_files import subfolders


def advice_of_deeper(path: Path) -> str | None:
    """Return what to say of a folder that is no log directory, but holds one; None of every other.

    Raises:
        OSError: It cannot be listed.
    """
    if (path / META_PROPERTIES).exists():
        return None
    folders = subfolders(path)
    found = [name for name in folders if _is_log_directory(path / name)]
    # Partitions of its own, or segments, with a copy of a log directory beside them.
    own = any(parse_partition_directory(name) is not None for name in folders if name not in found)
    if not found or own or any(path.glob("*.log")):
        return None
    return f"not a log directory, but {path / found[0]} is one" + (f", and {len(found) - 1} more" * (len(found) > 1))


def _is_log_directory(path: Path) -> bool:
    # What cannot be looked into, as `lost+found`, is none.
    with suppress(PermissionError):
        return (path / META_PROPERTIES).exists()
    return False


def refuse_deeper(path: Path) -> None:
    """Raise an error for a folder that is no log directory, but holds one.

    Raises:
        ForeignDirectoryError: It does.
        OSError: It cannot be listed.
    """
    advice = advice_of_deeper(path)
    if advice is not None:
        raise ForeignDirectoryError(path, [], f"is {advice}")
