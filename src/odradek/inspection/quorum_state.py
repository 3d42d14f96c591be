"""`quorum-state`: whom a controller of the metadata log last voted for, one line of JSON.

    {"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}
    {"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,"currentVoters":[],"data_version":0}

Source in Kafka: `FileQuorumStateStore`, `QuorumStateData`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from odradek.errors import CheckpointError
from odradek.storage.regular_files import read_file
from odradek.storage.uuids import parse_uuid

_MAX_BYTES = 1 << 20
_NUMBERS = {0: ("leaderId", "leaderEpoch", "votedId", "appliedOffset"), 1: ("leaderId", "leaderEpoch", "votedId")}
_TEXTS = {0: ("clusterId",), 1: ("votedDirectoryId",)}


def parse_quorum_state(text: str, *, path: Path | None = None) -> dict[str, Any]:
    """Return the fields of a quorum state, by Kafka's names.

    Raises:
        CheckpointError: The text is not of the form that Kafka reads.
    """
    try:
        fields = json.loads(text.partition("\n")[0])
    except (ValueError, RecursionError) as error:
        raise CheckpointError("the first line is no JSON", path=path) from error
    if not isinstance(fields, dict):
        raise CheckpointError("the first line is no JSON object", path=path)
    version = fields.get("data_version")
    if type(version) is not int or version not in _NUMBERS:
        raise CheckpointError(f"data_version {str(version)[:40]!r} is unknown", path=path)
    for name in _NUMBERS[version]:
        if not isinstance(fields.get(name), int) or isinstance(fields[name], bool):
            raise CheckpointError(f"{name} is no number", path=path)
    for name in _TEXTS[version]:
        if not isinstance(fields.get(name), str):
            raise CheckpointError(f"{name} is no text", path=path)
    if version == 0 and not isinstance(fields.get("currentVoters", ""), list | None):
        raise CheckpointError("currentVoters is no list", path=path)
    if version == 1:
        try:
            parse_uuid(fields["votedDirectoryId"])
        except ValueError as error:
            raise CheckpointError(f"votedDirectoryId: {error}", path=path) from error
    return fields


def read_quorum_state(path: Path) -> dict[str, Any]:
    """Read a quorum state.

    Raises:
        FormatError: The file is not of the form that Kafka reads, or is no file.
        OSError: It cannot be read.
    """
    try:
        return parse_quorum_state(read_file(path, _MAX_BYTES).decode(), path=path)
    except UnicodeDecodeError as error:
        raise CheckpointError("this is not text", path=path, position=error.start) from error
