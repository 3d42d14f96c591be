"""The delegation tokens in the metadata: created, renewed, removed, and read again."""

from __future__ import annotations

from pathlib import Path

from odradek.messages.metadata.metadata_records import (
    DelegationTokenRecord,
    FeatureLevelRecord,
    MetadataRecord,
    RemoveDelegationTokenRecord,
)
from odradek.storage.formats.metadata_snapshot import read_snapshot
from odradek.storage.metadata.cluster import ClusterMetadata
from odradek.storage.metadata.formatting import format_log_directory, new_meta_properties
from odradek.storage.metadata.metadata_image import MetadataImage


def token(token_id: str, *, expires: int = 2) -> DelegationTokenRecord:
    return DelegationTokenRecord("User:alice", "User:bob", ("User:carol",), 1, 3, expires, token_id)


def change(metadata: ClusterMetadata, *records: MetadataRecord) -> dict[str, DelegationTokenRecord]:
    metadata.change(lambda image: records)
    read = ClusterMetadata(metadata.directory).image.delegation_tokens
    assert read == metadata.image.delegation_tokens
    return read


def test_tokens_are_created_renewed_and_removed(metadata: ClusterMetadata) -> None:
    before = metadata.image
    assert change(metadata, token("a"), token("b")) == {"a": token("a"), "b": token("b")}
    between = metadata.image
    assert change(metadata, token("a", expires=3)) == {"a": token("a", expires=3), "b": token("b")}
    assert change(metadata, RemoveDelegationTokenRecord("a")) == {"b": token("b")}
    assert before.delegation_tokens == {}
    assert between.delegation_tokens == {"a": token("a"), "b": token("b")}


def test_the_bootstrap_file_keeps_only_what_counts(tmp_path: Path) -> None:
    format_log_directory(tmp_path, new_meta_properties(node_id=1))
    metadata = ClusterMetadata(tmp_path)
    values = read_snapshot(tmp_path / "bootstrap.checkpoint").values
    for expires in range(10):
        change(metadata, token("a", expires=expires), token("b"))
    assert len(read_snapshot(tmp_path / "bootstrap.checkpoint").values) == len(values) + 2
    change(metadata, RemoveDelegationTokenRecord("a"), RemoveDelegationTokenRecord("b"))
    assert read_snapshot(tmp_path / "bootstrap.checkpoint").values == values


def test_the_removal_of_what_is_not_there_has_no_effect() -> None:
    """As in Kafka: two removals of a token may follow each other there."""
    image = MetadataImage()
    image.apply_all([token("a"), RemoveDelegationTokenRecord("a"), RemoveDelegationTokenRecord("a")])
    assert image.delegation_tokens == {}


def test_tokens_need_metadata_of_kafka_3_6() -> None:
    image = MetadataImage()
    for level, has_tokens in ((13, False), (14, True)):
        image.apply(FeatureLevelRecord("metadata.version", level))
        assert image.has_delegation_tokens is has_tokens
