"""Control records: what the broker itself writes into a log.

    key     version int16 | type int16
    value   of ABORT and COMMIT: version int16 | coordinatorEpoch int32

A newer version of key or value is read as version 0: later versions may only
add fields.

Source in Kafka: `ControlRecordType`, `EndTransactionMarker`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from odradek.errors import CorruptRecordError
from odradek.records.kernels.objects import Record

_KEY = struct.Struct(">hh")
_MARKER = struct.Struct(">hi")


class ControlRecordType(IntEnum):
    """The types of control records; those from LEADER_CHANGE on occur in the metadata log only."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_TYPES: dict[int, ControlRecordType] = {kind.value: kind for kind in ControlRecordType}


class EndTransactionMarker(NamedTuple):
    """The record that ends a transaction in one partition."""

    type: ControlRecordType
    coordinator_epoch: int

    def key_bytes(self) -> bytes:
        """Return the record's key."""
        return _KEY.pack(0, self.type)

    def value_bytes(self) -> bytes:
        """Return the record's value."""
        return _MARKER.pack(0, self.coordinator_epoch)


def parse_control_key(key: bytes | None) -> ControlRecordType | None:
    """Return the type that a control record's key names; None if this version does not know it.

    Raises:
        CorruptRecordError: The key is too short, or its version negative.
    """
    if key is None or len(key) < _KEY.size:
        raise CorruptRecordError(f"a control record's key has {_KEY.size} bytes, this one {len(key or b'')}")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecordError(f"a control record's key has version {version}")
    return _TYPES.get(number)


def is_abort(records: Sequence[Record]) -> bool:
    """Whether the records of a control batch are an ABORT marker; not so if the cleaner has emptied the batch.

    Raises:
        CorruptRecordError: The record is not a control record.
    """
    return bool(records) and parse_control_key(records[0].key) is ControlRecordType.ABORT


def parse_end_transaction_marker(key: bytes | None, value: bytes | None) -> EndTransactionMarker:
    """Read a transaction marker.

    Raises:
        CorruptRecordError: It is not a transaction marker, or is cut short.
    """
    kind = parse_control_key(key)
    if kind not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        raise CorruptRecordError(f"control record type {kind} does not end a transaction")
    if value is None or len(value) < _MARKER.size:
        raise CorruptRecordError(f"a transaction marker's value has {_MARKER.size} bytes, this one {len(value or b'')}")
    version, coordinator_epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise CorruptRecordError(f"a transaction marker's value has version {version}")
    return EndTransactionMarker(kind, coordinator_epoch)
