"""The definition of a setting: its type, its default, and in Kafka's words what is wrong with a value.

Source in Kafka: `ConfigDef`, `ConfigException`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from math import isfinite, isnan
from typing import Any, NamedTuple, TypeAlias

from kio.schema.errors import ErrorCode

from odradek.broker.errors import ApiError
from odradek.storage.config_def import INTEGER, NUMBER, split_words, trimmed


class ConfigType(IntEnum):
    """The type of a setting, by its number in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_BITS = {ConfigType.SHORT: 15, ConfigType.INT: 31, ConfigType.LONG: 63}

Check: TypeAlias = Callable[[str, Any], None]
"""Checks a value, given the setting's name; raises an `ApiError` if it is not valid."""


class ConfigKey(NamedTuple):
    """A setting.

    Attributes:
        name: Its name.
        type: Its type.
        default: Its default, as text, or None.
        documentation: What it does.
        check: Checks a value of its type.
        is_dynamic: Whether it can be changed while the broker runs.
    """

    name: str
    type: ConfigType
    default: str | None
    documentation: str
    check: Check | None = None
    is_dynamic: bool = False

    @property
    def is_sensitive(self) -> bool:
        """Whether clients are not told its value."""
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Any:
        """Return a value.

        Raises:
            ApiError: It is not valid.
        """
        value = self._parse_type(text)
        if self.check is not None:
            self.check(self.name, value)
        return value

    def _parse_type(self, text: str) -> Any:
        value = trimmed(text)
        match self.type:
            case ConfigType.BOOLEAN:
                if value.lower() not in ("true", "false"):
                    raise invalid_value(self.name, text, "Expected value to be either true or false")
                return value.lower() == "true"
            case ConfigType.INT | ConfigType.LONG | ConfigType.SHORT:
                limit = 1 << _BITS[self.type]
                if INTEGER.fullmatch(value) is None or not -limit <= int(value) < limit:
                    raise invalid_value(self.name, text, f"Not a number of type {self.type.name}")
                return int(value)
            case ConfigType.DOUBLE:
                if NUMBER.fullmatch(value) is None:
                    raise invalid_value(self.name, text, "Not a number of type DOUBLE")
                return float(value.rstrip("fFdD"))
            case ConfigType.LIST:
                # A word that is there twice counts once.
                return list(dict.fromkeys(split_words(text)))
            case _:
                return value

    def canonical(self, text: str) -> str:
        """Return a value's text as Kafka writes it; a value that is not valid as it is."""
        try:
            return as_java(self._parse_type(text))
        except ApiError:
            return text


def as_java(value: Any) -> str:
    """Return a value as Java writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_double(value)
    if isinstance(value, list | tuple):
        return ",".join(value)
    return str(value)


def _java_double(value: float) -> str:
    if not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, _, exponent = f"{value:.17e}".partition("e")
    for precision in range(1, 17):
        shorter = f"{value:.{precision}e}"
        if float(shorter) == value:
            digits, _, exponent = shorter.partition("e")
            break
    return f"{digits}E{int(exponent)}"


def invalid_value(name: str, value: Any, reason: str) -> ApiError:
    """Return the error of a value that is not valid."""
    shown = f"[{', '.join(value)}]" if isinstance(value, list) else value if isinstance(value, str) else as_java(value)
    return ApiError(ErrorCode.invalid_config, f"Invalid value {shown} for configuration {name}: {reason}")


# -- checks


def at_least(low: int) -> Check:
    """Return a check that a number is not too small."""
    return between(low, None)


def between(low: float, high: float | None) -> Check:
    """Return a check of a number's bounds."""

    def check(name: str, value: Any) -> None:
        if value < low:
            raise invalid_value(name, value, f"Value must be at least {low}")
        if high is not None and value > high:
            raise invalid_value(name, value, f"Value must be no more than {high}")

    return check


def one_of(*choices: str) -> Check:
    """Return a check that a text is one of some words."""

    def check(name: str, value: Any) -> None:
        if value not in choices:
            raise invalid_value(name, value, f"String must be one of: {', '.join(choices)}")

    return check


def list_of(*choices: str) -> Check:
    """Return a check that each word of a list is one of some."""
    check_word = one_of(*choices)

    def check(name: str, value: Any) -> None:
        for word in value:
            if not word:
                raise ApiError(ErrorCode.invalid_config, f"Configuration '{name}' values must not be empty.")
            check_word(name, word)

    return check


def by_name(keys: list[ConfigKey]) -> Mapping[str, ConfigKey]:
    """Return settings by their names."""
    return {key.name: key for key in keys}
