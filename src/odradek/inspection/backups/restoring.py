"""Puts a backup back into a new log directory.

    copy/ or a tar archive                  only read
    data.incomplete/                        being written
    data/                                   complete: renamed from it, when all of it is on the disk

All files are copied: a broker changes the new folder, and the backup must stay as it is.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from odradek.arguments import checked_path
from odradek.errors import LogError
from odradek.inspection.backups.held_partition import HeldFile
from odradek.inspection.backups.run import INCOMPLETE_SUFFIX, MARKER, is_backup, remove_copy
from odradek.inspection.backups.targets import BackupTarget, FolderTarget
from odradek.storage.directory.surrounding import check_outside
from odradek.storage.files import FILES, FileSystem, make_durable_directory
from odradek.storage.formats.meta_properties import META_PROPERTIES


def restore(
    source: str | os.PathLike[str] | IO[bytes],
    target: str | os.PathLike[str],
    files: FileSystem = FILES,
    *,
    watch: Callable[[int, BackupTarget], None] | None = None,
) -> int:
    """Write a backup into a new log directory, and return how many bytes were written.

    Args:
        source: The folder of a backup, a tar archive of one, or a stream of such an archive.
        target: The log directory: it must not exist, or be empty.
        files: The file system to write through.
        watch: Called with the number of bytes to write, 0 if that is not known, and what counts them.

    Raises:
        LogError: The source is not a complete backup; or the target is not empty, or within a log directory.
        OSError: The source cannot be read, or the target cannot be written.
    """
    place = Path(os.path.realpath(checked_path("target", target)))
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise LogError(f"{place} is not empty")
    check_outside(place)
    work = place.with_name(place.name + INCOMPLETE_SUFFIX)
    if not isinstance(source, str | os.PathLike):
        return _restored(source, place, work, files, watch)
    path = checked_path("source", source)
    if path.is_file():
        with path.open("rb") as archive:
            return _restored(archive, place, work, files, watch)
    if not is_backup(path):
        raise LogError(f"{path} is not a backup: it has no {MARKER}")
    return _restored(path, place, work, files, watch)


def _restored(
    source: Path | IO[bytes],
    place: Path,
    work: Path,
    files: FileSystem,
    watch: Callable[[int, BackupTarget], None] | None,
) -> int:
    remove_copy(work, files)
    make_durable_directory(work, files)
    # First the marker, by which another attempt knows that it may remove the folder.
    files.open(work / MARKER).close()
    target = FolderTarget(work, files, links=False)
    if watch is not None:
        watch(_size_of(source), target)
    if isinstance(source, Path):
        _copy_folder(source, source, target)
    else:
        _extract(source, target)
    if not (work / META_PROPERTIES).is_file():
        raise LogError(f"{work} is not complete: the backup has no {META_PROPERTIES}")
    target.finish()
    files.unlink(work / MARKER)
    files.sync_directory(work)
    files.rename(work, place)
    files.sync_directory(place.parent)
    return target.copied_bytes


def _size_of(source: Path | IO[bytes]) -> int:
    if isinstance(source, Path):
        return sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    try:
        status = os.fstat(source.fileno())
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _copy_folder(folder: Path, root: Path, target: FolderTarget) -> None:
    for path in sorted(folder.iterdir()):
        name = str(path.relative_to(root))
        if path.is_dir():
            target.add_folder(name)
            _copy_folder(path, root, target)
        elif name != MARKER:
            file = HeldFile(path)
            try:
                target.add_file(name, file, file.status.st_size, is_settled=False)
            finally:
                file.close()


def _extract(archive: IO[bytes], target: FolderTarget) -> None:
    try:
        with tarfile.open(fileobj=archive, mode="r|*") as tar:
            names = []
            for member in tar:
                names.append(member.name)
                if len(names) == 1 and member.name != MARKER:
                    raise LogError(f"this archive is not a backup: it does not begin with {MARKER}")
                if member.isdir():
                    target.add_folder(_checked(member.name))
                elif member.isfile() and member.name != MARKER and (content := tar.extractfile(member)) is not None:
                    target.add_stream(_checked(member.name), content, int(member.mtime * 1000))
    except tarfile.TarError as error:
        name = getattr(archive, "name", None)
        raise LogError(f"{name if isinstance(name, str) else 'the archive'} cannot be read: {error}") from error


def _checked(name: str) -> str:
    if name.startswith("/") or ".." in name.split("/"):
        raise LogError(f"the archive has a file {name!r}, which no backup has")
    return name
