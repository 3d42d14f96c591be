"""Tells errors of the system from those that the handler of a signal raises: a `TimeoutError` is an `OSError`, too."""

from __future__ import annotations

import errno
import os

from odradek.errors import LogError

NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE})


def raise_unless_of_system(error: Exception) -> None:
    """Raise an `OSError` again that has no number, since no system call has failed; do nothing otherwise."""
    if isinstance(error, OSError) and error.errno is None:
        raise error


class suppress_system_errors:  # noqa: N801 - as contextlib's own
    """Passes over what the system answers; what the handler of a signal raises gets through, a `TimeoutError` too."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        """Tell which of the two it is."""
        return isinstance(error, OSError) and error.errno is not None


def unreadable(error: OSError, path: str | os.PathLike[str]) -> LogError:
    """Return the error for what the system does not let us read; what no system call raised is raised again.

    Args:
        error: What the system answered.
        path: What was to be read, where the system does not name it.
    """
    raise_unless_of_system(error)
    return LogError(f"{error.filename or os.fspath(path)} cannot be read: {error.strerror}")


def is_out_of_descriptors(error: BaseException | None) -> bool:
    """Whether an error says that this process, or the machine, can open no more files; it passes."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return error is not None and error.errno in NO_DESCRIPTORS
