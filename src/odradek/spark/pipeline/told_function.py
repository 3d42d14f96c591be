"""A function of a job, in Spark's tasks: what it raises is told so that the driver can tell it on.

    the query calls it with other arguments than it takes    a mistake of the job, which no record is blamed for
    the error's text is no UTF-8                             Spark's worker cannot send it, and both would wait for ever
    its text looks like an error of this library             the text is a record's, and would stop the job

All else is raised as it is. A function that returns an iterator, as one of pandas does, may raise at each step.
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import WRAPPER_UPDATES, update_wrapper
from itertools import islice
from typing import Any

from odradek.errors import JobError, OdradekError
from odradek.printable import is_utf8, printable

_MOST_LAYERS = 50
"""How many decorators are looked through: a function may name itself, or answer to any name."""
_OWN_ERROR = re.compile(r"^odradek\.[\w.]+Error: (.+)$", re.MULTILINE)


class ToldFunction:
    """Calls a function, and raises what it raises.

    Args:
        function: The function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        # Not what a class has in its dictionary: that cannot be sent.
        update_wrapper(self, function, updated=() if isinstance(function, type) else WRAPPER_UPDATES)
        # Only now: that has copied the function's attributes, of which one may have this name.
        self._function = function

    def __call__(self, *values: Any, **named: Any) -> Any:
        """Call the function.

        Raises:
            JobError: It takes other arguments.
        """
        try:
            result = self._function(*values, **named)
        except BaseException as error:
            if _is_of_call(error, self._function) and (wrong := refused_call(self._function, values, named)):
                raise JobError(f"a query calls a function with other arguments than it takes: {wrong}") from None
            told = _told(error)
            if told is error:
                raise
            raise told from None
        return _each(result) if isinstance(result, Iterator) else result


def _each(results: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from results
    except BaseException as error:
        told = _told(error)
        if told is error:
            raise
        raise told from None


def _told(error: BaseException) -> BaseException:
    """Return an error as it can be sent, and as nothing in its text is taken for another error: mostly itself."""
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:
        # Its notes fail in their turn, and would for Spark.
        return RuntimeError(type(error).__name__)
    ours = own_error_of(text)
    is_ours = isinstance(error, OdradekError) and str(error).partition("\n")[0] == ours
    is_taken_for_ours = ours is not None and not is_ours
    if is_utf8(text) and not is_taken_for_ours:
        return error
    line = printable("".join(traceback.format_exception_only(error)).strip())
    told = RuntimeError(line.encode(errors="backslashreplace").decode())
    # The path of a module may be no UTF-8, either.
    can_tell_where = is_utf8("".join(traceback.format_tb(error.__traceback__)))
    return told.with_traceback(error.__traceback__ if can_tell_where else None)


def own_error_of(text: str) -> str | None:
    """Return what the last error of this library says in what Python prints of errors; None if there is none."""
    found = _OWN_ERROR.findall(text)
    return found[-1] if found else None


def _is_of_call(error: BaseException, function: Callable[..., Any]) -> bool:
    """Whether an error says that a function, or one that it decorates, was called with other arguments."""
    # A function may raise one for any other reason, with anything in it.
    if type(error) is not TypeError or not (error.args and isinstance(error.args[0], str)):
        return False
    called = error.args[0].partition("() ")[0]
    names = ((each, type(each).__call__) for each in _layers(function))
    return any(called == getattr(one, "__qualname__", None) for pair in names for one in pair)


def refused_call(function: Callable[..., Any], values: Iterable[Any], named: Mapping[str, Any]) -> str | None:
    """Say why a function cannot be called with some arguments; None if it can be, or does not say what it takes."""
    for layer in _layers(function):
        try:
            signature = inspect.signature(layer, follow_wrapped=False)
        except (TypeError, ValueError):
            # One that is written in C.
            return None
        try:
            signature.bind(*values, **named)
        except TypeError as error:
            return f"{getattr(layer, '__name__', layer)}{signature}: {error}"
        if not _passes_all(signature):
            # What decorates a function may give it more arguments than it takes itself.
            return None
    return None


def _layers(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """Return a function and those that it decorates, the innermost last."""
    return list(islice(_unwrapped(function), _MOST_LAYERS))


def _unwrapped(function: Any) -> Iterator[Callable[..., Any]]:
    while function is not None:
        yield function
        function = getattr(function, "__wrapped__", None)


def _passes_all(signature: inspect.Signature) -> bool:
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    return kinds == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]
