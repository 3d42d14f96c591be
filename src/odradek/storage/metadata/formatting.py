"""Makes a new log directory that Apache Kafka starts on, as its format tool does.

    meta.properties             the identity; written last: with it the folder is formatted
    bootstrap.checkpoint        the levels of the features
    __cluster_metadata-0/00000000000000000000-0000000000.checkpoint       the voters, if they are not in the settings

Source in Kafka: `Formatter`, `StorageTool`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek.errors import LogError
from odradek.messages.metadata.control_records import Voter
from odradek.messages.metadata.metadata_records import FeatureLevelRecord, encode_metadata_record
from odradek.messages.uuids import format_uuid, random_uuid
from odradek.records.timestamps import now_ms
from odradek.storage.files import FILES, FileSystem, make_durable_directory
from odradek.storage.formats.meta_properties import META_PROPERTIES, MetaProperties
from odradek.storage.formats.metadata_snapshot import write_snapshot
from odradek.storage.metadata.metadata_image import ELIGIBLE_LEADER_REPLICAS, METADATA_VERSION
from odradek.storage.metadata.metadata_log import METADATA_DIRECTORY
from odradek.storage.names import BOOTSTRAP_CHECKPOINT, raft_snapshot_file_name

DEFAULT_NODE_ID = 1
OLDER_KAFKA_FEATURES: Mapping[str, int] = {
    METADATA_VERSION: 30,
    ELIGIBLE_LEADER_REPLICAS: 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}
"""The levels that Apache Kafka of `kafka_version.OLDER_KAFKA_VERSION` gives a new log directory."""


def new_meta_properties(*, node_id: int = DEFAULT_NODE_ID, cluster_id: str | None = None) -> MetaProperties:
    """Return the identity of a new log directory; its own id, and the cluster's if it is not given, are random."""
    if node_id < 0:
        raise ValueError(f"a node id cannot be negative: {node_id}")
    return MetaProperties(
        cluster_id=format_uuid(random_uuid()) if cluster_id is None else cluster_id,
        node_id=node_id,
        directory_id=random_uuid(),
    )


def format_log_directory(
    directory: Path,
    meta: MetaProperties,
    *,
    voters: Sequence[Voter] = (),
    files: FileSystem = FILES,
) -> None:
    """Format a log directory: a folder that is missing or not yet formatted.

    Kafka starts on it with `controller.quorum.voters` in its settings, or with `controller.quorum.bootstrap.servers` if
    `voters` are given here.

    Args:
        directory: The folder.
        meta: Its identity.
        voters: The controllers that vote.
        files: The file system to write through.

    Raises:
        LogError: It is formatted already.
    """
    if (directory / META_PROPERTIES).exists():
        raise LogError(f"{directory} is formatted already")
    make_durable_directory(directory, files)
    write_bootstrap(directory, files)
    if voters:
        folder = directory / METADATA_DIRECTORY
        make_durable_directory(folder, files)
        now = now_ms()
        write_snapshot(folder / raft_snapshot_file_name(0, 0), (), voters=voters, logged_ms=now, files=files)
    meta.write(directory / META_PROPERTIES, files)


def write_bootstrap(directory: Path, files: FileSystem) -> None:
    """Write the `bootstrap.checkpoint` of a folder without topics."""
    levels = [encode_metadata_record(FeatureLevelRecord(name, level)) for name, level in OLDER_KAFKA_FEATURES.items()]
    write_snapshot(directory / BOOTSTRAP_CHECKPOINT, levels, files=files)
