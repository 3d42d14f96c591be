"""How the records of the coordinators' topics are framed.

    key     type: int16 | fields                  never flexible
    value   version: int16 | fields               flexible from some version on; a null value is a tombstone

Source in Kafka: `CoordinatorRecordSerde`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek.errors import FormatError
from odradek.messages.schema import Schema

_INT16 = struct.Struct(">h")


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
