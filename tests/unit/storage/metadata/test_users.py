"""The users of SCRAM in the metadata: added, changed, removed, and read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.errors import FormatError, LogError
from odradek.messages.metadata.metadata_records import (
    FeatureLevelRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
    encode_metadata_record,
)
from odradek.storage.formats.metadata_snapshot import read_snapshot, write_snapshot
from odradek.storage.metadata.cluster import ClusterMetadata
from odradek.storage.metadata.formatting import format_log_directory, new_meta_properties
from odradek.storage.metadata.metadata_image import MetadataImage


def credential(name: str, mechanism: int = 1, *, iterations: int = 4096) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(name, mechanism, b"salt", b"stored", b"server", iterations)


def users(metadata: ClusterMetadata) -> dict[int, dict[str, UserScramCredentialRecord]]:
    read = ClusterMetadata(metadata.directory).image.scram_credentials
    assert read == metadata.image.scram_credentials
    return read


@pytest.mark.slow
def test_users_are_added_changed_and_removed(metadata: ClusterMetadata) -> None:
    before = metadata.image
    metadata.alter_scram_credentials([credential("alice"), credential("alice", 2), credential("bob")])
    assert users(metadata) == {
        1: {"alice": credential("alice"), "bob": credential("bob")},
        2: {"alice": credential("alice", 2)},
    }
    changed = credential("alice", iterations=8192)
    metadata.alter_scram_credentials([changed, RemoveUserScramCredentialRecord("alice", 2)])
    assert users(metadata) == {1: {"alice": changed, "bob": credential("bob")}}
    assert before.scram_credentials == {}


def test_the_bootstrap_file_keeps_only_what_counts(tmp_path: Path) -> None:
    format_log_directory(tmp_path, new_meta_properties(node_id=1))
    metadata = ClusterMetadata(tmp_path)
    values = read_snapshot(tmp_path / "bootstrap.checkpoint").values
    for iterations in range(4096, 4106):
        metadata.alter_scram_credentials([credential("alice", iterations=iterations)])
    assert len(read_snapshot(tmp_path / "bootstrap.checkpoint").values) == len(values) + 1
    metadata.alter_scram_credentials([RemoveUserScramCredentialRecord("alice", 1)])
    assert read_snapshot(tmp_path / "bootstrap.checkpoint").values == values


@pytest.mark.slow
def test_what_is_not_there_is_not_removed(metadata: ClusterMetadata) -> None:
    """Kafka's controller fails when it reads such a removal."""
    offset = metadata.offset
    metadata.alter_scram_credentials([RemoveUserScramCredentialRecord("alice", 1)])
    assert metadata.offset == offset
    with pytest.raises(FormatError, match="does not exist"):
        MetadataImage().apply(RemoveUserScramCredentialRecord("alice", 1))


def test_metadata_from_before_scram_have_no_users(tmp_path: Path) -> None:
    format_log_directory(tmp_path, new_meta_properties(node_id=1))
    write_snapshot(
        tmp_path / "bootstrap.checkpoint", [encode_metadata_record(FeatureLevelRecord("metadata.version", 10))]
    )
    with pytest.raises(LogError, match="too old"):
        ClusterMetadata(tmp_path).alter_scram_credentials([credential("alice")])
