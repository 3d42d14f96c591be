"""Opens a log directory: `odradek.open`."""

from __future__ import annotations

import os
from typing import Any, Literal, overload

from odradek.errors import LogError
from odradek.storage.log_directory import LogDirectory
from odradek.storage.writable_log_directory import WritableLogDirectory


@overload
def open_log_directory(
    path: str | os.PathLike[str], mode: Literal["a"] = "a", **options: Any
) -> WritableLogDirectory: ...


@overload
def open_log_directory(path: str | os.PathLike[str], mode: Literal["r"], **options: Any) -> LogDirectory: ...


def open_log_directory(path: str | os.PathLike[str], mode: str = "a", **options: Any) -> LogDirectory:
    """Open a log directory: a folder of Apache Kafka's, or one like it.

    Args:
        path: The folder.
        mode: `a`: to append and to read; the folder is made if it is missing, and locked as Kafka locks it.
            `r`: only to read, also while somebody else writes; nothing is written.
        options: See `WritableLogDirectory`; there are none for reading.

    Raises:
        LogError: There is no such mode, or nothing to read.
        LogDirectoryLockedError: Another program writes here: a running Kafka, for one.
    """
    if mode == "a":
        return WritableLogDirectory(path, **options)
    if mode == "r":
        return LogDirectory(path, **options)
    raise LogError(f"a log directory is opened with mode 'a' or 'r', not {mode!r}")
