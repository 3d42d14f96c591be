"""Checks what callers give: the error names the argument, what it should be, and what was given."""

from __future__ import annotations

import operator
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from odradek.errors import OptionError

_T = TypeVar("_T")

_MIN_INT64 = -(1 << 63)
_MAX_INT64 = (1 << 63) - 1
_MAX_STRING_BYTES = (1 << 15) - 1
"""The longest text in Kafka's messages, in bytes."""
_MAX_PORT = 65535
_SHOWN = 60
_BROKER_SCHEME = "kafka:"


def given_text(value: object) -> str:
    """Return how an error shows what was given: the value, cut short, and its type."""
    shown = repr(value)
    return f"{shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '...'} ({type(value).__name__})"


def path_of_file_url(url: SplitResult) -> Path | None:
    """Return the path that `file:///PATH` names, on this machine; None for another address."""
    is_file = url.scheme == "file" and url.netloc in ("", "localhost") and url.path.startswith("/")
    return Path(unquote(url.path)) if is_file else None


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


def checked_names(name: str, value: object) -> list[str]:
    """Return texts, each of them once; one text is not taken for its characters.

    Raises:
        TypeError: It is something else.
    """
    if not isinstance(value, Iterable) or isinstance(value, str):
        raise TypeError(f"{name} must be several names, not {given_text(value)}")
    return list(dict.fromkeys(checked_text(f"a name in {name}", one) for one in value))


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


def checked_group(name: object) -> str:
    """Return the name of a group: as in Kafka, any text that takes at most 32767 bytes.

    Raises:
        TypeError: It is no text.
        OptionError: It is too long, or no UTF-8 can be made of it.
    """
    text = checked_text("a group's name", name)
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise OptionError(f"a group's name must be UTF-8, not {given_text(text)}: half a surrogate pair") from error
    if size > _MAX_STRING_BYTES:
        raise OptionError(f"a group's name takes at most {_MAX_STRING_BYTES} bytes, not {size}: {given_text(text)}")
    return text


def is_broker(address: str | os.PathLike[str]) -> bool:
    """Whether an address names a broker, not a path; true also for a misspelt one, which must not become a folder."""
    return os.fspath(address)[: len(_BROKER_SCHEME)].lower() == _BROKER_SCHEME


def address_options(query: str) -> dict[str, str]:
    """Return the options after the `?` of an address.

    Raises:
        ValueError: One is given twice.
    """
    given = parse_qsl(query, keep_blank_values=True)
    options = dict(given)
    for name in options:
        if sum(name == other for other, _ in given) > 1:
            raise ValueError(f"{name} is given twice")
    return options


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


def split_host_port(text: str) -> tuple[str, int] | None:
    """Return the host, maybe empty and without the brackets of IPv6, and the port of `HOST:PORT`; None for others."""
    host, colon, port = text.rpartition(":")
    is_port = re.fullmatch("[0-9]{1,5}", port) is not None and int(port) <= _MAX_PORT
    return (host.strip("[]"), int(port)) if colon and is_port and not re.search(r"\s", host) else None


def split_login(netloc: str) -> tuple[str | None, str | None, str]:
    """Return the user, the password and the hosts of an address; without an `@` there is no user."""
    userinfo, at, hosts = netloc.rpartition("@")
    if not at:
        return None, None, hosts
    user, colon, password = userinfo.partition(":")
    return unquote(user) or None, unquote(password) if colon else None, hosts


_OLD_WORDS = {
    "smallest": "earliest",
    "largest": "latest",
    "auto.offset.reset": "startingOffsets, and offsets.reset in a pipeline's file",
    "auto.commit.interval.ms": "trigger.interval in a pipeline's file: positions are stored after each batch",
    "auto.commit.enable": "offsets.store in a pipeline's file: positions are stored after each batch",
    "enable.auto.commit": "offsets.store in a pipeline's file: positions are stored after each batch",
    "group.id": 'offsets.store in a pipeline\'s file, such as "kafka://host:9092/group"',
    "zookeeper.connect": 'offsets.store in a pipeline\'s file, such as "zookeeper://host:2181/group"',
    "metadata.broker.list": "kafka.bootstrap.servers",
}


def today(word: object) -> str:
    """Return `; today ...` for a word of Kafka's consumers, or of direct streams, that has another name here."""
    known = _OLD_WORDS.get(word.lower().removeprefix("kafka.")) if isinstance(word, str) else None
    return "" if known is None else f"; today it is {known}"
