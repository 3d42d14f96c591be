"""Metadata: those that Apache Kafka wrote, and new ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from odradek.storage.formats.checkpoints import LOG_START_OFFSET_CHECKPOINT
from odradek.storage.metadata.cluster import ClusterMetadata
from odradek.storage.metadata.formatting import format_log_directory, new_meta_properties
from odradek.storage.metadata.metadata_log import METADATA_DIRECTORY
from odradek.storage.names import CLEAN_SHUTDOWN_MARKER
from peers.kafka_fixture import KafkaFixture


@pytest.fixture
def kafka_metadata(fixture_4_3_1: KafkaFixture, tmp_path: Path) -> Path:
    """The metadata of the clean 4.3.1 log directory, in a directory that was closed cleanly."""
    path = tmp_path / "live/data"
    path.mkdir(parents=True)
    for name in ("meta.properties", "bootstrap.checkpoint", CLEAN_SHUTDOWN_MARKER):
        shutil.copy(fixture_4_3_1.log_dir / name, path)
    shutil.copytree(fixture_4_3_1.log_dir / METADATA_DIRECTORY, path / METADATA_DIRECTORY)
    (path / LOG_START_OFFSET_CHECKPOINT).write_text("0\n0\n")
    return path


@pytest.fixture(params=["bootstrap", "log"])
def metadata(request: pytest.FixtureRequest, tmp_path: Path) -> ClusterMetadata:
    """Metadata in each of the two places where it may be."""
    if request.param == "log":
        return ClusterMetadata(request.getfixturevalue("writable_log_dir"))
    format_log_directory(tmp_path / "new", new_meta_properties(node_id=1))
    return ClusterMetadata(tmp_path / "new")
