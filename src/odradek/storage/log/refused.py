"""What only a writer can do, on a class that reads: an error that says so, and yet no attribute."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn, Protocol, Self, overload

from odradek.errors import ReadOnlyError


class _Opened(Protocol):
    @property
    def path(self) -> Path: ...


class Refused:
    """Stands in the place of a method that is not there; `hasattr` does not see it.

    A `__getattr__` of the class would do the same, and make each of its attributes slow.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, opened: None, owner: type) -> Self: ...

    @overload
    def __get__(self, opened: _Opened, owner: type) -> NoReturn: ...

    def __get__(self, opened: _Opened | None, owner: type) -> Any:
        if opened is None:
            return self
        raise ReadOnlyError(opened.path, self._name)
