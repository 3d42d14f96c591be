"""The names of Kafka's APIs: `Produce` is 0, `ListOffsets` is 2.

Source in Kafka: `ApiKeys`.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map

from odradek.broker.newer_messages import NEWER_ERRORS
from odradek.errors import OptionError


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


API_NAMES = {key: _camel(name) for key, name in api_key_map.items()} | {94: "UnregisterController"}
"""The names by number."""

_KEYS = {name.lower(): key for key, name in API_NAMES.items()}


def api_key_of(api: str | int) -> int:
    """Return the number of an API, given by its number or by Kafka's name for it.

    Raises:
        OptionError: Kafka has no such API.
    """
    key = api if isinstance(api, int) else _KEYS.get(str(api).lower(), -1)
    if key not in API_NAMES:
        raise OptionError(f"Kafka has no API {api!r}")
    return key


def error_name(code: int) -> str:
    """Return Kafka's name of an error: `UNKNOWN_TOPIC_OR_PARTITION`."""
    return NEWER_ERRORS.get(code) or ErrorCode(code).name.upper()


def error_code_of(error: str | int) -> ErrorCode:
    """Return one of Kafka's errors, given by its number or by Kafka's name for it.

    Raises:
        OptionError: Kafka has no such error, or it is NONE.
    """
    try:
        found = ErrorCode(error) if isinstance(error, int) else ErrorCode[str(error).lower()]
    except (KeyError, ValueError):
        raise OptionError(f"Kafka has no error {error!r}") from None
    if found is ErrorCode.none:
        raise OptionError("NONE is no error: a request that is answered with it succeeds")
    return found
