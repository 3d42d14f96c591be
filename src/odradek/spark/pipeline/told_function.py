"""A function of a job, in Spark's tasks: what it raises is told so that the driver can tell it on.

    the query calls it with other arguments than it takes    a mistake of the job, which no record is blamed for
    the error's text is no UTF-8                             Spark's worker cannot send it, and both would wait for ever

All else is raised as it is.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import update_wrapper
from typing import Any

from odradek.errors import JobError
from odradek.printable import is_utf8


class ToldFunction:
    """Calls a function, and raises what it raises.

    Args:
        function: The function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function)
        # Only now: that has copied the function's attributes, of which one may have this name.
        self._function = function

    def __call__(self, *values: Any, **named: Any) -> Any:
        """Call the function.

        Raises:
            JobError: It takes other arguments.
        """
        try:
            return self._function(*values, **named)
        except Exception as error:
            if isinstance(error, TypeError) and (wrong := refused_call(self._function, values, named)) is not None:
                raise JobError(f"a query calls a function with other arguments than it takes: {wrong}") from error
            if is_utf8(traceback.format_exc()):
                raise
            text = "".join(traceback.format_exception_only(error)).strip()
            told = RuntimeError(text.encode(errors="backslashreplace").decode())
            # The path of a module may be no UTF-8, either.
            can_tell_where = is_utf8("".join(traceback.format_tb(error.__traceback__)))
            raise told.with_traceback(error.__traceback__ if can_tell_where else None) from None


def refused_call(function: Callable[..., Any], values: Iterable[Any], named: Mapping[str, Any]) -> str | None:
    """Say why a function cannot be called with some arguments; None if it can be, or does not say what it takes."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # One that is written in C.
        return None
    try:
        signature.bind(*values, **named)
    except TypeError as error:
        return f"{getattr(function, '__name__', function)}{signature}: {error}"
    return None
