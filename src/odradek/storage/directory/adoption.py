"""Decides which folders become log directories: those of Kafka, and empty ones.

    data/ meta.properties ...                             is a log directory already
    data/                                                 empty, missing, or left by an interrupted first opening
    data/ photos-2024/ notes.txt                          holds something else: only with `adopt`
    data/ orders-0/00000000000000000000.log               partitions without a cluster: only with `adopt`
    data/ __cluster_metadata-0/ or bootstrap.checkpoint   belongs to an unknown cluster: never

Kafka leaves the choice to its format tool. Here a folder is formatted as soon as it is opened, and the names of the
folders in it would become topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from odradek.errors import ForeignDirectoryError, FormatError, LogError
from odradek.storage.directory.deeper import refuse_deeper
from odradek.storage.directory.lock import LOCK_FILE_NAME
from odradek.storage.directory.partition_folders import holds_segments
from odradek.storage.directory.surrounding import check_outside
from odradek.storage.files import FILES, FileSystem
from odradek.storage.formats.meta_properties import META_PROPERTIES
from odradek.storage.formats.partition_metadata import PARTITION_METADATA
from odradek.storage.metadata.cluster import MAX_PARTITIONS_PER_BATCH
from odradek.storage.metadata.metadata_log import METADATA_DIRECTORY, load_bootstrap
from odradek.storage.names import BOOTSTRAP_CHECKPOINT, DELETE_DIRECTORY_SUFFIX, parse_partition_directory
from odradek.storage.regular_files import subfolders
from odradek.storage.system_errors import raise_unless_of_system

_OF_FORMATTING = (META_PROPERTIES, BOOTSTRAP_CHECKPOINT, f"{META_PROPERTIES}.tmp", f"{BOOTSTRAP_CHECKPOINT}.tmp")
"""The files that formatting a folder makes, the last one first."""

_NOTHING = {LOCK_FILE_NAME, "lost+found", *_OF_FORMATTING[2:]}
_NAMED_AT_MOST = 3


class Admission:
    """Folders that are about to be opened for writing; nothing in them has been changed yet.

    Args:
        paths: The folders of `log.dirs`.
        adopt: Whether to accept folders that hold something else.
        files: The file system to write through.

    Raises:
        ForeignDirectoryError: A folder holds something else; or with `adopt`, something that cannot become a partition.
        LogError: A folder cannot be read, or is new and within a log directory.
    """

    def __init__(self, paths: Sequence[Path], *, adopt: bool = False, files: FileSystem = FILES) -> None:
        self._files = files
        self._missing = {folder for path in paths for folder in _missing(path)}
        for path in paths:
            if not (path / META_PROPERTIES).exists():
                check_outside(path)
            _check(path, adopt=adopt)

    def remove_files(self, path: Path) -> None:
        """Remove the files that were made in a new folder: opening it failed, and its lock is still held."""
        if path in self._missing:
            for name in _OF_FORMATTING:
                with suppress(OSError):
                    self._files.unlink(path / name)

    def remove_folders(self) -> None:
        """Remove the new folders that are empty again: opening them failed."""
        for folder in sorted(self._missing, key=lambda folder: -len(folder.parts)):
            with suppress(OSError):
                self._files.remove_directory(folder)


def _missing(path: Path) -> Iterable[Path]:
    for folder in (path, *path.parents):
        if folder.exists() or folder.is_symlink():
            return
        yield folder


def _check(path: Path, *, adopt: bool) -> None:
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        # It is created later, or the error then says why that is not possible.
        return
    except OSError as error:
        raise_unless_of_system(error)
        raise LogError(f"{path} cannot be read as a log directory: {error.strerror or error}") from error
    if META_PROPERTIES in names:
        return
    refuse_deeper(path)
    found = [name for name in names if name not in _NOTHING and not _is_new_bootstrap(path / name)]
    of_cluster = [name for name in found if name in {METADATA_DIRECTORY, BOOTSTRAP_CHECKPOINT}]
    if of_cluster:
        # Its topics have ids that belong to a cluster and a directory, and nothing says which.
        reason = (
            f"holds the metadata of a cluster, {of_cluster[0]}, but no {META_PROPERTIES} that says whose: put it back"
        )
        raise ForeignDirectoryError(path, of_cluster, reason)
    if found and not adopt:
        raise ForeignDirectoryError(
            path,
            found,
            f"is not a log directory: it holds {_listed(found)}, but no {META_PROPERTIES}. With adopt=True "
            "(--adopt) it is made one, and the folders of partitions in it become topics",
        )
    if found:
        _check_partitions(path)


def _is_new_bootstrap(path: Path) -> bool:
    """Whether this is the file that formatting a folder makes first: complete, and without topics."""
    if path.name != BOOTSTRAP_CHECKPOINT:
        return False
    try:
        return not load_bootstrap(path).topics
    except FormatError:
        return False
    except OSError as error:
        raise_unless_of_system(error)
        return False


def _check_partitions(path: Path) -> None:
    for name in subfolders(path):
        parsed = parse_partition_directory(name)
        if parsed is None:
            continue
        reason = None
        if parsed.suffix == DELETE_DIRECTORY_SUFFIX:
            reason = "is marked as deleted: it would be removed, with all that is in it"
        elif not parsed.suffix and parsed.topic_partition.partition >= MAX_PARTITIONS_PER_BATCH:
            reason = f"would be one of more than {MAX_PARTITIONS_PER_BATCH} partitions of a topic"
        elif not parsed.suffix and not holds_segments(path / name) and not (path / name / PARTITION_METADATA).exists():
            reason = "cannot become a partition: it holds no segment"
        if reason is not None:
            raise ForeignDirectoryError(path, [name], f"cannot be made a log directory: {name!r} {reason}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_NAMED_AT_MOST])
    more = len(names) - _NAMED_AT_MOST
    return f"{shown} and {more} more" if more > 0 else shown
