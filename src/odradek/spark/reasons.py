"""What Spark shows of an error of the data source: its reason first, and not the calls that led to it.

    [PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source reader: odradek.errors.OptionError: unknown ...

Spark asks the environment of its Python workers whether to hide the traceback of an error. Errors of other code keep
theirs, and with `spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled=false` so do ours.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from odradek.errors import OdradekError

Kind = TypeVar("Kind", bound=type)

IN_WORKERS = "SPARK_SIMPLIFIED_TRACEBACK"
"""Set in workers that are to show only a part of a traceback, which is Spark's default; not in the one of a stream."""
_HIDE = "SPARK_HIDE_TRACEBACK"


def reasons_first(kind: Kind) -> Kind:
    """Let the public methods of a class that Spark calls in its workers raise our errors without their traceback."""
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(kind, name, _with_reason(method))
    return kind


def _with_reason(method: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def generate(*args: Any, **named: Any) -> Iterator[Any]:
            with _hidden_traceback():
                yield from method(*args, **named)

        return generate

    @functools.wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        with _hidden_traceback():
            return method(*args, **named)

    return call


@contextmanager
def _hidden_traceback() -> Iterator[None]:
    try:
        yield
    except OdradekError:
        # A worker ends after an error, so nothing that comes later is without its traceback.
        if os.environ.get(IN_WORKERS):
            os.environ[_HIDE] = "1"
        raise
