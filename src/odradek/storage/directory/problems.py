"""What is wrong with the files of a log directory's root, and with its metadata.

    meta.properties, bootstrap.checkpoint, *-checkpoint, __cluster_metadata-0/

What lies in the partitions' folders is for their logs to tell.
"""

from __future__ import annotations

from pathlib import Path

from odradek.errors import CheckpointError, FormatError
from odradek.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
)
from odradek.storage.directory.directory_state import CLEAN_SHUTDOWN_MARKER
from odradek.storage.directory.meta_properties import META_PROPERTIES, MetaProperties
from odradek.storage.metadata.problems import MetadataProblems, problem_of
from odradek.storage.uuids import RESERVED_BELOW

_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)


def directory_problems(directory: Path) -> list[FormatError]:
    """Return what is wrong with the root and the metadata of a log directory; nothing is raised, nothing changed."""
    problems = [problem_of(directory / name, read_offset_checkpoint) for name in _CHECKPOINTS]
    problems.append(problem_of(directory / META_PROPERTIES, MetaProperties.read))
    metadata = MetadataProblems(directory)
    found = [problem for problem in problems if problem is not None] + metadata.found
    if problems[-1] is None:
        meta = MetaProperties.read(directory / META_PROPERTIES)
        found += _identity_problems(directory, meta, metadata)
        missing = missing_start_offsets(directory, meta) if (directory / CLEAN_SHUTDOWN_MARKER).exists() else None
        found += [] if missing is None else [missing]
    return found


def missing_start_offsets(directory: Path, meta: MetaProperties | None) -> FormatError | None:
    """Return what is wrong with a directory that was closed in order, but without the file that says where logs start.

    What was deleted from the heads of logs would be there again. Kafka writes the file whenever it closes a directory,
    except for versions before 0.11, which cannot delete so.
    """
    path = directory / LOG_START_OFFSET_CHECKPOINT
    if meta is None or not meta.version or (path.exists() and path.stat().st_size > 0):
        return None
    reason = (
        f"it is {'empty' if path.exists() else 'missing'}, although the directory was closed in order; without "
        f"{CLEAN_SHUTDOWN_MARKER} every log starts with its first segment"
    )
    return CheckpointError(reason, path=path)


def _identity_problems(directory: Path, meta: MetaProperties | None, metadata: MetadataProblems) -> list[FormatError]:
    """Hold `meta.properties` against what the metadata say of the partitions that are here."""
    path = directory / META_PROPERTIES
    if meta is None or metadata.loaded is None or not metadata.here:
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
