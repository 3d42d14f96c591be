"""Parses the values of settings, which are text: a whole number within bounds, a ratio, a word, a list.

A `Parser` takes a text and returns its value; a ValueError says what is wrong with it.

Source in Kafka: `ConfigDef`.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from odradek.arguments import checked_mapping
from odradek.errors import InvalidConfigError

MAX_INT32 = (1 << 31) - 1
MAX_INT64 = (1 << 63) - 1

INTEGER = re.compile(r"[+-]?\d{1,4300}")
"""A whole number as Java reads it: of the digits of any script; Python reads no longer one."""
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?")
"""A number as Java reads it; Python knows no suffix of a type."""
_REFERENCE = re.compile(r"\$\{[^}:]*:[^}]*\}")
_BLANKS = "".join(map(chr, range(ord(" ") + 1)))

Parser = Callable[[str], Any]
"""Parses a value's text; a ValueError says what is wrong with it."""

ConfigValue: TypeAlias = str | int | float | bool
"""The value of a setting as a caller gives it; Kafka keeps all of them as text."""


def trimmed(text: str) -> str:
    """Return the text of a value without blanks around it.

    To Kafka these are all characters up to the space, and no others: it does not start where a setting's number begins
    with a non-breaking space.
    """
    return text.strip(_BLANKS)


def check_literal(text: str) -> None:
    """Check that a value does not stand in a file, in the environment or elsewhere (KIP-297, `config.providers`).

    Raises:
        ValueError: It has a reference such as `${file:/etc/secrets:password}`, which nothing here resolves.
    """
    if _REFERENCE.search(text):
        raise ValueError(
            "refers to a config provider (${...:...}), and these are not supported; write the value itself"
        )


def split_words(text: str) -> list[str]:
    """Return the words of a list as Kafka does: separated by commas, without blanks around them."""
    value = trimmed(text)
    return [word.strip(string.whitespace) for word in value.split(",")] if value else []


def as_text(name: str, value: ConfigValue) -> str:
    """Return the value of a setting as Kafka keeps it: `true`, `86400000`, `0.5`.

    Raises:
        InvalidConfigError: It is neither text nor a number nor a bool.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise InvalidConfigError(name, f"{value!r} is neither text nor a number nor a bool")


def as_texts(config: Mapping[str, ConfigValue] | None) -> dict[str, str]:
    """Return settings as Kafka keeps them.

    Args:
        config: The settings; None are none.

    Raises:
        TypeError: It is no mapping, or a setting's name is no text.
        InvalidConfigError: A value is neither text nor a number nor a bool.
    """
    return {key: as_text(key, value) for key, value in checked_mapping("config", config).items()}


@dataclass(frozen=True, slots=True)
class Integer:
    """Parses a whole number of some bits, from `low` to `high`."""

    low: int
    high: int
    bits: int

    def __call__(self, text: str) -> int:
        """Parse a text."""
        if INTEGER.fullmatch(trimmed(text)) is None:
            raise ValueError("is not a whole number")
        value = int(trimmed(text))
        if not self.low <= value <= self.high:
            raise ValueError(f"is not within {self.low} to {self.high}")
        return value


def int32(low: int | None, high: int = MAX_INT32) -> Integer:
    """Return a parser for a whole number of 32 bits, from `low` to `high`."""
    return Integer(-MAX_INT32 - 1 if low is None else low, high, 32)


def int64(low: int | None) -> Integer:
    """Return a parser for a whole number of 64 bits, at least `low`."""
    return Integer(-MAX_INT64 - 1 if low is None else low, MAX_INT64, 64)


@dataclass(frozen=True, slots=True)
class Number:
    """Parses a number from `low` to `high`."""

    low: float
    high: float

    def __call__(self, text: str) -> float:
        """Parse a text."""
        if NUMBER.fullmatch(trimmed(text)) is None:
            raise ValueError("is not a number")
        value = float(trimmed(text).rstrip("fFdD"))
        if not self.low <= value <= self.high:
            raise ValueError(f"is not within {self.low:g} to {self.high:g}")
        return value


def number(low: float, high: float) -> Number:
    """Return a parser for a number from `low` to `high`."""
    return Number(low, high)


def boolean(text: str) -> bool:
    """Parse `true` or `false`."""
    value = {"true": True, "false": False}.get(trimmed(text).lower())
    if value is None:
        raise ValueError("is neither true nor false")
    return value


@dataclass(frozen=True, slots=True)
class OneOf:
    """Parses one of some words."""

    choices: tuple[str, ...]

    def __call__(self, text: str) -> str:
        """Parse a text."""
        if trimmed(text) not in self.choices:
            raise ValueError(f"is none of {', '.join(self.choices)}")
        return trimmed(text)


def one_of(*choices: str) -> OneOf:
    """Return a parser for one of some words."""
    return OneOf(choices)


def words(text: str) -> tuple[str, ...]:
    """Parse words that are separated by commas; the list may be empty."""
    found = tuple(split_words(text))
    if "" in found:
        raise ValueError("has an empty entry")
    return found
