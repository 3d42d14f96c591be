"""Stands for the methods that only a writer has, in a class that reads: a clear error, and yet no attribute."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn, Protocol, Self, overload

from odradek.errors import ReadOnlyError


class _Opened(Protocol):
    @property
    def path(self) -> Path: ...


class Refused:
    """Takes the place of a method that does not exist; `hasattr` returns False for it.

    A `__getattr__` of the class would do the same, but slow down each of its attributes.
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
