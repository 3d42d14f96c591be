"""`quorum-state`: the election that a controller last took part in, as one line of JSON in the metadata log's folder.

    {"leaderId":1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}

    {"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],
     "data_version":0}                                                                          before KIP-853

Kafka reads the first line and ignores fields that it does not know. Here unknown fields and a second line are damage:
Kafka writes neither.

Source in Kafka: `FileQuorumStateStore`, `QuorumStateData`, `ElectionState`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from odradek.errors import CheckpointError
from odradek.messages.uuids import ZERO_UUID, parse_uuid
from odradek.storage.config_def import MAX_INT32, MAX_INT64
from odradek.storage.regular_files import read_file

QUORUM_STATE = "quorum-state"
NONE = -1
"""No leader is known; no vote was given."""

_MAX_BYTES = 1 << 20
_FIELDS = {
    0: {"clusterId", "leaderId", "leaderEpoch", "votedId", "appliedOffset", "currentVoters", "data_version"},
    1: {"leaderId", "leaderEpoch", "votedId", "votedDirectoryId", "data_version"},
}


class QuorumState(NamedTuple):
    """An election.

    Attributes:
        leader_id: Who leads, or -1.
        leader_epoch: The epoch.
        voted_id: Who was voted for, or -1.
        voted_directory_id: The log directory of the controller that was voted for; zero in version 0.
        version: The version of the file: 0 before KIP-853, 1 since.
        cluster_id: Version 0 only, and empty there too.
        applied_offset: Version 0 only.
        current_voters: The voters' ids; version 0 only.
    """

    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: UUID = ZERO_UUID
    version: int = 1
    cluster_id: str = ""
    applied_offset: int = 0
    current_voters: tuple[int, ...] = ()


def parse_quorum_state(text: str, *, path: Path | None = None) -> QuorumState:
    """Read an election.

    Raises:
        CheckpointError: The text is not of the form that Kafka writes.
    """
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except ValueError as error:
        raise CheckpointError(f"this is not a line of JSON: {error}", path=path) from error
    except RecursionError as error:
        raise CheckpointError("this is not a line of JSON: it is nested too deeply", path=path) from error
    try:
        return _election(found)
    except ValueError as error:
        raise CheckpointError(str(error), path=path) from error


def _election(found: Any) -> QuorumState:
    if not isinstance(found, dict):
        raise ValueError("this is not a JSON object")
    version = found.get("data_version")
    if type(version) is not int or version not in _FIELDS:
        raise ValueError(f"data_version {version!r} is unknown")
    wrong = sorted(found.keys() ^ _FIELDS[version])
    if wrong:
        raise ValueError(f"{wrong[0][:40]} {'is unknown' if wrong[0] in found else 'is missing'}")
    leader_id = _number(found, "leaderId", NONE)
    leader_epoch = _number(found, "leaderEpoch", 0)
    voted_id = _number(found, "votedId", NONE)
    if version == 1:
        return QuorumState(leader_id, leader_epoch, voted_id, parse_uuid(_text(found, "votedDirectoryId")))
    voters = found["currentVoters"]
    if not isinstance(voters, list) or not all(isinstance(voter, dict) for voter in voters):
        raise ValueError("currentVoters is not a list of voters")
    return QuorumState(
        leader_id,
        leader_epoch,
        voted_id,
        version=0,
        cluster_id=_text(found, "clusterId"),
        applied_offset=_number(found, "appliedOffset", 0, MAX_INT64),
        current_voters=tuple(_number(voter, "voterId", 0) for voter in voters),
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field occurs twice")
    return found


def _number(fields: dict[str, Any], name: str, lowest: int, highest: int = MAX_INT32) -> int:
    value = fields.get(name)
    if type(value) is not int or not lowest <= value <= highest:
        raise ValueError(f"{name} is {str(value)[:40]!r}, not a number from {lowest} to {highest}")
    return value


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} is {str(value)[:40]!r}, not a text")
    return value


def read_quorum_state(path: Path) -> QuorumState | None:
    """Read the file; `None` if it is missing: no controller has started here yet.

    Raises:
        FormatError: The file is not of the form that Kafka writes, or is not a regular file.
    """
    try:
        return parse_quorum_state(read_file(path, _MAX_BYTES).decode(), path=path)
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise CheckpointError("this is not text", path=path, position=error.start) from error
