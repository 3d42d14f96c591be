"""What a PATH on the command line stands for: the files of a log.

    a file                  itself, also `.deleted`, `.cleaned`, `.swap`
    a partition's folder    its files, without those three
    a log directory         its checkpoints, and the files of its live partitions
    a pattern               whatever it matches

A folder's name decides nothing where its content can: a log directory may well be called `data-0`.
"""

from __future__ import annotations

import glob
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from odradek.storage import checkpoints, names
from odradek.storage.directory.meta_properties import META_PROPERTIES
from odradek.storage.directory.partition_metadata import PARTITION_METADATA
from odradek.storage.metadata.snapshot import BOOTSTRAP_CHECKPOINT
from odradek.storage.names import TopicPartition, parse_partition_directory, parse_raft_snapshot_file

LEFTOVER_SUFFIXES = (names.DELETED_SUFFIX, names.CLEANED_SUFFIX, names.SWAP_SUFFIX)


class FileKind(StrEnum):
    """What a file of a log directory holds."""

    RECORDS = "records"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    TRANSACTION_INDEX = "transaction index"
    PRODUCER_SNAPSHOT = "producer snapshot"
    OFFSET_CHECKPOINT = "offset checkpoint"
    LEADER_EPOCHS = "leader epochs"
    PROPERTIES = "properties"


_BY_SUFFIX = {
    names.LOG_SUFFIX: FileKind.RECORDS,
    names.CHECKPOINT_SUFFIX: FileKind.RECORDS,
    names.INDEX_SUFFIX: FileKind.OFFSET_INDEX,
    names.TIME_INDEX_SUFFIX: FileKind.TIME_INDEX,
    names.TRANSACTION_INDEX_SUFFIX: FileKind.TRANSACTION_INDEX,
    names.SNAPSHOT_SUFFIX: FileKind.PRODUCER_SNAPSHOT,
}
_BY_NAME = {
    checkpoints.RECOVERY_POINT_CHECKPOINT: FileKind.OFFSET_CHECKPOINT,
    checkpoints.LOG_START_OFFSET_CHECKPOINT: FileKind.OFFSET_CHECKPOINT,
    checkpoints.REPLICATION_OFFSET_CHECKPOINT: FileKind.OFFSET_CHECKPOINT,
    checkpoints.CLEANER_OFFSET_CHECKPOINT: FileKind.OFFSET_CHECKPOINT,
    checkpoints.LEADER_EPOCH_CHECKPOINT: FileKind.LEADER_EPOCHS,
    PARTITION_METADATA: FileKind.PROPERTIES,
    META_PROPERTIES: FileKind.PROPERTIES,
    BOOTSTRAP_CHECKPOINT: FileKind.RECORDS,
}


class UnknownPathError(OSError):
    """A path that stands for no file of a log."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of a log, and what its name and its folder's name say.

    Attributes:
        path: The file.
        kind: What it holds.
        base_offset: The offset in its name; 0 where there is none.
        topic_partition: Whose it is; None outside of a partition's folder.
        next_base_offset: For a segment of a live log: the base offset of the one after it, or None.
        is_named: Whether the command line names the file itself, not the folder that it is in.
    """

    path: Path
    kind: FileKind
    base_offset: int = 0
    topic_partition: TopicPartition | None = None
    next_base_offset: int | None = None
    is_named: bool = False

    @property
    def is_segment(self) -> bool:
        """Whether the file is a segment that its log reads (no snapshot, no leftover)."""
        return self.path.name.endswith(names.LOG_SUFFIX)

    def sibling(self, suffix: str) -> Path:
        """Return the file beside this one that has the same offset in its name."""
        return self.path.with_name(names.segment_file_name(self.base_offset, suffix))


def classify(path: Path) -> LogFile | None:
    """Return what a file is by its name; None where it is none of a log's."""
    name = path.name
    owner = parse_partition_directory(path.resolve().parent.name)
    topic_partition = owner.topic_partition if owner else None
    if name in _BY_NAME:
        return LogFile(path, _BY_NAME[name], 0, topic_partition)
    snapshot = parse_raft_snapshot_file(name)
    if snapshot is not None:
        return LogFile(path, FileKind.RECORDS, 0, topic_partition)
    parsed = names.parse_segment_file(name)
    if parsed is None:
        return None
    suffix = parsed.suffix
    for leftover in LEFTOVER_SUFFIXES:
        suffix = suffix.removesuffix(leftover)
    kind = _BY_SUFFIX.get(suffix)
    return None if kind is None else LogFile(path, kind, parsed.base_offset, topic_partition)


def partition_files(directory: Path) -> list[LogFile]:
    """Return the files of one partition, segments with what follows them, in the order of their names."""
    paths = sorted(path for path in directory.iterdir() if not path.name.endswith(LEFTOVER_SUFFIXES))
    files = [file for file in map(classify, paths) if file is not None]
    bases = [file.base_offset for file in files if file.is_segment]
    following = dict(itertools.pairwise(bases))
    return [
        replace(file, next_base_offset=following.get(file.base_offset)) if file.is_segment else file for file in files
    ]


def partition_directories(log_dir: Path) -> list[Path]:
    """Return the folders of a log directory's live partitions, by topic and number."""
    found = []
    for path in log_dir.iterdir():
        parsed = parse_partition_directory(path.name)
        if parsed is not None and not parsed.suffix and path.is_dir():
            found.append((parsed.topic_partition, path))
    return [path for _, path in sorted(found)]


def is_partition_directory(directory: Path) -> bool:
    """Whether a folder holds segments, or could: its content decides, then its name."""
    entries = list(directory.iterdir())
    if any(names.parse_segment_file(entry.name) for entry in entries):
        return True
    if (directory / META_PROPERTIES).exists() or partition_directories(directory):
        return False
    return parse_partition_directory(directory.name) is not None


def check_log_directory(directory: Path) -> None:
    """Raise `UnknownPathError` where a folder is no log directory, which has an identity or folders of partitions."""
    if is_partition_directory(directory):
        raise UnknownPathError(None, "the folder of a partition, not a log directory", str(directory))
    if not partition_directories(directory) and not (directory / META_PROPERTIES).exists():
        raise UnknownPathError(None, "not a log directory", str(directory))


def expand(patterns: Iterable[str]) -> Iterator[LogFile | UnknownPathError]:
    """Give the files that the paths and patterns stand for; an error stands in the place of what is none."""
    for pattern in patterns:
        if Path(pattern).exists() or not glob.has_magic(pattern):
            yield from _expand_path(Path(pattern))
            continue
        matches = sorted(glob.glob(pattern))  # noqa: PTH207 - a pattern may be absolute, and pathlib's may not
        if not matches:
            yield UnknownPathError(None, "nothing matches this pattern", pattern)
        for match in matches:
            yield from _expand_path(Path(match))


def _expand_path(path: Path) -> Iterator[LogFile | UnknownPathError]:
    try:
        if path.is_dir():
            yield from _expand_directory(path)
            return
        path.stat()
    except OSError as error:
        yield UnknownPathError(error.errno, error.strerror, str(path))
        return
    file = classify(path)
    if file is None:
        yield UnknownPathError(None, "not a file of a log, by its name", str(path))
    else:
        yield replace(file, is_named=True)


def _expand_directory(directory: Path) -> Iterator[LogFile | UnknownPathError]:
    if is_partition_directory(directory):
        yield from partition_files(directory)
        return
    partitions = partition_directories(directory)
    if not partitions and not (directory / META_PROPERTIES).exists():
        yield UnknownPathError(None, "neither a log directory nor the folder of a partition", str(directory))
    root = (classify(path) for path in sorted(directory.iterdir()) if path.is_file())
    yield from (file for file in root if file is not None)
    for partition in partitions:
        yield from partition_files(partition)
