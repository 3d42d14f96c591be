"""Errors of the operating system in calls of a log directory, as errors of this library."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from odradek.errors import LogError
from odradek.storage.system_errors import raise_unless_of_system

_P = ParamSpec("_P")
_S = TypeVar("_S")
_T = TypeVar("_T")


def with_log_errors(method: Callable[Concatenate[_S, _P], _T]) -> Callable[Concatenate[_S, _P], _T]:
    """Make a method raise a `LogError` instead of a system error: that the disk is full, say, or cannot be written to.

    The error names the file, or the `path` of the object.
    """

    @functools.wraps(method)
    def called(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return method(self, *args, **kwargs)
        except OSError as error:
            raise_unless_of_system(error)
            # Before it has a path, nothing but the working directory was looked up.
            path = getattr(self, "path", "the working directory")
            raise LogError(f"{error.filename or path}: {error.strerror}") from error

    return called
