"""The control records of the metadata log and of its snapshots: who leads, who votes, where a snapshot begins and ends.

    key     version: int16 = 0 | type: int16
    value   version: int16 = 0 | fields, flexible

Source in Kafka: `ControlRecordUtils`; `LeaderChangeMessage`, `SnapshotHeaderRecord`, `SnapshotFooterRecord`,
`KRaftVersionRecord` and `VotersRecord` (KIP-595, KIP-630, KIP-853).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from odradek.errors import CorruptRecordError, FormatError
from odradek.messages.field_types import INT16, INT32, INT64, STRING, UINT16, UUID_FIELD, Array
from odradek.messages.schema import Field, Schema, flexible
from odradek.messages.uuids import ZERO_UUID
from odradek.records import Record
from odradek.records.control import ControlRecordType, parse_control_key

_KEY = struct.Struct(">hh")
_VERSION = struct.Struct(">h")


class SnapshotHeader(NamedTuple):
    """The first record of a snapshot."""

    version: int = 0
    last_contained_log_timestamp: int = 0


class SnapshotFooter(NamedTuple):
    """The last record of a snapshot; without it the snapshot is incomplete."""

    version: int = 0


class KRaftVersion(NamedTuple):
    """Whether the voters are in the log (1), or only in the settings (0)."""

    version: int = 0
    kraft_version: int = 1


class VoterEndpoint(NamedTuple):
    """Where a controller listens."""

    name: str
    host: str
    port: int


class SupportedVersions(NamedTuple):
    """The levels of `kraft.version` that a voter supports."""

    min_supported_version: int = 0
    max_supported_version: int = 1


class Voter(NamedTuple):
    """A controller that votes."""

    voter_id: int
    voter_directory_id: UUID
    endpoints: tuple[VoterEndpoint, ...]
    kraft_version_feature: SupportedVersions = SupportedVersions()


class KRaftVoters(NamedTuple):
    """The controllers that vote."""

    version: int = 0
    voters: tuple[Voter, ...] = ()


class LeaderVoter(NamedTuple):
    """A voter, as an election saw it."""

    voter_id: int
    voter_directory_id: UUID = ZERO_UUID


class LeaderChange(NamedTuple):
    """The first record of a leader's epoch."""

    version: int = 0
    leader_id: int = -1
    voters: tuple[LeaderVoter, ...] = ()
    granting_voters: tuple[LeaderVoter, ...] = ()


MetadataControlRecord: TypeAlias = SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters | LeaderChange
"""Any control record of the metadata log."""

_OWN_VERSION = Field("version", INT16)
_VOTER_ENDPOINT = Schema(VoterEndpoint, (Field("name", STRING), Field("host", STRING), Field("port", UINT16)))
_SUPPORTED_VERSIONS = Schema(
    SupportedVersions, (Field("min_supported_version", INT16), Field("max_supported_version", INT16))
)
_VOTER = Schema(
    Voter,
    (
        Field("voter_id", INT32),
        Field("voter_directory_id", UUID_FIELD),
        Field("endpoints", Array(_VOTER_ENDPOINT)),
        Field("kraft_version_feature", _SUPPORTED_VERSIONS, json_name="kRaftVersionFeature"),
    ),
)
_LEADER_VOTER = Schema(LeaderVoter, (Field("voter_id", INT32), Field("voter_directory_id", UUID_FIELD, since=1)))


def _schema(record: Any, *fields: Field, latest: int = 0) -> Schema[Any]:
    return flexible(record, _OWN_VERSION, *fields, latest=latest)


SCHEMAS: dict[ControlRecordType, Schema[Any]] = {
    ControlRecordType.LEADER_CHANGE: _schema(
        LeaderChange,
        Field("leader_id", INT32),
        Field("voters", Array(_LEADER_VOTER)),
        Field("granting_voters", Array(_LEADER_VOTER)),
        latest=1,
    ),
    ControlRecordType.SNAPSHOT_HEADER: _schema(SnapshotHeader, Field("last_contained_log_timestamp", INT64)),
    ControlRecordType.SNAPSHOT_FOOTER: _schema(SnapshotFooter),
    ControlRecordType.KRAFT_VERSION: _schema(KRaftVersion, Field("kraft_version", INT16, json_name="kRaftVersion")),
    ControlRecordType.KRAFT_VOTERS: _schema(KRaftVoters, Field("voters", Array(_VOTER))),
}

_TYPES = {schema.record: kind for kind, schema in SCHEMAS.items()}


def decode_control_record(record: Record) -> MetadataControlRecord | None:
    """Read a control record of the metadata log; None for an unknown type.

    Raises:
        FormatError: The key or the value is damaged.
    """
    found = _decode(record)
    return None if found is None else found[0]


def control_records(
    records: Iterable[Record], path: Path, position: int
) -> Iterator[tuple[Record, MetadataControlRecord | None]]:
    """Yield the records of a control batch, each with its decoded form, or None if its type is unknown.

    Args:
        records: The records.
        path: The file that they come from.
        position: Where their batch starts in it, in bytes.

    Raises:
        FormatError: The key or the value is damaged; the error names file and position.
    """
    for record in records:
        try:
            yield record, decode_control_record(record)
        except FormatError as error:
            # A position within the record is of no use to a reader of the file.
            raise FormatError(error.reason, path=path, position=position) from error


def _decode(record: Record) -> tuple[MetadataControlRecord, ControlRecordType, int] | None:
    kind = parse_control_key(record.key)
    schema = None if kind is None else SCHEMAS.get(kind)
    if kind is None or schema is None:
        return None
    if record.value is None or len(record.value) < _VERSION.size:
        raise CorruptRecordError(f"the value of a {kind.name} record is cut short")
    # A record of a newer version may only have more tagged fields.
    version = min(_VERSION.unpack_from(record.value)[0], schema.latest)
    decoded: MetadataControlRecord = schema.decode(record.value, version)[0]
    return decoded, kind, version


def encode_control_record(record: MetadataControlRecord) -> tuple[bytes, bytes]:
    """Return the key and the value of a control record."""
    kind = _TYPES[type(record)]
    return _KEY.pack(0, kind), SCHEMAS[kind].encode(record, record.version)


def control_record_json(record: Record) -> tuple[str, dict[str, Any]] | None:
    """Return the name and the fields of a control record as Kafka's dump tool prints them; None for other types.

    Raises:
        FormatError: The key or the value is damaged.
    """
    found = _decode(record)
    if found is None:
        return None
    decoded, kind, version = found
    return type(decoded).__name__, SCHEMAS[kind].to_json(decoded, version)
