"""Opens a log directory: `odradek.open`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias, overload

from odradek.errors import LogError, OptionError
from odradek.records.timestamps import now_ms
from odradek.storage.config_def import ConfigValue
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.files import FILES, FileSystem

_Path: TypeAlias = str | os.PathLike[str]


@overload
def open_log_directory(
    path: _Path | Sequence[_Path],
    mode: Literal["a"] = "a",
    *,
    config: Mapping[str, ConfigValue] | None = None,
    background: bool = False,
    max_open_logs: int | None = None,
    adopt: bool = False,
    files: FileSystem = FILES,
    clock: Callable[[], int] = now_ms,
) -> WritableLogDirectory: ...


@overload
def open_log_directory(path: _Path, mode: Literal["r"]) -> LogDirectory: ...


def open_log_directory(
    path: _Path | Sequence[_Path],
    mode: str = "a",
    *,
    config: Mapping[str, ConfigValue] | None = None,
    background: bool = False,
    max_open_logs: int | None = None,
    adopt: bool = False,
    files: FileSystem = FILES,
    clock: Callable[[], int] = now_ms,
) -> LogDirectory:
    """Open a log directory: a folder of Apache Kafka's, or one like it.

    Args:
        path: The folder. To append, also several, as in Kafka's `log.dirs`; to read, open one after the other.
        mode: `a`: to append and to read; the folder is made if it is missing, and locked as Kafka locks it.
            `r`: only to read, also while somebody else writes; nothing is written.
        config: Only to append: settings of the broker, by the names that they have in Kafka's `server.properties`, as
            text, numbers or bools. They are the defaults of topics, such as `log.retention.hours` (168),
            `log.retention.bytes` (-1, no limit), `log.segment.bytes` (1073741824), `log.roll.hours` (168),
            `log.cleanup.policy` (delete), `compression.type` (producer), `message.max.bytes` (1048588) and
            `log.flush.interval.messages` (9223372036854775807, never); and those of the maintenance, such as
            `log.retention.check.interval.ms` (300000), `log.flush.scheduler.interval.ms` (Kafka: never; here what is
            due is looked for once a second), `log.flush.offset.checkpoint.interval.ms` (60000),
            `log.cleaner.enable` (true), `log.cleaner.dedupe.buffer.size` (134217728) and
            `producer.id.expiration.ms` (86400000). What else a broker has, has no effect here.
        background: Only to append: whether retention, compaction and checkpoints go on in threads, as they always do in
            Kafka's broker; else `maintain` does what is due. Not so by default.
        max_open_logs: Only to append: how many logs have files open for appending at a time; Kafka has no such limit.
            As many as the process may, by default.
        adopt: Only to append: whether a folder that is neither empty nor a log directory is made one, with topics of
            the folders of partitions that are in it; Kafka starts on none such. Not so by default.
        files: Only to append: the way to the disk; another one is for tests (`odradek.testing`).
        clock: Only to append: the time, in ms; another one is for tests.

    Raises:
        LogError: There is no such mode, or no folder that can be opened in it.
        OptionError: An option is of no use for reading.
        ForeignDirectoryError: To append, the folder is neither empty nor a log directory: it has no `meta.properties`.
            With `adopt=True` it is made one, with topics of the folders of partitions that are in it.
        LogDirectoryLockedError: Another program writes here: a running Kafka, for one.
        InvalidConfigError: A setting has a value that it cannot have.
        FormatError: A checkpoint, `meta.properties` or the metadata are damaged.
        LogOfflineError: The disk failed.
    """
    if mode == "a":
        return WritableLogDirectory(
            path,
            config=config,
            background=background,
            max_open_logs=max_open_logs,
            adopt=adopt,
            files=files,
            clock=clock,
        )
    if mode == "r":
        if not isinstance(path, str | os.PathLike):
            raise LogError("several folders can be opened together to append; to read, open one after the other")
        given = {
            "config": config is not None,
            "background": background,
            "max_open_logs": max_open_logs is not None,
            "adopt": adopt,
            "files": files is not FILES,
            "clock": clock is not now_ms,
        }
        for name, is_given in given.items():
            if is_given:
                raise OptionError(f'{name} is for a log directory that is written to, not for one of mode="r"')
        return LogDirectory(path)
    raise LogError(f"a log directory is opened with mode 'a' or 'r', not {mode!r}")
