"""Standard output and error, with failures distinct from those of the files that a command reads."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from odradek import system
from odradek.storage.files import hidden_temporary, replaceable

_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class ReaderGoneError(Exception):
    """The reader of our output has disconnected."""


class OutputError(Exception):
    """Our output cannot be written."""


class _Stdout(io.FileIO):
    """The standard output. Its errors are distinct from those of a file that is read."""

    def write(self, data: Any) -> int:
        """Write, or raise an error that says that stdout failed."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise ReaderGoneError from error
            raise OutputError(f"stdout: {error.strerror}") from error


class _Stderr(io.FileIO):
    """The standard error. Its own errors are ignored, because they could not be shown."""

    def write(self, data: Any) -> int:
        """Write, and ignore errors."""
        try:
            return super().write(data)
        except OSError:
            return len(data)


def stdin() -> TextIO:
    """Return the standard input.

    Raises:
        OSError: It is closed.
    """
    if sys.stdin is None:
        raise OSError(errno.EBADF, "it is closed", "stdin")
    return sys.stdin


def open_output() -> None:
    """Make errors of the output distinct from others, unless the streams were replaced."""
    for name, raw in (("stdout", _Stdout), ("stderr", _Stderr)):
        given = getattr(sys, name)
        if given is not getattr(sys, f"__{name}__") or not isinstance(given, io.TextIOWrapper):
            continue
        # Characters that the terminal's encoding lacks are escaped: the name of a file must not end a listing.
        stream = io.TextIOWrapper(
            io.BufferedWriter(raw(given.fileno(), "w", closefd=False)),
            encoding=given.encoding,
            errors="backslashreplace",
            line_buffering=given.line_buffering,
        )
        setattr(sys, name, stream)


@contextmanager
def writing_to(path: object) -> Iterator[None]:
    """Let an error of a write (the disk is full) name the file, if it names none itself, or the temporary one."""
    try:
        yield
    except OSError as error:
        is_unnamed = error.filename is None and error.errno in _WRITE_ERRORS
        if is_unnamed or Path(str(error.filename)).name == hidden_temporary(Path(str(path))).name:
            error.filename = str(path)
        raise


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file, which gets the name `path` if the `with` block ends without an error.

    A link stays, and the file that it leads to is replaced. A pipe or a device is written itself.
    """
    place = replaceable(path)
    if place is None:
        with writing_to(path):
            yield path
        return
    temporary = hidden_temporary(place)
    try:
        with writing_to(path):
            yield temporary
            with temporary.open("rb+") as file:
                if place.exists():
                    os.fchmod(file.fileno(), stat.S_IMODE(place.stat().st_mode))
                system.sync(file.fileno())
        temporary.replace(place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def drop_output() -> None:
    """Drop the remaining output: Python would try again to write it at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def flush_output() -> None:
    """Write the remaining output.

    Raises:
        ReaderGoneError: The reader has disconnected.
        OutputError: It cannot be written.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise ReaderGoneError from error
