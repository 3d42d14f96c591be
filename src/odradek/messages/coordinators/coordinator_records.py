"""How the records of the coordinators' topics are framed.

    key     type: int16 | fields                  never flexible
    value   version: int16 | fields               flexible from some version on; a null value is a tombstone

Source in Kafka: `CoordinatorRecordSerde`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek.errors import FormatError
from odradek.messages.schema import Schema

_INT16 = struct.Struct(">h")
_ENDS_EARLY = re.compile(r"a field claims \d+ bytes, \d+ are left")
_TOO_LONG = re.compile(r"a length of (\d+), (\d+) bytes are left")


class UnknownCoordinatorRecordError(FormatError):
    """A record of an unknown type; Kafka ignores it.

    Attributes:
        type: Its number.
    """

    def __init__(self, number: int) -> None:
        self.type = number
        super().__init__(f"unknown record type {number}")


class CoordinatorRecord(NamedTuple):
    """A record of a coordinator's topic.

    Attributes:
        type: The number of its type.
        key: What it is about.
        version: The version of the value; -1 for a tombstone.
        value: What it says; None for a tombstone.
    """

    type: int
    key: Any
    version: int
    value: Any


class RecordType(NamedTuple):
    """The schemas of a type's key and value."""

    key: Schema[Any]
    value: Schema[Any]


def decode(types: Mapping[int, RecordType], key: bytes | None, value: bytes | None) -> CoordinatorRecord:
    """Read a record of one of `types`.

    Raises:
        UnknownCoordinatorRecordError: Its type is not among `types`.
        FormatError: It has no key, is cut short, or has an unknown version.
    """
    if key is None or len(key) < _INT16.size:
        raise FormatError("a coordinator's record without the type in its key")
    (number,) = _INT16.unpack_from(key)
    known = types.get(number)
    if known is None:
        raise UnknownCoordinatorRecordError(number)
    about, _ = known.key.decode(key, 0, position=_INT16.size)
    if value is None:
        return CoordinatorRecord(number, about, -1, None)
    if len(value) < _INT16.size:
        raise FormatError("a coordinator's record without the version in its value")
    (version,) = _INT16.unpack_from(value)
    says, _ = known.value.decode(value, version, position=_INT16.size)
    return CoordinatorRecord(number, about, version, says)


def refusal_text(types: Mapping[int, RecordType], key: bytes | None, value: bytes | None, error: FormatError) -> str:
    """Return what Kafka's dump tool says of a record that `decode` has refused.

    Args:
        types: The types of the topic's records.
        key: The record's key.
        value: Its value.
        error: The error of `decode`.
    """
    if key is None or len(key) < _INT16.size:
        return "Could not read version from key's buffer."
    (number,) = _INT16.unpack_from(key)
    known = types[number]
    try:
        known.key.decode(key, 0, position=_INT16.size)
    except FormatError as of_key:
        return _unread(number, "key", of_key)
    if value is None or len(value) < _INT16.size:
        return "Could not read version from value's buffer."
    (version,) = _INT16.unpack_from(value)
    if error.position == _INT16.size and "is unknown" in error.reason:
        return f"Found an unknown record version {version} for {number} type"
    return _unread(version, "value", error)


def _unread(version: int, part: str, error: FormatError) -> str:
    cause = error.reason
    if _ENDS_EARLY.fullmatch(cause) is not None:
        # Where a number ends too early, the tool has an exception without a text.
        cause = "null"
    elif (found := _TOO_LONG.fullmatch(cause)) is not None:
        cause = f"Error reading byte array of {found[1]} byte(s): only {found[2]} byte(s) available"
    return f"Could not read record with version {version} from {part}'s buffer due to: {cause}."


def encode(types: Mapping[int, RecordType], record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Return the key and the value of a record; a value of None is a tombstone.

    Raises:
        ValueError: The version cannot hold all of it.
    """
    known = types[record.type]
    key = _INT16.pack(record.type) + known.key.encode(record.key, 0)
    if record.value is None:
        return key, None
    return key, _INT16.pack(record.version) + known.value.encode(record.value, record.version)


def to_json(types: Mapping[int, RecordType], record: CoordinatorRecord) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return key and value as Kafka's dump tool prints them; None for a tombstone."""
    known = types[record.type]
    key = {"type": str(record.type), "data": known.key.to_json(record.key, 0)}
    if record.value is None:
        return key, None
    return key, {"version": str(record.version), "data": known.value.to_json(record.value, record.version)}
