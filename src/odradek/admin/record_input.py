"""Records from text: lines, or JSON lines in the form that `odradek dump` prints.

    key<TAB>value                                                   a line; the separator is the caller's
    {"key":"k","value":{"base64":"AP8="},"headers":[["h","v"]]}     a JSON line; every field may be missing

A line is one record. Which of the two forms it has, the caller says.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from odradek.errors import LogError
from odradek.records import Record
from odradek.storage.config_def import MAX_INT32

Headers = Sequence[tuple[str, bytes | None]]


class RecordInputError(LogError):
    """Text that is no record."""


class GivenRecord(NamedTuple):
    """A record, and the partition that it is to go to; None lets the key decide."""

    partition: int | None
    record: Record


def line_reader(key_separator: str | None, headers: Headers) -> Callable[[bytes], GivenRecord | None]:
    """Return a function that makes a record of a line: key and value if there is a separator, else a value.

    Its error is a `RecordInputError`: the line lacks the separator.
    """
    separator = None if key_separator is None else key_separator.encode()

    def read(line: bytes) -> GivenRecord:
        if separator is None:
            return GivenRecord(None, Record(None, line, headers))
        key, found, value = line.partition(separator)
        if not found:
            raise RecordInputError(f"there is no separator {key_separator!r} between a key and a value")
        return GivenRecord(None, Record(key, value, headers))

    return read


def json_reader(headers: Headers) -> Callable[[bytes], GivenRecord | None]:
    """Return a function that makes a record of a JSON line; None of a control record, which is no data.

    Its error is a `RecordInputError`.
    """

    def read(line: bytes) -> GivenRecord | None:
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RecordInputError(f"it is not JSON: {error}") from error
        if not isinstance(fields, Mapping):
            raise RecordInputError("it is no JSON object")
        if "control" in fields:
            return None
        partition, timestamp = fields.get("partition"), fields.get("timestamp")
        if partition is not None and (type(partition) is not int or not 0 <= partition <= MAX_INT32):
            raise RecordInputError(f"the partition must be a number, not {partition!r:.100}")
        if timestamp is not None and (type(timestamp) is not int or not 0 <= timestamp < 1 << 63):
            raise RecordInputError(f"the timestamp must be a number of milliseconds, not {timestamp!r:.100}")
        if not {"key", "value", "headers", "timestamp"} & fields.keys():
            raise RecordInputError("it has no key, no value and no headers")
        own = _headers(fields.get("headers") or [])
        record = Record(
            _bytes("key", fields.get("key")), _bytes("value", fields.get("value")), [*own, *headers], timestamp
        )
        return GivenRecord(partition, record)

    return read


def _headers(given: object) -> list[tuple[str, bytes | None]]:
    if not isinstance(given, list):
        raise RecordInputError(f"headers must be a list of [name, value], not {given!r:.100}")
    found = []
    for header in given:
        if not isinstance(header, list) or len(header) != 2 or not _is_name(header[0]):
            raise RecordInputError(f"a header must be [name, value], not {header!r:.100}")
        name = _bytes("the name of a header", header[0]) or b""
        found.append((name.decode("utf-8", "surrogateescape"), _bytes("the value of a header", header[1])))
    return found


def _is_name(given: Any) -> bool:
    data = given["base64"] if isinstance(given, Mapping) and given.keys() == {"base64"} else given
    return isinstance(data, str)


def _bytes(what: str, given: Any) -> bytes | None:
    if given is None:
        return None
    try:
        if isinstance(given, str):
            return given.encode()
        if isinstance(given, Mapping) and given.keys() == {"base64"} and isinstance(given["base64"], str):
            return base64.b64decode(given["base64"], validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise RecordInputError(f"{what} is no byte string: {error}") from error
    # As `dump --values` embeds it, and as `import` takes it.
    return json.dumps(given, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
