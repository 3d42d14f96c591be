"""Opens a log directory: `odradek.open`."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias, overload
from weakref import ref

from odradek.arguments import checked_flag, is_broker
from odradek.errors import LogDirectoryLockedError, LogError, OptionError
from odradek.records.timestamps import now_ms
from odradek.storage.config_def import ConfigValue
from odradek.storage.directory.lock import LOCK_FILE_NAME
from odradek.storage.directory.log_directory import LogDirectory
from odradek.storage.directory.writable_log_directory import WritableLogDirectory
from odradek.storage.file_lock import FileLock
from odradek.storage.files import FILES, FileSystem, UnsyncedFileSystem

_Path: TypeAlias = str | os.PathLike[str]

_RETRY_S = 0.01
_OPEN: dict[str, ref[WritableLogDirectory]] = {}
"""What this program has opened to append, by the real paths.

A WeakValueDictionary would run Python code when one of them is collected as garbage, and a Ctrl-C that arrives then is
lost.
"""

_turn = threading.RLock()


@overload
def open_log_directory(
    path: _Path | Sequence[_Path],
    mode: Literal["a"] = "a",
    *,
    config: Mapping[str, ConfigValue] | None = None,
    background: bool = False,
    max_open_logs: int | None = None,
    adopt: bool = False,
    strict: bool = False,
    sync: Literal["on", "off"] = "on",
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
    strict: bool = False,
    sync: Literal["on", "off"] = "on",
    files: FileSystem = FILES,
    clock: Callable[[], int] = now_ms,
) -> LogDirectory:
    """Open a log directory: a folder of Apache Kafka's, or a new one.

    Args:
        path: The folder. To append, also a list of folders, as in Kafka's `log.dirs`; to read, open them one by one.
        mode: `a`: to append and to read; the folder is created if it is missing, and locked as Kafka locks it. `r`:
            only to read, also while another program writes; nothing is written.
        config: Only to append: settings of the broker, by their names in Kafka's `server.properties`, as text, numbers
            or bools. They are the defaults of topics, such as `log.retention.hours` (168), `log.retention.bytes` (-1,
            no limit), `log.segment.bytes` (1073741824), `log.roll.hours` (168), `log.cleanup.policy` (delete),
            `compression.type` (producer), `message.max.bytes` (1048588) and `log.flush.interval.messages`
            (9223372036854775807, never); and those of the maintenance, such as `log.retention.check.interval.ms`
            (300000), `log.flush.scheduler.interval.ms` (1000; Kafka: never), `log.cleaner.enable` (true),
            `log.flush.offset.checkpoint.interval.ms` (60000), `log.cleaner.dedupe.buffer.size` (134217728) and
            `producer.id.expiration.ms` (86400000). Other settings of a broker have no effect here.
        background: Only to append: whether retention, compaction and checkpoints run in threads, as in Kafka's broker.
            Otherwise `maintain` does what is due.
        max_open_logs: Only to append: how many logs may have files open for appending at a time; by default, as many
            as the limit on open files allows.
        adopt: Only to append: whether to make a log directory of a folder that is neither empty nor a log directory,
            and topics of the partitions' folders in it. Kafka does not start on such a folder.
        strict: Only to append: whether what a recovery would cut off, remove or set aside is an error, and stays; by
            default it is in `report`.
        sync: Only to append: `off` is for tests. Nothing waits for the disk: no `flush`, no durable append, no `close`.
            If the program is killed nothing is lost; after a power cut the folder may hold anything.
        files: Only to append: the file system to write through; tests pass another one (`odradek.testing`).
        clock: Only to append: returns the time in ms; tests pass another one.

    Raises:
        LogError: The mode does not exist, or the folder cannot be opened in it.
        OptionError: An option is given that has no effect when reading, or that has no such value.
        ForeignDirectoryError: To append, the folder is neither empty nor a log directory: it has no `meta.properties`.
            With `adopt=True` it becomes one, and the partitions' folders in it become topics.
        LogDirectoryLockedError: Another program, such as a running Kafka, or this one has the folder open for writing.
        InvalidConfigError: A setting has a value that is not valid.
        FormatError: A checkpoint, `meta.properties` or the metadata are damaged; or a KRaft folder that has partitions
            has no metadata.
        LogOfflineError: The disk failed.
    """
    if sync not in {"on", "off"}:
        raise OptionError(f"sync is 'on' or 'off', not {sync!r}")
    for one in path if isinstance(path, list | tuple) else [path]:
        if isinstance(one, str | os.PathLike) and is_broker(one):
            reason = "odradek.open opens folders; odradek.consume, and the commands, take the address of a broker"
            raise LogError(f"a broker is no folder: {reason}")
    if mode == "a":
        if sync == "off":
            if files is not FILES:
                raise OptionError("with sync='off' files is of no use: give one of them")
            files = UnsyncedFileSystem()
        opened = WritableLogDirectory(
            path,
            config=config,
            background=background,
            max_open_logs=max_open_logs,
            adopt=adopt,
            strict=strict,
            files=files,
            clock=clock,
        )
        _remember(opened, [path] if isinstance(path, str | os.PathLike) else path)
        return opened
    if mode == "r":
        if isinstance(path, Sequence) and not isinstance(path, str | bytes):
            raise LogError("several folders can be opened together only to append; to read, open them one by one")
        _check_reading(
            config=config is not None,
            background=checked_flag("background", background),
            max_open_logs=max_open_logs is not None,
            adopt=checked_flag("adopt", adopt),
            strict=checked_flag("strict", strict),
            sync=sync != "on",
            files=files is not FILES,
            clock=clock is not now_ms,
        )
        return LogDirectory(path)
    raise LogError(f"a log directory is opened with mode 'a' or 'r', not {mode!r}")


def _check_reading(**given: bool) -> None:
    """Raise if an option is given that applies only to a log directory that is open for appending."""
    for name, is_given in given.items():
        if is_given:
            raise OptionError(f'{name} applies only to a log directory that is open for appending, not to mode="r"')


def withhold(logs: WritableLogDirectory) -> None:
    """Let `writable` no longer give a log directory that is open: a broker, which knows its groups, is to serve it."""
    for path, opened in list(_OPEN.items()):
        if opened() is logs:
            _OPEN.pop(path, None)


def _remember(logs: WritableLogDirectory, folders: Iterable[_Path]) -> None:
    """Let `writable` give a log directory; forget those that were collected as garbage."""
    for path, opened in list(_OPEN.items()):
        if opened() is None:
            _OPEN.pop(path, None)
    for folder in folders:
        _OPEN[os.path.realpath(folder)] = ref(logs)


@contextmanager
def writable(path: _Path, timeout_s: float) -> Iterator[WritableLogDirectory]:
    """Give a log directory to append to: the one that this program has open, else one as `open_when_unlocked` opens it.

    In either case nobody else who asks for it here has it meanwhile.
    """
    known = _OPEN.get(os.path.realpath(path))
    opened = known() if known is not None else None
    if opened is not None and not opened.is_closed and FileLock(Path(path) / LOCK_FILE_NAME).is_taken_here:
        with _turn:
            yield opened
        return
    with open_when_unlocked(path, timeout_s) as logs:
        yield logs


def open_when_unlocked(path: _Path, timeout_s: float) -> WritableLogDirectory:
    """Open a log directory to append, and wait while another program or this one has it open for that.

    Args:
        path: The folder. It is not created.
        timeout_s: How long to wait, in seconds.

    Raises:
        LogError: There is no such log directory.
        LogDirectoryLockedError: It was not closed in time.
        FormatError: As for `open_log_directory`.
        LogOfflineError: The disk failed.
    """
    # Opened to append, a folder that is missing would be made.
    LogDirectory(path).close()
    lock = FileLock(Path(path) / LOCK_FILE_NAME)
    deadline = time.monotonic() + timeout_s
    while True:
        # An attempt costs a garbage collection where another thread has the lock.
        if not lock.is_taken_here or time.monotonic() > deadline:
            try:
                return WritableLogDirectory(path)
            except LogDirectoryLockedError:
                if time.monotonic() > deadline:
                    raise
        time.sleep(_RETRY_S)
