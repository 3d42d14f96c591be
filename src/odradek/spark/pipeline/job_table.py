"""A table of a job's TOML file: its keys are taken one by one, and an error names the key that it is about.

    [offsets]
    store = "file:offsets.json"      need("store", str)
    reset = "earliest"               take("reset", object, "earliest")
    sotre = "..."                    end(): unknown key; did you mean store?

A key that nothing took is unknown.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from odradek.arguments import today
from odradek.errors import JobError
from odradek.spark.options import nearest

_T = TypeVar("_T")


class Table:
    """A table of the file whose keys are taken one by one; the keys left at the end are unknown.

    Args:
        name: The keys above it, joined by dots; empty for the whole file.
        content: Its keys and values.
        unknown: Collects the errors of unknown keys; without it the first one is raised.
    """

    def __init__(self, name: str, content: Mapping[str, Any], unknown: list[JobError] | None) -> None:
        self._name = name
        self._left = dict(content)
        self._taken: list[str] = []
        self._unknown = unknown

    @property
    def is_empty(self) -> bool:
        """Whether no key is left."""
        return not self._left

    def has(self, name: str) -> bool:
        """Whether a key is left."""
        return name in self._left

    def key(self, name: str) -> str:
        """Return a key with those above it, as errors name it."""
        return f"{self._name}.{name}" if self._name else name

    def take(self, name: str, kind: type, default: Any = None) -> Any:
        """Take the value of a key.

        Raises:
            JobError: It is of another type.
        """
        self._taken.append(name)
        value = self._left.pop(name, default)
        if value is not default and kind is not object and type(value) is not kind:
            raise JobError(f"expected {_WORDS.get(kind, kind.__name__)}, not {value!r:.100}", self.key(name))
        return value

    def need(self, name: str, kind: type) -> Any:
        """Take the value of a key that must be there.

        Raises:
            JobError: It is missing, or of another type.
        """
        value = self.take(name, kind)
        if value is None:
            self._refuse_misspelt(name)
            raise JobError("this key is missing", self.key(name))
        return value

    def fill(self, kind: type[_T], **known: Any) -> _T:
        """Return a dataclass, whose other fields are the keys of the same names: with these types and defaults.

        Args:
            kind: The dataclass.
            known: The fields that are not read as they stand.

        Raises:
            JobError: A key is missing, or of another type.
        """
        for field in fields(kind):  # type: ignore[arg-type]  # a dataclass
            if field.name not in known:
                expected = _KINDS[str(field.type)]
                is_needed = field.default is MISSING
                value = self.need(field.name, expected) if is_needed else self.take(field.name, expected, field.default)
                known[field.name] = tuple(value) if expected is list else value
        return kind(**known)

    def table(self, name: str) -> Table:
        """Take a table; an empty one if it is not there.

        Raises:
            JobError: It is no table, or there is one whose name differs by a letter or two.
        """
        self._refuse_misspelt(name)
        return self.nested(name, self.take(name, dict, {}))

    def nested(self, name: str, content: Mapping[str, Any]) -> Table:
        """Return what was taken of a key as a table."""
        return Table(self.key(name), content, self._unknown)

    def tables(self, name: str) -> list[Table]:
        """Take a list of tables.

        Raises:
            JobError: It is none, or there is one whose name differs by a letter or two.
        """
        self._refuse_misspelt(name)
        entries = self.take(name, list, [])
        if not all(isinstance(entry, dict) for entry in entries):
            raise JobError(f"expected [[{self.key(name)}]]", self.key(name))
        return [Table(f"{self.key(name)}[{number}]", entry, self._unknown) for number, entry in enumerate(entries)]

    def _refuse_misspelt(self, name: str) -> None:
        """Fail if a key is not there, and a key that looks like it is."""
        misspelt = [] if name in self._left else difflib.get_close_matches(name, self._left, n=1)
        if misspelt:
            raise JobError(f"unknown key; did you mean {name}?", self.key(misspelt[0]))

    def texts(self) -> dict[str, str]:
        """Take every key that is left, as Spark's options: nested keys joined by dots, numbers and booleans as text.

        Raises:
            JobError: A value is a list.
        """
        left, self._left = self._left, {}
        return dict(self._flat("", left))

    def end(self) -> None:
        """Check that every key was taken.

        Raises:
            JobError: One is unknown, and nothing collects such errors.
        """
        for name in sorted(self._left):
            whole, content = name, self._left[name]
            while isinstance(content, dict) and len(content) == 1:
                # Settings of Kafka have dots in their names, which TOML takes for tables.
                part, content = next(iter(content.items()))
                whole = f"{whole}.{part}"
            error = JobError(f"unknown key{today(whole) or nearest(name, self._taken)}", self.key(name))
            if self._unknown is None:
                raise error
            self._unknown.append(error)

    def _flat(self, prefix: str, content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for name, value in content.items():
            if isinstance(value, dict):
                yield from self._flat(f"{prefix}{name}.", value)
            elif isinstance(value, list):
                raise JobError(f"expected a text, not {value!r:.100}", self.key(prefix + name))
            else:
                yield prefix + name, str(value).lower() if isinstance(value, bool) else str(value)


_KINDS = {"str": str, "str | None": str, "int": int, "int | None": int, "tuple[str, ...]": list}
_WORDS = {str: "a text", int: "a whole number", dict: "a table", list: "a list"}
