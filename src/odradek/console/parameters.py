"""What a reader asks for in a link or a form, checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from odradek.errors import OptionError
from odradek.records.timestamps import typed_bound_ms

MAX_OFFSET = (1 << 63) - 1
_MOST_CHARACTERS = 1000
_ROWS = 50
"""How many rows a page of a list has."""

T = TypeVar("T")


class Paged(NamedTuple, Generic[T]):
    """A page of a list: its rows, its number from 1 on, and how many pages there are."""

    rows: Sequence[T]
    page: int
    pages: int


class Parameters:
    """The parameters of a request; one that is missing or empty has its default.

    Args:
        query: The query of its address.

    Raises:
        OptionError: A method raises it for a value that is not what it should be.
    """

    def __init__(self, query: QueryParams) -> None:
        self._query = query

    def text(self, name: str, default: str = "") -> str:
        """Return a text of at most 1,000 characters."""
        text = self._query.get(name, "") or default
        if len(text) > _MOST_CHARACTERS:
            raise OptionError(f"{name} has more than {_MOST_CHARACTERS} characters")
        return text

    def number(self, name: str, default: int, low: int = 0, high: int = MAX_OFFSET) -> int:
        """Return a whole number within a range."""
        found = self.optional(name, low, high)
        return default if found is None else found

    def optional(self, name: str, low: int = 0, high: int = MAX_OFFSET) -> int | None:
        """Return a whole number, or None if it is not given."""
        text = self.text(name)
        if not text:
            return None
        if not re.fullmatch("-?[0-9]{1,20}", text) or not low <= int(text) <= high:
            raise OptionError(f"{name} must be a number from {low} to {high}, not {text!r}")
        return int(text)

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """Return one of some words, the first by default."""
        text = self.text(name, choices[0])
        if text not in choices:
            raise OptionError(f"{name} must be one of {', '.join(choices)}, not {text!r}")
        return text

    def words(self, name: str, choices: Sequence[str]) -> tuple[str, ...]:
        """Return some of the words, all if none is given; a form repeats the parameter for each."""
        given = self._query.getlist(name)[: len(choices) + 1]
        for word in given:
            if word not in choices:
                raise OptionError(f"{name} must be some of {', '.join(choices)}, not {word[:100]!r}")
        return tuple(word for word in choices if word in given) or tuple(choices)

    def flag(self, name: str) -> bool:
        """Return whether a box is ticked."""
        return self.text(name) not in ("", "0")

    def paged(self, rows: Sequence[T]) -> Paged[T]:
        """Return the page of a list that is asked for; the last one if there are not so many."""
        pages = max(1, -(-len(rows) // _ROWS))
        page = min(self.number("page", 1, 1), pages)
        return Paged(rows[(page - 1) * _ROWS : page * _ROWS], page, pages)

    def time_ms(self, name: str) -> int | None:
        """Return a time in ms: milliseconds, or ISO 8601, UTC where no zone is named; None if it is not given."""
        text = self.text(name)
        return typed_bound_ms(text) if text else None

    def link(self, **changes: object) -> str:
        """Return the query of a link to the same with some changes; None leaves a parameter out."""
        kept = [(name, value) for name, value in self._query.multi_items() if name not in changes]
        return query_text([*kept, *changes.items()])


def query_text(parameters: Mapping[str, object] | Iterable[tuple[str, object]]) -> str:
    """Return a query with its question mark; those that are None or empty are left out."""
    pairs = parameters.items() if isinstance(parameters, Mapping) else parameters
    text = urlencode([(name, str(value)) for name, value in pairs if value is not None and value != ""])
    return f"?{text}" if text else "?"
