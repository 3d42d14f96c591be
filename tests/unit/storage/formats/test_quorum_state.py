"""`quorum-state`, which a controller rewrites at every election."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from odradek.errors import CheckpointError
from odradek.storage.formats.quorum_state import QUORUM_STATE, QuorumState, parse_quorum_state, read_quorum_state
from odradek.storage.metadata.metadata_log import METADATA_DIRECTORY
from peers.kafka_fixture import KafkaFixture

NEW = {
    "leaderId": -1,
    "leaderEpoch": 7,
    "votedId": 1,
    "votedDirectoryId": "AAAAAAAAAAAAAAAAAAABAA",
    "data_version": 1,
}
OLD = {
    "clusterId": "",
    "leaderId": 1,
    "leaderEpoch": 2,
    "votedId": -1,
    "appliedOffset": 0,
    "currentVoters": [{"voterId": 1}, {"voterId": 2}],
    "data_version": 0,
}


def test_both_versions() -> None:
    assert parse_quorum_state(json.dumps(NEW)) == QuorumState(-1, 7, 1, UUID(int=0x100))
    assert parse_quorum_state(json.dumps(OLD)) == QuorumState(1, 2, -1, version=0, current_voters=(1, 2))


def test_what_kafka_wrote(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> None:
    for log_dir in (fixture_4_3_1.log_dir, fixture_4_3_1.log_dir_unclean):
        found = read_quorum_state(log_dir / METADATA_DIRECTORY / QUORUM_STATE)
        assert found is not None
        assert (found.leader_id, found.leader_epoch >= 1, found.version) == (1, True, 1)
    assert read_quorum_state(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("fields", "change", "reason"),
    [
        (NEW, {"data_version": 2}, "data_version 2 is unknown"),
        (NEW, {"data_version": True}, "data_version True is unknown"),
        (NEW, {"data_version": None}, "data_version None is unknown"),
        (NEW, {"leaderEpoch": -1}, "leaderEpoch is '-1'"),
        (NEW, {"leaderEpoch": 1 << 31}, "leaderEpoch is"),
        (NEW, {"leaderEpoch": "7"}, "leaderEpoch is '7'"),
        (NEW, {"leaderEpoch": 7.0}, "leaderEpoch is '7.0'"),
        (NEW, {"leaderId": -2}, "leaderId is '-2'"),
        (NEW, {"votedDirectoryId": "x"}, "'x' is not a UUID"),
        (NEW, {"votedDirectoryId": 5}, "votedDirectoryId is '5', not a text"),
        (NEW, {"clusterId": ""}, "clusterId is unknown"),
        (OLD, {"data_version": 1}, "appliedOffset is unknown"),
        (OLD, {"currentVoters": None}, "not a list of voters"),
        (OLD, {"currentVoters": "12"}, "not a list of voters"),
        (OLD, {"currentVoters": [1]}, "not a list of voters"),
        (OLD, {"currentVoters": [{"id": 1}]}, "voterId is 'None'"),
        (OLD, {"appliedOffset": -1}, "appliedOffset is '-1'"),
    ],
)
def test_fields_that_no_kafka_writes(fields: dict[str, object], change: dict[str, object], reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason):
        parse_quorum_state(json.dumps(fields | change))


@pytest.mark.parametrize("fields", [NEW, OLD])
def test_every_field_is_missed_and_known_once(fields: dict[str, object]) -> None:
    for name in fields:
        without = {key: value for key, value in fields.items() if key != name}
        with pytest.raises(CheckpointError, match=f"{name} is missing|data_version None"):
            parse_quorum_state(json.dumps(without))
        twice = json.dumps(fields)[:-1] + f', "{name}": {json.dumps(fields[name])}}}'
        with pytest.raises(CheckpointError, match="twice"):
            parse_quorum_state(twice)


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "[" * 100_000, "9" * 5000, json.dumps(NEW) * 2])
def test_what_is_no_line_of_json(text: str) -> None:
    with pytest.raises(CheckpointError):
        parse_quorum_state(text)


def test_what_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / QUORUM_STATE
    path.write_bytes(json.dumps(NEW).encode().replace(b"leader", b"le\xffder"))
    with pytest.raises(CheckpointError, match="not text") as caught:
        read_quorum_state(path)
    assert caught.value.path == str(path)
