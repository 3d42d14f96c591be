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


class CoordinatorRecordError(FormatError):
    """A record that cannot be read.

    Attributes:
        as_kafka: What Kafka's dump tool says of it.
    """

    def __init__(self, reason: str, as_kafka: str) -> None:
        self.as_kafka = as_kafka
        super().__init__(reason)

    @classmethod
    def of_version(cls, number: int, version: int) -> CoordinatorRecordError:
        """Return the error for a value of a version that its type does not have."""
        return cls(f"version {version} is unknown", f"Found an unknown record version {version} for {number} type")


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
        reason = "a coordinator's record without the type in its key"
        raise CoordinatorRecordError(reason, "Could not read version from key's buffer.")
    (number,) = _INT16.unpack_from(key)
    known = types.get(number)
    if known is None:
        raise UnknownCoordinatorRecordError(number)
    about = _read(known.key, key, 0, f"record with version {number} from key")
    if value is None:
        return CoordinatorRecord(number, about, -1, None)
    if len(value) < _INT16.size:
        reason = "a coordinator's record without the version in its value"
        raise CoordinatorRecordError(reason, "Could not read version from value's buffer.")
    (version,) = _INT16.unpack_from(value)
    if not 0 <= version <= known.value.latest:
        raise CoordinatorRecordError.of_version(number, version)
    says = _read(known.value, value, version, f"record with version {version} from value")
    return CoordinatorRecord(number, about, version, says)


def _read(schema: Schema[Any], data: bytes, version: int, what: str) -> Any:
    try:
        return schema.decode(data, version, position=_INT16.size)[0]
    except FormatError as error:
        cause = error.reason
        if _ENDS_EARLY.fullmatch(cause) is not None:
            # Where a number ends too early, the tool has an exception without a text.
            cause = "null"
        elif (found := _TOO_LONG.fullmatch(cause)) is not None:
            cause = f"Error reading byte array of {found[1]} byte(s): only {found[2]} byte(s) available"
        raise CoordinatorRecordError(error.reason, f"Could not read {what}'s buffer due to: {cause}.") from error


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
