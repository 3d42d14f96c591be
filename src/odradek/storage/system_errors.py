"""Tells errors of the system from those that the handler of a signal raises: a `TimeoutError` is an `OSError`, too."""

from __future__ import annotations


def raise_unless_of_system(error: Exception) -> None:
    """Raise an `OSError` again that has no number, since no system call has failed; do nothing otherwise."""
    if isinstance(error, OSError) and error.errno is None:
        raise error
