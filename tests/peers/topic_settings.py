"""Settings of one topic in the metadata, for tests that change nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from odradek.storage.metadata.cluster import ClusterMetadata
from odradek.storage.metadata.metadata_image import TOPIC_RESOURCE, ConfigResource


def alter_topic(metadata: ClusterMetadata, name: str, changes: Mapping[str, str | None]) -> None:
    """Change settings of a topic; None removes one."""
    metadata.alter_configs({ConfigResource(TOPIC_RESOURCE, name): changes})
