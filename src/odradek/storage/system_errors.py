"""Tells errors of the system from those that a signal handler raises: a `TimeoutError` is an `OSError`, too."""

from __future__ import annotations

import errno
import os

from odradek.errors import LogError

NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def raise_unless_of_system(error: Exception) -> None:
    """Raise an `OSError` again if it has no number, since no system call failed then; do nothing otherwise."""
    if isinstance(error, OSError) and error.errno is None:
        raise error


class suppress_system_errors:  # noqa: N801 - as contextlib's own
    """Suppresses errors of the system; what a signal handler raises gets through, even a `TimeoutError`."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        """Return whether it is an error of the system."""
        return isinstance(error, OSError) and error.errno is not None


def unreadable(error: OSError, path: str | os.PathLike[str]) -> LogError:
    """Return the error for a path that the system cannot read; raise an error again that no system call raised.

    Args:
        error: The system's error.
        path: The path, if the error does not name it.
    """
    raise_unless_of_system(error)
    return LogError(f"{error.filename or os.fspath(path)} cannot be read: {error.strerror}")


def is_out_of_descriptors(error: BaseException | None) -> bool:
    """Whether an error says that this process, or the machine, can open no more files; that may pass."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return error is not None and error.errno in NO_DESCRIPTORS
