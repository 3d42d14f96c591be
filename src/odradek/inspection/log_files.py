"""The files of a log that a path stands for.

    a file                  itself, also `.deleted`, `.cleaned`, `.swap`, or without a name of Kafka's (in `lost+found`)
    a partition's folder    its files, without those three
    a log directory         its checkpoints, and the files of its live partitions
    a pattern               whatever it matches

A folder's content decides what it is, if it can, not its name: a log directory may well be called `data-0`. What cannot
be listed or followed appears as an error among the results, so that it does not end the run.
"""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from odradek.errors import FormatError, LogError
from odradek.records import scan_batches
from odradek.storage import names
from odradek.storage.directory.deeper import advice_of_deeper
from odradek.storage.formats import checkpoints
from odradek.storage.formats.meta_properties import META_PROPERTIES
from odradek.storage.formats.partition_metadata import PARTITION_METADATA
from odradek.storage.names import (
    BOOTSTRAP_CHECKPOINT,
    CLEAN_SHUTDOWN_MARKER,
    TopicPartition,
    parse_partition_directory,
    parse_raft_snapshot_file,
)
from odradek.storage.segment.batch_reader import mapped

LEFTOVER_SUFFIXES = (names.DELETED_SUFFIX, names.CLEANED_SUFFIX, names.SWAP_SUFFIX)
QUORUM_STATE = "quorum-state"


class FileKind(StrEnum):
    """What a file of a log directory holds."""

    RECORDS = "records"
    OFFSET_INDEX = "offset index"
    TIME_INDEX = "time index"
    TRANSACTION_INDEX = "transaction index"
    PRODUCER_SNAPSHOT = "producer snapshot"
    OFFSET_CHECKPOINT = "offset checkpoint"
    LEADER_EPOCHS = "leader epochs"
    META_PROPERTIES = "meta.properties"
    PARTITION_METADATA = "partition.metadata"
    QUORUM_STATE = "quorum state"
    CLEAN_SHUTDOWN = "clean shutdown marker"


_BY_SUFFIX = {
    names.LOG_SUFFIX: FileKind.RECORDS,
    names.INDEX_SUFFIX: FileKind.OFFSET_INDEX,
    names.TIME_INDEX_SUFFIX: FileKind.TIME_INDEX,
    names.TRANSACTION_INDEX_SUFFIX: FileKind.TRANSACTION_INDEX,
    names.SNAPSHOT_SUFFIX: FileKind.PRODUCER_SNAPSHOT,
    names.CHECKPOINT_SUFFIX: FileKind.RECORDS,
}
_BY_NAME = {
    checkpoints.RECOVERY_POINT_CHECKPOINT: FileKind.OFFSET_CHECKPOINT,
    checkpoints.LOG_START_OFFSET_CHECKPOINT: FileKind.OFFSET_CHECKPOINT,
    checkpoints.REPLICATION_OFFSET_CHECKPOINT: FileKind.OFFSET_CHECKPOINT,
    checkpoints.CLEANER_OFFSET_CHECKPOINT: FileKind.OFFSET_CHECKPOINT,
    checkpoints.LEADER_EPOCH_CHECKPOINT: FileKind.LEADER_EPOCHS,
    PARTITION_METADATA: FileKind.PARTITION_METADATA,
    META_PROPERTIES: FileKind.META_PROPERTIES,
    BOOTSTRAP_CHECKPOINT: FileKind.RECORDS,
    QUORUM_STATE: FileKind.QUORUM_STATE,
    CLEAN_SHUTDOWN_MARKER: FileKind.CLEAN_SHUTDOWN,
}
_OFFSET_NAMED = frozenset({*names.SEGMENT_SUFFIXES, names.SNAPSHOT_SUFFIX})
INDEX_KINDS = frozenset({FileKind.OFFSET_INDEX, FileKind.TIME_INDEX, FileKind.TRANSACTION_INDEX})


class UnknownPathError(LogError):
    """A path that is no file or folder of a log, or that cannot be looked at.

    Attributes:
        path: The path.
        reason: Why.
    """

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        self.path = os.fspath(path)
        self.reason = reason
        super().__init__(path, reason)

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"

    @classmethod
    def of(cls, path: Path, error: OSError) -> UnknownPathError:
        """Return the error for the system's error about a path."""
        return cls(path, error.strerror or str(error))


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of a log, and what its name and its folder's name say.

    Attributes:
        path: The file.
        kind: What it holds.
        base_offset: The offset in its name; 0 if there is none.
        topic_partition: The partition that it belongs to; None outside of a partition's folder.
        next_base_offset: For a segment of a live log: the base offset of the one after it, or None.
        is_named: Whether the caller named the file itself, not the folder that it is in.
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

    @property
    def is_metadata_snapshot(self) -> bool:
        """Whether the file is a snapshot of the metadata log, or `bootstrap.checkpoint`, which has that form."""
        return self.kind is FileKind.RECORDS and self.path.name.endswith(names.CHECKPOINT_SUFFIX)

    def sibling(self, suffix: str) -> Path:
        """Return the file beside this one that has the same offset in its name."""
        return self.path.with_name(names.segment_file_name(self.base_offset, suffix))


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """The folder of a partition.

    Attributes:
        path: The folder.
        topic_partition: The partition, by the folder's name; None if that is not a partition's name.
        files: Its files that belong to a log, by name, each segment with the base offset of the next one.
        misnamed: Files that end as a segment's do, but whose names are not an offset.
        problem: Why the folder cannot be listed, if it cannot.
    """

    path: Path
    topic_partition: TopicPartition | None
    files: list[LogFile] = field(default_factory=list)
    misnamed: list[Path] = field(default_factory=list)
    problem: UnknownPathError | None = None

    @property
    def segments(self) -> list[LogFile]:
        """The segments, by base offset."""
        return [file for file in self.files if file.is_segment]


@dataclass(frozen=True, slots=True)
class LogDirectoryFolder:
    """A log directory.

    Attributes:
        path: The folder.
        files: The files of its root.
        partitions: The folders of its live partitions, by topic and number.
        problems: Paths that have the name of a partition's folder, and that cannot be looked at.
    """

    path: Path
    files: list[LogFile]
    partitions: list[PartitionFolder]
    problems: list[UnknownPathError]


Located = LogFile | PartitionFolder | LogDirectoryFolder
"""What a path may stand for."""


def _owner(folder: Path) -> TopicPartition | None:
    # `Path.resolve` would raise if symbolic links lead in a circle.
    parsed = parse_partition_directory(Path(os.path.realpath(folder)).name)
    return None if parsed is None else parsed.topic_partition


def classify(path: Path) -> LogFile | None:
    """Return what a file is by its name; None if no file of a log has such a name."""
    name = path.name
    topic_partition = _owner(path.parent)
    if name in _BY_NAME:
        return LogFile(path, _BY_NAME[name], 0, topic_partition)
    if parse_raft_snapshot_file(name) is not None:
        return LogFile(path, FileKind.RECORDS, 0, topic_partition)
    parsed = names.parse_segment_file(name)
    if parsed is None:
        return None
    suffix = parsed.suffix
    for leftover in LEFTOVER_SUFFIXES:
        suffix = suffix.removesuffix(leftover)
    kind = _BY_SUFFIX.get(suffix)
    return None if kind is None else LogFile(path, kind, parsed.base_offset, topic_partition)


def partition_folder(directory: Path) -> PartitionFolder:
    """Return the folder of a partition with its files by name, each segment with the base offset of the next one."""
    owner = _owner(directory)
    try:
        paths = sorted(path for path in directory.iterdir() if not path.name.endswith(LEFTOVER_SUFFIXES))
    except OSError as error:
        return PartitionFolder(directory, owner, problem=UnknownPathError.of(directory, error))
    files = [file for file in map(classify, paths) if file is not None]
    bases = [file.base_offset for file in files if file.is_segment]
    following = dict(itertools.pairwise(bases))
    known = {file.path for file in files}
    placed = [
        replace(file, next_base_offset=following.get(file.base_offset)) if file.is_segment else file for file in files
    ]
    misnamed = [path for path in paths if path.suffix in _OFFSET_NAMED and path not in known]
    return PartitionFolder(directory, owner, placed, misnamed)


def _partition_entries(log_dir: Path) -> tuple[list[Path], list[UnknownPathError]]:
    found, problems = [], []
    for path in sorted(log_dir.iterdir()):
        parsed = parse_partition_directory(path.name)
        if parsed is None or parsed.suffix:
            continue
        try:
            path.stat()
        except OSError as error:
            # A running broker may have deleted it since the folder was listed; a link that leads nowhere is a problem.
            if not isinstance(error, FileNotFoundError) or path.is_symlink():
                problems.append(UnknownPathError.of(path, error))
            continue
        if path.is_dir():
            found.append((parsed.topic_partition, path))
        elif not path.is_file():
            problems.append(UnknownPathError(path, "neither a folder nor a file"))
    return [path for _, path in sorted(found)], problems


def partition_directories(log_dir: Path) -> list[Path]:
    """Return the folders of a log directory's live partitions, by topic and number.

    Raises:
        OSError: It cannot be listed.
    """
    return _partition_entries(log_dir)[0]


def is_partition_directory(directory: Path) -> bool:
    """Whether a folder holds segments, or could: its content decides, then its name.

    Raises:
        OSError: It cannot be listed.
    """
    entries = list(directory.iterdir())
    if any(names.parse_segment_file(entry.name) for entry in entries):
        return True
    if (directory / META_PROPERTIES).exists() or partition_directories(directory):
        return False
    return parse_partition_directory(directory.name) is not None


def locate_log_directory(directory: Path) -> LogDirectoryFolder:
    """Return a log directory: a folder with `meta.properties` or with folders of partitions.

    Raises:
        UnknownPathError: The folder is not a log directory, or cannot be looked at.
    """
    try:
        located = _locate_directory(directory, "not a log directory")
    except OSError as error:
        raise UnknownPathError.of(directory, error) from error
    if isinstance(located, PartitionFolder):
        raise UnknownPathError(directory, "the folder of a partition, not a log directory")
    return located


def is_log_directory(path: Path) -> bool:
    """Whether a path is a log directory; the files of its partitions, which may be thousands, are not looked at.

    Raises:
        UnknownPathError: It cannot be listed.
    """
    try:
        if not path.is_dir() or is_partition_directory(path):
            return False
        return (path / META_PROPERTIES).exists() or any(len(found) > 0 for found in _partition_entries(path))
    except OSError as error:
        raise UnknownPathError.of(path, error) from error


def locate(path: Path) -> Located:
    """Return what a path stands for.

    Raises:
        UnknownPathError: It is not a regular file or folder of a log, or cannot be looked at.
    """
    try:
        if path.is_dir():
            return _locate_directory(path, "neither a log directory nor the folder of a partition")
        path.stat()
        file = classify(path) or _nameless_segment(path)
    except OSError as error:
        raise UnknownPathError.of(path, error) from error
    if file is None:
        raise UnknownPathError(path, "not a file of a log: neither its name is one, nor does it begin with a batch")
    return replace(file, is_named=True)


def _nameless_segment(path: Path) -> LogFile | None:
    """Return a file that begins with a batch of records, whatever its name is; None if it does not.

    Raises:
        OSError: It cannot be read.
    """
    with suppress(FormatError), mapped(path) as data:
        header = next(iter(scan_batches(data, 0)), None)
        if header is not None:
            return LogFile(path, FileKind.RECORDS, header.base_offset, _owner(path.parent))
    return None


def _locate_directory(directory: Path, otherwise: str) -> PartitionFolder | LogDirectoryFolder:
    advice = advice_of_deeper(directory)
    if advice is not None:
        raise UnknownPathError(directory, advice)
    if is_partition_directory(directory):
        return partition_folder(directory)
    partitions, problems = _partition_entries(directory)
    if not partitions and not problems and not (directory / META_PROPERTIES).exists():
        raise UnknownPathError(directory, otherwise)
    root = (classify(path) for path in sorted(directory.iterdir()))
    return LogDirectoryFolder(
        directory,
        [file for file in root if file is not None],
        [partition_folder(path) for path in partitions],
        problems,
    )


def locate_all(patterns: Iterable[str]) -> Iterator[Located | UnknownPathError]:
    """Yield what paths and patterns stand for; an error for each that stands for nothing."""
    for pattern in patterns:
        if os.path.lexists(pattern) or not glob.has_magic(pattern):
            matches = [pattern]
        else:
            matches = sorted(glob.glob(pattern))  # noqa: PTH207 - a pattern may be absolute, and pathlib's may not
            if not matches:
                yield UnknownPathError(pattern, "nothing matches this pattern")
        for match in matches:
            try:
                yield locate(Path(match))
            except UnknownPathError as error:
                yield error


def expand(patterns: Iterable[str]) -> Iterator[LogFile | UnknownPathError]:
    """Yield the files that paths and patterns stand for; an error for each that stands for none."""
    for located in locate_all(patterns):
        match located:
            case LogDirectoryFolder():
                yield from located.files
                yield from located.problems
                for partition in located.partitions:
                    yield from _files_of(partition)
            case PartitionFolder():
                yield from _files_of(located)
            case _:
                yield located


def _files_of(partition: PartitionFolder) -> Iterator[LogFile | UnknownPathError]:
    yield from partition.files
    if partition.problem is not None:
        yield partition.problem
