"""Makes a sound log directory out of a damaged one, or of one partition.

    data/                       read only
    rescued.incomplete/         being written: without meta.properties, which Kafka demands
    rescued/                    complete: renamed from it, when all of it is on the disk

The target is written as Kafka writes: the same segments, with indexes made by its rules. It has no clean-shutdown
marker and no recovery points, so Kafka checks all of it before it serves it. An interrupted salvage leaves an
incomplete folder, whose name says so; remove it before the next attempt.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from odradek.arguments import checked_path
from odradek.errors import LogError
from odradek.inspection.finding import Finding, FindingKind
from odradek.inspection.log_files import LogDirectoryFolder, LogFile, PartitionFolder, UnknownPathError, locate
from odradek.inspection.moved_records import while_unchanged
from odradek.inspection.salvaging.copies import copy_files
from odradek.inspection.salvaging.identity import set_aside, write_identity
from odradek.inspection.salvaging.partition import PartitionSalvage
from odradek.inspection.salvaging.report import SalvagedLog, SalvageReport
from odradek.inspection.surroundings import Surroundings
from odradek.inspection.verification.offset_checkpoints import LogExtent, start_beyond_end
from odradek.storage.directory.surrounding import check_outside
from odradek.storage.files import FILES, FileSystem, make_durable_directory
from odradek.storage.formats.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
)
from odradek.storage.formats.metadata_snapshot import read_snapshot
from odradek.storage.names import BOOTSTRAP_CHECKPOINT, parse_partition_directory, partition_directory_name

INCOMPLETE_SUFFIX = ".incomplete"

_ROOT_READERS: dict[str, Callable[[Path], object]] = {
    BOOTSTRAP_CHECKPOINT: read_snapshot,
    LOG_START_OFFSET_CHECKPOINT: read_offset_checkpoint,
    CLEANER_OFFSET_CHECKPOINT: read_offset_checkpoint,
}


def incomplete_path(target: Path) -> Path:
    """Return the folder that a target is written to before it is complete.

    Raises:
        LogError: The target is the root of all folders.
    """
    path = Path(os.path.realpath(target))
    if not path.name:
        raise LogError(f"{target} is the root, which cannot be renamed: name a folder in it")
    return path.with_name(path.name + INCOMPLETE_SUFFIX)


def salvage(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    files: FileSystem = FILES,
    *,
    watch: Callable[[SalvagedLog], None] | None = None,
) -> SalvageReport:
    """Write what is sound in a log directory, or in the folder of a partition, into a new log directory.

    What cannot be read is left out and reported. If the salvage fails or is interrupted, nothing has the target's name;
    the part written so far is in the folder that `incomplete_path` names.

    Args:
        source: The log directory or partition's folder; it is only read.
        target: The new log directory: it must not exist, or be empty.
        files: The file system to write through.
        watch: Called with the report of each partition when the work on it begins; its counts grow from then on.

    Raises:
        UnknownPathError: The source is neither a log directory nor the folder of a partition.
        LogError: The target is not empty, or within the source, or the other way round; or nothing could be read.
        OSError: The target cannot be written.
    """
    located = locate(checked_path("source", source))
    # A folder that does not exist, and `..` after it, would otherwise be one that does not exist.
    place = Path(os.path.realpath(checked_path("target", target)))
    if isinstance(located, LogFile):
        raise UnknownPathError(source, "neither a log directory nor the folder of a partition")
    is_whole = isinstance(located, LogDirectoryFolder)
    partitions = located.partitions if isinstance(located, LogDirectoryFolder) else [located]
    if not partitions:
        raise LogError(f"{os.fspath(source)} holds no partition")
    if all(partition.topic_partition is None for partition in partitions):
        path = partitions[0].path
        raise LogError(f"{path} is not named after a topic and a partition: rename it, such as {path.name}-0")
    work = _check_target(located.path, place, partitions)
    report = SalvageReport(Path(target))
    make_durable_directory(work, files)
    surroundings = Surroundings(located.path if is_whole else Path(os.path.realpath(located.path)).parent)
    problems = located.problems if isinstance(located, LogDirectoryFolder) else []
    for partition in partitions:
        if partition.problem is not None:
            problems = [*problems, partition.problem]
        elif partition.topic_partition is None:
            # Such as a link to the folder that it is in.
            problems = [*problems, UnknownPathError(partition.path, "it is not the folder of a partition")]
        else:
            report.logs.append(_salvage_partition(partition, surroundings, work, report.target, files, watch))
    report.left_out += [
        Finding(Path(problem.path), None, FindingKind.UNREADABLE, problem.reason) for problem in problems
    ]
    if not any(log.segments for log in report.logs) and (report.left_out or report.losses):
        reason = str(report.left_out[0]) if report.left_out else str(report.losses[0])
        _remove(work, files)
        raise LogError(f"nothing of {os.fspath(source)} could be read: {reason}")
    if is_whole:
        report.left_out += copy_files(located.path, work, _ROOT_READERS, files)
        left_out, report.identity = write_identity(located.path, work, files)
        report.left_out += left_out
        report.unserved += set_aside(located.path, work)
        report.unserved += _deleted_at_start(surroundings, report.logs)
    files.sync_directory(work)
    files.rename(work, place)
    files.sync_directory(place.parent)
    return report


def _deleted_at_start(surroundings: Surroundings, logs: Iterable[SalvagedLog]) -> Iterator[Finding]:
    """Yield a finding for each partition whose records a broker deletes when it starts."""
    for log in logs:
        directory = parse_partition_directory(log.path.name)
        if directory is not None and log.batches:
            found = start_beyond_end(surroundings, LogExtent(directory.topic_partition, 0, log.end_offset))
            if found is not None:
                yield replace(found, reason=f"{found.reason}: brokers delete all of it; if that is wrong, change it")


def _salvage_partition(
    folder: PartitionFolder,
    surroundings: Surroundings,
    work: Path,
    target: Path,
    files: FileSystem,
    watch: Callable[[SalvagedLog], None] | None,
) -> SalvagedLog:
    assert folder.topic_partition is not None
    name = partition_directory_name(folder.topic_partition)

    def write(folder: PartitionFolder) -> SalvagedLog:
        if (work / name).exists():
            # The source was compacted, or its head was deleted, while it was read.
            _remove(work / name, files)
        log = SalvagedLog(target / name)
        if watch is not None:
            watch(log)
        files.make_directory(work / name)
        PartitionSalvage(folder, surroundings, work / name, log, files).run()
        return log

    return while_unchanged(folder, write, lambda log: bool(log.losses or log.mended or log.left_out))


def _check_target(source: Path, target: Path, partitions: Iterable[PartitionFolder]) -> Path:
    """Return the folder to write to first; nothing is written yet.

    Raises:
        LogError: That folder would be within the source, or exists.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise LogError(f"{target} is not empty")
    if target.is_dir() and os.path.ismount(target):
        raise LogError(f"{target} is a mount point, which cannot be renamed: name a folder in it")
    work = incomplete_path(target)
    if os.path.lexists(work):
        raise LogError(f"{work} is there already: a salvage that was interrupted, or one that goes on; remove it first")
    # Compare identities, not paths: links and mounts give one folder several names.
    read = [source, *(partition.path for partition in partitions)]
    written = {_identity(folder) for folder in (target, *work.parents) if folder.exists()}
    for folder in read:
        if _identity(folder) in written:
            raise LogError(f"{target} is within {folder}, which is only read")
        above = {_identity(parent) for parent in Path(os.path.realpath(folder)).parents}
        if target.exists() and _identity(target) in above:
            raise LogError(f"{folder} is within {target}, which is to be written")
    check_outside(target)
    return work


def _remove(folder: Path, files: FileSystem) -> None:
    """Remove a folder that was made here."""
    for path in folder.iterdir():
        if path.is_dir():
            _remove(path, files)
        else:
            files.unlink(path)
    files.remove_directory(folder)


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino
