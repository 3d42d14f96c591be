"""Standard output and error, with failures distinct from those of the files that a command reads."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any


class ReaderGoneError(Exception):
    """The reader of our output has gone."""


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


def drop_output() -> None:
    """Drop what is left to write: at exit Python would try again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def flush_output() -> None:
    """Write what is left.

    Raises:
        ReaderGoneError: The reader has gone.
        OutputError: It cannot be written.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise ReaderGoneError from error
