"""What is wrong with the files of a log directory's root, and with its metadata.

    meta.properties, bootstrap.checkpoint, *-checkpoint, __cluster_metadata-0/

The logs report the problems of the partitions' folders.
"""

from __future__ import annotations

from pathlib import Path

from odradek.errors import CheckpointError, FormatError
from odradek.messages.uuids import RESERVED_BELOW
from odradek.storage.formats.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
)
from odradek.storage.formats.meta_properties import META_PROPERTIES, MetaProperties
from odradek.storage.metadata.folders import missing_bootstrap
from odradek.storage.metadata.problems import MetadataProblems, problem_of
from odradek.storage.names import CLEAN_SHUTDOWN_MARKER, parse_partition_directory
from odradek.storage.regular_files import subfolders

_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)

_EMPTY_CHECKPOINT_BYTES = len("0\n0\n")


def directory_problems(directory: Path) -> list[FormatError]:
    """Return what is wrong with the root and the metadata of a log directory; nothing is raised or changed."""
    problems = [problem_of(directory / name, read_offset_checkpoint) for name in _CHECKPOINTS]
    metadata = MetadataProblems(directory)
    found = [problem for problem in [*problems, metadata.strays] if problem is not None]
    return [*found, *root_problems(directory, metadata)]


def root_problems(directory: Path, metadata: MetadataProblems) -> list[FormatError]:
    """Return what is wrong with the identity of a log directory, with its metadata, and between its files.

    Args:
        directory: The log directory.
        metadata: What is wrong with its metadata.
    """
    problem = problem_of(directory / META_PROPERTIES, MetaProperties.read)
    found = list(metadata.found) if problem is None else [problem, *metadata.found]
    if problem is None:
        meta = MetaProperties.read(directory / META_PROPERTIES)
        found += _identity_problems(directory, meta, metadata)
        is_clean = (directory / CLEAN_SHUTDOWN_MARKER).exists()
        if problem_of(directory / LOG_START_OFFSET_CHECKPOINT, read_offset_checkpoint) is None:
            found += start_offset_problems(directory, meta, is_clean=is_clean)
    return found


def start_offset_problems(directory: Path, meta: MetaProperties | None, *, is_clean: bool) -> list[FormatError]:
    """Return what is wrong with `log-start-offset-checkpoint`: without it, deleted records would reappear.

    Kafka writes the whole file with the recovery points, and whenever it closes a directory or deletes a log.
    Versions before 0.11 have none.

    Args:
        directory: The log directory.
        meta: The directory's identity.
        is_clean: Whether it was closed in order.

    Raises:
        FormatError: The file is damaged.
    """
    path = directory / LOG_START_OFFSET_CHECKPOINT
    size = path.stat().st_size if path.exists() else None
    reason = None
    if size is not None and size < _EMPTY_CHECKPOINT_BYTES:
        reason = "it is cut short"
    elif size is None and is_clean:
        reason = f"it is missing, although the directory was closed in order, as {CLEAN_SHUTDOWN_MARKER} says"
    elif size is None and (directory / RECOVERY_POINT_CHECKPOINT).exists():
        reason = f"it is missing, although {RECOVERY_POINT_CHECKPOINT}, which is written with it, is there"
    if reason is not None and meta is not None and meta.version:
        text = f"{reason}; without it every log starts with its first segment, and deleted records are there again"
        return [CheckpointError(text, path=path)]
    named = read_offset_checkpoint(path)
    folders = [parse_partition_directory(name) for name in subfolders(directory)] if named else []
    here = {folder.topic_partition for folder in folders if folder is not None}
    absent = sorted(named.keys() - here)
    if not absent:
        return []
    return [CheckpointError(f"it says where {absent[0]} starts, of which there is no folder", path=path)]


def _identity_problems(directory: Path, meta: MetaProperties | None, metadata: MetadataProblems) -> list[FormatError]:
    """Check `meta.properties` against what the metadata say about the partitions that are here."""
    path = directory / META_PROPERTIES
    if meta is None and metadata.is_recorded:
        return [FormatError("it is missing: nothing says whose the metadata here are", path=path)]
    if metadata.loaded is None or not metadata.loaded.is_recorded:
        missing = None if metadata.found else missing_bootstrap(directory, meta, [directory])
        return [] if missing is None else [missing]
    if meta is None or not metadata.here:
        return []
    images = [metadata.loaded.image.topics[topic].partitions[number] for topic, number in metadata.here]
    ours = [image for image in images if meta.node_id in image.replicas]
    if not ours and any(image.replicas for image in images):
        return [FormatError(f"node.id is {meta.node_id}, but none of the partitions here is that node's", path=path)]
    assigned = {
        image.directories[image.replicas.index(meta.node_id)]
        for image in ours
        if len(image.directories) == len(image.replicas)
    }
    assigned = {directory_id for directory_id in assigned if directory_id.int >= RESERVED_BELOW}
    if assigned and meta.directory_id not in assigned:
        return [FormatError("directory.id is not that to which the partitions here are assigned", path=path)]
    return []
