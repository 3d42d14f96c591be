"""A function of a job, in Spark's tasks: what it raises is told so that the driver can tell it on.

the query calls it with other arguments than it takes    a mistake of the job, which no record is blamed for
the error's text is no UTF-8                             Spark's worker cannot send it, and both would wait for ever
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from odradek.errors import JobError


class ToldFunction:
    """Calls a function, and raises what it raises.

    Args:
        function: The function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        update_wrapper(self, function)

    def __call__(self, *values: Any, **named: Any) -> Any:
        """Call the function.

        Raises:
            JobError: It takes other arguments.
        """
        try:
            return self._function(*values, **named)
        except Exception as error:
            if isinstance(error, TypeError) and (wrong := self._takes_others(values, named)) is not None:
                count = len(values) + len(named)
                raise JobError(f"a query calls {self._name} with {count} arguments: {wrong}") from error
            try:
                traceback.format_exc().encode()
            except UnicodeEncodeError:
                text = "".join(traceback.format_exception_only(error)).strip()
                told = RuntimeError(text.encode(errors="backslashreplace").decode())
                raise told.with_traceback(error.__traceback__) from None
            raise

    @property
    def _name(self) -> str:
        return getattr(self._function, "__name__", type(self._function).__name__)

    def _takes_others(self, values: tuple[Any, ...], named: dict[str, Any]) -> str | None:
        try:
            inspect.signature(self._function).bind(*values, **named)
        except TypeError as error:
            return str(error)
        except ValueError:
            # A function of C does not say what it takes.
            return None
        return None
