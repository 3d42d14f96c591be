"""Opens a log directory: `odradek.open`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, overload

from odradek.errors import LogError
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.directory.writable_log_directory import WritableLogDirectory

_Path: TypeAlias = str | os.PathLike[str]


@overload
def open_log_directory(
    path: _Path | Sequence[_Path], mode: Literal["a"] = "a", **options: Any
) -> WritableLogDirectory: ...


@overload
def open_log_directory(path: _Path, mode: Literal["r"]) -> LogDirectory: ...


def open_log_directory(path: _Path | Sequence[_Path], mode: str = "a", **options: Any) -> LogDirectory:
    """Open a log directory: a folder of Apache Kafka's, or one like it.

    Args:
        path: The folder. To append, also several, as in Kafka's `log.dirs`; to read, open one after the other.
        mode: `a`: to append and to read; the folder is made if it is missing, and locked as Kafka locks it.
            `r`: only to read, also while somebody else writes; nothing is written.
        options: Those of `WritableLogDirectory`: `config`, `background`, `max_open_logs`, `adopt`; there are none for
            reading.

    Raises:
        LogError: There is no such mode, or no folder that can be opened in it.
        ForeignDirectoryError: To append, the folder is neither empty nor a log directory: it has no `meta.properties`.
            With `adopt=True` it is made one, with topics of the folders of partitions that are in it.
        LogDirectoryLockedError: Another program writes here: a running Kafka, for one.
        InvalidConfigError: A setting has a value that it cannot have.
        FormatError: A checkpoint, `meta.properties` or the metadata are damaged.
        LogOfflineError: The disk failed.
    """
    if mode == "a":
        return WritableLogDirectory(path, **options)
    if mode == "r":
        if not isinstance(path, str | os.PathLike):
            raise LogError("several folders can be opened together to append; to read, open one after the other")
        return LogDirectory(path, **options)
    raise LogError(f"a log directory is opened with mode 'a' or 'r', not {mode!r}")
