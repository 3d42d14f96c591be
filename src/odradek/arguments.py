"""Checks what callers give: the error names the argument, what it should be, and what was given."""

from __future__ import annotations

import operator
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from odradek.errors import OptionError

_T = TypeVar("_T")

_MIN_INT64 = -(1 << 63)
_MAX_INT64 = (1 << 63) - 1
_SHOWN = 60


def given_text(value: object) -> str:
    """Return how an error shows what was given: the value, cut short, and its type."""
    shown = repr(value)
    return f"{shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '...'} ({type(value).__name__})"


def checked_int(name: str, value: object, low: int = _MIN_INT64, high: int = _MAX_INT64) -> int:
    """Return a whole number from `low` to `high`; of 64 bits where they are not given.

    Raises:
        TypeError: It is none.
        OptionError: It is below or above.
    """
    number = checked_index(name, value)
    if not low <= number <= high:
        raise OptionError(f"{name} must be between {low} and {high}, not {number}")
    return number


def checked_index(name: str, value: object) -> int:
    """Return a whole number of any size, for those whose own error tells of its range.

    Raises:
        TypeError: It is none.
    """
    if type(value) is int:
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, not {given_text(value)}")
    return int(operator.index(value))


def _of_type(wanted: type[_T], name: str, value: object) -> _T:
    if not isinstance(value, wanted):
        raise TypeError(f"{name} must be a {wanted.__name__}, not {given_text(value)}")
    return value


def checked_flag(name: str, value: object) -> bool:
    """Return a bool; `"false"` and `0` are none.

    Raises:
        TypeError: It is none.
    """
    return _of_type(bool, name, value)


def checked_text(name: str, value: object) -> str:
    """Return a text.

    Raises:
        TypeError: It is none.
    """
    return _of_type(str, name, value)


def checked_mapping(name: str, value: object) -> Mapping[str, Any]:
    """Return a mapping whose keys are texts; an empty one for None.

    Raises:
        TypeError: It is none, or a key is no text.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a mapping from names to values, not {given_text(value)}")
    for key in value:
        checked_text(f"a name in {name}", key)
    return value


def checked_topics(topics: object) -> list[str | re.Pattern[str]]:
    """Return the topics that a caller names: one or several, each by its name or by a pattern.

    Raises:
        TypeError: It is something else.
    """
    several = topics if isinstance(topics, Iterable) and not isinstance(topics, str | bytes) else [topics]
    found: list[str | re.Pattern[str]] = []
    for topic in several:
        if isinstance(topic, str) or (isinstance(topic, re.Pattern) and isinstance(topic.pattern, str)):
            found.append(topic)
        else:
            raise TypeError(f"a topic goes by its name, a str, or a pattern of one, not by {given_text(topic)}")
    return found


def checked_path(name: str, value: object) -> Path:
    """Return the path of a file or folder.

    Raises:
        TypeError: It is neither text nor a path.
        OptionError: It is empty, or no file can have that name.
    """
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{name} must be a str or a path, not {given_text(value)}")
    text = os.fspath(value)
    checked_text(name, text)
    if not text:
        raise OptionError(f"{name} is empty")
    if "\0" in text:
        raise OptionError(f"{name} has a character that no file's name has: {given_text(text)}")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        encoding = sys.getfilesystemencoding()
        raise OptionError(
            f"{name} cannot be a file's name in the locale's encoding, {encoding}: {given_text(text)}"
        ) from error
    return Path(text)


def split_address(address: str) -> SplitResult:
    """Take the address of a server or of a file apart.

    Raises:
        ValueError: It is none, or a character of a password or a name in it is not escaped. The text shows nothing of
            it, as it may hold a password.
    """
    parts = urlsplit(address)
    after = address.partition("://")[2].removeprefix(parts.netloc)
    port = parts.netloc.rpartition(":")[2]
    # What is taken for the port is the begin of a password, and the "@" after it stands in the path.
    is_cut = "@" not in parts.netloc and ":" in parts.netloc and "@" in after
    if "#" in after or (is_cut and (not port.isdecimal() or re.search(r"@[^/@]*:[0-9]", after))):
        raise ValueError("in a user's name, a password or a path write %23 for #, %2F for / and %3F for ?")
    return parts
