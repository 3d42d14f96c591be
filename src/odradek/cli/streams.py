"""Standard output and error, whose failures are told from those of the files that a command reads."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any


class ReaderGoneError(Exception):
    """Nobody reads our output any more."""


class OutputError(Exception):
    """Our output cannot be written."""


class _Stdout(io.FileIO):
    """The standard output, whose errors are not taken for those of a file that is read."""

    def write(self, data: Any) -> int:
        """Write, or say that stdout is what failed."""
        try:
            return super().write(data)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise ReaderGoneError from error
            raise OutputError(f"stdout: {error.strerror}") from error


class _Stderr(io.FileIO):
    """The standard error, of whose own errors nobody could be told."""

    def write(self, data: Any) -> int:
        """Write, or go on."""
        try:
            return super().write(data)
        except OSError:
            return len(data)


def open_output() -> None:
    """Let errors of the output be told from others; leave alone what somebody has put in its place."""
    for name, raw in (("stdout", _Stdout), ("stderr", _Stderr)):
        given = getattr(sys, name)
        if given is not getattr(sys, f"__{name}__") or not isinstance(given, io.TextIOWrapper):
            continue
        # What the terminal's encoding has no character for is escaped: the name of a file must not end a listing.
        stream = io.TextIOWrapper(
            io.BufferedWriter(raw(given.fileno(), "w", closefd=False)),
            encoding=given.encoding,
            errors="backslashreplace",
            line_buffering=given.line_buffering,
        )
        setattr(sys, name, stream)


def drop_output() -> None:
    """Let go of what is left to write: at exit it would be tried again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def flush_output() -> None:
    """Write what is left.

    Raises:
        ReaderGoneError: Nobody reads it.
        OutputError: It cannot be written.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise ReaderGoneError from error
